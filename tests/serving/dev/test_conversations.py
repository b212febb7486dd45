"""Conversations of the dev page, over a true connection."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from dev_page import PATIENCE, Page, dev_page, lines_of, shop
from waiting import eventually

from routelock import Agent, RunConfig, function_tool
from routelock.context import ToolContext
from routelock.errors import ConfigError, ConnectionFailed
from routelock.handlers.events import HandlerEvent, ReasoningDelta, TextDelta
from routelock.handlers.port import Request
from routelock.history import Citation, VendorCall
from routelock.serving.dev import create_dev_app
from routelock.serving.dev.conversations import DevConversations
from routelock.serving.errors import Refusal
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call, reply
from routelock.tools import ToolQuestion
from routelock.tracing.reader import read_trace


@pytest.fixture(scope="module")
def quiet() -> Iterator[Page]:
    """A page whose agent is not asked anything."""
    with dev_page(Agent("a", model=ScriptedHandler([]))) as page:
        yield page


def _types(lines: list[dict[str, Any]]) -> list[str]:
    return [line["type"] for line in lines]


def _texts(lines: list[dict[str, Any]]) -> str:
    return "".join(line.get("text", "") for line in lines if line["type"] == "delta")


def test_a_run_is_streamed_as_lines() -> None:
    with dev_page(shop()) as page:
        lines = page.say(page.begin(), "My money, please.")
    kinds = _types(lines)
    assert (kinds[0], kinds[-1]) == ("run_start", "end")
    assert {"model_start", "model_end", "tool_start", "tool_end", "handoff", "took_over", "run_end"} <= {
        *kinds
    }
    assert _texts(lines) == "I will look.I ask first.Order 7 is refunded."
    assert lines[-1] == {"type": "end", "error": None, "stopped": False, "approvals": []}


def test_deltas_come_between_the_beginning_and_the_end_of_their_call() -> None:
    with dev_page(Agent("a", model=ScriptedHandler([reply("Two words.", reasoning="Hm.")]))) as page:
        kinds = _types(page.say(page.begin(), "Hi"))
    assert kinds[kinds.index("model_start") + 1 : kinds.index("model_end")] == ["delta"] * 3


def test_a_line_has_what_the_vendor_ran_and_the_message_cites() -> None:
    source = Citation(url="https://a.example/rain", title="Rain")
    searched = VendorCall(tool="web_search", input={"query": "rain"}, sources=[source])
    model = ScriptedHandler([reply("It rains.", vendor_calls=[searched], citations=[source])])
    with dev_page(Agent("a", model=model, tools=[{"type": "web_search"}])) as page:
        lines = page.say(page.begin(), "Rain?")
    replied = next(line for line in lines if line["type"] == "item" and line["kind"] == "model")
    found = {"url": "https://a.example/rain", "title": "Rain"}
    assert replied["id"] >= lines[0]["input_count"]
    assert replied["message"]["vendor_calls"] == [
        {"tool": "web_search", "input": {"query": "rain"}, "sources": [found]}
    ]
    assert replied["message"]["annotations"] == [{"type": "url_citation", "url_citation": found}]


def test_the_next_message_continues_the_conversation() -> None:
    model = ScriptedHandler(["One.", "Two."])
    with dev_page(Agent("a", model=model)) as page:
        conversation = page.begin()
        page.say(conversation, "First")
        page.say(conversation, "Second")
    assert [each.get("content") for each in model.requests[1].messages] == ["First", "One.", "Second"]


def test_each_run_begins_with_the_default_again() -> None:
    with dev_page(shop()) as page:
        conversation = page.begin()
        assert page.say(conversation, "One")[-2]["last_agent"] == "refunds"
        assert page.say(conversation, "Two")[0]["agent"] == "triage"


def test_unless_the_settings_let_the_last_one_stay() -> None:
    with dev_page(shop(), run_config=RunConfig(next_agent="sticky")) as page:
        conversation = page.begin()
        page.say(conversation, "One")
        assert page.say(conversation, "Two")[0]["agent"] == "refunds"


def test_two_conversations_know_nothing_of_each_other() -> None:
    model = ScriptedHandler(["One.", "Two."])
    with dev_page(Agent("a", model=model)) as page:
        page.say(page.begin(), "First")
        page.say(page.begin(), "Second")
    assert len(model.requests[1].messages) == 1


def test_the_oldest_conversation_goes_when_there_are_too_many() -> None:
    agent = Agent("a", model=ScriptedHandler([]))
    conversations = DevConversations(RunConfig(), most=2)
    first, second = conversations.begin(agent), conversations.begin(agent)
    third = conversations.begin(agent)
    assert [conversations.find(each.id) for each in (second, third)] == [second, third]
    with pytest.raises(Refusal, match="does not have this conversation"):
        conversations.find(first.id)


def test_runs_are_traced_for_the_app_as_well(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with dev_page(Agent("a", model=ScriptedHandler(["Hi."])), run_config=RunConfig(trace=path)) as page:
        lines = page.say(page.begin(), "Hi")
    assert len(read_trace(path).runs) == 1
    assert [json.loads(line)["type"] for line in path.read_text("utf-8").splitlines()] == [
        kind for kind in _types(lines) if kind not in ("delta", "end")
    ]


def test_one_of_several_agents_is_chosen() -> None:
    agents = [Agent(name, model=ScriptedHandler([name])) for name in ("one", "two")]
    with dev_page(agents) as page:
        assert page.settings["agents"] == ["one", "two"]
        assert _texts(page.say(page.begin("two"), "Hi")) == "two"
        assert page.post("/talks", {"agent": "three"}).status_code == 404


def test_a_failed_run_is_shown_and_the_next_message_works() -> None:
    model = ScriptedHandler([ConnectionFailed("The line went dead.")] * 3 + ["Back."])
    with dev_page(Agent("a", model=model), run_config=RunConfig(retry=_once())) as page:
        conversation = page.begin()
        lines = page.say(conversation, "Hi")
        assert "The line went dead." in lines[-1]["error"]
        assert lines[-2]["error"]["type"] == "ConnectionFailed"
        model.replies[1:] = ["Back."]
        assert _texts(page.say(conversation, "Again")) == "Back."


def _once() -> Any:
    from routelock import Retry

    return Retry(attempts=1)


def test_a_context_is_made_for_each_run() -> None:
    made: list[int] = []

    async def context() -> int:
        made.append(len(made))
        return made[-1]

    seen: list[Any] = []

    def instructions(run: Any) -> str:
        seen.append(run.context)
        return "Hm."

    agent = Agent("a", instructions, model=ScriptedHandler(["One.", "Two."]))
    with dev_page(agent, context=context) as page:
        conversation = page.begin()
        page.say(conversation, "Hi")
        page.say(conversation, "Hi")
    assert seen == made == [0, 1]


def test_a_failing_context_function_is_shown() -> None:
    def context() -> int:
        raise ValueError("no database")

    with dev_page(Agent("a", model=ScriptedHandler([])), context=context) as page:
        lines = page.say(page.begin(), "Hi")
    assert "no database" in lines[-1]["error"]


class _Endless:
    """A model that says a word and then nothing, until it is cancelled."""

    name = "endless"

    def __init__(self) -> None:
        self.speaks = threading.Event()
        self.cancelled = threading.Event()

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        yield TextDelta("Well")
        yield ReasoningDelta("...")
        self.speaks.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()


def _said_meanwhile(page: Page, conversation: str) -> tuple[threading.Thread, list[Any]]:
    lines: list[Any] = []
    thread = threading.Thread(target=lambda: lines.extend(page.say(conversation, "Hi")))
    thread.start()
    return thread, lines


def test_stop_cancels_the_run_and_keeps_its_messages() -> None:
    model = _Endless()
    with dev_page(Agent("a", model=model)) as page:
        conversation = page.begin()
        thread, lines = _said_meanwhile(page, conversation)
        assert model.speaks.wait(PATIENCE)
        assert page.post(f"/talks/{conversation}/stop").status_code == 200
        thread.join(PATIENCE)
        assert model.cancelled.is_set()
        assert lines[-1] == {"type": "end", "error": None, "stopped": True, "approvals": []}
        assert [line["message"]["content"] for line in lines if line["type"] == "item"] == ["Hi", "Well"]
        model.speaks.clear()
        again, lines = _said_meanwhile(page, conversation)
        assert model.speaks.wait(PATIENCE)
        page.post(f"/talks/{conversation}/stop")
        again.join(PATIENCE)
    assert [line["message"]["content"] for line in lines if line["type"] == "item"][:3] == [
        "Hi",
        "Well",
        "Hi",
    ]


def test_a_second_message_during_a_run_is_refused() -> None:
    model = _Endless()
    with dev_page(Agent("a", model=model)) as page:
        conversation = page.begin()
        thread, _ = _said_meanwhile(page, conversation)
        assert model.speaks.wait(PATIENCE)
        refused = page.post(f"/talks/{conversation}/messages", {"text": "And?"})
        assert (refused.status_code, "Stop it first" in refused.json()["error"]) == (409, True)
        page.post(f"/talks/{conversation}/stop")
        thread.join(PATIENCE)


def test_a_page_that_is_closed_cancels_its_run() -> None:
    model = _Endless()
    with dev_page(Agent("a", model=model)) as page:
        conversation = page.begin()
        path, body = f"/talks/{conversation}/messages", {"text": "Hi"}
        with page.client.stream("POST", path, json=body, headers=page.headers) as response:
            next(response.iter_raw())
            assert model.speaks.wait(PATIENCE)
        assert model.cancelled.wait(PATIENCE)
        eventually(lambda: not page.is_busy(conversation))
        model.speaks.clear()
        thread, lines = _said_meanwhile(page, conversation)  # the conversation can be continued
        assert model.speaks.wait(PATIENCE)
        page.post(f"/talks/{conversation}/stop")
        thread.join(PATIENCE)
    told = [line["message"]["content"] for line in lines if line["type"] == "item"]
    assert told[:3] == ["Hi", "Well", "Hi"]


def _clerk(*replies: Any) -> tuple[Agent[Any], list[int]]:
    paid: list[int] = []

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return Agent("clerk", model=ScriptedHandler(replies), tools=[pay]), paid


def test_a_call_that_needs_approval_waits_for_a_decision() -> None:
    clerk, paid = _clerk(call("pay", {"amount": 40}), "Paid.")
    with dev_page(clerk) as page:
        conversation = page.begin()
        waits = page.say(conversation, "Pay me")[-1]["approvals"]
        assert waits == [
            {"agent": "clerk", "name": "pay", "arguments": '{"amount": 40}', "call_id": "call_1_0"}
        ]
        assert paid == []
        lines = page.decide(conversation, {"approve": True})
        assert (paid, _texts(lines), lines[-1]["approvals"]) == ([40], "Paid.", [])
        assert lines[0]["resumed"] is True


def test_the_question_of_a_tool_is_shown() -> None:
    @function_tool
    def lend(context: ToolContext) -> Any:
        """Lend a book."""
        return "lent" if context.answer else ToolQuestion(message="Are you sure?")

    agent = Agent("clerk", model=ScriptedHandler([call("lend"), "Done."]), tools=[lend])
    with dev_page(agent) as page:
        conversation = page.begin()
        assert page.say(conversation, "Emma")[-1]["approvals"][0]["question"] == "Are you sure?"
        assert _texts(page.decide(conversation, {"approve": True})) == "Done."


BRANCH: dict[str, Any] = {
    "type": "object",
    "properties": {"branch": {"enum": ["north", "south"]}, "days": {"type": "integer", "default": 7}},
    "required": ["branch", "days"],
}


def _librarian() -> tuple[Agent[Any], list[Any]]:
    heard: list[Any] = []

    @function_tool
    def lend(context: ToolContext) -> Any:
        """Lend a book."""
        if context.answer is None:
            return ToolQuestion("Which branch?", schema=BRANCH, url="https://example.com/map")
        heard.append(context.answer.content)
        return "lent"

    return Agent("clerk", model=ScriptedHandler([call("lend"), "Done."]), tools=[lend]), heard


def test_a_question_with_fields_is_answered_with_them() -> None:
    librarian, heard = _librarian()
    with dev_page(librarian) as page:
        conversation = page.begin()
        [waits] = page.say(conversation, "Emma")[-1]["approvals"]
        assert waits["question"] == "Which branch? https://example.com/map"
        assert (waits["fields"], waits["required"]) == (BRANCH["properties"], ["branch"])
        page.decide(conversation, {"approve": True, "answer": {"branch": "north"}})
    assert heard == [{"branch": "north", "days": 7}]


def test_a_run_with_an_answer_of_fields_is_no_test() -> None:
    librarian, _ = _librarian()
    with dev_page(librarian) as page:
        conversation = page.begin()
        lines = page.say(conversation, "Emma")
        lines += page.decide(conversation, {"approve": True, "answer": {"branch": "north"}})
        records = [line for line in lines if "run" in line]
        refused = page.post("/test", {"records": records})
    assert refused.status_code == 409
    assert "'lend' asked for fields" in refused.json()["error"]


def test_an_answer_that_does_not_fit_is_refused_and_the_call_waits_on() -> None:
    librarian, heard = _librarian()
    with dev_page(librarian) as page:
        conversation = page.begin()
        page.say(conversation, "Emma")
        wrong = {"approve": True, "answer": {"branch": "west"}}
        [refused] = page.decide(conversation, wrong)
        assert refused["error"].endswith("branch: 'west' is not one of ['north', 'south'].")
        assert [one["name"] for one in refused["approvals"]] == ["lend"]
        page.decide(conversation, {"approve": True, "answer": {"branch": "south", "days": 3}})
    assert heard == [{"branch": "south", "days": 3}]


def test_a_rejected_call_is_not_made_and_the_model_sees_the_reason() -> None:
    clerk, paid = _clerk(call("pay", {"amount": 40}), "I see.")
    with dev_page(clerk) as page:
        conversation = page.begin()
        page.say(conversation, "Pay me")
        page.decide(conversation, {"approve": False, "message": "Not without a receipt."})
    assert paid == []
    assert isinstance(clerk.model, ScriptedHandler)
    assert "Not without a receipt." in str(clerk.model.requests[1].messages[-1].get("content"))


def test_each_call_needs_one_decision() -> None:
    clerk, paid = _clerk([call("pay", {"amount": 1}), call("pay", {"amount": 2})], "Done.")
    with dev_page(clerk) as page:
        conversation = page.begin()
        page.say(conversation, "Pay me twice")
        one = {"approve": True}
        path = f"/talks/{conversation}/messages"
        assert page.post(path, {"words": [one]}).status_code == 409
        page.decide(conversation, one, {"approve": False})
        assert page.post(path, {"words": [one, one]}).status_code == 409
    assert paid == [1]


def test_a_message_while_calls_wait_is_refused_and_they_wait_on() -> None:
    clerk, paid = _clerk(call("pay", {"amount": 40}), "Paid.")
    with dev_page(clerk) as page:
        conversation = page.begin()
        page.say(conversation, "Pay me")
        refused = page.post(f"/talks/{conversation}/messages", {"text": "Never mind."})
        assert refused.status_code == 409
        assert refused.json()["error"] == "Calls wait for you: approve or decline each of them first."
        assert paid == []
        assert _texts(page.decide(conversation, {"approve": True})) == "Paid."
    assert paid == [40]


def test_a_conversation_is_kept_in_the_session_of_the_app() -> None:
    store = InMemorySessions()
    model = ScriptedHandler(["One.", "Two."])
    with dev_page(Agent("a", model=model), session=Session("u7", store)) as page:
        begun = page.post("/talks", {}).json()
        assert begun["session"] == "The session 'u7' is new."
        page.say(begun["id"], "First")
        again = page.post("/talks", {}).json()
        assert again["session"] == "The session 'u7' goes on after 2 messages."
        page.say(again["id"], "Second")
    assert [each.get("content") for each in model.requests[1].messages] == ["First", "One.", "Second"]
    assert len(anyio.run(Session("u7", store).load).messages) == 4


def test_a_session_is_made_for_each_conversation() -> None:
    model, store = ScriptedHandler(["One.", "Two."]), InMemorySessions()
    names = iter(["u1", "u2"])

    async def make() -> Session:
        return Session(next(names), store)

    with dev_page(Agent("a", model=model), session=make) as page:
        page.say(page.begin(), "First")
        page.say(page.begin(), "Second")
    assert len(model.requests[1].messages) == 1


def test_calls_that_wait_are_made_in_a_session() -> None:
    clerk, paid = _clerk(call("pay", {"amount": 40}), "Paid.")
    session = Session("u7", InMemorySessions())
    with dev_page(clerk, session=session) as page:
        conversation = page.begin()
        page.say(conversation, "Pay me")
        page.decide(conversation, {"approve": True})
    assert paid == [40]
    assert [each["role"] for each in anyio.run(session.load).messages] == [
        *("user", "assistant", "tool", "assistant")
    ]


def test_a_session_that_cannot_be_made_is_an_error_that_is_shown() -> None:
    def broken() -> Session:
        raise OSError("no disk")

    with dev_page(Agent("a", model=ScriptedHandler([])), session=broken) as page:
        response = page.post("/talks", {})
    assert (response.status_code, response.json()["error"]) == (
        500,
        "CallbackError: The session of the dev page raised OSError: no disk",
    )


def test_stopping_without_a_run_is_allowed(quiet: Page) -> None:
    assert quiet.post(f"/talks/{quiet.begin()}/stop").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/talks/unknown/messages", {"text": "Hi"}, 404),
        ("/talks/unknown/stop", {}, 404),
        ("/talks", [], 400),
        ("/graph", {}, 400),
        ("/graph", {"type": "item", "run": "r", "time": "x"}, 400),
        ("/graph", {"type": "run_start", "run": "r", "time": 1, "agent": "a", "format": 99}, 400),
        ("/test", {}, 400),
        ("/test", {"records": [1]}, 400),
        ("/test", {"records": []}, 400),
    ],
)
def test_an_invalid_request_is_refused_with_a_reason(quiet: Page, path: str, body: Any, status: int) -> None:
    response = quiet.post(path, body)
    assert response.status_code == status
    assert response.json()["error"]


_WORDS = [{"words": [{}]}, {"words": [{"approve": 1}]}, {"words": [{"approve": "yes"}]}, {"words": "all"}]


@pytest.mark.parametrize("body", [{}, {"text": " "}, {"text": 7}, *_WORDS])
def test_an_empty_message_is_refused(quiet: Page, body: Any) -> None:
    assert quiet.post(f"/talks/{quiet.begin()}/messages", body).status_code == 400


def test_secrets_are_not_shown() -> None:
    key = "sk-" + "a" * 40
    agent = Agent("a", model=ScriptedHandler(["Ok."]), model_settings={"extra_headers": {"x-api-key": key}})
    with dev_page(agent) as page:
        response = page.post(f"/talks/{page.begin()}/messages", {"text": f"My key is {key}."})
    assert lines_of(response)[-1]["error"] is None
    assert key not in response.text


def test_agents_that_cannot_run_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="unknown"):
        create_dev_app(Agent("a", model=ScriptedHandler([]), handoffs=["unknown"]))
    with pytest.raises(ConfigError, match="agent"):
        create_dev_app([])
    with pytest.raises(ConfigError, match="same name"):
        create_dev_app([Agent("a", model=ScriptedHandler([])), Agent("a", model=ScriptedHandler([]))])
