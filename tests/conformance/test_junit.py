"""Cases are counted from pytest's own reports."""

from __future__ import annotations

from conformance.junit import Cases, read_cases

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestB" name="test_good[x 1]"/>
<testcase classname="tests.test_a" name="test_bad"><failure message="assert 1 == 2">long</failure></testcase>
<testcase classname="tests.test_a" name="test_worse"><error message="no server">long</error></testcase>
<testcase classname="tests.test_a" name="test_none"><skipped message="no gRPC"/></testcase>
</testsuite></testsuites>"""


def test_each_case_that_did_not_pass_has_its_reason() -> None:
    cases = read_cases(REPORT)
    assert cases.passed == ["TestB::test_good[x 1]"]
    assert cases.failed == {"test_a::test_bad": "assert 1 == 2", "test_a::test_worse": "no server"}
    assert cases.skipped == {"test_a::test_none": "no gRPC"}


def test_reports_add_up() -> None:
    both = Cases(["a"], {"b": "x"}) + Cases(["c"], {}, {"d": "y"})
    assert both == Cases(["a", "c"], {"b": "x"}, {"d": "y"})
