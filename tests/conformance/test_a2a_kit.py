"""The kit's requirements are counted, and those that cannot apply have a reason."""

from __future__ import annotations

from typing import Any

import pytest
from a2a_calls import ask, task_of, text_of, told
from conformance.a2a_kit import OPTIONAL, SAME_ID, judged
from served_apps import listening

pytest.importorskip("a2a")


def requirement(status: str, *errors: str, **transports: str) -> dict[str, Any]:
    return {"level": "MUST", "status": status, "errors": list(errors), "transports": transports}


def test_a_known_failure_is_told_from_a_new_one() -> None:
    report = {
        "CORE-1": requirement("PASS"),
        "CORE-HIST-005": requirement("FAIL", "no history"),
        "CORE-2": requirement("FAIL", "no", "never"),
    }
    result = judged(report, "1")
    assert result.passed == 1
    assert result.failed == {"CORE-HIST-005 (MUST)": SAME_ID, "CORE-2 (MUST)": "no; never"}
    assert list(result.known) == ["CORE-HIST-005 (MUST)"]


def test_what_does_not_apply_says_why() -> None:
    report = {
        "PUSH-1": requirement("SKIPPED", grpc="SKIPPED", jsonrpc="SKIPPED"),
        "GRPC-1": requirement("SKIPPED", grpc="SKIPPED"),
    }
    reasons = judged(report, "1").not_applicable
    assert reasons["PUSH-1 (MUST)"] == OPTIONAL
    assert reasons["GRPC-1 (MUST)"].startswith("gRPC")


def test_the_agents_play_the_scenario_that_a_message_names() -> None:
    from conformance.a2a_agents import DATA, HELLO, kit_app

    with listening(kit_app()) as url:
        address = f"{url}/a2a/desk"
        hello = task_of(ask(address, messageId="tck-complete-task-1"))
        data = task_of(ask(address, messageId="tck-artifact-data-1"))
        asking = task_of(ask(address, messageId="tck-input-required-1"))
        message = ask(address, messageId="tck-message-response-1")["result"]
    assert (told(hello)[0], text_of(hello)) == ("COMPLETED", HELLO)
    assert data["artifacts"][0]["parts"][0]["data"] == {"key": DATA.key, "count": DATA.count}
    assert told(asking)[0] == "INPUT_REQUIRED"
    assert list(message) == ["message"]
