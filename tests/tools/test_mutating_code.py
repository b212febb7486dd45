"""Code of the app's that edits what it is given changes nothing: no transcript, no session, no later turn."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from routelock import (
    Agent,
    AgentHooks,
    GuardrailResult,
    HandoffRequest,
    Request,
    RunConfig,
    RunContext,
    RunHooks,
    Runner,
    RunResult,
    Skill,
    Tool,
    handler,
    handoff,
    tool,
)
from routelock.agents.skill import hook
from routelock.errors import InputGuardrailTripped
from routelock.history import Compact
from routelock.run.emit import Moment, emit
from routelock.run.start import start
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call
from routelock.tools.outcome import ToolResult

pytestmark = pytest.mark.anyio


def spoil(value: Any) -> None:
    """Edit all that can be edited in a value."""
    for each in inside(value):
        spoil(each)
    if isinstance(value, dict):
        value.update({key: "SPOILED" for key, each in value.items() if isinstance(each, str)})
    elif isinstance(value, list):
        value.append({"role": "user", "content": "SPOILED"})


def inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, RunResult):  # its items are the run's own
        return [value.messages, value.pending, value.to_input_list()]
    if not dataclasses.is_dataclass(value) or isinstance(value, RunContext | Agent | Tool | type):
        return []  # the app's own declarations, which it may change as it likes
    return [getattr(value, each.name) for each in dataclasses.fields(value)]


class Vandal:
    """Edits its input at one place and passes everything else on."""

    def __init__(self, place: str | None) -> None:
        self.place = place
        self.came_by = 0

    def at(self, place: str, *given: Any) -> None:
        if place == self.place:
            self.came_by += 1
            spoil(given)

    def guardrail(self, place: str) -> Any:
        def judge(context: Any, owner: Any, value: Any) -> GuardrailResult:
            self.at(place, value)
            return GuardrailResult(tripwire_triggered=False)

        return judge

    def shaping(self, place: str) -> Any:
        def shape(data: Any) -> Any:
            kept = copy.deepcopy(data)
            self.at(place, data)
            return kept

        return shape

    def hooks(self, kind: type[Any]) -> Any:
        """Hooks of one of the two kinds, at each of which it may be."""

        def method(place: str) -> Any:
            async def watch(itself: object, context: Any, *given: Any) -> None:
                self.at(place, getattr(context, "arguments", None), *given)

            return watch

        names = [name for name in vars(kind) if name.startswith("on_")]
        return type("Hooks", (kind,), {name: method(f"{kind.__name__}.{name}") for name in names})()


def shown(request: Request) -> str:
    return json.dumps([list(request.messages), list(request.tools), dict(request.settings)])


class Company:
    """Two agents with all callbacks that an app may set, and the requests of their models."""

    def __init__(self, vandal: Vandal) -> None:
        self.vandal = vandal
        self.shown: list[str] = []
        self.made: list[Any] = []
        self.parts: list[Any] = []

    def scripted(self, *replies: Any) -> Any:
        """A handler with scripted replies that records its requests."""
        script, company = ScriptedHandler(replies), self

        class Model:
            name = "model"

            async def stream(self, request: Request, /) -> AsyncGenerator[Any]:
                company.shown.append(shown(request))
                async for event in script.stream(request):
                    yield event

        return Model()

    def agents(self) -> Agent[Any]:
        vandal = self.vandal
        edge = handoff(
            self.second(),
            input_type=dict[str, list[str]],
            on_handoff=lambda context, given: vandal.at("on_handoff", given),
            input_filter=vandal.shaping("an input filter"),
        )
        return Agent(
            "a",
            "Be a.",
            handlers=[self.function()],
            tools=[self.look_up()],
            handoffs=[edge],
            skills=[watching(vandal)],
            hooks=vandal.hooks(AgentHooks),
            model_settings={"stop": ["x"], "extra_body": {"a": {"b": "c"}}},
            input_guardrails=[vandal.guardrail("an input guardrail")],
        )

    def function(self) -> Any:
        replies = [call("look_up", {"order": 7}), call("transfer_to_b", {"why": ["late"]})]

        @handler(name="a function")
        async def answer(request: Request, messages: list[Any], tools: Any, settings: Any) -> Any:
            self.shown.append(shown(request))
            made = {"role": "assistant", "content": None, "tool_calls": [replies[request.turn - 1]]}
            self.vandal.at("a handler's request", request)
            self.vandal.at("a handler's messages", messages)
            self.vandal.at("a handler's tools", tools)
            self.vandal.at("a handler's settings", settings)
            for each in self.made:
                self.vandal.at("what a handler gave", each)
            self.made.append(made)
            return made

        return answer

    def look_up(self) -> Any:
        def approval(context: Any, arguments: Any) -> bool:
            self.vandal.at("needs_approval", arguments)
            return False

        @tool(needs_approval=approval, output_guardrails=[self.vandal.guardrail("a tool's output guardrail")])
        def look_up(order: int) -> Any:
            """Look an order up."""
            part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
            self.parts.append(part)
            return ToolResult("on its way", media=[part])

        return look_up

    def second(self) -> Agent[Any]:
        vandal = self.vandal

        @tool
        def note(lines: list[str]) -> str:
            """Note something."""
            vandal.at("what a tool gave", *self.parts)
            vandal.at("a tool's arguments", lines)
            return "noted"

        async def received(context: Any) -> None:
            vandal.at("on_handoff_received", context)

        return Agent(
            "b",
            model=self.scripted(call("note", {"lines": ["x"]}), "Done.", "Done again."),
            tools=[note],
            input_guardrails=[vandal.guardrail("an input guardrail")],
            output_guardrails=[vandal.guardrail("an output guardrail")],
            hooks=vandal.hooks(AgentHooks),
            on_handoff_received=received,
        )


def watching(vandal: Vandal) -> Skill:
    class Watching(Skill):
        @hook("on_llm_start")
        async def start(self, context: Any, agent: Any, request: Any) -> None:
            vandal.at("a skill's on_llm_start", request)

        @hook("on_llm_end")
        async def end(self, context: Any, agent: Any, reply: Any) -> None:
            vandal.at("a skill's on_llm_end", reply)

    return Watching()


PLACES = [
    *(
        f"{kind.__name__}.{name}"
        for kind in (RunHooks, AgentHooks)
        for name in vars(kind)
        if name[:3] == "on_"
    ),
    "a skill's on_llm_start",
    "a skill's on_llm_end",
    "a handler's request",
    "a handler's messages",
    "a handler's tools",
    "a handler's settings",
    "what a handler gave",
    "what a tool gave",
    "a tool's arguments",
    "a tool's output guardrail",
    "needs_approval",
    "on_handoff",
    "on_handoff_received",
    "an input filter",
    "an input guardrail",
    "an output guardrail",
    "an input guardrail of the run",
    "an output guardrail of the run",
    "the input",
    "an event",
    "the messages so far",
    "the input for another run so far",
    "the messages of a result",
]


async def played(place: str | None, stream: bool) -> tuple[dict[str, Any], int]:
    """Two runs in one session, and everything that edits must not change."""
    vandal, session = Vandal(place), Session("s", InMemorySessions())
    company = Company(vandal)
    agent = company.agents()
    specs = json.dumps([tool.spec for each in agent.graph.values() for tool in each.all_tools])
    given: Any = [{"role": "user", "content": [{"type": "text", "text": "Where is it?"}]}]
    config = RunConfig(
        input_guardrails=[vandal.guardrail("an input guardrail of the run")],
        output_guardrails=[vandal.guardrail("an output guardrail of the run")],
        run_id="r",
    )
    hooks = vandal.hooks(RunHooks)
    if stream:
        async with Runner.run_streamed(
            agent, given, hooks=hooks, run_config=config, session=session
        ) as events:
            async for event in events:
                vandal.at("the input", given)
                vandal.at("an event", event)
                vandal.at("the messages so far", events.result.messages)
                vandal.at("the input for another run so far", events.result.to_input_list())
        result = events.result
    else:
        result = await Runner.run(agent, given, hooks=hooks, run_config=config, session=session)
        vandal.at("the input", given)
    vandal.at("the messages of a result", result.messages)
    b = agent.graph["b"]
    again = await Runner.run(b, "And now?", session=session)
    facts = {
        "transcript": result.messages,
        "input": result.to_input_list(),
        "replies": [reply.message for reply in result.raw_replies],
        "session": (await session.load()).messages,
        "shown": company.shown,
        "again": again.messages,
        "repairs": result.repairs,
        "tools": json.dumps([tool.spec for each in agent.graph.values() for tool in each.all_tools]) == specs,
    }
    return json.loads(json.dumps(facts)), vandal.came_by


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", PLACES)
async def test_edits_by_the_app_do_not_change_the_run(place: str, stream: bool) -> None:
    if not stream and place in ("an event", "the messages so far", "the input for another run so far"):
        pytest.skip("there is no such thing")
    untouched, _ = await played(None, stream)
    facts, came_by = await played(place, stream)
    assert came_by
    assert facts == untouched


async def test_on_limit_function_cannot_edit_the_run() -> None:
    def spoils(error: Any) -> str:
        spoil(error.result)
        return "Enough."

    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    agent = Agent("a", model=ScriptedHandler([call("look")]), tools=[look])
    result = await Runner.run(agent, "Hi", max_turns=1, run_config=RunConfig(on_limit=spoils))
    assert result.final_output == "Enough."
    assert "SPOILED" not in json.dumps(result.messages)


async def test_calls_that_the_caller_has_to_answer_are_copies() -> None:
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    agent = Agent("a", model=ScriptedHandler([call("look", {"at": 1})]))
    result = await Runner.run(agent, "Hi", run_config=RunConfig(external_tools=[look]))
    before = json.dumps(result.messages)
    spoil(result.pending)
    assert json.dumps(result.messages) == before


async def test_inherited_hooks_get_no_copies() -> None:
    """Copies cost time. A hook that is set on the instance is still called."""
    copied: list[str] = []

    class Copied(Moment):
        hook = agent_hook = "on_llm_start"

        def hook_arguments(self) -> tuple[object, ...]:
            copied.append("a copy")
            return ("a request",)

    async def watch(context: Any, agent: Any, request: object) -> None:
        copied.append(f"given to {agent.name}")

    hooks = RunHooks()
    agent = Agent("a", model=ScriptedHandler([]), hooks=AgentHooks())
    run = start(agent, "Hi", None, 1, hooks, None, stream=False)
    await emit(run, Copied())
    assert copied == []
    hooks.on_llm_start = watch  # type: ignore[method-assign]
    await emit(run, Copied())
    assert copied == ["a copy", "given to a"]


# what several are given


@dataclasses.dataclass
class Payment:
    """A model's output in a type of the app."""

    amounts: list[int]


def _raises_it(context: Any, owner: Any, value: Any) -> GuardrailResult:
    payment = value["payment"] if isinstance(value, dict) else value
    payment.amounts.append(1000)
    return GuardrailResult(False)


def _silences(context: Any, owner: Any, value: list[dict[str, Any]]) -> GuardrailResult:
    value[-1]["content"] = "Nothing."
    return GuardrailResult(False)


def _no_homework(context: Any, owner: Any, value: list[dict[str, Any]]) -> GuardrailResult:
    return GuardrailResult("homework" in value[-1]["content"])


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("whose", ["agent", "run"])
async def test_input_guardrail_cannot_change_the_input_of_another(whose: str, beside: bool) -> None:
    both: Any = {"input_guardrails": [_silences, _no_homework]}
    options: Any = both if whose == "agent" else {}
    agent = Agent("a", model=ScriptedHandler(["Yes."]), **options)
    config = RunConfig(guardrails_beside=beside, **(both if whose == "run" else {}))
    with pytest.raises(InputGuardrailTripped):
        await Runner.run(agent, "Do my homework.", run_config=config)


async def test_guardrail_cannot_change_the_arguments() -> None:
    paid: list[Payment] = []
    judged: list[Payment] = []

    def watch(context: Any, owner: Any, value: dict[str, Any]) -> GuardrailResult:
        judged.append(value["payment"])
        return GuardrailResult(False)

    @tool(input_guardrails=[_raises_it, watch])
    def pay(payment: Payment) -> str:
        """Pay."""
        paid.append(payment)
        return "paid"

    model = ScriptedHandler([call("pay", {"payment": {"amounts": [5]}}), "Done."])
    await Runner.run(Agent("a", model=model, tools=[pay]), "Pay.")
    assert paid == judged == [Payment([5])]


async def test_output_guardrail_and_hook_cannot_change_the_output() -> None:
    judged: list[Payment] = []

    def watch(context: Any, owner: Any, value: Payment) -> GuardrailResult:
        judged.append(value)
        return GuardrailResult(False)

    class Editing(AgentHooks):
        async def on_end(self, context: Any, agent: Any, output: Payment) -> None:
            output.amounts.append(1000)

    agent = Agent(
        "a",
        model=ScriptedHandler(['{"amounts": [5]}']),
        output_type=Payment,
        output_guardrails=[_raises_it, watch],
        hooks=Editing(),
    )
    assert (await Runner.run(agent, "Pay.")).final_output == Payment([5])
    assert judged == [Payment([5])]


@dataclasses.dataclass
class Escalation:
    """What a model passes along with a handoff."""

    why: list[str]


@pytest.mark.parametrize("place", ["payload", "on_handoff", "on_handoff_request", "input_filter"])
async def test_function_of_a_handoff_cannot_change_its_input(place: str) -> None:
    def at(here: str, given: Any) -> None:
        if here == place:
            spoil(given)

    def shape(data: Any) -> Any:
        at("input_filter", data.arguments)
        return data

    b = Agent(
        "b", model=ScriptedHandler(["Hi."]), on_handoff_request=lambda asked: at("on_handoff_request", asked)
    )
    edge = handoff(
        b,
        input_type=Escalation,
        payload=lambda context, given: at("payload", given),
        on_handoff=lambda context, given: at("on_handoff", given),
        input_filter=shape,
    )
    a = Agent("a", model=ScriptedHandler([call("transfer_to_b", {"why": ["late"]})]), handoffs=[edge])
    (record,) = (await Runner.run(a, "Hi")).handoffs
    assert record.request is not None
    assert record.input == record.request.input == Escalation(["late"])


async def test_tool_may_edit_the_handoff_request_that_it_returned() -> None:
    kept: list[HandoffRequest] = []
    seen: list[Any] = []

    @tool
    def ask() -> HandoffRequest:
        """Ask b."""
        kept.append(HandoffRequest("b", input={"why": ["late"]}, metadata={"of": ["app"]}))
        return kept[0]

    class Answering:
        name = "b"

        async def stream(self, request: Request, /) -> AsyncGenerator[Any]:
            spoil([kept[0].input, kept[0].metadata])
            seen.append(request.handoff_input)
            async for event in ScriptedHandler(["Hi."]).stream(request):
                yield event

    a = Agent("a", model=ScriptedHandler([call("ask")]), tools=[ask], handlers=[Answering()])
    (record,) = (await Runner.run(a, "Hi")).handoffs
    assert record.request is not None
    assert (seen, record.request.metadata) == ([{"why": ["late"]}], {"of": ["app"]})


async def test_guardrail_of_an_agent_as_a_tool_cannot_change_its_arguments() -> None:
    def edits(context: Any, owner: Any, value: Any) -> GuardrailResult:
        spoil(dict(context.arguments))
        return GuardrailResult(False)

    sub = Agent("sub", model=ScriptedHandler(["Hi."]))
    as_tool = sub.as_tool(
        input_type=Escalation, input=lambda context, value: ", ".join(value.why), input_guardrails=[edits]
    )
    model = ScriptedHandler([call("sub", {"why": ["late"]}, id="c"), "Done."])
    result = await Runner.run(Agent("a", model=model, tools=[as_tool]), "Hi")
    assert result.nested["c"].messages[0].get("content") == "late"


async def test_keep_function_of_a_compaction_cannot_edit_the_transcript() -> None:
    def edits(item: Any) -> bool:
        spoil(item.message)
        return False

    given = [{"role": role, "content": "Hi"} for role in ("user", "assistant", "user", "assistant", "user")]
    config = RunConfig(compact=Compact(at_messages=2, keep_turns=1, keep=edits))
    result = await Runner.run(Agent("a", model=ScriptedHandler(["Yes."])), given, run_config=config)
    assert result.compactions
    assert [message.get("content") for message in result.messages] == [*(["Hi"] * 5), "Yes."]
