"""A2A over true sockets: tasks that run while something else happens to them, and streams nobody reads."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from a2a_calls import SERVED, ask, post, rpc, task_of, text_of, told
from clients.a2a_cast import payer
from served_apps import PATIENCE, listening

from routelock import Agent, Request, handler
from routelock.serving import A2A, create_app
from routelock.serving.a2a.agent_executor import PieceFlow

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
    begun, go_on = threading.Event(), threading.Event()

    @handler
    async def slow(request: Request) -> AsyncGenerator[str]:
        yield "The whole "
        begun.set()
        await anyio.to_thread.run_sync(go_on.wait, PATIENCE)
        yield "answer."

    with listening(create_app(Agent("A", model=slow), SERVED)) as base:
        url = f"{base}/a2a/A"
        with httpx.stream("POST", url, json=said("Hi"), headers={"a2a-version": "1.0"}) as first:
            lines = first.iter_lines()
            task = json.loads(next(each for each in lines if each.startswith("data: "))[6:])["result"]["task"]
            assert begun.wait(PATIENCE)
            threading.Timer(0.3, go_on.set).start()
            second = post(url, json.dumps(said("More", taskId=task["id"])).encode()).text
            assert "TASK_STATE_COMPLETED" in "".join(lines)
        kept = rpc(url, {"method": "GetTask", "params": {"id": task["id"]}})["result"]
    assert (told(kept)[0], text_of(kept)) == ("COMPLETED", "The whole answer.")
    last = second.rstrip().splitlines()[-2:]
    assert last[0] == "event: error"
    assert json.loads(last[1].removeprefix("data: "))["error"]["code"] == -32004, "it is over"


def test_silence_in_a_stream_is_filled_as_the_app_says() -> None:
    @handler
    async def thinking(request: Request) -> str:
        await anyio.sleep(0.5)
        return "Hi."

    with listening(create_app(Agent("A", model=thinking), replace(SERVED, ping=0.1))) as url:
        text = post(f"{url}/a2a/A", json.dumps(said("Hi")).encode()).text
    assert ": ping\n\n" in text
    assert "TASK_STATE_COMPLETED" in text


def test_a_stream_that_nobody_reads_is_given_up() -> None:
    given_up = threading.Event()

    @handler
    async def loud(request: Request) -> AsyncGenerator[str]:
        try:
            for _ in range(10):
                yield "x" * 1_000_000
                await anyio.sleep(0.1)
        finally:
            given_up.set()

    app = create_app(Agent("A", model=loud), replace(SERVED, timeout=0.9))
    with listening(app) as base, _unread(f"{base}/a2a/A", said("Hi")) as connection:
        assert given_up.wait(PATIENCE)
        read = b""
        while piece := connection.recv(1_000_000):
            read += piece
    assert b"TASK_STATE_WORKING" in read
    assert b"TASK_STATE_COMPLETED" not in read, "cut off before that"


def _unread(url: str, body: Any) -> socket.socket:
    """Send a request whose answer waits in the buffers of the sockets."""
    address, data = urlsplit(url), json.dumps(body).encode()
    head = (
        f"POST {address.path} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        f"a2a-version: 1.0\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    connection = socket.create_connection((address.hostname, address.port), PATIENCE)
    connection.sendall(head.encode() + data)
    return connection


# -- pieces --


@pytest.mark.anyio
async def test_pieces_are_sent_at_once_and_none_is_lost() -> None:
    sent: list[str] = []
    first = anyio.Event()

    async def send(text: str) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(text)
        first.set()

    pieces = PieceFlow(send)

    async def work() -> None:
        pieces.add("one ")
        await first.wait()
        for word in ("two ", "", "three ", "four"):
            pieces.add(word)
            await anyio.lowlevel.checkpoint()

    await pieces.flow_during(work)
    assert (sent[0], "".join(sent)) == ("one ", "one two three four")


@pytest.mark.anyio
async def test_what_was_said_before_an_error_is_sent_before_it_is_raised() -> None:
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    pieces = PieceFlow(send)

    async def work() -> None:
        pieces.add("Half an ")
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        await pieces.flow_during(work)
    assert sent == ["Half an "]
