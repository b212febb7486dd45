"""Attributes of OpenTelemetry spans, as the conventions for generative AI name them.

Two releases of the conventions are known: 0.1, the first one of the repository
https://github.com/open-telemetry/semantic-conventions-genai, and 1.41, the last one before the move there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from routelock._redaction import redact_text
from routelock._sendable import sendable
from routelock.errors import ConfigError
from routelock.tracing.records import HandoffTraced, ModelEnded, ModelStarted
from routelock.usage import Usage

__all__ = [
    "AGENT",
    "ARGUMENTS",
    "CALL_ID",
    "CONVERSATION",
    "ERROR",
    "OPERATION",
    "PROVIDER",
    "REQUEST_MODEL",
    "RESPONSE_MODEL",
    "TOOL",
    "TOOL_TYPE",
    "WORKFLOW",
    "Conventions",
    "check_conventions",
    "handoff_attributes",
    "reply_attributes",
    "request_attributes",
    "schema_url",
    "sendable_attributes",
]


Conventions = Literal["both", "0.1", "1.41"]
"""The releases of the conventions whose names are written."""

AGENT = "gen_ai.agent.name"

ARGUMENTS = "gen_ai.tool.call.arguments"

CALL_ID = "gen_ai.tool.call.id"

CONVERSATION = "gen_ai.conversation.id"

ERROR = "error.type"

OPERATION = "gen_ai.operation.name"

PROVIDER = "gen_ai.provider.name"

REQUEST_MODEL = "gen_ai.request.model"

RESPONSE_MODEL = "gen_ai.response.model"

TOOL = "gen_ai.tool.name"

TOOL_TYPE = "gen_ai.tool.type"

WORKFLOW = "gen_ai.workflow.name"
"""The name of a workflow in 1.41; 0.1 puts it into `AGENT`."""

_SCHEMAS: Mapping[str, str] = {
    "both": "https://opentelemetry.io/schemas/gen-ai/0.1.0",
    "0.1": "https://opentelemetry.io/schemas/gen-ai/0.1.0",
    "1.41": "https://opentelemetry.io/schemas/1.41.0",
}

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
"""The name in the conventions of each provider that LiteLLM calls differently."""

_SETTINGS = {
    "frequency_penalty": (int, float),
    "max_tokens": (int,),
    "presence_penalty": (int, float),
    "seed": (int,),
    "temperature": (int, float),
    "top_k": (int, float),
    "top_p": (int, float),
}
"""The settings with an attribute of their own, and the types that the attribute may have."""


def check_conventions(conventions: str) -> None:
    """Raise a `ConfigError` if this is not a known release of the conventions."""
    if conventions not in _SCHEMAS:
        known = ", ".join(map(repr, _SCHEMAS))
        raise ConfigError(f"OpenTelemetry(conventions={conventions!r}): use one of {known}.")


def schema_url(conventions: Conventions) -> str:
    """Return the address of the schema that names the attributes; with both releases, that of the newer."""
    return _SCHEMAS[conventions]


def sendable_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that an exporter can send: half a surrogate pair in one stops the whole export."""
    return sendable(dict(attributes))


def request_attributes(record: ModelStarted, conventions: Conventions) -> dict[str, Any]:
    """Return the attributes of a model call that are known when it starts."""
    provider = record.provider or "routelock"
    found: dict[str, Any] = {
        AGENT: record.agent,
        PROVIDER: _PROVIDERS.get(provider, provider),
        REQUEST_MODEL: (record.model or record.handler).removeprefix(f"{provider}/"),
        "routelock.handler.name": record.handler,
        "routelock.turn": record.turn,
        **_setting_attributes(record.settings, conventions),
    }
    if record.request is not None and record.request.stream:
        found["gen_ai.request.stream"] = True
    if record.output_schema is not None:
        found["gen_ai.output.type"] = "json"
    return found


def _setting_attributes(settings: Mapping[str, Any], conventions: Conventions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kinds in _SETTINGS.items():
        value = settings.get(name)
        if isinstance(value, kinds) and not isinstance(value, bool):
            found[f"gen_ai.request.{name}"] = value
    stop = settings.get("stop")
    if stop and all(isinstance(each, str) for each in ([stop] if isinstance(stop, str) else stop)):
        found["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if conventions != "1.41":
        if isinstance(top_k := found.get("gen_ai.request.top_k"), float):
            found["gen_ai.request.top_k"] = int(top_k)
        if isinstance(effort := settings.get("reasoning_effort"), str):
            found["gen_ai.request.reasoning.level"] = effort
    return found


def reply_attributes(record: ModelEnded) -> dict[str, Any]:
    """Return the attributes of a model call that are known when it has ended."""
    found = {
        "gen_ai.response.id": record.response_id,
        RESPONSE_MODEL: record.model,
        "gen_ai.response.finish_reasons": None if record.finish_reason is None else [record.finish_reason],
        **({} if record.usage is None else _usage_attributes(record.usage)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _usage_attributes(usage: Usage) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
        "routelock.usage.cost": usage.cost,
        "routelock.usage.estimated": usage.estimated or None,
    }


def handoff_attributes(record: HandoffTraced, *, content: bool) -> dict[str, Any]:
    """Return the attributes of a handoff, on its span and on its event."""
    found: dict[str, Any] = {
        "routelock.handoff.id": record.id,
        "routelock.handoff.source": record.source,
        "routelock.handoff.target": record.target,
        "routelock.handoff.status": record.status.lower(),
    }
    if content and record.reason:
        found["routelock.handoff.reason"] = redact_text(record.reason)
    return found
