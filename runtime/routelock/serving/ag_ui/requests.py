"""The body of a request of AG-UI, parsed or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic

from routelock.history.messages import Message
from routelock.serving.ag_ui.messages import Wire, chat_messages
from routelock.serving.requests import (
    MOST_MESSAGES,
    MOST_TOOLS,
    ClientRequest,
    ToolFunction,
    bad_request,
    read_json,
    tool_specs,
    validated,
)

__all__ = ["ResumeEntry", "RunRequest", "parse_run_request"]


_Id = Annotated[str, pydantic.Field(max_length=256)]

_MOST_ENTRIES = 1024

_CONTEXT = "Context from the application:"


class _Context(Wire):
    description: str
    value: str


class _ResumeEntry(Wire):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class _Body(Wire):
    """The fields that are used; all others are ignored, as the protocol says."""

    thread_id: _Id
    run_id: _Id
    protocol_version: str | None = None
    messages: Annotated[list[dict[str, Any]], pydantic.Field(max_length=MOST_MESSAGES), pydantic.FailFast()]
    tools: Annotated[list[ToolFunction], pydantic.Field(max_length=MOST_TOOLS)] | None = None
    context: Annotated[list[_Context], pydantic.Field(max_length=MOST_TOOLS)] | None = None
    state: Any = None
    forwarded_props: Any = None
    resume: Annotated[list[_ResumeEntry], pydantic.Field(max_length=_MOST_ENTRIES)] | None = None


@dataclass(frozen=True, slots=True)
class ResumeEntry:
    """The answer to one interrupt, see `routelock.serving.ag_ui.interrupts`."""

    status: Literal["resolved", "cancelled"]
    payload: Any = None
    where: str = "resume"
    """The path of the entry in the request, for errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(ClientRequest):
    """A parsed request for a run."""

    thread: str
    run: str
    is_current: bool
    """Whether the client names its version of the protocol. A client from before 1.0 does not, and would fail
    on the additions of 1.0."""
    state: Any
    """The state that client and agents share, see `AGUI`; an empty object if there is none."""
    forwarded: Any
    """The ``forwardedProps``."""
    resume: Mapping[str, ResumeEntry]
    """Answers by the ids of interrupts."""


def parse_run_request(body: bytes) -> RunRequest:
    """Parse the body of a request.

    Raises:
        Refusal: 400. The message names the problem and its place.
    """
    read = validated(_Body, read_json(body))
    if not read.messages and not read.resume:
        raise bad_request("messages: must have at least one message.", "messages")
    return RunRequest(
        messages=[*_context(read), *chat_messages(read.messages)],
        model="",
        stream=True,
        tools=tool_specs(read.tools or ()),
        tool_choice=None,
        user=None,
        handoff_context={},
        thread=read.thread_id,
        run=read.run_id,
        is_current=read.protocol_version is not None,
        state={} if read.state is None else read.state,
        forwarded=read.forwarded_props,
        resume=_entries(read.resume or ()),
    )


def _context(read: _Body) -> list[Message]:
    """Return the context that the application gives the model, as a system message; none if there is none."""
    if not read.context:
        return []
    entries = [f"{entry.description}:\n{entry.value}" for entry in read.context]
    return [{"role": "system", "content": "\n\n".join((_CONTEXT, *entries))}]


def _entries(given: Sequence[_ResumeEntry]) -> Mapping[str, ResumeEntry]:
    entries: dict[str, ResumeEntry] = {}
    for place, entry in enumerate(given):
        where = f"resume[{place}]"
        if entry.interrupt_id in entries:
            raise bad_request(f"{where}: answers {entry.interrupt_id!r:.80} a second time.", where)
        entries[entry.interrupt_id] = ResumeEntry(entry.status, entry.payload, where)
    return entries
