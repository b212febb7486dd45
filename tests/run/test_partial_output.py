"""`RunStream.partial_output`: valid values of the output type, while a model writes it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import anyio.lowlevel
import pytest
from executors import Recording, Replaying
from pydantic import BaseModel
from scripted_agents import look_up

from routelock import Agent, GuardrailResult, Limits, Retry, RunConfig, Runner, function_handler, handoff
from routelock.errors import ModelBehaviorError, OutputGuardrailTripped, ServerFailed
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta, ToolCallDelta
from routelock.handlers.port import Request
from routelock.testing import ScriptedHandler, call, reply
from routelock_providers.structured_output import AnswerEvents, as_answer

pytestmark = pytest.mark.anyio


class Letter(BaseModel):
    to: str
    lines: list[str] = []


@dataclass
class Short:
    to: str


TEXT = '{"to": "Ann", "lines": ["One", "Two"]}'
WHOLE = Letter(to="Ann", lines=["One", "Two"])


def writing(*replies: Any, output_type: Any = Letter, **options: Any) -> Agent[Any]:
    """An agent whose model writes its texts letter by letter."""
    return Agent("A", model=ScriptedHandler(replies, pieces=list), output_type=output_type, **options)


async def partials(made: Agent[Any], **settings: Any) -> list[Any]:
    async with Runner.run_streamed(made, "Hi", run_config=RunConfig(**settings)) as stream:
        return [each async for each in stream.partial_output()]


def check_grows(found: list[Any]) -> None:
    """Check that the values grow up to `WHOLE`, and that each comes once."""
    assert len(found) > 5
    assert found[-1] == WHOLE
    assert all(one != next_one for one, next_one in pairwise(found))
    for each in found:
        assert isinstance(each, Letter)
        assert WHOLE.to.startswith(each.to)
        assert all(line.startswith(begun) for line, begun in zip(WHOLE.lines, each.lines, strict=False))


class Answering:
    """A handler of a vendor that gives its answer as a call of a tool."""

    name = "answering"

    def __init__(self, *more: HandlerEvent) -> None:
        self.more = more

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        events = AnswerEvents("final_answer")
        deltas = [ToolCallDelta(0, "c", "final_answer", piece) for piece in TEXT]
        for event in (TextDelta("I am done."), *deltas, *self.more):
            if (converted := events.convert(event)) is not None:
                yield converted
        message: Any = {
            "role": "assistant",
            "content": "I am done.",
            "tool_calls": [call("final_answer", TEXT, id="c")],
        }
        yield as_answer(MessageDone(message=message), "final_answer")


# -- the values --


async def test_values_grow_up_to_the_final_output() -> None:
    check_grows(await partials(writing(TEXT)))


async def test_the_last_value_is_the_final_output() -> None:
    async with Runner.run_streamed(writing(TEXT), "Hi") as stream:
        *_, last = [each async for each in stream.partial_output()]
    assert last == stream.final_output
    assert stream.result.stop_reason == "done"


@pytest.mark.parametrize(
    "text",
    [TEXT, f"```json\n{TEXT}\n```", f"Here {{it}} is:\n```\n{TEXT}\n```\nBye.", f"Here it is: {TEXT} Bye."],
    ids=["bare", "fenced", "fenced with words", "with words"],
)
async def test_words_around_a_prompted_answer_do_no_harm(text: str) -> None:
    check_grows(await partials(writing(text, output_mode="prompted")))


async def test_the_call_of_an_answer_tool_is_a_value_too() -> None:
    check_grows(await partials(Agent("A", model=Answering(), output_type=Letter, output_mode="tool")))


async def test_a_reply_that_came_whole_is_one_value() -> None:
    async def whole(request: Request) -> str:
        return TEXT

    made = Agent("A", model=function_handler(whole), output_type=Letter)
    assert await partials(made) == [WHOLE]


async def test_an_agent_without_a_type_has_one_text() -> None:
    assert await partials(writing("Hello there.", output_type=None)) == ["Hello there."]


async def test_an_output_that_compares_to_no_bool_is_a_value() -> None:
    class Odd(BaseModel):
        to: str

        def __eq__(self, other: object) -> bool:
            raise ValueError("neither true nor false")

    found = await partials(writing('{"to": "ab"}', output_type=Odd))
    assert [each.to for each in found] == ["", "a", "ab", "ab", "ab"]


async def test_a_long_text_is_read_a_few_times() -> None:
    lines = ["word " * 19] * 1000
    text = json.dumps({"to": "Ann", "lines": lines})
    handler = ScriptedHandler([text], pieces=lambda text: [text[n : n + 5] for n in range(0, len(text), 5)])
    found = await partials(Agent("A", model=handler, output_type=Letter))
    assert found[-1].lines == lines
    assert len(text) > 95_000
    assert 50 < len(found) < 600


# -- which reply --


async def test_the_type_is_that_of_the_agent_that_answers() -> None:
    target = Agent("B", model=ScriptedHandler(['{"to": "Bo"}'], pieces=list), output_type=Short)
    made = writing(call("transfer_to_b"), handoffs=[target])
    assert await partials(made) == [Short(""), Short("B"), Short("Bo")]


async def test_an_output_for_an_agent_that_waits_is_none_of_the_run() -> None:
    target = Agent("B", model=ScriptedHandler(['{"to": "Bo"}'], pieces=list), output_type=Short)
    made = writing(call("transfer_to_b"), TEXT, handoffs=[handoff(target, return_to_caller=True)])
    check_grows(await partials(made))


async def test_the_output_of_an_agent_as_a_tool_is_none_of_the_run() -> None:
    helper = Agent("B", model=ScriptedHandler(['{"to": "Bo"}'], pieces=list), output_type=Short)
    made = writing(call("ask", {"input": "?"}), TEXT, tools=[helper.as_tool("ask", "Ask.")])
    check_grows(await partials(made))


async def test_a_text_after_the_first_call_of_a_reply_is_no_value() -> None:
    done = MessageDone(
        message={"role": "assistant", "content": TEXT, "tool_calls": [call("look_up", {"order": 1}, id="c")]}
    )
    first = [ToolCallDelta(0, "c", "look_up", '{"order": 1}'), *map(TextDelta, TEXT), done]
    found = await partials(writing(first, '{"to": "Bo"}', tools=[look_up]))
    assert found == [Letter(to=""), Letter(to="B"), Letter(to="Bo")]


async def test_the_reply_after_calls_begins_anew() -> None:
    made = writing(reply("I look.", calls=[call("look_up", {"order": 1})]), TEXT, tools=[look_up])
    check_grows(await partials(made))


async def test_the_reply_after_one_that_did_not_fit_begins_anew() -> None:
    found = await partials(writing('{"to": "Bo", "lines": 1}', '{"to": "Al"}'))
    assert [each.to for each in found] == ["", "B", "Bo", "", "A", "Al"]


async def test_another_attempt_begins_anew() -> None:
    broken = [*map(TextDelta, '{"to": "Bo'), ServerFailed("broken off")]
    found = await partials(writing(broken, '{"to": "Al"}'), retry=Retry(mid_stream=True, first_delay=0))
    assert [each.to for each in found] == ["", "B", "Bo", "", "A", "Al"]


# -- ends without an answer --


REFUSAL = {"role": "assistant", "content": None, "refusal": '{"to": "none"}'}


async def test_a_refusal_is_an_error_and_no_value() -> None:
    found: list[Any] = []

    async def read() -> None:
        async for each in Runner.run_streamed(writing(REFUSAL), "Hi").partial_output():
            found.append(each)

    with pytest.raises(ModelBehaviorError, match="refused"):
        await read()
    assert found == []


async def test_the_apps_output_in_place_of_a_refusal_is_the_last_value() -> None:
    output = Letter(to="a person")
    found = await partials(writing(REFUSAL), on_refusal=lambda error: output)
    assert found == [output]


async def test_the_output_of_a_limit_is_the_last_value() -> None:
    made = writing(*[call("look_up", {"order": n}) for n in range(9)], tools=[look_up])
    output = Letter(to="a person")
    assert await partials(made, on_limit=lambda error: output, limits=Limits(turns=2)) == [output]


@pytest.mark.parametrize("ends", ["limit", "stop", "external tool"])
async def test_a_run_without_an_output_has_no_last_value(ends: str) -> None:
    tool = {"type": "function", "function": {"name": "open_door"}}
    made = writing(call("open_door" if ends == "external tool" else "look_up", {"order": 1}), tools=[look_up])
    config = RunConfig(limits=Limits(turns=1), on_limit="return", external_tools=[tool])
    async with Runner.run_streamed(made, "Hi", run_config=config) as stream:
        if ends == "stop":
            stream.stop()
        assert [each async for each in stream.partial_output()] == []
    assert stream.result.final_output is None


async def test_an_output_guardrail_sees_the_final_output_only() -> None:
    seen: list[Any] = []

    def check(context: Any, owner: Any, output: Any) -> GuardrailResult:
        seen.append(output)
        return GuardrailResult(True)

    found: list[Any] = []

    async def read() -> None:
        made = writing(TEXT, output_guardrails=[check])
        async for each in Runner.run_streamed(made, "Hi").partial_output():
            found.append(each)

    with pytest.raises(OutputGuardrailTripped):
        await read()
    check_grows(found)
    assert seen == [WHOLE]


# -- the stream --


async def test_it_goes_on_from_where_the_reader_of_events_stopped() -> None:
    async with Runner.run_streamed(writing(TEXT), "Hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta) and event.text == "n":
                break
        found = [each async for each in stream.partial_output()]
    assert found[0] == Letter(to="Ann")
    assert found[-1] == WHOLE


async def test_the_reader_of_events_goes_on_from_where_it_stopped() -> None:
    async with Runner.run_streamed(writing(TEXT), "Hi") as stream:
        async for each in stream.partial_output():
            if each.lines:
                break
        rest = "".join([event.text async for event in stream if isinstance(event, TextDelta)])
    assert TEXT.endswith(rest)
    assert len(rest) > 10
    assert stream.final_output == WHOLE


async def test_a_guardrail_beside_the_model_call_holds_the_values_back() -> None:
    passed: list[bool] = []

    async def check(context: Any, owner: Any, messages: Any) -> GuardrailResult:
        await anyio.lowlevel.checkpoint()
        passed.append(True)
        return GuardrailResult(False)

    made = writing(TEXT, input_guardrails=[check])
    async with Runner.run_streamed(made, "Hi", run_config=RunConfig(guardrails_beside=True)) as stream:
        first = await anext(stream.partial_output())
        assert passed
        assert first == WHOLE


async def test_a_replay_has_the_same_last_value() -> None:
    recording = Recording()
    check_grows(await partials(writing(TEXT), executor=recording, run_id="r"))
    assert await partials(writing(), executor=Replaying(recording), run_id="r") == [WHOLE]
