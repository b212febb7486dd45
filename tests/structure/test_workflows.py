"""Workflows and hooks call make targets that exist, and pin the actions of others."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import REPO

WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))
HOOKS = REPO / ".pre-commit-config.yaml"
TARGETS = set(re.findall(r"^([\w-]+):(?!=)", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE))

_MAKE = re.compile(r"\bmake (?:--[\w-]+ )*([a-z][\w-]*)")


def _parsed(path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return parsed


def _code(path: Path) -> str:
    """Return a file without its comments."""
    return re.sub(r"(?m)^\s*#.*$|\s#\s.*$", "", path.read_text("utf-8"))


def _named(path: Path, pattern: str) -> set[str]:
    return set(re.findall(pattern, _code(path)))


def test_each_purpose_has_a_workflow() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "docs", "release", "weekly"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_job_has_steps_and_a_time_limit(path: Path) -> None:
    jobs = _parsed(path)["jobs"]
    assert jobs
    for name, job in jobs.items():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys(), name
        assert all(("run" in step) != ("uses" in step) for step in job["steps"]), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_more(path: Path) -> None:
    assert _parsed(path)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", [*WORKFLOWS, HOOKS], ids=lambda path: path.stem)
def test_make_targets_exist(path: Path) -> None:
    assert set(_MAKE.findall(_code(path))) - TARGETS == set()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "AGENTS.md", ".ci/run"])
def test_make_targets_that_a_page_names_exist(page: str) -> None:
    text = (REPO / page).read_text("utf-8")
    named = re.findall(r"(?:^ {4}|^|`)make ([a-z][\w-]*)", text, re.MULTILINE)
    assert set(named) - TARGETS == set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_scripts_that_a_workflow_calls_exist(path: Path) -> None:
    lost = [name for name in _named(path, r"\bscripts/[\w.-]+") if not (REPO / name).is_file()]
    assert lost == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    used = re.findall(r"uses: (.+)", path.read_text("utf-8"))
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)] == []


def test_an_action_has_one_version_in_all_workflows() -> None:
    used = {each for path in WORKFLOWS for each in _named(path, r"uses: (\S+)")}
    names = [each.partition("@")[0] for each in used]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_no_host(path: Path) -> None:
    """Packages come from where pip is set up to find them, and are published to the action's own default."""
    assert _named(path, r"\w+://\S+|\S*index-url\S*|\b\w+\.(?:org|com|io)\b") == set()


def test_the_classifiers_are_the_versions_of_python_that_ci_tests() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if ":: 3." in each]
    ci = _parsed(REPO / ".github" / "workflows" / "ci.yml")
    assert named == ci["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert project["requires-python"] == f">={named[0]}"


def test_each_way_to_set_up_an_environment_is_tested() -> None:
    named = {name for path in WORKFLOWS for name in _MAKE.findall(_code(path))}
    assert {
        "lint",
        "types",
        "test",
        "test-lowest",
        "test-newest",
        "test-prereleases",
        "release-check",
    } <= named


def test_a_release_is_published_without_a_password() -> None:
    publish = _parsed(REPO / ".github" / "workflows" / "release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["steps"][-1]["with"] == {"attestations": True}
    assert "secrets" not in (REPO / ".github" / "workflows" / "release.yml").read_text("utf-8")


def test_hooks_are_local_and_call_make() -> None:
    """So that the versions of the tools, and their arguments, are those of the Makefile."""
    repos = _parsed(HOOKS)["repos"]
    assert [each["repo"] for each in repos] == ["local"]
    hooks = {hook["id"]: hook for hook in repos[0]["hooks"]}
    assert {name: hook["entry"] for name, hook in hooks.items()} == {
        "lint": "make lint",
        "types": "make types",
    }
    assert not any(hook["pass_filenames"] for hook in hooks.values())


def test_help_tells_of_every_target_for_people() -> None:
    text = (REPO / "Makefile").read_text("utf-8")
    told = set(
        re.findall(r"\b([a-z][\w-]+)", "".join(re.findall(r"^#   .*$|^#  {10,}.*$", text, re.MULTILINE)))
    )
    parts = {"mypy", "pyright", "typed", "help", "clean"}
    assert TARGETS - told - parts == set()
