"""The client of AG-UI for JavaScript, unmodified, against agents behind a true socket.

It validates each event with its own schemas and the order of all of them, and says what it had to remove.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clients.a2a_cast import BRANCHES, ORDER_DATA
from clients.ag_ui_cast import ANSWER, ag_ui_agents
from clients.cast import ASIDES, DESK, FORECAST, GREETING, ORDER, POLYGLOT, Log
from clients.played import Played
from clients.served import KEY, PATIENCE, comes_true, node_client, play, served

from routelock.serving import AGUI, ServeConfig, create_app

SETTINGS = ServeConfig(
    api_keys=[KEY], ping=0.05, timeout=PATIENCE / 2, ag_ui=AGUI(approvals=True, edits=True)
)

PACKAGES = {"1": "@ag-ui/client", "0.0.59": "ag-ui-client-0"}
"""By their versions. Front ends use the second one."""


@pytest.fixture(scope="module", params=PACKAGES)
def ag_ui(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All scenes, played once by each version of the client."""
    log, paid = Log(), list[int]()
    command = node_client("ag_ui_client.mjs")
    with served(create_app(ag_ui_agents(log, paid), SETTINGS)) as base:
        url, home = base.removesuffix("/v1"), tmp_path_factory.mktemp("home")
        facts = play(command, url, KEY, PACKAGES[request.param], home=home)
        yield Played(request.param, {**facts, "paid": {"amounts": paid}}, log)


def test_no_event_has_anything_that_the_client_does_not_know(ag_ui: Played) -> None:
    assert {scene: facts["warnings"] for scene, facts in ag_ui.facts.items() if facts.get("warnings")} == {}


def test_an_answer_is_a_message_in_a_step(ag_ui: Played) -> None:
    facts = ag_ui["greeting"]
    assert (facts["text"], facts["steps"], facts["outcome"]) == (GREETING, ["greeter"], "success")
    assert facts["usage"] == 15


def test_a_transfer_shows_the_agents_and_their_calls(ag_ui: Played) -> None:
    facts = ag_ui["transfer"]
    assert facts["text"] == DESK == "\n\n".join((*ASIDES, ORDER))
    assert facts["steps"] == ["desk", "specialist"]
    assert facts["calls"] == [["look_up", {"order": 7}]]
    assert facts["results"] == ["left on Monday"]
    moved = {"status": "occurred", "source": "desk", "target": "specialist"}
    assert facts["handoffs"] == [["routelock:handoff", moved]]


def test_no_letter_is_changed(ag_ui: Played) -> None:
    assert ag_ui["unicode"]["text"] == POLYGLOT


def test_reasoning_is_shown(ag_ui: Played) -> None:
    assert "REASONING_MESSAGE_CONTENT" in ag_ui["thinking"]["kinds"]


def test_signs_of_life_do_not_disturb(ag_ui: Played) -> None:
    assert ag_ui["slow"]["text"] == "That took a while."


def test_a_failure_is_an_error_after_what_was_said(ag_ui: Played) -> None:
    facts = ag_ui["broken"]
    assert (facts["text"], facts["error"]) == ("Half an ", "upstream_error")


def test_output_that_is_no_text_is_the_result(ag_ui: Played) -> None:
    assert ag_ui["structured"]["result"] == ORDER_DATA


def test_an_agent_as_a_tool_is_a_call_and_for_new_clients_a_subagent(ag_ui: Played) -> None:
    facts = ag_ui["subagent"]
    assert (facts["text"], facts["results"]) == (ANSWER, ["An aside."])
    assert facts["subagents"] == (["inner"] if ag_ui.client == "1" else [])


def test_it_runs_its_own_tool_and_goes_on(ag_ui: Played) -> None:
    facts = ag_ui["own_tool"]
    asked = [["get_weather", {"city": city}] for city in ("Paris", "Rome")]
    assert [each for each in facts["first"]["calls"] if each[0] == "get_weather"] == asked
    assert (facts["first"]["text"], facts["second"]["text"]) == ("One moment.", FORECAST)
    assert facts["first"]["outcome"] == "success"
    assert ag_ui.log.stamped == ["Weather, please?"]


def test_a_conversation_is_what_the_client_sends(ag_ui: Played) -> None:
    assert ag_ui["conversation"]["texts"] == ["one", "one|two"]


def test_a_tool_changes_the_state_of_the_client(ag_ui: Played) -> None:
    assert ag_ui["state"]["state"] == {"steps": ["wake up", "get up"]}


def test_an_approval_is_an_interrupt_that_the_next_run_resolves(ag_ui: Played) -> None:
    facts = ag_ui["approved"]
    assert facts["first"]["outcome"] == "interrupt"
    assert facts["interrupt"]["reason"] == "tool_call"
    assert (facts["blocked"], facts["left"]) == (True, 0)
    assert (facts["second"]["results"], facts["second"]["text"]) == (["paid"], "Then: paid")
    assert ag_ui["paid"]["amounts"][0] == 40


def test_a_rejection_reaches_the_model(ag_ui: Played) -> None:
    assert ag_ui["rejected"]["text"] == "Then: This call was not approved: Too much."


def test_a_question_that_needs_fields_is_a_form_that_the_next_run_fills(ag_ui: Played) -> None:
    facts = ag_ui["form"]
    assert (facts["interrupt"]["reason"], facts["interrupt"]["message"]) == (
        "input_required",
        "Which branch?",
    )
    assert facts["interrupt"]["responseSchema"] == BRANCHES
    assert (facts["wrong"], facts["waits"]) == ("HTTP 400", True)
    assert (facts["text"], facts["left"]) == ("Then: lent: {'branch': 'north'}", 0)


def test_a_form_may_be_left_empty(ag_ui: Played) -> None:
    assert ag_ui["declined"]["text"] == "Then: not lent"


def test_a_client_may_edit_the_arguments_that_it_approves(ag_ui: Played) -> None:
    assert (ag_ui["edited"]["editable"], ag_ui["edited"]["text"]) == (True, "Then: paid")
    assert ag_ui["paid"] == {"amounts": [40, 30]}


def test_a_large_state_is_sent_once_and_then_what_has_changed(ag_ui: Played) -> None:
    facts = ag_ui["deltas"]
    assert facts["kinds"] == ["STATE_SNAPSHOT", "STATE_DELTA", "STATE_DELTA"]
    assert facts["state"] == {"text": "x" * 500, "seen": [{"n": n} for n in range(3)]}


def test_a_client_that_leaves_cancels_the_run(ag_ui: Played) -> None:
    assert ag_ui["leaving"]["text"] == "Tick "
    assert comes_true(lambda: "leaving" in ag_ui.log.cancelled)


def test_refusals_have_a_status(ag_ui: Played) -> None:
    facts = ag_ui["errors"]
    assert [facts[each] for each in ("key", "agent", "answer")] == ["HTTP 401", "HTTP 404", "HTTP 400"]
