"""What an input guardrail is given is what the model of its agent is shown next, whatever happened before."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from plain_and_streamed import Voice
from scripted_agents import look_up

from routelock import (
    Agent,
    GuardrailResult,
    Message,
    RunConfig,
    Runner,
    function_handler,
    function_tool,
    handoff,
)
from routelock.errors import InputGuardrailTripped
from routelock.handlers.port import Request
from routelock.history.filters import remove_all_tools
from routelock.history.marked import item_of
from routelock.history.messages import calls_of, is_note, last_user_text, text_of
from routelock.history.notes import PREAMBLE
from routelock.run.events import Repaired
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio


class Judge:
    """A guardrail that keeps what it was given, as text, by agent."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def __call__(self, context: Any, agent: Any, messages: Any) -> GuardrailResult:
        self.given.append((agent.name, json.dumps(messages)))
        return GuardrailResult(tripwire_triggered=False)


class Models:
    """Agents without instructions, and what each was shown at first whenever it took over."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked: list[tuple[str, int, str]] = []

    def agent(self, name: str, *replies: Any, **options: Any) -> Agent[Any]:
        script = ScriptedHandler(replies)

        async def model(request: Request) -> Any:
            self.asked.append((name, request.turn, json.dumps(list(request.messages))))
            return [event async for event in script.stream(request)][-1]

        return Agent(name, model=function_handler(model, name=name), input_guardrails=[self.judge], **options)

    def shown(self) -> list[tuple[str, str]]:
        """What the first request was, each time that another agent took over."""
        return [
            (name, messages)
            for place, (name, _, messages) in enumerate(self.asked)
            if place == 0 or self.asked[place - 1][0] != name
        ]


HI: list[Message] = [{"role": "user", "content": "Hi"}]
LOOK, TO_B = call("look_up", {"order": 7}), call("transfer_to_b")


@function_tool
def count(what: str) -> int:
    """Count something."""
    return len(what)


def over(models: Models, options: dict[str, Any] | None = None, **target: Any) -> Agent[Any]:
    b = models.agent("b", "Done.", **target)
    return models.agent("a", LOOK, TO_B, "Again.", tools=[look_up], handoffs=[handoff(b, **(options or {}))])


def round_trip(models: Models) -> Agent[Any]:
    b = models.agent(
        "b", call("count", {"what": "x"}), call("transfer_to_a"), "Done.", tools=[count], handoffs=["a"]
    )
    return models.agent("a", LOOK, TO_B, TO_B, tools=[look_up], handoffs=[b])


async def earlier(models: Models) -> list[Message]:
    first = Agent("z", model=ScriptedHandler([LOOK, "On its way."]), tools=[look_up])
    return [*(await Runner.run(first, "Hi")).to_input_list(), {"role": "user", "content": "And now?"}]


async def poisoned(models: Models) -> list[Message]:
    return [{"role": "tool", "tool_call_id": "gone", "content": "late"}, *HI]


async def hi(models: Models) -> str:
    return "Hi"


SHOWN = RunConfig(foreign_calls="shown")
NESTED = RunConfig(nest_handoff_history=True)
KINDS: dict[str, tuple[Callable[[Models], Agent[Any]], Callable[[Models], Awaitable[Any]], RunConfig]] = {
    "a target": (over, hi, RunConfig()),
    "a target with the source's tool": (lambda models: over(models, tools=[look_up]), hi, RunConfig()),
    "calls that are shown": (over, hi, SHOWN),
    "a filter": (lambda models: over(models, {"input_filter": remove_all_tools}), hi, RunConfig()),
    "no context": (lambda models: over(models, {"preserve_context": False}), hi, RunConfig()),
    "a nested history": (over, hi, NESTED),
    "a target that answers its caller": (
        lambda models: over(models, {"return_to_caller": True}),
        hi,
        RunConfig(),
    ),
    "there and back again": (round_trip, hi, RunConfig()),
    "what another agent did before": (over, earlier, RunConfig()),
    "an input that must be repaired": (over, poisoned, RunConfig()),
}


@pytest.mark.pairwise
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_input_guardrail_gets_the_models_messages(kind: str, stream: bool, beside: bool) -> None:
    make, begin, config = KINDS[kind]
    models = Models(Judge())
    of_run = Judge()
    config = dataclasses.replace(config, guardrails_beside=beside, input_guardrails=[of_run])
    agent, given = make(models), await begin(models)
    if stream:
        async with Runner.run_streamed(agent, given, run_config=config) as events:
            result = await events.drain()
    else:
        result = await Runner.run(agent, given, run_config=config)
    assert result.final_output
    assert models.judge.given == models.shown()
    assert of_run.given == models.shown()[:1]


@pytest.mark.parametrize("beside", [False, True])
async def test_a_resumed_run_gives_a_guardrail_the_same_again(beside: bool) -> None:
    given: list[str] = []

    def no(context: Any, agent: Any, messages: Any) -> GuardrailResult:
        given.append(json.dumps(messages))
        return GuardrailResult(tripwire_triggered=len(given) == 1)

    b = Agent("b", model=ScriptedHandler(["Done.", "Done."]), input_guardrails=[no])
    a = Agent("a", model=ScriptedHandler([LOOK, TO_B]), tools=[look_up], handoffs=[b])
    config = RunConfig(guardrails_beside=beside)
    with pytest.raises(InputGuardrailTripped) as caught:
        await Runner.run(a, "Hi", run_config=config)
    result = await Runner.run(a, caught.value.result.state(), run_config=config)
    assert given == [json.dumps(list(result.calls[-1].messages))] * 2


async def test_a_repair_is_told_once_although_guardrails_saw_it() -> None:
    judge = Judge()
    agent = Agent("a", model=ScriptedHandler(["Done."]), input_guardrails=[judge])
    config = RunConfig(input_guardrails=[judge])
    stream = Runner.run_streamed(
        agent, [{"role": "tool", "tool_call_id": "gone", "content": "late"}, *HI], run_config=config
    )
    told = [event.repair async for event in stream if isinstance(event, Repaired)]
    assert (len(told), stream.result.repairs) == (1, tuple(told))


# -- what stands last --


async def echo(messages: list[Message]) -> str:
    return f"{messages[-1]['role']}: {messages[-1].get('content')}"


def other_agent() -> Agent[Any]:
    b = Agent("b", "Be b.", model=function_handler(echo), tools=[look_up])
    return Agent("a", model=ScriptedHandler([LOOK, TO_B]), tools=[look_up], handoffs=[b])


def other_handler() -> Agent[Any]:
    specialist = function_handler(echo, name="b", expose=True)
    return Agent("a", "Be a.", model=ScriptedHandler([LOOK, TO_B]), tools=[look_up], handlers=[specialist])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("make", [other_agent, other_handler])
async def test_the_question_stands_last_though_calls_stay_calls(
    make: Callable[[], Agent[Any]], stream: bool
) -> None:
    result = await (Runner.run_streamed(make(), "Hi").drain() if stream else Runner.run(make(), "Hi"))
    assert result.final_output == "user: Hi"
    assert [message["role"] for message in result.messages[:3]] == ["user", "assistant", "tool"]
    shown = [message for message in result.calls[-1].messages if message["role"] != "system"]
    assert [message["role"] for message in shown] == ["assistant", "tool", "user", "user"]
    assert_valid(list(result.calls[-1].messages))


async def test_returning_handler_sees_the_same_messages() -> None:
    default = Voice("m", LOOK, TO_B, TO_B, priority=1, expose=True)
    specialist = Voice("b", LOOK, call("transfer_to_m"), "Done.", expose=True)
    agent = Agent("a", handlers=[default, specialist], tools=[look_up])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(detect_loops=False))
    assert result.final_output == "Done."
    for voice in (default, specialist):
        shown = [list(request.messages) for request in voice.requests]
        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(shown))


# -- what an agent did in a run before --


async def before(**options: Any) -> list[Message]:
    first = Agent("a", model=ScriptedHandler([LOOK, call("invented"), "On its way."]), tools=[look_up])
    result = await Runner.run(first, "Where is it?", **options)
    kept: list[Message] = json.loads(json.dumps(result.to_input_list()))
    return [*kept, *HI]


async def shown_to(agent: Agent[Any], given: list[Message], **options: Any) -> list[Message]:
    result = await Runner.run(agent, given, **options)
    return list(result.calls[0].messages)


def told_of(messages: list[Message]) -> list[str]:
    """The names of the calls in the notes."""
    notes = [text_of(message) for message in messages if is_note(message)]
    return [json.loads(line[2:])["called"] for note in notes for line in note.splitlines()[1:]]


async def test_calls_of_another_agents_run_become_a_note() -> None:
    """Though nothing was handed over: the app chose who answers."""
    shown = await shown_to(Agent("b", model=ScriptedHandler(["Hello."])), await before())
    assert told_of(shown) == ["look_up", "invented"]
    assert [message["role"] for message in shown] == ["user", "user", "assistant", "user"]
    assert shown[-1:] == HI


async def test_agent_sees_its_own_calls_as_calls() -> None:
    """Also the one of a tool that there is not, and one that is gone."""
    given = await before()
    for tools in ([look_up], []):
        again = Agent("a", model=ScriptedHandler(["Hello."]), tools=tools)
        assert await shown_to(again, given) == [item_of(message, 0, "input").message for message in given]


async def test_a_tool_that_both_agents_have_stays_a_call() -> None:
    given = await before()
    shown = await shown_to(Agent("b", model=ScriptedHandler(["Hello."]), tools=[look_up]), given)
    assert told_of(shown) == ["invented"]
    assert [call_["function"]["name"] for message in shown for call_ in calls_of(message)] == ["look_up"]


async def test_external_call_stays_a_call_for_every_agent() -> None:
    external = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    config = RunConfig(external_tools=[external])
    agent = Agent("b", model=ScriptedHandler(["Hello."]))
    assert told_of(await shown_to(agent, await before(), run_config=config)) == ["invented"]


async def test_target_in_a_later_run_sees_all_calls_noted() -> None:
    c = Agent("c", model=ScriptedHandler(["Hello."]))
    b = Agent("b", model=ScriptedHandler([call("transfer_to_c")]), handoffs=[c])
    result = await Runner.run(b, await before())
    notes = [text_of(message) for message in result.calls[-1].messages if is_note(message)]
    assert [note.count("called") for note in notes] == [2, 0]


async def test_earlier_calls_are_shown_as_calls_on_request() -> None:
    shown = await shown_to(Agent("b", model=ScriptedHandler(["Hello."])), await before(), run_config=SHOWN)
    assert told_of(shown) == []


# -- the newest words of the user --


def homework(context: Any, agent: Any, messages: Any) -> GuardrailResult:
    return GuardrailResult("homework" in last_user_text(messages))


@pytest.mark.parametrize("tools", [[], [look_up]])
@pytest.mark.parametrize("config", [RunConfig(), SHOWN, NESTED])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_target_can_judge_the_users_words(tools: list[Any], config: RunConfig, stream: bool) -> None:
    b = Agent("b", model=ScriptedHandler([]), tools=tools, input_guardrails=[homework])
    a = Agent("a", model=ScriptedHandler([LOOK, TO_B]), tools=[look_up], handoffs=[b])
    run = (
        Runner.run_streamed(a, "Do my homework.", run_config=config).drain()
        if stream
        else Runner.run(a, "Do my homework.", run_config=config)
    )
    with pytest.raises(InputGuardrailTripped, match="stopped agent 'b'"):
        await run


def test_a_note_is_not_the_users_words() -> None:
    asked: Message = {"role": "user", "content": [{"type": "text", "text": "Where is it?"}]}
    note: Message = {"role": "user", "content": f"{PREAMBLE}\n- {{}}"}
    answer: Message = {"role": "assistant", "content": "Here."}
    assert last_user_text([asked, answer, note]) == "Where is it?"


def test_without_a_user_there_are_no_words() -> None:
    assert last_user_text([{"role": "assistant", "content": "Hello."}]) == ""
