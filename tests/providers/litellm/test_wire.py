"""Vendors' own tools through litellm: what is sent, what comes back, and what goes back to whom."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from answers import Answers
from litellm_answers import served
from servers import Reply
from vendor_tool_replies import (
    CALL,
    CITED,
    CLAUDE_BLOCKS,
    CODE_CALL,
    FOUND,
    FUNCTION_CALL,
    GEMINI_CALL,
    GEMINI_PARTS,
    GROUNDING,
    SAID,
    SEARCHED,
    THOUGHT,
    WEB_CALL,
    claude,
    gemini,
    responses,
)

from routelock import Agent, Runner, RunResult
from routelock.errors import ConfigError
from routelock.handlers.events import TextDelta
from routelock.history.messages import Message
from routelock.testing import ScriptedHandler
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.wire import WireChanges, own_turns, paused_turn, turns_in
from routelock_providers.vendor_tools import AddedTools

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

CLAUDE, GEMINI, RESPONSES = (
    "anthropic/claude-sonnet-4-6",
    "gemini/gemini-3-flash-preview",
    "openai/responses/gpt-5",
)
SEARCH: Any = {"type": "web_search"}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

Answer = Callable[..., Reply]

TURNS: Mapping[str, tuple[Answer, Sequence[Any]]] = {
    CLAUDE: (claude, [THOUGHT, *CLAUDE_BLOCKS]),
    RESPONSES: (responses, [WEB_CALL, CODE_CALL, SAID]),
    GEMINI: (gemini, GEMINI_PARTS),
}
"""Of each API: how it answers, and a turn in which its own tools ran."""


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def agent_at(server: Answers, model: str, tools: Sequence[Any] = (SEARCH,), **more: Any) -> Agent[Any, Any]:
    handler = LiteLLM(model, api_base=server.url, api_key="test-not-a-key")
    return Agent("A", model=handler, tools=tools, **more)


async def run(agent: Agent[Any, Any], asked: Any, *, stream: bool) -> RunResult[Any]:
    if not stream:
        return await Runner.run(agent, asked)
    running = Runner.run_streamed(agent, asked)
    shown = "".join([event.text async for event in running if isinstance(event, TextDelta)])
    assert shown.endswith(running.result.final_output)
    return running.result


def sent_back(body: Mapping[str, Any]) -> list[Any]:
    """Return the vendor's items of the assistant turns in a request."""
    if "input" in body:
        return [item for item in body["input"] if item.get("role") != "user" and "output" not in item]
    turns = [
        each for each in body.get("messages") or body["contents"] if each["role"] in ("assistant", "model")
    ]
    return [item for turn in turns for item in turn.get("content") or turn["parts"]]


@BOTH
@pytest.mark.parametrize("model", TURNS)
async def test_a_turn_goes_back_whole_to_the_api_that_wrote_it(model: str, stream: bool) -> None:
    answer, items = TURNS[model]
    async with served(answer(items, stream=stream), answer(items)) as server:
        agent = agent_at(server, model)
        first = await run(agent, "Does it rain?", stream=stream)
        await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "And now?"}])
    expected = [{k: v for k, v in item.items() if k != "action"} for item in items]
    assert [
        {k: v for k, v in item.items() if k != "action"} for item in sent_back(server.requests[1].body)
    ] == expected


@pytest.mark.parametrize("model", TURNS)
async def test_a_streamed_reply_is_the_same_message_as_a_whole_one(model: str) -> None:
    answer, items = TURNS[model]
    more: Any = {"groundingMetadata": GROUNDING} if model == GEMINI else {}
    async with served(answer(items, **more), answer(items, stream=True, **more)) as server:
        agent = agent_at(server, model)
        plain, streamed = [await run(agent, "Hi", stream=stream) for stream in (False, True)]
    assert streamed.items[-1].message == plain.items[-1].message


@pytest.mark.parametrize("model", TURNS)
async def test_another_vendor_is_told_what_the_tools_did(model: str) -> None:
    answer, items = TURNS[model]
    async with served(answer(items)) as server:
        result = await Runner.run(agent_at(server, model), "Does it rain?")
    other = ScriptedHandler(["Yes."], family="other")
    await Runner.run(
        Agent("B", model=other), [*result.to_input_list(), {"role": "user", "content": "And now?"}]
    )
    told = other.requests[0].messages[1]
    assert told.keys() == {"role", "content"}
    assert "(Tools of the provider ran for this answer." in str(told.get("content"))


async def test_a_turn_of_claude_is_told_to_claude_on_another_api() -> None:
    message: Any = {"role": "assistant", "content": "Yes.", "vendor_calls": [{"tool": "web_search"}]}
    message["vendor_items"] = {"api": "anthropic", "items": [SEARCHED]}
    [told], items = own_turns([message], "chat")
    assert not items
    assert told.keys() == {"role", "content"}


@BOTH
async def test_claude_cites_passages_of_the_text(stream: bool) -> None:
    async with served(claude(CLAUDE_BLOCKS, stream=stream)) as server:
        result = await run(agent_at(server, CLAUDE), "Hi", stream=stream)
    [citation] = result.citations
    assert result.final_output == "So: It rains."
    assert result.final_output[citation.start : citation.end] == CITED["text"]
    assert (citation.url, citation.title, citation.quote) == ("https://a.example", "A", "rain")


async def test_google_cites_by_bytes_and_the_result_by_characters() -> None:
    found = {
        **GROUNDING,
        "groundingSupports": [{"segment": {"startIndex": 3, "endIndex": 7}, "groundingChunkIndices": [0]}],
    }
    async with served(gemini([{"text": "Où rain"}], groundingMetadata=found)) as server:
        result = await Runner.run(agent_at(server, GEMINI), "Hi")
    [citation] = result.citations
    assert result.final_output[citation.start : citation.end] == " rai"


@BOTH
@pytest.mark.parametrize(
    ("model", "answer", "items", "expected"),
    [
        (CLAUDE, claude, [*CLAUDE_BLOCKS, CALL], [*CLAUDE_BLOCKS, CALL]),
        (RESPONSES, responses, [WEB_CALL, FUNCTION_CALL], [None, FUNCTION_CALL]),
        (GEMINI, gemini, [*GEMINI_PARTS[:2], GEMINI_CALL], [*GEMINI_PARTS[:2], GEMINI_CALL]),
    ],
    ids=["claude", "responses", "gemini"],
)
async def test_functions_beside_a_vendors_tool_are_called_and_answered(
    model: str, answer: Answer, items: Any, expected: Any, stream: bool
) -> None:
    last = {CLAUDE: CITED, RESPONSES: SAID, GEMINI: {"text": "4"}}[model]
    async with served(answer(items, stream=stream), answer([last], stream=stream)) as server:
        result = await run(agent_at(server, model, [double, SEARCH]), "Hi", stream=stream)
    assert [each.message.get("content") for each in result.items if each.kind == "tool"] == ["4"]
    assert result.errors == ()
    back = sent_back(server.requests[1].body)
    assert [item if want else None for item, want in zip(back, expected, strict=True)] == expected


@BOTH
async def test_a_paused_turn_goes_on_by_itself(stream: bool) -> None:
    paused = claude([SEARCHED], stop="pause_turn", stream=stream, container={"id": "c1"})
    async with served(paused, claude([FOUND, CITED], stream=stream)) as server:
        result = await run(agent_at(server, CLAUDE), "Hi", stream=stream)
    assert result.final_output == "It rains"
    assert [call.tool for call in result.vendor_calls] == ["web_search"]
    assert len(result.vendor_calls[0].sources) == 1
    assert result.usage.requests == 2
    again = server.requests[1].body
    assert again["messages"][-1] == {"role": "assistant", "content": [SEARCHED]}
    assert again["container"] == "c1"


async def test_a_turn_that_never_ends_is_ended_after_some_calls() -> None:
    async with served(claude([SEARCHED, FOUND], stop="pause_turn")) as server:
        result = await Runner.run(agent_at(server, CLAUDE), "Hi")
    assert len(server.requests) == 20
    assert result.raw_replies[0].finish_reason == "pause_turn"


async def test_headers_and_tools_reach_anthropic() -> None:
    async with served(claude([CITED])) as server:
        await Runner.run(agent_at(server, CLAUDE, [double, SEARCH, {"type": "code_execution"}]), "Hi")
    [seen] = server.requests
    assert [tool["name"] for tool in seen.body["tools"]] == ["double", "web_search", "code_execution"]
    assert (
        "code-execution-2025-08-25" in {key.lower(): v for key, v in seen.headers.items()}["anthropic-beta"]
    )


async def test_a_forced_tool_is_forced_in_the_first_call_only() -> None:
    async with served(claude([CALL]), claude([CITED])) as server:
        settings: Any = {"tool_choice": "web_search"}
        await Runner.run(agent_at(server, CLAUDE, [double, SEARCH], model_settings=settings), "Hi")
    choices = [request.body.get("tool_choice") for request in server.requests]
    assert choices == [{"type": "tool", "name": "web_search"}, None]


async def test_gemini_3_is_told_that_both_kinds_of_tools_are_offered() -> None:
    async with served(gemini([{"text": "Hi"}])) as server:
        await Runner.run(agent_at(server, GEMINI, [double, SEARCH]), "Hi")
    body = server.requests[0].body
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert {"googleSearch": {}} in body["tools"]


async def test_gemini_2_is_asked_for_json_in_words_beside_its_own_tools() -> None:
    async with served(gemini([{"text": '{"response": 4}'}])) as server:
        result = await Runner.run(agent_at(server, "gemini/gemini-2.5-flash", output_type=int), "Hi")
    assert result.final_output == 4
    assert server.requests[0].body["tools"] == [{"googleSearch": {}}]


@pytest.mark.parametrize(
    "model", ["deepseek/deepseek-chat", "mistral/mistral-large-latest", "ollama_chat/llama3"]
)
async def test_a_vendor_without_the_tool_is_not_asked(model: str) -> None:
    async with served(claude([])) as server:
        with pytest.raises(ConfigError, match="does not exist"):
            await Runner.run(agent_at(server, model), "Hi")
    assert server.requests == []


async def test_blank_texts_between_citations_are_not_sent_as_blocks() -> None:
    blank = {"type": "text", "text": "\n"}
    async with served(claude([SEARCHED, FOUND, CITED, blank, CITED])) as server:
        agent = agent_at(server, CLAUDE)
        first = await Runner.run(agent, "Hi")
        await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "And now?"}])
    texts = [item["text"] for item in sent_back(server.requests[1].body) if item["type"] == "text"]
    assert texts == ["It rains\n", "It rains"]


async def test_a_turn_whose_calls_a_filter_removed_is_sent_as_text() -> None:
    message: Any = {
        "role": "assistant",
        "content": "Yes.",
        "vendor_items": {"api": "anthropic", "items": [SEARCHED, CALL]},
    }
    [sent], items = own_turns([message], "anthropic")
    assert (sent, items) == ({"role": "assistant", "content": "Yes."}, {})


async def test_a_turn_whose_calls_a_filter_removed_tells_what_the_tools_did() -> None:
    message: Any = {"role": "assistant", "content": None, "vendor_calls": [{"tool": "web_search"}]}
    message["vendor_items"] = {"api": "anthropic", "items": [SEARCHED, CALL]}
    [sent], items = own_turns([message], "anthropic")
    assert not items
    assert "web_search" in str(sent.get("content"))


def test_messages_without_vendors_items_are_the_same_objects() -> None:
    messages: list[Message] = [{"role": "user", "content": "Hi"}]
    assert own_turns(messages, "anthropic") == (messages, {})
    assert own_turns(messages, "anthropic")[0] is messages
    assert not turns_in(messages, {})


def test_ids_of_calls_follow_those_that_the_request_was_fitted_to() -> None:
    message: Any = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "double", "arguments": "{}"}}
        ],
    }
    message["vendor_items"] = {"api": "anthropic", "items": [SEARCHED, CALL]}
    [marked], items = own_turns([message], "anthropic")
    renamed = cast(Message, {**marked, "tool_calls": [{**message["tool_calls"][0], "id": "other"}]})
    changes = WireChanges(api="anthropic", turns=turns_in([renamed], items))
    text = {"type": "text", "text": marked.get("content")}
    body = {"messages": [{"role": "assistant", "content": [text, {**CALL, "id": "other"}]}]}
    assert _changed(changes, body)["messages"][0]["content"] == [SEARCHED, {**CALL, "id": "other"}]


def test_betas_are_added_to_those_that_are_there() -> None:
    changes = WireChanges(added=AddedTools(betas=["b"]))
    headers = changes.headers([(b"Anthropic-Beta", b"a"), (b"x", b"y")])
    assert headers == [(b"x", b"y"), (b"anthropic-beta", b"a,b")]
    assert WireChanges().headers(headers) is headers


def test_fields_are_merged_into_the_body() -> None:
    added = AddedTools(fields={"include": ["b", "a"], "toolConfig": {"x": 1}, "other": 2})
    body = _changed(WireChanges(added=added), {"include": ["a"], "toolConfig": {"y": 2}})
    assert body == {"include": ["a", "b"], "toolConfig": {"y": 2, "x": 1}, "other": 2}


def test_a_null_and_an_odd_source_are_not_sent_to_the_responses_api() -> None:
    mark, turn = paused_turn([{**WEB_CALL, "status": None}, {**CODE_CALL, "outputs": None}])
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": mark}]}
    [search, code] = _changed(WireChanges(api="responses", turns={mark: turn}), {"input": [said]})["input"]
    assert "status" not in search
    assert search["action"]["sources"] == [{"type": "url", "url": "https://a.example"}]
    assert code["outputs"] is None


def _changed(changes: WireChanges, body: Any) -> Any:
    return json.loads(changes.body(json.dumps(body).encode()))
