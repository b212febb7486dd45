"""The body of a chat request, parsed by pydantic, and the run that answers it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import pydantic
from pydantic_core import from_json

from routelock._callables import call_user_code
from routelock._json import finite
from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handlers.port import ModelSettings, ToolSpec
from routelock.history.input import to_messages
from routelock.history.messages import Message, ToolCall
from routelock.run.config import RunConfig
from routelock.run.handler_selection import named
from routelock.run.result import RunResult
from routelock.runner import Runner
from routelock.serving.catalog import ServedAgent
from routelock.serving.completions import Completion, DeltaWriter
from routelock.serving.config import ServeConfig, ServedRequest
from routelock.serving.errors import Refusal
from routelock.serving.pending_runs import PendingRuns

if TYPE_CHECKING:
    from routelock.serving.http import EventStream

__all__ = [
    "ChatRequest",
    "ChatRun",
    "chat_run",
    "check_size",
    "context_for",
    "needs_approval",
    "parse",
    "read_json",
]


_LONGEST_CONTEXT = 64 * 2**10
"""Characters of a handoff context as JSON."""

_MOST_MESSAGES = 20_000
"""Ten megabytes can be 300,000 messages, over which all other requests would wait for seconds."""

_MOST_TOOLS = 1024

_MOST_CALLS = 1024
"""In one message."""

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


class _Function(pydantic.BaseModel):
    # other keys of a function, such as `strict`, are sent to the model
    model_config = pydantic.ConfigDict(extra="allow")
    name: Annotated[str, pydantic.Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(pydantic.BaseModel):
    type: Literal["function"]
    function: _Function


class _NamedFunction(pydantic.BaseModel):
    name: str


class _NamedTool(pydantic.BaseModel):
    type: Literal["function"] = "function"
    function: _NamedFunction


class _HandoffContext(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    hops: Annotated[int, pydantic.Field(ge=0, le=_MOST_HOPS)] = 0


class _Body(pydantic.BaseModel):
    """The keys of a chat-completions request that are used; all others are ignored."""

    # stop at the first error: a list of all errors could be longer than the body
    messages: Annotated[
        list[dict[str, Any]],
        pydantic.Field(min_length=1, max_length=_MOST_MESSAGES),
        pydantic.FailFast(),
    ]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    tools: Annotated[list[_Tool], pydantic.Field(max_length=_MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | _NamedTool | None = None
    user: str | None = None
    handoff_context: _HandoffContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A parsed chat request."""

    messages: list[Message]
    model: str
    """Empty if the client did not name one."""
    stream: bool
    include_usage: bool
    tools: Sequence[ToolSpec]
    """The tools that the client runs; none if its ``tool_choice`` is ``"none"``."""
    tool_choice: str | None
    """``"required"``, or the name of one of ``tools``."""
    user: str | None
    handoff_context: Mapping[str, Any]
    hops: int


def parse(body: bytes) -> ChatRequest:
    """Parse the body of a request.

    Raises:
        Refusal: 400. The message says what is wrong and where.
    """
    said = read_json(body)
    try:
        read = _Body.model_validate(said)
    except pydantic.ValidationError as error:
        raise _invalid(error) from error
    if read.n is not None and read.n != 1:
        raise _refused("n must be 1: an agent gives one answer.", "n")
    context = read.handoff_context.model_dump(exclude_unset=True) if read.handoff_context else {}
    if len(json.dumps(context)) > _LONGEST_CONTEXT:
        raise _refused(f"handoff_context is longer than {_LONGEST_CONTEXT} characters.", "handoff_context")
    tools = _tools(read)
    return ChatRequest(
        messages=_messages(read.messages),
        model=read.model or "",
        stream=bool(read.stream),
        include_usage=bool(read.stream_options and read.stream_options.include_usage),
        tools=tools,
        tool_choice=_choice(read, tools),
        user=read.user,
        handoff_context=context,
        hops=context.get("hops", 0),
    )


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


def _refused(message: str, param: str | None) -> Refusal:
    return Refusal(400, message, "invalid_request", param)


def _invalid(error: pydantic.ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    steps = [step for step in first["loc"] if not str(step).startswith(("_", "literal["))]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    if not path:
        return Refusal(400, "The body must be a JSON object with messages.", "invalid_json")
    return _refused(f"{path}: {_IN_JSON.get(first['type'], first['msg'])}.", path)


def _messages(given: list[dict[str, Any]]) -> list[Message]:
    for place, each in enumerate(given):
        calls: object = each.get("tool_calls")
        if isinstance(calls, list) and len(cast("list[object]", calls)) > _MOST_CALLS:
            where = f"messages[{place}].tool_calls"
            raise _refused(f"{where} has more than {_MOST_CALLS} calls.", where)
    try:
        return to_messages([_cleaned(each) for each in given])
    except ConfigError as error:
        message = re.sub(r"^Input message (\d+)", r"messages[\1]", str(error))
        raise _refused(message, "messages") from error


def _cleaned(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the keys that a client must not set or that vendors refuse.

    Keys with an underscore are internal: a client must not claim that a vendor wrote a message. Clients send
    back the messages that they were given, with the keys that serving added, and with null for every key that
    they know. Some vendors refuse both.
    """
    kept = {key: value for key, value in message.items() if value is not None or key == "content"}
    if kept.get("role") == "assistant":
        kept.pop("reasoning_content", None)
    return {key: value for key, value in kept.items() if not key.startswith(("_", "x_"))}


def _tools(read: _Body) -> Sequence[ToolSpec]:
    if read.tool_choice == "none" or not read.tools:
        return ()
    names: set[str] = set()
    for place, name in enumerate(tool.function.name for tool in read.tools):
        if name in names:
            raise _refused(f"Two tools are named {name!r}; give each its own name.", f"tools[{place}]")
        names.add(name)
    return tuple(tool.model_dump(exclude_none=True) for tool in read.tools)


def _choice(read: _Body, tools: Sequence[ToolSpec]) -> str | None:
    if isinstance(read.tool_choice, _NamedTool):
        name = read.tool_choice.function.name
        if name not in [tool["function"]["name"] for tool in tools]:
            raise _refused(f"tool_choice names {name!r}, which is not among tools.", "tool_choice")
        return name
    return "required" if read.tool_choice == "required" and tools else None


_OPENING: dict[str, Any] = {"role": "assistant", "content": ""}

_NEEDS_APPROVAL = (
    "The agent made a call that a person has to approve, and this endpoint has no way to ask for approval. "
    "The call was not made."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRun:
    """The run that answers a chat request."""

    served: ServedAgent
    asked: ChatRequest
    about: ServedRequest
    completion: Completion
    config: ServeConfig
    pending: PendingRuns
    agent: Agent[Any]
    messages: list[Message]
    run_config: RunConfig

    async def whole(self) -> dict[str, Any]:
        """Run, and return the body of the response."""
        result = await Runner.run(
            self.agent,
            self.messages,
            context=await context_for(self.config, self.about),
            max_turns=self.config.max_turns,
            hooks=self.config.hooks,
            run_config=self.run_config,
        )
        writer = self._writer()
        deltas = writer.replay(result)
        last, finish = writer.finish(result, self._calls(result))
        return self.completion.whole([*deltas, *last], finish, result.usage)

    async def stream(self, to: EventStream) -> None:
        """Run, and send the chunks of the reply as they come, and ``[DONE]`` at the end.

        Nothing is sent before there is content, so an error before that has a status.
        """
        writer, early = self._writer(), [_OPENING]
        stream = Runner.run_streamed(
            self.agent,
            self.messages,
            context=await context_for(self.config, self.about),
            max_turns=self.config.max_turns,
            hooks=self.config.hooks,
            run_config=self.run_config,
        )
        async with stream:
            async for event in stream:
                early += writer.take(event, lambda: stream.result)
                if early and (to.has_begun or any(_has_content(delta) for delta in early)):
                    await to.send(*map(self.completion.chunk, early))
                    early.clear()
        result = stream.result
        last, finish = writer.finish(result, self._calls(result))
        chunks = [self.completion.chunk(delta) for delta in (*early, *last)]
        chunks.append(self.completion.chunk({}, finish))
        if self.asked.include_usage:
            chunks.append(self.completion.usage_chunk(result.usage))
        await to.send(*chunks, "[DONE]")

    def _writer(self) -> DeltaWriter:
        return DeltaWriter(agents=self.served.graph.keys(), hold=self.served.has_output_type)

    def _calls(self, result: RunResult[Any]) -> Sequence[ToolCall]:
        if result.interruptions:
            raise needs_approval(result)
        if not result.pending:
            return ()
        return self.pending.keep(self.about.principal, self.about.model, result)


def needs_approval(result: RunResult[Any]) -> Refusal:
    """Return the refusal for a run that waits for approval. The log has the calls that wait."""
    calls = [f"{each.name!r} of agent {each.agent!r}" for each in result.interruptions]
    calls += [f"{call['function']['name']!r}, an external tool" for call in result.pending]
    return Refusal(403, _NEEDS_APPROVAL, "approval_required", for_log=f"calls that wait: {', '.join(calls)}")


async def context_for(config: ServeConfig, about: ServedRequest) -> Any:
    """Return the object that is passed as ``context=`` to the run of a request."""
    if config.context is None:
        return None
    return await call_user_code("ServeConfig.context", config.context, about)


def _has_content(delta: Mapping[str, Any]) -> bool:
    return delta is not _OPENING and "x_agent" not in delta


def chat_run(
    served: ServedAgent,
    asked: ChatRequest,
    about: ServedRequest,
    completion: Completion,
    config: ServeConfig,
    pending: PendingRuns,
) -> ChatRun:
    """Return the run that answers a request: a new one, or one that waited for these tool results."""
    settings = _settings(asked, about, config.run_config)
    agent, messages = served.agent, asked.messages
    found = pending.find(about.principal, about.model, messages)
    if found is not None:
        agent, messages = found.agent, found.messages
        settings = replace(
            settings,
            agents=(*settings.agents, served.agent),
            handler=found.handler if _can_start_at(found.handler, agent, settings) else None,
        )
    return ChatRun(
        served=served,
        asked=asked,
        about=about,
        completion=completion,
        config=config,
        pending=pending,
        agent=agent,
        messages=messages,
        run_config=settings,
    )


def _can_start_at(handler: str, agent: Agent[Any], settings: RunConfig) -> bool:
    try:
        named(agent, handler, settings)
    except ConfigError:  # the target of a handoff; the agent's default continues
        return False
    return True


def _settings(asked: ChatRequest, about: ServedRequest, base: RunConfig) -> RunConfig:
    """Return the settings of the app with those of this request."""
    choice: ModelSettings = {"tool_choice": asked.tool_choice} if asked.tool_choice else {}
    memory = {"handoff_origin": dict(about.handoff_context)} if about.handoff_context else {}
    return replace(
        base,
        run_id=None,
        scopes=about.scopes,
        external_tools=(*asked.tools, *base.external_tools),
        model_settings={**base.model_settings, **choice},
        shared_memory={**base.shared_memory, **memory},
        retry=replace(base.retry, mid_stream=False),  # chunks that were sent cannot be taken back
    )
