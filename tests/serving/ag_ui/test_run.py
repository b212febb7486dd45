"""What the app's own code is given of a request, and what is kept after it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from ag_ui_client import Client, of_kind
from scripted_agents import agent

from routelock import RunConfig, ToolContext, function_tool, handoff, tool
from routelock.serving import AGUI, ServeConfig, ServedRequest, create_app
from routelock.testing import call

TOOL = {"name": "open_door", "description": "Open."}


@function_tool
def who(context: ToolContext[Any]) -> str:
    """Say what is known of the caller."""
    return f"{context.context} in {context.conversation_id}"


def test_tools_know_the_thread_and_the_context_of_the_app() -> None:
    def context(request: ServedRequest) -> str:
        return f"{request.principal} at {request.model}"

    config = ServeConfig(ag_ui=AGUI(), context=context)
    app = create_app(agent("A", call("who"), "Done.", tools=[who]), config)
    [result] = of_kind(Client(app, thread="t7").run("Hi"), "TOOL_CALL_RESULT")
    assert result["content"] == "anonymous at A in t7"


def test_memory_of_the_app_stays() -> None:
    @function_tool
    def keys(context: ToolContext[Any]) -> str:
        """Name what is shared."""
        return " ".join(sorted(context.shared_memory))

    config = ServeConfig(ag_ui=AGUI(), run_config=RunConfig(shared_memory={"shop": 1}))
    app = create_app(agent("A", call("keys"), "Done.", tools=[keys]), config)
    [result] = of_kind(Client(app).run("Hi"), "TOOL_CALL_RESULT")
    assert result["content"] == "ag_ui shop"


def test_a_context_that_fails_is_an_error_with_a_status() -> None:
    def context(request: ServedRequest) -> str:
        raise ValueError("secret")

    client = Client(create_app(agent("A"), ServeConfig(ag_ui=AGUI(), context=context)))
    client.say("Hi")
    answer = client.post()
    assert answer.status == 500
    assert "secret" not in answer.text


def test_a_state_that_a_handoff_keeps_back_is_not_sent() -> None:
    b = agent("B", call("who"), "Done.", tools=[who])
    a = agent("A", call("transfer_to_b"), handoffs=[handoff(b, share=[])])
    events = Client(create_app(a, ServeConfig(ag_ui=AGUI()))).run("Hi", state={"open": 7})
    assert of_kind(events, "STATE_SNAPSHOT") == []


def test_a_run_that_cannot_be_kept_begins_again_with_the_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a = agent("A", call("open_door"), "It is open.")
    config = ServeConfig(ag_ui=AGUI(), run_config=RunConfig(shared_memory={"socket": object()}))
    client = Client(create_app(a, config))
    events = client.run("Hi", tools=[TOOL])
    client.answer(events[-1]["outcome"]["pendingToolCallIds"][0], "open")
    client.run(tools=[TOOL])
    assert client.messages[-1]["content"] == "It is open."
    assert "is not kept" in caplog.text


def test_a_state_that_an_approved_call_changes_is_sent() -> None:
    @tool(needs_approval=True)
    def close(context: ToolContext[Any]) -> str:
        """Close what is open."""
        context.shared_memory["ag_ui"]["state"]["open"] = 0
        return "closed"

    a = agent("A", call("close"), "Done.", tools=[close])
    client = Client(create_app(a, ServeConfig(ag_ui=AGUI(approvals=True))))
    client.state = {"open": 7}
    [interrupt] = client.run("Close it.")[-1]["outcome"]["interrupts"]
    events = client.run(resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": True}])
    assert [event["snapshot"] for event in of_kind(events, "STATE_SNAPSHOT")] == [{"open": 0}]


def test_each_request_has_the_turns_of_one_run() -> None:
    a = agent("A", call("open_door"), call("open_door"), "It is open.")
    client = Client(create_app(a, ServeConfig(ag_ui=AGUI(), max_turns=1)))
    events = client.run("Hi", tools=[TOOL])
    for _ in range(2):
        client.answer(events[-1]["outcome"]["pendingToolCallIds"][0], "stuck")
        events = client.run(tools=[TOOL])
    assert client.messages[-1]["content"] == "It is open."


def test_a_handoff_may_wait_for_the_user() -> None:
    a = agent("A", call("transfer_to_b"), handoffs=[handoff(agent("B", "Here is B."), needs_approval=True)])
    client = Client(create_app(a, ServeConfig(ag_ui=AGUI(approvals=True))))
    [interrupt] = client.run("Hi")[-1]["outcome"]["interrupts"]
    events = client.run(resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": True}])
    assert interrupt["reason"] == "confirmation"
    assert [event["stepName"] for event in of_kind(events, "STEP_STARTED")] == ["A", "B"]
    assert client.messages[-1]["content"] == "Here is B."


def test_answers_alone_are_refused_if_no_run_waits_for_them() -> None:
    client = Client(create_app(agent("A"), ServeConfig(ag_ui=AGUI())))
    answer = client.post(resume=[{"interruptId": "i", "status": "cancelled"}])
    assert (answer.status, answer.json()["error"]["code"]) == (409, "not_waiting")


def test_answers_that_no_run_waits_for_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(create_app(agent("A", "Hello."), ServeConfig(ag_ui=AGUI())))
    with caplog.at_level(logging.WARNING, "routelock.serving"):
        client.run("Hi", resume=[{"interruptId": "i", "status": "cancelled"}])
    assert "no run of this thread waits" in caplog.text
