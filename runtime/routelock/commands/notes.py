"""What happens in a run, put on a screen: who speaks, what is said, what is done."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from routelock.commands.words import bounded, call_arguments, told
from routelock.handlers.events import AttemptFailed, MessageDone, ReasoningDelta, TextDelta
from routelock.history.messages import Message, text_of
from routelock.run.events import (
    AgentUpdated,
    EmptyReply,
    HandlerFallback,
    HandoffFailed,
    HandoffRequested,
    HandoffReturned,
    NestedEvent,
    Repaired,
    RunEvent,
    ToolCalled,
    ToolOutput,
)

__all__ = ["Note", "Screen", "Teller", "note_of"]

_ROOM = 300
"""Characters of a call's arguments or of its answer that are shown."""


@dataclass(frozen=True, slots=True)
class Note:
    """A line or two about what happens beside the talk. The text is fit for a terminal."""

    kind: Literal["call", "answer", "handoff", "question", "problem", "info"]
    text: str


class Screen(Protocol):
    """Where a conversation is shown. Whatever it is given, no terminal obeys it."""

    def busy(self) -> AbstractContextManager[object]:
        """Show, as long as the context is open, that something is going on."""
        ...

    def waits_for(self, what: str) -> None:
        """Say what is going on, such as ``triage answers``."""
        ...

    def speaker(self, name: str) -> None:
        """Name who speaks from now on."""
        ...

    def say(self, text: str) -> None:
        """Show a piece of what is said."""
        ...

    def end(self) -> None:
        """End what is being said."""
        ...

    def note(self, note: Note) -> None:
        """Show what happens."""
        ...

    def line(self, text: str = "") -> None:
        """Show a line of the program's own."""
        ...

    def ask(self, prompt: str) -> str:
        """Return what the person says next, without white space around it.

        Args:
            prompt: who is to speak, or what is asked.

        Raises:
            EOFError: there is none.
        """
        ...


class Teller:
    """Puts the events of runs on a screen.

    Args:
        screen: where to.
        replies: whether to show what is said; else what is done alone.
    """

    def __init__(self, screen: Screen, *, replies: bool = True) -> None:
        self._screen = screen
        self._replies = replies
        self._speaker = ""
        self._said = False

    def tell(self, event: RunEvent) -> None:
        """Show one event."""
        match event:
            case AgentUpdated(agent=name):
                self._speaker = name
                self._screen.speaker(name)
                self._screen.waits_for(f"{name} answers")
            case TextDelta(text=text):
                self._say(text)
            case MessageDone(message=message):
                self._end(message)
            case ReasoningDelta():
                self._screen.waits_for(f"{self._speaker} thinks")
            case _:
                self._note(event)

    def _say(self, text: str) -> None:
        self._said = True
        if self._replies:
            self._screen.say(text)

    def _end(self, message: Message) -> None:
        """End a message; one that did not come in pieces comes now."""
        if not self._said:
            self._say(text_of(message) or message.get("refusal") or "")
        self._said = False
        self._screen.end()

    def _note(self, event: RunEvent) -> None:
        if isinstance(event, AttemptFailed):
            self._said = False  # the next attempt begins anew
        if (note := note_of(event)) is None:
            return
        self._screen.note(note)
        busy_with = event.name if isinstance(event, ToolCalled) else None
        self._screen.waits_for(f"{busy_with} runs" if busy_with else f"{self._speaker} answers")


def note_of(event: RunEvent) -> Note | None:
    """Return what there is to say about an event, if there is anything."""
    if isinstance(event, NestedEvent):
        inner = note_of(event.event)
        return inner and Note(inner.kind, f"{bounded(' > '.join(event.path), 100)}: {inner.text}")
    return _of_call(event) or _of_handoff(event) or _of_trouble(event)


def _of_call(event: RunEvent) -> Note | None:
    match event:
        case ToolCalled(name=name, arguments=arguments):
            return Note("call", f"{bounded(name, 80)}({call_arguments(arguments, _ROOM)})")
        case ToolOutput(name=name, output=output, error=error):
            text = f"{bounded(name, 80)}: {bounded(output, _ROOM) or '(nothing)'}"
            return Note("answer", text) if error is None else Note("problem", text)
        case _:
            return None


def _of_handoff(event: RunEvent) -> Note | None:
    match event:
        case HandoffRequested(source=source, target=target, arguments=arguments):
            given = call_arguments(arguments, _ROOM)
            return Note("handoff", bounded(f"{source} -> {target}", 200) + (f" ({given})" if given else ""))
        case HandoffFailed(target=target, reason=reason):
            return Note("problem", f"no transfer to {bounded(target, 80)}: {bounded(reason, _ROOM)}")
        case HandoffReturned(source=source, target=target):
            return Note("handoff", bounded(f"{source} -> {target}, with its answer", 200))
        case _:
            return None


def _of_trouble(event: RunEvent) -> Note | None:
    match event:
        case AttemptFailed(error=error, delay=delay):
            return Note("problem", f"{bounded(told(error), _ROOM)} Trying again in {delay:.1f} s.")
        case HandlerFallback(handler=failed, next_handler=following):
            return Note("problem", bounded(f"{failed} failed, {following} answers", 200))
        case Repaired(repair=repair):
            return Note("info", f"mended: {bounded(repair, _ROOM)}")
        case EmptyReply(agent=agent):
            return Note("info", f"{bounded(agent, 80)} said nothing")
        case _:
            return None
