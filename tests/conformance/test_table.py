"""The table that `make conformance` prints."""

from __future__ import annotations

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


def test_each_case_that_did_not_pass_has_a_short_reason() -> None:
    failed, *others = reasons(JUDGED)
    assert failed == "failed: one case: it fails"
    assert others[0] == "not applicable: gRPC: is not served"
    assert others[1].endswith("x" * MOST + "...")
