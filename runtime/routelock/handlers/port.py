"""The one port between the loop and whatever answers: a `Request` goes in, events come out."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, Literal, Protocol, TypedDict, TypeGuard, cast

from routelock._json import detached, sendable, unshared
from routelock.context import RunContext
from routelock.handlers.events import HandlerEvent
from routelock.history.messages import Message

__all__ = [
    "FENCE",
    "Handler",
    "ModelSettings",
    "OutputMode",
    "OutputSchema",
    "Priority",
    "Request",
    "ToolChoice",
    "ToolSpec",
    "about_to_ask",
    "copy_of",
    "family_of",
    "is_handler",
    "json_in",
    "model_of",
    "schema_prompt",
    "tool_name",
]


OutputMode = Literal["auto", "native", "tool", "prompted"]
"""``"native"``: the vendor takes the schema for the reply's text. ``"tool"``: the model is offered one more
tool, whose arguments are the answer. ``"prompted"``: the schema is part of the instructions. ``"auto"``: the
first of these that the model can do in the request at hand; the provider knows."""

_PROMPT = (
    "Your final answer must be one JSON object that fits the JSON schema below, and nothing else: no words "
    "around it and no code fence.\n{schema}"
)

_FENCED = re.compile(r"^```[ \t]*\w*[ \t]*\n(.*?)\n?^```[ \t]*$", re.MULTILINE | re.DOTALL)


def schema_prompt(schema: Mapping[str, Any]) -> str:
    """Return what a model is told that has to be asked for JSON in words."""
    return _PROMPT.format(schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")))


def json_in(text: str) -> str:
    """Return the JSON object that a final answer consists of, without what a model puts around it.

    That is the whole text, or else its only code fence, or else all from the first brace to the last. It
    is never looked for inside a broken object, and of two objects none is chosen: that is no JSON, and the
    model is asked again.
    """
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        return whole
    fenced: list[str] = _FENCED.findall(text)
    if len(fenced) == 1:
        return fenced[0]
    return text[text.find("{") : text.rfind("}") + 1] or text


class Priority(IntEnum):
    """Where handlers stand by custom: the lowest number answers."""

    CRITICAL = 1
    LOCAL = 10
    """Models; also what an agent's ``model`` has when it does not say."""
    REMOTE = 20
    CUSTOM = 50
    """Functions, and every handler that does not say."""


ToolSpec = Mapping[str, Any]
"""A tool as chat completions spells it: ``{"type": "function", "function": {...}}``."""

ToolChoice = Literal["auto", "required", "none"] | str
"""How free the model is to call tools; any other text is the name of the tool it must call."""


class ModelSettings(TypedDict, total=False):
    """Settings that pass through to the vendor. Any other key passes too; None leaves a key out."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    seed: int | None
    stop: str | list[str] | None
    parallel_tool_calls: bool | None
    tool_choice: ToolChoice | None
    """Holds for the first model call of an agent only, so that a forced tool cannot loop."""
    reasoning_effort: str | None
    extra_headers: dict[str, str] | None
    extra_body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON schema that the final text must satisfy."""

    name: str
    schema: Mapping[str, Any]
    strict: bool = True
    mode: OutputMode = "auto"
    """How the model is to be asked. With ``"prompted"`` the schema stands in the instructions already."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", sendable(self.schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One model call as the loop asks for it.

    ``messages`` are valid for any chat-completions provider: the system prompt first, every tool
    call answered once and right after it, nothing in them that another vendor wrote for itself. A
    handler must not change what it is given: a class of yours is given the run's own messages. Functions
    and hooks are given copies.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output_schema: OutputSchema | None = None
    stream: bool = False
    """A hint: whether someone is watching. If not, one complete reply is enough."""
    agent: str = ""
    turn: int = 1
    context: RunContext[Any] | None = None
    handoff_input: Any = None
    """What the transfer to this handler passed along, as long as the handler is in charge."""


def copy_of(request: Request) -> Request:
    """Return a copy that shares no dict and no list with the request, for code that may edit it."""
    output = request.output_schema
    return replace(
        request,
        messages=[detached(message) for message in request.messages],
        tools=tuple([detached(spec) for spec in request.tools]),
        settings=detached(request.settings),
        output_schema=None if output is None else replace(output, schema=detached(output.schema)),
        handoff_input=unshared(request.handoff_input),
    )


class Handler(Protocol):
    """Whatever produces the reply to a `Request`: a model, a remote agent, a function.

    ``stream`` yields deltas if it has any, then exactly one `MessageDone`. It raises a
    `HandlerError` (best a `ProviderError`) when it cannot. A handler holds nothing of a run: two
    runs may use it at the same time. It may also carry ``family: str``, see `family_of`, and:

    * ``priority: int``: among the handlers of one agent the lowest number answers; default 50.
    * ``scope``: who may reach it, see `routelock.scopes`; default ``"all"``.
    * ``prompt: str``: when to use it. Describes it to the model wherever it can be switched to.
    * ``expose: bool``: whether the model is offered ``transfer_to_<name>`` without further ado.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]: ...


def family_of(handler: Handler) -> str:
    """Return the family a handler belongs to: those that can read one another's private fields.

    A handler says so with a ``family`` attribute, such as ``"anthropic"``; without one it is a
    family of its own.
    """
    family: object = getattr(handler, "family", None)
    return family if isinstance(family, str) else handler.name


def is_handler(candidate: object) -> TypeGuard[Handler]:
    """Whether something has what makes a handler. A Protocol is not checked at run time."""
    named = isinstance(getattr(candidate, "name", None), str)
    return named and callable(getattr(candidate, "stream", None)) and not isinstance(candidate, type)


def tool_name(tool: object) -> str:
    """Return the name of a tool, or of a tool's spec; empty when it has none."""
    if isinstance(tool, Mapping):
        function: Any = cast("Mapping[str, Any]", tool).get("function") or {}
        return str(cast("Mapping[str, Any]", function).get("name") or "")
    return str(getattr(tool, "name", ""))


class _Model(TypedDict):
    model: str | None
    provider: str | None


def model_of(handler: Handler) -> _Model:
    """Return which model a handler asks, and whose, if it says so; LiteLLM has both in one text."""
    model, provider = getattr(handler, "model", None), getattr(handler, "provider", None)
    if not isinstance(model, str):
        return {"model": None, "provider": None}
    if not isinstance(provider, str):
        provider = model.partition("/")[0] if "/" in model else None
    return {"model": model, "provider": provider}


FENCE: Final[ContextVar[Callable[[str, Request], None] | None]] = ContextVar("routelock_fence", default=None)
"""Is told of each model that is about to be asked, and may raise; `routelock.testing.no_models` sets it."""


def about_to_ask(model: str, request: Request) -> None:
    """Say that a model is about to be asked. Handlers that talk to a vendor call it before anything else.

    Args:
        model: its name, as people know it.
        request: what it is asked.

    Raises:
        ModelCallBlocked: a test does not want any model to be asked.
    """
    if (check := FENCE.get()) is not None:
        check(model, request)
