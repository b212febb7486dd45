"""However a provider writes a reply, it is the same reply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reply_chunks import WAYS, Json, Way, as_told, replies, written
from thoroughness import examples

from routelock.handlers.collector import Collector
from routelock.handlers.events import MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.stream_assembler import Assembler, completion_done
from routelock.usage import Usage


def assembled(chunks: list[Json]) -> tuple[MessageDone, list[Any]]:
    assembler = Assembler()
    events = [event for chunk in chunks for event in assembler.feed(chunk)]
    return assembler.done(), events


@st.composite
def streams(draw: st.DrawFn, way: Way) -> tuple[Json, list[Json]]:
    message = draw(replies())
    return message, draw(written(message, way))


@pytest.mark.parametrize("name", WAYS)
@examples(8)
@given(data=st.data())
def test_a_reply_is_the_same_however_it_is_written(name: str, data: st.DataObject) -> None:
    way = WAYS[name]
    message, chunks = data.draw(streams(way))
    done, events = assembled(chunks)
    assert done.message == as_told(message, way)
    assert done.usage == Usage(requests=1, input_tokens=7, output_tokens=3)
    assert (done.model, done.response_id) == ("m", "r1")
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert (shown, thought) == (message["content"] or "", message.get("reasoning_content", ""))


@pytest.mark.parametrize("name", WAYS)
@examples(4)
@given(data=st.data())
def test_a_function_may_pass_on_such_chunks(name: str, data: st.DataObject) -> None:
    """`function_handler` collects the same message that a provider's stream assembles to."""
    way = WAYS[name]
    message, chunks = data.draw(streams(way))
    collector = Collector("mine")
    for chunk in chunks:
        collector.take(chunk)
    (done,) = collector.done()
    assert isinstance(done, MessageDone)
    assert done.message == as_told(message, way)


@given(message=replies())
def test_complete_reply_equals_its_stream(message: Json) -> None:
    whole = completion_done({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert whole.message == message


@given(data=st.data(), message=replies(least=1))
def test_each_delta_has_the_index_of_its_call(data: st.DataObject, message: Json) -> None:
    """What is shown piece by piece adds up to the message's calls, in their order."""
    _, events = assembled(data.draw(written(message, WAYS["OpenAI"])))
    shown: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            shown[event.index] = shown.get(event.index, "") + event.arguments
    assert [*shown.values()] == [call["function"]["arguments"] for call in message["tool_calls"]]


@given(data=st.data(), message=replies(least=1))
def test_cut_stream_has_only_calls_that_began(data: st.DataObject, message: Json) -> None:
    """Missing pieces are not invented; a complete call was sent exactly so."""
    chunks = data.draw(written(message, WAYS["OpenAI"]))
    done, _ = assembled(chunks[: data.draw(st.integers(0, len(chunks)))])
    for call, whole in zip(done.message.get("tool_calls", []), message["tool_calls"], strict=False):
        arguments = call["function"]["arguments"]
        assert whole["function"]["arguments"].startswith(arguments) or arguments == "{}"
