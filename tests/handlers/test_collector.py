"""What a handler's function may give, and what becomes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import MappingProxyType, SimpleNamespace
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from thoroughness import examples

from routelock import function_handler
from routelock.errors import ConnectionFailed, HandlerError, IncompleteResponse
from routelock.handlers.collector import Collector
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.port import Handler, Request
from routelock.handoff_request import HandoffRequest
from routelock.history.messages import Message, calls_of
from routelock.testing import call
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

REQUEST = Request(messages=[{"role": "user", "content": "Hi"}])
USAGE = {"prompt_tokens": 3, "completion_tokens": 4}


async def events_of(handler: Handler) -> list[HandlerEvent]:
    async with aclosing(handler.stream(REQUEST)) as events:
        return [event async for event in events]


async def done_by(handler: Handler) -> MessageDone:
    *_, done = await events_of(handler)
    assert isinstance(done, MessageDone)
    return done


def giving(*pieces: Any) -> Handler:
    """A handler around an async generator of these pieces."""

    async def pieces_of(request: Request) -> AsyncGenerator[Any]:
        for piece in pieces:
            yield piece

    return function_handler(pieces_of)


def returning(piece: Any) -> Handler:
    """A handler around a coroutine function that returns this."""

    async def piece_of(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        return piece

    return function_handler(piece_of)


def chunk(**delta: Any) -> dict[str, Any]:
    return {"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta}]}


def completion(message: Message) -> dict[str, Any]:
    return {
        "id": "1",
        "model": "m",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": USAGE,
    }


HELLO: Message = {"role": "assistant", "content": "Hello"}


# -- what may be given --


async def test_text_is_the_reply() -> None:
    assert await events_of(returning("Hello")) == [TextDelta("Hello"), MessageDone(message=HELLO)]


async def test_pieces_of_text_are_joined() -> None:
    *deltas, done = await events_of(giving("Hel", "", "lo"))
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    assert isinstance(done, MessageDone)
    assert done.message == HELLO


async def test_empty_text_is_an_empty_reply() -> None:
    assert (await done_by(giving(""))).message == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("make", [giving, returning])
async def test_a_message_dict_is_passed_on_as_it_is(make: Any) -> None:
    """Unknown keys survive, and no copy is made."""
    message = {**HELLO, "thinking_blocks": [{"type": "thinking", "signature": "s"}], "odd": None}
    assert (await done_by(make(message))).message is message


@pytest.mark.parametrize("make", [giving, returning])
async def test_usage_and_reason_in_a_message_dict_are_not_part_of_the_message(make: Any) -> None:
    done = await done_by(make({**HELLO, "odd": 1, "usage": USAGE, "finish_reason": "length"}))
    assert done.message == {**HELLO, "odd": 1}
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=4)
    assert done.finish_reason == "length"


async def test_a_completion_dict_gives_message_usage_and_reason() -> None:
    done = await done_by(returning(completion(HELLO)))
    assert done.message == HELLO
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=4)
    assert (done.finish_reason, done.model, done.response_id) == ("stop", "m", "1")


async def test_chunk_dicts_are_assembled() -> None:
    function = {"name": "look", "arguments": "{"}
    handler = giving(
        chunk(role="assistant", content=""),
        chunk(content="Hel"),
        chunk(content="lo", tool_calls=[{"index": 0, "id": "c", "function": function}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "}"}}]),
        {"choices": [], "usage": USAGE},
    )
    *deltas, done = await events_of(handler)
    assert [delta.type for delta in deltas] == [
        "text_delta",
        "text_delta",
        "tool_call_delta",
        "tool_call_delta",
    ]
    assert isinstance(done, MessageDone)
    assert calls_of(done.message) == [call("look", "{}", id="c")]
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=4)


class Reply(BaseModel):
    """Stands for the reply objects of openai and litellm, which are pydantic models."""

    id: str = "1"
    model: str = "m"
    choices: list[dict[str, Any]] = [{"message": HELLO, "finish_reason": "stop"}]
    usage: dict[str, int] | None = None


async def test_reply_objects_are_taken_as_dicts() -> None:
    assert (await done_by(returning(Reply()))).message == HELLO


async def test_events_are_passed_on() -> None:
    given = [ReasoningDelta("Hm"), TextDelta("Hello"), MessageDone(message=HELLO)]
    assert await events_of(giving(*given)) == given


async def test_events_without_the_complete_message_are_put_together() -> None:
    handler = giving(
        ReasoningDelta("Hm, "),
        ReasoningDelta("hm."),
        TextDelta("Hello"),
        ToolCallDelta(0, "a", "look", '{"at": '),
        ToolCallDelta(0, "a", "look", "1}"),
        ToolCallDelta(1, "b", "look", "{}"),
    )
    assert (await done_by(handler)).message == {
        **HELLO,
        "reasoning_content": "Hm, hm.",
        "tool_calls": [call("look", {"at": 1}, id="a"), call("look", "{}", id="b")],
    }


async def test_text_and_chunks_may_be_mixed() -> None:
    """Nothing that was shown is missing from the message."""
    handler = giving("He", chunk(content="ll"), TextDelta("o"))
    assert (await done_by(handler)).message == HELLO


async def test_a_complete_message_wins_over_the_pieces_before_it() -> None:
    *_, done = await events_of(giving("Hel", "lo", HELLO))
    assert isinstance(done, MessageDone)
    assert done.message is HELLO


@pytest.mark.parametrize("empty", [{"content": None}, {"content": ""}, {}])
async def test_a_complete_message_without_text_keeps_the_text_before_it(empty: dict[str, Any]) -> None:
    """Such as the calls, after text that was streamed."""
    calls = {"role": "assistant", **empty, "tool_calls": [call("look", "{}", id="c")]}
    *deltas, done = await events_of(giving("I ", "look.", calls))
    assert deltas == [TextDelta("I "), TextDelta("look.")]
    assert isinstance(done, MessageDone)
    assert done.message == {**calls, "content": "I look."}


async def test_a_failed_attempt_voids_the_pieces_before_it() -> None:
    failed = AttemptFailed(error=ConnectionFailed("x"), attempt=1, delay=0)
    assert (await done_by(giving("Hallo", failed, "Hello"))).message == HELLO


async def test_arguments_that_are_objects_become_json_text() -> None:
    """Ollama's own client gives objects, and no ids; every provider takes text."""
    made = {"function": {"name": "look", "arguments": {"at": 1}}}
    done = await done_by(returning({"role": "assistant", "content": "", "tool_calls": [made]}))
    assert calls_of(done.message) == [call("look", {"at": 1})]


async def test_call_without_a_function_reaches_the_run() -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}
    assert (await done_by(returning(message))).message is message


async def test_a_stream_that_is_returned_is_read() -> None:
    """``return await client.chat.completions.create(stream=True)`` is all a handler needs."""

    async def chunks() -> AsyncGenerator[Any]:
        yield chunk(content="Hello")

    assert (await done_by(returning(chunks()))).message == HELLO


# -- loose dicts --


CALL = call("look", {"at": 1}, id="c")


@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("loose", "expected"),
    [
        ({"content": "Hello"}, MessageDone(message=HELLO)),
        ({"content": "Hello", "finish_reason": "stop"}, MessageDone(message=HELLO, finish_reason="stop")),
        ({"content": "Hello", "tool_calls": None, "finish_reason": None}, MessageDone(message=HELLO)),
        ({"content": "Hello", "tool_calls": [], "usage": None}, MessageDone(message=HELLO)),
        (
            {"content": "Hello", "usage": USAGE, "model": "m", "id": "1"},
            MessageDone(
                message=HELLO,
                usage=Usage(requests=1, input_tokens=3, output_tokens=4),
                model="m",
                response_id="1",
            ),
        ),
        (
            {"content": None, "tool_calls": [CALL], "finish_reason": "tool_calls"},
            MessageDone(
                message={"role": "assistant", "content": None, "tool_calls": [CALL]},
                finish_reason="tool_calls",
            ),
        ),
        (
            {"content": "Hello", "reasoning_content": "Hm."},
            MessageDone(message={**HELLO, "reasoning_content": "Hm."}),
        ),
    ],
)
@pytest.mark.parametrize("make", [giving, returning])
async def test_a_dict_without_role_and_choices_will_do(make: Any, loose: Any, expected: MessageDone) -> None:
    """``{content, finish_reason, tool_calls, usage}``, or some of it."""
    assert await done_by(make(loose)) == expected


async def test_loose_dicts_are_deltas() -> None:
    handler = giving({"content": "Hel"}, {"content": "lo"}, {"finish_reason": "stop"}, {"usage": USAGE})
    *deltas, done = await events_of(handler)
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    assert done == MessageDone(
        message=HELLO, usage=Usage(requests=1, input_tokens=3, output_tokens=4), finish_reason="stop"
    )


async def test_calls_in_a_reply_dict_may_come_in_pieces() -> None:
    def piece(**function: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": function}]}

    handler = giving(piece(name="look", arguments="{"), piece(arguments='"at": 1'), piece(arguments="}"))
    assert calls_of((await done_by(handler)).message) == [call("look", {"at": 1})]


async def test_two_calls_of_one_tool_without_ids_stay_two() -> None:
    made = {"function": {"name": "look"}}
    done = await done_by(returning({"tool_calls": [made, made]}))
    assert calls_of(done.message) == [call("look"), call("look")]


class Cost(BaseModel):
    """Stands for the usage object of openai and litellm."""

    prompt_tokens: int = 3
    completion_tokens: int = 4


class Call(BaseModel):
    """Stands for their tool call."""

    id: str = "c"
    type: str = "function"
    function: dict[str, str] = {"name": "look", "arguments": '{"at": 1}'}


async def test_objects_inside_of_dicts_are_taken_as_dicts() -> None:
    """``{"content": ..., "tool_calls": message.tool_calls, "usage": reply.usage}`` is written in no time."""
    done = await done_by(returning({"content": "", "tool_calls": [Call()], "usage": Cost()}))
    assert calls_of(done.message) == [CALL]
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=4)
    done = await done_by(returning({"role": "assistant", "content": None, "tool_calls": [Call()]}))
    assert calls_of(done.message) == [CALL]


# -- whole replies and pieces --


async def test_a_mapping_that_is_no_dict_will_do() -> None:
    assert (await done_by(returning(MappingProxyType(dict(HELLO))))).message == HELLO


async def test_perplexitys_chunks_are_chunks_although_they_have_a_message() -> None:
    def piece(text: str, until_now: str) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"content": text}, "message": {"content": until_now}}
        return {"object": "chat.completion.chunk", "choices": [choice]}

    assert (await done_by(giving(piece("Hel", "Hel"), piece("lo", "Hello")))).message == HELLO


@pytest.mark.parametrize("whole", [HELLO, MessageDone(message=HELLO), {"choices": [{"message": HELLO}]}])
async def test_the_complete_message_is_the_last_event(whole: Any) -> None:
    """Whatever it cost may come after it, or have come before."""
    usage = {"choices": [], "usage": USAGE}
    for pieces in ((whole, usage), (usage, whole), (whole, {"usage": USAGE})):
        (done,) = await events_of(giving(*pieces))
        assert done == MessageDone(message=HELLO, usage=Usage(requests=1, input_tokens=3, output_tokens=4))


async def test_complete_message_with_usage_is_not_delayed() -> None:
    """So that it is kept when the run is cancelled while the function tidies up."""
    for pieces in ([completion(HELLO)], [{"usage": USAGE}, HELLO], ["Hel", completion(HELLO)]):
        collector = Collector("desk")
        events = [event for piece in pieces for event in collector.take(piece)]
        assert isinstance(events[-1], MessageDone)
        assert collector.take({"usage": {"prompt_tokens": 99}}) == []
        assert collector.done() == []


@pytest.mark.parametrize("more", ["!", HELLO, chunk(content="!"), TextDelta("!"), {"content": "!"}, None])
async def test_piece_after_the_complete_message_is_an_error(more: Any) -> None:
    with pytest.raises(HandlerError, match=r"'pieces_of' gave .* after its complete message"):
        await events_of(giving(HELLO, more))


async def test_failed_attempt_voids_a_complete_message() -> None:
    failed = AttemptFailed(error=ConnectionFailed("x"), attempt=1, delay=0)
    assert await events_of(giving({"role": "assistant"}, failed, HELLO)) == [
        failed,
        MessageDone(message=HELLO),
    ]


@pytest.mark.parametrize(
    ("before", "rest"),
    [
        ((ReasoningDelta("Hm."),), [TextDelta("Hello")]),
        (("Hel",), [TextDelta("lo")]),
        (("Hello",), []),
        (("Hallo",), []),
        (("Hello there",), []),
        ((chunk(role="assistant", content=""),), []),
    ],
)
async def test_missing_text_is_a_delta_before_the_message(before: Any, rest: list[HandlerEvent]) -> None:
    """A streamed run makes the deltas of a reply that came without any."""
    events = await events_of(giving(*before, HELLO))
    shown = [event for event in events if event not in rest]
    assert events == [*shown[:-1], *rest, MessageDone(message=HELLO)]


async def test_function_may_return_an_iterator_or_a_dict() -> None:
    async def answer(request: Request) -> Any:
        return giving("Hel", "lo").function(request) if request.stream else HELLO  # type: ignore[attr-defined]

    assert (await done_by(function_handler(answer))).message == HELLO
    events = [event async for event in function_handler(answer).stream(Request(messages=[], stream=True))]
    assert events == [TextDelta("Hel"), TextDelta("lo"), MessageDone(message=HELLO)]


async def test_openais_own_objects_are_taken() -> None:
    types = pytest.importorskip("openai.types.chat")
    whole = types.ChatCompletion.construct(
        **{**completion(HELLO), "object": "chat.completion", "created": 1, "logprobs": None}
    )
    piece = types.ChatCompletionChunk.model_validate(
        {
            **chunk(content="Hello"),
            "object": "chat.completion.chunk",
            "created": 1,
        }
    )
    assert (await done_by(returning(whole))).message == HELLO
    assert await events_of(giving(piece)) == [
        TextDelta("Hello"),
        MessageDone(message=HELLO, model="m", response_id="1"),
    ]


async def test_litellms_own_objects_are_taken_without_a_warning() -> None:
    litellm = pytest.importorskip("litellm")
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    whole = litellm.ModelResponse(
        choices=[{"message": message, "finish_reason": "tool_calls"}], usage=litellm.Usage(**USAGE)
    )
    done = await done_by(returning(whole))
    assert calls_of(done.message) == [CALL]
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=4)


# -- what may not --


@pytest.mark.pairwise
@pytest.mark.parametrize(
    "odd",
    [
        None,
        5,
        b"Hello",
        ["Hello"],
        {},
        {"answer": 5},
        {"content": 5},
        {"content": "Hello", "tool_calls": "look"},
        {"finish_reason": 5},
        {"usage": 7},
        {"choices": 5},
        {"choices": ["Hello"]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"delta": {"tool_calls": [5]}}]},
        {"choices": [{"message": "Hello"}]},
        {"tool_calls": [5, 6]},
        {"role": "assistant", "tool_calls": [5]},
        SimpleNamespace(choices=[]),
        iter(["Hello"]),
    ],
)
@pytest.mark.parametrize("make", [giving, returning])
async def test_unknown_piece_is_an_error_with_advice(make: Any, odd: Any) -> None:
    with pytest.raises(HandlerError, match=r"Handler 'piece.*' gave .*; give text, a message") as caught:
        await events_of(make(odd))
    assert repr(odd)[:80] in str(caught.value)


@pytest.mark.parametrize("beside", [{}, {"choices": []}, {**chunk(content=""), "created": 1234567890}])
async def test_error_among_the_chunks_is_raised(beside: Any) -> None:
    """So providers and gateways end a stream that has begun."""
    error = {"message": "overloaded", "code": 529}
    with pytest.raises(HandlerError, match=r"'pieces_of' gave an error .*'overloaded', 'code': 529"):
        await events_of(giving("Hel", {**beside, "error": error}))


async def test_none_is_an_error_about_a_missing_return() -> None:
    with pytest.raises(HandlerError, match=r"gave None; .* Is a `return` missing\?"):
        await events_of(returning(None))


async def test_handoff_request_of_a_handler_is_an_error_with_advice() -> None:
    with pytest.raises(HandlerError, match=r"Only a tool .* a handler calls transfer_to_<name>"):
        await events_of(returning(HandoffRequest("billing")))


async def test_sync_iterator_is_an_error_with_advice() -> None:
    with pytest.raises(HandlerError, match=r"An iterator must be async"):
        await events_of(returning(iter([HELLO])))


@pytest.mark.parametrize("pieces", [(), ({"choices": []},), ({"choices": [], "usage": USAGE},)])
async def test_generator_without_pieces_is_an_error(pieces: tuple[Any, ...]) -> None:
    with pytest.raises(HandlerError, match="'pieces_of' ended without a reply: give a text"):
        await events_of(giving(*pieces))


# -- replies that were cut --


def cut_call(arguments: str) -> list[Any]:
    function = {"name": "look", "arguments": arguments}
    return [
        ToolCallDelta(0, "c", "look", arguments),
        chunk(tool_calls=[{"index": 0, "id": "c", "function": function}]),
        {"tool_calls": [{"id": "c", "function": function}]},
    ]


@pytest.mark.pairwise
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("before", [(), ("Let me see.",)])
async def test_reply_that_ends_inside_arguments_is_incomplete(place: int, before: Any) -> None:
    """A cut stream is an error, not a call with half of its arguments."""
    with pytest.raises(IncompleteResponse, match="'pieces_of' ended with half of the arguments of 'look'"):
        await events_of(giving(*before, cut_call('{"at": ')[place]))


@pytest.mark.parametrize("place", range(3))
async def test_reply_with_complete_arguments_needs_no_finish_reason(place: int) -> None:
    assert calls_of((await done_by(giving(cut_call('{"at": 1}')[place]))).message) == [CALL]


@pytest.mark.parametrize("end", [{"finish_reason": "length"}, {"finish_reason": "stop"}, {"usage": USAGE}])
async def test_finish_reason_proves_that_a_reply_is_complete(end: Any) -> None:
    """The run reports invalid arguments to the model, as for every provider."""
    done = await done_by(giving(*cut_call('{"at": ')[:1], end))
    assert calls_of(done.message)[0]["function"]["arguments"] == '{"at": '


async def test_text_that_ends_is_the_reply() -> None:
    """A function that has returned has given its complete reply."""
    assert (await done_by(giving(chunk(content="Hello")))).message == HELLO


# -- anything at all --


words = st.sampled_from(
    "role assistant content choices delta message tool_calls function name arguments index id usage error "
    "prompt_tokens finish_reason type text thinking reasoning_content thinking_blocks function_call".split()
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | words | st.just("") | st.just('{"at": 1}'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)
shaped = st.fixed_dictionaries(
    {},
    optional={
        "role": st.just("assistant") | junk,
        "content": st.just("Hello") | junk,
        "tool_calls": st.lists(st.just(CALL) | junk, max_size=2) | junk,
        "usage": st.just(USAGE) | junk,
        "finish_reason": st.just("stop") | junk,
    },
)
choice = st.fixed_dictionaries({}, optional={"index": junk, "delta": shaped | junk, "message": shaped | junk})
pieces = st.lists(
    shaped
    | junk
    | st.fixed_dictionaries({"choices": st.lists(choice | junk, max_size=2)}, optional={"usage": junk})
    | st.sampled_from([TextDelta("Hel"), ReasoningDelta("Hm."), MessageDone(message=HELLO)]),
    max_size=4,
)


@given(given=pieces)
@example(given=[{"role": "assistant", "usage": USAGE}, {"role": None, "usage": USAGE}])
@examples(60)
async def test_anything_is_a_reply_or_a_handlers_error(given: list[Any]) -> None:
    """Never an error of our own, and always one complete message at the end."""
    try:
        *before, done = await events_of(giving(*given))
    except HandlerError:
        return
    assert isinstance(done, MessageDone)
    assert not any(isinstance(event, MessageDone) for event in before)
