"""JSON bodies of A2A, the Agent2Agent protocol. This module does no input or output, and needs no SDK.

See https://a2a-protocol.org/v1.0.0/specification/. A task is a run, a context is a conversation, and an
artifact is the output of a run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, cast

from routelock._sendable import integral
from routelock.agents.agent import Agent
from routelock.history.messages import Message
from routelock.run.result import RunResult
from routelock.serving.errors import Refusal
from routelock.serving.json_rpc import json_rpc_error
from routelock.serving.requests import content_of, file_part
from routelock.serving.run_data import MadeFile, made_files, output_data

__all__ = [
    "answer_parts",
    "card_body",
    "message_of",
    "refusal_body",
]


_CONTENT_TYPE_NOT_SUPPORTED = -32005
"""An error code of A2A, see https://a2a-protocol.org/v1.0.0/specification/#54-error-code-mappings."""


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


def refusal_body(refusal: Refusal, request_id: str, call_id: object = None) -> dict[str, Any]:
    """Return the JSON-RPC error for a request that was refused before the SDK read it, or cut off after it.

    Args:
        refusal: the refusal.
        request_id: the id in the server's log.
        call_id: the id of the request, if it is known.
    """
    code, reason, domain = None, refusal.code.upper(), "routelock"
    if refusal.status == 415:
        code, reason, domain = _CONTENT_TYPE_NOT_SUPPORTED, "CONTENT_TYPE_NOT_SUPPORTED", "a2a-protocol.org"
    about = {"reason": reason, "domain": domain, "metadata": {"requestId": request_id}}
    data = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **about}]
    return json_rpc_error(refusal, data, code=code, call_id=call_id)


def message_of(said: Mapping[str, Any]) -> Message:
    """Return a client's message as a user message.

    Raises:
        Refusal: a part of it cannot be shown to a model.
    """
    parts = [_content(part) for part in said.get("parts", ())]
    if not parts:
        raise Refusal(400, "The message has no parts.", "invalid_request", "message.parts")
    return cast(Message, {"role": "user", "content": content_of(parts)})


def _content(part: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "data" in part:
        return {"type": "text", "text": json.dumps(integral(part["data"]), ensure_ascii=False)}
    if "raw" not in part:
        # to fetch it would let a stranger choose an address for the server to call
        raise Refusal(400, "Send files as bytes, not by their URL.", "content_not_supported", "message.parts")
    return file_part(part.get("mediaType") or "", part["raw"], part.get("filename") or "file")


def answer_parts(result: RunResult[Any], text: str) -> list[dict[str, Any]]:
    """Return the parts of the answer: the output as data if it has a type, and otherwise text and files.

    Args:
        result: the result of the run.
        text: the text that its agents wrote.
    """
    if (data := output_data(result)) is not None:
        return [{"data": data, "mediaType": "application/json"}]
    return [*([{"text": text}] if text else []), *map(_file_part, made_files(result))]


def _file_part(file: MadeFile) -> dict[str, Any]:
    """Return the part for an image, a sound or a file that a model made: its bytes, or its address."""
    where = {"raw": file.data} if file.data else {"url": file.url}
    return {**where, **({"filename": file.name} if file.name else {}), "mediaType": file.kind}
