"""AG-UI: events, tools, approvals, state and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest
from ag_ui_client import Client, kinds, of_kind
from asgi_client import asked
from scripted_agents import agent, look_up, pair, requests, shown
from served_apps import PATIENCE, served
from waiting import eventually

from routelock import Agent, ProviderError, RunConfig, ToolContext, function_tool, handoff, tool
from routelock.handlers.events import HandlerEvent, TextDelta
from routelock.handlers.port import Request
from routelock.serving import AGUI, ServeConfig, create_app
from routelock.testing import call, reply

CONFIG = ServeConfig(ag_ui=AGUI())
APPROVING = ServeConfig(ag_ui=AGUI(approvals=True))
WEATHER = {"name": "get_weather", "description": "The weather.", "parameters": {"type": "object"}}


def paying(*replies: Any) -> tuple[Agent[Any], list[int]]:
    """An agent whose payments need approval, and what it has paid."""
    paid: list[int] = []

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return agent("clerk", *replies, tools=[pay]), paid


def url_of(base: str, name: str = "") -> str:
    return base.removesuffix("/v1") + "/ag-ui" + (f"/{name}" if name else "")


def texts(client: Client) -> list[str]:
    return [each["content"] for each in client.messages if each["role"] == "assistant" and each["content"]]


def interrupts_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    found: list[dict[str, Any]] = outcome["interrupts"]
    return found


def resolved(interrupt: dict[str, Any], payload: Any) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


# -- what a client sees --


def test_a_run_is_a_step_with_a_message() -> None:
    app = create_app(agent("A", "Hello there."), CONFIG)
    events = Client(app, "A").run("Hi")
    assert kinds(events) == [
        "RUN_STARTED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]
    ids = {"threadId": "t", "runId": "r1"}
    assert events[0] == {"type": "RUN_STARTED", **ids, "protocolVersion": "1.0"}
    usage = [{"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}]
    assert events[-1] == {"type": "RUN_FINISHED", **ids, "outcome": {"type": "success"}, "usage": usage}


def test_without_a_name_the_first_agent_answers() -> None:
    app = create_app([agent("A", "I am A."), agent("B")], CONFIG)
    client = Client(app)
    client.run("Hi")
    assert texts(client) == ["I am A."]


def test_calls_of_the_agents_are_shown_with_their_results() -> None:
    a = agent("A", reply("One moment.", calls=[call("look_up", {"order": 7})]), "Done.", tools=[look_up])
    app = create_app(a, CONFIG)
    client = Client(app)
    events = client.run("Hi")
    [made] = of_kind(events, "TOOL_CALL_START")
    [result] = of_kind(events, "TOOL_CALL_RESULT")
    assert (made["toolCallName"], result["content"]) == ("look_up", "order 7 is on its way")
    assert made["toolCallId"] == result["toolCallId"]
    assert client.messages[1]["content"] == "One moment."
    assert client.messages[1]["toolCalls"][0]["function"]["arguments"] == '{"order": 7}'
    assert texts(client) == ["One moment.", "Done."]


def test_calls_of_the_agents_can_be_hidden() -> None:
    a = agent("A", call("look_up", {"order": 7}), "Done.", tools=[look_up])
    app = create_app(a, ServeConfig(ag_ui=AGUI(show_calls=False)))
    events = Client(app).run("Hi")
    assert not [kind for kind in kinds(events) if kind.startswith("TOOL_CALL")]


def test_a_failed_tool_is_marked() -> None:
    a = agent("A", call("look_up", {"order": "x"}), "Done.", tools=[look_up])
    app = create_app(a, CONFIG)
    [result] = of_kind(Client(app).run("Hi"), "TOOL_CALL_RESULT")
    assert result["metadata"]["routelock"]["error"] == "arguments"


def test_a_handoff_is_another_step_and_no_call() -> None:
    a, _ = pair()
    app = create_app(a, CONFIG)
    events = Client(app).run("Hi")
    assert [event["stepName"] for event in of_kind(events, "STEP_STARTED")] == ["A", "B"]
    [told] = of_kind(events, "CUSTOM")
    assert told["name"] == "routelock:handoff"
    assert told["value"] == {"status": "occurred", "source": "A", "target": "B"}
    assert of_kind(events, "TOOL_CALL_START") == []


def test_an_answer_that_is_handed_back_begins_a_step_again() -> None:
    a, _ = pair("So it is.", return_to_caller=True)
    app = create_app(a, CONFIG)
    events = Client(app).run("Hi")
    assert [event["stepName"] for event in of_kind(events, "STEP_STARTED")] == ["A", "B", "A"]
    assert [event["value"]["status"] for event in of_kind(events, "CUSTOM")] == ["occurred", "returned"]


def outer_agent() -> Agent[Any]:
    inner = agent("inner", "Aside.")
    return agent("outer", call("ask", {"input": "x"}), "Done.", tools=[inner.as_tool("ask", "Ask it.")])


def test_an_agent_as_a_tool_is_a_subagent_of_its_call() -> None:
    app = create_app(outer_agent(), CONFIG)
    client = Client(app)
    events = client.run("Hi")
    [begun] = of_kind(events, "SUBAGENT_STARTED")
    [made] = of_kind(events, "TOOL_CALL_START")
    assert (begun["name"], begun["parentToolCallId"]) == ("inner", made["toolCallId"])
    assert [event["outcome"]["type"] for event in of_kind(events, "SUBAGENT_FINISHED")] == ["success"]
    assert texts(client) == ["Done."]


def test_an_older_client_is_sent_nothing_that_version_1_has_added() -> None:
    app = create_app(outer_agent(), CONFIG)
    events = Client(app, is_current=False).run("Hi")
    assert of_kind(events, "SUBAGENT_STARTED") == []
    assert "outcome" not in events[-1]


def test_reasoning_is_a_message_of_its_own() -> None:
    app = create_app(agent("A", reply("Yes.", reasoning="Hm.")), CONFIG)
    events = Client(app).run("Hi")
    assert kinds(events)[2:8] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
    ]


def test_an_output_that_has_a_type_is_the_result() -> None:
    app = create_app(agent("A", '{"response": 7}', output_type=int), CONFIG)
    client = Client(app)
    events = client.run("Hi")
    assert events[-1]["result"] == 7
    assert texts(client) == ['{"response": 7}']


# -- conversations --


def test_a_model_is_shown_the_calls_of_earlier_runs() -> None:
    a = agent("A", call("look_up", {"order": 7}), "It comes.", "On Monday.", tools=[look_up])
    app = create_app(a, CONFIG)
    client = Client(app)
    client.run("Where is it?")
    client.run("When?")
    roles = [message["role"] for message in shown(a, 2)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_the_context_of_the_application_is_shown_to_the_model() -> None:
    a = agent("A", "Hello.")
    context = [{"description": "The page", "value": "Orders"}]
    app = create_app(a, CONFIG)
    Client(app).run("Hi", context=context)
    systems = [each.get("content") for each in requests(a)[0].messages if each["role"] == "system"]
    assert any("The page:\nOrders" in str(content) for content in systems)


def test_a_sticky_agent_goes_on_in_its_thread() -> None:
    b = agent("B", "Here is B.", "B again.")
    a = agent("A", call("transfer_to_b"), "A again.", handoffs=[handoff(b)])
    config = replace(CONFIG, run_config=RunConfig(next_agent="sticky"))
    app = create_app(a, config)
    client, other = Client(app), Client(app, thread="other")
    client.run("Hi")
    client.run("And?")
    other.run("Hi")
    assert texts(client) == ["Here is B.", "B again."]
    assert texts(other) == ["A again."]


# -- tools of the client --


def test_a_call_of_the_clients_tool_ends_the_run_which_goes_on_with_the_result() -> None:
    first = reply("", calls=[call("get_weather", {"city": "Rome"}, id="w"), call("look_up", {"order": 1})])
    a = agent("A", first, "It rains.", tools=[look_up])
    app = create_app(a, CONFIG)
    client = Client(app)
    events = client.run("Weather?", tools=[WEATHER])
    [pending] = events[-1]["outcome"]["pendingToolCallIds"]
    client.answer(pending, "rain")
    after = client.run(tools=[WEATHER])
    assert pending != "w"
    assert of_kind(after, "TOOL_CALL_RESULT") == []
    assert texts(client) == ["It rains."]
    assert [each.get("content") for each in shown(a, 1) if each["role"] == "tool"] == [
        "order 1 is on its way",
        "rain",
    ]


def test_the_agent_that_made_the_call_goes_on_and_answers_its_caller() -> None:
    """A waiting run keeps its place, also in a handoff that returns."""
    b = agent("B", call("get_weather"), "Rain, says B.")
    a = agent("A", call("transfer_to_b"), "So it rains.", handoffs=[handoff(b, return_to_caller=True)])
    app = create_app(a, CONFIG)
    client = Client(app)
    events = client.run("Weather?", tools=[WEATHER])
    client.answer(events[-1]["outcome"]["pendingToolCallIds"][0], "rain")
    after = client.run(tools=[WEATHER])
    assert [event["stepName"] for event in of_kind(after, "STEP_STARTED")] == ["B", "A"]
    assert texts(client) == ["Rain, says B.", "So it rains."]


def test_a_message_in_place_of_the_result_begins_a_new_run() -> None:
    a = agent("A", call("get_weather"), "Never mind.")
    app = create_app(a, CONFIG)
    client = Client(app)
    client.run("Weather?", tools=[WEATHER])
    client.run("Forget it.", tools=[WEATHER])
    assert texts(client) == ["Never mind."]
    assert shown(a, 1)[-1].get("content") == "Forget it."


def test_a_tool_with_the_name_of_one_of_the_server_is_refused() -> None:
    app = create_app(agent("A", tools=[look_up]), CONFIG)
    client = Client(app)
    client.say("Hi")
    response = client.post(tools=[{"name": "look_up", "description": ""}])
    assert response.status == 400
    assert response.json()["error"]["param"] == "tools[0].function.name"


# -- approvals --


def test_an_approved_call_is_made_and_its_result_is_that_of_the_call() -> None:
    a, paid = paying(call("pay", {"amount": 40}), "Done.")
    app = create_app(a, APPROVING)
    client = Client(app)
    [interrupt] = interrupts_of(client.run("Pay."))
    before = [*paid]
    after = client.run(resume=[resolved(interrupt, {"approved": True})])
    assert (before, paid) == ([], [40])
    assert interrupt["reason"] == "tool_call"
    assert interrupt["metadata"]["routelock"]["arguments"] == '{"amount": 40}'
    [result] = of_kind(after, "TOOL_CALL_RESULT")
    assert (result["toolCallId"], result["content"]) == (interrupt["toolCallId"], "paid 40")
    assert of_kind(after, "TOOL_CALL_START") == []
    assert after[-1]["usage"][0]["totalTokens"] == 15, "the interrupted run has told its own"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"status": "resolved", "payload": {"approved": False, "message": "Too much."}}, "Too much."),
        ({"status": "resolved", "payload": False}, "was not approved"),
        ({"status": "cancelled"}, "was not approved"),
    ],
)
def test_a_rejected_call_is_not_made(entry: dict[str, Any], told: str) -> None:
    a, paid = paying(call("pay", {"amount": 40}), "As you like.")
    app = create_app(a, APPROVING)
    client = Client(app)
    [interrupt] = interrupts_of(client.run("Pay."))
    after = client.run(resume=[{"interruptId": interrupt["id"], **entry}])
    assert paid == []
    assert told in of_kind(after, "TOOL_CALL_RESULT")[0]["content"]
    assert texts(client) == ["As you like."]


def test_a_call_goes_on_waiting_until_all_have_an_answer() -> None:
    calls = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    a, paid = paying(reply("", calls=calls), "Done.")
    app = create_app(a, APPROVING)
    client = Client(app)
    open_ones = interrupts_of(client.run("Pay."))
    again = interrupts_of(client.run("Well?"))
    partly = interrupts_of(client.run(resume=[resolved(open_ones[0], {"approved": True})]))
    unpaid = [*paid]
    client.run(resume=[resolved(one, {"approved": True}) for one in open_ones])
    assert again == partly == open_ones
    assert (unpaid, sorted(paid)) == ([], [1, 2])


def test_an_answer_counts_once() -> None:
    a, paid = paying(call("pay", {"amount": 40}), "Done.", "Done already.")
    app = create_app(a, APPROVING)
    client = Client(app)
    [interrupt] = interrupts_of(client.run("Pay."))
    for _ in range(2):
        client.run(resume=[resolved(interrupt, {"approved": True})])
    assert paid == [40]


def test_the_answer_of_another_caller_does_not_count() -> None:
    a, paid = paying(call("pay", {"amount": 40}), "What?")
    app = create_app(a, replace(APPROVING, api_keys=["one", "two"]))
    mine, other = Client(app, key="one"), Client(app, key="two")
    [interrupt] = interrupts_of(mine.run("Pay."))
    other.run("Hi", resume=[resolved(interrupt, {"approved": True})])
    assert paid == []


@pytest.mark.parametrize("payload", [None, {}, {"approved": "yes"}, {"approved": True, "editedArgs": {}}])
def test_an_answer_that_is_not_clear_is_refused_and_the_call_waits(payload: Any) -> None:
    a, paid = paying(call("pay", {"amount": 40}), "Done.")
    app = create_app(a, APPROVING)
    client = Client(app)
    [interrupt] = interrupts_of(client.run("Pay."))
    response = client.post(resume=[resolved(interrupt, payload)])
    client.run(resume=[resolved(interrupt, {"approved": True})])
    assert response.status == 400
    assert response.json()["error"]["param"].startswith("resume[0].payload")
    assert paid == [40]


def test_a_call_within_an_agent_as_a_tool_is_asked_for_by_its_message() -> None:
    inner, paid = paying(call("pay", {"amount": 40}), "Paid.")
    outer = agent("outer", call("ask", {"input": "x"}), "Done.", tools=[inner.as_tool("ask", "Ask it.")])
    app = create_app(outer, APPROVING)
    client = Client(app)
    events = client.run("Pay.")
    [interrupt] = interrupts_of(events)
    client.run(resume=[resolved(interrupt, {"approved": True})])
    assert (interrupt["reason"], "toolCallId" in interrupt) == ("confirmation", False)
    assert interrupt["message"] == 'May clerk make this call? pay({"amount": 40})'
    assert [event["outcome"]["type"] for event in of_kind(events, "SUBAGENT_FINISHED")] == ["suspended"]
    assert paid == [40]
    assert texts(client) == ["Done."]


def test_a_run_may_wait_for_approval_and_for_the_client_at_once() -> None:
    a, paid = paying(reply("", calls=[call("pay", {"amount": 1}), call("get_weather")]), "Done.")
    app = create_app(a, APPROVING)
    client = Client(app)
    events = client.run("Pay.", tools=[WEATHER])
    [interrupt] = interrupts_of(events)
    [weather] = [
        each["toolCallId"]
        for each in of_kind(events, "TOOL_CALL_START")
        if each["toolCallName"] == "get_weather"
    ]
    entry = resolved(interrupt, {"approved": True})
    refused = client.post(tools=[WEATHER], resume=[entry])
    client.answer(weather, "rain")
    client.run(tools=[WEATHER], resume=[entry])
    assert refused.status == 400
    assert paid == [1]
    assert texts(client) == ["Done."]


def test_unless_the_app_allows_it_a_client_approves_nothing() -> None:
    a, paid = paying(call("pay", {"amount": 40}))
    app = create_app(a, CONFIG)
    events = Client(app).run("Pay.")
    assert events[-1]["code"] == "approval_required"
    assert paid == []


# -- state --


@function_tool
def plan(context: ToolContext[Any], step: str) -> str:
    """Add a step."""
    state = context.shared_memory["ag_ui"]["state"]
    state["steps"] = [*state.get("steps", []), step]
    return "planned"


def test_a_state_that_a_tool_changes_is_sent() -> None:
    a = agent("A", call("plan", {"step": "one"}), call("plan", {"step": "two"}), "Done.", tools=[plan])
    app = create_app(a, CONFIG)
    client = Client(app)
    events = client.run("Hi")
    sent = [event["snapshot"]["steps"] for event in of_kind(events, "STATE_SNAPSHOT")]
    assert sent == [["one"], ["one", "two"]]


def test_tools_see_the_state_of_the_client_also_after_an_interrupt() -> None:
    @tool(needs_approval=True)
    def note(context: ToolContext[Any]) -> str:
        """Note the state."""
        return str(context.shared_memory["ag_ui"])

    a = agent("A", call("note"), "Done.", tools=[note])
    app = create_app(a, APPROVING)
    client = Client(app)
    [interrupt] = interrupts_of(client.run("Hi"))
    client.state = {"open": 7}
    entry = resolved(interrupt, {"approved": True})
    events = client.run(resume=[entry], forwardedProps={"theme": "dark"})
    [result] = of_kind(events, "TOOL_CALL_RESULT")
    assert result["content"] == "{'state': {'open': 7}, 'forwarded_props': {'theme': 'dark'}}"
    assert of_kind(events, "STATE_SNAPSHOT") == []


# -- errors, and how runs end --


def test_a_model_that_fails_ends_the_run_with_an_error() -> None:
    async def broken(request: Request) -> AsyncIterator[HandlerEvent]:
        yield TextDelta("Half a ")
        raise ProviderError("secret words")

    app = create_app(agent("A", broken), CONFIG)
    events = Client(app).run("Hi")
    assert events[-1] == {
        "type": "RUN_ERROR",
        "message": "The model behind this agent failed.",
        "code": "upstream_error",
    }


@pytest.mark.parametrize("is_current", [True, False])
def test_a_run_that_a_limit_ends_is_cancelled(is_current: bool) -> None:
    a = agent("A", call("look_up", {"order": 1}), tools=[look_up])
    config = replace(CONFIG, max_turns=1, run_config=RunConfig(on_limit="return"))
    app = create_app(a, config)
    events = Client(app, is_current=is_current).run("Hi")
    assert events[-1].get("outcome") == ({"type": "cancelled"} if is_current else None)


def test_a_run_that_takes_too_long_ends_with_an_error() -> None:
    async def endless(request: Request) -> AsyncIterator[HandlerEvent]:
        yield TextDelta("Tick")
        await anyio.sleep_forever()

    app = create_app(agent("A", endless), replace(CONFIG, timeout=0.05))
    events = Client(app).run("Hi")
    assert events[-1]["code"] == "timeout"


def test_a_client_that_leaves_cancels_its_run() -> None:
    ended: list[str] = []

    async def endless(request: Request) -> AsyncIterator[HandlerEvent]:
        try:
            yield TextDelta("Tick")
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    message = {"id": "1", "role": "user", "content": "Hi"}
    body = {"threadId": "t", "runId": "r", "messages": [message]}
    with (
        served(agent("A", endless), CONFIG) as base,
        httpx.stream("POST", url_of(base), json=body, timeout=PATIENCE) as response,
    ):
        next(line for line in response.iter_lines() if "Tick" in line)
        response.close()
        eventually(lambda: bool(ended))
    assert ended == ["cancelled"]


def test_keys_bodies_and_names_are_checked_as_for_chats() -> None:
    config = replace(CONFIG, api_keys=["key"], max_body=500)
    app = create_app(agent("A"), config)
    wrong = Client(app, key="wrong").post()
    unknown = Client(app, "stranger", key="key").post()
    long = Client(app, key="key").post(forwardedProps="x" * 500)
    headers = {"authorization": "Bearer key", "content-type": "text/plain"}
    plain = asked(app, "/ag-ui", {}, headers=headers)
    answers = (wrong, unknown, long, plain)
    assert [answer.status for answer in answers] == [401, 404, 413, 415]
    assert all("request_id" in answer.json()["error"] for answer in answers)


def test_without_the_setting_there_is_no_such_route() -> None:
    assert asked(create_app(agent("A")), "/ag-ui/A", {}).status == 404
