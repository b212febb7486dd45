"""The one loop: turns, transfers, final outputs, and errors that keep what was done."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest
from pydantic import BaseModel
from scenes import SCENES, Stage
from scripted_agents import outcome

from routelock import Agent, Handoff, RunConfig, Runner, RunResult, function_handler, function_tool, handoff
from routelock.errors import CallbackError, HandlerError, ModelBehaviorError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import ModelSettings, OutputSchema, Request
from routelock.history.messages import text_of
from routelock.history.validity import problems
from routelock.run.events import Repaired
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio


class Point(BaseModel):
    x: int


@function_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def roles(messages: Any) -> list[str]:
    return [message["role"] for message in messages]


# -- golden traces --


async def test_an_answer_ends_the_run() -> None:
    script = ScriptedHandler(["Hello."])
    result = await Runner.run(Agent("A", "Be brief.", model=script), "Hi")
    assert (result.final_output, result.last_agent.name, result.stop_reason) == ("Hello.", "A", "done")
    assert script.requests[0].messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    )


async def test_tool_results_are_shown_to_the_model() -> None:
    script = ScriptedHandler([call("add", {"a": 1, "b": 2}), "It is 3."])
    result = await Runner.run(Agent("A", model=script, tools=[add]), "1 + 2?")
    assert roles(result.messages) == ["user", "assistant", "tool", "assistant"]
    assert script.requests[1].messages[-1] == {"role": "tool", "tool_call_id": "call_1_0", "content": "3"}
    assert result.final_output == "It is 3."


async def test_target_answers_with_its_own_tools_and_prompt() -> None:
    """The target brings its own instructions, tools and handoffs."""
    model = ScriptedHandler(["B here."])
    target = Agent("B", "You are B.", model=model, tools=[add], handoffs=["A"])
    agent = Agent("A", "You are A.", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[target])
    result = await Runner.run(agent, "Hi")
    assert result.last_agent is target
    assert model.requests[0].messages[0] == {"role": "system", "content": "You are B."}
    assert [tool["function"]["name"] for tool in model.requests[0].tools] == ["add", "transfer_to_a"]
    assert '"handed over to": "B"' in text_of(model.requests[0].messages[1])
    assert model.requests[0].messages[-1] == {"role": "user", "content": "Hi"}


async def test_a_transfer_to_a_handler_keeps_the_agent() -> None:
    """The target of a handoff is an agent or a handler; a handler speaks for the same agent."""
    voice = ScriptedHandler([call("add", {"a": 1, "b": 1}), "Two."], name="voice")
    script = ScriptedHandler([call("transfer_to_voice")])
    agent = Agent("A", "You are A.", model=script, tools=[add], handoffs=[voice])
    result = await Runner.run(agent, "Hi")
    assert result.last_agent is agent
    assert [made.handler for made in result.calls] == ["scripted", "voice", "voice"]
    assert voice.requests[0].messages[0].get("content") == "You are A."


async def test_tools_in_the_same_reply_run_before_the_transfer() -> None:
    """The tool's result precedes the target's call, and both calls are answered."""
    stage = Stage()
    result = await Runner.run(SCENES["transfer"].agent(stage), "Hi")
    assert stage.done == ["add 1 2"]
    assert [item.kind for item in result.new_items] == ["model", "handoff", "tool", "handoff", "model"]
    shown = result.calls[1].messages
    assert problems(shown) == []
    assert [message.get("content") for message in shown if message["role"] == "tool"] == ["3"]
    assert text_of(shown[-2]).endswith('- {"agent": "A", "handed over to": "B"}')
    assert shown[-1] == {"role": "user", "content": "Hi"}


async def test_first_of_two_transfers_is_carried_out() -> None:
    """The target is the first, and nothing of the second is in its view."""
    result = await Runner.run(SCENES["transfer"].agent(Stage()), "Hi")
    assert [(record.target, outcome(record)) for record in result.handoffs] == [
        ("B", "taken"),
        ("C", "not_taken"),
    ]
    assert len(result.warnings) == 1
    ignored = "Multiple handoffs detected, ignoring this one."
    assert ignored in [message.get("content") for message in result.messages]
    assert "transfer_to_c" not in str(result.calls[1].messages)


async def test_several_transfers_can_be_refused_together() -> None:
    """``multiple_handoffs="reject"`` makes none of them and asks again."""
    target = Agent("B", model=ScriptedHandler(["B here."]))
    other = Agent("C", model=ScriptedHandler([]))
    both = [call("transfer_to_b"), call("transfer_to_c")]
    agent = Agent("A", model=ScriptedHandler([both, call("transfer_to_b")]), handoffs=[target, other])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(multiple_handoffs="reject"))
    assert [outcome(record) for record in result.handoffs] == ["not_taken", "not_taken", "taken"]
    assert result.final_output == "B here."


# -- what a model gets wrong is answered --


async def test_an_unknown_tool_is_answered_with_what_there_is() -> None:
    """A hallucinated transfer is never guessed, and the run goes on."""
    target = Agent("Billing", model=ScriptedHandler([]))
    script = ScriptedHandler([call("transfer_to_biling"), "Sorry."])
    result = await Runner.run(Agent("A", model=script, tools=[add], handoffs=[target]), "Hi")
    told = str(script.requests[1].messages[-1].get("content"))
    assert "add, transfer_to_billing" in told
    assert "Did you mean 'transfer_to_billing'?" in told
    assert [problem.kind for problem in result.errors] == ["unknown_tool"]
    assert result.last_agent.name == "A"


async def test_tools_of_the_source_are_unknown_to_the_target() -> None:
    """Its call is in the history, but it was not offered."""
    model = ScriptedHandler([call("add", {"a": 1, "b": 1}), "Fine."])
    target = Agent("B", model=model)
    script = ScriptedHandler([call("add", {"a": 1, "b": 1}), call("transfer_to_b")])
    result = await Runner.run(Agent("A", model=script, tools=[add], handoffs=[target]), "Hi")
    assert result.final_output == "Fine."
    assert "No tools are available" in str(model.requests[1].messages[-1].get("content"))


@pytest.mark.parametrize(
    ("mistake", "script"),
    [
        ("unknown_tool", [call("nothing")]),
        ("bad_arguments", [call("add", '{"a": ')]),
        ("bad_arguments", [call("transfer_to_b", "[1]")]),
        ("failed_handoff", [call("transfer_to_b", "[1]")]),
    ],
)
async def test_a_mistake_can_end_the_run_instead(mistake: Any, script: list[Any]) -> None:
    """A switch to raise for each; the result is complete all the same."""
    target = Agent("B", model=ScriptedHandler([]))
    agent = Agent("A", model=ScriptedHandler(script), tools=[add], handoffs=[target])
    with pytest.raises(Exception, match="Agent 'A', turn 1") as caught:
        await Runner.run(agent, "Hi", run_config=RunConfig(raise_on={mistake}))
    result = caught.value.result  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert roles(result.messages) == ["user", "assistant", "tool"]
    assert result.stop_reason == "error"


JUNK = ['{"a": 1, "b": 2,}', '{"a": 1', "[1, 2]", "null", '"add"', "x" * 1_000_000, '{"a": 1, "b": "2"} {']


@pytest.mark.parametrize("arguments", JUNK, ids=lambda junk: junk[:12])
async def test_broken_arguments_never_run_a_tool(arguments: str) -> None:
    """The model is told in at most 800 characters, and the next request is valid."""
    ran: list[Any] = []

    @function_tool
    async def strict(a: int, b: int) -> str:
        """Run."""
        ran.append((a, b))
        return "ran"

    script = ScriptedHandler([call("strict", arguments), "Sorry."])
    result = await Runner.run(Agent("A", model=script, tools=[strict]), "Hi")
    assert ran == []
    assert len(str(script.requests[1].messages[-1].get("content"))) <= 800
    assert problems(script.requests[1].messages) == []
    assert [problem.kind for problem in result.errors] == ["bad_arguments"]


@pytest.mark.parametrize("arguments", ["", "{}", "null", " "])
async def test_transfer_without_input_accepts_empty_arguments(arguments: str) -> None:
    """Providers differ in how they write no arguments."""
    target = Agent("B", model=ScriptedHandler(["B here."]))
    agent = Agent("A", model=ScriptedHandler([call("transfer_to_b", arguments)]), handoffs=[target])
    assert (await Runner.run(agent, "Hi")).last_agent is target


async def test_missing_and_repeated_call_ids_are_renumbered() -> None:
    """Ollama sends none, others repeat them; the history stays paired."""
    result = await Runner.run(SCENES["siblings"].agent(Stage()), "Hi")
    assert problems(result.messages) == []
    assert [message["tool_call_id"] for message in result.messages if "tool_call_id" in message] == [
        "x",
        "call_1_1",
        "call_1_2",
        "call_2_0",
    ]


async def test_one_failing_tool_does_not_lose_its_siblings() -> None:
    """Answers are in call order, and the failed one says why."""
    result = await Runner.run(SCENES["siblings"].agent(Stage()), "Hi")
    answers = [message.get("content") for message in result.messages if message["role"] == "tool"]
    assert answers[0] == "2"
    assert "broken" in str(answers[1])
    assert answers[2] == "4"
    assert [problem.kind for problem in result.errors] == ["tool"]


# -- structured output --


async def test_every_request_has_the_output_schema() -> None:
    script = ScriptedHandler([call("add", {"a": 1, "b": 1}), '{"x": 2}'])
    agent = Agent("A", model=script, tools=[add], output_type=Point)
    result = await Runner.run(agent, "Hi")
    assert result.final_output == Point(x=2)
    schemas = [request.output_schema for request in script.requests]
    assert all(isinstance(schema, OutputSchema) for schema in schemas)
    assert schemas[0] is not None
    assert schemas[0].schema["properties"] == {"x": {"type": "integer"}}


async def test_invalid_output_is_corrected_by_the_model() -> None:
    script = ScriptedHandler(["Two.", '{"x": 2}'])
    result = await Runner.run(Agent("A", model=script, output_type=Point), "Hi")
    assert result.final_output == Point(x=2)
    assert "not valid" in str(script.requests[1].messages[-1].get("content"))
    assert [problem.kind for problem in result.errors] == ["output"]
    assert [item.kind for item in result.new_items] == ["model", "nudge", "model"]


async def test_an_output_that_never_fits_ends_the_run() -> None:
    agent = Agent("A", model=ScriptedHandler(["Two."] * 3), output_type=Point)
    with pytest.raises(ModelBehaviorError, match="no valid final output in 3 turns"):
        await Runner.run(agent, "Hi")


async def test_empty_reply_is_not_shown_with_the_correction() -> None:
    """Vendors refuse an assistant message that says nothing; the repair is told as an event."""
    script = ScriptedHandler(["", '{"x": 2}'])
    stream = Runner.run_streamed(Agent("A", model=script, output_type=Point), "Hi")
    repairs = [event.repair async for event in stream if isinstance(event, Repaired)]
    assert problems(script.requests[1].messages) == []
    assert len(repairs) == 1
    assert stream.result.repairs == tuple(repairs)


# -- replies without calls --


async def test_empty_reply_is_an_output_with_a_warning() -> None:
    """A run never goes round on empty replies."""
    result = await Runner.run(Agent("A", model=ScriptedHandler([""])), "Hi")
    assert result.final_output == ""
    assert result.warnings == ("turn 1: the reply is empty",)
    assert problems([*result.to_input_list(), {"role": "user", "content": "Well?"}]) == []


async def test_a_refusal_is_the_final_output() -> None:
    result = await Runner.run(SCENES["refusal"].agent(Stage()), "Hi")
    assert result.final_output == "I would rather not."
    assert result.warnings == ()


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_reply_that_was_cut_short_is_a_warning(reason: str) -> None:
    """The reply is neither dropped nor taken for whole."""
    agent = Agent("A", model=ScriptedHandler([reply("Once upon", finish_reason=reason)]))
    result = await Runner.run(agent, "Hi")
    assert result.final_output == "Once upon"
    assert result.warnings == (f"turn 1: the reply was cut short ({reason})",)


# -- settings --


async def test_forced_tool_holds_for_the_first_call_only() -> None:
    """It is never carried into the target, and each agent has its own."""
    model = ScriptedHandler([call("add", {"a": 1, "b": 1}), "Done."])
    target = Agent("B", model=model, tools=[add], model_settings={"tool_choice": "add"})
    script = ScriptedHandler([call("add", {"a": 1, "b": 1}), call("transfer_to_b")])
    agent = Agent(
        "A", model=script, tools=[add], handoffs=[target], model_settings={"tool_choice": "required"}
    )
    await Runner.run(agent, "Hi")
    assert [request.tool_choice for request in script.requests] == ["required", None]
    assert [request.tool_choice for request in model.requests] == ["add", None]
    assert all("tool_choice" not in request.settings for request in script.requests)


async def test_agent_settings_override_and_none_removes_a_key() -> None:
    script = ScriptedHandler(["Hi"])
    agent = Agent("A", model=script, model_settings={"temperature": 0, "seed": None})
    config = RunConfig(model_settings={"temperature": 1, "seed": 7, "top_p": 0.5})
    await Runner.run(agent, "Hi", run_config=config)
    assert script.requests[0].settings == {"temperature": 0, "top_p": 0.5}


async def test_the_runs_model_answers_for_every_agent() -> None:
    script = ScriptedHandler([call("transfer_to_b"), "B here."])
    agent = Agent("A", handoffs=[Agent("B", model=ScriptedHandler([]))])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(model=script))
    assert result.final_output == "B here."


async def test_is_enabled_is_called_in_every_turn() -> None:
    """What was not offered in that very turn is unknown, and the model is told."""
    enabled: Callable[[Any, Any], bool] = lambda context, agent: context.turn == 1  # noqa: E731
    target = Agent("B", model=ScriptedHandler([]))
    script = ScriptedHandler([call("add", {"a": 1, "b": 1}), call("transfer_to_b"), "Fine."])
    agent = Agent("A", model=script, tools=[add], handoffs=[handoff(target, is_enabled=enabled)])
    result = await Runner.run(agent, "Hi")
    assert [len(request.tools) for request in script.requests] == [2, 1, 1]
    assert result.last_agent.name == "A"


async def test_agents_made_during_a_run_get_their_tools() -> None:
    """A target may be made afresh for each transfer, where an earlier one was in memory."""

    def fresh(context: Any, arguments: str) -> Agent:
        name = f"worker {context.turn}"

        async def report() -> str:
            """Report."""
            return name

        tools = [function_tool(report, name_override=f"report_{context.turn}")]
        script = [call(f"report_{context.turn}"), call("transfer_to_a")]
        return Agent(name, model=ScriptedHandler(script), tools=tools, handoffs=["A"])

    declared = Handoff(agent_name="worker", on_invoke_handoff=fresh)
    agent = Agent(
        "A", model=ScriptedHandler([*[call("transfer_to_worker")] * 4, "Done."]), handoffs=[declared]
    )
    result = await Runner.run(agent, "Hi", max_turns=None, run_config=RunConfig(max_handoffs=None))
    assert result.final_output == "Done."
    assert result.errors == ()


async def test_result_has_each_request_and_reply() -> None:
    script = ScriptedHandler([call("add", {"a": 1, "b": 2}), "3"])
    result = await Runner.run(Agent("A", model=script, tools=[add]), "Hi")
    assert [tuple(made.messages) for made in result.calls] == [
        request.messages for request in script.requests
    ]
    assert [done.finish_reason for done in result.raw_replies] == ["tool_calls", "stop"]


async def test_the_stream_hint_is_given_to_the_handler() -> None:
    """A plain run asks for one complete reply."""
    seen: list[bool] = []

    async def answer(request: Request) -> AsyncGenerator[str]:
        seen.append(request.stream)
        yield "Hi"

    agent = Agent("A", model=function_handler(answer))
    await Runner.run(agent, "Hi")
    await Runner.run_streamed(agent, "Hi").drain()
    assert seen == [False, True]


# -- replies that are none --


@pytest.mark.parametrize(
    "message",
    [
        "text",
        None,
        {"role": "assistant", "tool_calls": [5]},
        {"role": "assistant", "tool_calls": {"a": 1}},
        {"role": "assistant", "content": 5},
    ],
)
async def test_malformed_reply_is_a_handler_error(message: Any) -> None:
    """Every error of a run carries the partial result."""
    agent = Agent("A", model=ScriptedHandler([MessageDone(message=message)]))
    with pytest.raises(HandlerError, match="gave a reply in turn 1 with") as caught:
        await Runner.run(agent, "Hi")
    assert caught.value.result.messages == [{"role": "user", "content": "Hi"}]


async def test_what_is_no_event_is_not_passed_on() -> None:
    class Odd:
        name = "odd"

        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            yield "hello"  # type: ignore[misc]

    with pytest.raises(HandlerError, match="'odd' of agent 'A' yielded a str in turn 1"):
        await Runner.run(Agent("A", model=Odd()), "Hi")


async def test_failed_assertion_is_raised_unchanged() -> None:
    """A script that ran out fails the test as what it is."""
    with pytest.raises(AssertionError, match="Model call 1"):
        await Runner.run(Agent("A", model=ScriptedHandler([])), "Hi")


async def test_a_refusal_is_not_argued_with() -> None:
    refusal = {"role": "assistant", "content": None, "refusal": "I will not."}
    model = ScriptedHandler([refusal])
    with pytest.raises(ModelBehaviorError, match=r"refused: I will not\."):
        await Runner.run(Agent("A", model=model, output_type=Point), "Hi")


# -- tool choice --


async def test_forced_tool_that_is_not_offered_is_left_out() -> None:
    model = ScriptedHandler(["Hi.", "Hi."])
    closed = handoff(Agent("B", model=model), is_enabled=False)
    for choice, tools in (("transfer_to_b", [add]), ("required", [])):
        agent = Agent(
            "A", model=model, handoffs=[closed], tools=tools, model_settings={"tool_choice": choice}
        )
        await Runner.run(agent, "Hi")
    assert [request.tool_choice for request in model.requests] == [None, None]


async def test_a_choice_that_forces_nothing_holds_for_every_call() -> None:
    model = ScriptedHandler(["no", '{"x": 1}'])
    settings: ModelSettings = {"tool_choice": "none"}
    await Runner.run(Agent("A", model=model, tools=[add], output_type=Point, model_settings=settings), "Hi")
    assert [request.tool_choice for request in model.requests] == ["none", "none"]


@pytest.mark.parametrize("wrong", [5, ["a"], {"role": "system"}])
async def test_instructions_that_are_no_text_never_reach_a_provider(wrong: Any) -> None:
    agent = Agent("A", lambda context: wrong, model=ScriptedHandler(["Hi."]))
    with pytest.raises(CallbackError, match="instructions of agent 'A' raised TypeError: they must be text"):
        await Runner.run(agent, "Hi")


# -- what a handler of the app's may give --


class Chunked:
    """Passes on what many a vendor's chunks hold."""

    name = "chunked"

    def __init__(self, *texts: Any) -> None:
        self.texts = texts

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        for text in self.texts:
            yield TextDelta(text)
        yield MessageDone(message={"role": "assistant", "content": "Hello"})


async def told(asked: Agent[Any], watched: bool) -> tuple[RunResult[Any], list[str]]:
    """A run, and the text that its reader was shown."""
    if not watched:
        return await Runner.run(asked, "Hi"), []
    stream = Runner.run_streamed(asked, "Hi")
    texts = [event.text async for event in stream if isinstance(event, TextDelta)]
    return stream.result, texts


@pytest.mark.parametrize("watched", [False, True])
async def test_a_delta_without_text_says_nothing(watched: bool) -> None:
    asked = Agent("A", model=Chunked("Hel", None, "lo"))
    result, texts = await told(asked, watched)
    assert result.final_output == "Hello"
    assert texts == (["Hel", "lo"] if watched else [])


@pytest.mark.parametrize("watched", [False, True])
async def test_delta_without_a_text_is_a_handler_error(watched: bool) -> None:
    with pytest.raises(HandlerError, match="TextDelta in turn 1 whose text is 5"):
        await told(Agent("A", model=Chunked("Hel", 5)), watched)


async def test_a_function_may_yield_deltas_without_text() -> None:
    async def answer(request: Request) -> AsyncGenerator[HandlerEvent]:
        async for event in Chunked(None, "Hello").stream(request):
            yield event

    assert (await Runner.run(Agent("A", model=function_handler(answer)), "Hi")).final_output == "Hello"


@pytest.mark.parametrize(
    "odd",
    [
        {"prompt_tokens": 1},
        Usage(1, cast(Any, None)),
        Usage(1, cast(Any, "7")),
        Usage(1, cast(Any, math.inf)),
    ],
)
async def test_a_usage_that_is_none_loses_no_reply(odd: Any) -> None:
    async def answer(request: Request) -> AsyncGenerator[HandlerEvent]:
        said = "Five." if request.turn > 1 else None
        calls: Any = {} if request.turn > 1 else {"tool_calls": [call("add", {"a": 2, "b": 3}, id="c")]}
        message: Any = {"role": "assistant", "content": said, **calls}
        yield MessageDone(message=message, usage=odd)

    result = await Runner.run(Agent("A", model=function_handler(answer), tools=[add]), "Hi")
    assert (result.final_output, result.usage) == ("Five.", Usage(requests=2, estimated=True))
    assert ["as usage" in warning for warning in result.warnings] == [True, True]


async def test_a_repair_is_told_once() -> None:
    """Also when something later has to be repaired as well."""
    unanswered: Any = {"role": "assistant", "content": None, "tool_calls": [call("add", id="z")]}
    given: Any = [{"role": "user", "content": "Hi"}, unanswered, {"role": "user", "content": "Well?"}]
    script = ScriptedHandler([call("add", {"a": 1, "b": 2}), "", "Three."])
    result = await Runner.run(Agent("A", model=script, tools=[add]), given)
    assert result.repairs == (
        "added a missing answer to tool call 'z'",
        "dropped an empty assistant message (message 5)",
    )
