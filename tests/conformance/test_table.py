"""The table that `make conformance` prints."""

from __future__ import annotations

from dataclasses import replace

from conformance.suite import Result
from conformance.table import MOST, reasons, table

JUDGED = Result(
    name="A kit",
    version="1.2",
    passed=7,
    failed={"one case": "it\n  fails"},
    not_applicable={"gRPC": "is not served", "push": "x" * 999},
)


def test_a_suite_is_a_row_of_counts() -> None:
    assert table([JUDGED]).splitlines()[-1] == "| A kit | 1.2 | 7 | 1 | 2 |"


def test_each_failure_has_a_short_reason() -> None:
    failed, *_ = reasons(JUDGED)
    assert failed == "failed: one case: it fails"


def test_a_failure_that_the_page_explains_is_known() -> None:
    failed, *_ = reasons(replace(JUDGED, known=["one case"]))
    assert failed == "known: one case: it fails"


def test_cases_that_do_not_apply_are_told_by_reason() -> None:
    skipped = {"push": "x" * 999, "gRPC": "is not served", "HTTP": "is not served"}
    _, first, second = reasons(replace(JUDGED, not_applicable=skipped))
    assert first == f"not applicable: {'x' * MOST}...: push (1)"
    assert second == "not applicable: is not served: gRPC, HTTP (2)"
