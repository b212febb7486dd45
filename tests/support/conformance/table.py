"""The table of the suites, as Markdown, and below it the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from conformance.suite import Result

HEAD = "| suite | version | passed | failed | not applicable |\n|---|---|---:|---:|---:|"
MOST = 220
"""Characters of a reason that are shown."""


def table(results: Iterable[Result]) -> str:
    """Return the table with one line per suite."""
    return "\n".join([HEAD, *map(_row, results)])


def reasons(result: Result) -> Iterator[str]:
    """Return one line for each case that failed or does not apply."""
    for title, cases in (("failed", result.failed), ("not applicable", result.not_applicable)):
        yield from _lines(title, cases)


def _row(result: Result) -> str:
    counts = (result.passed, len(result.failed), len(result.not_applicable))
    return f"| {result.name} | {result.version} | {' | '.join(map(str, counts))} |"


def _lines(title: str, cases: Mapping[str, str]) -> Iterator[str]:
    for case, reason in cases.items():
        shown = " ".join(reason.split())
        yield f"{title}: {case}: {shown if len(shown) <= MOST else shown[:MOST] + '...'}"
