"""The extra `all` brings every extra that users install, and none for work on routelock itself."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest

OURS = {"all", "test", "docs", "lint", "release"}


def test_all_is_every_extra_for_users(repo: Path) -> None:
    project = tomllib.loads((repo / "pyproject.toml").read_text("utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    named = [each.removeprefix("routelock[").removesuffix("]") for each in extras["all"]]
    assert sorted(",".join(named).split(",")) == sorted(extras.keys() - OURS)


def test_the_release_check_installs_every_extra_for_users(repo: Path) -> None:
    script = runpy.run_path(str(repo / "scripts" / "release_check.py"))
    assert script["DEVELOPMENT"] == OURS - {"all"}
    assert "all" in script["extras_for_users"]()


def test_the_release_check_finds_a_program_in_the_readme(repo: Path) -> None:
    script = runpy.run_path(str(repo / "scripts" / "release_check.py"))
    assert "Runner.run_sync(" in script["program"]()


@pytest.mark.parametrize("tag", ["0.0.1", "v0.0.1", "main"])
def test_a_tag_that_is_not_the_version_is_refused(repo: Path, tag: str) -> None:
    script = runpy.run_path(str(repo / "scripts" / "release_check.py"))
    with pytest.raises(script["CheckFailed"], match="has the version"):
        script["check_tag"](tag)
