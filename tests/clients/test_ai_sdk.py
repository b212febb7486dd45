"""Vercel's AI SDK, unmodified, against agents behind a true socket."""

from __future__ import annotations

from typing import Any

import pytest
from clients.cast import DESK, FORECAST, GREETING, POLYGLOT
from clients.played import Played
from clients.served import comes_true

SCENES = {
    "greeting": (GREETING, 1),
    "transfer": (DESK, 3),
    "unicode": (POLYGLOT, 1),
    "slow": ("That took a while.", 2),
}


@pytest.mark.parametrize("scene", SCENES)
def test_an_answer_is_whole_streamed_and_not(ai_sdk: Played, scene: str) -> None:
    text, requests = SCENES[scene]
    usage = [10 * requests, 5 * requests, 15 * requests]
    whole: dict[str, Any] = {"text": text, "finish": "stop", "calls": [], "usage": usage}
    assert ai_sdk[scene] == {"plain": whole, "streamed": whole}


def test_it_runs_its_own_tool_and_goes_on(ai_sdk: Played) -> None:
    facts = ai_sdk["own_tool"]
    assert [way["calls"] for way in facts.values()] == [
        [["get_weather", {"city": city}] for city in ("Paris", "Rome")]
    ] * 2
    assert [way["finish"] for way in facts.values()] == ["stop", "stop"]
    assert facts["plain"]["text"] == FORECAST
    assert facts["streamed"]["text"] == f"One moment.{FORECAST}"
    assert ai_sdk.log.stamped == ["Weather, please?"] * 2, "once in each of the two"


def test_refusals_are_its_own_errors(ai_sdk: Played) -> None:
    facts = ai_sdk["errors"]
    assert [(each["class"], each["status"]) for each in facts.values()] == [
        ("APICallError", 401),
        ("APICallError", 404),
    ]


def test_a_failure_in_mid_stream_is_an_error(ai_sdk: Played) -> None:
    facts = ai_sdk["broken"]["streamed"]
    assert facts["text"] == "Half an "
    assert len(facts["raised"]) == 1


def test_a_client_that_leaves_cancels_the_run(ai_sdk: Played) -> None:
    assert ai_sdk["leaving"] == {"text": "Tick "}
    assert comes_true(lambda: "leaving" in ai_sdk.log.cancelled)
