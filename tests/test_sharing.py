"""What the target of a transfer sees of the shared memory, and what of it comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_agents import TO_B, agent

from routelock import (
    Agent,
    RunConfig,
    RunContext,
    Runner,
    ToolContext,
    function_handler,
    function_tool,
    handoff,
)
from routelock.context import scoped
from routelock.errors import ConfigError, RoutelockError
from routelock.handlers.events import TextDelta
from routelock.handlers.port import Request
from routelock.handoffs.payload import payload_of
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

KEY = "handoff_context"
DATA = {"handoff_type": "quick_lookup", "topic": "moss"}
MEMORY = {"user": "Ada", "cart": 1, "secret": "x"}


def at_work(name: str, work: Callable[[dict[str, Any]], object], *replies: Any, **options: Any) -> Agent[Any]:
    """An agent that does something with the memory in each turn."""

    def instructions(context: RunContext[Any]) -> str:
        work(context.shared_memory)
        return f"You are {name}."

    return Agent(name, instructions, model=ScriptedHandler(replies, name=name), **options)


def asked(one: Agent[Any]) -> list[Request]:
    assert isinstance(one.model, ScriptedHandler)
    return one.model.requests


def memory_of(request: Request) -> dict[str, Any]:
    assert request.context is not None
    return request.context.shared_memory


async def memory_after(a: Agent[Any]) -> dict[str, Any]:
    result = await Runner.run(a, "Hi", run_config=RunConfig(shared_memory=dict(MEMORY)))
    return result.context.shared_memory


# -- what is seen --


async def test_by_default_source_and_target_have_the_same_dict() -> None:
    seen: list[dict[str, Any]] = []
    b = at_work("B", seen.append, "Done.")
    await Runner.run(at_work("A", seen.append, TO_B, handoffs=[b]), "Hi")
    assert seen[0] is seen[1]


@pytest.mark.parametrize(
    ("share", "sees"), [([], {}), (["cart"], {"cart": 1}), (["cart", "nothing"], {"cart": 1})]
)
async def test_with_share_the_target_sees_these_keys_alone(share: list[str], sees: dict[str, Any]) -> None:
    """A key that is not there is no mistake."""
    seen: list[dict[str, Any]] = []
    b = at_work("B", lambda memory: seen.append(dict(memory)), "Done.")
    await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=share)]))
    assert seen == [sees]


async def test_tools_and_handlers_of_the_target_see_no_more() -> None:
    seen: list[set[str]] = []

    @function_tool
    def look(context: ToolContext[Any]) -> str:
        """Look."""
        seen.append(set(context.shared_memory))
        return "ok"

    b = agent("B", call("look"), "Done.", tools=[look])
    await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=["cart"])]))
    seen.append(set(memory_of(asked(b)[0])))
    assert seen == [{"cart"}, {"cart"}]


async def test_next_target_sees_no_more_keys() -> None:
    seen: list[set[str]] = []
    c = at_work("C", lambda memory: seen.append(set(memory)), "Done.")
    b = agent("B", call("transfer_to_c"), handoffs=[handoff(c, share=["cart", "secret"])])
    await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=["cart"])]))
    assert seen == [{"cart"}]


async def test_the_value_itself_is_not_copied() -> None:
    bag = ["tea"]
    b = at_work("B", lambda memory: memory["bag"].append("milk"), "Done.")
    a = at_work("A", lambda memory: memory.update(bag=bag), TO_B, handoffs=[handoff(b, share=["bag"])])
    assert (await memory_after(a))["bag"] is bag
    assert bag == ["tea", "milk"]


async def test_payload_is_always_passed_on() -> None:
    """It is for the target."""
    seen: list[Any] = []
    b = at_work("B", lambda memory: seen.append(payload_of(memory)[0]), "Done.")
    await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=[], payload=DATA)]))
    (payload,) = seen
    assert (payload.source_agent, payload.context_data) == ("A", {"topic": "moss"})


async def test_earlier_payload_is_passed_on() -> None:
    """C has what A sent, though B shares nothing with it and sends nothing."""
    seen: list[Any] = []
    c = at_work("C", lambda memory: seen.append(payload_of(memory)[0]), "Done.")
    b = agent("B", call("transfer_to_c"), handoffs=[handoff(c, share=[])])
    await memory_after(agent("A", TO_B, handoffs=[handoff(b, payload=DATA)]))
    assert seen[0].source_agent == "A"


async def test_source_keeps_its_own_memory() -> None:
    """Its instructions are passed on as they are for the source."""
    seen: list[str] = []

    def instructions(context: RunContext[Any]) -> str:
        return f"The word is {context.shared_memory['secret']}."

    b = agent("B", "Done.")
    a = Agent(
        "A",
        instructions,
        model=ScriptedHandler([TO_B]),
        handoffs=[handoff(b, share=[], transfer_system_message=True)],
    )
    await memory_after(a)
    seen += [str(asked(b)[0].messages[0].get("content"))]
    assert "The word is x." in seen[0]


# -- what comes back --


async def test_change_of_a_shared_key_is_kept() -> None:
    b = at_work("B", lambda memory: memory.update(cart=memory["cart"] + 1), "Done.")
    memory = await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=["cart"])]))
    assert memory == {**MEMORY, "cart": 2}


async def test_a_shared_key_that_the_target_deletes_is_gone() -> None:
    b = at_work("B", lambda memory: memory.pop("cart"), "Done.")
    memory = await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=["cart"])]))
    assert memory == {"user": "Ada", "secret": "x"}


async def test_a_shared_key_may_be_new() -> None:
    b = at_work("B", lambda memory: memory.update(found=3), "Done.")
    memory = await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=["found"])]))
    assert memory == {**MEMORY, "found": 3}


async def test_unshared_keys_cannot_be_overwritten() -> None:
    b = at_work("B", lambda memory: memory.update(secret="y", own=1), "Done.")
    memory = await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=["cart"])]))
    assert memory == MEMORY


async def test_a_caller_has_its_memory_back() -> None:
    seen: list[dict[str, Any]] = []
    b = at_work("B", lambda memory: memory.update(cart=5, own=1), "Forty-two.")
    a = at_work(
        "A",
        lambda memory: seen.append(dict(memory)),
        TO_B,
        "It is 42.",
        handoffs=[handoff(b, share=["cart"], return_to_caller=True)],
    )
    await memory_after(a)
    assert seen == [MEMORY, {**MEMORY, "cart": 5}]


async def test_caller_gets_changes_of_all_agents_in_between() -> None:
    """Each handoff gives back its shared keys, whatever later handoffs did."""
    c = at_work("C", lambda memory: memory.update(cart=7, user="Eve"), "Forty-two.")
    b = at_work(
        "B",
        lambda memory: memory.update(user="Bob"),
        call("transfer_to_c"),
        handoffs=[handoff(c, share=["cart"])],
    )
    a = agent("A", TO_B, "Ok.", handoffs=[handoff(b, share=["user", "cart"], return_to_caller=True)])
    assert await memory_after(a) == {"user": "Bob", "cart": 7, "secret": "x"}


async def test_caller_in_a_scope_gets_that_scope_back() -> None:
    seen: list[dict[str, Any]] = []
    c = at_work("C", lambda memory: memory.clear(), "C.")
    b = at_work(
        "B",
        lambda memory: seen.append(dict(memory)),
        call("transfer_to_c"),
        "B.",
        handoffs=[handoff(c, share=["user"], return_to_caller=True)],
    )
    memory = await memory_after(agent("A", TO_B, handoffs=[handoff(b, share=["user", "cart"])]))
    assert seen == [{"user": "Ada", "cart": 1}, {"cart": 1}]
    assert memory == {"cart": 1, "secret": "x"}


async def test_the_memory_is_whole_when_the_target_fails() -> None:
    """Also on the partial result."""

    def fail(memory: dict[str, Any]) -> None:
        memory["cart"] = 2
        raise ValueError("no")

    with pytest.raises(RoutelockError) as raised:
        await memory_after(agent("A", TO_B, handoffs=[handoff(at_work("B", fail), share=["cart"])]))
    assert raised.value.result is not None
    assert raised.value.result.context.shared_memory == {**MEMORY, "cart": 2}


@pytest.mark.virtual_time
async def test_caller_has_its_memory_back_after_a_timeout() -> None:
    """Over all that were waited for, with what they had shared until then."""

    async def forever(request: Any) -> str:
        await anyio.sleep_forever()
        return ""

    seen: list[dict[str, Any]] = []
    c = Agent("C", model=function_handler(forever))
    to_c = handoff(c, share=[], return_to_caller=True)
    b = at_work("B", lambda memory: memory.update(cart=2), call("transfer_to_c"), handoffs=[to_c])
    to_b = handoff(b, share=["cart"], return_to_caller=True, run_timeout=0.01)
    a = at_work("A", lambda memory: seen.append(dict(memory)), TO_B, "Mine.", handoffs=[to_b])
    assert await memory_after(a) == seen[1] == {**MEMORY, "cart": 2}


async def test_the_memory_is_whole_when_the_stream_is_left() -> None:
    b = at_work("B", lambda memory: memory.update(cart=2, own=1), "Done.")
    a = agent("A", TO_B, handoffs=[handoff(b, share=["cart"])])
    config = RunConfig(shared_memory=dict(MEMORY))
    async with Runner.run_streamed(a, "Hi", run_config=config) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert stream.result.context.shared_memory == {**MEMORY, "cart": 2}


async def test_in_a_nested_run_it_is_the_same() -> None:
    """Its shared keys reach the caller, and the payload of the outer run stays."""
    seen: list[Any] = []
    b = at_work("B", lambda memory: memory.update(cart=3, own=1), "Done.")
    helper = agent("helper", TO_B, handoffs=[handoff(b, share=["cart"], payload={**DATA, "topic": "inner"})])

    def look(memory: dict[str, Any]) -> None:
        seen.append((memory.get("cart"), memory.get("own"), memory[KEY]["context_data"]["topic"]))

    lead = at_work("lead", look, call("helper", {"input": "?"}), "Ok.", tools=[helper.as_tool()])
    await memory_after(agent("A", call("transfer_to_lead"), handoffs=[handoff(lead, payload=DATA)]))
    assert seen == [(1, None, "moss"), (3, None, "moss")]


async def test_refused_transfer_does_not_scope_the_memory() -> None:
    def no(request: Any) -> Any:
        raise ValueError("no")

    seen: list[dict[str, Any]] = []
    b = agent("B", on_handoff_request=no)
    a = at_work("A", lambda memory: seen.append(dict(memory)), TO_B, "Mine.", handoffs=[handoff(b, share=[])])
    await memory_after(a)
    assert seen == [MEMORY, MEMORY]


@pytest.mark.parametrize("share", [None, ["cart"], ["secret", "cart"]])
async def test_the_apps_own_dict_is_never_changed(share: list[str] | None) -> None:
    def work(memory: dict[str, Any]) -> None:
        memory.setdefault("cart", {"tea": 1})["tea"] = 2
        memory["new"] = 1

    given = {"cart": {"tea": 1}, "secret": ["x"]}
    a = at_work("A", work, TO_B, handoffs=[handoff(at_work("B", work, "Done."), share=share, payload=DATA)])
    await Runner.run(a, "Hi", run_config=RunConfig(shared_memory=given))
    assert given == {"cart": {"tea": 1}, "secret": ["x"]}


# -- what cannot work --


@pytest.mark.parametrize("share", ["cart", [1], 5])
def test_share_is_a_list_of_names(share: Any) -> None:
    with pytest.raises(ConfigError, match="share must be a list of names"):
        handoff(agent("B"), share=share)


# -- agents that are asked at the same time --


async def test_concurrent_agents_each_see_their_own_payload() -> None:
    """Both have handed over before either target reads what it was given."""
    there = {name: anyio.Event() for name in ("x", "y")}
    seen: dict[str, list[str]] = {"x": [], "y": []}

    def helper(name: str, other: str) -> Agent[Any]:
        async def boss(context: RunContext[Any]) -> str:
            there[name].set()
            with anyio.fail_after(60):
                await there[other].wait()
            payload = context.handoff_payload
            seen[name].append(payload.source_agent if payload else "nothing")
            seen[name].append(context.shared_memory[KEY]["source_agent"])
            return "You are the boss."

        target = Agent(f"boss {name}", boss, model=ScriptedHandler(["Ok."]))
        to = call(f"transfer_to_boss_{name}")
        data = {**DATA, "of": name}
        return Agent(name, model=ScriptedHandler([to]), handoffs=[handoff(target, payload=data)])

    tools = [helper("x", "y").as_tool(), helper("y", "x").as_tool()]
    front = agent("front", [call("x", {"input": "?"}), call("y", {"input": "?"})], "Done.", tools=tools)
    result = await Runner.run(front, "Hi")
    assert result.final_output == "Done."
    assert seen == {"x": ["x", "x"], "y": ["y", "y"]}
    assert KEY not in result.context.shared_memory


async def test_concurrent_agents_all_keep_their_changes() -> None:
    """One that handed over with a payload goes on with a copy, and brings back what it changed, no more."""
    there = {name: anyio.Event() for name in ("x", "y")}

    def helper(name: str, other: str) -> Agent[Any]:
        async def boss(context: RunContext[Any]) -> str:
            context.shared_memory.update({name: 1, "cart" if name == "x" else "user": name})
            there[name].set()
            with anyio.fail_after(60):
                await there[other].wait()
            return "You are the boss."

        target = Agent(f"boss {name}", boss, model=ScriptedHandler(["Ok."]))
        to = call(f"transfer_to_boss_{name}")
        return Agent(name, model=ScriptedHandler([to]), handoffs=[handoff(target, payload=DATA)])

    tools = [helper("x", "y").as_tool(), helper("y", "x").as_tool()]
    front = agent("front", [call("x", {"input": "?"}), call("y", {"input": "?"})], "Done.", tools=tools)
    assert await memory_after(front) == {**MEMORY, "x": 1, "y": 1, "cart": "x", "user": "y"}


# -- always --

KEYS = st.sampled_from(["a", "b", "c", KEY])
DICTS = st.dictionaries(KEYS, st.integers(0, 2))


@given(
    outer=DICTS,
    keys=st.none() | st.lists(KEYS),
    changes=st.lists(st.tuples(KEYS, st.none() | st.integers(0, 2))),
)
def test_widened_has_all_changes_of_shared_keys(
    outer: dict[str, Any], keys: list[str] | None, changes: list[tuple[str, int | None]]
) -> None:
    """As if it had been done to the outer dict itself; all else stays as it was."""
    before = dict(outer)
    inner = scoped(outer, keys)
    assert outer == before
    expected = dict(before)
    for key, value in changes:
        for each in (inner.inner, expected):
            each.pop(key, None)
            if value is not None:
                each[key] = value
    after = inner.widened()
    assert after is outer
    for key in ("a", "b", "c", KEY):
        shared = (keys is None or key in keys) and key != KEY
        assert after.get(key) == (expected if shared else before).get(key)


class Scope:
    """What sharing means, in other words: a shared key is looked up in the scope around, all else here."""

    def __init__(self, around: Scope | None = None, share: list[str] | None = None) -> None:
        self.around, self.share = around, share
        self.own: dict[str, int] = {}

    def of(self, key: str) -> dict[str, int]:
        return self.own if self.around is None or key not in (self.share or []) else self.around.of(key)

    def seen(self) -> dict[str, int]:
        return {key: self.of(key)[key] for key in "abc" if key in self.of(key)}

    def do(self, key: str, value: int | None) -> None:
        self.of(key).pop(key, None)
        if value is not None:
            self.of(key)[key] = value


CHANGE = st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9))
DIGITS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
Changes = list[tuple[str, int | None]]
HOP = st.tuples(st.none() | st.lists(st.sampled_from("abc"), max_size=2), st.booleans(), CHANGE, CHANGE)


def changing(changes: Changes, saw: list[dict[str, Any]]) -> Callable[[RunContext[Any]], str]:
    """Instructions that note what there is, and change one thing in each turn."""
    left = list(changes)

    def instructions(context: RunContext[Any]) -> str:
        memory = context.shared_memory
        saw.append(dict(memory))
        key, value = left.pop(0)
        memory.pop(key, None)
        if value is not None:
            memory[key] = value
        return ""

    return instructions


@pytest.mark.asyncio_only
@given(
    hops=st.lists(HOP, max_size=5),
    last=CHANGE,
    begin=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
)
async def test_each_agent_sees_what_its_scope_holds(
    hops: list[Any], last: Any, begin: dict[str, int]
) -> None:
    """However many hand over, share, change and return."""
    saw: list[dict[str, Any]] = []
    expected: list[dict[str, Any]] = []
    changes: list[Changes] = [*([one, other] for _, _, one, other in hops), [last]]
    made = Agent(f"n{len(hops)}", changing(changes[-1], saw), model=ScriptedHandler(["Done."]))
    for place, (share, back, _, _) in reversed([*enumerate(hops)]):
        model = ScriptedHandler([call(f"transfer_to_{made.name}"), "Done."])
        declared = handoff(made, share=share, return_to_caller=back)
        made = Agent(f"n{place}", changing(changes[place], saw), model=model, handoffs=[declared])

    def play(place: int, scope: Scope) -> None:
        expected.append(scope.seen())
        scope.do(*changes[place][0])
        if place < len(hops):
            share, back, _, _ = hops[place]
            play(place + 1, scope if share is None else Scope(scope, share))
            if back:
                expected.append(scope.seen())
                scope.do(*changes[place][1])

    config = RunConfig(shared_memory=begin, max_handoffs=None, detect_loops=False)
    result = await Runner.run(made, "Hi", max_turns=None, run_config=config)
    root = Scope()
    root.own = dict(begin)
    play(0, root)
    assert saw == expected
    assert result.context.shared_memory == root.own
