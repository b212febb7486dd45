"""The Responses API with the openai clients, unmodified, against agents behind a true socket."""

from __future__ import annotations

from typing import Any

import pytest
from clients.cast import DESK, FORECAST, GREETING, PAGE, POLYGLOT
from clients.played import Played

WAYS = ("plain", "raw", "helper")


def in_every_way(text: str, *, requests: int = 1, reasoning: Any = ()) -> dict[str, Any]:
    """The same answer, asked for whole, by its events, and by the client's own helper."""
    seen = {
        "text": text,
        "status": "completed",
        "reasoning": list(reasoning),
        "calls": [],
        "usage": [10 * requests, 5 * requests, 15 * requests],
    }
    return dict.fromkeys(WAYS, seen)


def python_only(responses: Played) -> None:
    """Skip a test of a scene that the client for JavaScript does not play."""
    if responses.client.endswith("js"):
        pytest.skip("the clients for Python play this scene")


def test_the_version_is_the_one_that_is_meant(responses: Played) -> None:
    major = {"2": "2.", "3": "3.", "js": "6."}[responses.client.split()[-1]]
    assert responses.facts["version"].startswith(major)


def test_an_answer_is_whole_in_every_way(responses: Played) -> None:
    assert responses["greeting"] == in_every_way(GREETING)


def test_the_client_without_async_sees_the_same(responses: Played) -> None:
    python_only(responses)
    assert responses["blocking"] == {"plain": GREETING, "streamed": GREETING}


def test_own_tools_and_transfers_stay_inside_and_the_text_is_whole(responses: Played) -> None:
    assert responses["transfer"] == in_every_way(DESK, requests=3)


def test_reasoning_is_an_item_of_its_own(responses: Played) -> None:
    assert responses["reasoning"] == in_every_way("Yes.", reasoning=["Hm, hm."])


def test_citations_are_annotations_of_their_texts(responses: Played) -> None:
    pages = [f"{PAGE}/rains", f"{PAGE}/pours"]
    seen = [["url_citation", url, passage] for url, passage in zip(pages, ("rains", "pours"), strict=True)]
    assert responses["citations"] == {**dict.fromkeys(WAYS, seen), "events": pages}


def test_no_letter_is_changed(responses: Played) -> None:
    assert responses["unicode"] == in_every_way(POLYGLOT)


def test_an_output_is_parsed_although_a_text_came_before_it(responses: Played) -> None:
    python_only(responses)
    assert responses["parsed"] == {"plain": 7, "helper": 7}


@pytest.mark.parametrize("place", ["stateless", "by id"])
@pytest.mark.parametrize("way", WAYS)
def test_the_clients_own_tool_is_the_clients_to_run(responses: Played, way: str, place: str) -> None:
    facts = responses["own_tool"][f"{way}, {place}"]
    assert [call[1:] for call in facts["first"]["calls"]] == [
        ["get_weather", '{"city": "Paris"}'],
        ["get_weather", '{"city": "Rome"}'],
    ]
    assert (facts["then"]["text"], facts["then"]["calls"]) == (FORECAST, [])


def test_an_own_tool_beside_the_clients_runs_once(responses: Played) -> None:
    places = [f"Weather, {way}, {place}?" for way in WAYS for place in ("stateless", "by id")]
    assert sorted(responses.log.stamped) == sorted(places)


def test_a_response_is_kept_until_it_is_deleted(responses: Played) -> None:
    python_only(responses)
    facts = responses["kept"]
    assert (facts["same"], facts["again"]) == (True, [True, GREETING])
    assert (facts["deleted"]["class"], facts["deleted"]["code"]) == ("NotFoundError", "response_not_found")


def test_a_response_that_is_not_stored_is_not_continued(responses: Played) -> None:
    python_only(responses)
    facts = responses["kept"]["continued"]
    assert (facts["class"], facts["param"]) == ("BadRequestError", "previous_response_id")


@pytest.mark.parametrize(
    "param",
    ["background", "truncation", "tools[0].type", "conversation", "include", "input[0].type", "temperature"],
)
def test_what_is_not_supported_is_refused_by_its_name(responses: Played, param: str) -> None:
    python_only(responses)
    facts = responses["errors"][param]
    assert (facts["class"], facts["param"]) == ("BadRequestError", param)


@pytest.mark.parametrize(
    ("case", "name"), [("no key", "AuthenticationError"), ("unknown model", "NotFoundError")]
)
def test_a_refusal_is_the_clients_own_error(responses: Played, case: str, name: str) -> None:
    python_only(responses)
    assert responses["errors"][case]["class"] == name


def test_a_failure_in_mid_stream_is_no_short_answer(responses: Played) -> None:
    facts = responses["broken"]
    assert facts["text before"] == "Half an "
    assert [facts[way]["class"] for way in ("raw", "helper")] == ["APIError", "APIError"]
    assert facts["plain"]["class"] == "InternalServerError"
