"""A client that can only say yes or no decides about a question of a tool."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, Runner, tool
from routelock.context import ToolContext
from routelock.serving.dev.conversations import with_verdict
from routelock.testing import ScriptedHandler, call
from routelock.tools import ToolQuestion

pytestmark = pytest.mark.anyio

BRANCH: dict[str, Any] = {"type": "object", "properties": {"branch": {}}, "required": ["branch"]}


@pytest.mark.parametrize(
    ("schema", "approved", "answer"),
    [
        (None, True, (True, "")),
        (None, False, (False, "No.")),
        (BRANCH, True, (False, "The question needs an answer, and this client could only agree.")),
    ],
)
async def test_yes_alone_answers_no_form(schema: Any, approved: bool, answer: tuple[bool, str]) -> None:
    heard: list[tuple[bool, str]] = []

    @tool
    def lend(context: ToolContext) -> Any:
        """Lend a book."""
        if context.answer is None:
            return ToolQuestion(message="Lend it?", schema=schema)
        heard.append((context.answer.approved, context.answer.message))
        return "done"

    agent = Agent("librarian", model=ScriptedHandler([call("lend"), "Done."]), tools=[lend])
    first = await Runner.run(agent, "Hi")
    state = with_verdict(first.state(), first.interruptions[0], approved=approved, message="No.")
    await Runner.run(agent, state)
    assert heard == [answer]
