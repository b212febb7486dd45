"""The interface between a run and its models: a handler gets a `Request` and yields events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, Literal, Protocol, TypedDict, TypeGuard, cast

from routelock._copies import detached, unshared
from routelock._sendable import sendable
from routelock.context import RunContext
from routelock.handlers.events import HandlerEvent
from routelock.history.messages import Message

__all__ = [
    "MODEL_CALL_CHECK",
    "REQUEST_OBSERVER",
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
    "model_of",
    "tool_name",
    "vendor_specs",
    "written_name",
]


OutputMode = Literal["auto", "native", "tool", "prompted"]
"""How a model is asked for structured output. ``"native"``: the vendor accepts the schema of the reply.
``"tool"``: the model is offered one more tool, whose arguments are the output. ``"prompted"``: the schema is
part of the instructions. ``"auto"``: the provider chooses the first of these that the model supports."""


class Priority(IntEnum):
    """Usual priorities of handlers; the handler with the lowest number is the default."""

    CRITICAL = 1
    LOCAL = 10
    """The priority of models; ``Agent.model`` has it too, unless it has a priority of its own."""
    REMOTE = 20
    CUSTOM = 50
    """The priority of functions, and of all handlers without a priority of their own."""


ToolSpec = Mapping[str, Any]
"""A tool in chat-completions form: ``{"type": "function", "function": {...}}``; any other type is a tool that
the vendor runs, see `routelock.tools.VendorTool`."""

ToolChoice = Literal["auto", "required", "none"] | str
"""Whether the model may, must or must not call a tool; any other text is the tool that it must call."""


class ModelSettings(TypedDict, total=False):
    """Settings that are sent to the vendor. A key whose value is None is not sent.

    A vendor's other settings are sent too. Type checkers do not know them: write them in ``extra_body``, or
    cast the dict.
    """

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    max_tokens: int | None
    max_completion_tokens: int | None
    seed: int | None
    stop: str | Sequence[str] | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[str, float] | None
    logprobs: bool | None
    top_logprobs: int | None
    parallel_tool_calls: bool | None
    tool_choice: ToolChoice | None
    """The tool choice for the first model call of an agent only, so that a forced tool cannot repeat
    forever."""
    reasoning_effort: str | None
    thinking: Mapping[str, Any] | None
    verbosity: str | None
    service_tier: str | None
    user: str | None
    metadata: Mapping[str, str] | None
    response_format: Mapping[str, Any] | None
    stream_options: Mapping[str, Any] | None
    extra_headers: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON schema of the final output."""

    name: str
    schema: Mapping[str, Any]
    strict: bool = True
    mode: OutputMode = "auto"
    """How the model is asked. With ``"prompted"`` the instructions contain the schema already."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", sendable(self.schema))


@dataclass(frozen=True, init=False)
class Request:
    """The request for one model call.

    ``messages`` are valid for any chat-completions provider: the system prompt comes first, each tool call
    has one result right after it, and no message has private fields of another vendor. A handler class must
    not change the request, because the messages are the run's own. Handler functions and hooks get copies.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    """The tools that are offered; those that the vendor runs stand last, see `vendor_specs`."""
    tool_choice: ToolChoice | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: {})
    output_schema: OutputSchema | None = None
    stream: bool = False
    """A hint: whether the run is streamed. If not, a complete reply without deltas is enough."""
    agent: str = ""
    turn: int = 1
    context: RunContext[Any] | None = None
    handoff_input: Any = None
    """The input of the handoff to this handler, as long as the handler is active."""

    def __init__(
        self,
        *,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        tool_choice: ToolChoice | None = None,
        settings: Mapping[str, Any] | None = None,
        output_schema: OutputSchema | None = None,
        stream: bool = False,
        agent: str = "",
        turn: int = 1,
        context: RunContext[Any] | None = None,
        handoff_input: Any = None,
    ) -> None:
        fields = self.__dict__  # an __init__ by dataclass takes twice as long for a frozen class
        fields["messages"] = messages
        fields["tools"] = tools
        fields["tool_choice"] = tool_choice
        fields["settings"] = {} if settings is None else settings
        fields["output_schema"] = output_schema
        fields["stream"] = stream
        fields["agent"] = agent
        fields["turn"] = turn
        fields["context"] = context
        fields["handoff_input"] = handoff_input


REQUEST_OBSERVER: Final[ContextVar[Callable[[Request], None] | None]] = ContextVar(
    "routelock_request_observer", default=None
)
"""Called with each request before the handler gets it; `routelock.testing.watch_requests` sets it."""


def vendor_specs(tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    """Return the specs of the vendor's own tools, which stand at the end of a request's tools."""
    if not tools or tools[-1].get("type") == "function":
        return ()
    first = next(
        (place for place in reversed(range(len(tools))) if tools[place].get("type") == "function"), -1
    )
    return tools[first + 1 :]


def copy_of(request: Request) -> Request:
    """Return a copy that shares no dict or list with the request, for code that may edit it."""
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
    """A model, a remote agent or a function that replies to a `Request`.

    ``stream`` yields deltas, if there are any, and then exactly one `MessageDone`. If it fails it raises a
    `HandlerError`, or better a `ProviderError`. A handler has no state of a run, because several runs may use
    it at the same time. It may also have the attribute ``family: str``, see `family_of`, and:

    * ``priority: int``: the handler of an agent with the lowest number is its default; 50 if absent.
    * ``scope``: which runs may use it, see `routelock.scopes`; ``"all"`` if absent.
    * ``prompt: str``: when to use it; described to each model that may switch to it.
    * ``expose: bool``: whether the model is offered ``transfer_to_<name>`` without a handoff.
    * ``check_vendor_tools(specs, settings, *, functions)``: raises a `ConfigError` if the handler cannot
      offer these tools of a vendor with these settings; ``functions`` says whether the model is offered
      functions too. A run calls it at its start.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]: ...


def family_of(handler: Handler) -> str:
    """Return the provider family of a handler; handlers of one family can read each other's private fields.

    It is the ``family`` attribute, such as ``"anthropic"``; without one the handler is a family of its own.
    """
    family: object = getattr(handler, "family", None)
    return family if isinstance(family, str) else handler.name


def is_handler(candidate: object) -> TypeGuard[Handler]:
    """Whether an object has a name and a ``stream`` method; a Protocol cannot be checked at run time."""
    named = isinstance(getattr(candidate, "name", None), str)
    return named and callable(getattr(candidate, "stream", None)) and not isinstance(candidate, type)


def tool_name(tool: object) -> str:
    """Return the name of a tool or of a tool's spec; empty if it has none."""
    if isinstance(tool, Mapping):
        function: Any = cast("Mapping[str, Any]", tool).get("function") or {}
        return str(cast("Mapping[str, Any]", function).get("name") or "")
    return str(getattr(tool, "name", ""))


class _Model(TypedDict):
    model: str | None
    provider: str | None


def model_of(handler: Handler) -> _Model:
    """Return the model and the provider of a handler, if it has them; LiteLLM has both in one text."""
    model, provider = getattr(handler, "model", None), getattr(handler, "provider", None)
    if not isinstance(model, str):
        return {"model": None, "provider": None}
    if not isinstance(provider, str):
        provider = model.partition("/")[0] if "/" in model else None
    return {"model": model, "provider": provider}


def written_name(handler: Handler) -> str:
    """Return the name to show for a handler.

    It is the model as the user wrote it, or the user's name for the handler.

    A handler of a provider without a name of its own is named after its model, such as
    ``litellm_openai_gpt-4o-mini``; the user did not write that.
    """
    found = model_of(handler)
    model, made = found["model"], ("litellm", found["provider"])
    if model and handler.name in (f"{each}_{model.replace('/', '_')}" for each in made):
        return model
    return handler.name


MODEL_CALL_CHECK: Final[ContextVar[Callable[[str, Request], None] | None]] = ContextVar(
    "routelock_model_call_check", default=None
)
"""Called before each model call; it may raise. `routelock.testing.no_models` sets it."""


def about_to_ask(model: str, request: Request) -> None:
    """Run the check of tests before a model call. Handlers that call a vendor begin with it.

    Args:
        model: the name of the model, for the error.
        request: the request of the call.

    Raises:
        ModelCallBlocked: a test forbids model calls.
    """
    if (check := MODEL_CALL_CHECK.get()) is not None:
        check(model, request)
