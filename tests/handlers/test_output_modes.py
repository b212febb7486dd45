"""A final answer that fits a type: three ways to ask for it, and what happens when it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pydantic
import pytest
from answers import Answers
from plain_and_streamed import both
from servers import Reply, chunk, said, streamed
from typing_extensions import TypedDict

from routelock import Agent, RunConfig, Runner, function_tool
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.handlers.events import TextDelta
from routelock.handlers.structured_output import schema_prompt
from routelock.testing import ScriptedHandler, assert_valid, call
from routelock_providers import OpenAICompatible

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]
BOTH = pytest.mark.parametrize("watched", [False, True], ids=["plain", "streamed"])


@dataclass
class Point:
    x: int


class Model(pydantic.BaseModel):
    x: int


class Typed(TypedDict):
    x: int


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


# What an agent says


def test_unknown_output_mode_is_an_error() -> None:
    mode: Any = "json"
    with pytest.raises(ConfigError, match="output_mode must be one of"):
        Agent("A", model=ScriptedHandler([]), output_type=Point, output_mode=mode)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Point, '{"x": 1}', Point(1)),
        (Model, '{"x": 1}', Model(x=1)),
        (Typed, '{"x": 1}', {"x": 1}),
        (list[int], '{"response": [1, 2]}', [1, 2]),
        (int | None, '{"response": null}', None),
    ],
)
async def test_prompted_the_schema_joins_the_instructions(kind: Any, text: str, value: Any) -> None:
    model = ScriptedHandler([f"As you wish:\n```json\n{text}\n```"])
    agent = Agent("A", "Be brief.", model=model, output_type=kind, output_mode="prompted")
    result = await Runner.run(agent, "Hi")
    assert result.final_output == value
    assert agent.output is not None
    prompt = f"Be brief.\n\n{schema_prompt(agent.output.schema)}"
    assert model.requests[0].messages[0] == {"role": "system", "content": prompt}


async def test_union_and_literal_are_output_types() -> None:
    """They are no ``type`` to a type checker, which has to take them all the same."""
    place = Agent("Place", model=ScriptedHandler(['{"response": {"x": 7}}']), output_type=Point | Model)
    grade = Agent("Grade", model=ScriptedHandler(['{"response": "b"}']), output_type=Literal["a", "b"])
    assert (await Runner.run(place, "Where?")).final_output == Point(7)
    assert (await Runner.run(grade, "How good?")).final_output == "b"


async def test_prompted_without_instructions_or_type() -> None:
    model = ScriptedHandler(["{}", "Hi."])
    alone = Agent("A", model=model, output_type=dict[str, int], output_mode="prompted")
    await Runner.run(alone, "Hi")
    await Runner.run(Agent("A", model=model, output_mode="prompted"), "Hi")
    assert [message["role"] for message in model.requests[0].messages] == ["system", "user"]
    assert [message["role"] for message in model.requests[1].messages] == ["user"]


# The repair loop


async def test_run_ends_after_too_many_invalid_outputs() -> None:
    replies = ["Two.", '{"x": "two"}', "2"]
    played = await both(lambda: Agent("A", model=ScriptedHandler(replies), output_type=Point))
    assert isinstance(played.error, ModelBehaviorError)
    assert "no valid final output in 3 turns" in str(played.error)
    assert [problem.kind for problem in played.result.errors] == ["output"] * 3
    roles = [message["role"] for message in played.result.messages]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_how_often_is_up_to_the_run(most: int) -> None:
    model = ScriptedHandler(["No."] * most)
    config = RunConfig(max_mistakes=most)
    with pytest.raises(ModelBehaviorError, match=f"in {most} turn"):
        await Runner.run(Agent("A", model=model, output_type=Point), "Hi", run_config=config)
    assert len(model.requests) == most


async def test_tool_call_resets_the_count_of_invalid_outputs() -> None:
    wrong, added = '{"x": "?"}', call("add", {"a": 1, "b": 1})
    replies = [wrong, wrong, added, wrong, wrong, '{"x": 2}']
    played = await both(lambda: Agent("A", model=ScriptedHandler(replies), tools=[add], output_type=Point))
    assert played.result.final_output == Point(2)


async def test_invalid_output_is_reported_to_the_model() -> None:
    model = ScriptedHandler(['Here: {"x": "two"}', '{"x": 2}'])
    await Runner.run(Agent("A", model=model, output_type=Point), "Hi")
    told = str(model.requests[1].messages[-1].get("content"))
    assert "x: Input should be a valid integer" in told
    assert 'You sent: {"x": "two"}' in told
    assert "Expected a JSON object with x (integer, required)." in told


# By a tool, over HTTP


def calling(*calls: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"index": place, "id": f"c{place}", "type": "function", "function": {"name": name, "arguments": text}}
        for place, (name, text) in enumerate(calls)
    ]


def reply(watched: bool, *calls: tuple[str, str], content: str | None = None) -> Reply:
    delta = {"content": content, "tool_calls": calling(*calls)}
    if watched:
        return streamed(chunk(delta), chunk({}, finish="tool_calls"))
    return said(delta, finish="tool_calls")


async def run(agent: Agent[Any], model: OpenAICompatible, watched: bool) -> tuple[Any, str]:
    """Run an agent; return its result, and the text that was streamed."""
    text = ""
    try:
        if not watched:
            return await Runner.run(agent, "Hi"), ""
        async with Runner.run_streamed(agent, "Hi") as stream:
            async for event in stream:
                text += event.text if isinstance(event, TextDelta) else ""
        return stream.result, text
    finally:
        await model.aclose()


def asked(server: Answers) -> Sequence[Any]:
    """Return the messages of the last request, which any provider would take."""
    messages = server.requests[-1].body["messages"]
    assert_valid(messages)
    return messages


@BOTH
@pytest.mark.asyncio_only
async def test_an_answer_beside_a_tool_waits_for_it(watched: bool) -> None:
    early, late = '{"x": 1}', '{"x": 2}'
    first = reply(watched, ("final_answer", early), ("add", '{"a": 1, "b": 1}'))
    with Answers(first, reply(watched, ("final_answer", late))) as server:
        model = OpenAICompatible("m", base_url=server.url)
        result, text = await run(Agent("A", model=model, tools=[add], output_type=Point), model, watched)
        assistant, answer = asked(server)[-2:]
    assert result.final_output == Point(2)
    assert assistant["content"] == early
    assert [one["function"]["name"] for one in assistant["tool_calls"]] == ["add"]
    assert answer["content"] == "2"
    assert text == (early + late if watched else "")
    assert server.requests[0].body["tool_choice"] == "required"


@BOTH
@pytest.mark.asyncio_only
async def test_handoff_beside_an_output_is_made(watched: bool) -> None:
    first = reply(watched, ("final_answer", '{"x": 1}'), ("transfer_to_b", "{}"))
    with Answers(first) as server:
        model = OpenAICompatible("m", base_url=server.url)
        target = Agent("B", model=ScriptedHandler(["B here."]))
        result, _ = await run(Agent("A", model=model, handoffs=[target], output_type=Point), model, watched)
    assert (result.final_output, result.last_agent.name) == ("B here.", "B")
    assert_valid(result.to_input_list())


@BOTH
@pytest.mark.asyncio_only
async def test_two_answers_and_a_wrong_one_are_sent_back(watched: bool) -> None:
    two = reply(watched, ("final_answer", '{"x": 1}'), ("final_answer", '{"x": 2}'), content="Hm.")
    wrong, right = (reply(watched, ("final_answer", f'{{"x": {x}}}')) for x in ('"two"', "2"))
    with Answers(two, wrong, right) as server:
        model = OpenAICompatible("m", base_url=server.url)
        result, text = await run(Agent("A", model=model, tools=[add], output_type=Point), model, watched)
        messages = asked(server)
    assert result.final_output == Point(2)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[1]["content"] == 'Hm.\n\n{"x": 1}\n\n{"x": 2}'
    assert text in ("", 'Hm.\n\n{"x": 1}\n\n{"x": 2}{"x": "two"}{"x": 2}')


@pytest.mark.asyncio_only
@pytest.mark.parametrize(
    ("mode", "native", "tools", "system"),
    [
        ("auto", True, [], False),
        ("native", True, ["add"], False),
        ("tool", False, ["add", "final_answer"], False),
        ("prompted", False, ["add"], True),
    ],
)
async def test_request_of_each_output_mode(mode: Any, native: bool, tools: list[str], system: bool) -> None:
    own = [add] if "add" in tools else []
    with Answers(said({"content": '{"x": 1}'})) as server:
        model = OpenAICompatible("m", base_url=server.url)
        agent = Agent("A", model=model, tools=own, output_type=Point, output_mode=mode)
        result, _ = await run(agent, model, False)
    body = server.requests[0].body
    assert result.final_output == Point(1)
    assert ("response_format" in body) is native
    assert [tool["function"]["name"] for tool in body.get("tools", [])] == tools
    assert (body["messages"][0]["role"] == "system") is system
