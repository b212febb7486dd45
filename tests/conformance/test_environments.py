"""A kit is taken from a repository that stays as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conformance.environments import checkout
from conformance.suite import NotRun


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the file ``a.txt``, in one commit on the branch ``kit``."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("A")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    for command in (["init", "-q", "-b", "kit"], ["add", "."], [*author, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=source, check=True)
    return source


def test_the_files_of_a_branch_replace_those_of_before(repository: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "old.txt").write_text("old")
    commit = checkout(repository, "kit", target)
    assert [file.name for file in target.iterdir()] == ["a.txt"]
    assert len(commit) == 12


def test_a_branch_that_is_not_there_is_named(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="no branch, tag or commit other"):
        checkout(repository, "other", tmp_path / "target")
