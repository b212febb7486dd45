"""Print version bounds from pyproject.toml, one per line, for uv and pip.

usage: bounds.py default|lowest|newest     constraints (lowest) or overrides (newest)
       bounds.py prereleases               requirements that admit pre-releases, of some dependencies
       bounds.py only NAME                 the requirement on one dependency
       bounds.py installed                 what this interpreter has of them
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"

NEWEST_OVERRIDES = [
    # litellm >= 1.105.7 pins certifi to a release so fresh that mirrors may not have it yet
    "certifi>=2024.8",
]

EARLY = ("aiohttp", "litellm")
"""What is also tested before it is released: each release of theirs has changed something for us."""

_TESTED = (
    "a2a",
    "cli",
    "direct",
    "durable",
    "encryption",
    "mcp",
    "otel",
    "postgres",
    "redis",
    "serve",
    "testing",
    "test",
)


def requirements() -> dict[str, str]:
    """Every direct dependency, those of the extras that tests use included, by its bare name."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in _TESTED for line in extras[name])]
    ours = (line for line in lines if not line.startswith("routelock["))
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0]: line for line in ours}


def lowest(name: str, line: str) -> str:
    """Turn ``name>=1.2,<2`` into ``name==1.2``."""
    bound = re.search(r">=([\w.]+)", line)
    if bound is None:
        raise SystemExit(f"{name} has no lower bound in pyproject.toml: {line}")
    return f"{name}=={bound[1]}"


def prerelease(line: str) -> str:
    """Turn ``name>=1.2,<2`` into ``name>=1.2.dev0,<2``: a bound that is a pre-release admits pre-releases."""
    return re.sub(r"(>=[\w.]+)", r"\1.dev0", line, count=1)


def installed(name: str) -> str:
    """Say which version of one dependency is installed."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} (absent)"


def main(command: str, name: str = "") -> None:
    """Print what was asked for."""
    known = requirements()
    lines = {
        "default": lambda: [],
        "lowest": lambda: [lowest(name, line) for name, line in known.items()],
        "newest": lambda: NEWEST_OVERRIDES,
        "prereleases": lambda: [prerelease(known[name]) for name in EARLY],
        "only": lambda: [known[name]],
        "installed": lambda: [f"Python {sys.version.split()[0]}", *map(installed, known)],
    }[command]()
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
