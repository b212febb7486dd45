"""The A2A client for Python that speaks version 0.3, unmodified, against agents behind a true socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clients.a2a_cast import BRANCHES, ORDER_DATA, a2a_agents
from clients.cast import DESK, GREETING, POLYGLOT, Log
from clients.played import Played
from clients.served import KEY, PATIENCE, comes_true, play, python_client, served

from routelock.serving import A2A, ServeConfig, create_app

pytest.importorskip("a2a")

SETTINGS = ServeConfig(api_keys=[KEY], timeout=PATIENCE / 2, a2a=A2A(approvals=True))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All scenes, played once."""
    command = python_client("a2a03", "a2a_old_client.py")
    log, paid = Log(), list[int]()
    with served(create_app(a2a_agents(log, paid), SETTINGS)) as base:
        facts = play(command, base.removesuffix("/v1"), KEY, home=tmp_path_factory.mktemp("home"))
        yield Played("0.3", {**facts, "paid": {"facts": paid}}, log)


def test_the_card_has_what_version_0_3_looks_for(old: Played) -> None:
    assert old["card"]["facts"] == {"name": "greeter", "version": "0.3", "schemes": ["http"]}


ANSWERS = {"greeting": GREETING, "transfer": DESK, "unicode": POLYGLOT}


@pytest.mark.parametrize("scene", ANSWERS)
def test_an_answer_is_whole_streamed_and_kept(old: Played, scene: str) -> None:
    assert old[scene]["facts"] == [["completed", ANSWERS[scene]]] * 3


def test_output_that_is_no_text_is_data(old: Played) -> None:
    assert old["structured"]["facts"] == [ORDER_DATA]


def test_a_call_that_needs_approval_asks_the_client(old: Played) -> None:
    assert old["approval"]["facts"] == ["input-required", "completed"]
    assert old["paid"]["facts"] == [40]


def test_a_form_has_its_schema_and_is_filled_by_data(old: Played) -> None:
    facts = old["form"]["facts"]
    assert (facts["states"], facts["schema"]) == (["input-required"] * 2, BRANCHES)
    assert facts["done"] == ["completed", "Then: lent: {'branch': 'north', 'days': 3}"]


def test_cancelling_a_task_cancels_its_run(old: Played) -> None:
    assert old["cancelled"]["facts"] == "canceled"
    assert comes_true(lambda: "cancelled" in old.log.cancelled)


def test_an_unknown_task_is_an_error_of_the_client(old: Played) -> None:
    assert "-32001" in old["unknown"]["facts"]
