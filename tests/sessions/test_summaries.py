"""Summaries of a compaction outlive their run in a session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from long_runs import Chronicler, texts
from scripted_agents import agent, look_up

from routelock import Agent, RunConfig, Runner, handoff
from routelock.history import Compact
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


class Chat:
    """A conversation, one run for each message."""

    def __init__(self, *, most: int = 12, **limits: Any) -> None:
        self.session = Session("u", InMemorySessions(), **limits)
        self.chronicle = Chronicler()
        self.compact = Compact(at_messages=most, keep_turns=1, rest=self.chronicle)
        self.said = 0
        self.shown: list[str] = []

    async def say(self, one: Agent[Any] | None = None, compact: Compact | None = None) -> Any:
        self.said += 1
        one = one or agent("A", f"answer {self.said}")
        config = RunConfig(compact=compact or self.compact)
        result = await Runner.run(one, f"message {self.said}", session=self.session, run_config=config)
        if isinstance(one.model, ScriptedHandler):
            self.shown = texts(one.model.requests[-1].messages)
        return result


async def test_the_next_runs_use_the_summary_and_write_no_other() -> None:
    chat = Chat()
    for _ in range(8):
        await chat.say()
    written = len(chat.chronicle.given)
    assert written == 1
    await chat.say()
    assert len(chat.chronicle.given) == written
    assert sum("chapter 1" in each for each in chat.shown) == 1
    assert chat.shown[-1] == "message 9"
    assert "answer 1" not in chat.shown


async def test_a_long_chat_summarises_each_message_once() -> None:
    chat = Chat()
    for _ in range(40):
        await chat.say()
    given = [text for messages in chat.chronicle.given for text in texts(messages) if "chapter" not in text]
    assert len(given) == len(set(given)) > 50
    assert given[:3] == ["message 1", "answer 1", "message 2"]
    assert len(chat.chronicle.given) < 15


async def test_the_session_keeps_all_messages() -> None:
    chat = Chat()
    for _ in range(20):
        await chat.say()
    kept = (await chat.session.load()).messages
    assert texts(kept) == [f"{what} {n}" for n in range(1, 21) for what in ("message", "answer")]


async def test_a_run_without_compaction_is_shown_everything() -> None:
    chat = Chat()
    for _ in range(10):
        await chat.say()
    await chat.say(compact=Compact(at_messages=1000))
    assert "answer 1" in chat.shown


async def test_a_session_that_gives_its_newest_part_goes_on_with_the_summary() -> None:
    chat = Chat(max_items=14)
    for _ in range(20):
        await chat.say()
    assert any("chapter" in each for each in chat.shown)
    given = [text for messages in chat.chronicle.given for text in texts(messages) if "chapter" not in text]
    assert len(given) == len(set(given))


async def test_a_session_that_is_compacted_itself_keeps_the_summary() -> None:
    chat = Chat()
    for _ in range(8):
        await chat.say()
    await chat.session.compact()
    await chat.say()
    assert len(chat.chronicle.given) == 1
    assert sum("chapter 1" in each for each in chat.shown) == 1


async def test_the_work_of_an_agent_that_was_asked_is_no_part_of_it() -> None:
    chat = Chat()
    for _ in range(12):
        b = agent("B", call("look_up", {"order": chat.said}), "It is on its way.", tools=[look_up])
        declared = handoff(b, return_to_caller=True)
        a = agent("A", call("transfer_to_b"), f"answer {chat.said}", handoffs=[declared])
        await chat.say(a)
    await chat.say()
    assert chat.shown[-1] == "message 13"
    given = [text for messages in chat.chronicle.given for text in texts(messages) if text[:6] == "answer"]
    assert len(given) == len(set(given))


async def test_what_a_filter_hid_from_a_summary_is_not_lost() -> None:
    chat = Chat(most=8)
    await chat.say()
    calls = [call("look_up", {"order": n}) for n in range(5)]
    b = agent("B", *calls, "Done.", tools=[look_up])
    await chat.say(agent("A", call("transfer_to_b"), handoffs=[handoff(b, preserve_context=False)]))
    assert "message 1" not in [text for given in chat.chronicle.given for text in texts(given)]
    later = Chronicler("new {}".format)
    await chat.say(compact=Compact(at_messages=5, keep_turns=1, rest=later))
    given = texts(later.given[0])
    assert given[0] == "chapter 1"
    assert "message 1" in given


@pytest.mark.parametrize("stored", ["text", {"text": 7}, {"text": "x", "through": 10**9}, {"through": -9}])
async def test_a_summary_that_cannot_be_read_is_ignored(stored: Any) -> None:
    store = InMemorySessions()
    document = {
        "format_version": 1,
        "run": "r",
        "summary": stored,
        "items": [{"kind": "input", "message": {"role": "user", "content": "Hi"}}],
    }
    await store.append("u", 0, json.dumps(document))
    one = agent("A", "Hello.")
    config = RunConfig(compact=Compact(at_messages=1, rest=Chronicler()))
    result = await Runner.run(one, "Hi", session=Session("u", store), run_config=config)
    assert result.final_output == "Hello."
