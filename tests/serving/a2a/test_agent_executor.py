"""Tasks of A2A: messages to a running task, silence, streams without a reader, and pieces of text."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from a2a_calls import SERVED, ask, task_of, text_of, told
from asgi_client import Exchange, asked, in_virtual_time
from clients.a2a_cast import payer
from served_apps import listening

from routelock import Agent, Request, handler
from routelock.serving import A2A, create_app
from routelock.serving.a2a.agent_executor import TextBatches

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


# -- pieces --


@pytest.mark.anyio
async def test_pieces_are_sent_at_once_and_completely() -> None:
    sent: list[str] = []
    first = anyio.Event()

    async def send(text: str) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(text)
        first.set()

    pieces = TextBatches(send)

    async def work() -> None:
        pieces.add("one ")
        await first.wait()
        for word in ("two ", "", "three ", "four"):
            pieces.add(word)
            await anyio.lowlevel.checkpoint()

    await pieces.send_during(work)
    assert (sent[0], "".join(sent)) == ("one ", "one two three four")


@pytest.mark.anyio
async def test_pieces_before_an_error_are_sent() -> None:
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    pieces = TextBatches(send)

    async def work() -> None:
        pieces.add("Half an ")
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        await pieces.send_during(work)
    assert sent == ["Half an "]
