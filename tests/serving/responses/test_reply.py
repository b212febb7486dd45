"""The events of a response, made from deltas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from routelock import Agent, Runner, Usage
from routelock.serving.errors import Refusal
from routelock.serving.responses.reply import ResponseReply
from routelock.serving.served_run import RunEnd
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio

BEGUN = ["created", "in_progress"]


def item(kind: str, *texts: str) -> list[str]:
    """The types of the events of an item with these pieces."""
    deltas = [f"{kind}.delta" for _ in texts]
    begun, over = ["output_item.added", "content_part.added"], ["content_part.done", "output_item.done"]
    return [*begun, *deltas, f"{kind}.done", *over]


def kinds(events: Sequence[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events if isinstance(event, dict)]


async def ended(finish: str = "stop", *deltas: dict[str, Any]) -> RunEnd:
    """The end of a run."""
    result = await Runner.run(Agent("A", model=ScriptedHandler(["x"])), "Hi")
    return RunEnd(deltas=deltas, finish=finish, result=result, waiting=None)


def test_nothing_is_told_before_there_is_content() -> None:
    made = ResponseReply({})
    speaker = {"content": "", "x_agent": {"agent": "A"}}
    assert [*made.begin(), *made.take([speaker], ends=False)] == []


async def test_reasoning_and_text_are_items_one_after_the_other() -> None:
    made = ResponseReply({})
    deltas = [{"reasoning_content": "Hm."}, {"content": "Hi"}, {"content": "."}]
    events = [*made.take(deltas, ends=True), *made.finish(await ended()), *made.close()]
    expected = [*BEGUN, *item("reasoning_text", "Hm."), *item("output_text", "Hi", "."), "completed"]
    assert kinds(events) == expected


async def test_events_are_numbered() -> None:
    made = ResponseReply({})
    events = [*made.take([{"content": "Hi"}], ends=True), *made.finish(await ended()), *made.close()]
    numbers = [event["sequence_number"] for event in events if isinstance(event, dict)]
    assert numbers == list(range(len(numbers)))


async def test_thoughts_between_texts_keep_their_place() -> None:
    made = ResponseReply({})
    deltas = [{"content": "One"}, {"reasoning_content": "Hm."}, {"content": " two."}]
    body = made.whole([deltas], await ended())
    texts = [each["content"][0]["text"] for each in body["output"]]
    assert texts == ["One", "Hm.", " two."]


async def test_a_reply_ends_its_item() -> None:
    body = ResponseReply({}).whole([[{"content": "One."}], [{"content": "\n\nTwo."}]], await ended())
    assert [each["content"][0]["text"] for each in body["output"]] == ["One.", "\n\nTwo."]


def cited(start: int, end: int) -> dict[str, Any]:
    """The delta of one citation."""
    fields = {"url": "https://a.example", "title": "A", "start_index": start, "end_index": end}
    return {"annotations": [{"type": "url_citation", "url_citation": fields}]}


def passages(body: Mapping[str, Any]) -> list[list[str]]:
    """The cited passages of each item."""
    parts = [part for each in body["output"] for part in each["content"]]
    spans = [
        [(note["start_index"], note["end_index"]) for note in part.get("annotations", ())] for part in parts
    ]
    return [[part["text"][a:b] for a, b in span] for part, span in zip(parts, spans, strict=True)]


async def test_a_citation_has_an_event_before_its_text_is_done() -> None:
    made = ResponseReply({})
    events = made.take([{"content": "It rains."}, cited(3, 8)], ends=True)
    assert kinds(events)[-5:-2] == ["output_text.delta", "output_text.annotation.added", "output_text.done"]
    assert events[-4]["annotation"] == {
        "type": "url_citation",
        "url": "https://a.example",
        "title": "A",
        "start_index": 3,
        "end_index": 8,
    }
    assert events[-2]["part"]["annotations"] == [events[-4]["annotation"]]


async def test_citations_of_a_text_are_numbered() -> None:
    events = ResponseReply({}).take([{"content": "It rains."}, cited(0, 2), cited(3, 8)], ends=True)
    numbers = [event["annotation_index"] for event in events if "annotation_index" in event]
    assert numbers == [0, 1]


async def test_a_citation_is_placed_in_the_text_of_its_item() -> None:
    replies = [[{"content": "It rains?"}, cited(3, 8)], [{"content": "\n\nIt pours."}, cited(14, 19)]]
    assert passages(ResponseReply({}).whole(replies, await ended())) == [["rains"], ["pours"]]


async def test_a_citation_of_a_text_before_thoughts_is_in_the_item_of_that_text() -> None:
    made = ResponseReply({})
    texts = [{"content": "It rains."}, {"reasoning_content": "Hm."}, {"content": " It pours."}]
    events = made.take([*texts, cited(3, 8), cited(13, 18)], ends=True)
    late = [event["output_index"] for event in events if "annotation_index" in event]
    made.finish(await ended())
    last, _ = made.close()
    assert late == [0, 2]
    assert not isinstance(last, str)
    assert passages(last["response"]) == [["rains"], [], ["pours"]]


async def test_a_refusal_has_events_of_its_own() -> None:
    made = ResponseReply({})
    events = [*made.finish(await ended("stop", {"refusal": "No."})), *made.close()]
    assert kinds(events) == [*BEGUN, *item("refusal", "No."), "completed"]


async def test_a_done_item_is_the_one_of_the_response() -> None:
    made = ResponseReply({})
    events = [*made.take([{"content": "Hi"}], ends=True), *made.finish(await ended()), *made.close()]
    [done] = [event["item"] for event in events if "item" in event and event["type"].endswith("done")]
    assert events[-2]["response"]["output"] == [done]


async def test_a_cut_response_changes_no_event_that_was_made() -> None:
    made = ResponseReply({})
    events = made.take([{"content": "Hi"}], ends=True)
    made.finish(await ended("length"))
    assert events[-1]["item"]["status"] == "completed"


async def test_the_response_that_is_told_is_kept() -> None:
    kept: list[Any] = []

    async def keep(body: Any, end: RunEnd) -> None:
        kept.append(body)

    made = ResponseReply({"id": "resp_1"}, keep)
    made.finish(await ended())
    last, _ = made.close()
    await made.keep()
    assert not isinstance(last, str)
    assert kept == [last["response"]]


async def test_usage_is_that_of_the_run() -> None:
    end = await ended()
    body = ResponseReply({}).whole([], end)
    usage: Usage = end.result.usage
    assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (
        usage.input_tokens,
        usage.output_tokens,
    )


def test_a_failure_has_the_items_so_far() -> None:
    made = ResponseReply({})
    made.take([{"content": "One."}], ends=True)
    made.take([{"content": "Ha"}], ends=False)
    error, failed, done = made.fail(Refusal(502, "No.", "upstream_error"), "req_1")
    assert not isinstance(error, str)
    assert not isinstance(failed, str)
    assert done == "[DONE]"
    assert (error["message"], error["error"]["request_id"]) == ("No.", "req_1")
    assert [each["status"] for each in failed["response"]["output"]] == ["completed", "incomplete"]
