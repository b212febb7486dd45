"""The body of a request for a response. A parameter that is not supported is refused by its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import pydantic

from routelock.serving.config import ClientSettings
from routelock.serving.requests import (
    MOST_TOOLS,
    ClientContext,
    ClientRequest,
    ToolName,
    bad_request,
    check_known,
    checked_context,
    read_json,
    refuse_settings,
    tool_choice,
    validated,
)
from routelock.serving.responses.items import input_messages
from routelock.serving.responses.tools import CallForm, name_in, read_tools

__all__ = ["ResponseRequest", "parse_response_request"]


_MOST_PAIRS = 16

_SETTINGS = {
    "max_tokens": "max_output_tokens",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}
"""The parameters of settings that have another name here."""


class _NamedTool(pydantic.BaseModel):
    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class _Format(pydantic.BaseModel):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: ToolName | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, pydantic.Field(alias="schema")] = None
    strict: bool | None = None


class _Text(pydantic.BaseModel):
    format: _Format | None = None
    verbosity: str | None = None


class _Reasoning(pydantic.BaseModel):
    effort: str | None = None


_Short = Annotated[str, pydantic.Field(max_length=512)]


class _Body(pydantic.BaseModel):
    """The parameters that are supported."""

    input: Any = None
    model: str | None = None
    instructions: str | None = None
    previous_response_id: _Short | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    tools: Annotated[list[dict[str, Any]], pydantic.Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Any = None
    temperature: Annotated[float, pydantic.Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, pydantic.Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, pydantic.Field(ge=1)] | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    reasoning: _Reasoning | None = None
    metadata: Annotated[dict[str, _Short], pydantic.Field(max_length=_MOST_PAIRS)] | None = None
    user: str | None = None
    safety_identifier: _Short | None = None
    prompt_cache_key: _Short | None = None
    handoff_context: ClientContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRequest(ClientRequest):
    """A parsed request for a response."""

    instructions: str | None
    """A system message for this response only."""
    previous: str | None
    """The id of the response that this one continues."""
    store: bool
    """Whether a later request may continue this response."""
    call_forms: Mapping[str, CallForm]
    """The forms of calls of the client's tools, see `ClientTools`."""
    echo: Mapping[str, Any]
    """The parameters of the request that the response repeats."""


def parse_response_request(body: bytes, client_settings: ClientSettings | None = None) -> ResponseRequest:
    """Parse the body of a request for a response.

    Args:
        body: the body.
        client_settings: the treatment of the client's settings, see `ServeConfig`.

    Raises:
        Refusal: 400. The message names the problem and its place.
    """
    said = read_json(body)
    read = validated(_Body, said)
    _check_supported(cast("Mapping[str, Any]", said))
    if not read.input and not read.previous_response_id:
        raise bad_request("input: Field required.", "input")
    tools = read_tools(read.tools or ())
    settings = _settings(read)
    if client_settings == "refuse":
        refuse_settings([_SETTINGS.get(name, name) for name in settings])
    return ResponseRequest(
        messages=input_messages(read.input or []),
        model=read.model or "",
        stream=bool(read.stream),
        tools=() if read.tool_choice == "none" else tools.specs,
        tool_choice=tool_choice(read.tool_choice, _chosen(read.tool_choice), tools.specs),
        user=read.user or read.safety_identifier,
        handoff_context=checked_context(read.handoff_context),
        settings=settings,
        setting_names=_SETTINGS,
        instructions=read.instructions or None,
        previous=read.previous_response_id or None,
        store=read.store is not False,
        call_forms=tools.forms,
        echo=_echo(read, cast("Mapping[str, Any]", said)),
    )


_INSIDE: Mapping[str, Collection[str]] = {
    "text": _Text.model_fields,
    "reasoning": _Reasoning.model_fields,
    "stream_options": (),
}
"""The parameters inside of others that are supported."""


def _check_supported(said: Mapping[str, Any]) -> None:
    check_known(said, _Body.model_fields)
    for name, known in _INSIDE.items():
        check_known(said.get(name) or {}, known, f"{name}.")


def _chosen(choice: object) -> str | None:
    """Return the name of the tool that a client chose, if it chose one."""
    if choice in (None, "auto", "none", "required"):
        return None
    chosen = validated(_NamedTool, choice, "tool_choice")
    return name_in(chosen.namespace, chosen.name)


def _settings(read: _Body) -> Mapping[str, Any]:
    """Return the settings of the client, by the names of a handler's settings."""
    given = {
        "temperature": read.temperature,
        "top_p": read.top_p,
        "max_tokens": read.max_output_tokens,
        "parallel_tool_calls": False if read.parallel_tool_calls is False else None,
        "verbosity": read.text and read.text.verbosity,
        "reasoning_effort": read.reasoning and read.reasoning.effort,
        "response_format": read.text and read.text.format and _chat_format(read.text.format),
    }
    return {name: value for name, value in given.items() if value is not None}


def _chat_format(form: _Format) -> Mapping[str, Any] | None:
    """Return a format in the form of chat completions; None for text."""
    if form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    for name, value in (("name", form.name), ("schema", form.schema_)):
        if value is None:
            raise bad_request(f"text.format.{name}: Field required.", f"text.format.{name}")
    schema = form.model_dump(exclude_none=True, exclude={"type"}, by_alias=True)
    return {"type": "json_schema", "json_schema": schema}


def _echo(read: _Body, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters that a response repeats, with the defaults of the protocol."""
    text: Mapping[str, Any] = said.get("text") or {}
    tools = read.tools or ()
    return {
        "instructions": read.instructions,
        "max_output_tokens": read.max_output_tokens,
        "metadata": read.metadata or {},
        "parallel_tool_calls": read.parallel_tool_calls is not False,
        "previous_response_id": read.previous_response_id,
        "prompt_cache_key": read.prompt_cache_key,
        "reasoning": {"effort": read.reasoning and read.reasoning.effort, "summary": None},
        "safety_identifier": read.safety_identifier,
        "store": read.store is not False,
        "temperature": 1.0 if read.temperature is None else read.temperature,
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": read.tool_choice or "auto",
        "tools": [_echoed(tool) for tool in tools],
        "top_p": 1.0 if read.top_p is None else read.top_p,
        "user": read.user,
    }


def _echoed(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if tool["type"] != "function":
        return tool
    return {**dict.fromkeys(("strict", "description", "parameters")), **tool}
