"""`ScriptedHandler` answers from its script, and reports calls that do not fit the script."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routelock import Agent, Retry, RunConfig, Runner, function_handler
from routelock.errors import ConnectionFailed
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import Request, family_of
from routelock.history.messages import Message, calls_of
from routelock.testing import (
    ScriptedHandler,
    UnexpectedModelCall,
    UnusedReplies,
    call,
    reply,
    watch_requests,
)
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

USER: Message = {"role": "user", "content": "Hi"}


async def ask(handler: ScriptedHandler, **fields: Any) -> list[HandlerEvent]:
    request = Request(**{"messages": [USER], **fields})
    return [event async for event in handler.stream(request)]


async def answer(handler: ScriptedHandler, **fields: Any) -> MessageDone:
    (done,) = await ask(handler, **fields)
    assert isinstance(done, MessageDone)
    return done


async def test_text_is_an_assistant_message() -> None:
    done = await answer(ScriptedHandler(["Hello."]))
    assert done.message == {"role": "assistant", "content": "Hello."}
    assert (done.finish_reason, done.model, done.response_id) == ("stop", "scripted", "scripted-1")


async def test_a_tool_call_alone_is_a_reply() -> None:
    done = await answer(ScriptedHandler([call("look_up", {"id": 7})]))
    (made,) = calls_of(done.message)
    assert made["function"]["name"] == "look_up"
    assert json.loads(made["function"]["arguments"]) == {"id": 7}
    assert done.finish_reason == "tool_calls"


async def test_a_list_of_tool_calls_is_one_reply() -> None:
    done = await answer(ScriptedHandler([[call("a"), call("b")]]))
    assert [made["function"]["name"] for made in calls_of(done.message)] == ["a", "b"]


async def test_reply_carries_text_calls_reasoning_and_usage() -> None:
    usage = Usage(requests=1, input_tokens=3)
    scripted = reply(
        "One moment.", calls=[call("a")], reasoning="Hm.", usage=usage, model="m", finish_reason="x"
    )
    done = await answer(ScriptedHandler([scripted]))
    assert done.message.get("content") == "One moment."
    assert done.message.get("reasoning_content") == "Hm."
    assert (done.usage, done.model, done.finish_reason) == (usage, "m", "x")


async def test_a_message_dict_becomes_an_assistant_message() -> None:
    done = await answer(ScriptedHandler([{"content": "Hello.", "refusal": None}]))
    assert done.message == {"role": "assistant", "content": "Hello.", "refusal": None}


async def test_an_exception_is_raised() -> None:
    with pytest.raises(ConnectionError, match="gone"):
        await ask(ScriptedHandler([ConnectionError("gone")]))


async def test_a_message_done_is_passed_on_as_it_is() -> None:
    scripted = MessageDone(message={"role": "assistant", "tool_calls": [call("a")]})
    assert await ask(ScriptedHandler([scripted]), stream=True) == [scripted]


async def test_events_are_passed_on_as_they_are_even_without_an_end() -> None:
    assert await ask(ScriptedHandler([[TextDelta("Hel")]])) == [TextDelta("Hel")]


async def test_an_empty_list_is_a_reply_without_events() -> None:
    assert await ask(ScriptedHandler([[]])) == []


async def test_exception_among_events_is_raised_at_its_position() -> None:
    handler = ScriptedHandler([[TextDelta("Hel"), ConnectionError("cut")]])
    stream = handler.stream(Request(messages=[USER], stream=True))
    assert await anext(stream) == TextDelta("Hel")
    with pytest.raises(ConnectionError, match="cut"):
        await anext(stream)


async def test_chunks_are_assembled() -> None:
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
        {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]},
    ]
    first, second, done = await ask(ScriptedHandler([chunks]))
    assert (first, second) == (TextDelta("Hel"), TextDelta("lo"))
    assert isinstance(done, MessageDone)
    assert done.message.get("content") == "Hello"


async def test_chunks_may_break_too() -> None:
    handler = ScriptedHandler([[{"choices": [{"delta": {"content": "Hel"}}]}, ConnectionError("cut")]])
    with pytest.raises(ConnectionError):
        await ask(handler)


async def test_a_function_sees_the_request() -> None:
    handler = ScriptedHandler([lambda request: f"You said {request.messages[-1].get('content')}."])
    assert (await answer(handler)).message.get("content") == "You said Hi."


async def test_a_function_may_be_async() -> None:
    async def slowly(request: Request) -> str:
        await anyio.lowlevel.checkpoint()
        return request.agent

    assert (await answer(ScriptedHandler([slowly]), agent="triage")).message.get("content") == "triage"


async def test_async_generator_function_is_closed_with_the_stream() -> None:
    closed: list[bool] = []

    async def forever(request: Request) -> AsyncGenerator[HandlerEvent]:
        try:
            while True:
                yield TextDelta("more ")
        finally:
            closed.append(True)

    stream = ScriptedHandler([forever]).stream(Request(messages=[USER], stream=True))
    assert await anext(stream) == TextDelta("more ")
    await stream.aclose()
    assert closed == [True]


async def test_an_async_iterator_without_aclose_will_do() -> None:
    class Once:
        def __init__(self) -> None:
            self.left = [TextDelta("a")]

        def __aiter__(self) -> Once:
            return self

        async def __anext__(self) -> HandlerEvent:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    assert await ask(ScriptedHandler([Once()])) == [TextDelta("a")]


async def test_a_watched_reply_comes_in_pieces_before_the_whole() -> None:
    scripted = reply("Hello  there.\n", calls=[call("a", {"x": 1})], reasoning="Hm.")
    *deltas, done = await ask(ScriptedHandler([scripted]), stream=True)
    assert deltas == [
        ReasoningDelta("Hm."),
        TextDelta("Hello"),
        TextDelta("  there."),
        TextDelta("\n"),
        ToolCallDelta(0, "call_1_0", "a", '{"x": 1}'),
    ]
    assert isinstance(done, MessageDone)


async def test_how_text_is_cut_can_be_chosen() -> None:
    *deltas, _ = await ask(ScriptedHandler(["abc"], pieces=list), stream=True)
    assert deltas == [TextDelta("a"), TextDelta("b"), TextDelta("c")]


async def test_watched_and_unwatched_replies_end_alike() -> None:
    script = [reply("Hello there.", calls=[call("a")])]
    watched = await ask(ScriptedHandler(script), stream=True)
    assert watched[-1:] == await ask(ScriptedHandler(script))


async def test_call_ids_are_the_same_in_every_run_and_differ_between_turns() -> None:
    def script() -> ScriptedHandler:
        return ScriptedHandler([[call("a"), call("b")], call("c", id="mine"), call("d")])

    async def ids(handler: ScriptedHandler) -> list[str]:
        replies = [await answer(handler, turn=turn) for turn in (1, 2, 3)]
        return [made["id"] for done in replies for made in calls_of(done.message)]

    assert await ids(script()) == await ids(script()) == ["call_1_0", "call_1_1", "mine", "call_3_0"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_may_lack_its_id_and_its_arguments(stream: bool) -> None:
    """Some servers send none, and a test plays them."""
    bare: Any = {"type": "function", "function": {"name": "look_up"}}
    events = await ask(ScriptedHandler([{"tool_calls": [bare]}]), stream=stream)
    assert isinstance(done := events[-1], MessageDone)
    assert calls_of(done.message) == [{"id": "call_1_0", **bare}]


async def test_call_ids_avoid_those_of_an_earlier_run() -> None:
    earlier: Message = {"role": "assistant", "tool_calls": [call("a", id="call_1_0")]}
    done = await answer(ScriptedHandler([call("a")]), messages=[earlier, USER], turn=1)
    assert calls_of(done.message)[0]["id"] == "call_2_0"


async def test_ids_that_are_filled_in_are_given_once() -> None:
    """A later run need not be shown the calls of an earlier one."""
    handler = ScriptedHandler([call("a"), call("a")])
    made: list[str] = []
    for _ in range(2):
        done = await answer(handler, turn=1)
        made += [each["id"] for each in calls_of(done.message)]
    assert made == ["call_1_0", "call_2_0"]


async def test_the_script_itself_is_not_changed() -> None:
    scripted = reply(calls=[call("a")])
    await answer(ScriptedHandler([scripted]))
    assert calls_of(scripted.message)[0]["id"] == ""


async def test_broken_arguments_are_sent_as_they_stand() -> None:
    done = await answer(ScriptedHandler([call("a", '{"x":')]))
    assert calls_of(done.message)[0]["function"]["arguments"] == '{"x":'


async def test_requests_are_kept_as_they_were() -> None:
    handler = ScriptedHandler(["Hello."])
    messages = [USER]
    await answer(handler, messages=messages, agent="triage")
    messages.append(USER)
    assert handler.requests[0].messages == (USER,)
    assert handler.requests[0].agent == "triage"


async def test_default_usage_adds_up_to_round_numbers() -> None:
    handler = ScriptedHandler(["a", "b"])
    usage = [(await answer(handler)).usage for _ in range(2)]
    assert usage[0] == usage[1] == Usage(requests=1, input_tokens=10, output_tokens=5)


async def test_surplus_call_names_the_agent_and_the_last_message() -> None:
    handler = ScriptedHandler(["a"], name="desk")
    await answer(handler)
    tool = {"type": "function", "function": {"name": "look_up"}}
    with pytest.raises(
        UnexpectedModelCall, match=r"Model call 2 of 'desk'.*which has 1 reply\..*'triage'.*Hi.*look_up"
    ):
        await ask(handler, agent="triage", tools=[tool])


async def test_surplus_call_without_messages_or_tools_is_reported() -> None:
    with pytest.raises(UnexpectedModelCall, match="tools offered: none"):
        await ask(ScriptedHandler([]), messages=[])


async def test_long_last_message_is_truncated() -> None:
    with pytest.raises(UnexpectedModelCall) as caught:
        await ask(ScriptedHandler([]), messages=[{"role": "user", "content": "x" * 10_000}])
    assert len(str(caught.value)) < 600


async def test_a_script_played_to_its_end_is_complete() -> None:
    handler = ScriptedHandler(["a"])
    await answer(handler)
    handler.assert_complete()


async def test_unused_replies_are_named() -> None:
    with pytest.raises(UnusedReplies, match=r"(?s)1 of 1 replies of 'scripted' unused:.*'left over'"):
        ScriptedHandler(["left over"]).assert_complete()


async def test_a_swallowed_call_too_many_is_found_at_the_end() -> None:
    handler = ScriptedHandler([])
    with pytest.raises(UnexpectedModelCall):
        await ask(handler)
    with pytest.raises(UnusedReplies, match="called 1 times after its last reply was used: script more"):
        handler.assert_complete()


@pytest.mark.parametrize("single", ["Hello.", {"content": "Hello."}])
async def test_a_single_reply_must_be_in_a_list(single: Any) -> None:
    with pytest.raises(TypeError, match=r"\[reply\]"):
        ScriptedHandler(single)


async def test_the_family_is_the_name_unless_given() -> None:
    assert family_of(ScriptedHandler([], name="a")) == "a"
    assert family_of(ScriptedHandler([], name="a", family="anthropic")) == "anthropic"


async def test_repr_shows_the_used_replies() -> None:
    assert repr(ScriptedHandler(["a", "b"])) == "<ScriptedHandler 'scripted': 0 of 2 replies used>"


async def test_every_request_of_a_run_can_be_watched_in_one_place() -> None:
    """Whatever answers it, and again when it is asked again; in this task and those that it starts."""
    seen: list[str] = []
    scripted = ScriptedHandler([ConnectionFailed("gone"), "Hi"])

    async def answer(request: Request) -> str:
        return "Hi"

    function = function_handler(answer)

    async def ask_two() -> None:
        watch_requests(lambda request: seen.append(request.agent))
        await Runner.run(Agent("a", model=scripted), "Hi", run_config=RunConfig(retry=Retry(first_delay=0)))
        await Runner.run_streamed(Agent("b", model=function), "Hi").drain()
        watch_requests(None)
        await Runner.run(Agent("c", model=function), "Hi")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_two)
    await Runner.run(Agent("d", model=function), "Hi")
    assert seen == ["a", "a", "b"]


@pytest.mark.parametrize("arguments", [3, ["A-1"]])
def test_arguments_that_are_no_object_are_an_error(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"call\('look_up', ...\) takes an object or text"):
        call("look_up", arguments)


@pytest.mark.parametrize("wrong", [3, None])
def test_reply_of_an_unknown_kind_is_an_error_when_the_script_is_written(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"Reply 2 of a ScriptedHandler is {type(wrong).__name__}"):
        ScriptedHandler(["Hello.", wrong])
