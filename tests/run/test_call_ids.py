"""One call, one id: whatever a model sends, no decision and no answer is ever taken for another call's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_agents import agent, answers_of
from thoroughness import examples

from routelock import Agent, Runner, RunResult, RunState, Tool, handler, tool
from routelock.errors import ConfigError
from routelock.handlers.events import MessageDone
from routelock.handlers.replies import storable_reply
from routelock.history.messages import calls_of
from routelock.run.events import Repaired, RunEvent
from routelock.sessions import InMemorySessions, Session
from routelock.state.journal import Journal
from routelock.testing import call
from routelock.tools.approvals import Interruption

pytestmark = pytest.mark.anyio

HALF, OTHER_HALF = "p\ud83d", "p\ud83e"
WATCHED = pytest.mark.parametrize("watched", [False, True], ids=["plain", "streamed"])


class Till:
    """Counts what is paid."""

    def __init__(self) -> None:
        self.paid = 0

    def tool(self, **options: Any) -> Tool:
        def pay(amount: int) -> str:
            """Pay."""
            self.paid += 1
            return f"paid {amount}"

        return tool(needs_approval=True, **options)(pay)


def twice(*ids: str) -> dict[str, Any]:
    """A reply that makes the same call with each of these ids."""
    calls = [call("pay", {"amount": 5}, id=each) for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def clerk(till: Till, *replies: Any) -> Agent[Any]:
    return agent("clerk", *replies, tools=[till.tool()])


async def run(starting: Agent[Any], input: Any, watched: bool = False, **options: Any) -> RunResult[Any]:
    """A run whose state goes through JSON, watched or not."""
    if isinstance(input, RunState):
        input = RunState.from_json(input.to_json(), agents=[starting])
    if not watched:
        return await Runner.run(starting, input, **options)
    return await Runner.run_streamed(starting, input, **options).drain()


def ids_of(result: RunResult[Any]) -> list[str]:
    return [one["id"] for message in result.messages for one in calls_of(message)]


# -- one approval is one call --


@WATCHED
@pytest.mark.parametrize("ids", [(HALF, OTHER_HALF), ("p", "p"), ("", ""), (HALF, "p\ufffd")])
async def test_one_approval_carries_out_one_call(watched: bool, ids: tuple[str, str]) -> None:
    """Ids that UTF-8 cannot hold, or that are equal, would be one and the same in a state."""
    till = Till()
    asks = clerk(till, twice(*ids), "Paid.")
    first = await run(asks, "Pay 5 twice.", watched)
    assert len({one.call_id for one in first.interruptions}) == 2
    second = await run(asks, first.state().approve(first.interruptions[0]), watched)
    assert (till.paid, len(second.interruptions)) == (1, 1)
    third = await run(asks, second.state().approve(second.interruptions[0]), watched)
    assert (till.paid, third.final_output) == (2, "Paid.")
    assert len({*ids_of(third)}) == 2


async def test_one_approval_carries_out_one_call_with_a_journal(tmp_path: Path) -> None:
    till = Till()
    asks = clerk(till, twice(HALF, OTHER_HALF))
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.run(asks, "Pay 5 twice.", run_id="r")
        state = await journal.state("r", agents=[asks])
        assert state is not None
        second = await journal.run(asks, state.approve(state.interruptions[0]), run_id="r")
    assert (till.paid, len(second.interruptions)) == (1, 1)


async def test_one_approval_carries_out_one_call_in_a_session() -> None:
    till, session = Till(), Session("s", InMemorySessions())
    asks = clerk(till, twice(HALF, OTHER_HALF))
    first = await run(asks, "Pay 5 twice.", session=session)
    second = await run(asks, first.state().approve(first.interruptions[0]), session=session)
    assert (till.paid, len(second.interruptions)) == (1, 1)


async def test_one_approval_allows_one_call_in_a_sub_run() -> None:
    till = Till()
    boss = agent(
        "boss",
        call("ask_clerk", {"input": "Pay"}, id="a"),
        tools=[clerk(till, twice(HALF, OTHER_HALF)).as_tool(tool_name="ask_clerk")],
    )
    first = await run(boss, "Pay 5 twice.")
    second = await run(boss, first.state().approve(first.interruptions[0]))
    assert (till.paid, len(second.interruptions)) == (1, 1)


async def test_decision_is_gone_once_its_call_is_done() -> None:
    till = Till()
    asks = clerk(till, twice("p", "q"))
    first = await run(asks, "Pay 5 twice.")
    second = await run(asks, first.state().approve(first.interruptions[0]))
    assert not second.state().document.decisions


async def test_decision_in_a_sub_run_is_used_once() -> None:
    till = Till()
    asked = clerk(till, twice("p", "q"))
    boss = agent(
        "boss", call("ask_clerk", {"input": "Pay"}, id="a"), tools=[asked.as_tool(tool_name="ask_clerk")]
    )
    first = await run(boss, "Pay 5 twice.")
    second = await run(boss, first.state().approve(first.interruptions[0]))
    assert not second.state().document.decisions


async def test_decision_stays_until_its_call_is_made() -> None:
    """The run ended before it came to it."""
    till = Till()
    asks = clerk(till, twice("p", "q"))
    state = (await run(asks, "Pay 5 twice.")).state()
    state = state.approve(state.interruptions[0])
    assert RunState.from_json(state.to_json(), agents=[asks]).document.decisions


async def test_decision_for_all_calls_of_a_tool_stays() -> None:
    till = Till()
    asks = clerk(till, twice("p", "q"), "Paid.")
    first = await run(asks, "Pay 5 twice.")
    second = await run(asks, first.state().approve(first.interruptions[0], always=True))
    assert (till.paid, len(second.state().document.decisions)) == (2, 1)


async def test_approval_in_one_run_does_not_hold_in_another() -> None:
    """The two calls are the same to the letter."""
    till = Till()
    mine, others = clerk(till, twice("p")), clerk(till, twice("p"))
    one = (await run(mine, "Pay.")).interruptions[0]
    state = (await run(others, "Pay.")).state()
    assert one.fingerprint != state.interruptions[0].fingerprint
    with pytest.raises(ConfigError, match="belongs to the run"):
        state.approve(one)


async def test_decision_of_another_run_counts_for_nothing() -> None:
    till = Till()
    one, other = (await run(clerk(till, twice("p")), "Pay.")), (await run(clerk(till, twice("p")), "Pay."))
    said = json.loads(one.state().approve(one.interruptions[0]).to_json())["decisions"]
    document = json.loads(other.state().to_json())
    document |= {"decisions": said, "interruptions": []}
    asks = clerk(till, "Never.")
    stolen = RunState.from_json(json.dumps(document), agents=[asks])
    result = await Runner.run(asks, stolen)
    assert (till.paid, len(result.interruptions)) == (0, 1)


async def test_state_with_one_id_for_two_calls_is_refused() -> None:
    document = json.loads((await run(clerk(Till(), twice("p", "q")), "Pay.")).state().to_json())
    document["items"][1]["message"]["tool_calls"][1]["id"] = "p"
    with pytest.raises(ValueError, match="two calls of the run have the id 'p'"):
        RunState.from_json(json.dumps(document), agents=[clerk(Till())])


# -- what is noted --


@WATCHED
async def test_renamed_call_is_a_repair(watched: bool) -> None:
    asks = agent("A", call("look", id="x"), call("look", id="x"), "Done.", tools=[tool(look)])
    result = await run(asks, "Hi", watched)
    (repair,) = result.repairs
    assert repair == f"renamed tool call 'x' to {ids_of(result)[1]!r}"


async def test_renamed_call_is_shown_in_a_stream() -> None:
    asks = agent("A", twice(HALF), tools=[Till().tool()])
    events: list[RunEvent] = [event async for event in Runner.run_streamed(asks, "Hi")]
    told = [event.repair for event in events if isinstance(event, Repaired)]
    assert told == ["renamed tool call 'p\\ud83d' to 'call_1_0'"]


@WATCHED
async def test_id_that_was_never_sent_is_no_repair(watched: bool) -> None:
    """Some vendors know no ids."""
    asks = agent("A", call("look", id=""), "Done.", tools=[tool(look)])
    assert (await run(asks, "Hi", watched)).repairs == ()


def look() -> str:
    """Look."""
    return "here"


# -- text that UTF-8 cannot hold --


@WATCHED
async def test_half_a_character_in_a_reply_is_replaced(watched: bool) -> None:
    asks = agent("A", "half \ud83d", tools=[])
    result = await run(asks, "Hi", watched)
    assert result.final_output == "half \ufffd"
    assert result.messages[-1].get("content") == "half \ufffd"
    assert result.repairs == ("replaced half a character in the reply",)


@WATCHED
async def test_half_a_character_in_a_name_is_replaced(watched: bool) -> None:
    asks = agent("A", call("look\ud83d", id="l"), "Done.", tools=[tool(look)])
    result = await run(asks, "Hi", watched)
    assert [one["function"]["name"] for one in calls_of(result.messages[1])] == ["look\ufffd"]
    assert "There is no tool named" in answers_of(result)[0]


@WATCHED
async def test_surrogate_half_in_arguments_is_escaped_as_json(watched: bool) -> None:
    """It is the same JSON, so the tool refuses it as it would have: no call is made of what was repaired."""
    asked = call("pay", id="p")
    asked["function"]["arguments"] = '{"amount": 5, "x": "\ud83d"}'
    till = Till()
    result = await run(
        clerk(till, {"role": "assistant", "content": None, "tool_calls": [asked]}, "No."), "Hi", watched
    )
    (made,) = calls_of(result.messages[1])
    assert made["function"]["arguments"] == '{"amount": 5, "x": "\\ud83d"}'
    assert (till.paid, result.interruptions) == (0, ())


async def test_state_keeps_a_surrogate_half_as_the_run_does() -> None:
    asked = call("pay", {"amount": 5}, id=HALF)
    reply = {
        "role": "assistant",
        "content": "half \ud83d",
        "reasoning_content": "\udcff",
        "tool_calls": [asked],
    }
    result = await run(clerk(Till(), reply), "Hi")
    state = RunState.from_json(result.state().to_json(), agents=[clerk(Till())])
    assert [item.message for item in state.items] == [item.message for item in result.items]
    assert state.interruptions == result.interruptions


async def test_a_partial_reply_can_be_written_down() -> None:
    async def breaks(request: Any) -> Any:
        yield "half \ud83d"
        raise ValueError("boom")

    with pytest.raises(Exception, match="boom") as raised:
        await run(Agent("A", handlers=[handler(breaks)]), "Hi", True)
    result: RunResult[Any] = raised.value.result  # type: ignore[attr-defined]
    assert result.messages[-1].get("content") == "half \ufffd"


TEXT = st.text(st.sampled_from('ab\\"{}\ud83d\ude00\udcff😀é'), max_size=6)
IDS = st.sampled_from(["", "a", "\ud83d", "\ud83e", "\ufffd", "call_1_0"]) | TEXT


@given(st.lists(st.lists(st.tuples(IDS, TEXT, TEXT), max_size=4), max_size=3), TEXT)
def test_every_reply_that_is_taken_can_be_written(turns: list[list[tuple[str, str, str]]], text: str) -> None:
    used: set[str] = set()
    seen: list[str] = []
    for turn, each in enumerate(turns, 1):
        calls = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": arguments}, name: text}
            for one, name, arguments in each
        ]
        message: Any = {
            "role": "assistant",
            "content": text,
            "thinking_blocks": [{text: text}],
            "tool_calls": calls,
        }
        taken, _ = storable_reply(MessageDone(message=message), turn, used)
        json.dumps(taken.message, ensure_ascii=False).encode()
        seen += [made["id"] for made in calls_of(taken.message)]
    assert len({*seen}) == len(seen) == sum(map(len, turns))


# -- states --


@examples(40)
@given(st.lists(st.sampled_from(["approve", "reject", "neither"]), min_size=3, max_size=3), st.booleans())
async def test_state_round_trip_keeps_the_bytes(words: list[str], always: bool) -> None:
    asks = clerk(Till(), twice("p", "q", "r"))
    state = (await Runner.run(asks, "Pay.")).state()
    for one, word in zip(state.interruptions, words, strict=True):
        if word == "neither" or one not in state.interruptions:
            continue
        state = state.approve(one, always=always) if word == "approve" else state.reject(one, always=always)
    text = state.to_json()
    again = RunState.from_json(text, agents=[asks])
    assert again.to_json() == text
    assert Interruption(agent="x", name="y", arguments="", call_id="z") not in again.interruptions
