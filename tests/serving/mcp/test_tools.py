"""Served agents as tools of MCP, and the JSON of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from scripted_agents import agent

from routelock import Agent, ConfigError, RunConfig, Runner, function_tool, handoff
from routelock.handlers.events import MessageDone, TextDelta
from routelock.run.events import AgentUpdated, HandoffOccurred, NestedEvent, ToolCalled
from routelock.serving import MCP
from routelock.serving.catalog import Catalog
from routelock.serving.errors import Refusal, closing
from routelock.serving.mcp.tool_calls import can_serve
from routelock.serving.mcp.tools import ServedTool, json_rpc_refusal, progress_text, question, served_tools
from routelock.testing.scripted import ScriptedReply
from routelock.tools.approvals import Interruption


@dataclass
class Order:
    """What an agent is asked or answers."""

    number: int


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}"


def tools_of(*agents: Agent[Any], **settings: Any) -> dict[str, ServedTool]:
    return {**served_tools(Catalog(agents, RunConfig()), MCP(**settings))}


def test_an_agent_is_a_tool_that_takes_a_text() -> None:
    [tool] = tools_of(agent("Refund Agent", handoff_description="Pays back.", tools=[look_up])).values()
    told = tool.definition
    assert (told["name"], told["title"]) == ("refund_agent", "Refund Agent")
    assert told["description"] == "Ask the Refund Agent agent. Pays back."
    assert (told["inputSchema"]["required"], "outputSchema" in told) == (["input"], False)
    assert "look_up" not in str(told)


def test_an_input_type_is_the_schema_of_the_arguments() -> None:
    tool = tools_of(agent("A"), agent("B"), input_types={"A": Order})["a"]
    assert list(tool.definition["inputSchema"]["properties"]) == ["number"]
    assert tool.read({"number": 7}) == '{"number":7}'


@pytest.mark.parametrize("arguments", [None, {"input": 7}, {"input": " "}, {"number": 1}])
def test_arguments_that_do_not_fit_are_refused(arguments: Any) -> None:
    with pytest.raises(Refusal, match="input") as raised:
        tools_of(agent("A"))["a"].read(arguments)
    assert raised.value.status == 400


def test_two_agents_with_the_same_tool_name_are_an_error() -> None:
    with pytest.raises(ConfigError, match="'A-B' and 'a b' are the same MCP tool, 'a_b'; rename one"):
        tools_of(agent("A-B"), agent("a b"))


def test_an_input_type_of_an_unknown_agent_is_an_error() -> None:
    with pytest.raises(ConfigError, match="input_types names 'B', which is not a served agent"):
        tools_of(agent("A"), input_types={"B": Order})


def test_the_schema_of_an_output_is_told_if_every_agent_has_it() -> None:
    other = agent("C", output_type=Order)
    same = tools_of(agent("A", output_type=Order, handoffs=[handoff(other)]))["a"]
    differs = tools_of(agent("B", output_type=Order, handoffs=[handoff(agent("D"))]))["b"]
    assert list(same.definition["outputSchema"]["properties"]) == ["number"]
    assert "outputSchema" not in differs.definition


async def answered(tool: ServedTool) -> dict[str, Any]:
    return tool.answer(await Runner.run(tool.served.agent, "Hi"), "said", "stop")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("reply", "kind", "data"),
    [('{"number": 7}', Order, {"number": 7}), ('{"response": [1]}', list[int], {"response": [1]})],
)
async def test_an_output_is_structured_content(reply: str, kind: Any, data: Any) -> None:
    body = await answered(tools_of(agent("A", reply, output_type=kind))["a"])
    assert body["structuredContent"] == data
    assert body["content"] == [{"type": "text", "text": "said"}]


@pytest.mark.anyio
async def test_a_result_tells_the_agent_and_the_usage() -> None:
    about = (await answered(tools_of(agent("A", "Hi."))["a"]))["_meta"]
    assert about["routelock/agent"] == "A"
    assert about["routelock/usage"]["totalTokens"] == 15


REFUSED: Sequence[tuple[Refusal, int]] = [
    (Refusal(400, "No.", "invalid_json"), -32700),
    (Refusal(413, "No.", "body_too_large"), -32600),
    (Refusal(401, "No.", "invalid_api_key"), -32000),
    (closing(), -32603),
]


@pytest.mark.parametrize(("refusal", "code"), REFUSED)
def test_a_refusal_is_an_error_of_json_rpc(refusal: Refusal, code: int) -> None:
    body = json_rpc_refusal(refusal, "r1")
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, code)
    assert body["error"]["data"] == {"code": refusal.code, "requestId": "r1"}


def test_a_question_hides_nothing_of_the_arguments() -> None:
    """A line end would move them out of sight, and some characters show text in another order."""
    written = '{"to":\n\n\n"\u202e\u200b\U0001f600"}'
    one = Interruption(run_id="r", call_id="c", agent="A", name="pay", arguments=written)
    assert question(one)["message"].endswith('arguments? {"to":   "\\u202e\\u200b\U0001f600"}')


TOLD = {
    "A is active": AgentUpdated("A"),
    "the model has replied": MessageDone(message={"role": "assistant", "content": "Hi"}),
    "calls look_up": ToolCalled(agent="A", call_id="1", name="look_up", arguments='{"secret": 1}'),
    "A hands over to B": HandoffOccurred(source="A", target="B", call_id="1"),
    "A > B: B is active": NestedEvent(path=("A", "B"), call_ids=("1",), event=AgentUpdated("B")),
    "": TextDelta("Hi"),
}


@pytest.mark.parametrize("text", TOLD)
def test_progress_names_agents_turns_tools_and_handoffs(text: str) -> None:
    assert progress_text(TOLD[text]) == text


FILES: Sequence[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ),
    (
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    ),
    (
        {"type": "file", "file": {"filename": "a b.txt", "file_data": "data:text/plain;base64,aGk="}},
        {
            "type": "resource",
            "resource": {"uri": "routelock:made/a%20b.txt", "mimeType": "text/plain", "blob": "aGk="},
        },
    ),
    (
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {
            "type": "resource_link",
            "uri": "https://x.example/a.png",
            "name": "https://x.example/a.png",
            "mimeType": "image/png",
        },
    ),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("media", "block"), FILES)
async def test_a_file_that_a_model_made_is_content(media: dict[str, Any], block: dict[str, Any]) -> None:
    message: Any = {"role": "assistant", "content": [{"type": "text", "text": "Here."}, media]}
    body = await answered(tools_of(agent("A", ScriptedReply(message=message)))["a"])
    assert body["content"][1:] == [block]


@pytest.mark.anyio
async def test_images_in_a_key_of_their_own_are_content() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    message: Any = {"role": "assistant", "content": "Here.", "images": [image]}
    body = await answered(tools_of(agent("A", ScriptedReply(message=message)))["a"])
    assert [block["type"] for block in body["content"]] == ["text", "image"]


@pytest.mark.anyio
async def test_a_file_that_only_its_vendor_has_is_no_content() -> None:
    message: Any = {"role": "assistant", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}
    body = await answered(tools_of(agent("A", ScriptedReply(message=message)))["a"])
    assert len(body["content"]) == 1


@pytest.mark.parametrize(
    ("sdk", "can"), [("1.24.0", False), ("2.1.1", False), ("2.2.0rc1", True), ("2.10.0", True)]
)
def test_an_sdk_that_bounds_no_sessions_cannot_serve(sdk: str, can: bool) -> None:
    assert can_serve(sdk) is can
