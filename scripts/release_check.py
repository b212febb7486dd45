"""Build the distributions and check them as a user gets them. `make release-check` runs it.

* The sdist is built, and the wheel from the sdist, into dist/.
* `twine check --strict`, `check-wheel-contents` and `pyroma` find nothing. Pyroma asks for an address that
  the project does not have yet: see `UNKNOWN`.
* The long description begins with how to install the package, and has no link that leads nowhere.
* The wheel is installed into an empty environment without an extra, and with each extra for users. There the
  requirements fit together, `routelock --help` answers, and the README's first program prints something.

Packages come from where pip is set up to find them.

usage: release_check.py [--tag TAG] [EXTRA ...]
  --tag   the tag of the release, `v` and the version; the version has to have its heading in CHANGELOG.md
  EXTRA   check the wheel with these extras only; `none` is the wheel without an extra
"""

from __future__ import annotations

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

REPO = Path(__file__).parent.parent
DIST = REPO / "dist"
TOOLS = Path(sys.executable).parent

DEVELOPMENT = frozenset(("test", "docs", "lint", "release"))
"""The extras for work on routelock itself."""

UNKNOWN = ("author-email", "'url' field")
"""What pyroma asks for and the project does not have yet: a mail address, and a page of its own."""

_BLOCK = re.compile(r"(?P<skip><!-- not run: .+? -->\s*)?^```python\n(?P<code>.*?)^```$", re.M | re.S)
_FIRST_COMMANDS = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"\]\((?!https://)[^)]*\)|<img [^>]*src=\"(?!https://)")


class CheckFailed(Exception):
    """The distributions are not ready; the message says why."""


def project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    fields: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    return fields


def output_of(*command: str | Path, folder: Path = REPO, environment: dict[str, str] | None = None) -> str:
    """Run a command and return all that it prints.

    Raises:
        CheckFailed: it failed.
    """
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise CheckFailed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


# -- what was built --


def build() -> tuple[Path, Path]:
    """Build into an empty dist/, and return the wheel and the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    output_of(sys.executable, "-m", "build", "--outdir", DIST, REPO)
    (wheel,) = DIST.glob("*.whl")
    (sdist,) = DIST.glob("*.tar.gz")
    return wheel, sdist


def check_files(wheel: Path, sdist: Path) -> None:
    """Ask the tools that check distributions."""
    output_of(TOOLS / "twine", "check", "--strict", wheel, sdist)
    output_of(TOOLS / "check-wheel-contents", wheel)
    findings = list(pyroma_findings(sdist))
    if findings:
        raise CheckFailed("pyroma: " + "; ".join(findings))


def pyroma_findings(sdist: Path) -> Iterator[str]:
    """Yield what pyroma finds, without what is not known yet."""
    # it prints its findings between lines of dashes, and fails below the rating that is asked for
    printed = output_of(TOOLS / "pyroma", "--min=1", sdist)
    findings = printed.split("-" * 30)[2]
    yield from (line for line in findings.strip().splitlines() if not any(each in line for each in UNKNOWN))


def check_description(wheel: Path) -> None:
    """Look at the long description, which package indexes show."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = str(email.message_from_bytes(archive.read(name)).get_payload())
    commands = _FIRST_COMMANDS.search(text)
    if commands is None or not commands[1].startswith("pip install routelock"):
        raise CheckFailed(
            "The first block of commands in the long description is not `pip install routelock`."
        )
    if dead := _LINK.findall(text):
        raise CheckFailed(f"The long description has links that lead nowhere: {dead}")


def check_tag(tag: str) -> None:
    """Check that a tag names this version, and that the changelog has it."""
    version = project()["version"]
    if tag != f"v{version}":
        raise CheckFailed(f"The tag is {tag}, and pyproject.toml has the version {version}.")
    if not re.search(rf"^## \[{re.escape(version)}\]", (REPO / "CHANGELOG.md").read_text("utf-8"), re.M):
        raise CheckFailed(f"CHANGELOG.md has no heading [{version}]: rename Unreleased.")


# -- as a user has it --


def extras_for_users() -> list[str]:
    """Return the names of the extras that are not for work on routelock itself."""
    return sorted(project()["optional-dependencies"].keys() - DEVELOPMENT)


def program() -> str:
    """Return the first program of the README that runs offline."""
    for block in _BLOCK.finditer((REPO / "README.md").read_text("utf-8")):
        if not block["skip"]:
            return block["code"]
    raise CheckFailed("README.md has no program that runs offline.")


def check_installed(wheel: Path, extra: str) -> str:
    """Install the wheel into an empty environment, use it, and return the last line that was printed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python, target = folder / "venv/bin/python", f"{wheel}[{extra}]" if extra != "none" else str(wheel)
        (folder / "program.py").write_text(program(), "utf-8")
        # no key of ours, and nothing that makes the repository importable
        environment = {"PATH": os.defpath, "HOME": name}
        output_of(python, "-m", "pip", "install", "--quiet", "--no-compile", target)
        output_of(python, "-m", "pip", "check")
        output_of(folder / "venv/bin/routelock", "--help", folder=folder, environment=environment)
        printed = output_of(python, "-I", "program.py", folder=folder, environment=environment)
    if not printed.strip():
        raise CheckFailed(f"With the extra {extra} the README's program prints nothing.")
    return printed.strip().splitlines()[-1]


def main(arguments: Sequence[str]) -> None:
    """Check everything, and print what was checked."""
    parser = argparse.ArgumentParser(prog="release_check", description="Build and check the distributions.")
    parser.add_argument("--tag", help="the tag of the release")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="check these extras only, or `none`")
    options = parser.parse_args(arguments)
    if options.tag:
        check_tag(options.tag)
    wheel, sdist = build()
    print(f"built      {wheel.name}, {sdist.name}", flush=True)
    check_files(wheel, sdist)
    check_description(wheel)
    print("checked    by twine, check-wheel-contents and pyroma; the long description", flush=True)
    extras = options.extras or ["none", *extras_for_users()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for extra, line in zip(
            extras, pool.map(lambda one: check_installed(wheel, one), extras), strict=True
        ):
            print(f"installed  {extra:<11}{line}", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except CheckFailed as error:
        sys.exit(f"release_check: {error}")
