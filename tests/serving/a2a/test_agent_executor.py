"""Tasks of A2A: messages to a running task, questions, silence, streams without a reader, and messages."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio
import pytest
from a2a_calls import SERVED, ask, post, rpc, task_of, text_of, told
from asgi_client import Exchange, asked, in_virtual_time
from clients.a2a_cast import parrot, payer
from scripted_agents import agent, requests, shown
from served_apps import listening

from routelock import Agent, GuardrailResult, Request, RunConfig, RunResult, handler
from routelock.history.messages import text_of as text_of_message
from routelock.serving import A2A, ServedRequest, create_app
from routelock.testing import ScriptedReply, call, reply

pytest.importorskip("a2a")


def said(text: str, **more: Any) -> dict[str, Any]:
    """The body of a request whose answer is streamed."""
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], **more}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}


def test_a_message_with_the_id_of_its_task_need_not_name_the_context() -> None:
    paid: list[int] = []
    with listening(create_app(payer(paid), replace(SERVED, a2a=A2A(approvals=True)))) as url:
        waiting = task_of(ask(f"{url}/a2a/payer"))
        done = task_of(ask(f"{url}/a2a/payer", "yes", taskId=waiting["id"]))
    assert (told(done)[0], done["contextId"]) == ("COMPLETED", waiting["contextId"])
    assert len(paid) == 1


def test_a_message_to_a_task_that_ends_meanwhile_changes_nothing_of_it() -> None:
    """In virtual time: the second message waits for its turn before the first one ends."""

    @handler
    async def slow(request: Request) -> AsyncGenerator[str]:
        yield "The whole "
        await anyio.sleep(2)
        yield "answer."

    app, version = create_app(Agent("A", model=slow), SERVED), {"a2a-version": "1.0"}

    async def both() -> tuple[str, str, Any]:
        first = Exchange(said("Hi"))
        async with anyio.create_task_group() as group:
            group.start_soon(partial(first.play, app, "/a2a/A", headers=version))
            await anyio.sleep(1)
            task = json.loads(first.answer.text.splitlines()[0].removeprefix("data: "))["result"]["task"]
            more = Exchange(said("More", taskId=task["id"]))
            second = await more.play(app, "/a2a/A", headers=version)
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
        kept = await Exchange(call).play(app, "/a2a/A", headers=version)
        return first.answer.text, second.text, kept.json()["result"]

    first, second, kept = in_virtual_time(both)
    assert "TASK_STATE_COMPLETED" in first
    assert (told(kept)[0], text_of(kept)) == ("COMPLETED", "The whole answer.")
    last = second.rstrip().splitlines()[-2:]
    assert last[0] == "event: error"
    assert json.loads(last[1].removeprefix("data: "))["error"]["code"] == -32004, "it is over"


def test_silence_in_a_stream_is_filled_as_the_app_says() -> None:
    @handler
    async def thinking(request: Request) -> str:
        await anyio.sleep(0.5)
        return "Hi."

    app = create_app(Agent("A", model=thinking), replace(SERVED, ping=0.1))
    text = asked(app, "/a2a/A", said("Hi"), headers={"a2a-version": "1.0"}, virtual=True).text
    assert ": ping\n\n" in text
    assert "TASK_STATE_COMPLETED" in text


def sourced(context: Any, agent: Any, output: Any) -> GuardrailResult:
    return GuardrailResult(False, answer=None if "source" in output else "Name a source.")


def test_artifact_has_no_answer_that_a_guardrail_refused() -> None:
    """Also in a stream: the whole answer replaces the pieces that were sent before."""
    careful = agent("A", *["It is.", "It is, by source 1."] * 2, output_guardrails=[sourced])
    with listening(create_app(careful, SERVED)) as url:
        assert text_of(task_of(ask(f"{url}/a2a/A"))) == "It is, by source 1."
        streamed = post(f"{url}/a2a/A", json.dumps(said("Hi")).encode()).text
    events = [json.loads(line[6:])["result"] for line in streamed.splitlines() if line.startswith("data: ")]
    whole = [each["artifactUpdate"] for each in events if "artifactUpdate" in each][-1]
    assert not whole.get("append")
    assert whole["artifact"]["parts"] == [{"text": "It is, by source 1."}]


def test_a_stream_without_a_reader_is_cut_off() -> None:
    given_up: list[str] = []

    @handler
    async def loud(request: Request) -> AsyncGenerator[str]:
        try:
            for _ in range(10):
                yield "x" * 1_000
                await anyio.sleep(0.1)
        finally:
            given_up.append("loud")

    app = create_app(Agent("A", model=loud), replace(SERVED, timeout=0.9))
    headers = {"a2a-version": "1.0"}
    answer = asked(app, "/a2a/A", said("Hi"), headers=headers, virtual=True, takes=4)
    assert given_up == ["loud"]
    assert "TASK_STATE_WORKING" in answer.text
    assert "TASK_STATE_COMPLETED" not in answer.text, "cut off before that"


# -- questions --


ASKING = replace(SERVED, a2a=A2A(is_question=lambda result: str(result.final_output).endswith("?")))


def test_a_question_leaves_its_task_open_for_the_answer() -> None:
    mine = agent("A", "Which one?", "The red one it is.")
    with listening(create_app(mine, ASKING)) as base:
        asking = task_of(ask(f"{base}/a2a/A", "A lamp."))
        done = task_of(ask(f"{base}/a2a/A", "Red.", taskId=asking["id"], messageId="m2"))
    assert (told(asking)[0], told(asking)[2]) == ("INPUT_REQUIRED", "Which one?")
    assert (told(done)[0], done["id"]) == ("COMPLETED", asking["id"])
    assert [part["text"] for each in done["history"] for part in each["parts"]] == [
        "A lamp.",
        "Which one?",
        "Red.",
    ]
    assert [text_of_message(each) for each in shown(mine, 1)] == ["A lamp.", "Which one?", "Red."]


def test_a_task_may_ask_again() -> None:
    with listening(create_app(agent("A", "Which one?", "Sure?", "Fine."), ASKING)) as base:
        url = f"{base}/a2a/A"
        first = task_of(ask(url))
        second = task_of(ask(url, "Red.", taskId=first["id"]))
        third = task_of(ask(url, "Yes.", taskId=first["id"]))
    assert [told(each)[0] for each in (first, second, third)] == [
        "INPUT_REQUIRED",
        "INPUT_REQUIRED",
        "COMPLETED",
    ]


def test_each_run_of_a_task_has_an_id_of_its_own() -> None:
    """An engine would take a second run of the same id for the first one."""
    ids: list[str] = []

    @handler
    async def curious(request: Request) -> str:
        assert request.context is not None
        ids.append(request.context.run_id)
        return "Which one?" if len(ids) < 3 else "Fine."

    with listening(create_app(Agent("A", model=curious), ASKING)) as base:
        task = task_of(ask(f"{base}/a2a/A"))
        for _ in range(2):
            ask(f"{base}/a2a/A", taskId=task["id"])
    assert ids == [task["id"], f"{task['id']}-2", f"{task['id']}-3"]


def test_a_task_that_asked_can_be_cancelled() -> None:
    with listening(create_app(agent("A", "Which one?"), ASKING)) as base:
        task = task_of(ask(f"{base}/a2a/A"))
        done = rpc(f"{base}/a2a/A", {"method": "CancelTask", "params": {"id": task["id"]}})
        late = ask(f"{base}/a2a/A", "Red.", taskId=task["id"])
    assert done["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert late["error"]["code"] == -32004


def test_an_answer_to_a_busy_server_leaves_the_question_open() -> None:
    """In virtual time: the only place is taken when the answer arrives."""

    @handler
    async def slow(request: Request) -> str:
        await anyio.sleep(2)
        return "Hello."

    agents = [agent("A", "Which one?", "The red one it is."), Agent("S", model=slow)]
    app, version = create_app(agents, replace(ASKING, max_concurrent=1)), {"a2a-version": "1.0"}

    async def play(name: str, text: str, **more: Any) -> Any:
        call = {**said(text, **more), "method": "SendMessage"}
        return task_of((await Exchange(call).play(app, f"/a2a/{name}", headers=version)).json())

    async def answer() -> tuple[Any, Any]:
        task = await play("A", "A lamp.")
        async with anyio.create_task_group() as group:
            group.start_soon(play, "S", "Hi")
            await anyio.sleep(1)
            refused = await play("A", "Red.", taskId=task["id"])
        return refused, await play("A", "Red, as I said.", taskId=task["id"])

    refused, done = in_virtual_time(answer)
    assert told(refused)[:2] == ("INPUT_REQUIRED", "too_many_requests")
    assert (told(done)[0], done["artifacts"][-1]["parts"]) == ("COMPLETED", [{"text": "The red one it is."}])


def test_a_failing_look_at_the_answer_fails_the_task() -> None:
    def fails(result: RunResult[Any]) -> bool:
        raise ValueError("secret")

    with listening(create_app(agent("A", "Hi."), replace(SERVED, a2a=A2A(is_question=fails)))) as base:
        answer = ask(f"{base}/a2a/A")
    assert told(task_of(answer))[0] == "FAILED"
    assert "secret" not in json.dumps(answer)


# -- messages in place of tasks --


NO_TASKS = replace(SERVED, a2a=A2A(tasks=False, approvals=True))


def test_an_answer_may_be_a_message() -> None:
    with listening(create_app(parrot(), NO_TASKS)) as base:
        url = f"{base}/a2a/parrot"
        first = ask(url, "one")["result"]["message"]
        second = ask(url, "two", contextId=first["contextId"])["result"]["message"]
        kept = rpc(url, {"method": "ListTasks", "params": {}})["result"]["tasks"]
    assert (first["role"], first["parts"]) == ("ROLE_AGENT", [{"text": "one"}])
    assert (first["metadata"]["agent"], "taskId" in first) == ("parrot", False)
    assert second["parts"] == [{"text": "one|two"}], "the conversation is kept"
    assert kept == []


def test_a_stream_may_be_one_message() -> None:
    app = create_app(agent("A", "Hi."), NO_TASKS)
    [event] = asked(app, "/a2a/A", said("Hi"), headers={"a2a-version": "1.0"}).text.split("\n\n")[:-1]
    assert json.loads(event.removeprefix("data: "))["result"]["message"]["parts"] == [{"text": "Hi."}]


def test_an_empty_answer_is_a_message_too() -> None:
    with listening(create_app(agent("A", ""), NO_TASKS)) as base:
        assert ask(f"{base}/a2a/A")["result"]["message"]["parts"] == [{"text": ""}]


def test_a_run_that_fails_is_a_task_all_the_same() -> None:
    with listening(create_app(agent("A", ValueError("secret")), NO_TASKS)) as base:
        assert told(task_of(ask(f"{base}/a2a/A")))[:2] == ("FAILED", "handler_failed")


def test_a_run_that_waits_for_its_caller_is_a_task_all_the_same() -> None:
    paid: list[int] = []
    with listening(create_app(payer(paid), NO_TASKS)) as base:
        waiting = task_of(ask(f"{base}/a2a/payer"))
        done = task_of(ask(f"{base}/a2a/payer", "yes", taskId=waiting["id"]))
    assert waiting["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert (told(done)[0], len(paid)) == ("COMPLETED", 1)


def test_a_function_says_which_requests_begin_a_task() -> None:
    settings = A2A(tasks=lambda about: "x-long" in about.headers)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    with listening(create_app(agent("A", "Hi.", "Hi."), replace(SERVED, a2a=settings))) as base:
        sent = partial(post, f"{base}/a2a/A", json.dumps(body).encode())
        found = [list(sent(**headers).json()["result"]) for headers in ({}, {"x-long": "1"})]
    assert found == [["message"], ["task"]]


def test_a_failing_choice_between_both_is_a_failed_task() -> None:
    def fails(about: ServedRequest) -> bool:
        raise ValueError("secret")

    mine = agent("A", "Hi.")
    with listening(create_app(mine, replace(SERVED, a2a=A2A(tasks=fails)))) as base:
        answer = ask(f"{base}/a2a/A")
    assert told(task_of(answer))[0] == "FAILED"
    assert "secret" not in json.dumps(answer)
    assert not requests(mine)


# -- files --


def test_an_answer_has_the_files_of_its_own_run_only() -> None:
    file = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}}
    drawn = ScriptedReply(message=cast("Any", {"role": "assistant", "content": [file]}))
    with listening(create_app(agent("A", drawn, "That was it."), SERVED)) as base:
        first = task_of(ask(f"{base}/a2a/A"))
        second = task_of(ask(f"{base}/a2a/A", contextId=first["contextId"]))
    sent = {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}
    assert [each["parts"] for each in first["artifacts"]] == [[sent]]
    assert [each["parts"] for each in second["artifacts"]] == [[{"text": "That was it."}]]


def test_model_calls_before_an_approval_do_not_count_for_the_limit() -> None:
    with listening(create_app(payer([]), replace(SERVED, a2a=A2A(approvals=True), max_turns=1))) as url:
        waiting = task_of(ask(f"{url}/a2a/payer"))
        done = task_of(ask(f"{url}/a2a/payer", "yes", taskId=waiting["id"]))
    assert told(done)[0] == "COMPLETED"


def test_a_task_that_a_limit_cut_says_so() -> None:
    looks = agent("A", reply("Let me see.", calls=[call("noop")]))
    settings = replace(SERVED, max_turns=1, run_config=RunConfig(on_limit="return"))
    with listening(create_app(looks, settings)) as url:
        done = task_of(ask(f"{url}/a2a/A"))
    assert (told(done)[0], done["metadata"]["incomplete"]) == ("COMPLETED", "length")
