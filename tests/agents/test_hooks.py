"""Hooks watch a run: in order, once each, and without being able to break it."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from typing import Any

import anyio
import pytest
from scenes import SCENES, AgentRecorder, Recorder, Stage
from scripted_agents import TO_B, agent, outcome

from routelock import Agent, AgentHooks, RunHooks, Runner, Skill, ToolContext, function_tool
from routelock.agents.skill import hook
from routelock.context import RunContext
from routelock.errors import ConfigError
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


@function_tool
async def look(at: int) -> str:
    """Look."""
    return f"seen {at}"


async def test_the_hooks_of_a_run_come_in_order() -> None:
    hooks = Recorder()
    await Runner.run(SCENES["one tool"].agent(Stage()), "Hi", hooks=hooks)
    assert hooks.calls == [
        ("agent_start", "A"),
        ("llm_start", "A", "1"),
        ("llm_end", "A", "1"),
        ("tool_start", "A", "add", "call_1_0"),
        ("tool_end", "A", "add", "call_1_0", "3"),
        ("llm_start", "A", "2"),
        ("llm_end", "A", "2"),
        ("agent_end", "A", "It is 3."),
    ]


async def test_handoff_hook_runs_once_before_the_targets_first_call() -> None:
    hooks = Recorder()
    await Runner.run(SCENES["transfer"].agent(Stage()), "Hi", hooks=hooks)
    names = [name for name, *_ in hooks.calls]
    assert names.count("handoff") == 1
    after = hooks.calls[names.index("handoff") :]
    assert after[:3] == [("handoff", "A", "B"), ("agent_start", "B"), ("llm_start", "B", "2")]


async def test_on_start_runs_each_time_an_agent_becomes_active() -> None:
    hooks = Recorder()
    await Runner.run(SCENES["chain"].agent(Stage()), "Hi", hooks=hooks)
    told = [call_ for call_ in hooks.calls if call_[0] in ("agent_start", "handoff", "agent_end")]
    assert told == [
        ("agent_start", "A"),
        ("handoff", "A", "B"),
        ("agent_start", "B"),
        ("handoff", "B", "A"),
        ("agent_start", "A"),
        ("handoff", "A", "voice"),
        ("agent_end", "A", "Bye from the voice."),
    ]


async def test_an_agents_hooks_hear_of_that_agent_only() -> None:
    """A handoff is one of both agents, and its hooks know which is which."""
    source, target = AgentRecorder(), AgentRecorder()
    last = Agent("B", model=ScriptedHandler([call("look", {"at": 2}), "Done."]), tools=[look], hooks=target)
    script = ScriptedHandler([call("look", {"at": 1}), call("transfer_to_b")])
    await Runner.run(Agent("A", model=script, tools=[look], handoffs=[last], hooks=source), "Hi")
    assert source.calls == [
        ("start", "A"),
        ("tool_start", "A", "look"),
        ("tool_end", "A", "look", "seen 1"),
        ("handoff", "B", "A"),
    ]
    assert target.calls == [
        ("handoff", "B", "A"),
        ("start", "B"),
        ("tool_start", "B", "look"),
        ("tool_end", "B", "look", "seen 2"),
        ("end", "B", "Done."),
    ]


class Handoffs(AgentHooks):
    """Records its handoff calls and their contexts."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    async def on_handoff(self, context: RunContext[Any], agent: Any, source: Any) -> None:
        self.told.append((source.name, agent.name, context.agent))


async def test_handoff_calls_hooks_of_source_and_target() -> None:
    """As in openai-agents, where it is the source's hooks that are called."""
    of_a, of_b = Handoffs(), Handoffs()
    b = agent("B", "B here.", hooks=of_b)
    await Runner.run(agent("A", TO_B, handoffs=[b], hooks=of_a), "Hi")
    assert (of_a.told, of_b.told) == ([("A", "B", "A")], [("A", "B", "B")])


async def test_shared_hooks_are_called_once_per_handoff() -> None:
    both_of = Handoffs()
    b = agent("B", "B here.", hooks=both_of)
    await Runner.run(agent("A", TO_B, handoffs=[b], hooks=both_of), "Hi")
    assert both_of.told == [("A", "B", "A")]


async def test_handoff_to_a_handler_calls_the_agents_hook() -> None:
    of_a = Handoffs()
    voice = ScriptedHandler(["Hello."], name="voice")
    await Runner.run(agent("A", call("transfer_to_voice"), handoffs=[voice], hooks=of_a), "Hi")
    assert of_a.told == [("A", "voice", "A")]


async def test_handoff_hooks_of_both_agents_skills_are_called() -> None:
    told: list[tuple[str, str, str]] = []

    class Notes(Skill):
        @hook("on_handoff")
        async def note(self, context: RunContext[Any], agent: Any, source: Any) -> None:
            told.append((self.name, source.name, agent.name))

    shared = Notes(name="shared")
    b = agent("B", "B here.", skills=[Notes(name="of B"), shared])
    await Runner.run(agent("A", TO_B, handoffs=[b], skills=[Notes(name="of A"), shared]), "Hi")
    assert told == [("of A", "A", "B"), ("shared", "A", "B"), ("of B", "A", "B")]


async def test_run_hooks_precede_agent_hooks_of_a_handoff() -> None:
    order: list[str] = []

    class OfRun(RunHooks):
        async def on_handoff(self, context: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            order.append("run")

    class OfAgent(AgentHooks):
        def __init__(self, name: str) -> None:
            self.name = name

        async def on_handoff(self, context: RunContext[Any], agent: Any, source: Any) -> None:
            order.append(self.name)

    last = lambda snapshot: order.append("received")  # noqa: E731
    b = agent("B", "B here.", hooks=OfAgent("B"), on_handoff_received=last)
    await Runner.run(agent("A", TO_B, handoffs=[b], hooks=OfAgent("A")), "Hi", hooks=OfRun())
    assert order == ["run", "A", "B", "received"]


async def test_tool_hooks_get_the_result_or_the_error() -> None:
    hooks = Recorder()
    await Runner.run(SCENES["siblings"].agent(Stage()), "Hi", hooks=hooks)
    ends = {call_[3]: call_[4] for call_ in hooks.calls if call_[0] == "tool_end"}
    assert ends["x"] == "2"
    assert "broken" in ends["call_1_1"]


async def test_call_without_a_tool_has_no_tool_hooks() -> None:
    """An unknown tool has nothing that could start."""
    hooks = Recorder()
    agent = Agent("A", model=ScriptedHandler([call("nothing"), "Sorry."]), tools=[look])
    await Runner.run(agent, "Hi", hooks=hooks)
    assert not [call_ for call_ in hooks.calls if call_[0].startswith("tool")]


class Seeing(RunHooks):
    """Records the arguments of its hooks."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.replies: list[Any] = []
        self.contexts: list[Any] = []

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Any) -> None:
        self.requests.append(request)

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: Any) -> None:
        self.replies.append(reply)

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        self.contexts.append(context)


async def test_model_hooks_get_the_request_and_the_reply() -> None:
    hooks = Seeing()
    script = ScriptedHandler([call("look", {"at": 1}), "Done."])
    result = await Runner.run(Agent("A", "Be brief.", model=script, tools=[look]), "Hi", hooks=hooks)
    assert [tuple(each.messages) for each in hooks.requests] == [each.messages for each in script.requests]
    assert hooks.replies == result.raw_replies


async def test_tool_hooks_know_the_call() -> None:
    hooks = Seeing()
    script = ScriptedHandler([call("look", {"at": 1}, id="c"), "Done."])
    await Runner.run(Agent("A", model=script, tools=[look]), "Hi", hooks=hooks, context="mine")
    (seen,) = hooks.contexts
    assert (seen.tool_name, seen.tool_call_id, seen.context, seen.turn) == ("look", "c", "mine", 1)


class Broken(RunHooks):
    async def on_agent_start(self, context: RunContext[Any], agent: Any) -> None:
        raise KeyError("start")

    async def on_handoff(self, context: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        raise KeyError("handoff")

    async def on_tool_end(self, context: ToolContext[Any], agent: Any, tool: Any, result: str) -> None:
        raise KeyError("tool")


async def test_a_hook_that_raises_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """The transfer stays on record; the exceptions are on the result and in the log."""
    with caplog.at_level(logging.ERROR, logger="routelock.hooks"):
        result = await Runner.run(SCENES["transfer"].agent(Stage()), "Hi", hooks=Broken())
    assert result.final_output == "B here."
    assert outcome(result.handoffs[0]) == "taken"
    told = [(problem.kind, problem.message) for problem in result.errors]
    assert told == [
        ("hook", "hook on_agent_start raised KeyError: 'start'"),
        ("hook", "hook on_tool_end raised KeyError: 'tool'"),
        ("hook", "hook on_handoff raised KeyError: 'handoff'"),
        ("hook", "hook on_agent_start raised KeyError: 'start'"),
    ]
    assert [record.message for record in caplog.records] == [
        "hook on_agent_start raised",
        "hook on_tool_end raised",
        "hook on_handoff raised",
        "hook on_agent_start raised",
    ]


class Late(RunHooks):
    """Fails before and after each tool, and lets the first one end last."""

    def __init__(self) -> None:
        self.looked = anyio.Event()

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        if tool.name == "wait":
            await self.looked.wait()
        raise KeyError(tool.name)

    async def on_tool_end(self, context: ToolContext[Any], agent: Any, tool: Any, result: str) -> None:
        self.looked.set()
        raise KeyError(tool.name)


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_of_tool_hooks_are_in_the_order_of_calls(stream: bool) -> None:
    wait = replace(look, name="wait")
    other = Agent("other", model=ScriptedHandler(["Fine."])).as_tool()
    calls = [call("other", {"input": "Hi"}), call("wait", {"at": 1}), call("look", {"at": 2})]
    agent = Agent("A", model=ScriptedHandler([calls, "Done."]), tools=[wait, look, other])
    if stream:
        result = await Runner.run_streamed(agent, "Hi", hooks=Late()).drain()
    else:
        result = await Runner.run(agent, "Hi", hooks=Late())
    told = [(each.call_id, each.message.split()[1]) for each in result.errors]
    ids = ["call_1_0", "call_1_1", "call_1_2"]
    assert told == [(id_, hook) for id_ in ids for hook in ("on_tool_start", "on_tool_end")]


class Sync:
    """Hooks may be sync and need no base class; a missing method is recorded as an error."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_agent_start(self, context: Any, agent: Any) -> None:
        self.seen.append(agent.name)


async def test_hooks_may_be_sync() -> None:
    hooks: Any = Sync()
    result = await Runner.run(Agent("A", model=ScriptedHandler(["Hi"])), "Hello", hooks=hooks)
    assert hooks.seen == ["A"]
    assert {problem.kind for problem in result.errors} == {"hook"}


async def test_an_agents_hooks_cannot_watch_a_run() -> None:
    hooks: Any = AgentHooks()
    with pytest.raises(ConfigError, match=r"an AgentHooks belongs to Agent\(hooks=...\)"):
        await Runner.run(Agent("A", model=ScriptedHandler(["Hi"])), "Hello", hooks=hooks)


@pytest.mark.parametrize("hooks", [RunHooks, AgentHooks])
async def test_every_hook_has_a_default_that_does_nothing(hooks: type[Any]) -> None:
    for name, method in inspect.getmembers(hooks(), inspect.iscoroutinefunction):
        arguments = [None] * len(inspect.signature(method).parameters)
        assert await method(*arguments) is None, name


async def test_hooks_may_do_nothing() -> None:
    script = ScriptedHandler([call("look", {"at": 1}), "Done."])
    agent = Agent("A", model=script, tools=[look], hooks=AgentHooks())
    result = await Runner.run(agent, "Hi", hooks=RunHooks())
    assert result.errors == ()
