"""Where a suite is installed: folders apart from routelock's own environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.suite import NotRun

PATIENCE = 900.0
"""Seconds that an installation may take."""


def run(command: Sequence[str | Path], *, folder: Path | None = None, seconds: float = PATIENCE) -> str:
    """Run a command that has to succeed, and return what it printed.

    Raises:
        NotRun: the command is missing, fails, or takes longer than `seconds`.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, encoding="utf-8", timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotRun(f"{words[0]} does not run: {error}") from error
    if done.returncode:
        raise NotRun(f"{' '.join(words[:4])} fails: {(done.stderr or done.stdout)[-400:].strip()}")
    return done.stdout


def checkout(source: Path, ref: str, folder: Path) -> str:
    """Write the files of one commit of a git repository into a folder, and return the commit, shortened.

    Args:
        source: a checkout or a git directory. It is not changed.
        ref: a branch, a tag or a commit.
        folder: emptied before.

    Raises:
        NotRun: there is no such commit.
    """
    commit = _commit(source, ref)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar").absolute()
    run(["git", "-C", source, "archive", "--output", archive, commit])
    run(["tar", "--extract", "--file", archive, "--directory", folder])
    archive.unlink()
    return commit[:12]


def _commit(source: Path, ref: str) -> str:
    for name in (ref, f"origin/{ref}"):  # a clone has the branches of its origin under that name
        command = ["git", "-C", str(source), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE)
        if done.returncode == 0:
            return done.stdout.strip()
    raise NotRun(f"the repository has no branch, tag or commit {ref}")


def python_environment(folder: Path, requirements: Sequence[str | Path]) -> Path:
    """Return the Python of a virtual environment with these requirements; it is made once."""
    python, done = folder / "bin" / "python", folder / ".done"
    wanted = "\n".join(map(str, requirements))
    if done.exists() and done.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", folder])
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    done.write_text(wanted)
    return python


def node_packages(folder: Path, packages: Sequence[str]) -> Path:
    """Return a folder with `node_modules/` that has these npm packages; they are installed once.

    The npm package `node` is a Node.js of another version than the one of the machine:
    `node_modules/.bin/node`.
    """
    done, wanted = folder / ".done", "\n".join(packages)
    if not (done.exists() and done.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
        run(["npm", "install", *options, "--prefix", folder, *packages])
        done.write_text(wanted)
    return folder
