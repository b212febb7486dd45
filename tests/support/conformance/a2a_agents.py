"""The agents that A2A's conformance kit asks: scripted models that play the kit's scenarios.

The kit names a scenario by the beginning of a message's id, and sends the same text in all of them. A model
is not shown such ids, so the app hands the id on as a header, from which the run's context is made.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from clients.cast import Plays

from routelock import Agent, Request
from routelock.run.result import RunResult
from routelock.serving import A2A, ServeConfig, ServedRequest, create_app
from routelock.testing import ScriptedReply, call
from routelock.testing.scripted import Reply

HELLO = "Hello from TCK"
TEXTS = {
    "tck-artifact-text": "Generated text content",
    "tck-input-required": "Which order is it?",
    "tck-message-response": "Direct message response",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
    "tck-stream-ordering-001": "Ordered output",
}
FILES: Mapping[str, Mapping[str, str]] = {
    # the longer name first, because it begins with the other one
    "tck-artifact-file-url": {"file_url": "https://example.com/output.txt"},
    "tck-artifact-file": {"file_data": f"data:text/plain;base64,{base64.b64encode(b'Output').decode()}"},
}
_HEADER = "x-message-id"


@dataclass
class Data:
    """What the agent of the data answers with."""

    key: str
    count: int


DATA = Data("value", 42)


def kit_app() -> Any:
    """Return the ASGI app that the kit asks."""
    clerk = Agent(
        "clerk",
        "Answer with data.",
        model=Plays("clerk", lambda _: json.dumps(asdict(DATA))),
        output_type=Data,
    )
    desk = Agent("desk", "Serve.", model=Plays("desk", _part), handoffs=[clerk])
    settings = A2A(versions=("1.0",), is_question=_is_question, tasks=_begins_task)
    return _WithMessageId(create_app(desk, ServeConfig(context=_message_id, a2a=settings)))


def old_kit_app() -> Any:
    """Return the app for the kit of version 0.3, which goes on with each of its tasks, or cancels it."""
    desk = Agent("desk", "Serve.", model=Plays("desk", lambda _: HELLO))
    return create_app(desk, ServeConfig(a2a=A2A(is_question=lambda _: True)))


def _part(request: Request) -> Reply:
    """Return what the scenario of the request asks for."""
    scenario = str(request.context.context) if request.context is not None else ""
    if scenario.startswith("tck-artifact-data"):
        return call("transfer_to_clerk")
    for name, file in FILES.items():
        if scenario.startswith(name):
            content = [{"type": "file", "file": {"filename": "output.txt", **file}}]
            return ScriptedReply(message=cast("Any", {"role": "assistant", "content": content}))
    return next((text for name, text in TEXTS.items() if scenario.startswith(name)), HELLO)


def _is_question(result: RunResult[Any]) -> bool:
    return result.final_output == TEXTS["tck-input-required"]


def _begins_task(about: ServedRequest) -> bool:
    return not _message_id(about).startswith("tck-message-response")


def _message_id(about: ServedRequest) -> str:
    return about.headers.get(_HEADER, "")


class _WithMessageId:
    """Hands the id of a request's message to the app, as a header."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        left = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return left.pop() if left else await receive()

        header = (_HEADER.encode(), _id_in(body).encode())
        await self._app({**scope, "headers": [*scope["headers"], header]}, again, send)


def _id_in(body: bytes) -> str:
    try:
        return str(json.loads(body)["params"]["message"]["messageId"])
    except (ValueError, LookupError, TypeError):
        return ""
