"""What a suite of the conformance table is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

A2A_REF, A2A_OLD_REF = "1.0-dev", "0.3.x"
"""The branches of A2A's kit that test versions 1.0 and 0.3 of the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says, for every suite.

    Args:
        home: a folder for what the suites install; it stays for the next time.
        a2a_kit: a checkout or a git directory of A2A's conformance kit.
        a2a_ref: the branch, tag or commit of it for version 1.0.
        a2a_old_ref: the same for version 0.3.
    """

    home: Path
    a2a_kit: Path | None = None
    a2a_ref: str = A2A_REF
    a2a_old_ref: str = A2A_OLD_REF


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one suite judged routelock.

    Args:
        name: the suite.
        version: its version, or the commit of its repository.
        passed: how many cases passed.
        failed: the reason, by the case that failed.
        not_applicable: the reason, by the case that does not apply, or the group of such cases.
        known: the failed cases that the page docs/conformance.md explains.
    """

    name: str
    version: str
    passed: int = 0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    not_applicable: Mapping[str, str] = field(default_factory=dict[str, str])
    known: Collection[str] = ()


class NotRun(Exception):
    """A suite cannot run here; the message says why, and what would change it."""


Suite = Callable[[Settings], Result]
"""Runs one suite and returns how it judged. It raises `NotRun` if something that it needs is missing."""
