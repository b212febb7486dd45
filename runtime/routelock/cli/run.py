"""``routelock run module:agent "text"``: one run, its output on stdout."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pydantic_core import to_jsonable_python

from routelock._text import escape_control
from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE, WAITS, code_of
from routelock.cli.options import (
    RunOptions,
    close_litellm,
    declare_agent,
    declare_run,
    declare_trace,
    ready_litellm,
    run_options,
    written_names,
)
from routelock.cli.screen import EventPrinter, PlainScreen, Waiting, bounded, call_arguments, error_line
from routelock.errors import ConfigError, RoutelockError
from routelock.run.events import AgentUpdated, RunEvent, ToolCalled
from routelock.run.result import RunResult
from routelock.runner import Runner

__all__ = ["run_command"]


_MOST_NAMED = 3
"""How many waiting calls are named; ``--json`` has all."""


def _declare(command: argparse.ArgumentParser) -> None:
    declare_agent(command)
    add = command.add_argument
    add("text", nargs="?", help="the message; without it, or with -, stdin is read")
    add("--json", action="store_true", help="print the whole result as JSON, also of a failed run")
    add("--steps", action="store_true", help="print tool calls, handoffs and retries on stderr")
    declare_run(command)
    declare_trace(command)
    command.set_defaults(stream=True)  # `routelock replay` may change this default


def _run(given: argparse.Namespace) -> int:
    options = run_options(given)
    text = _text(given.text)
    ready_litellm(options)
    if given.steps and not given.stream:
        sys.stderr.write("routelock: No steps are shown, because the recording is not streamed.\n")
    try:
        answer = _answer(options, text, steps=given.steps) if given.stream else _whole_answer(options, text)
        result = asyncio.run(answer)
    except RoutelockError as error:
        if not given.json or error.result is None:
            raise
        _print(_document(error.result, error))
        return code_of(error)
    waits = [*_waiting(result)]
    if given.json:
        _print(_document(result, None))
    elif not waits:
        _print(_output(result.final_output))
    for line in waits:
        sys.stderr.write(f"routelock: {line}\n")
    return WAITS if waits else DONE


def _text(given: str | None) -> str:
    if given not in (None, "-"):
        return str(given)
    if sys.stdin.isatty():
        raise ConfigError("There is no message for the agent: give a text, or send one through a pipe.")
    text = sys.stdin.read()
    if not text.strip():
        raise ConfigError("There is no message for the agent: stdin was empty.")
    return text


async def _answer(options: RunOptions, text: str, *, steps: bool) -> RunResult[Any]:
    stream = Runner.run_streamed(
        options.agent,
        text,
        context=options.context,
        max_turns=options.max_turns,
        run_config=options.config,
    )
    printer = _printer(options) if steps else None
    try:
        with Waiting(f"{bounded(options.agent.name, 80)} answers") as waiting:
            async with stream:
                async for event in stream:
                    if what := _step_text(event):
                        waiting.change(what)
                    if printer is not None:
                        printer.print(event)
        return stream.result
    finally:
        await close_litellm()


async def _whole_answer(options: RunOptions, text: str) -> RunResult[Any]:
    """Run without streaming."""
    try:
        with Waiting(f"{bounded(options.agent.name, 80)} answers"):
            return await Runner.run(
                options.agent,
                text,
                context=options.context,
                max_turns=options.max_turns,
                run_config=options.config,
            )
    finally:
        await close_litellm()


def _printer(options: RunOptions) -> EventPrinter:
    return EventPrinter(PlainScreen(sys.stderr), replies=False, names=written_names(options))


def _step_text(event: RunEvent) -> str | None:
    if isinstance(event, AgentUpdated):
        return f"{bounded(event.agent, 80)} answers"
    return f"{bounded(event.name, 80)} runs" if isinstance(event, ToolCalled) else None


def _waiting(result: RunResult[Any]) -> Iterator[str]:
    """Yield a line for calls that wait for approval, and one for external calls."""
    calls = [f"{bounded(one.agent, 80)}'s {_call(one.name, one.arguments)}" for one in result.interruptions]
    if calls:
        wait, were = ("waits", "was") if len(calls) == 1 else ("wait", "were")
        yield f"{_listed(calls)} {wait} for approval, and {were} not made; use routelock chat to approve."
    own = [_call(call["function"]["name"], call["function"]["arguments"]) for call in result.pending]
    if own:
        wait = "waits" if len(own) == 1 else "wait"
        yield f"{_listed(own)} {wait} for a result of the app: see RunResult.pending."


def _call(name: str, arguments: str) -> str:
    return f"{bounded(name, 80)}({call_arguments(arguments, 100)})"


def _listed(calls: Sequence[str]) -> str:
    more = f" and {len(calls) - _MOST_NAMED} more" if len(calls) > _MOST_NAMED else ""
    return ", ".join(calls[:_MOST_NAMED]) + more


def _output(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _as_json(value)


def _print(text: str) -> None:
    """Print a result; in a terminal with its control characters escaped."""
    sys.stdout.write((escape_control(text) if sys.stdout.isatty() else text) + "\n")


def _document(result: RunResult[Any], error: RoutelockError | None) -> str:
    handoffs = [
        {"source": each.source, "target": each.target, "status": each.status, "reason": each.reason}
        for each in result.handoffs
    ]
    document = {
        "final_output": result.final_output,
        "stop_reason": result.stop_reason,
        "error": error and {"type": type(error).__name__, "message": error_line(error)},
        "last_agent": result.last_agent.name,
        "next_agent": result.next_agent.name,
        "usage": asdict(result.usage),
        "usage_by_agent": {name: asdict(usage) for name, usage in result.usage_by_agent.items()},
        "handoffs": handoffs,
        "problems": [f"{each.agent}, turn {each.turn}: {each.message}" for each in result.errors],
        "warnings": result.warnings,
        "repairs": result.repairs,
        "interruptions": [
            {
                "agent": each.agent,
                "name": each.name,
                "arguments": each.arguments,
                "call_id": each.call_id,
                **({} if each.question is None else {"question": each.question.message}),
            }
            for each in result.interruptions
        ],
        "pending": result.pending,
        "messages": result.to_input_list(),
    }
    return _as_json(document)


def _as_json(value: Any) -> str:
    plain: Any = to_jsonable_python(value, fallback=str, inf_nan_mode="strings")
    return json.dumps(plain, ensure_ascii=False, indent=2)


run_command: Command = Command(
    name="run",
    help="Run an agent once and print its final output.",
    declare=_declare,
    run=_run,
    more="""examples:
  routelock run app:agent "Where is my lamp?"
  routelock run app:agent < letter.txt
  routelock run app:agent "Hi" --json | jq .usage
  routelock run app:agent "Hi" --steps --model ollama/qwen3""",
)
