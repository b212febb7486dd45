"""One request as a run: with which agent it starts, from which messages, and under which settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routelock._callables import resolve, users_code
from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.history.messages import Message, ToolCall
from routelock.run.config import RunConfig
from routelock.run.handler_selection import named
from routelock.run.result import RunResult
from routelock.runner import Runner
from routelock.serving.catalog import ServedAgent
from routelock.serving.chunks import Completion, DeltaWriter
from routelock.serving.config import ServeConfig, ServedRequest
from routelock.serving.pending import PendingRuns
from routelock.serving.refusals import Refusal
from routelock.serving.requests import ChatRequest
from routelock.serving.wire import EventStream

__all__ = ["Job", "context_for", "job_of", "needs_approval"]

_OPENING: dict[str, Any] = {"role": "assistant", "content": ""}
_NEEDS_APPROVAL = (
    "The agent wants to do something that a person has to approve, which this endpoint cannot ask for. "
    "It was not done."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run that is ready to start."""

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
        """Run, and return the whole reply."""
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
        """Run, and write the reply as it comes, down to ``[DONE]``.

        Nothing is written before there is something to say, so until then an error has a status.
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
                if early and (to.started or any(_says_something(delta) for delta in early)):
                    await to.data(*map(self.completion.chunk, early))
                    early.clear()
        result = stream.result
        last, finish = writer.finish(result, self._calls(result))
        chunks = [self.completion.chunk(delta) for delta in (*early, *last)]
        chunks.append(self.completion.chunk({}, finish))
        if self.asked.include_usage:
            chunks.append(self.completion.usage_chunk(result.usage))
        await to.data(*chunks, "[DONE]")

    def _writer(self) -> DeltaWriter:
        return DeltaWriter(agents=self.served.graph.keys(), hold=self.served.has_output_type)

    def _calls(self, result: RunResult[Any]) -> Sequence[ToolCall]:
        if result.interruptions:
            raise needs_approval(result)
        if not result.pending:
            return ()
        return self.pending.keep(self.about.principal, self.about.model, result)


def needs_approval(result: RunResult[Any]) -> Refusal:
    """Return what a client is told whose run waits for a person; the log is told which calls do."""
    calls = [f"{each.name!r} of agent {each.agent!r}" for each in result.interruptions]
    calls += [f"{call['function']['name']!r}, which the caller answers" for call in result.pending]
    return Refusal(403, _NEEDS_APPROVAL, "approval_required", for_log=f"what waits: {', '.join(calls)}")


async def context_for(config: ServeConfig, about: ServedRequest) -> Any:
    """Return the object that is passed as ``context=`` to the run of a request."""
    if config.context is None:
        return None
    with users_code("ServeConfig.context"):
        return await resolve(config.context(about))


def _says_something(delta: Mapping[str, Any]) -> bool:
    return delta is not _OPENING and "x_agent" not in delta


def job_of(
    served: ServedAgent,
    asked: ChatRequest,
    about: ServedRequest,
    completion: Completion,
    config: ServeConfig,
    pending: PendingRuns,
) -> Job:
    """Return the run that answers a request: a new one, or one that was waiting for these answers."""
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
    return Job(
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
    except ConfigError:  # one that only a handoff leads to; the agent's default goes on
        return False
    return True


def _settings(asked: ChatRequest, about: ServedRequest, base: RunConfig) -> RunConfig:
    """Return the app's settings with what this request adds."""
    choice = {"tool_choice": asked.tool_choice} if asked.tool_choice else {}
    memory = {"handoff_origin": dict(about.handoff_context)} if about.handoff_context else {}
    return replace(
        base,
        run_id=None,
        scopes=about.scopes,
        external_tools=(*asked.tools, *base.external_tools),
        model_settings={**base.model_settings, **choice},
        shared_memory={**base.shared_memory, **memory},
        retry=replace(base.retry, mid_stream=False),  # what a client was shown cannot be taken back
    )
