"""What holds of sessions whatever is in the store, and wherever a run is stopped."""

from __future__ import annotations

import json
import os
from typing import Any

import anyio
import pytest
from full_run import USER, Office, Strikes
from hypothesis import given
from hypothesis import strategies as st
from scenes import SCENES
from thoroughness import examples

from routelock import Agent, Runner, RunResult
from routelock.errors import SessionConflict
from routelock.history.validity import problems
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio

MOST = 3000
STRIDE = 1 if os.environ.get("ROUTELOCK_STRESS") else 13


async def drained(office: Office, session: Session, kept: list[RunResult[Any]]) -> None:
    stream = Runner.run_streamed(office.desk, "Hi", session=session, **office.settings())
    try:
        async with stream:
            await stream.drain()
    finally:
        kept.append(stream.result)


@pytest.mark.parametrize("again", [False, True], ids=["once", "over and over"])
async def test_session_is_complete_after_a_cancellation_at_any_step(again: bool) -> None:
    """The result of the stream knows what happened; `again`: every further await is cancelled, too."""
    for k in range(1, MOST, STRIDE):
        office, kept, session = (
            Office(threads=False),
            list[RunResult[Any]](),
            Session("u", InMemorySessions()),
        )
        scope = anyio.CancelScope()

        def strike(scope: anyio.CancelScope = scope) -> None:
            if again:
                scope.deadline = anyio.current_time() - 1
            else:
                scope.cancel()

        with scope:
            await Strikes(drained(office, session, kept), k, strike)
        (result,) = kept
        found = await session.loaded()
        if found.number:  # else it was cancelled before the input was stored
            assert [item.message for item in found.items] == shown(result), k
        after = await Runner.run(Agent("desk", model=ScriptedHandler(["Yes."])), [USER], session=session)
        assert problems(after.calls[0].messages) == []
        if not scope.cancelled_caught:
            break
    assert 30 < k < MOST - STRIDE


def shown(result: RunResult[Any]) -> list[Any]:
    """The transcript without how an agent that was asked came to its answer."""
    answered = {item.message.get("tool_call_id") for item in result.items}
    return [item.message for item in result.items if item.asked_by is None or item.asked_by not in answered]


async def test_session_is_complete_after_a_stream_left_at_any_event() -> None:
    for most in range(0, 200, 7):
        office, session, seen = Office(threads=False), Session("u", InMemorySessions()), 0
        async with Runner.run_streamed(office.desk, "Hi", session=session, **office.settings()) as stream:
            async for _ in stream:
                seen += 1
                if seen > most:
                    break
        found = await session.loaded()
        assert [item.message for item in found.items] == shown(stream.result)
        if seen <= most:
            break
    assert stream.result.final_output == "Done."


# -- whatever is stored --

IDS = st.sampled_from(["a", "b", "", "c"])
CALLS = st.lists(
    st.builds(
        lambda i, n: {"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}}, IDS, IDS
    ),
    max_size=2,
)
TEXT = st.sampled_from(["", "x", "\ud800"])
CHAT = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, TEXT),
    st.builds(lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, TEXT, CALLS),
    st.builds(lambda i, text: {"role": "tool", "tool_call_id": i, "content": text}, IDS, TEXT),
)
FOREIGN = st.one_of(
    st.builds(lambda i, n: {"type": "function_call", "call_id": i, "name": n, "arguments": "{"}, IDS, IDS),
    st.builds(lambda i, text: {"type": "function_call_output", "call_id": i, "output": text}, IDS, TEXT),
    st.just({"type": "reasoning", "summary": []}),
    st.builds(lambda i: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i}]}, IDS),
    st.builds(lambda i: {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "n"}]}, IDS),
    st.builds(lambda text: {"type": "ai", "content": text, "tool_calls": [{"name": "n", "args": {}}]}, TEXT),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT | CHAT | FOREIGN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "role content type items messages entries run first history kind message tool_calls "
                "format_version agent asked_by data id function".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
ITEMS = st.builds(
    lambda message, kind, more: {"kind": kind, "message": message, **more},
    CHAT | FOREIGN | ANYTHING,
    st.sampled_from(["input", "model", "tool", "handoff", "nudge", "nonsense"]),
    st.dictionaries(st.sampled_from(["agent", "asked_by"]), IDS | st.none(), max_size=2),
)
RECORDS = st.lists(
    st.one_of(
        st.builds(
            lambda run, first, items: {"format_version": 1, "run": run, "first": first, "items": items},
            IDS,
            st.integers(-1, 5),
            st.lists(ITEMS, max_size=3),
        ).map(json.dumps),
        st.lists(CHAT | FOREIGN, max_size=4).map(json.dumps),
        ANYTHING.map(json.dumps).filter(lambda text: '"format_version"' not in text),
        TEXT,
    ),
    max_size=5,
)


@examples(60)
@given(records=RECORDS, limit=st.none() | st.integers(1, 6), size=st.none() | st.integers(1, 300))
async def test_any_stored_data_gives_a_valid_conversation(
    records: list[str], limit: int | None, size: int | None
) -> None:
    store = InMemorySessions()
    for number, text in enumerate(records):
        await store.append("u", number, text)
    session = Session("u", store, max_items=limit, max_bytes=size)
    found = await session.load()
    assert not found.messages or problems(found.messages) == []
    model = ScriptedHandler(["Yes."])
    result = await Runner.run(Agent("A", model=model), [USER], session=session)
    assert problems(result.calls[0].messages) == []
    assert {"role": "user", "content": "Go on."} in result.calls[0].messages
    assert [text for _, text in await store.load("u")][: len(records)] == records


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=12)


@examples(30)
@given(turns=WORDS)
async def test_random_concurrent_writers_are_never_mixed(turns: list[str]) -> None:
    """Each stores after the newest number it knows; a writer with an older number stores nothing."""
    store, seen, stored = InMemorySessions(), dict[str, int](), list[str]()
    for place, who in enumerate(turns):
        if place % 3 == 2 or who not in seen:
            seen[who] = len(stored)
            continue
        try:
            await store.append("u", seen[who], f"{who}{place}")
        except SessionConflict:
            assert seen[who] != len(stored)
        else:
            assert seen[who] == len(stored)
            stored.append(f"{who}{place}")
            seen[who] = len(stored)
    assert [text for _, text in await store.load("u")] == stored


@pytest.mark.asyncio_only
@pytest.mark.parametrize("name", ["chain", "siblings", "transfer"])
async def test_run_repeated_after_any_turn_equals_an_uninterrupted_one(name: str) -> None:
    """Its session is the same, whether what came before is made again or resumed."""
    from scenes import Stage

    scene = SCENES[name]
    whole = Session("u", InMemorySessions())
    done = await Runner.run(scene.agent(Stage()), "Hi", session=whole, run_config=scene.settings())
    expected = [item.message for item in (await whole.loaded()).items]
    assert expected == done.messages
    for most in range(1, len(done.calls)):
        for resume in (False, True):
            session, stage = Session("u", InMemorySessions()), Stage()
            agent = scene.agent(stage)
            stopped = await Runner.run(
                agent, "Hi", session=session, max_turns=most, run_config=scene.settings(on_limit="return")
            )
            given: Any = stopped.state() if resume else "Hi"
            agent = agent if resume else scene.agent(Stage())
            await Runner.run(agent, given, session=session, run_config=scene.settings())
            assert [item.message for item in (await session.loaded()).items] == expected, (most, resume)
