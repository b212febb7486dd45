"""The tool searches of vendors through litellm: what is sent, and calls of tools that the vendor found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from answers import Answers
from litellm_answers import served
from servers import Reply
from vendor_tool_replies import CALL, CITED, FUNCTION_CALL, SAID, claude, responses

from routelock import Agent, Runner, RunResult, tool
from routelock.errors import ConfigError
from routelock.tools import ToolSearch
from routelock_providers.litellm.handler import LiteLLM

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

CLAUDE, RESPONSES = "anthropic/claude-sonnet-4-6", "openai/responses/gpt-5.4"
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

# platform.claude.com, "Tool search tool"
SEARCHED: dict[str, Any] = {
    "type": "server_tool_use",
    "id": "srvtoolu_9",
    "name": "tool_search_tool_bm25",
    "input": {"query": "double"},
}
FOUND: dict[str, Any] = {
    "type": "tool_search_tool_result",
    "tool_use_id": "srvtoolu_9",
    "content": {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "double"}],
    },
}
# developers.openai.com, "Tool search"
SEARCH_CALL: dict[str, Any] = {
    "type": "tool_search_call",
    "id": "tsc_1",
    "execution": "server",
    "call_id": None,
    "status": "completed",
    "arguments": {"paths": ["double"]},
}
SEARCH_OUTPUT: dict[str, Any] = {
    "type": "tool_search_output",
    "id": "tso_1",
    "execution": "server",
    "call_id": None,
    "status": "completed",
    "tools": [{"type": "function", "name": "double", "defer_loading": True}],
}


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(deferred=False)
def near() -> str:
    """Stay."""
    return ""


async def run(server: Answers, model: str, *, stream: bool = False) -> RunResult[Any]:
    handler = LiteLLM(model, api_base=server.url, api_key="test-not-a-key")
    search = ToolSearch(by="vendor", defer_over=1)
    agent = Agent("A", model=handler, tools=[double, near], tool_search=search)
    if not stream:
        return await Runner.run(agent, "Hi")
    running = Runner.run_streamed(agent, "Hi")
    async for _ in running:
        pass
    return running.result


@BOTH
@pytest.mark.parametrize(
    ("model", "answer", "first", "last"),
    [
        (CLAUDE, claude, [SEARCHED, FOUND, CALL], CITED),
        (RESPONSES, responses, [SEARCH_CALL, SEARCH_OUTPUT, FUNCTION_CALL], SAID),
    ],
    ids=["claude", "responses"],
)
async def test_a_tool_that_the_vendor_found_is_called(
    model: str, answer: Callable[..., Reply], first: Sequence[Any], last: Any, stream: bool
) -> None:
    async with served(answer(first, stream=stream), answer([last], stream=stream)) as server:
        result = await run(server, model, stream=stream)
    assert [each.message.get("content") for each in result.items if each.kind == "tool"] == ["4"]
    assert result.errors == ()
    body = server.requests[1].body
    sent = body.get("input") or [item for turn in body["messages"] for item in turn["content"]]
    types = [item.get("type") for item in sent if isinstance(item, dict)]
    assert {item["type"] for item in first} <= {*types}, "the vendor gets its own items back"


async def test_claude_is_sent_its_search_and_the_tools_that_it_defers() -> None:
    async with served(claude([CITED])) as server:
        await run(server, CLAUDE)
    [seen] = server.requests
    near_tool, search, deferred = seen.body["tools"]
    assert near_tool["name"] == "near"
    assert "defer_loading" not in near_tool
    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert deferred["name"] == "double"
    assert deferred["defer_loading"] is True
    assert deferred["input_schema"]["required"] == ["number"]
    headers = {key.lower(): value for key, value in seen.headers.items()}
    assert "advanced-tool-use-2025-11-20" in headers["anthropic-beta"]


async def test_the_responses_api_is_sent_its_search_and_the_tools_that_it_defers() -> None:
    async with served(responses([SAID])) as server:
        await run(server, RESPONSES)
    near_tool, search, deferred = server.requests[0].body["tools"]
    assert near_tool["name"] == "near"
    assert search == {"type": "tool_search"}
    assert (deferred["type"], deferred["name"], deferred["defer_loading"]) == ("function", "double", True)


@pytest.mark.parametrize(
    "model", ["gemini/gemini-3-flash-preview", "mistral/mistral-large-latest", "openai/gpt-5.4"]
)
async def test_a_vendor_without_a_search_is_not_asked(model: str) -> None:
    async with served() as server:
        with pytest.raises(ConfigError, match="'tool_search' does not exist on"):
            await run(server, model)
        assert server.requests == []
