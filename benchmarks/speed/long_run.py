"""A run of many turns with a model that has a small window and refuses what is too long."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import anyio

from routelock import Agent, RunConfig, Runner, RunResult, Usage, tool
from routelock.errors import ContextTooLong
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.port import Request
from routelock.history import Compact

__all__ = ["WINDOW", "long_runs"]


WINDOW = 32_000
"""Tokens that the model takes."""

AT = 24_000
"""Tokens above which the view is compacted."""

_PAGE = "x" * 800


@tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: {_PAGE}"


def _summary(messages: list[Any]) -> str:
    return f"There were {len(messages)} messages."


class _Model:
    """Counts four bytes as a token, and calls a tool in each turn but the last."""

    name = "window"

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.most = 0
        self.refused = 0
        self.spent: list[float] = []
        """CPU seconds of the run when each call began, without those of the model."""
        self._own = 0.0

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        began = time.process_time()
        self.spent.append(began - self._own)
        try:
            done = self._reply(request)
        finally:
            self._own += time.process_time() - began
        yield done

    def _reply(self, request: Request) -> MessageDone:
        tokens = sum(len(json.dumps(each)) for each in (*request.messages, *request.tools)) // 4
        if tokens > WINDOW:
            self.refused += 1
            raise ContextTooLong(f"{tokens} tokens are more than {WINDOW}")
        self.most = max(self.most, tokens)
        number = len(self.spent)
        message: Any = {"role": "assistant", "content": "Done."}
        if number < self.turns:
            function = {"name": "read", "arguments": json.dumps({"page": number})}
            calls = [{"id": f"c{number}", "type": "function", "function": function}]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        usage = Usage(requests=1, input_tokens=tokens, output_tokens=20)
        return MessageDone(message=message, usage=usage)


def _run(turns: int, compact: Compact) -> tuple[_Model, RunResult[Any]]:
    model = _Model(turns)
    agent = Agent("reader", "You read.", model=model, tools=[read])

    async def go() -> RunResult[Any]:
        return await Runner.run(agent, "Read.", max_turns=None, run_config=RunConfig(compact=compact))

    return model, anyio.run(go)


def long_runs(turns: int) -> str:
    """Return a table in Markdown: what a run of so many turns costs, by what becomes of old messages."""
    what = f"{turns:,} turns, {WINDOW:,} tokens"
    lines = [f"| {what} | first half | second half | compacted | most tokens | refused |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for name, rest in (("dropped", "drop"), ("cut", "cut"), ("summarised", _summary)):
        model, result = _run(turns, Compact(at_tokens=AT, rest=rest))
        assert result.final_output == "Done."
        half = len(model.spent) // 2
        halves = (model.spent[half] - model.spent[0]) / half, (model.spent[-1] - model.spent[half]) / half
        times = " | ".join(f"{seconds * 1e6:.0f} µs" for seconds in halves)
        lines.append(
            f"| {name} | {times} | {len(result.compactions)} times | {model.most:,} | {model.refused} |"
        )
    return "\n".join(lines)
