"""Running recorded calls through `Runner.run` and `Runner.run_streamed`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio

from replay.offline import DUMMY_KEY
from replay.recordings import Call
from routelock import Agent, ConfigError, Retry, RoutelockError, RunConfig, Runner, Tool, ToolContext
from routelock.handlers.events import MessageDone, TextDelta
from routelock.history.messages import calls_of
from routelock.run.result import RunResult
from routelock_providers.litellm.handler import LiteLLM

__all__ = ["Outcome", "run_chain", "run_single"]

Json = dict[str, Any]


@dataclass
class Outcome:
    """What came of one recorded call."""

    reply: MessageDone | None = None
    error: Exception | None = None
    shown: str | None = None
    """The text as it was streamed; None for a call that was not."""


@dataclass
class _Outputs:
    """The recorded results of the tools, handed out in order."""

    waiting: list[Json] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)
    """Calls that no recorded result answers."""

    def take(self, name: str, arguments: str) -> str:
        given = json.loads(arguments or "{}")
        same = [one for one in self.waiting if one["name"] == name]
        exact = [one for one in same if one.get("arguments") == given]
        if not same:
            self.asked_for.append(_written({"function": {"name": name, "arguments": arguments}}))
            return "not recorded"
        chosen = (exact or same)[0]
        self.waiting.remove(chosen)
        output = chosen["output"]
        return output if isinstance(output, str) else json.dumps(output)


async def run_single(call: Call) -> Outcome:
    """Make one call in a run of its own; its tools are declared and their results go nowhere."""
    agent = _agent(call, _Outputs())
    replies, shown, error = await _run(agent, call, turns=1)
    return Outcome(reply=replies[0] if replies else None, error=error, shown=shown[0] if shown else None)


async def run_chain(calls: Sequence[Call], tool_outputs: Sequence[Json]) -> list[Outcome]:
    """Make all the calls in one run, whose tools return what was recorded."""
    outputs = _Outputs(waiting=list(tool_outputs))
    agent = _agent(calls[0], outputs)
    replies, shown, error = await _run(agent, calls[0], turns=len(calls))
    outcomes = [Outcome(reply=reply) for reply in replies]
    if len(outcomes) < len(calls):
        outcomes.append(Outcome(error=error))
    for outcome, text in zip(outcomes, shown, strict=False):
        outcome.shown = text
    # nobody recorded results for the calls of the last reply: they belong to a turn that never came
    last = {_written(call) for call in calls_of(replies[-1].message)} if replies else set()
    if unanswered := [written for written in outputs.asked_for if written not in last]:
        told = ", ".join(unanswered)
        outcomes[-1].error = AssertionError(f"tools were called that the recording does not answer: {told}")
    return outcomes


def _written(call: Mapping[str, Any]) -> str:
    return f"{call['function']['name']}({call['function']['arguments']})"


async def _run(
    agent: Agent[Any], call: Call, *, turns: int
) -> tuple[list[MessageDone], list[str], Exception | None]:
    """The one place that knows how a run is started."""
    config = RunConfig(
        retry=Retry(attempts=call.attempts, sleep=_at_once),
        on_limit="return",
        detect_loops=False,
        max_mistakes=1000,
    )
    messages: Any = list(call.messages)
    try:
        if call.stream:
            return await _streamed(agent, messages, turns, config)
        result = await Runner.run(agent, messages, max_turns=turns, run_config=config)
        return result.raw_replies, [], None
    except RoutelockError as error:
        partial: RunResult[Any] | None = error.result
        return partial.raw_replies if partial else [], [], error


async def _streamed(
    agent: Agent[Any], messages: Any, turns: int, config: RunConfig
) -> tuple[list[MessageDone], list[str], Exception | None]:
    shown = [""]
    stream = Runner.run_streamed(agent, messages, max_turns=turns, run_config=config)
    try:
        async with stream, aclosing(aiter(stream)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, TextDelta):
                    shown[-1] += event.text
                elif isinstance(event, MessageDone):
                    shown.append("")
    except RoutelockError as error:
        partial: RunResult[Any] | None = error.result
        return partial.raw_replies if partial else [], shown, error
    return stream.result.raw_replies, shown[:-1], None


def _agent(call: Call, outputs: _Outputs) -> Agent[Any]:
    tools, others = [], []
    for spec in call.tools:
        try:
            tools.append(_tool(spec["function"], outputs))
        except (KeyError, ConfigError):  # a vendor's own tool, or a name that routelock does not take
            others.append(spec)
    settings = dict(call.settings)
    if call.tool_choice is not None and call.tools:
        settings["tool_choice"] = _choice(call.tool_choice)
    return Agent("recorded", model=_handler(call, others), tools=tools, model_settings=settings)


def _handler(call: Call, tools: Sequence[Json]) -> LiteLLM:
    """Return the model, with the vendor's own tools."""
    connect = {**call.connect, **({"tools": tools} if tools else {})}
    base = connect.pop("api_base", None)
    key = None if call.model.startswith("bedrock/") else connect.pop("api_key", DUMMY_KEY)
    return LiteLLM(call.model, api_key=key, api_base=base, settings=connect, timeout=60.0)


def _tool(function: Json, outputs: _Outputs) -> Tool:
    def answer(context: ToolContext[Any], arguments: str) -> str:
        return outputs.take(function["name"], arguments)

    return Tool(
        name=function["name"],
        description=function.get("description") or "",
        params_json_schema=function.get("parameters") or {},
        on_invoke_tool=answer,
        strict=False,
    )


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return choice["function"].get("name")
    return choice


async def _at_once(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()
