"""Runs that several tests repeat under other conditions: streamed, fuzzed, cancelled, replayed.

A scene makes its agents afresh each time, so that nothing but the condition differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio.lowlevel
from pydantic import BaseModel

from routelock import (
    Agent,
    AgentHooks,
    Retry,
    RunConfig,
    RunContext,
    RunHooks,
    RunResult,
    ToolContext,
    function_tool,
    handoff,
)
from routelock.errors import ConnectionFailed, ContextTooLong, InvalidRequest
from routelock.handlers.port import Handler
from routelock.history import Compact
from routelock.history.filters import remove_all_tools
from routelock.testing import ScriptedHandler, call, reply

Kind = Callable[[ScriptedHandler], Handler]
"""What plays the script: the scripted handler itself, or a handler of another kind around it."""

Wait = Callable[[], Any]


@dataclass(slots=True)
class Stage:
    """What a scene is made with, and what its tools leave behind."""

    kind: Kind = lambda handler: handler
    wait: Wait = anyio.lowlevel.checkpoint
    """Awaited by every tool, filter, callback and guardrail of the scene."""
    done: list[str] = field(default_factory=list[str])
    """The side effects of tools, in order."""

    def model(self, name: str, *replies: Any) -> Handler:
        return self.kind(ScriptedHandler(replies, name=name))


@dataclass(frozen=True, slots=True)
class Scene:
    """One run: who answers, under which settings."""

    agent: Callable[[Stage], Agent[Any]]
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_turns: int = 10

    def settings(self, **more: Any) -> RunConfig:
        quick = Retry(sleep=_no_sleep, jitter=lambda: 0.0)
        return RunConfig(**{"run_id": "r", "retry": quick, **self.config, **more})


async def _no_sleep(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


class Weather(BaseModel):
    """A structured final output."""

    city: str
    degrees: int


def tools(stage: Stage) -> list[Any]:
    @function_tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        await stage.wait()
        stage.done.append(f"add {a} {b}")
        return a + b

    @function_tool
    async def fail(why: str) -> str:
        """Fail."""
        await stage.wait()
        stage.done.append(f"fail {why}")
        raise ValueError(why)

    return [add, fail]


def answer(stage: Stage) -> Agent[Any]:
    return Agent("A", "Be brief.", model=stage.model("a", "Hello there,\n  you."))


def one_tool(stage: Stage) -> Agent[Any]:
    model = stage.model("a", reply("Let me see.", calls=[call("add", {"a": 1, "b": 2})]), "It is 3.")
    return Agent("A", model=model, tools=tools(stage))


def siblings(stage: Stage) -> Agent[Any]:
    """Three tools at once, the middle one fails, and the model repeats an id."""
    first = [
        call("add", {"a": 1, "b": 1}, id="x"),
        call("fail", {"why": "broken"}, id="x"),
        call("add", {"a": 2, "b": 2}),
    ]
    return Agent(
        "A", model=stage.model("a", first, call("add", {"a": 3, "b": 3}, id="x"), "Done."), tools=tools(stage)
    )


def mistakes(stage: Stage) -> Agent[Any]:
    """A tool that does not exist beside one that does, then broken JSON."""
    first = [call("ad", {"a": 1}), call("add", {"a": 1, "b": 2})]
    return Agent("A", model=stage.model("a", first, call("add", '{"a": 1,'), "Sorry."), tools=tools(stage))


def transfer(stage: Stage) -> Agent[Any]:
    """A tool and two transfers in one reply."""
    target = Agent("B", "You are B.", model=stage.model("b", "B here."), tools=tools(stage))
    other = Agent("C", model=stage.model("c"))
    first = reply(
        "Over.", calls=[call("transfer_to_b"), call("add", {"a": 1, "b": 2}), call("transfer_to_c")]
    )
    return Agent("A", model=stage.model("a", first), tools=tools(stage), handoffs=[target, other])


def chain(stage: Stage) -> Agent[Any]:
    """There and back again by way of a filter, a nesting and a handler as the target."""
    voice = stage.model("voice", "Bye from the voice.")

    async def on_handoff(context: RunContext[Any]) -> None:
        await stage.wait()

    async def words_only(data: Any) -> Any:
        await stage.wait()
        return remove_all_tools(data)

    b = Agent(
        "B",
        model=stage.model("b", call("add", {"a": 5, "b": 5}), call("transfer_to_a")),
        tools=tools(stage),
        handoffs=[handoff("A", nest_handoff_history=True)],
    )
    model = stage.model("a", call("add", {"a": 1, "b": 2}), call("transfer_to_b"), call("transfer_to_voice"))
    handoffs = [handoff(b, input_filter=words_only, on_handoff=on_handoff), voice]
    return Agent("A", "You are A.", model=model, tools=tools(stage), handoffs=handoffs)


def refused_transfer(stage: Stage) -> Agent[Any]:
    def no(context: RunContext[Any]) -> None:
        raise LookupError("nobody is there")

    b = Agent("B", model=stage.model("b"))
    return Agent(
        "A",
        model=stage.model("a", call("transfer_to_b"), "Then I do it."),
        handoffs=[handoff(b, on_handoff=no)],
    )


def structured(stage: Stage) -> Agent[Any]:
    """Nothing, then something that does not fit, then the answer."""
    model = stage.model("a", reply(""), '{"city": "Rome"}', '{"city": "Rome", "degrees": 21}')
    return Agent("A", model=model, output_type=Weather)


def refusal(stage: Stage) -> Agent[Any]:
    return Agent("A", model=stage.model("a", {"content": "", "refusal": "I would rather not."}))


def silence(stage: Stage) -> Agent[Any]:
    return Agent("A", model=stage.model("a", ""))


def retried(stage: Stage) -> Agent[Any]:
    return Agent(
        "A",
        model=stage.model("a", ConnectionFailed("reset"), call("add", {"a": 1, "b": 2}), "3"),
        tools=tools(stage),
    )


def failing(stage: Stage) -> Agent[Any]:
    return Agent(
        "A", model=stage.model("a", call("add", {"a": 1, "b": 2}), InvalidRequest("no")), tools=tools(stage)
    )


def endless(stage: Stage) -> Agent[Any]:
    model = stage.model("a", *(call("add", {"a": number, "b": 0}) for number in range(9)))
    return Agent("A", model=model, tools=tools(stage))


def pingpong(stage: Stage) -> Agent[Any]:
    b = Agent("B", model=stage.model("b", *[call("transfer_to_a")] * 9), handoffs=["A"])
    return Agent("A", model=stage.model("a", *[call("transfer_to_b")] * 9), handoffs=[b])


def stubborn(stage: Stage) -> Agent[Any]:
    return Agent("A", model=stage.model("a", *[call("add", {"a": 1, "b": 2})] * 9), tools=tools(stage))


def _long(stage: Stage, *last: Any) -> Agent[Any]:
    scribe = Agent("scribe", "Sum up.", model=stage.model("scribe", *map("Part {}.".format, range(9))))
    sums = [call("add", {"a": n, "b": 1}) for n in range(6)]
    compact = Compact(at_messages=6, keep_turns=1, rest=scribe)
    return Agent("A", "You are A.", model=stage.model("a", *sums, *last), tools=tools(stage), compact=compact)


def compacted(stage: Stage) -> Agent[Any]:
    """A long conversation is summarised by another agent."""
    return _long(stage, "Done.")


def too_long(stage: Stage) -> Agent[Any]:
    """It is summarised once more, because the provider refuses it."""
    return _long(stage, ContextTooLong("too long"), call("add", {"a": 9, "b": 9}), "Done.")


SCENES: Mapping[str, Scene] = {
    "answer": Scene(answer),
    "one tool": Scene(one_tool),
    "siblings": Scene(siblings),
    "mistakes": Scene(mistakes),
    "transfer": Scene(transfer),
    "transfers refused": Scene(transfer, {"multiple_handoffs": "reject"}, max_turns=1),
    "chain": Scene(chain),
    "refused transfer": Scene(refused_transfer),
    "structured": Scene(structured),
    "refusal": Scene(refusal),
    "refusal, replaced": Scene(refusal, {"on_refusal": lambda error: f"Sorry: {error.result.refusal}"}),
    "silence": Scene(silence),
    "retried": Scene(retried),
    "failing": Scene(failing),
    "too many turns": Scene(endless, max_turns=3),
    "limit returned": Scene(endless, {"on_limit": "return"}, max_turns=3),
    "ping-pong": Scene(pingpong),
    "same call again": Scene(stubborn),
    "compacted": Scene(compacted),
}


class Recorder(RunHooks):
    """Writes down which hooks were called, in order."""

    def __init__(self, wait: Wait = anyio.lowlevel.checkpoint) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._wait = wait

    async def _note(self, *what: str) -> None:
        self.calls.append(what)
        await self._wait()

    async def on_agent_start(self, context: RunContext[Any], agent: Any) -> None:
        await self._note("agent_start", agent.name)

    async def on_agent_end(self, context: RunContext[Any], agent: Any, output: Any) -> None:
        await self._note("agent_end", agent.name, str(output))

    async def on_handoff(self, context: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        await self._note("handoff", from_agent.name, to_agent.name)

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Any) -> None:
        await self._note("llm_start", agent.name, str(context.turn))

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: Any) -> None:
        await self._note("llm_end", agent.name, str(context.usage.requests))

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        await self._note("tool_start", agent.name, tool.name, context.tool_call_id)

    async def on_tool_end(self, context: ToolContext[Any], agent: Any, tool: Any, result: str) -> None:
        await self._note("tool_end", agent.name, tool.name, context.tool_call_id, result)


class AgentRecorder(AgentHooks):
    """The same for one agent's hooks."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    async def on_start(self, context: RunContext[Any], agent: Any) -> None:
        self.calls.append(("start", agent.name))

    async def on_end(self, context: RunContext[Any], agent: Any, output: Any) -> None:
        self.calls.append(("end", agent.name, str(output)))

    async def on_handoff(self, context: RunContext[Any], agent: Any, source: Any) -> None:
        self.calls.append(("handoff", agent.name, source.name))

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        self.calls.append(("tool_start", agent.name, tool.name))

    async def on_tool_end(self, context: ToolContext[Any], agent: Any, tool: Any, result: str) -> None:
        self.calls.append(("tool_end", agent.name, tool.name, result))


def facts(result: RunResult[Any]) -> dict[str, Any]:
    """Return all that two results must share, as values that can be compared."""
    return {
        "output": result.final_output,
        "refusal": result.refusal,
        "last agent": result.last_agent.name,
        "items": result.items,
        "input list": result.to_input_list(),
        "usage": result.usage,
        "usage by agent": result.usage_by_agent,
        "handoffs": result.handoffs,
        "errors": [replace(problem, error=None) for problem in result.errors],
        "guardrails": result.guardrail_results,
        "repairs": result.repairs,
        "compactions": result.compactions,
        "warnings": result.warnings,
        "calls": [(made, made.messages) for made in result.calls],
        "stop reason": result.stop_reason,
    }
