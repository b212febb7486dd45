"""Questions of tools, approvals with edited arguments, and wrong answers, as interrupts of AG-UI."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest
from ag_ui_client import Client, Event, of_kind
from scripted_agents import agent, shown

from routelock import Agent, ToolContext, handoff, tool
from routelock.history.messages import calls_of
from routelock.serving import AGUI, ServeConfig, create_app
from routelock.testing import ScriptedReply, call, reply
from routelock.tools import ToolQuestion

BRANCH = {
    "type": "object",
    "properties": {"branch": {"enum": ["north", "south"]}, "days": {"type": "integer", "default": 7}},
    "required": ["branch"],
}

APPROVING = ServeConfig(ag_ui=AGUI(approvals=True))

EDITING = ServeConfig(ag_ui=AGUI(approvals=True, edits=True))


class Library:
    """Its tool asks for a branch before it lends a book; it keeps all answers."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

        @tool
        def lend(context: ToolContext[Any], title: str = "Emma") -> Any:
            """Lend a book."""
            if context.answer is None:
                return ToolQuestion(message="Which branch?", schema=BRANCH, data={"shelf": "secret"})
            answer = context.answer
            self.heard.append((title, answer.content if answer.approved else answer.message))
            return "lent" if answer.approved else "not lent"

        self.lend = lend

    def agent(self, *replies: Any, **more: Any) -> Agent[Any]:
        return agent("A", *(replies or (call("lend"), "Done.")), tools=[self.lend], **more)


def asked(app: Any, **more: Any) -> tuple[Client, list[Event]]:
    """A client whose run waits, and the interrupts."""
    client = Client(app, **more)
    return client, interrupts_of(client.run("Lend it."))


def interrupts_of(events: list[Event]) -> list[Event]:
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    return cast("list[Event]", outcome["interrupts"])


def resolved(interrupt: Event, payload: Any) -> Event:
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


# -- questions that need fields --


def test_a_question_that_needs_fields_gives_its_form() -> None:
    _, [interrupt] = asked(create_app(Library().agent(), APPROVING))
    assert (interrupt["reason"], interrupt["message"]) == ("input_required", "Which branch?")
    assert interrupt["responseSchema"] == BRANCH
    assert "toolCallId" in interrupt


def test_what_a_tool_keeps_with_its_question_is_not_shown() -> None:
    _, [interrupt] = asked(create_app(Library().agent(), APPROVING))
    assert "secret" not in json.dumps(interrupt)
    assert interrupt["metadata"]["routelock"] == {"agent": "A", "name": "lend", "arguments": "{}"}


@pytest.mark.parametrize(
    ("payload", "heard"),
    [
        ({"branch": "north"}, {"branch": "north", "days": 7}),
        ({"branch": "south", "days": 3}, {"branch": "south", "days": 3}),
        ({"approved": True, "branch": "south"}, {"branch": "south", "days": 7}),
        ({"approved": False, "message": "Not today."}, "Not today."),
        (False, ""),
    ],
)
def test_the_payload_is_the_answer(payload: Any, heard: Any) -> None:
    library = Library()
    client, [interrupt] = asked(create_app(library.agent(), APPROVING))
    after = client.run(resume=[resolved(interrupt, payload)])
    assert library.heard == [("Emma", heard)]
    assert after[-1]["outcome"]["type"] == "success"


def test_a_cancelled_question_is_declined() -> None:
    library = Library()
    client, [interrupt] = asked(create_app(library.agent(), APPROVING))
    client.run(resume=[{"interruptId": interrupt["id"], "status": "cancelled"}])
    assert library.heard == [("Emma", "")]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"branch": "west"}, ".branch"),
        ({"branch": "north", "days": "three"}, ".days"),
        ({"branch": "north", "colour": "red"}, ".colour"),
        ({"approved": True}, ".branch"),
        (True, ".branch"),
        ("north", ""),
    ],
)
def test_a_wrong_answer_names_the_field_and_the_run_still_waits(payload: Any, field: str) -> None:
    library = Library()
    client, [interrupt] = asked(create_app(library.agent(), APPROVING))
    refused = client.post(resume=[resolved(interrupt, payload)])
    error = refused.json()["error"]
    assert (refused.status, error["param"]) == (400, f"resume[0].payload{field}")
    assert library.heard == []
    client.run(resume=[resolved(interrupt, {"branch": "north"})])
    assert library.heard == [("Emma", {"branch": "north", "days": 7})]


def test_a_question_that_leads_to_a_page_names_it() -> None:
    @tool
    def sign(context: ToolContext[Any]) -> Any:
        """Sign."""
        if context.answer is None:
            return ToolQuestion(message="Sign the contract at", url="https://example.com/sign")
        return "signed"

    client, [interrupt] = asked(create_app(agent("A", call("sign"), "Done.", tools=[sign]), APPROVING))
    assert interrupt["message"] == "Sign the contract at https://example.com/sign"
    assert (interrupt["reason"], interrupt["responseSchema"]["required"]) == ("tool_call", ["approved"])
    client.run(resume=[resolved(interrupt, True)])
    assert client.messages[-1]["content"] == "Done."


def test_two_questions_are_answered_at_once() -> None:
    library = Library()
    calls = [call("lend", {"title": "Emma"}, id="c1"), call("lend", {"title": "Persuasion"}, id="c2")]
    client, [first, second] = asked(create_app(library.agent(reply("", calls=calls), "Done."), APPROVING))
    answers = {first["id"]: "north", second["id"]: "south"}
    alone = client.run(resume=[resolved(first, {"branch": "north"})])
    assert [each["id"] for each in interrupts_of(alone)] == [*answers]
    assert library.heard == []
    entries = [resolved({"id": each}, {"branch": branch}) for each, branch in answers.items()]
    client.run(resume=entries)
    assert sorted((title, content["branch"]) for title, content in library.heard) == [
        ("Emma", "north"),
        ("Persuasion", "south"),
    ]


def test_if_one_of_two_answers_is_wrong_neither_counts() -> None:
    library = Library()
    calls = [call("lend", {"title": "Emma"}, id="c1"), call("lend", {"title": "Persuasion"}, id="c2")]
    client, [first, second] = asked(create_app(library.agent(reply("", calls=calls), "Done."), APPROVING))
    right, wrong = resolved(first, {"branch": "north"}), resolved(second, {"branch": "west"})
    assert client.post(resume=[right, wrong]).json()["error"]["param"] == "resume[1].payload.branch"
    assert library.heard == []


def test_a_question_within_an_agent_that_is_a_tool_is_answered() -> None:
    library = Library()
    outer = agent(
        "O", call("ask", {"input": "Lend."}), "All done.", tools=[library.agent().as_tool("ask", "Ask.")]
    )
    client, [interrupt] = asked(create_app(outer, APPROVING))
    assert (interrupt["reason"], "toolCallId" in interrupt) == ("input_required", False)
    client.run(resume=[resolved(interrupt, {"branch": "north"})])
    assert library.heard == [("Emma", {"branch": "north", "days": 7})]
    assert client.messages[-1]["content"] == "All done."


def test_a_question_after_a_handoff_is_answered_to_the_target() -> None:
    library = Library()
    first = agent("F", call("transfer_to_a"), handoffs=[handoff(library.agent())])
    client, [interrupt] = asked(create_app(first, APPROVING))
    after = client.run(resume=[resolved(interrupt, {"branch": "north"})])
    assert [event["stepName"] for event in of_kind(after, "STEP_STARTED")] == ["A"]
    assert library.heard == [("Emma", {"branch": "north", "days": 7})]


def test_a_tool_may_ask_again_and_the_first_answer_does_not_count_twice() -> None:
    heard: list[Any] = []

    @tool
    def lend(context: ToolContext[Any]) -> Any:
        """Lend a book."""
        if context.answer is None or context.answer.number < 2:
            return ToolQuestion(message="Which branch?", schema=BRANCH)
        heard.append(context.answer.content)
        return "lent"

    client, [first] = asked(create_app(agent("A", call("lend"), "Done.", tools=[lend]), APPROVING))
    [second] = interrupts_of(client.run(resume=[resolved(first, {"branch": "north"})]))
    [again] = interrupts_of(client.run(resume=[resolved(first, {"branch": "north"})]))
    assert (first["id"] != second["id"], again["id"]) == (True, second["id"])
    client.run(resume=[resolved(second, {"branch": "south"})])
    assert heard == [{"branch": "south", "days": 7}]


# -- answers that come twice, late, or from elsewhere --


def test_an_answer_that_is_given_twice_counts_once() -> None:
    library = Library()
    client, [interrupt] = asked(create_app(library.agent(call("lend"), "Done.", "Again?"), APPROVING))
    entry = resolved(interrupt, {"branch": "north"})
    client.run(resume=[entry])
    client.run(resume=[entry])
    assert len(library.heard) == 1


@pytest.mark.parametrize(("key", "thread"), [("two", "t"), ("one", "u")])
def test_another_client_or_thread_cannot_answer(key: str, thread: str) -> None:
    library = Library()
    app = create_app(
        library.agent(call("lend"), "Nothing waits.", "Done."),
        ServeConfig(api_keys=["one", "two"], ag_ui=AGUI(approvals=True)),
    )
    _, [interrupt] = asked(app, key="one")
    Client(app, key=key, thread=thread).run("Hi", resume=[resolved(interrupt, {"branch": "north"})])
    assert library.heard == []


def test_after_a_restart_an_answer_finds_no_question() -> None:
    library = Library()
    client, [interrupt] = asked(create_app(library.agent(), APPROVING))
    later = Client(create_app(library.agent("Anew."), APPROVING))
    later.messages = client.messages
    later.run(resume=[resolved(interrupt, {"branch": "north"})])
    assert (library.heard, later.messages[-1]["content"]) == ([], "Anew.")


def test_an_answer_whose_run_was_cut_off_does_not_count_again() -> None:
    begun: list[Any] = []

    @tool
    async def lend(context: ToolContext[Any]) -> Any:
        """Lend a book."""
        if context.answer is None:
            return ToolQuestion(message="Which branch?", schema=BRANCH)
        begun.append(context.answer.content)
        await anyio.sleep_forever()

    mine = agent("A", call("lend"), call("lend"), tools=[lend])
    client, [interrupt] = asked(create_app(mine, replace(APPROVING, timeout=1)))
    entry = resolved(interrupt, {"branch": "north"})
    assert "RUN_ERROR" in client.post(virtual=True, resume=[entry]).text
    [again] = interrupts_of(client.run(resume=[entry]))
    assert (again["id"] != interrupt["id"], len(begun)) == (True, 1)


def test_a_form_may_wait_beside_a_call_of_the_clients_own_tool() -> None:
    library = Library()
    calls = [call("lend", id="c1"), call("open_door", id="c2")]
    client = Client(create_app(library.agent(reply("", calls=calls), "Done."), APPROVING))
    tools = [{"name": "open_door", "description": "Open."}]
    [interrupt] = interrupts_of(client.run("Hi", tools=tools))
    entry = resolved(interrupt, {"branch": "north"})
    assert client.post(tools=tools, resume=[entry]).status == 400
    [door] = [
        each["id"] for each in client.messages[1]["toolCalls"] if each["function"]["name"] == "open_door"
    ]
    client.answer(door, "open")
    client.run(tools=tools, resume=[entry])
    assert (library.heard, client.messages[-1]["content"]) == (
        [("Emma", {"branch": "north", "days": 7})],
        "Done.",
    )


def test_two_questions_within_one_agent_that_is_a_tool_are_answered() -> None:
    library = Library()
    calls = [call("lend", {"title": title}, id=title) for title in ("Emma", "Persuasion")]
    inner = library.agent(reply("", calls=calls), "Both.").as_tool("ask", "Ask.")
    outer = agent("O", call("ask", {"input": "Lend."}), "All done.", tools=[inner])
    client, both = asked(create_app(outer, APPROVING), is_current=False)
    client.run(resume=[resolved(each, {"branch": "north"}) for each in both])
    assert sorted(title for title, _ in library.heard) == ["Emma", "Persuasion"]
    assert client.messages[-1]["content"] == "All done."


def test_half_a_character_in_an_answer_is_refused() -> None:
    """A server that parses it could not write it again."""
    library = Library()
    client, [interrupt] = asked(create_app(library.agent(), APPROVING))
    refused = client.post(resume=[resolved(interrupt, {"branch": "\ud83d"})])
    assert (refused.status, refused.json()["error"]["code"]) == (400, "invalid_json")


def test_half_a_character_in_a_question_does_not_reach_the_client() -> None:
    schema = {"type": "object", "properties": {"a\ud83d": {"title": "\udc00"}}}

    @tool
    def lend(context: ToolContext[Any]) -> Any:
        """Lend a book."""
        if context.answer is None:
            return ToolQuestion(message="Which\ud83d?", schema=schema)
        return "lent"

    client, [interrupt] = asked(create_app(agent("A", call("lend"), "Done.", tools=[lend]), APPROVING))
    assert interrupt["message"] == "Which\ufffd?"
    assert interrupt["responseSchema"]["properties"] == {"a\ufffd": {"title": "\ufffd"}}
    client.run(resume=[resolved(interrupt, {"a\ufffd": "x"})])
    assert client.messages[-1]["content"] == "Done."


# -- arguments that the client edits --


class Bank:
    """Its payments need approval."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(needs_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay

    def agent(self, *replies: Any) -> Agent[Any]:
        return agent("A", *(replies or (call("pay", {"amount": 40}), "Done.")), tools=[self.pay])


def test_by_default_arguments_cannot_be_edited() -> None:
    bank = Bank()
    client, [interrupt] = asked(create_app(bank.agent(), APPROVING))
    assert "editedArgs" not in interrupt["responseSchema"]["properties"]
    refused = client.post(resume=[resolved(interrupt, {"approved": True, "editedArgs": {"amount": 9}})])
    assert (refused.status, refused.json()["error"]["param"]) == (400, "resume[0].payload.editedArgs")
    assert bank.paid == []


def test_edited_arguments_replace_those_of_the_model() -> None:
    bank = Bank()
    mine = bank.agent()
    client, [interrupt] = asked(create_app(mine, EDITING))
    assert interrupt["responseSchema"]["properties"]["editedArgs"]["type"] == "object"
    after = client.run(resume=[resolved(interrupt, {"approved": True, "editedArgs": {"amount": 30}})])
    assert bank.paid == [30]
    [result] = of_kind(after, "TOOL_CALL_RESULT")
    assert (result["toolCallId"], result["content"]) == (interrupt["toolCallId"], "paid 30")
    [made] = calls_of(shown(mine, 1)[1])
    assert made["function"]["arguments"] == '{"amount": 30}'


def test_without_edits_a_client_that_may_edit_approves_the_call_as_it_is() -> None:
    bank = Bank()
    client, [interrupt] = asked(create_app(bank.agent(), EDITING))
    client.run(resume=[resolved(interrupt, {"approved": True})])
    assert bank.paid == [40]


@pytest.mark.parametrize("arguments", [{}, {"amount": "much"}, [40], "40"])
def test_edited_arguments_must_be_those_of_the_tool(arguments: Any) -> None:
    bank = Bank()
    client, [interrupt] = asked(create_app(bank.agent(), EDITING))
    refused = client.post(resume=[resolved(interrupt, {"approved": True, "editedArgs": arguments})])
    assert (refused.status, refused.json()["error"]["param"]) == (400, "resume[0].payload.editedArgs")
    client.run(resume=[resolved(interrupt, False)])
    assert bank.paid == []


def test_edits_beside_a_rejection_do_nothing() -> None:
    bank = Bank()
    client, [interrupt] = asked(create_app(bank.agent(), EDITING))
    client.run(resume=[resolved(interrupt, {"approved": False, "editedArgs": {"amount": 30}})])
    assert bank.paid == []


def test_one_of_two_calls_is_edited() -> None:
    bank = Bank()
    calls = [call("pay", {"amount": 1}, id="c1"), call("pay", {"amount": 2}, id="c2")]
    client, [first, second] = asked(create_app(bank.agent(reply("", calls=calls), "Done."), EDITING))
    edited = resolved(second, {"approved": True, "editedArgs": {"amount": 20}})
    client.run(resume=[resolved(first, True), edited])
    assert sorted(bank.paid) == [1, 20]


def test_what_the_client_is_not_shown_it_cannot_edit() -> None:
    bank = Bank()
    config = ServeConfig(ag_ui=AGUI(approvals=True, edits=True, show_calls=False))
    client, [interrupt] = asked(create_app(bank.agent(), config))
    assert "editedArgs" not in interrupt["responseSchema"]["properties"]
    refused = client.post(resume=[resolved(interrupt, {"approved": True, "editedArgs": {"amount": 9}})])
    assert (refused.status, bank.paid) == (400, [])


def test_the_vendors_own_form_of_an_edited_call_is_left_out() -> None:
    """A provider would send the arguments that it has."""
    bank = Bank()
    items = [{"type": "tool_use", "name": "pay", "input": {"amount": 40}}]
    made: Any = {
        "role": "assistant",
        "content": "Paying.",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 40}'}}
        ],
        "vendor_items": {"api": "messages", "items": items},
    }
    mine = bank.agent(ScriptedReply(message=made), "Done.")
    client, [interrupt] = asked(create_app(mine, EDITING))
    client.run(resume=[resolved(interrupt, {"approved": True, "editedArgs": {"amount": 30}})])
    said = cast("dict[str, Any]", shown(mine, 1)[1])
    assert (bank.paid, said["content"], "vendor_items" in said) == ([30], "Paying.", False)
