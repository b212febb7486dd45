"""However a run ended, the next one starts at the default handler and sees nothing of it.

The agents here are told by the user's message what to do, word by word, so that they need no script and
no memory: what one run says can only come from its own input.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import QUICK, both
from scenes import facts
from scripted_agents import outcome
from thoroughness import examples

from routelock import (
    Agent,
    AgentHooks,
    HandoffRequest,
    Request,
    RunConfig,
    RunContext,
    Runner,
    RunResult,
    RunStream,
    Skill,
    handler,
    tool,
)
from routelock.agents.skill import prompt
from routelock.errors import InvalidRequest, RoutelockError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.history.messages import Message, text_of
from routelock.run.events import RunDone, RunEvent
from routelock.testing import assert_valid, call

pytestmark = pytest.mark.anyio

EXTERNAL = {
    "type": "function",
    "function": {"name": "where", "parameters": {"type": "object", "properties": {}}},
}
WORDS = ["s1", "s2", "front", "B", "tool", "remember", "boom", "half", "where", "nobody", "transfer"]


class Trap:
    """Counts the places that wait, and cancels at one of them."""

    def __init__(self) -> None:
        self.at = 0
        self.passed = 0
        self.scope = anyio.CancelScope()

    async def wait(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            self.scope.cancel()
        await anyio.lowlevel.checkpoint()


def word_of(request: Request) -> str:
    """The next word of the user's message: one for each reply since then."""
    texts = [(message["role"], text_of(message)) for message in request.messages]
    last = max(place for place, (role, _) in enumerate(texts) if role == "user")
    done = sum(role == "assistant" for role, _ in texts[last:])
    return [*texts[last][1].split(), *["say"] * 20][done]


class Player:
    """A handler that does what the words say."""

    def __init__(self, name: str, trap: Trap, priority: int) -> None:
        self.name = name
        self.trap = trap
        self.priority = priority
        self.prompt = f"Is {name}."
        self.expose = name == "s1"

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        await self.trap.wait()
        word, context = word_of(request), request.context
        assert context is not None
        if word == "boom":
            raise InvalidRequest("boom")
        message: Message = {"role": "assistant", "content": None}
        if word == "say":
            remembered = sorted(context.shared_memory)
            message["content"] = (
                f"{self.name} says {len(request.messages)} {remembered} {request.handoff_input}"
            )
        elif word == "half":
            yield TextDelta("Half")
            raise InvalidRequest("half")
        elif word == "transfer":
            message["tool_calls"] = [call("transfer_to_b")]
        elif word in ("tool", "remember", "where"):
            message["tool_calls"] = [call("add" if word == "tool" else word)]
        else:
            message["tool_calls"] = [call("ask", {"target": word}), call("add")]
        await self.trap.wait()
        yield MessageDone(message=message)
        await self.trap.wait()


class Words(Skill):
    """Tools and a prompt, all of which wait."""

    def __init__(self, trap: Trap) -> None:
        super().__init__(name="words")
        self.trap = trap

    @tool
    async def add(self) -> str:
        """Add."""
        await self.trap.wait()
        return "added"

    @tool
    async def ask(self, target: str) -> HandoffRequest:
        """Ask."""
        await self.trap.wait()
        return HandoffRequest(target, input=f"for {target}")

    @tool
    async def remember(self, context: RunContext[Any]) -> str:
        """Remember."""
        await self.trap.wait()
        context.shared_memory["remembered"] = True
        return "remembered"

    @prompt
    async def written(self, context: RunContext[Any]) -> str:
        await self.trap.wait()
        return "Words."

    @handler(prompt="A skill's own.")
    async def own(self, request: Request) -> str:
        await self.trap.wait()
        return "own"


class Waits(AgentHooks):
    """Waits where an agent hands over."""

    def __init__(self, trap: Trap) -> None:
        self.trap = trap

    async def on_start(self, context: RunContext[Any], agent: Any) -> None:
        await self.trap.wait()

    async def on_handoff(self, context: RunContext[Any], agent: Any, source: Any) -> None:
        await self.trap.wait()


def company(trap: Trap) -> Agent[Any]:
    """Two agents, the first with three handlers and a skill."""
    skill = Words(trap)
    b = Agent("B", "Be B.", model=Player("b", trap, 1), skills=[skill], hooks=Waits(trap), handoffs=["A"])
    handlers = [Player("s2", trap, 30), Player("s1", trap, 20), Player("front", trap, 10)]
    return Agent("A", "Be A.", handlers=handlers, skills=[skill], hooks=Waits(trap), handoffs=[b])


def config(**more: Any) -> RunConfig:
    return RunConfig(**{"run_id": "r", "retry": QUICK, "external_tools": [EXTERNAL], **more})


async def alone(words: str, *, streamed: bool = False, **more: Any) -> dict[str, Any]:
    """What a run gives that is the first and only one of its agents."""
    if streamed:
        async with stream(company(Trap()), words, **more) as run:
            with suppress(RoutelockError):
                await run.drain()
        return whole(run.result)
    return whole(await carried_out(company(Trap()), words, **more))


def whole(result: RunResult[Any]) -> dict[str, Any]:
    return {
        **facts(result),
        "last handler": result.last_handler,
        "pending": result.pending,
        "memory": result.context.shared_memory,
        "scopes": result.context.scopes,
    }


async def carried_out(agent: Agent[Any], words: str, **more: Any) -> RunResult[Any]:
    try:
        return await Runner.run(agent, words, max_turns=6, run_config=config(**more))
    except RoutelockError as error:
        partial: RunResult[Any] = error.result
        return partial


PLANS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
AFTER = "s2 tool"


async def starts_afresh(agent: Agent[Any]) -> None:
    """The next runs are what they would be if there had been none before."""
    assert whole(await carried_out(agent, "")) == await alone("")
    assert whole(await carried_out(agent, AFTER)) == await alone(AFTER)


def test_the_words_lead_everywhere() -> None:
    """The property below would hold for agents that do nothing."""

    async def check() -> None:
        agent = company(Trap())
        assert (await carried_out(agent, "")).last_handler == "front"
        assert (await carried_out(agent, "s1 s2")).last_handler == "s2"
        assert (await carried_out(agent, "B")).last_agent.name == "B"
        assert (await carried_out(agent, "transfer")).last_agent.name == "B"
        assert (await carried_out(agent, "boom")).stop_reason == "error"
        assert (await carried_out(agent, "boom", fallback=True)).last_handler == "own"
        assert (await carried_out(agent, "where")).stop_reason == "requires_action"
        assert (await carried_out(agent, "tool " * 6)).stop_reason == "error"
        assert (await carried_out(agent, "half")).messages[-1].get("content") == "Half"
        assert (await carried_out(agent, "remember")).context.shared_memory == {"remembered": True}

    anyio.run(check)


@examples(20)
@given(plan=PLANS, fallback=st.booleans(), on_limit=st.sampled_from(["raise", "return"]))
async def test_after_an_answer_an_error_or_a_limit(plan: str, fallback: bool, on_limit: str) -> None:
    agent = company(Trap())
    for _ in range(2):
        await carried_out(agent, plan, fallback=fallback, on_limit=on_limit, scopes=["owner"])
    await starts_afresh(agent)


@examples(20)
@given(plan=PLANS, at=st.integers(1, 60), fallback=st.booleans())
async def test_after_a_cancellation_at_any_await(plan: str, at: int, fallback: bool) -> None:
    trap = Trap()
    agent = company(trap)
    trap.at = at
    with trap.scope, suppress(RoutelockError):
        await Runner.run(agent, plan, run_config=config(fallback=fallback))
    trap.at = 0
    await starts_afresh(agent)


@pytest.mark.parametrize("plan", ["s1 s2 front B", "s1 tool", "transfer tool", "boom", "where"])
async def test_after_a_cancellation_at_each_await(plan: str) -> None:
    counting = Trap()
    await carried_out(company(counting), plan, fallback=True)
    for at in range(1, counting.passed + 1):
        trap = Trap()
        agent = company(trap)
        trap.at = at
        with trap.scope, suppress(RoutelockError):
            await Runner.run(agent, plan, run_config=config(fallback=True))
        trap.at = 0
        await starts_afresh(agent)


def stream(agent: Agent[Any], words: str, **more: Any) -> RunStream:
    return Runner.run_streamed(agent, words, max_turns=6, run_config=config(**more))


@examples(20)
@given(plan=PLANS, events=st.integers(0, 40), closed=st.booleans())
async def test_after_a_stream_that_was_left(plan: str, events: int, closed: bool) -> None:
    """A client goes away, even if the stream is not closed yet."""
    agent = company(Trap())
    async with stream(agent, plan, fallback=True) as left:
        with suppress(RoutelockError, StopAsyncIteration):
            for _ in range(events):
                await anext(aiter(left))
        if closed:
            await left.aclose()
        await starts_afresh(agent)
    if not left.result.pending:
        assert_valid([*left.result.to_input_list(), {"role": "user", "content": "Go on."}])


async def stepped(run: RunStream, seen: list[RunEvent]) -> bool:
    """Read one event; False when there are no more."""
    try:
        seen.append(await anext(aiter(run)))
    except (RoutelockError, StopAsyncIteration):
        return False
    return not isinstance(seen[-1], RunDone)


@examples(20)
@given(first=PLANS, second=PLANS, order=st.lists(st.booleans(), max_size=60))
async def test_runs_that_take_turns_are_what_they_are_alone(
    first: str, second: str, order: list[bool]
) -> None:
    agent = company(Trap())
    going: list[list[RunEvent] | None] = [[], []]
    async with stream(agent, first) as one, stream(agent, second) as other:
        for which in [*order, *[True, False] * 100]:
            seen = going[which]
            if seen is not None and not await stepped((one, other)[which], seen):
                going[which] = None
    assert going == [None, None]
    assert whole(one.result) == await alone(first, streamed=True)
    assert whole(other.result) == await alone(second, streamed=True)
    await starts_afresh(agent)


@examples(15)
@given(plans=st.lists(PLANS, min_size=2, max_size=5))
async def test_concurrent_runs_equal_separate_runs(plans: list[str]) -> None:
    agent = company(Trap())
    results: dict[int, dict[str, Any]] = {}

    async def one(number: int) -> None:
        results[number] = whole(await carried_out(agent, plans[number], fallback=True))

    async with anyio.create_task_group() as group:
        for number in range(len(plans)):
            group.start_soon(one, number)
    for number, plan in enumerate(plans):
        assert results[number] == await alone(plan, fallback=True)


async def test_shared_memory_of_the_config_is_not_changed() -> None:
    given_ = {"k": 1}
    result = await carried_out(company(Trap()), "remember", shared_memory=given_)
    assert result.context.shared_memory == {"k": 1, "remembered": True}
    assert given_ == {"k": 1}


async def test_staying_is_a_wish_of_the_caller() -> None:
    """Pass on what the result says, and the next run starts there."""
    agent = company(Trap())
    first = await carried_out(agent, "s1")
    more: list[Message] = [*first.to_input_list(), {"role": "user", "content": ""}]
    second = await Runner.run(first.last_agent, more, run_config=config(handler=first.last_handler))
    assert second.last_handler == "s1"


@examples(25)
@given(
    plan=PLANS,
    fallback=st.booleans(),
    multiple=st.sampled_from(["first", "reject"]),
    most=st.sampled_from([0, 1, 5, None]),
    on_limit=st.sampled_from(["raise", "return"]),
)
async def test_whatever_happens_a_run_is_whole(
    plan: str, fallback: bool, multiple: Any, most: int | None, on_limit: Any
) -> None:
    """Plain and streamed are the same run; no request is one that a provider refuses."""
    more = {"fallback": fallback, "multiple_handoffs": multiple, "max_handoffs": most, "on_limit": on_limit}
    played = await both(lambda: company(Trap()), plan, max_turns=6, external_tools=[EXTERNAL], **more)
    result = played.result
    for made in result.calls:
        assert_valid(made.messages)
    systems = {(made.agent, text_of(made.messages[0])) for made in result.calls}
    assert len(systems) == len({agent for agent, _ in systems})
    assert most is None or sum(outcome(record) == "taken" for record in result.handoffs) <= most
    assert result.usage.requests == len(result.calls)
    assert {made.turn for made in result.calls} == set(
        range(1, len({made.turn for made in result.calls}) + 1)
    )
    assert (played.error is None) == (result.stop_reason != "error")
    assert (result.stop_reason == "requires_action") == bool(result.pending)
    if result.calls:
        assert result.last_handler == result.calls[-1].handler or outcome(result.handoffs[-1]) == "taken"
