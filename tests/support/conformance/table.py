"""The table of the suites, as Markdown, and below it the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from conformance.suite import Result

HEAD = "| suite | version | passed | failed | not applicable |\n|---|---|---:|---:|---:|"
MOST = 220
"""Characters of a reason, or of a list of cases, that are shown."""


def table(results: Iterable[Result]) -> str:
    """Return the table with one line per suite."""
    return "\n".join([HEAD, *map(_row, results)])


def reasons(result: Result) -> Iterator[str]:
    """Return one line for each case that failed, and one for each reason why cases do not apply."""
    for case, reason in result.failed.items():
        yield f"{'known' if case in result.known else 'failed'}: {case}: {_short(reason)}"
    for reason in dict.fromkeys(result.not_applicable.values()):
        cases = [case for case, why in result.not_applicable.items() if why == reason]
        yield f"not applicable: {_short(reason)}: {_short(', '.join(cases))} ({len(cases)})"


def _row(result: Result) -> str:
    counts = (result.passed, len(result.failed), len(result.not_applicable))
    return f"| {result.name} | {result.version} | {' | '.join(map(str, counts))} |"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST else line[:MOST] + "..."
