"""The one port between the loop and whatever answers: a `Request` goes in, events come out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Any, Literal, Protocol, TypedDict, TypeGuard, cast

from routelock._json import detached, sendable, unshared
from routelock._records import NEW_DICT, dataclass, maker, record
from routelock.context import RunContext
from routelock.events import HandlerEvent
from routelock.history.messages import Message
from routelock.output_modes import OutputMode

__all__ = [
    "MODEL_REQUEST",
    "Handler",
    "ModelSettings",
    "OutputSchema",
    "Priority",
    "Request",
    "ToolChoice",
    "ToolSpec",
    "copy_of",
    "family_of",
    "is_handler",
    "model_of",
    "tool_name",
]


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


@record(frozen=True, slots=True, kw_only=True)
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
    settings: Mapping[str, Any] = field(default_factory=NEW_DICT)
    output_schema: OutputSchema | None = None
    stream: bool = False
    """A hint: whether someone is watching. If not, one complete reply is enough."""
    agent: str = ""
    turn: int = 1
    context: RunContext[Any] | None = None
    handoff_input: Any = None
    """What the transfer to this handler passed along, as long as the handler is in charge."""


MODEL_REQUEST = maker(Request)
"""Makes those of a run."""


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
