"""What is said on spans, in the words of OpenTelemetry's semantic conventions for generative AI.

They are still in development (https://github.com/open-telemetry/semantic-conventions-genai), so the names are
written here, and not taken from a package in which they may move. What the conventions have no word for
begins with ``routelock``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from routelock._json import decode
from routelock._redaction import redact, redact_text
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request
from routelock.history.messages import Message, calls_of
from routelock.trace_records import HandoffTraced, ModelEnded, ModelStarted
from routelock.usage import Usage

__all__ = [
    "AGENT",
    "CALL_ID",
    "CONVERSATION",
    "ERROR",
    "OPERATION",
    "PROVIDER",
    "REQUEST_MODEL",
    "RESPONSE_MODEL",
    "TOOL",
    "TOOL_TYPE",
    "AskedTexts",
    "given",
    "got",
    "quoted",
    "replied",
    "requested",
    "said",
    "transfer",
]

AGENT = "gen_ai.agent.name"
CALL_ID = "gen_ai.tool.call.id"
CONVERSATION = "gen_ai.conversation.id"
ERROR = "error.type"
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""Providers that the conventions call otherwise than LiteLLM does."""
_SETTINGS = {
    "frequency_penalty": (int, float),
    "max_tokens": (int,),
    "presence_penalty": (int, float),
    "seed": (int,),
    "temperature": (int, float),
    "top_k": (int, float),
    "top_p": (int, float),
}
"""Settings that have a name of their own, each with the types that its attribute may have."""


def requested(record: ModelStarted) -> dict[str, Any]:
    """Return which model is asked, and how."""
    provider = record.provider or "routelock"
    found: dict[str, Any] = {
        AGENT: record.agent,
        PROVIDER: _PROVIDERS.get(provider, provider),
        REQUEST_MODEL: (record.model or record.handler).removeprefix(f"{provider}/"),
        "routelock.handler.name": record.handler,
        "routelock.turn": record.turn,
    }
    for name, kinds in _SETTINGS.items():
        value = record.settings.get(name)
        if isinstance(value, kinds) and not isinstance(value, bool):
            found[f"gen_ai.request.{name}"] = value
    stop = record.settings.get("stop")
    if stop and all(isinstance(each, str) for each in ([stop] if isinstance(stop, str) else stop)):
        found["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if record.request is not None and record.request.stream:
        found["gen_ai.request.stream"] = True
    if record.output_schema is not None:
        found["gen_ai.output.type"] = "json"
    return found


def replied(record: ModelEnded) -> dict[str, Any]:
    """Return who answered, why it stopped, and what was consumed."""
    found = {
        "gen_ai.response.id": record.response_id,
        RESPONSE_MODEL: record.model,
        "gen_ai.response.finish_reasons": None if record.finish_reason is None else [record.finish_reason],
        **({} if record.usage is None else _consumed(record.usage)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _consumed(usage: Usage) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
        "routelock.usage.cost": usage.cost,
        "routelock.usage.estimated": usage.estimated or None,
    }


def transfer(record: HandoffTraced, *, content: bool) -> dict[str, Any]:
    """Return from whom to whom a transfer goes, and what became of it."""
    found = {
        "routelock.handoff.id": record.id,
        "routelock.handoff.source": record.source,
        "routelock.handoff.target": record.target,
        "routelock.handoff.status": record.status.lower(),
        CALL_ID: record.call_id,
    }
    if content and record.reason:
        found["routelock.handoff.reason"] = redact_text(record.reason)
    return found


# -- content, which is put on spans only when asked for --


def quoted(text: str) -> str:
    """Return somebody's words as they may be on a span: without secrets, and of bounded length."""
    return redact_text(text)[:2000]


class AskedTexts:
    """What models are shown and offered in a run, each message and each tool made into text once.

    All messages are on the span of each call. To make them into text anew for each would take ever longer.
    """

    __slots__ = ("_known", "_system")

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}
        self._system: tuple[list[dict[str, Any]], str] = [], ""

    def of(self, request: Request) -> dict[str, str]:
        """Return what a model is shown and offered."""
        messages = list(request.messages)
        system: list[dict[str, Any]] = []
        while messages and messages[0]["role"] == "system":
            system += _parts(messages.pop(0))
        found = {"gen_ai.input.messages": self._listed(_message, messages)}
        if system:
            if system != self._system[0]:
                self._system = system, _json(system)
            found["gen_ai.system_instructions"] = self._system[1]
        if request.tools:
            found["gen_ai.tool.definitions"] = self._listed(_definition, request.tools)
        return found

    def _listed(self, made: Callable[[Any], object], values: Iterable[object]) -> str:
        return f"[{', '.join([self._text(made, value) for value in values])}]"

    def _text(self, made: Callable[[Any], object], value: object) -> str:
        known = self._known.get(id(value))
        if known is None:  # the value is held, so that no other one can have its identity
            known = self._known[id(value)] = value, _json(made(value))
        return known[1]


def said(reply: MessageDone) -> dict[str, str]:
    """Return what a model replied."""
    message = {**_message(reply.message), "finish_reason": reply.finish_reason or ""}
    return {"gen_ai.output.messages": _json([message])}


def given(arguments: str) -> dict[str, str]:
    """Return what a tool was called with."""
    return {"gen_ai.tool.call.arguments": redact(arguments)}


def got(result: str) -> dict[str, str]:
    """Return what a tool gave."""
    return {"gen_ai.tool.call.result": redact(result)}


def _definition(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", **spec.get("function", {})}


def _message(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        content = message.get("content")
        response = [_part(part) for part in content] if isinstance(content, list) else content
        answer = {"id": message.get("tool_call_id"), "response": response}
        return {"role": "tool", "parts": [{"type": "tool_call_response", **answer}]}
    return {"role": message["role"], "parts": _parts(message)}


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    listed: Iterable[Mapping[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) and content else content or ()
    )
    parts = [_part(part) for part in listed]
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "content": refusal})
    for call in calls_of(message):
        function = call["function"]
        parts.append(
            {
                "type": "tool_call",
                "id": call.get("id"),
                "name": function.get("name") or "",
                "arguments": _read(function.get("arguments") or ""),
            }
        )
    return parts


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": "text", "content": str(part.get("text") or "")}
    return {"type": str(part.get("type") or "unknown")}  # of images and files, only that they were there


def _read(arguments: str) -> object:
    try:
        return decode(arguments.encode())
    except ValueError:
        return arguments


def _json(value: object) -> str:
    return json.dumps(redact(value), ensure_ascii=False, default=str)
