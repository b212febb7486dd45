"""assistant-ui, a front end that speaks AG-UI, unmodified and in a simulated page, against a true socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from clients.ag_ui_cast import ag_ui_agents
from clients.cast import ASIDES, FORECAST, ORDER, Log
from clients.played import Played
from clients.served import PATIENCE, node_client, play, served

from routelock.serving import AGUI, ServeConfig, create_app


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All scenes, played once."""
    log = Log()
    command = node_client("assistant_ui.mjs", "page")
    settings = ServeConfig(timeout=PATIENCE / 2, ag_ui=AGUI(approvals=True))
    with served(create_app(ag_ui_agents(log, []), settings)) as base:
        facts = play(command, base.removesuffix("/v1"), home=tmp_path_factory.mktemp("home"))
        yield Played("page", facts, log)


def called(tool: str, result: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "args": arguments, "result": result}


def test_a_transfer_shows_calls_texts_and_the_handoff(page: Played) -> None:
    moved = {"status": "occurred", "source": "desk", "target": "specialist"}
    assert page["transfer"]["seen"] == [
        {"text": ASIDES[0]},
        called("look_up", "left on Monday", order=7),
        {"text": ASIDES[1]},
        {"data": "routelock:handoff", "value": moved},
        {"text": ORDER},
    ]


def test_reasoning_is_shown_apart(page: Played) -> None:
    assert page["thinking"]["seen"] == [{"reasoning": "Hm, hm."}, {"text": "Yes."}]


def test_a_tool_of_the_page_runs_in_the_page(page: Played) -> None:
    weather = [called("get_weather", f"21 degrees in {city}", city=city) for city in ("Paris", "Rome")]
    seen = page["own_tool"]["seen"]
    assert [each for each in seen if each.get("tool") == "get_weather"] == weather
    assert seen[-1] == {"text": FORECAST}


def test_the_user_approves_a_call(page: Played) -> None:
    facts = page["approval"]
    assert facts["asked"] == ['May payer make this call? pay({"amount": 40})']
    assert facts["after"] == [called("pay", "paid", amount=40), {"text": "Then: paid"}]


def test_an_error_is_shown(page: Played) -> None:
    facts = page["broken"]
    assert facts["errors"] == ["The model behind this agent failed."]
    assert facts["seen"] == [{"text": "Half an "}]
