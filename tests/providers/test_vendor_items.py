"""Collectors of what a vendor's own tools did: each kind of call, and what becomes of the message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from vendor_tool_replies import CITED, FOUND, GEMINI_PARTS, GROUNDING, SEARCHED

from routelock.history.vendor_calls import Citation, VendorCall, citations_of, vendor_calls_of
from routelock_providers.vendor_items import Collector, collector_for, noted
from routelock_providers.vendor_tools import API

MESSAGE: Any = {"role": "assistant", "content": "It rains"}
PAGE = Citation(url="https://a.example", title="A")


def collected(api: API, value: Any) -> Collector:
    collector = collector_for(api)
    collector.take(value)
    return collector


def of_claude(*blocks: Any) -> Collector:
    return collected("anthropic", {"type": "message", "content": [*blocks], "stop_reason": "end_turn"})


def of_responses(*items: Any) -> Collector:
    return collected("responses", {"object": "response", "output": [*items]})


def of_gemini(*parts: Any, **more: Any) -> Collector:
    return collected("gemini", {"candidates": [{"content": {"parts": [*parts]}, **more}]})


def calls(*collectors: Collector) -> list[VendorCall]:
    return vendor_calls_of(noted(MESSAGE, collectors))


def claude_ran(name: str, content: Any, **asked: Any) -> list[VendorCall]:
    used = {"type": "server_tool_use", "id": "s", "name": name, "input": asked}
    return calls(of_claude(used, {"type": f"{name}_tool_result", "tool_use_id": "s", "content": content}))


def test_pages_beside_the_message_are_its_citations() -> None:
    """Perplexity has them there, and repeats them in each chunk of a stream."""
    collector = collected(
        "chat", {"choices": [], "search_results": [{"url": "https://a.example", "title": "A"}]}
    )
    collector.take({"choices": []})
    message = noted(MESSAGE, [collector])
    assert citations_of(message) == [PAGE]
    assert vendor_calls_of(message) == [VendorCall(tool="web_search", sources=(PAGE,))]


def test_addresses_alone_are_citations_too() -> None:
    collector = collected("chat", {"citations": ["https://a.example"]})
    assert citations_of(noted(MESSAGE, [collector])) == [Citation(url="https://a.example")]


def test_annotations_of_a_chat_message_stay() -> None:
    message: Any = {**MESSAGE, "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}]}
    assert noted(message, [collected("chat", {"choices": []})]) == message


def test_a_search_of_claude_has_its_sources() -> None:
    expected = VendorCall(tool="web_search", id="srvtoolu_1", input={"query": "x"}, sources=(PAGE,))
    assert calls(of_claude(SEARCHED, FOUND)) == [expected]


def test_a_failed_search_of_claude_has_its_error() -> None:
    [call] = claude_ran(
        "web_search", {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    )
    assert (call.error, call.output) == ("max_uses_exceeded", "")


def test_code_that_claude_ran_has_its_output() -> None:
    printed = {"type": "bash_code_execution_result", "stdout": "2\n", "stderr": "", "return_code": 0}
    [call] = claude_ran("bash_code_execution", printed, command="echo 2")
    assert (call.tool, call.input, call.output) == ("code_execution", {"command": "echo 2"}, "2\n")


def test_a_file_that_claude_wrote_is_described() -> None:
    made = {"type": "text_editor_code_execution_create_result", "is_file_update": False}
    [call] = claude_ran("text_editor_code_execution", made, command="create")
    assert call.output == '{"is_file_update": false}'


def test_a_page_that_claude_read_is_a_source() -> None:
    page = {
        "type": "web_fetch_result",
        "url": "https://a.example",
        "content": {"type": "document", "title": "A"},
    }
    [call] = claude_ran("web_fetch", page, url="https://a.example")
    assert call.sources == (PAGE,)


def test_a_tool_of_an_mcp_server_is_a_call_too() -> None:
    used = {"type": "mcp_tool_use", "id": "s", "name": "ask", "server_name": "d", "input": {"q": 1}}
    result = {"type": "mcp_tool_result", "tool_use_id": "s", "content": [{"type": "text", "text": "42"}]}
    assert calls(of_claude(used, result)) == [VendorCall(tool="ask", id="s", input={"q": 1}, output="42")]


@pytest.mark.parametrize(
    ("written", "expected"),
    [('{"q": "x"}', {"q": "x"}), ('{"q": "x', {}), ('{"q": ' * 100_000 + "1" + "}" * 100_000, {})],
    ids=["whole", "cut off", "deep"],
)
def test_streamed_input_of_claude_that_cannot_be_read_is_empty(written: str, expected: Any) -> None:
    collector = collected(
        "anthropic", {"type": "content_block_start", "content_block": {"type": "tool_use", "input": {}}}
    )
    delta = {"type": "input_json_delta", "partial_json": written}
    collector.take({"type": "content_block_delta", "delta": delta})
    collector.take({"type": "content_block_stop"})
    assert collector.items[0]["input"] == expected


def test_a_document_is_cited_by_its_name() -> None:
    place = {"type": "page_location", "document_title": "a.pdf", "file_id": "f", "cited_text": "q"}
    collector = of_claude({"type": "text", "text": "It rains", "citations": [place]})
    assert citations_of(noted(MESSAGE, [collector])) == [
        Citation(title="a.pdf", file_id="f", quote="q", start=0, end=8)
    ]


def test_citations_of_a_paused_turn_keep_their_places() -> None:
    before = of_claude({"type": "text", "text": "So: "})
    [citation] = citations_of(noted(MESSAGE, [before, of_claude(CITED)]))
    assert (citation.start, citation.end) == (4, 12)


@pytest.mark.parametrize(
    "plain", [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "f"}]
)
def test_a_reply_without_vendors_tools_is_left_as_it_is(plain: Any) -> None:
    assert noted(MESSAGE, [of_claude(plain)]) == MESSAGE


def test_what_litellm_keeps_of_the_same_is_removed() -> None:
    fields = {"citations": [1], "web_search_results": [2], "server_tool_calls": [3]}
    message: Any = {**MESSAGE, "provider_specific_fields": fields}
    assert noted(message, [of_claude()]) == MESSAGE


def test_other_fields_of_the_provider_stay() -> None:
    message: Any = {**MESSAGE, "provider_specific_fields": {"thought_signatures": ["s"], "citations": None}}
    assert noted(message, [of_claude()]).get("provider_specific_fields") == {"thought_signatures": ["s"]}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {
                "type": "web_search_call",
                "id": "w",
                "action": {"type": "open_page", "url": "https://a.example"},
            },
            VendorCall(tool="web_search", id="w", input={"type": "open_page", "url": "https://a.example"}),
        ),
        (
            {
                "type": "code_interpreter_call",
                "id": "c",
                "code": "1",
                "outputs": [{"type": "logs", "logs": "1"}],
            },
            VendorCall(tool="code_execution", id="c", input={"code": "1"}, output="1"),
        ),
        (
            {
                "type": "file_search_call",
                "id": "f",
                "queries": ["x"],
                "results": [{"file_id": "1", "filename": "a"}],
            },
            VendorCall(
                tool="file_search",
                id="f",
                input={"queries": ["x"]},
                sources=(Citation(file_id="1", title="a"),),
            ),
        ),
        (
            {"type": "mcp_call", "id": "m", "name": "ask", "arguments": '{"q": 1}', "output": "42"},
            VendorCall(tool="ask", id="m", input={"q": 1}, output="42"),
        ),
        (
            {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "error": {"code": 1}},
            VendorCall(tool="ask", id="m", input={"arguments": "{}"}, error='{"code": 1}'),
        ),
        (
            {"type": "image_generation_call", "id": "i", "status": "failed", "revised_prompt": "a cat"},
            VendorCall(tool="image_generation", id="i", input={"revised_prompt": "a cat"}, error="failed"),
        ),
    ],
)
def test_each_item_of_the_responses_api_is_a_call(item: Any, expected: VendorCall) -> None:
    assert calls(of_responses(item)) == [expected]


def test_a_search_in_posts_is_hidden_from_litellm_and_kept() -> None:
    call = {"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "x_keyword_search", "input": "{}"}
    answer: Any = {"object": "response", "output": [call, {"type": "message"}]}
    collector = collected("responses", answer)
    assert collector.hide(answer)
    assert answer["output"] == [{"type": "message"}]
    assert [each.tool for each in calls(collector)] == ["x_keyword_search"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_item.added", "item": {"type": "custom_tool_call"}},
        {"type": "response.custom_tool_call_input.delta", "delta": "{"},
    ],
)
def test_an_event_of_a_hidden_call_becomes_empty(event: Any) -> None:
    assert of_responses().hide(event)
    assert event == {}


def test_other_events_are_not_hidden() -> None:
    assert not of_responses().hide({"type": "response.output_item.added", "item": {"type": "message"}})


def test_code_that_gemini_ran_has_its_output() -> None:
    assert calls(of_gemini(*GEMINI_PARTS)) == [
        VendorCall(tool="code_execution", id="e1", input={"code": "1 + 1"}, output="2\n")
    ]


def test_code_that_failed_at_gemini_has_its_outcome() -> None:
    failed = {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "oh"}}
    [call] = calls(of_gemini(GEMINI_PARTS[0], failed))
    assert (call.error, call.output) == ("OUTCOME_FAILED", "oh")


def test_a_search_of_gemini_has_its_queries_and_sources() -> None:
    found = of_gemini({"text": "It rains"}, groundingMetadata=GROUNDING)
    assert calls(found) == [VendorCall(tool="web_search", input={"queries": ["x"]}, sources=(PAGE,))]


def test_a_search_of_gemini_beside_functions_is_counted_once() -> None:
    asked = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}, "id": "t"}}
    found = of_gemini(asked, {"text": "It rains"}, groundingMetadata=GROUNDING)
    assert calls(found) == [VendorCall(tool="web_search", id="t", input={"queries": ["x"]}, sources=(PAGE,))]


def test_files_that_gemini_found_are_a_call_and_citations() -> None:
    chunk = {"retrievedContext": {"text": "rain", "fileSearchStore": "fileSearchStores/a", "title": "A"}}
    message = noted(
        MESSAGE,
        [
            of_gemini(
                {"text": "It rains"},
                groundingMetadata={**GROUNDING, "webSearchQueries": [], "groundingChunks": [chunk]},
            )
        ],
    )
    file = Citation(file_id="fileSearchStores/a", title="A", quote="rain")
    assert vendor_calls_of(message) == [VendorCall(tool="file_search", sources=(file,))]
    assert citations_of(message) == [replace(file, start=0, end=8)]


def test_pages_that_gemini_read_are_a_call() -> None:
    read = {"urlMetadata": [{"retrievedUrl": "https://a.example", "urlRetrievalStatus": "OK"}]}
    [call] = calls(of_gemini({"text": "Hi"}, urlContextMetadata=read))
    assert (call.tool, call.sources) == ("web_fetch", (Citation(url="https://a.example"),))


def test_pieces_of_a_text_of_gemini_are_joined_up_to_a_signature() -> None:
    collector = of_gemini({"text": "a"}, {"text": "b", "thoughtSignature": "s"}, {"text": "c"})
    assert collector.items == [{"text": "ab", "thoughtSignature": "s"}, {"text": "c"}]


def test_a_search_of_gemini_alone_goes_back_as_text() -> None:
    message = noted(MESSAGE, [of_gemini({"text": "It rains"}, groundingMetadata=GROUNDING)])
    assert message.get("vendor_items") == {"api": "gemini", "items": []}


def test_an_image_that_was_made_is_in_the_message() -> None:
    made = {"type": "image_generation_call", "id": "i", "result": "AAAA", "output_format": "jpeg"}
    message: Any = noted(MESSAGE, [of_responses(made)])
    assert message["images"] == [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}}]
