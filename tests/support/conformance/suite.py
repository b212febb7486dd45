"""What a suite of the conformance table is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

A2A_REF = "1.0-dev"
"""The branch of A2A's kit that tests version 1.0 of the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says, for every suite.

    Args:
        home: a folder for what the suites install; it stays for the next time.
        a2a_kit: a checkout or a git directory of A2A's conformance kit.
        a2a_ref: the branch, tag or commit of it.
    """

    home: Path
    a2a_kit: Path | None = None
    a2a_ref: str = A2A_REF


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one suite judged routelock.

    Args:
        name: the suite.
        version: its version, or the commit of its repository.
        passed: how many cases passed.
        failed: the reason, by the case that failed.
        not_applicable: the reason, by the case that does not apply, or the group of such cases.
    """

    name: str
    version: str
    passed: int = 0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    not_applicable: Mapping[str, str] = field(default_factory=dict[str, str])


class NotRun(Exception):
    """A suite cannot run here; the message says why, and what would change it."""


Suite = Callable[[Settings], Result]
"""Runs one suite and returns how it judged. It raises `NotRun` if something that it needs is missing."""
