"""Importing is cheap, quiet and needs none of the optional packages."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from waiting import PATIENCE

_HEAVY: set[str] = set(
    "a2a aiohttp cryptography docstring_parser httpx httpx2 litellm mcp openai opentelemetry psycopg "
    "psycopg_pool pytest redis rich starlette trio uvicorn vcr".split()
)

_WATCHED = """
import sys
def watch(event, args):
    if event in ("socket.__new__", "socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        raise SystemExit(f"importing caused {event} {args}")
sys.addaudithook(watch)
"""

_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in %r:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def _run(code: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def _loaded(package: str, heavy: set[str], env: dict[str, str]) -> list[str]:
    code = f"{_WATCHED}\nimport {package}\nprint(*({heavy!r} & sys.modules.keys()))"
    return _run(code, env).split()


def test_importing_routelock_loads_no_vendor_and_opens_no_socket(offline_env: dict[str, str]) -> None:
    """litellm costs two seconds and 160 MB, and calls home unless it is told not to."""
    assert (
        _loaded("routelock", _HEAVY | {"routelock.agents.svg", "routelock.run.notebook"}, offline_env) == []
    )


def test_importing_routelock_loads_nothing_that_few_runs_need(offline_env: dict[str, str]) -> None:
    """Each of these makes it slower by a tenth or a quarter."""
    few = {
        "pydantic",
        "pydantic_core",
        "hashlib",
        "routelock.tracing.recorder",
        "routelock.state.run_state",
        "routelock.state.resume",
    }
    assert _loaded("routelock", few, offline_env) == []


def test_what_few_runs_need_is_there_all_the_same(offline_env: dict[str, str]) -> None:
    code = "from routelock import *; from routelock.state import RunState as same; assert RunState is same"
    _run(code, offline_env)


def test_importing_prints_nothing(offline_env: dict[str, str]) -> None:
    assert _run("import routelock, routelock_providers, routelock_skills", offline_env) == ""


@pytest.mark.parametrize("package", ["routelock.testing", "routelock_providers", "routelock_skills"])
def test_the_other_packages_load_no_vendor_either(package: str, offline_env: dict[str, str]) -> None:
    assert _loaded(package, {"litellm", "openai", "vcr", "pytest"}, offline_env) == []


def test_the_core_imports_where_no_optional_package_is_installed(
    modules: dict[str, Any], offline_env: dict[str, str]
) -> None:
    about_one = {"routelock.cli.markdown", "routelock.testing.pytest_plugin"}
    about_one |= {
        f"routelock.testing.pytest_{name}" for name in ("guards", "vcr", "respx", "beside_recording")
    }
    about_one |= {f"routelock.serving.{name}" for name in ("http", "routes", "run_route", "responses.routes")}
    about_one |= {f"routelock.serving.{name}.routes" for name in ("a2a", "ag_ui", "dev", "mcp")}
    names = [name for name in modules if name.split(".")[0] == "routelock" and name not in about_one]
    _run(_WITHOUT % (_HEAVY,) + f"\nimport {', '.join(names)}", offline_env)
