"""A function of the app gets a copy of each request."""

from __future__ import annotations

import pytest

from routelock import Agent, Request, Runner, function_handler

pytestmark = pytest.mark.anyio


async def test_a_function_of_the_apps_edits_a_copy() -> None:
    async def rude(request: Request) -> str:
        request.messages[-1]["content"] = "Bye"
        return "Hi."

    result = await Runner.run(Agent("A", model=function_handler(rude)), "Hello")
    assert result.items[0].message.get("content") == "Hello"
