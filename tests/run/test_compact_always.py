"""Whatever is said, and however it is compacted: the view is valid, and the transcript is whole."""

from __future__ import annotations

from typing import Any

import anyio
from histories import handed_over
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import both
from scripted_agents import look_up
from thoroughness import examples

from routelock import Agent
from routelock.errors import ContextTooLong
from routelock.history import Compact
from routelock.history.messages import Message, RunItem, calls_of
from routelock.history.repair import NO_ANSWER, repair
from routelock.testing import ScriptedHandler, assert_valid, call, reply
from routelock.usage import Usage


def is_long(item: RunItem) -> bool:
    return len(str(item.message.get("content"))) > 20


SETTINGS = st.builds(
    Compact,
    at_tokens=st.none() | st.integers(1, 400),
    at_messages=st.none() | st.integers(1, 20),
    keep_turns=st.integers(1, 4),
    keep=st.sampled_from([None, is_long]),
    rest=st.sampled_from(["drop", "cut", lambda messages: f"{len(messages)} messages", lambda messages: ""]),
    tool_results=st.none() | st.integers(1, 300),
    down_to=st.sampled_from([0, 0.5, 0.9]),
)

QUESTION: Message = {"role": "user", "content": "What is the last thing that I asked?"}

HISTORIES = st.lists(handed_over(), max_size=4).map(
    lambda parts: repair([message for part in parts for message in part])[0]
)


def team(turns: int, too_long: bool, counted: int) -> Agent[Any]:
    usage = Usage(requests=1, input_tokens=counted, output_tokens=3)
    replies: list[Any] = [
        reply(calls=[call("look_up", {"order": 10**turn})], usage=usage) for turn in range(turns)
    ]
    if too_long:
        replies.insert(turns // 2, ContextTooLong("too long"))
    model = ScriptedHandler([*replies, "You asked this.", "You asked this."])
    return Agent("A", "Be brief.", model=model, tools=[look_up])


@given(HISTORIES, SETTINGS, st.integers(0, 6), st.booleans(), st.integers(0, 500))
@examples(60)
def test_views_are_valid_and_transcripts_whole(
    history: list[Message], compact: Compact, turns: int, too_long: bool, counted: int
) -> None:
    async def play(compact: Compact | None) -> Any:
        return await both(
            lambda: team(turns, too_long, counted), [*history, QUESTION], max_turns=None, compact=compact
        )

    played = anyio.run(play, compact)
    result = played.result
    if played.error is not None:
        assert isinstance(played.error, ContextTooLong)
        return
    given = [*history, QUESTION]
    assert [item.message for item in result.items[: len(given)]] == [_without_marks(each) for each in given]
    assert result.final_output == "You asked this."
    answered = {item.message.get("tool_call_id"): item.message for item in result.items}
    for made in result.calls:
        assert_valid(made.messages)
        assert QUESTION in made.messages
        for message in made.messages:
            for each in calls_of(message):
                assert each["id"] in answered
            if message["role"] == "tool" and message.get("content") == NO_ANSWER:
                assert answered[message.get("tool_call_id")].get("content") == NO_ANSWER
    assert result.repairs == ()


def _without_marks(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.items() if not key.startswith("_")}


def test_the_property_is_about_runs_that_are_compacted() -> None:
    async def play() -> Any:
        return await both(lambda: team(0, False, 0), [QUESTION] * 9, compact=Compact(at_messages=4))

    assert anyio.run(play).result.compactions
