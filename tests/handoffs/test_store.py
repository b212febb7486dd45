"""The store of handoffs: filing, decisions, timeouts, and copies of all data."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from thoroughness import how_many

from routelock import Agent, HandoffRequest, RunConfig, Runner, handoff
from routelock._callables import resolve
from routelock.errors import ConfigError, HandoffStateError
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.payload import HandoffPayload
from routelock.handoffs.store import HandoffStore, InMemoryHandoffStore, asks, decided, finished, incoming
from routelock.testing import ScriptedHandler, call

STATES = {
    "PENDING": (),
    "ACCEPTED": ("accept",),
    "REJECTED": ("reject",),
    "EXPIRED": ("expire",),
    "COMPLETED": ("accept", "complete"),
    "FAILED": ("accept", "fail"),
}
"""How a handoff gets into each state."""
ALLOWED = {
    ("PENDING", "accept"),
    ("PENDING", "reject"),
    ("PENDING", "expire"),
    ("PENDING", "fail"),
    ("ACCEPTED", "complete"),
    ("ACCEPTED", "fail"),
}
LEADS_TO = {
    "accept": "ACCEPTED",
    "reject": "REJECTED",
    "expire": "EXPIRED",
    "complete": "COMPLETED",
    "fail": "FAILED",
}


def asked(request_id: str = "r1", target: str = "b", **more: Any) -> HandoffRequest:
    return HandoffRequest(target, from_agent="a", request_id=request_id, **more)


def move(store: InMemoryHandoffStore, step: str, handoff_id: str) -> HandoffResponse:
    reasoned = {"reject": ("no",), "fail": ("broken",)}
    response: HandoffResponse = getattr(store, step)(handoff_id, *reasoned.get(step, ()))
    return response


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# -- filing --


def test_filing_a_request_again_returns_the_same_id() -> None:
    """A retry makes no second handoff."""
    store = InMemoryHandoffStore()
    request = asked()
    assert store.request(request) == store.request(request) == "r1:b"
    assert len(store.pending("b")) == 1


def test_accepted_request_filed_again_stays_accepted() -> None:
    store = InMemoryHandoffStore()
    store.accept(store.request(asked()))
    assert store.status(store.request(asked())).status is HandoffStatus.ACCEPTED
    assert store.pending("b") == []


def test_one_request_id_may_go_to_several_targets() -> None:
    """A run asks the targets of ``handoff([b, c])`` in turn, under one id."""
    store = InMemoryHandoffStore()
    assert store.request(asked(target="b")) != store.request(asked(target="c"))


def test_another_request_under_the_same_id_is_refused() -> None:
    """It would get the answer to the first."""
    store = InMemoryHandoffStore()
    store.request(asked(reason="x"))
    with pytest.raises(ValueError, match=r"under request_id 'r1', with another reason, priority; give"):
        store.request(asked(reason="y", priority=1))
    assert [request.reason for _, request in store.pending("b")] == ["x"]


@pytest.mark.parametrize("step", ["accept", "reject", "complete"])
def test_only_the_target_decides_if_the_agent_is_named(step: str) -> None:
    store = InMemoryHandoffStore()
    handoff_id = store.request(asked())
    if step == "complete":
        store.accept(handoff_id, agent="b")
    before = store.status(handoff_id)
    reason = ("no",) if step == "reject" else ()
    with pytest.raises(HandoffStateError, match="Handoff r1:b is for 'b', not for 'c'"):
        getattr(store, step)(handoff_id, *reason, agent="c")
    assert store.status(handoff_id) == before
    assert getattr(store, step)(handoff_id, *reason, agent="b").status == LEADS_TO[step]


def test_ids_come_from_the_factory() -> None:
    numbers = itertools.count(1)
    store = InMemoryHandoffStore(new_id=lambda request: f"{request.from_agent}-{next(numbers)}")
    assert [store.request(asked(each)) for each in ("r1", "r2", "r1")] == ["a-1", "a-2", "a-1"]


@pytest.mark.parametrize("made", ["", None, 5, "taken"])
def test_invalid_or_used_id_from_new_id_is_refused(made: Any) -> None:
    store = InMemoryHandoffStore(new_id=lambda request: made if request.request_id == "r2" else "taken")
    store.request(asked("r1"))
    with pytest.raises(ConfigError, match="new_id must make a new text"):
        store.request(asked("r2"))
    assert [handoff_id for handoff_id, _ in store.pending("b")] == ["taken"]


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        (HandoffRequest("b", from_agent="a"), "request_id"),
        (HandoffRequest("b", from_agent="a", request_id="  "), "request_id"),
        (HandoffRequest("b", request_id="r"), "from_agent"),
        (asked(timeout=float("inf")), "timeout"),
        (asked(input=object()), "input"),
        (asked(request_id="\ud800"), "request_id"),
    ],
)
def test_unreadable_request_is_not_filed(request_: HandoffRequest, wrong: str) -> None:
    """The caller gets the error, not the worker."""
    store = InMemoryHandoffStore()
    with pytest.raises(ValueError, match=wrong):
        store.request(request_)
    assert store.pending("b") == []


# -- looking --


def test_pending_yields_ids_and_requests() -> None:
    """A worker that sees a request can accept it."""
    store = InMemoryHandoffStore()
    request = asked(reason="needs SQL", preserve_context=False, context_snapshot=b"\xff")
    handoff_id = store.request(request)
    store.request(asked(target="c"))
    assert store.pending("b") == [(handoff_id, request)]
    assert store.accept(store.pending("b")[0][0]).accepted


def test_pending_is_sorted_by_priority_then_age() -> None:
    store = InMemoryHandoffStore()
    for name, priority in (("r1", 5), ("r2", 1), ("r3", 5), ("r4", 1)):
        store.request(asked(name, priority=priority))
    assert [request.request_id for _, request in store.pending("b")] == ["r2", "r4", "r1", "r3"]


def test_unknown_agent_has_nothing_pending() -> None:
    assert InMemoryHandoffStore().pending("b") == []


def test_decided_handoff_is_not_pending() -> None:
    store = InMemoryHandoffStore()
    for number, step in enumerate(("accept", "reject", "expire", "fail")):
        move(store, step, store.request(asked(str(number))))
    assert store.pending("b") == []


def test_returned_data_is_a_copy() -> None:
    store = InMemoryHandoffStore()
    mine, told = {"a": [1]}, {"b": [1]}
    handoff_id = store.request(asked(metadata=mine, input=mine))
    mine["a"].append(2)
    [(_, shown)] = store.pending("b")
    shown.metadata["a"].append(3)
    shown.input["a"].append(3)
    [(_, again)] = store.pending("b")
    assert (again.metadata, again.input) == ({"a": [1]}, {"a": [1]})
    accepted: Any = store.accept(handoff_id, told)
    told["b"].append(2)
    accepted.metadata["b"].append(3)
    assert store.status(handoff_id).metadata == {"b": [1]}


def test_response_does_not_change_later() -> None:
    """Sw4rm returned the very object that it stored."""
    store = InMemoryHandoffStore()
    before = store.status(store.request(asked()))
    store.reject("r1:b", "busy")
    assert before == HandoffResponse(handoff_id="r1:b")


# -- deciding --


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("step", LEADS_TO)
def test_only_allowed_state_changes_happen(state: str, step: str) -> None:
    """A refused change changes nothing."""
    store = InMemoryHandoffStore()
    handoff_id = store.request(asked())
    for before in STATES[state]:
        move(store, before, handoff_id)
    if (state, step) in ALLOWED:
        assert move(store, step, handoff_id).status == LEADS_TO[step]
        return
    before_it = store.status(handoff_id)
    with pytest.raises(HandoffStateError, match=rf"^Handoff r1:b is not in .* \(current: {state}\)$"):
        move(store, step, handoff_id)
    assert store.status(handoff_id) == before_it


def test_a_rejection_tells_why() -> None:
    store = InMemoryHandoffStore()
    response = store.reject(store.request(asked()), "At maximum capacity")
    assert response == HandoffResponse.reject("At maximum capacity", "r1:b") == store.status("r1:b")


def test_metadata_of_accept_and_complete_is_merged() -> None:
    store = InMemoryHandoffStore()
    handoff_id = store.request(asked())
    store.accept(handoff_id, {"by": "Eve", "answer": None})
    assert store.complete(handoff_id, {"answer": "42"}).metadata == {"by": "Eve", "answer": "42"}


@pytest.mark.parametrize("metadata", [{"x": object()}, {"x": (1,)}, {1: 2}, {"x": float("nan")}])
def test_metadata_must_be_json(metadata: Any) -> None:
    store = InMemoryHandoffStore()
    handoff_id = store.request(asked())
    with pytest.raises(ValueError, match=r"metadata"):
        store.accept(handoff_id, metadata)
    assert store.status(handoff_id).status is HandoffStatus.PENDING


@pytest.mark.parametrize("step", ["status", *LEADS_TO])
def test_unknown_id_is_an_error(step: str) -> None:
    with pytest.raises(HandoffStateError, match=r"^Handoff h-9 not found: it was deleted, or never in"):
        move(InMemoryHandoffStore(), step, "h-9")


@pytest.mark.parametrize("empty", ["", " ", None, 5])
@pytest.mark.parametrize("step", ["status", "pending", *LEADS_TO])
def test_empty_id_is_an_error(step: str, empty: Any) -> None:
    with pytest.raises(ValueError, match=r"needs a .* that is text and not empty"):
        move(InMemoryHandoffStore(), step, empty)


# -- time --


def test_a_request_expires_by_its_timeout() -> None:
    clock = Clock()
    store = InMemoryHandoffStore(clock=clock)
    handoff_id = store.request(asked(timeout=5))
    clock.now = 4.9
    assert store.status(handoff_id).status is HandoffStatus.PENDING
    clock.now = 5
    response = store.status(handoff_id)
    assert (response.status, response.rejection_reason) == ("EXPIRED", "'b' did not accept within 5 s")


@pytest.mark.parametrize("look", [lambda store: store.pending("b"), lambda store: store.request(asked("r2"))])
def test_expired_handoff_cannot_be_accepted(look: Callable[[InMemoryHandoffStore], object]) -> None:
    """It does not matter which call notices the timeout."""
    clock = Clock()
    store = InMemoryHandoffStore(clock=clock)
    handoff_id = store.request(asked(timeout=5))
    clock.now = 6
    look(store)
    with pytest.raises(HandoffStateError, match=r"not in PENDING status \(current: EXPIRED\)"):
        store.accept(handoff_id)
    assert handoff_id not in dict(store.pending("b"))


def test_time_does_not_undo_a_decision() -> None:
    clock = Clock()
    store = InMemoryHandoffStore(clock=clock)
    handoff_id = store.request(asked(timeout=5))
    store.accept(handoff_id)
    clock.now = 6
    assert store.complete(handoff_id).status is HandoffStatus.COMPLETED


def test_filing_again_does_not_extend_the_timeout() -> None:
    clock = Clock()
    store = InMemoryHandoffStore(clock=clock)
    store.request(asked(timeout=5))
    clock.now = 4
    store.request(asked(timeout=5))
    clock.now = 5
    assert store.status("r1:b").status is HandoffStatus.EXPIRED


# -- forgetting --


def test_clear_deletes_everything() -> None:
    store = InMemoryHandoffStore()
    store.accept(store.request(asked("r1")))
    store.request(asked("r2"))
    store.clear()
    assert store.pending("b") == []
    with pytest.raises(HandoffStateError, match="not found"):
        store.status("r1:b")
    assert store.request(asked("r1", reason="another one")) == "r1:b"


def test_stores_share_nothing() -> None:
    """Sw4rm kept all handoffs in a global."""
    InMemoryHandoffStore().request(asked())
    assert InMemoryHandoffStore().pending("b") == []


def test_only_the_newest_finished_handoffs_are_kept() -> None:
    store = InMemoryHandoffStore(keep=2)
    waiting, accepted = store.request(asked("waits")), store.request(asked("works"))
    store.accept(accepted)
    over = [store.request(asked(str(number))) for number in range(4)]
    for handoff_id in over:
        store.reject(handoff_id, "no")
    assert [store.status(each).status for each in (waiting, accepted)] == ["PENDING", "ACCEPTED"]
    assert [store.status(each).status for each in over[2:]] == ["REJECTED"] * 2
    for handoff_id in over[:2]:
        with pytest.raises(HandoffStateError, match="not found"):
            store.status(handoff_id)


def test_decision_is_returned_even_with_keep_zero() -> None:
    store = InMemoryHandoffStore(keep=0)
    assert store.reject(store.request(asked()), "no").rejection_reason == "no"


def test_negative_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match="keep must be 0 or more"):
        InMemoryHandoffStore(keep=-1)


# -- together --


def test_one_of_many_threads_gets_a_handoff() -> None:
    store = InMemoryHandoffStore()
    ids = [store.request(asked(str(number))) for number in range(50)]
    start = threading.Barrier(8)

    def work() -> list[str]:
        start.wait()
        mine: list[str] = []
        for handoff_id in ids:
            try:
                store.accept(handoff_id)
            except HandoffStateError:
                continue
            mine.append(handoff_id)
        return mine

    with ThreadPoolExecutor(8) as pool:
        done = [each.result() for each in [pool.submit(work) for _ in range(8)]]
    assert sorted(itertools.chain.from_iterable(done)) == sorted(ids)


def test_threads_filing_one_request_get_one_id() -> None:
    numbers = itertools.count()
    store = InMemoryHandoffStore(new_id=lambda _: str(next(numbers)))
    start = threading.Barrier(8)

    def file(_: int) -> list[str]:
        start.wait()
        return [store.request(asked(str(number))) for number in range(50)]

    with ThreadPoolExecutor(8) as pool:
        filed = [*pool.map(file, range(8))]
    assert all(each == filed[0] for each in filed)
    assert len(store.pending("b")) == 50


class Model(RuleBasedStateMachine):
    """Whatever happens in whatever order, the store says what a table of states would."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = InMemoryHandoffStore(clock=self.clock)
        self.known: dict[str, str] = {}
        self.late: dict[str, float] = {}

    @rule(name=st.sampled_from("uvw"))
    def file(self, name: str) -> None:
        handoff_id = self.store.request(asked(name, timeout=5))
        if handoff_id not in self.known:
            self.known[handoff_id], self.late[handoff_id] = "PENDING", self.clock.now + 5

    @rule(name=st.sampled_from("uvw"), step=st.sampled_from([*LEADS_TO]))
    def decide(self, name: str, step: str) -> None:
        handoff_id = f"{name}:b"
        allowed = (self.known.get(handoff_id), step) in ALLOWED
        try:
            move(self.store, step, handoff_id)
        except HandoffStateError:
            assert not allowed
        else:
            assert allowed
            self.known[handoff_id] = LEADS_TO[step]

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        for handoff_id, status in self.known.items():
            if status == "PENDING" and self.clock.now >= self.late[handoff_id]:
                self.known[handoff_id] = "EXPIRED"

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.known.clear()

    @invariant()
    def it_agrees(self) -> None:
        assert {each: self.store.status(each).status for each in self.known} == self.known
        pending = {handoff_id for handoff_id, _ in self.store.pending("b")}
        assert pending == {each for each, status in self.known.items() if status == "PENDING"}


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=how_many(15), stateful_step_count=25)


# -- waiting, and runs --


class Remote:
    """A store that is somewhere else: every method is async, and gives others a turn."""

    def __init__(self) -> None:
        self.inner = InMemoryHandoffStore()

    async def request(self, request: HandoffRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return self.inner.request(request)

    async def pending(self, agent: str) -> Sequence[tuple[str, HandoffRequest]]:
        await anyio.lowlevel.checkpoint()
        return self.inner.pending(agent)

    async def status(self, handoff_id: str) -> HandoffResponse:
        await anyio.lowlevel.checkpoint()
        return self.inner.status(handoff_id)

    async def accept(self, handoff_id: str, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        await anyio.lowlevel.checkpoint()
        return self.inner.accept(handoff_id, metadata)

    async def reject(self, handoff_id: str, reason: str) -> HandoffResponse:
        await anyio.lowlevel.checkpoint()
        return self.inner.reject(handoff_id, reason)

    async def expire(self, handoff_id: str) -> HandoffResponse:
        await anyio.lowlevel.checkpoint()
        return self.inner.expire(handoff_id)

    async def complete(self, handoff_id: str, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        await anyio.lowlevel.checkpoint()
        return self.inner.complete(handoff_id, metadata)

    async def fail(self, handoff_id: str, reason: str) -> HandoffResponse:
        await anyio.lowlevel.checkpoint()
        return self.inner.fail(handoff_id, reason)

    async def clear(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.inner.clear()


def local(store: HandoffStore) -> InMemoryHandoffStore:
    """Return the store in memory behind a store."""
    return store.inner if isinstance(store, Remote) else store  # type: ignore[return-value]


STORES = pytest.mark.parametrize("make", [InMemoryHandoffStore, Remote])


def team(store: HandoffStore, *names: str, timeout: float | None = None, withdraw: bool = True) -> Agent:
    """A clerk that hands over to the first target that accepts in the store."""
    ask = asks(store, poll=0.001, withdraw=withdraw)
    bosses = [Agent(name, model=ScriptedHandler(["I do it."]), on_handoff_request=ask) for name in names]
    model = ScriptedHandler([call(f"transfer_to_{names[0]}"), "Then I do it."])
    return Agent("clerk", model=model, handoffs=[handoff(bosses, timeout=timeout)])


async def decide(store: InMemoryHandoffStore, name: str, decision: Callable[[str], object]) -> None:
    """Wait for something to decide, and decide it."""
    decision((await incoming(store, name, poll=0.001))[0])


@pytest.mark.anyio
@STORES
async def test_run_goes_on_after_an_acceptance(make: Callable[[], HandoffStore]) -> None:
    store = make()
    async with anyio.create_task_group() as group:
        group.start_soon(decide, local(store), "boss", local(store).accept)
        result = await Runner.run(team(store, "boss"), "Hi", run_config=RunConfig(run_id="r"))
    assert result.final_output == "I do it."
    record = result.handoffs[0]
    assert local(store).status(f"{record.id}:{record.target}").status is HandoffStatus.ACCEPTED


@pytest.mark.anyio
@STORES
async def test_run_gets_the_reason_of_a_rejection(make: Callable[[], HandoffStore]) -> None:
    store = make()
    inner = local(store)
    async with anyio.create_task_group() as group:
        group.start_soon(decide, inner, "boss", lambda handoff_id: inner.reject(handoff_id, "On holiday."))
        result = await Runner.run(team(store, "boss"), "Hi")
    assert result.final_output == "Then I do it."
    assert (result.handoffs[0].status, result.handoffs[0].error) == ("REJECTED", "On holiday.")


@dataclass
class Escalation:
    order: int


@pytest.mark.anyio
async def test_payload_and_input_are_filed_as_json() -> None:
    """The worker may run in another process: it sees the target's data as JSON."""
    store = InMemoryHandoffStore()
    boss = Agent("boss", model=ScriptedHandler(["I do it."]), on_handoff_request=asks(store, poll=0.001))
    payload = {"handoff_type": "ticket", "tags": ["new"]}
    declared = handoff(boss, input_type=Escalation, payload=payload, preserve_context=False, reason="because")
    model = ScriptedHandler([call("transfer_to_boss", {"order": 7})])
    filed: list[HandoffRequest] = []

    def look(handoff_id: str) -> None:
        filed.extend(request for _, request in store.pending("boss"))
        store.accept(handoff_id)

    async with anyio.create_task_group() as group:
        group.start_soon(decide, store, "boss", look)
        await Runner.run(Agent("clerk", model=model, handoffs=[declared]), "Hi")
    [request] = filed
    assert (request.from_agent, request.to_agent, request.input) == ("clerk", "boss", {"order": 7})
    assert (request.preserve_context, request.reason) == (False, "because")
    sent = HandoffPayload.parse(request.payload)
    assert (sent.source_agent, sent.context_data) == ("clerk", {"tags": ["new"]})


@pytest.mark.anyio
async def test_request_that_cannot_be_filed_is_rejected_with_a_reason() -> None:
    store = InMemoryHandoffStore()
    boss = Agent("boss", model=ScriptedHandler([]), on_handoff_request=asks(store))
    declared = handoff(boss, payload={"handoff_type": "ticket", "lock": threading.Lock()})
    model = ScriptedHandler([call("transfer_to_boss"), "Then I do it."])
    result = await Runner.run(Agent("clerk", model=model, handoffs=[declared]), "Hi")
    assert result.final_output == "Then I do it."
    assert result.handoffs[0].status is HandoffStatus.REJECTED
    assert "cannot leave the process: payload: " in (result.handoffs[0].error or "")


@pytest.mark.anyio
@STORES
async def test_the_next_target_is_asked_under_the_same_request(make: Callable[[], HandoffStore]) -> None:
    store = make()
    inner = local(store)
    async with anyio.create_task_group() as group:
        group.start_soon(decide, inner, "boss", lambda handoff_id: inner.reject(handoff_id, "No."))
        group.start_soon(decide, inner, "deputy", inner.accept)
        result = await Runner.run(team(store, "boss", "deputy"), "Hi", run_config=RunConfig(run_id="r"))
    assert (result.last_agent.name, result.handoffs[0].passed_over) == ("deputy", (("boss", "No."),))
    assert [inner.status(f"h-r-1:{name}").status for name in ("boss", "deputy")] == ["REJECTED", "ACCEPTED"]


@pytest.mark.anyio
@STORES
async def test_timed_out_run_withdraws_its_request(
    make: Callable[[], HandoffStore],
) -> None:
    """A request without a waiting caller cannot be accepted."""
    store = make()
    result = await Runner.run(team(store, "boss", timeout=0.5), "Hi", run_config=RunConfig(run_id="r"))
    assert (result.final_output, result.handoffs[0].status) == ("Then I do it.", HandoffStatus.EXPIRED)
    assert local(store).pending("boss") == []
    assert local(store).status("h-r-1:boss").status is HandoffStatus.EXPIRED


@pytest.mark.anyio
@STORES
async def test_cancelled_run_withdraws_its_request(make: Callable[[], HandoffStore]) -> None:
    store = make()

    async def run() -> None:
        await Runner.run(team(store, "boss"), "Hi", run_config=RunConfig(run_id="r"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await decide(local(store), "boss", lambda _: group.cancel_scope.cancel())
    response = local(store).status("h-r-1:boss")
    assert (response.status, response.rejection_reason) == ("EXPIRED", "the caller no longer waits for it")


@pytest.mark.anyio
@STORES
async def test_repeated_run_finds_the_decision(
    make: Callable[[], HandoffStore],
) -> None:
    """The process was stopped over night; the request is not filed twice."""
    store = make()
    inner = local(store)

    async def run() -> str:
        config = RunConfig(run_id="r")
        return (await Runner.run(team(store, "boss", withdraw=False), "Hi", run_config=config)).final_output

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await decide(inner, "boss", lambda _: group.cancel_scope.cancel())
    assert [handoff_id for handoff_id, _ in inner.pending("boss")] == ["h-r-1:boss"]
    inner.accept("h-r-1:boss")
    assert await run() == "I do it."
    assert inner.pending("boss") == []


@pytest.mark.anyio
@pytest.mark.parametrize(("step", "ends"), [("accept", "FAILED"), ("reject", "REJECTED")])
async def test_late_acceptance_fails_and_late_rejection_stands(step: str, ends: str) -> None:
    """Decided and cancelled at the same moment: a handoff without a caller must not stay accepted."""
    store = InMemoryHandoffStore()
    ask = asks(store, poll=1000)

    async def wait() -> None:
        await ask(asked())

    def too_late(handoff_id: str) -> None:
        group.cancel_scope.cancel()
        move(store, step, handoff_id)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await decide(store, "b", too_late)
    assert store.status("r1:b").status == ends


class SlowStore(InMemoryHandoffStore):
    """The handoff is accepted in time, but the response takes longer, as with a slow database."""

    def status(self, handoff_id: str) -> HandoffResponse:
        if super().status(handoff_id).status is HandoffStatus.PENDING:
            self.accept(handoff_id)
            time.sleep(0.6)
        return super().status(handoff_id)


@pytest.mark.anyio
async def test_acceptance_read_after_the_timeout_becomes_failed() -> None:
    """The run has given up, so the handoff must not look accepted."""
    store = SlowStore()
    result = await Runner.run(team(store, "boss", timeout=0.5), "Hi", run_config=RunConfig(run_id="r"))
    assert result.handoffs[0].status is HandoffStatus.EXPIRED
    assert store.status("h-r-1:boss").status is HandoffStatus.FAILED


@pytest.mark.anyio
async def test_waiting_ends_when_the_request_expires() -> None:
    clock = Clock()
    store = InMemoryHandoffStore(clock=clock)
    handoff_id = store.request(asked(timeout=5))

    def late(_: str) -> None:
        clock.now = 5

    async with anyio.create_task_group() as group:
        group.start_soon(decide, store, "b", late)
        assert (await decided(store, handoff_id, poll=0.001)).status is HandoffStatus.EXPIRED


@pytest.mark.anyio
async def test_waiting_for_a_deleted_handoff_raises() -> None:
    store = InMemoryHandoffStore()
    handoff_id = store.request(asked())

    async with anyio.create_task_group() as group:
        group.start_soon(decide, store, "b", lambda _: store.clear())
        with pytest.raises(HandoffStateError, match="not found"):
            await decided(store, handoff_id, poll=0.001)


@pytest.mark.anyio
async def test_a_decision_in_another_thread_is_seen() -> None:
    store = InMemoryHandoffStore()
    handoff_id = store.request(asked())
    async with anyio.create_task_group() as group:
        group.start_soon(partial(anyio.to_thread.run_sync, lambda: store.accept(handoff_id)))
        assert (await decided(store, handoff_id, poll=0.001)).accepted


@pytest.mark.anyio
@STORES
@pytest.mark.parametrize("ends", ["complete", "fail"])
async def test_caller_can_wait_for_completion(make: Callable[[], HandoffStore], ends: str) -> None:
    """Two workers that know nothing but the store."""
    store = make()

    async def worker() -> None:
        handoff_id, request = await incoming(store, "b", poll=0.001)
        assert request == asked()
        await resolve(store.accept(handoff_id))
        await anyio.sleep(0.01)
        done = (
            store.complete(handoff_id, {"answer": 42}) if ends == "complete" else store.fail(handoff_id, "x")
        )
        await resolve(done)

    async with anyio.create_task_group() as group:
        group.start_soon(worker)
        handoff_id = await resolve(store.request(asked()))
        response = await finished(store, handoff_id, poll=0.001)
    assert (response.status, response.metadata) == (
        ("COMPLETED", {"answer": 42}) if ends == "complete" else ("FAILED", {})
    )


@pytest.mark.anyio
async def test_finished_returns_at_once_for_a_rejection() -> None:
    store = InMemoryHandoffStore()
    store.reject(store.request(asked()), "no")
    assert (await finished(store, "r1:b")).status is HandoffStatus.REJECTED


@STORES
def test_both_classes_fit_the_protocol(make: Callable[[], HandoffStore]) -> None:
    """For the type checkers."""
    store: HandoffStore = make()
    assert store is not None
