"""Tasks whose tools ask their client for fields, and clients that answer twice, late, or in part."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from a2a_calls import SERVED, ask, post, rpc, task_of, text_of, told
from asgi_client import Exchange, in_virtual_time
from scripted_agents import agent
from served_apps import listening

from routelock import Agent, Request, ToolContext, handler, handoff, tool
from routelock.serving import A2A, create_app
from routelock.testing import call, reply
from routelock.tools import ToolQuestion

pytest.importorskip("a2a")

FORM = {
    "type": "object",
    "properties": {
        "branch": {"type": "string", "enum": ["north", "south"]},
        "days": {"type": "integer", "default": 7},
    },
    "required": ["branch"],
}

ASKING = replace(SERVED, a2a=A2A(approvals=True))

NORTH = {"branch": "north", "days": 7}


class Library:
    """Its tool asks for a branch, so many times, before it lends a book; it keeps the answers.

    It is async, because virtual time does not wait for threads.
    """

    def __init__(self, questions: int = 1) -> None:
        self.heard: list[Any] = []

        @tool
        async def lend(context: ToolContext[Any], title: str = "Emma") -> Any:
            """Lend a book."""
            answer = context.answer
            if answer is None or (answer.approved and answer.number < questions):
                return ToolQuestion(message="Which branch?", schema=FORM, data={"shelf": "secret"})
            self.heard.append((title, answer.content if answer.approved else answer.message))
            return "lent" if answer.approved else "not lent"

        self.lend = lend

    def agent(self, *replies: Any, name: str = "A") -> Agent[Any]:
        return agent(name, *(replies or (call("lend"), "Done.")), tools=[self.lend])

    def one(self) -> list[Any]:
        """The answers without the title of the book."""
        return [content for _, content in self.heard]


def approvals_of(task: Any) -> list[dict[str, Any]]:
    """What a task that waits asks for."""
    assert told(task)[0] == "INPUT_REQUIRED", task
    [data] = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    found: list[dict[str, Any]] = data["approvals"]
    return found


def answered(url: str, task: Any, said: Any, **more: Any) -> Any:
    """The task after an answer: a text, or data."""
    return task_of(sent(url, task, said, **more))


def sent(url: str, task: Any, said: Any, **more: Any) -> dict[str, Any]:
    parts = said if isinstance(said, str) else [{"data": said}]
    return ask(url, parts, taskId=task["id"], **{"messageId": "answer", **more})


def test_a_form_is_asked_for_with_its_schema_and_filled_by_data() -> None:
    library = Library()
    with listening(create_app(library.agent(), ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        done = answered(f"{base}/a2a/A", waiting, {"branch": "north", "days": 3})
    [asked] = approvals_of(waiting)
    assert (asked["question"], asked["schema"]) == ("Which branch?", FORM)
    assert "secret" not in json.dumps(waiting)
    assert (told(done)[0], text_of(done)) == ("COMPLETED", "Done.")
    assert library.one() == [{"branch": "north", "days": 3}]


def test_wrong_data_asks_again_and_names_the_field() -> None:
    library = Library()
    with listening(create_app(library.agent(), ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        again = [
            answered(f"{base}/a2a/A", waiting, wrong)
            for wrong in ({"branch": "west"}, {"branch": "north", "days": "x"}, {"branch": "north", "no": 1})
        ]
        done = answered(f"{base}/a2a/A", waiting, {"branch": "north"})
    problems = [told(each)[2].partition("\n")[0] for each in again]
    assert [problem.split(": ")[1] for problem in problems] == ["branch", "days", "no"]
    assert [approvals_of(each) for each in again] == [approvals_of(waiting)] * 3
    assert (told(done)[0], library.one()) == ("COMPLETED", [NORTH])


@pytest.mark.parametrize(
    ("said", "heard"), [("no", ""), ({"approve": False, "message": "Not today."}, "Not today.")]
)
def test_a_declined_form_reaches_the_tool(said: Any, heard: str) -> None:
    library = Library()
    with listening(create_app(library.agent(), ASKING)) as base:
        answered(f"{base}/a2a/A", task_of(ask(f"{base}/a2a/A")), said)
    assert library.one() == [heard]


def test_a_stream_ends_with_the_question() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
    with listening(create_app(Library().agent(), ASKING)) as base:
        text = post(f"{base}/a2a/A", json.dumps(body).encode()).text
    last = json.loads([line for line in text.splitlines() if line.startswith("data: ")][-1][6:])
    status = last["result"]["statusUpdate"]["status"]
    assert status["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert status["message"]["parts"][1]["data"]["approvals"][0]["schema"] == FORM


def test_two_questions_at_once_are_answered_by_their_ids() -> None:
    library = Library()
    calls = [call("lend", {"title": "Emma"}, id="c1"), call("lend", {"title": "Persuasion"}, id="c2")]
    with listening(create_app(library.agent(reply("", calls=calls), "Done."), ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        first, second = (each["id"] for each in approvals_of(waiting))
        partly = answered(f"{base}/a2a/A", waiting, {"answers": {first: {"branch": "north"}}})
        whole = {"answers": {first: {"branch": "north"}, second: {"approve": False, "message": "No."}}}
        done = answered(f"{base}/a2a/A", waiting, whole)
    assert f"answers.{second}: is missing" in told(partly)[2]
    assert told(done)[0] == "COMPLETED"
    assert sorted(library.heard, key=str) == [("Emma", NORTH), ("Persuasion", "No.")]


def test_a_question_within_an_agent_that_is_a_tool_is_answered() -> None:
    library = Library()
    inner = library.agent(name="B").as_tool("ask", "Ask.")
    outer = agent("A", call("ask", {"input": "Lend."}), "All done.", tools=[inner])
    with listening(create_app(outer, ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        done = answered(f"{base}/a2a/A", waiting, {"branch": "north"})
    assert approvals_of(waiting)[0]["agent"] == "B"
    assert (text_of(done), library.one()) == ("All done.", [NORTH])


def test_a_question_after_a_handoff_is_answered_to_the_target() -> None:
    library = Library()
    first = agent("A", call("transfer_to_b"), handoffs=[handoff(library.agent(name="B"))])
    with listening(create_app(first, ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        done = answered(f"{base}/a2a/A", waiting, {"branch": "north"})
    assert (done["metadata"]["agent"], library.one()) == ("B", [NORTH])


# -- answers that come twice, late, or from elsewhere --


def test_a_message_that_comes_twice_answers_one_question() -> None:
    library = Library(questions=2)
    with listening(create_app(library.agent(), ASKING)) as base:
        first = task_of(ask(f"{base}/a2a/A"))
        second = answered(f"{base}/a2a/A", first, {"branch": "north"}, messageId="m1")
        repeated = answered(f"{base}/a2a/A", first, {"branch": "north"}, messageId="m1")
        done = answered(f"{base}/a2a/A", first, {"branch": "south"}, messageId="m2")
    assert approvals_of(repeated) == approvals_of(second) != approvals_of(first)
    assert "'m1' was used for an earlier answer" in told(repeated)[2]
    assert (told(done)[0], library.one()) == ("COMPLETED", [{"branch": "south", "days": 7}])


def test_two_answers_at_the_same_time_count_once() -> None:
    library = Library()
    with listening(create_app(library.agent(), ASKING)) as base, ThreadPoolExecutor(2) as pool:
        waiting = task_of(ask(f"{base}/a2a/A"))

        def answer(name: str) -> dict[str, Any]:
            return sent(f"{base}/a2a/A", waiting, {"branch": "north"}, messageId=name)

        both = [*pool.map(answer, ("m1", "m2"))]
        kept = rpc(f"{base}/a2a/A", {"method": "GetTask", "params": {"id": waiting["id"]}})["result"]
    assert library.one() == [NORTH]
    assert (told(kept)[0], text_of(kept)) == ("COMPLETED", "Done.")
    assert any("result" in each for each in both)


def test_an_answer_to_a_busy_server_can_be_given_again() -> None:
    """In virtual time: the only place is taken when the answer arrives."""
    library, version = Library(), {"a2a-version": "1.0"}

    @handler
    async def slow(request: Request) -> str:
        await anyio.sleep(2)
        return "Hello."

    app = create_app([library.agent(), Agent("S", model=slow)], replace(ASKING, max_concurrent=1))

    async def play(name: str, said: Any, **more: Any) -> Any:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": said, **more}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        return task_of((await Exchange(call).play(app, f"/a2a/{name}", headers=version)).json())

    async def answer() -> tuple[Any, Any, Any]:
        waiting = await play("A", [{"text": "Hi"}])
        filled = partial(play, "A", [{"data": {"branch": "north"}}], taskId=waiting["id"])
        async with anyio.create_task_group() as group:
            group.start_soon(play, "S", [{"text": "Hi"}])
            await anyio.sleep(1)
            refused = await filled()
        return waiting, refused, await filled()

    waiting, refused, done = in_virtual_time(answer)
    assert told(refused)[2].startswith(
        "The server already runs 1 requests. Try again in a moment.\nWhich branch?"
    )
    assert approvals_of(refused) == approvals_of(waiting)
    assert (told(done)[0], library.one()) == ("COMPLETED", [NORTH])


def test_another_client_does_not_find_the_task() -> None:
    library = Library()
    with listening(create_app(library.agent(), replace(ASKING, api_keys=["one", "two"]))) as base:
        waiting = task_of(ask(f"{base}/a2a/A", key="one"))
        other = sent(f"{base}/a2a/A", waiting, {"branch": "north"}, key="two")
    assert other["error"]["code"] == -32001
    assert library.heard == []


def test_after_a_restart_there_is_no_such_task() -> None:
    library = Library()
    with listening(create_app(library.agent(), ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
    with listening(create_app(library.agent(), ASKING)) as base:
        late = sent(f"{base}/a2a/A", waiting, {"branch": "north"})
    assert late["error"]["code"] == -32001
    assert library.heard == []


def test_an_answer_to_a_task_that_was_cancelled_is_refused() -> None:
    library = Library()
    with listening(create_app(library.agent(), ASKING)) as base:
        url = f"{base}/a2a/A"
        waiting = task_of(ask(url))
        rpc(url, {"method": "CancelTask", "params": {"id": waiting["id"]}})
        late = sent(url, waiting, {"branch": "north"})
        kept = rpc(url, {"method": "GetTask", "params": {"id": waiting["id"]}})["result"]
    assert (late["error"]["code"], told(kept)[0]) == (-32004, "CANCELED")
    assert library.heard == []


def test_a_question_is_gone_when_its_context_went_on() -> None:
    library = Library()
    with listening(create_app(library.agent(call("lend"), "Something else."), ASKING)) as base:
        url = f"{base}/a2a/A"
        waiting = task_of(ask(url))
        ask(url, "Something else?", contextId=waiting["contextId"])
        late = answered(url, waiting, {"branch": "north"})
    assert told(late)[:2] == ("REJECTED", "not_waiting")
    assert library.heard == []


def test_half_a_character_in_an_answer_is_refused() -> None:
    library = Library()
    with listening(create_app(library.agent(), ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        refused = sent(f"{base}/a2a/A", waiting, {"branch": "\ud83d"})
        done = answered(f"{base}/a2a/A", waiting, {"branch": "north"})
    assert refused["error"]["code"] == -32700
    assert (told(done)[0], library.one()) == ("COMPLETED", [NORTH])


def test_half_a_character_in_a_question_does_not_reach_the_client() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "title": "\udc00"}}}

    @tool
    def lend(context: ToolContext[Any]) -> Any:
        """Lend a book."""
        return ToolQuestion(message="Which\ud83d?", schema=schema) if context.answer is None else "lent"

    with listening(create_app(agent("A", call("lend"), "Done.", tools=[lend]), ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        done = answered(f"{base}/a2a/A", waiting, "x")
    [asked] = approvals_of(waiting)
    assert (asked["question"], asked["schema"]["properties"]["a"]["title"]) == ("Which\ufffd?", "\ufffd")
    assert told(done)[0] == "COMPLETED"


def test_a_form_that_is_nested_too_deeply_for_data_is_asked_for_in_text() -> None:
    """The SDKs of clients read messages of a hundred levels."""
    field: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        field = {"type": "object", "properties": {"in": field}}
    form = {"type": "object", "properties": {"deep": field}}

    @tool
    async def lend(context: ToolContext[Any]) -> Any:
        return ToolQuestion(message="Where?", schema=form) if context.answer is None else "lent"

    with listening(create_app(agent("A", call("lend"), "Done.", tools=[lend]), ASKING)) as base:
        waiting = task_of(ask(f"{base}/a2a/A"))
        done = answered(f"{base}/a2a/A", waiting, {"deep": {"in": {}}})
    question, data = waiting["status"]["message"]["parts"]
    assert question["text"].startswith("Where?")
    assert json.loads(data["text"])["approvals"][0]["schema"] == form
    assert (data["mediaType"], text_of(done)) == ("application/json", "Done.")
