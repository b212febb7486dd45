"""The A2A clients for Python and JavaScript, unmodified, against agents behind a true socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from clients.a2a_cast import BRANCHES, ORDER_DATA, a2a_agents
from clients.cast import DESK, GREETING, POLYGLOT, Log
from clients.played import Played
from clients.served import KEY, PATIENCE, comes_true, node_client, play, served

from routelock.serving import A2A, ServeConfig, create_app

pytest.importorskip("a2a")

SETTINGS = ServeConfig(api_keys=[KEY], timeout=PATIENCE / 2, a2a=A2A(approvals=True))
DONE, ASKS = "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"
BEGUN, WORKS, GONE = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_CANCELED"


@pytest.fixture(scope="module", params=["python", "js"])
def a2a(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All scenes, played once by each client."""
    log, paid = Log(), list[int]()
    command = node_client("a2a_client.mjs") if request.param == "js" else []
    with served(create_app(a2a_agents(log, paid), SETTINGS)) as base:
        url = base.removesuffix("/v1")
        if request.param == "js":
            facts = play(command, url, KEY, home=tmp_path_factory.mktemp("home"))
        else:
            facts = _played_in_python(url)
        yield Played(request.param, {**facts, "paid": {"amounts": paid}}, log)


def _played_in_python(url: str) -> dict[str, Any]:
    from clients.a2a_python import played

    return asyncio.run(played(url, KEY))


def in_both_ways(text: str, *speakers: str) -> dict[str, Any]:
    """The same answer, whole and streamed, and what the server keeps of it."""
    whole = {"state": DONE, "text": [text]}
    return {"whole": whole, "speakers": [*speakers], "why": ["", ""], "kept": whole}


def test_an_answer_is_whole_streamed_and_not(a2a: Played) -> None:
    facts = a2a["greeting"]
    streamed = facts.pop("streamed")
    assert facts == in_both_ways(GREETING, "greeter")
    assert streamed == {
        "kinds": ["task", "status_update", "artifact_update", "status_update"],
        "states": [BEGUN, DONE],
        "text": GREETING,
    }


def test_a_transfer_shows_who_speaks_and_no_calls(a2a: Played) -> None:
    facts = a2a["transfer"]
    assert facts.pop("streamed")["text"] == DESK
    assert facts == in_both_ways(DESK, "desk", "specialist")
    assert a2a.log.looked_up == [7, 7], "once in each run"


def test_no_letter_is_changed(a2a: Played) -> None:
    facts = a2a["unicode"]
    assert facts.pop("streamed")["text"] == POLYGLOT
    assert facts == in_both_ways(POLYGLOT, "polyglot")


def test_a_failure_is_a_failed_task_that_says_why(a2a: Played) -> None:
    facts = a2a["broken"]
    failed = {"state": "TASK_STATE_FAILED", "text": ["Half an "]}
    assert (facts["whole"], facts["kept"]) == (failed, failed)
    assert (facts["streamed"]["text"], facts["streamed"]["states"][-1]) == ("Half an ", "TASK_STATE_FAILED")
    assert facts["why"] == ["The model behind this agent failed."] * 2


def test_output_that_is_no_text_is_data(a2a: Played) -> None:
    assert a2a["structured"] == {"data": [ORDER_DATA], "text": []}


def test_a_context_is_a_conversation(a2a: Played) -> None:
    assert a2a["conversation"] == {
        "texts": [["one"], ["one|two"], ["two"]],
        "tasks differ": True,
        "contexts": [True, False],
    }


def test_two_messages_at_once_are_answered_one_after_the_other(a2a: Played) -> None:
    facts = a2a["together"]
    assert facts["texts"][0] in ("zero|left", "zero|right")
    assert facts["texts"][1] in ("zero|left|right", "zero|right|left")
    assert facts["texts"][1].startswith(facts["texts"][0])
    assert facts["listed"] == 3


def test_an_unknown_task_is_the_clients_own_error(a2a: Played) -> None:
    prefix = "JsonRpc" if a2a.client == "js" else ""
    assert set(a2a["unknown"].values()) == {f"{prefix}TaskNotFoundError"}


def test_cancelling_a_task_cancels_its_run_and_ends_its_stream(a2a: Played) -> None:
    facts = a2a["cancelled"]
    assert facts["states"] == [GONE] * 3
    assert facts["text"] == "Tick "
    assert facts["again"].endswith("TaskNotCancelableError")
    assert comes_true(lambda: "cancelled" in a2a.log.cancelled)


def test_a_client_that_leaves_can_come_back_to_its_task(a2a: Played) -> None:
    assert a2a["leaving"] == {"text": ["Tick ", "Tick "], "states": [WORKS, WORKS, GONE]}
    assert a2a.log.cancelled.count("leaving") == 1


def test_a_client_need_not_wait(a2a: Played) -> None:
    assert a2a["at_once"] == {"states": [BEGUN, GONE]}


def test_a_call_that_needs_approval_asks_the_client(a2a: Played) -> None:
    facts = a2a["approval"]
    assert facts["states"] == [ASKS, ASKS, DONE, DONE]
    call = {"agent": "payer", "name": "pay", "arguments": '{"amount": 40}'}
    [form] = facts["asked"]
    [asked] = form["approvals"]
    assert asked == {"id": asked["id"], **call}
    declined = "Then: This call was not approved, so it was not made."
    assert facts["said"] == [[], [], ["Then: paid"], [declined]]
    assert a2a["paid"] == {"amounts": [40]}


def test_a_form_has_its_schema_and_is_filled_by_data(a2a: Played) -> None:
    facts = a2a["form"]
    assert facts["states"] == [ASKS, ASKS, DONE]
    [asked] = facts["asked"]["approvals"]
    assert (asked["question"], asked["schema"]) == ("Which branch?", BRANCHES)
    assert facts["problem"].startswith("This message does not answer: branch: ")
    assert facts["said"] == ["Then: lent: {'branch': 'north', 'days': 3}"]


def test_without_a_key_nothing_is_answered(a2a: Played) -> None:
    assert a2a["key"] == {"refused": "JsonRpcTransportError" if a2a.client == "js" else "A2AClientError"}
