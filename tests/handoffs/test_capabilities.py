"""A handoff goes to the first agent that is capable, available, and has a free slot."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.errors import CallbackError, ConfigError
from routelock.handoffs.capabilities import (
    CapabilityRouter,
    Capacity,
    Choice,
    missing_capability,
)

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Worker:
    name: str
    capabilities: Collection[str] = ()


@dataclass(frozen=True)
class Plain:
    """A handler: it has a name and says nothing of capabilities."""

    name: str


SQL = Worker("sql", ["sql"])
BOTH = Worker("both", ["charts", "sql"])
CHARTS = Worker("charts", {"charts"})


@pytest.mark.parametrize(
    ("required", "reason"),
    [
        ([], None),
        (["sql"], None),
        ("sql", None),
        (["charts"], "Missing capability: charts"),
        ("charts", "Missing capability: charts"),
        (["sql", "charts", "email"], "Missing capability: charts, email"),
        ({"maps", "email"}, "Missing capability: email, maps"),
    ],
)
def test_missing_capabilities_are_named(required: Collection[str], reason: str | None) -> None:
    assert missing_capability(SQL, required) == reason


def test_a_target_without_capabilities_has_none() -> None:
    assert missing_capability(Plain("p"), ["sql"]) == "Missing capability: sql"
    assert missing_capability(Plain("p"), []) is None


def test_capability_given_as_text_is_one_name() -> None:
    assert missing_capability(Worker("w", "sql"), ["sql"]) is None
    assert missing_capability(Worker("w", "sql"), ["s"]) == "Missing capability: s"


def test_first_registered_capable_agent_is_found() -> None:
    router = CapabilityRouter([SQL, CHARTS, BOTH, Worker("later", ["sql", "charts"])])
    assert router.find(["charts", "sql"]) is BOTH
    assert router.find(["charts"]) is CHARTS
    assert router.find([]) is SQL
    assert router.find(["maps"]) is None


def test_no_agent_has_all_required_capabilities() -> None:
    assert CapabilityRouter([SQL, CHARTS]).choose(["sql", "charts"]) == Choice(
        reason="No capable agent available",
        passed_over=(("sql", "Missing capability: charts"), ("charts", "Missing capability: sql")),
    )
    none: list[Worker] = []
    assert CapabilityRouter(none).choose([]).reason == "No capable agent available"


def test_busy_agent_is_skipped() -> None:
    def available(agent: Worker) -> bool | str:
        return "Agent busy: DEPLOYING" if agent is SQL else True

    router = CapabilityRouter([SQL, BOTH], available)
    assert router.choose(["sql"]) == Choice(agent=BOTH, passed_over=(("sql", "Agent busy: DEPLOYING"),))
    assert router.refusal(SQL, ["sql"]) == "Agent busy: DEPLOYING"
    assert router.refusal(BOTH, ["sql"]) is None


def test_no_agent_is_chosen_when_all_capable_ones_are_busy() -> None:
    choice = CapabilityRouter([SQL, CHARTS], lambda agent: "Agent busy: x").choose(["sql"])
    assert choice.agent is None
    assert choice.reason == "No capable agent available"
    assert choice.passed_over == (("sql", "Agent busy: x"), ("charts", "Missing capability: sql"))


@pytest.mark.parametrize("answer", [False, "", None, 0])
def test_only_true_means_available(answer: Any) -> None:
    assert CapabilityRouter([SQL], lambda agent: answer).refusal(SQL) == "Agent unavailable: sql"


def test_availability_is_checked_at_the_transfer_for_capable_agents_only() -> None:
    asked: list[str] = []
    busy = {"sql"}

    def available(agent: Worker) -> bool:
        asked.append(agent.name)
        return agent.name not in busy

    router = CapabilityRouter([CHARTS, SQL, BOTH], available)
    assert router.find(["sql"]) is BOTH
    assert asked == ["sql", "both"]
    busy.clear()
    assert router.find(["sql"]) is SQL


def test_async_available_needs_check() -> None:
    """A coroutine is no answer; taken for one, it would decline for ever."""

    async def available(agent: Worker) -> bool:
        return True

    with pytest.raises(ConfigError, match=r"available is async: await router\.check"):
        CapabilityRouter([SQL], available).find(["sql"])


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [True, False])
async def test_check_takes_sync_and_async_available(is_async: bool) -> None:
    def available(agent: Worker) -> Any:
        async def answer() -> str:
            return "busy"

        return answer() if is_async else "busy"

    router = CapabilityRouter([SQL], available)
    assert await router.check(SQL, ["sql"]) == "busy"
    assert await router.check(SQL, ["charts"]) == "Missing capability: charts"
    assert await CapabilityRouter([SQL]).check(SQL, ["sql"]) is None


def test_error_in_available_names_the_agent() -> None:
    def available(agent: Worker) -> bool:
        raise OSError("no route")

    with pytest.raises(CallbackError, match=r"available\('sql'\) raised OSError: no route"):
        CapabilityRouter([SQL], available).find(["sql"])


@given(
    st.lists(st.frozensets(st.sampled_from("abcd")), max_size=6),
    st.frozensets(st.sampled_from("abcd")),
    st.sets(st.integers(0, 5)),
)
def test_choice_is_the_first_available_agent_with_all_capabilities(
    held: list[frozenset[str]], required: frozenset[str], busy: set[int]
) -> None:
    workers = [Worker(str(number), each) for number, each in enumerate(held)]
    expected = next(
        (each for each in workers if required <= set(each.capabilities) and int(each.name) not in busy), None
    )
    choice = CapabilityRouter(workers, lambda each: int(each.name) not in busy).choose(required)
    assert choice.agent is expected
    assert (choice.reason is None) == (expected is not None)


# capacity


def test_slot_is_taken_until_it_is_released() -> None:
    capacity = Capacity({"sql": 2})
    first, second = capacity.take("sql"), capacity.take(SQL)
    assert first is not None
    assert second is not None
    assert capacity.take("sql") is None
    assert capacity.available(SQL) == "At maximum capacity"
    assert capacity.free(SQL) == 0
    second.release()
    assert capacity.available(SQL) is True
    assert capacity.free(SQL) == 1


def test_slot_is_released_once() -> None:
    capacity = Capacity({"sql": 2})
    first, second = capacity.take("sql"), capacity.take("sql")
    assert first is not None
    assert second is not None
    first.release()
    first.release()
    assert capacity.free("sql") == 1


def test_leaving_the_block_releases_the_slot_after_an_error() -> None:
    capacity = Capacity({"sql": 1})

    def work() -> None:
        with capacity.take("sql") or pytest.fail("no slot"):
            assert capacity.free("sql") == 0
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        work()
    assert capacity.free("sql") == 1


def test_without_a_limit_there_is_always_a_slot() -> None:
    capacity = Capacity({"sql": 1})
    assert all(capacity.take("charts") for _ in range(100))
    assert capacity.free("charts") is None
    assert capacity.available("charts") is True


def test_default_limits_all_other_agents() -> None:
    capacity = Capacity({"sql": 2}, default=1)
    assert (capacity.free("sql"), capacity.free("charts")) == (2, 1)
    assert capacity.take("charts") is not None
    assert capacity.take("charts") is None
    assert capacity.take("maps") is not None


def test_zero_slots_close_an_agent() -> None:
    assert Capacity({"sql": 0}).take("sql") is None
    assert Capacity({}, default=0).available("sql") == "At maximum capacity"


@pytest.mark.parametrize("limit", [-1, 1.5, "2", True, None])
def test_a_limit_is_a_whole_number(limit: Any) -> None:
    with pytest.raises(ConfigError, match="'sql' must be a whole number"):
        Capacity({"sql": limit})


def test_default_limit_is_a_whole_number() -> None:
    with pytest.raises(ConfigError, match="'default' must be"):
        Capacity({"default": 1}, default=-1)


def test_limits_are_copied() -> None:
    limits = {"sql": 1}
    capacity = Capacity(limits)
    limits["sql"] = 5
    assert capacity.free("sql") == 1


def test_capacity_fits_as_available_of_a_router() -> None:
    capacity = Capacity({"sql": 1})
    router = CapabilityRouter([SQL, BOTH], capacity.available)
    with capacity.take(SQL) or pytest.fail("no slot"):
        assert router.choose(["sql"]) == Choice(agent=BOTH, passed_over=(("sql", "At maximum capacity"),))
    assert router.find(["sql"]) is SQL


async def test_concurrent_tasks_never_hold_more_slots_than_the_limit() -> None:
    capacity = Capacity({"sql": 3})
    held, most, declined = 0, 0, 0

    async def work() -> None:
        nonlocal held, most, declined
        slot = capacity.take("sql")
        if slot is None:
            declined += 1
            return
        with slot:
            held += 1
            most = max(most, held)
            await anyio.lowlevel.checkpoint()
            held -= 1

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(work)
    assert most == 3
    assert declined > 0
    assert capacity.free("sql") == 3


def test_threads_with_their_own_loops_share_a_capacity() -> None:
    """One object serves any number of event loops, which a lock of one loop could not."""
    capacity = Capacity({"sql": 4})
    most: list[int] = []
    start = threading.Barrier(8)

    async def work() -> None:
        for _ in range(500):
            slot = capacity.take("sql")
            if slot is not None:
                with slot:
                    most.append(capacity.free("sql") or 0)

    def loop() -> None:
        start.wait()
        anyio.run(work)

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(loop) for _ in range(8)]:
            each.result()
    assert min(most) >= 0
    assert capacity.free("sql") == 4
