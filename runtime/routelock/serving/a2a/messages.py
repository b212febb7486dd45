"""JSON bodies of A2A, the Agent2Agent protocol. This module does no input or output, and needs no SDK.

See https://a2a-protocol.org/v1.0.0/specification/. A task is a run, a context is a conversation, and an
artifact is the output of a run.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from routelock._json import integral
from routelock.agents.agent import Agent
from routelock.history.content import media_of
from routelock.history.messages import Message
from routelock.run.result import RunResult
from routelock.serving.errors import Refusal
from routelock.serving.run_data import output_data
from routelock.tools.approvals import Interruption

__all__ = [
    "answer_parts",
    "card_body",
    "message_of",
    "question_parts",
    "refusal_body",
    "verdict_of",
]


_PARSE_ERROR, _INVALID_REQUEST, _INTERNAL_ERROR, _SERVER_ERROR = -32700, -32600, -32603, -32000
"""Error codes of JSON-RPC, see https://www.jsonrpc.org/specification#error_object."""

_CONTENT_TYPE_NOT_SUPPORTED = -32005
"""An error code of A2A, see https://a2a-protocol.org/v1.0.0/specification/#54-error-code-mappings."""
_DATA_URL = re.compile(r"data:(?P<kind>[^;,]*)(?:;[^;,]*)*;base64,(?P<bytes>.*)", re.DOTALL)

_ADDRESSES = ("url", "file_data", "file_url", "file_id")
"""The keys of a media part that may hold its bytes, as a data URL, or its address."""


def card_body(
    agent: Agent[Any], *, url: str, version: str, keyed: bool, protocols: Collection[str] = ("1.0", "0.3")
) -> dict[str, Any]:
    """Return the card of an agent: its name, description, address and capabilities.

    Args:
        agent: the agent. Its instructions and tools are not in the card.
        url: the address for requests.
        version: the version of the agent, for people.
        keyed: whether requests need a bearer token.
        protocols: the versions of the protocol.
    """
    about = agent.handoff_description or f"The agent {agent.name}."
    modes = ["text/plain"] if agent.output is None else ["application/json", "text/plain"]
    body: dict[str, Any] = {
        "name": agent.name,
        "description": about,
        "version": version,
        "supportedInterfaces": [
            # the newest first: clients take the first one that they know
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": each}
            for each in sorted(protocols, reverse=True)
        ],
        "capabilities": {"streaming": True, "pushNotifications": False},
        "defaultInputModes": ["text/plain", "application/json", "image/*", "application/octet-stream"],
        "defaultOutputModes": modes,
        "skills": [{"id": agent.name, "name": agent.name, "description": about, "tags": ["agent"]}],
    }
    if keyed:
        body["securitySchemes"] = {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
        body["securityRequirements"] = [{"schemes": {"bearer": {"list": []}}}]
    return body


def refusal_body(refusal: Refusal, request_id: str) -> dict[str, Any]:
    """Return the JSON-RPC error for a request that was refused before the SDK read it.

    Args:
        refusal: the refusal.
        request_id: the id in the server's log. The id of the call is null: the body may be unread, or not
            JSON.
    """
    code, reason, domain = _INVALID_REQUEST, refusal.code.upper(), "routelock"
    if refusal.code == "invalid_json":
        code = _PARSE_ERROR
    elif refusal.status >= 500:
        code = _INTERNAL_ERROR
    elif refusal.status in (401, 403, 404, 429):  # the request itself is valid
        code = _SERVER_ERROR
    elif refusal.status == 415:
        code, reason, domain = _CONTENT_TYPE_NOT_SUPPORTED, "CONTENT_TYPE_NOT_SUPPORTED", "a2a-protocol.org"
    about = {"reason": reason, "domain": domain, "metadata": {"requestId": request_id}}
    data = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **about}]
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": refusal.message, "data": data}}


def message_of(said: Mapping[str, Any]) -> Message:
    """Return a client's message as a user message.

    Raises:
        Refusal: a part of it cannot be shown to a model.
    """
    parts = [_content(part) for part in said.get("parts", ())]
    if not parts:
        raise Refusal(400, "The message has no parts.", "invalid_request", "message.parts")
    if all(part["type"] == "text" for part in parts):
        return {"role": "user", "content": "\n".join(part["text"] for part in parts)}
    return {"role": "user", "content": parts}


def _content(part: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "data" in part:
        return {"type": "text", "text": json.dumps(integral(part["data"]), ensure_ascii=False)}
    if "raw" not in part:
        # to fetch it would let a stranger choose an address for the server to call
        raise Refusal(400, "Send files as bytes, not by their URL.", "content_not_supported", "message.parts")
    kind = part.get("mediaType") or "application/octet-stream"
    url = f"data:{kind};base64,{part['raw']}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.get("filename") or "file", "file_data": url}}


def answer_parts(result: RunResult[Any], text: str) -> list[dict[str, Any]]:
    """Return the parts of the answer: the output as data if it has a type, and otherwise text and files.

    Args:
        result: the result of the run.
        text: the text that its agents wrote.
    """
    if (data := output_data(result)) is not None:
        return [{"data": data, "mediaType": "application/json"}]
    return [*([{"text": text}] if text else []), *_files(result)]


def _files(result: RunResult[Any]) -> Iterator[dict[str, Any]]:
    """Yield a part for each image and file that models made in a run."""
    for item in result.items[result.input_count :]:
        if item.message["role"] == "assistant":
            made = cast("list[dict[str, Any]]", item.message.get("images") or [])
            parts = (_file(media) for media in (*made, *media_of(item.message.get("content"))))
            yield from (part for part in parts if part is not None)


def _file(media: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part for an image or a file: its bytes, or its address; None for what has neither."""
    about: Mapping[str, Any] = media.get(str(media.get("type"))) or {}
    where = next((text for key in _ADDRESSES if isinstance(text := about.get(key), str)), "")
    name = about.get("filename") or ""
    kind = about.get("format") or mimetypes.guess_type(name or where.partition("?")[0])[0]
    if (data := _DATA_URL.match(where)) is not None:
        return _named({"raw": data["bytes"]}, name, data["kind"] or kind)
    return _named({"url": where}, name, kind) if where.startswith(("https://", "http://")) else None


def _named(part: dict[str, Any], name: str, kind: str | None) -> dict[str, Any]:
    return {**part, **({"filename": name} if name else {}), "mediaType": kind or "application/octet-stream"}


def question_parts(calls: Iterable[Interruption]) -> list[dict[str, Any]]:
    """Return the parts of the question whether calls may be made."""
    asked = [_asked(one) for one in calls]
    lines = (f"{one['agent']}: {one['name']}({one['arguments']}) {one.get('question', '')}" for one in asked)
    listed = "\n".join(map(str.rstrip, lines))
    text = f'May these calls be made? Answer yes or no, or with the data {{"approve": true}}.\n{listed}'
    return [{"text": text}, {"data": {"approvals": asked}, "mediaType": "application/json"}]


def _asked(one: Interruption) -> dict[str, str]:
    asked = {"agent": one.agent, "name": one.name, "arguments": one.arguments}
    return asked if one.question is None else {**asked, "question": one.question.message}


def verdict_of(said: Mapping[str, Any]) -> tuple[bool, str] | None:
    """Return whether a client approves the calls, and its reason if not; None if the answer is not clear."""
    parts: Sequence[Mapping[str, Any]] = said.get("parts", ())
    for data in (part["data"] for part in parts if isinstance(part.get("data"), dict)):
        if isinstance(approve := data.get("approve"), bool):
            return approve, str(data.get("message") or "")
    words = " ".join(part["text"] for part in parts if "text" in part).strip().rstrip(".!").lower()
    return {"yes": (True, ""), "no": (False, "")}.get(words)
