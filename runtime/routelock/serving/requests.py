"""The bodies of requests, parsed by pydantic: the shared parts of all protocols, and chat completions."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, cast

import pydantic
from pydantic_core import from_json

from routelock._sendable import finite
from routelock.errors import ConfigError
from routelock.handlers.port import ToolSpec
from routelock.history.input import to_messages
from routelock.history.messages import Message
from routelock.serving.config import ClientSettings
from routelock.serving.errors import Refusal

__all__ = [
    "MOST_CALLS",
    "MOST_MESSAGES",
    "MOST_TOOLS",
    "ChatRequest",
    "ClientContext",
    "ClientRequest",
    "ToolFunction",
    "ToolName",
    "bad_request",
    "check_known",
    "check_size",
    "checked_context",
    "checked_messages",
    "content_of",
    "file_part",
    "parse",
    "read_json",
    "refuse_settings",
    "tool_choice",
    "tool_specs",
    "validated",
]


T = TypeVar("T", bound=pydantic.BaseModel)

_LONGEST_CONTEXT = 64 * 2**10
"""Characters of a handoff context as JSON."""

MOST_MESSAGES = 20_000
"""Ten megabytes can be 300,000 messages, over which all other requests would wait for seconds."""

MOST_TOOLS = 1024

MOST_CALLS = 1024
"""In one message."""

_MOST_STOPS = 16

_MOST_VALUES = 100_000
"""In one A2A request: each value costs the protocol's SDK some ten microseconds."""

_MOST_HOPS = 10**6

_IN_JSON = {
    "dict_type": "Input should be an object",
    "list_type": "Input should be a valid array",
    "model_type": "Input should be an object",
}
"""Texts in terms of JSON for errors that pydantic words in terms of Python."""


class _StreamOptions(pydantic.BaseModel):
    include_usage: bool | None = None


ToolName = Annotated[str, pydantic.Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]
"""A name that all vendors accept."""


class ToolFunction(pydantic.BaseModel):
    """A tool of a client."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Function(ToolFunction):
    # other keys of a function, such as `strict`, are sent to the model
    model_config = pydantic.ConfigDict(extra="allow")


class _Tool(pydantic.BaseModel):
    type: Literal["function"]
    function: _Function


class _NamedFunction(pydantic.BaseModel):
    name: str


class _NamedTool(pydantic.BaseModel):
    type: Literal["function"] = "function"
    function: _NamedFunction


class ClientContext(pydantic.BaseModel, extra="allow"):
    """The ``handoff_context`` of a request."""

    hops: Annotated[int, pydantic.Field(ge=0, le=_MOST_HOPS)] = 0


class _Settings(pydantic.BaseModel):
    """The settings that a chat-completions request may have, see `ServeConfig.client_settings`."""

    temperature: Annotated[float, pydantic.Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, pydantic.Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, pydantic.Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, pydantic.Field(ge=1)] | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], pydantic.Field(max_length=_MOST_STOPS)] | None = None
    frequency_penalty: Annotated[float, pydantic.Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, pydantic.Field(ge=-2, le=2)] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    response_format: _Format | None = None


class _Schema(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: ToolName
    schema_: Annotated[dict[str, Any], pydantic.Field(alias="schema")]


class _Format(pydantic.BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


class _Body(pydantic.BaseModel):
    """The keys of a chat-completions request that are used; all others are ignored."""

    # stop at the first error: a list of all errors could be longer than the body
    messages: Annotated[
        list[dict[str, Any]],
        pydantic.Field(min_length=1, max_length=MOST_MESSAGES),
        pydantic.FailFast(),
    ]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    tools: Annotated[list[_Tool], pydantic.Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | _NamedTool | None = None
    user: str | None = None
    handoff_context: ClientContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A parsed request for a run, of any protocol."""

    messages: list[Message]
    model: str
    """Empty if the client did not name one."""
    stream: bool
    tools: Sequence[ToolSpec]
    """The tools that the client runs; none if its ``tool_choice`` is ``"none"``."""
    tool_choice: str | None
    """``"required"``, or the name of one of ``tools``."""
    user: str | None
    handoff_context: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=lambda: {})
    """The client's settings for all model calls of the run, by the names of `ModelSettings`."""
    setting_names: Mapping[str, str] = field(default_factory=lambda: {})
    """The parameters of the client by those names, where they differ."""

    @property
    def hops(self) -> int:
        """How many servers the request has passed."""
        hops: int = self.handoff_context.get("hops", 0)
        return hops


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(ClientRequest):
    """A parsed chat request."""

    include_usage: bool


def parse(body: bytes, client_settings: ClientSettings | None = None) -> ChatRequest:
    """Parse the body of a chat request.

    Args:
        body: the body.
        client_settings: the treatment of the client's settings, see `ServeConfig`.

    Raises:
        Refusal: 400. The message names the problem and its place.
    """
    said = read_json(body)
    read = validated(_Body, said)
    if read.n is not None and read.n != 1:
        raise bad_request("n must be 1: an agent gives one answer.", "n")
    tools = () if read.tool_choice == "none" else tool_specs([each.function for each in read.tools or ()])
    chosen = read.tool_choice.function.name if isinstance(read.tool_choice, _NamedTool) else None
    return ChatRequest(
        messages=_messages(read.messages),
        model=read.model or "",
        stream=bool(read.stream),
        include_usage=bool(read.stream_options and read.stream_options.include_usage),
        tools=tools,
        tool_choice=tool_choice(read.tool_choice, chosen, tools),
        user=read.user,
        handoff_context=checked_context(read.handoff_context),
        settings=_settings(cast("Mapping[str, Any]", said), client_settings),
    )


def validated(model: type[T], said: object, where: str = "") -> T:
    """Return a body, or a part of it, as the model of its protocol.

    Args:
        model: the model.
        said: the JSON value.
        where: the path of the value in the body.

    Raises:
        Refusal: 400. The message names the problem and its place.
    """
    try:
        return model.model_validate(said)
    except pydantic.ValidationError as error:
        raise _invalid(error, where) from error


def checked_context(given: ClientContext | None) -> Mapping[str, Any]:
    """Return the handoff context of a request; empty if there is none.

    Raises:
        Refusal: 400, it is too long.
    """
    if given is None:
        return {}
    context = given.model_dump(exclude_unset=True)
    if len(json.dumps(context)) > _LONGEST_CONTEXT:
        raise bad_request(f"handoff_context is longer than {_LONGEST_CONTEXT} characters.", "handoff_context")
    return context


_HINTS = ("client_metadata", "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier")
"""Parameters that change no answer, so that a strict server accepts them."""

_USUAL: Mapping[str, Collection[Any]] = {
    "include": (["reasoning.encrypted_content"],),
    "service_tier": ("auto", "default"),
    "summary": ("auto",),
    "truncation": ("disabled",),
}
"""Values that ask for the usual behaviour of the server. Encrypted reasoning and summaries are shown if there
are any, and there are none."""


def check_known(said: Mapping[str, Any], known: Collection[str], where: str = "") -> None:
    """Refuse a parameter that the server does not support, unless its value is empty or the usual one.

    Args:
        said: the parameters.
        known: the names of the supported parameters.
        where: the path of the object that has the parameters, with a dot at its end; empty for the body.

    Raises:
        Refusal: 400.
    """
    for name, value in said.items():
        if name not in known and name not in _HINTS and value and value not in _USUAL.get(name, ()):
            path = f"{where}{name:.100}"
            raise bad_request(f"{path}: this server does not support it. Leave it out.", path)


def refuse_settings(names: Collection[str]) -> None:
    """Refuse settings of a client, if there are any.

    Raises:
        Refusal: 400.
    """
    for name in names:
        why = f"{name}: the agents of this server have their own settings. Leave it out."
        raise bad_request(why, name)


def _settings(said: Mapping[str, Any], policy: ClientSettings | None) -> Mapping[str, Any]:
    if policy is None:
        return {}
    check_known(said, {**_Body.model_fields, **_Settings.model_fields})
    read = validated(_Settings, said).model_dump(exclude_none=True, by_alias=True)
    if (form := read.get("response_format")) is not None and "json_schema" not in form:
        if form["type"] == "json_schema":
            raise bad_request("response_format.json_schema: Field required.", "response_format.json_schema")
        if form["type"] == "text":
            del read["response_format"]
    if policy == "refuse":
        refuse_settings(read)
    return read


def read_json(body: bytes) -> object:
    """Return the JSON value of a body.

    Raises:
        Refusal: 400. The body is not JSON, or the value could not be written as JSON again: it has half of a
            character, a number that is too large, or is nested too deeply.
    """
    try:
        # NaN and Infinity are not JSON; `model_validate_json` accepts them, and no provider does
        said: object = from_json(body, allow_inf_nan=False)
        if finite(said) is not said:
            raise ValueError("a number in it is larger than any that can be read")
    except ValueError as error:
        raise Refusal(400, f"The body is not JSON: {error}.", "invalid_json") from error
    return said


def check_size(said: object) -> None:
    """Refuse a request with so many values that all other requests would wait while it is parsed.

    Raises:
        Refusal: 413.
    """
    left, count = [said], 0
    while left:
        value = left.pop()
        inside: Sequence[object] = ()
        if isinstance(value, dict):
            inside = list(cast("dict[str, object]", value).values())
        elif isinstance(value, list):
            inside = cast("list[object]", value)
        left += inside
        count += len(inside)
        if count > _MOST_VALUES:
            raise Refusal(413, f"The request has more than {_MOST_VALUES} values.", "body_too_large")


def bad_request(message: str, param: str | None) -> Refusal:
    """Return the refusal of a request that is wrong at a parameter."""
    return Refusal(400, message, "invalid_request", param)


def _invalid(error: pydantic.ValidationError, where: str) -> Refusal:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    steps = [step for step in first["loc"] if not str(step).startswith(("_", "literal["))]
    inner = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    path = f"{where}{inner}".lstrip(".")
    if not path:
        return Refusal(400, "The body must be a JSON object with messages or input.", "invalid_json")
    return bad_request(f"{path}: {_IN_JSON.get(first['type'], first['msg'])}.", path)


def _messages(given: list[dict[str, Any]]) -> list[Message]:
    for place, each in enumerate(given):
        calls: object = each.get("tool_calls")
        if isinstance(calls, list) and len(cast("list[object]", calls)) > MOST_CALLS:
            where = f"messages[{place}].tool_calls"
            raise bad_request(f"{where} has more than {MOST_CALLS} calls.", where)
    return checked_messages([_cleaned(each) for each in given], "messages")


def checked_messages(given: Sequence[Any], param: str) -> list[Message]:
    """Return chat messages of a client as the input of a run.

    Raises:
        Refusal: 400, one of them is wrong.
    """
    try:
        return to_messages(given)
    except ConfigError as error:
        message = re.sub(r"^Input message (\d+)", rf"{param}[\1]", str(error))
        raise bad_request(message, param) from error


def _cleaned(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the keys that a client must not set or that vendors refuse.

    Keys with an underscore are internal: a client must not claim that a vendor wrote a message. Clients send
    back the messages that they were given, with the keys that serving added, and with null for every key that
    they know. Some vendors refuse both.
    """
    kept = {
        key: value
        for key, value in message.items()
        if (value is not None or key == "content") and not key.startswith(("_", "x_"))
    }
    if kept.get("role") == "assistant":
        kept.pop("reasoning_content", None)
    return kept


def file_part(media_type: str, data: str, name: str = "file") -> dict[str, Any]:
    """Return the part of a chat message for a file in Base64: an image, or a file of any other type."""
    url = f"data:{media_type or 'application/octet-stream'};base64,{data}"
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": name, "file_data": url}}


def content_of(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the content of a chat message; as text if it has no other parts."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def tool_specs(given: Sequence[ToolFunction]) -> Sequence[ToolSpec]:
    """Return the tools of a client as a model is sent them.

    Raises:
        Refusal: 400, two have the same name.
    """
    known: set[str] = set()
    for place, tool in enumerate(given):
        if tool.name in known:
            raise bad_request(
                f"Two tools are named {tool.name!r}; give each its own name.", f"tools[{place}]"
            )
        known.add(tool.name)
    return tuple(
        {"type": "function", "function": tool.model_dump(exclude_none=True, exclude={"type"})}
        for tool in given
    )


def tool_choice(choice: object, name: str | None, tools: Sequence[ToolSpec]) -> str | None:
    """Return the tool choice of a client for the model: ``"required"``, a name, or None.

    Args:
        choice: the choice that the client sent.
        name: the name of the tool in it, if it has one.
        tools: the tools of the client.

    Raises:
        Refusal: 400, the tool is not one of them.
    """
    if name is not None and name not in [tool["function"]["name"] for tool in tools]:
        raise bad_request(f"tool_choice names {name!r:.80}, which is not among tools.", "tool_choice")
    return name or ("required" if choice == "required" and tools else None)
