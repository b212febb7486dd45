"""The openai clients, unmodified, each in a process of its own, against agents behind a true socket."""

from __future__ import annotations

from typing import Any

import pytest
from clients.cast import BEATS, DESK, FORECAST, GREETING, POLYGLOT
from clients.played import Played
from clients.served import comes_true

WAYS = ("plain", "raw", "raw with usage", "helper", "helper with usage")


def said(text: str | None, *, requests: int = 1, finish: str = "stop", calls: Any = ()) -> dict[str, Any]:
    """What a client sees of an answer for which so many model calls were made."""
    usage = [10 * requests, 5 * requests, 15 * requests]
    return {"text": text, "finish": finish, "calls": list(calls), "usage": usage}


def in_every_way(text: str, *, requests: int = 1) -> dict[str, Any]:
    """The same answer, asked for in five ways; streamed, the usage comes for who asks for it."""
    whole = said(text, requests=requests)
    silent = {**whole, "usage": None}
    return {
        "plain": whole,
        "raw": {**silent, "chunks without choices": 0},
        "raw with usage": {**whole, "chunks without choices": 1},
        "helper": silent,
        "helper with usage": whole,
    }


def test_the_version_is_the_one_that_is_meant(played: Played) -> None:
    major = {"openai 2": "2.", "openai 3": "3.", "openai js": "6."}[played.client]
    assert played.facts["version"].startswith(major)


def test_every_agent_is_a_model(played: Played) -> None:
    named = ("greeter", "desk", "forecaster", "broken", "endless", "slow", "polyglot", "duet")
    assert set(named) <= set(played["models"]["ids"])
    assert played["models"]["one"] == "greeter"


def test_an_answer_is_whole_in_every_way(played: Played) -> None:
    assert played["greeting"] == in_every_way(GREETING)


def test_the_client_without_async_sees_the_same(played: Played) -> None:
    expected = {"plain": GREETING, "streamed": GREETING}
    assert played.facts.get("blocking") == (None if played.client == "openai js" else expected)


def test_own_tools_and_transfers_stay_inside_and_the_text_is_whole(played: Played) -> None:
    assert played["transfer"] == in_every_way(DESK, requests=3)
    assert played.log.looked_up == [7] * len(WAYS), "once in each run"


def test_no_letter_is_changed(played: Played) -> None:
    assert played["unicode"] == in_every_way(POLYGLOT)


@pytest.mark.parametrize("way", ["plain", "raw", "helper"])
def test_the_clients_own_tool_is_the_clients_to_run(played: Played, way: str) -> None:
    facts = played["own_tool"][way]
    ids, names, arguments = zip(*facts["first"]["calls"], strict=True)
    assert len(set(ids)) == 2
    assert all(ids)
    assert names == ("get_weather", "get_weather")
    assert arguments == ('{"city": "Paris"}', '{"city": "Rome"}')
    assert facts["first"]["finish"] == "tool_calls"
    assert facts["first"]["text"] == "One moment."


@pytest.mark.parametrize("way", ["plain", "raw", "helper"])
def test_the_answer_of_the_clients_tool_continues_the_run(played: Played, way: str) -> None:
    then = played["own_tool"][way]["then"]
    assert (then["text"], then["finish"], then["calls"]) == (FORECAST, "stop", [])


def test_an_own_tool_beside_the_clients_runs_once(played: Played) -> None:
    assert sorted(played.log.stamped) == ["Weather, helper?", "Weather, plain?", "Weather, raw?"]


@pytest.mark.parametrize(
    ("case", "name", "status"),
    [
        ("no key", "AuthenticationError", 401),
        ("no key, models", "AuthenticationError", 401),
        ("no key, streamed", "AuthenticationError", 401),
        ("unknown model", "NotFoundError", 404),
        ("unknown model, streamed", "NotFoundError", 404),
        ("bad request", "BadRequestError", 400),
        ("too large", "APIStatusError", 413),
    ],
)
def test_a_refusal_is_the_clients_own_error(played: Played, case: str, name: str, status: int) -> None:
    facts = played["errors"][case]
    if played.client == "openai js" and name == "APIStatusError":
        name = "APIError"  # it has no class between the two
    assert (facts["class"], facts["status"], facts["has body"]) == (name, status, True)


def test_a_busy_server_says_so_and_recovers(played: Played) -> None:
    facts = played["busy"]
    assert (facts["refused"]["class"], facts["refused"]["status"]) == ("RateLimitError", 429)
    assert facts["again"] is None


def test_a_failure_in_mid_stream_is_no_short_answer(played: Played) -> None:
    facts = played["broken"]
    assert facts["raw"]["text before"] == "Half an "
    assert facts["raw"]["finishes"] == []
    assert [facts[way]["class"] for way in ("raw", "helper")] == ["APIError", "APIError"]
    assert facts["raw"]["message"]


def test_a_failure_of_a_plain_request_is_a_server_error(played: Played) -> None:
    facts = played["broken"]["plain"]
    assert facts["class"] == "InternalServerError"
    assert facts["has body"]


def test_a_client_that_leaves_cancels_the_run(played: Played) -> None:
    assert played["leaving"] == {"text": "Tick "}
    assert comes_true(lambda: {"leaving", "busy"} <= set(played.log.cancelled))


def test_signs_of_life_disturb_nobody(played: Played) -> None:
    expected = in_every_way("That took a while.", requests=2)
    assert played["slow"] == {way: expected[way] for way in ("plain", "raw", "helper")}


def test_two_streams_at_once_do_not_mix(played: Played) -> None:
    def part(name: str) -> str:
        return "".join(f"{name}{beat} " for beat in range(BEATS))

    assert played["together"] == {"left": part("left"), "right": part("right")}
