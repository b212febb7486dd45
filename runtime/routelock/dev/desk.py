"""What the page can ask for, request by request."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

import anyio
import pydantic

from routelock.agents.agent import Agent
from routelock.agents.svg import graph_svg, outline_svg
from routelock.dev.replays import Source, replay_test
from routelock.dev.talks import Said, Talk, Talks, Word
from routelock.dev.traced import outline_of_trace
from routelock.errors import ConfigError
from routelock.serving.refusals import Refusal
from routelock.serving.wire import (
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    EventStream,
    attended,
    headers_of,
    read_body,
    send_json,
)
from routelock.tracing.reader import TracedRun, read_trace

__all__ = ["Desk", "End", "PageRequest"]

_LARGEST_MESSAGE = 2 * 2**20
_LARGEST_RUN = 64 * 2**20
_PING = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """One request of the page."""

    receive: AsgiReceive
    send: AsgiSend
    headers: Mapping[str, str]
    path: Mapping[str, str]

    async def body(self, limit: int = _LARGEST_MESSAGE) -> Mapping[str, Any]:
        """Return what was posted.

        Raises:
            Refusal: 400 or 413.
        """
        raw = await read_body(self.receive, limit, self.headers.get("content-length"))
        try:
            data: object = json.loads(raw or b"{}")
        except (ValueError, RecursionError) as error:
            raise Refusal(400, "The request is no JSON.", "bad_json") from error
        if not isinstance(data, dict):
            raise Refusal(400, "The request is no JSON object.", "bad_json")
        return cast("Mapping[str, Any]", data)

    async def reply(self, **body: Any) -> None:
        """Answer."""
        await send_json(self.send, 200, body)


class End:
    """One thing that can be asked for, as an ASGI app."""

    def __init__(self, handle: Callable[[PageRequest], Awaitable[None]]) -> None:
        self._handle = handle

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request."""
        path = cast("Mapping[str, str]", scope.get("path_params", {}))
        await self._handle(PageRequest(receive=receive, send=send, headers=headers_of(scope), path=path))


class Desk:
    """Answers the page.

    Args:
        agents: those to talk to; the first is chosen if the page does not say.
        talks: the conversations.
        source: where the agents came from, and their runs' context and settings.
        traces: files that may be loaded by name.
    """

    def __init__(
        self,
        agents: Sequence[Agent[Any]],
        talks: Talks,
        source: Source,
        traces: Sequence[str | PathLike[str]],
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        if len(self._agents) != len(agents):
            raise ConfigError("Two of the agents to talk to have the same name; give each its own.")
        self._talks = talks
        self._source = source
        self._traces = _by_name([Path(path) for path in traces])

    def end(self, handle: Callable[[PageRequest], Awaitable[None]]) -> End:
        """Return one of the methods as an ASGI app."""
        return End(handle)

    def settings(self) -> dict[str, Any]:
        """Return what the page is told when it is loaded."""
        return {"agents": list(self._agents), "traces": list(self._traces), "spec": self._source.agent}

    async def begin(self, asked: PageRequest) -> None:
        """Begin a conversation, and give the picture of its graph."""
        name = (await asked.body()).get("agent")
        agent = self._agents.get(name if isinstance(name, str) else next(iter(self._agents)))
        if agent is None:
            raise Refusal(404, f"There is no agent {name!r:.80} to talk to.", "no_agent")
        talk = self._talks.begin(agent)
        picture = graph_svg(agent, active=agent.name, agents=self._source.run_config.agents)
        await asked.reply(id=talk.id, agent=agent.name, graph=picture)

    async def answer(self, asked: PageRequest) -> None:
        """Answer the user's message, or words on calls that wait, with lines; see `routelock.dev.talks`."""
        talk = self._talks.find(asked.path["id"])
        said = _said(await asked.body())
        out = EventStream(asked.send, {})
        await attended(asked.receive, lambda: self._told(talk, said, out), lambda: out.keep_alive(_PING))
        await out.end()

    async def _told(self, talk: Talk, said: Said, out: EventStream) -> None:
        put, take = anyio.create_memory_object_stream[Mapping[str, Any] | str](math.inf)
        refused: list[Refusal] = []

        async def run() -> None:
            with put:
                try:
                    await self._talks.answer(talk, said, put.send_nowait)
                except Refusal as refusal:
                    refused.append(refusal)

        async with anyio.create_task_group() as group, take:
            group.start_soon(run)
            async for line in take:
                await out.data(line)
        if refused:
            raise refused[0]

    async def stop(self, asked: PageRequest) -> None:
        """Stop the run of a conversation, if one goes on."""
        self._talks.find(asked.path["id"]).stop()
        await asked.reply()

    async def graph(self, asked: PageRequest) -> None:
        """Draw the graph of a run of a trace: its first record is in the request."""
        (run,) = _runs([await asked.body()])
        await asked.reply(graph=outline_svg(outline_of_trace(run.start), active=run.start.agent))

    async def test(self, asked: PageRequest) -> None:
        """Write a test of a run, whose records are in the request."""
        records: list[Any] | None = (await asked.body(_LARGEST_RUN)).get("records")
        if not isinstance(records, list):
            raise Refusal(400, "The request has no list of records.", "no_records")
        (run,) = _runs(records)
        try:
            await asked.reply(code=replay_test(run, self._source))
        except ValueError as error:
            raise Refusal(409, str(error), "no_test") from error

    async def trace(self, asked: PageRequest) -> None:
        """Send a file of traces that was named when the app was made."""
        path = self._traces.get(asked.path["name"])
        if path is None:
            raise Refusal(404, "This trace was not named on the command line: --trace FILE.", "no_trace")
        try:
            text = await anyio.Path(path).read_text("utf-8", "replace")
        except OSError as error:
            raise Refusal(404, f"{path} cannot be read: {error.strerror}.", "no_trace") from error
        await asked.reply(name=path.name, text=text)


def _by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Return files by their names; those that share a name by their paths, as they were given."""
    names = Counter(path.name for path in set(paths))
    return {path.name if names[path.name] == 1 else str(path): path for path in paths}


def _said(body: Mapping[str, Any]) -> Said:
    """Return what the user says.

    Raises:
        Refusal: 400.
    """
    text, words = body.get("text"), body.get("words")
    if isinstance(text, str) and text.strip():
        return text
    try:
        found = pydantic.TypeAdapter(list[Word]).validate_json(json.dumps(words), strict=True)
    except pydantic.ValidationError as error:
        raise Refusal(400, "The message is empty.", "no_text") from error
    return found


def _runs(records: Sequence[Any]) -> Sequence[TracedRun]:
    """Return the one run that records are of.

    Raises:
        Refusal: 400.
    """
    log = read_trace(json.dumps(record).encode() for record in records)
    if len(log.runs) != 1 or log.unreadable:
        raise Refusal(400, "These are not the records of one run.", "bad_records")
    return log.runs
