"""Payments that wait for approval, and runs whose state goes through JSON on the way."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, Runner, RunResult, RunState, Tool, tool
from routelock.testing import call

PAY = call("pay", {"amount": 5}, id="p")

WATCHED = pytest.mark.parametrize("watched", [False, True], ids=["plain", "streamed"])


class Till:
    """Counts what is paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def tool(self, **options: Any) -> Tool:
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        return tool(needs_approval=options.pop("needs_approval", True), **options)(pay)


def pay() -> str:
    """Pay."""
    return "paid"


async def run(starting: Agent[Any], input: Any, watched: bool = False, **options: Any) -> RunResult[Any]:
    """A run whose state goes through JSON, watched or not."""
    if isinstance(input, RunState):
        input = RunState.from_json(input.to_json(), agents=[starting])
    if not watched:
        return await Runner.run(starting, input, **options)
    return await Runner.run_streamed(starting, input, **options).drain()
