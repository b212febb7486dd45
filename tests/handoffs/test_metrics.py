"""Metrics of transfers: sums are right in any order, of bounded size, and in the Prometheus format."""

from __future__ import annotations

import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routelock.handoff_request import HandoffStatus
from routelock.handoffs.metrics import HandoffMetrics, HandoffTally, HandoffTotals
from routelock.run.records import HandoffRecord

NAMES = st.sampled_from(["a", "b", "c"]) | st.text(max_size=5)


class Status(StrEnum):
    COMPLETED = "COMPLETED"
    REJECTED = "REJECTED"


@dataclass(frozen=True)
class Record:
    source: str = "triage"
    target: str = "billing"
    status: Any = "taken"
    reason: str | None = None
    started: float | None = None
    ended: float | None = None
    tokens: int | None = None


RECORDS = st.builds(
    Record,
    source=NAMES,
    target=NAMES,
    status=st.sampled_from(["taken", "failed", "not_taken", *Status]),
    started=st.none() | st.floats(0, 1000),
    ended=st.none() | st.floats(0, 1000),
    tokens=st.none() | st.integers(0, 10_000),
)


def of(*records: Record) -> HandoffTotals:
    return HandoffMetrics.of(records).totals()


def test_unused_metrics_are_zero_or_none() -> None:
    totals = HandoffMetrics().totals()
    assert (totals.total, totals.tokens, totals.by_status, totals.edges) == (0, 0, {}, {})
    assert totals.success_rate is None
    assert totals.average_duration is None
    assert totals.most_common_source is None
    assert totals.most_common_target is None
    assert HandoffMetrics().as_counters() == {}


def test_totals_are_those_of_all_records() -> None:
    totals = of(
        Record(started=1.0, ended=2.0, tokens=10),
        Record(started=2.0, ended=5.0, tokens=20),
        Record(target="refunds", status="failed"),
        Record(source="billing", target="refunds", status="not_taken"),
    )
    assert totals.total == 4
    assert totals.by_status == {"taken": 2, "failed": 1, "not_taken": 1}
    assert totals.success_rate == 0.5
    assert totals.average_duration == 2.0
    assert totals.tokens == 30
    assert totals.most_common_source == "triage"
    assert totals.most_common_target == "billing"


def test_each_pair_has_its_own_sums() -> None:
    edges = of(Record(started=0.0, ended=0.5, tokens=3), Record(target="refunds", status="failed")).edges
    assert edges["triage", "billing"] == HandoffTally(
        by_status={"taken": 1}, timed=1, nanoseconds=500_000_000, tokens=3
    )
    assert edges["triage", "refunds"].success_rate == 0.0
    assert edges["triage", "refunds"].average_duration is None
    assert edges["triage", "refunds"].seconds == 0.0


@pytest.mark.parametrize(
    ("status", "success"),
    [
        ("taken", True),
        ("ACCEPTED", True),
        ("COMPLETED", True),
        (Status.COMPLETED, True),
        ("not_taken", False),
        ("failed", False),
        (Status.REJECTED, False),
        ("EXPIRED", False),
        ("PENDING", False),
    ],
)
def test_taken_accepted_and_completed_are_successes(status: Any, success: bool) -> None:
    totals = of(Record(status=status))
    assert totals.succeeded == success
    assert totals.by_status == {getattr(status, "value", status): 1}


def test_the_records_of_a_result_can_be_counted() -> None:
    record = HandoffRecord(
        id="h-1-1",
        source="triage",
        target="billing",
        tool_name="transfer_to_billing",
        call_id="c",
        turn=1,
        status=HandoffStatus.COMPLETED,
    )
    assert HandoffMetrics.of([record]).totals().total == 1


def test_given_tokens_replace_those_of_the_record() -> None:
    metrics = HandoffMetrics()
    metrics.add(Record(tokens=5), tokens=7)
    metrics.add(Record(tokens=5), tokens=0)
    metrics.add(Record(tokens=5))
    assert metrics.totals().tokens == 12


def test_counters_never_shrink() -> None:
    metrics = HandoffMetrics()
    with pytest.raises(ValueError, match="-1 tokens"):
        metrics.add(Record(), tokens=-1)
    assert metrics.totals().total == 0


@pytest.mark.parametrize(
    ("started", "ended"),
    [
        (None, None),
        (1.0, None),
        (None, 1.0),
        (2.0, 1.0),
        (float("nan"), 1.0),
        (0.0, float("inf")),
        (float("-inf"), float("inf")),
        (0, 10**400),
        ("0", "1"),
    ],
    ids=str,
)
def test_invalid_duration_is_not_counted(started: Any, ended: Any) -> None:
    """Clocks are set back, and transfers are refused before they begin."""
    totals = of(Record(started=started, ended=ended), Record(started=1, ended=3))
    assert (totals.total, totals.timed, totals.average_duration) == (2, 1, 2.0)


def test_most_common_name_is_the_first_of_equals() -> None:
    totals = of(Record(source="b", target="y"), Record(source="a", target="z"))
    assert (totals.most_common_source, totals.most_common_target) == ("a", "y")


@given(st.lists(RECORDS))
def test_totals_are_the_sums_of_the_pairs(records: list[Record]) -> None:
    totals = of(*records)
    assert totals.total == len(records) == sum(edge.total for edge in totals.edges.values())
    assert totals.tokens == sum(each.tokens or 0 for each in records)
    assert totals.tokens == sum(edge.tokens for edge in totals.edges.values())
    assert totals.timed == sum(edge.timed for edge in totals.edges.values()) <= totals.total
    assert totals.nanoseconds == sum(edge.nanoseconds for edge in totals.edges.values())
    assert totals.succeeded <= totals.total
    assert totals.seconds == pytest.approx(
        sum(
            each.ended - each.started
            for each in records
            if each.started is not None and each.ended is not None and each.ended >= each.started
        ),
        abs=1e-6,
    )


@given(st.lists(RECORDS), st.randoms(use_true_random=False))
def test_order_of_adding_does_not_change_a_sum(records: list[Record], random: Any) -> None:
    shuffled = random.sample(records, len(records))
    cut = random.randint(0, len(records))
    one, other = HandoffMetrics.of(shuffled[:cut]), HandoffMetrics.of(shuffled[cut:])
    one.merge(other)
    assert one.totals() == of(*records)
    assert one.as_counters() == HandoffMetrics.of(records).as_counters()


def test_totals_of_another_process_can_be_merged() -> None:
    totals = pickle.loads(pickle.dumps(of(Record(), Record(status="failed"))))
    metrics = HandoffMetrics.of([Record()])
    metrics.merge(totals)
    assert metrics.totals().by_status == {"taken": 2, "failed": 1}


def test_metrics_can_be_merged_with_themselves() -> None:
    metrics = HandoffMetrics.of([Record()])
    metrics.merge(metrics)
    assert metrics.totals().total == 2


def test_totals_do_not_change_later() -> None:
    metrics = HandoffMetrics.of([Record()])
    before = metrics.totals()
    metrics.add(Record())
    assert before.total == 1
    assert before.edges["triage", "billing"].total == 1


def test_memory_is_bounded() -> None:
    metrics = HandoffMetrics(max_edges=3)
    for number in range(100):
        metrics.add(Record(source=f"agent {number}", target="x" * 100_000))
    totals = metrics.totals()
    assert len(totals.edges) == 4
    assert totals.total == 100
    assert totals.edges["(other)", "(other)"].total == 97
    assert totals.most_common_source == "agent 0"
    assert max(len(name) for edge in totals.edges for name in edge) <= 200
    metrics.add(Record(source="agent 0", target="x" * 100_000))
    assert metrics.totals().edges["agent 0", "x" * 200].total == 2


def test_max_edges_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="max_edges"):
        HandoffMetrics(max_edges=0)


def test_counters_are_named_like_prometheus_does() -> None:
    metrics = HandoffMetrics.of(
        [
            Record(started=0, ended=1.5, tokens=7),
            Record(status="failed"),
            Record(target="refunds"),
        ]
    )
    billing, refunds = 'source="triage",target="billing"', 'source="triage",target="refunds"'
    assert list(metrics.as_counters().items()) == [
        (f'routelock_handoff_total{{{billing},status="failed"}}', 1),
        (f'routelock_handoff_total{{{billing},status="taken"}}', 1),
        (f'routelock_handoff_total{{{refunds},status="taken"}}', 1),
        (f"routelock_handoff_seconds_sum{{{billing}}}", 1.5),
        (f"routelock_handoff_seconds_sum{{{refunds}}}", 0.0),
        (f"routelock_handoff_seconds_count{{{billing}}}", 1),
        (f"routelock_handoff_seconds_count{{{refunds}}}", 0),
        (f"routelock_handoff_tokens_total{{{billing}}}", 7),
        (f"routelock_handoff_tokens_total{{{refunds}}}", 0),
    ]
    assert all(name.startswith("app_") for name in metrics.as_counters(prefix="app"))


@given(st.lists(RECORDS))
@example([Record(source='a"} 1\nfake{x="', target="\\", status="\ud800")])
@example([Record(source="\\"), Record(source='"'), Record(source="\n")])
def test_no_name_breaks_the_line_of_a_counter(records: list[Record]) -> None:
    counters = HandoffMetrics.of(records).as_counters()
    label = r'[a-z]+="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
    for name, value in counters.items():
        assert re.fullmatch(rf"[a-z_]+\{{{label}(?:,{label})*\}}", name)
        assert name.encode()
        assert value >= 0
    total = sum(value for name, value in counters.items() if name.startswith("routelock_handoff_total"))
    assert total == len(records)


def test_many_threads_lose_no_count() -> None:
    metrics = HandoffMetrics()

    def work(_: int) -> None:
        for _ in range(500):
            metrics.add(Record(started=0, ended=1, tokens=2))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    totals = metrics.totals()
    assert (totals.total, totals.tokens, totals.seconds) == (4000, 8000, 4000.0)
