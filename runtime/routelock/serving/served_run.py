"""The run that answers a request, and its reply in a protocol. This module does no input or output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from routelock._callables import call_user_code
from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handlers.events import MessageDone
from routelock.handlers.port import ModelSettings
from routelock.history.messages import Message, RunInput
from routelock.run.config import RunConfig
from routelock.run.handler_selection import named
from routelock.run.result import RunResult
from routelock.run.stream import RunStream
from routelock.runner import Runner
from routelock.serving.catalog import ServedAgent
from routelock.serving.completions import Delta, DeltaWriter
from routelock.serving.config import ServeConfig, ServedRequest
from routelock.serving.errors import Refusal
from routelock.serving.pending_runs import HeldRun, PendingRuns, Resumed, held
from routelock.serving.requests import ClientRequest, bad_request
from routelock.sessions.session import Session
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from routelock.serving.http import EventStream

__all__ = [
    "ReplyForm",
    "RunEnd",
    "ServedReply",
    "ServedRun",
    "needs_approval",
    "run_result",
    "run_settings",
    "run_stream",
    "served_run",
]


_NEEDS_APPROVAL = (
    "The agent made a call that a person has to approve, and this endpoint has no way to ask for approval. "
    "The call was not made."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run, for the last part of a reply."""

    deltas: Sequence[Delta]
    """The last deltas."""
    finish: str
    """The finish reason."""
    result: RunResult[Any]
    waiting: HeldRun | None
    """The run, if it waits for calls of the client's own tools."""


class ReplyForm(Protocol):
    """Makes the body or the events of one reply, in the form of a protocol."""

    def begin(self) -> Sequence[Mapping[str, Any]]:
        """Return the events before all others."""
        ...

    def take(self, deltas: Sequence[Delta], *, ends: bool) -> Sequence[Mapping[str, Any]]:
        """Return the events of some deltas.

        Args:
            deltas: the text of the agents.
            ends: whether a model's reply ends with them.
        """
        ...

    def finish(self, end: RunEnd) -> Sequence[Mapping[str, Any] | str]:
        """Return the last events of a run, except those of `close`."""
        ...

    def close(self) -> Sequence[Mapping[str, Any] | str]:
        """Return the events that end a finished reply that was kept."""
        ...

    def whole(self, replies: Iterable[Sequence[Delta]], end: RunEnd) -> Mapping[str, Any]:
        """Return the body of a run that was not streamed, from the deltas of each reply and its end."""
        ...

    async def keep(self) -> None:
        """Keep a finished reply for later requests, before the client is sent the end of it."""
        ...

    def fail(self, refusal: Refusal, request_id: str) -> Sequence[Mapping[str, Any] | str]:
        """Return the events that end a stream that failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedReply:
    """The ways to answer a request."""

    stream: Callable[[EventStream], Awaitable[None]]
    """Runs, and sends the events as they come."""
    fail: Callable[[Refusal, str], Sequence[Mapping[str, Any] | str]]
    """Returns the events that end a stream that failed, of the refusal and the request's id."""
    whole: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    """Runs, and returns the body of the response; None in a protocol that always streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """The run that answers a request."""

    served: ServedAgent
    about: ServedRequest
    config: ServeConfig
    pending: PendingRuns
    agent: Agent[Any]
    messages: list[Message]
    run_config: RunConfig
    json_only: bool
    """Whether the client asked for JSON, so that the answer has no text but that of the last reply."""
    own: Sequence[Message] = ()
    """The first messages, if they are for this request alone."""

    def reply(self, form: ReplyForm) -> ServedReply:
        """Return the ways to answer the request in the form of a protocol."""
        return ServedReply(stream=partial(self.stream, form), fail=form.fail, whole=partial(self.whole, form))

    async def whole(self, reply: ReplyForm) -> Mapping[str, Any]:
        """Run, and return the body of the response."""
        result = await run_result(self.config, self.about, self.agent, self.messages, self.run_config)
        writer = self.served.writer(json_only=self.json_only)
        replies = list(writer.replies(result))
        body = reply.whole(replies, self._end(writer, result))
        await reply.keep()
        return body

    async def stream(self, reply: ReplyForm, to: EventStream) -> None:
        """Run, and send the events of the reply as they come.

        Nothing is sent before there is content, so an error before that has a status.
        """
        writer = self.served.writer(json_only=self.json_only)
        early: list[Mapping[str, Any] | str] = [*reply.begin()]
        stream = await run_stream(self.config, self.about, self.agent, self.messages, self.run_config)
        has_content = False

        def now() -> RunResult[Any]:
            return stream.result

        async with stream:
            async for event in stream:
                deltas = writer.take(event, now)
                has_content = has_content or any("x_agent" not in delta for delta in deltas)
                if (ends := isinstance(event, MessageDone)) or deltas:
                    early += reply.take(deltas, ends=ends)
                if early and (has_content or to.has_begun):
                    await to.send(*early)
                    early.clear()
        early += reply.finish(self._end(writer, stream.result))
        if has_content or to.has_begun:  # to keep it may fail, which does not change the text before
            await to.send(*early)
            early.clear()
        await reply.keep()
        await to.send(*early, *reply.close())

    def _end(self, writer: DeltaWriter, result: RunResult[Any]) -> RunEnd:
        if result.interruptions:
            raise needs_approval(result)
        waiting = held(result).without(self.own) if result.pending else None
        if waiting is not None:
            self.pending.keep(self.about.principal, self.about.model, waiting)
        deltas, finish = writer.finish(result, waiting.calls if waiting is not None else ())
        return RunEnd(deltas=deltas, finish=finish, result=result, waiting=waiting)


def needs_approval(result: RunResult[Any], why: str = _NEEDS_APPROVAL) -> Refusal:
    """Return the refusal for a run that waits for approval. The log has the calls that wait."""
    calls = [f"{each.name!r} of agent {each.agent!r}" for each in result.interruptions]
    calls += [f"{call['function']['name']!r}, an external tool" for call in result.pending]
    return Refusal(403, why, "approval_required", for_log=f"calls that wait: {', '.join(calls)}")


async def run_stream(
    config: ServeConfig,
    about: ServedRequest,
    agent: Agent[Any],
    given: RunInput | RunState,
    settings: RunConfig,
    *,
    session: Session | None = None,
) -> RunStream[Any]:
    """Begin the run of a request, with the context and the limits of the app.

    Args:
        config: the settings of the app.
        about: the request.
        agent: the agent.
        given: the input of a new run, or the state of one that goes on. Its model calls before that do not
            count for ``ServeConfig.max_turns``.
        settings: the settings of the run.
        session: the conversation, if it is stored.
    """
    return Runner.run_streamed(
        agent,
        given,
        context=await _context_for(config, about),
        max_turns=_max_turns(config, given),
        hooks=config.hooks,
        run_config=settings,
        session=session,
    )


async def run_result(
    config: ServeConfig,
    about: ServedRequest,
    agent: Agent[Any],
    given: RunInput | RunState,
    settings: RunConfig,
) -> RunResult[Any]:
    """Make the run of a request without its events, and return the result; see `run_stream`."""
    return await Runner.run(
        agent,
        given,
        context=await _context_for(config, about),
        max_turns=_max_turns(config, given),
        hooks=config.hooks,
        run_config=settings,
    )


def _max_turns(config: ServeConfig, given: RunInput | RunState) -> int | None:
    earlier = given.turn if isinstance(given, RunState) else 0
    return None if config.max_turns is None else config.max_turns + earlier


async def _context_for(config: ServeConfig, about: ServedRequest) -> Any:
    """Return the object that is passed as ``context=`` to the run of a request."""
    if config.context is None:
        return None
    return await call_user_code("ServeConfig.context", config.context, about)


def served_run(
    served: ServedAgent,
    asked: ClientRequest,
    about: ServedRequest,
    config: ServeConfig,
    pending: PendingRuns,
    found: Resumed | None = None,
    own: Sequence[Message] = (),
) -> ServedRun:
    """Return the run that answers a request: a new one, or one that goes on.

    Args:
        served: the agent that the client asked for.
        asked: the request.
        about: the request as the app's own code is given it.
        config: keys, limits and settings.
        pending: the runs that wait for their clients.
        found: the run that goes on; None to look in ``pending`` for one that these messages continue.
        own: messages that come before all others, for this request alone.

    Raises:
        Refusal: 400, a setting of the client is one of the agents'.
    """
    settings = run_settings(served, asked, about)
    agent, messages = served.agent, asked.messages
    found = found or pending.find(about.principal, about.model, messages)
    if found is not None:
        agent, messages = found.agent, found.messages
        handler = found.handler or settings.handler
        settings = replace(
            settings,
            agents=(*settings.agents, served.agent),
            handler=handler if handler and _can_start_at(handler, agent, settings) else None,
        )
    return ServedRun(
        served=served,
        about=about,
        config=config,
        pending=pending,
        agent=agent,
        messages=[*own, *messages],
        run_config=settings,
        json_only="response_format" in asked.settings,
        own=own,
    )


def _can_start_at(handler: str, agent: Agent[Any], settings: RunConfig) -> bool:
    try:
        named(agent, handler, settings)
    except ConfigError:  # the target of a handoff; the agent's default continues
        return False
    return True


def run_settings(served: ServedAgent, asked: ClientRequest, about: ServedRequest) -> RunConfig:
    """Return the settings of the app with those of this request.

    Raises:
        Refusal: 400, a setting of the client is one of the agents'.
    """
    base = served.run_config
    own: dict[str, Any] = {
        "scopes": about.scopes,
        "external_tools": (*asked.tools, *base.external_tools),
        "model_settings": {**base.model_settings, **_chosen(served, asked, base), **_choice(asked)},
        "shared_memory": {**base.shared_memory, **_origin(about)},
    }
    changed = {name: value for name, value in own.items() if value != getattr(base, name)}
    # most requests change nothing, and to check the settings anew takes longer than to read the request
    return replace(base, **changed) if changed else base


def _choice(asked: ClientRequest) -> ModelSettings:
    return {"tool_choice": asked.tool_choice} if asked.tool_choice else {}


def _origin(about: ServedRequest) -> Mapping[str, Any]:
    return {"handoff_origin": dict(about.handoff_context)} if about.handoff_context else {}


_ONE_LIMIT = frozenset(("max_tokens", "max_completion_tokens"))
"""Two names of the same setting."""


def _chosen(served: ServedAgent, asked: ClientRequest, base: RunConfig) -> Mapping[str, Any]:
    """Return the settings that the client chose.

    Raises:
        Refusal: 400, an agent or the app has chosen one of them itself, or the schema of the output.
    """
    if not asked.settings:
        return asked.settings
    layers = (base.model_settings, *(agent.model_settings for agent in served.graph.values()))
    taken = {name for layer in layers for name, value in layer.items() if value is not None}
    for name in asked.settings:
        if name in taken or (name in _ONE_LIMIT and taken & _ONE_LIMIT):
            param = asked.setting_names.get(name, name)
            raise bad_request(f"{param}: this agent has its own. Leave it out.", param)
    return _without_own_format(served, asked)


def _without_own_format(served: ServedAgent, asked: ClientRequest) -> Mapping[str, Any]:
    """Return the client's settings without a format that the agents have as their output type anyway."""
    form = asked.settings.get("response_format")
    outputs = [agent.output for agent in served.graph.values() if agent.output is not None]
    if form is None or not outputs:
        return asked.settings
    given = _bare(form.get("json_schema", {}).get("schema"))
    # an output is a JSON object, whatever its type
    if form["type"] != "json_object" and any(given != _bare(output.schema) for output in outputs):
        param = asked.setting_names.get("response_format", "response_format")
        why = f"{param}: this agent has an output type of its own. Leave it out, or send its schema."
        raise bad_request(why, param)
    return {name: value for name, value in asked.settings.items() if name != "response_format"}


_NOTES = ("title", "description", "$schema")
"""Keys of a schema that say nothing about its values, and that the same class may have or not."""

_OF_ZOD = (("minimum", -(2**53) + 1), ("maximum", 2**53 - 1))
"""The bounds that zod gives each whole number, since JavaScript counts no further."""


def _bare(schema: object) -> object:
    """Return what a JSON schema says about its values."""
    if isinstance(schema, list):
        return [_bare(each) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    # a property may be called "title": its value is a schema
    return {
        key: _bare(value)
        for key, value in cast("dict[str, object]", schema).items()
        if not (isinstance(value, str) and key in _NOTES) and (key, value) not in _OF_ZOD
    }
