"""The extra `all` brings every extra that users install, and none for work on routelock itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

OURS = {"all", "test", "browser", "docs", "lint"}


def test_all_is_every_extra_for_users(repo: Path) -> None:
    project = tomllib.loads((repo / "pyproject.toml").read_text("utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    named = [each.removeprefix("routelock[").removesuffix("]") for each in extras["all"]]
    assert sorted(",".join(named).split(",")) == sorted(extras.keys() - OURS)
