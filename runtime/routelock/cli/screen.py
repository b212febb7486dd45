"""A conversation in a terminal: plain text, or with rich colours, Markdown and a line of what goes on.

Both screens are told the same notes of what happens in a run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, cast

from routelock._callables import error_text
from routelock._text import escape_control
from routelock.cli.blocks import Blocks
from routelock.cli.keyboard import unseen
from routelock.cli.spinner import Waiting
from routelock.errors import CassetteMiss, RoutelockError
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
from routelock.testing.cassette import UnplayedInteractions
from routelock.usage import Usage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.segment import Segment

__all__ = [
    "Note",
    "PlainScreen",
    "RichScreen",
    "Screen",
    "Teller",
    "bounded",
    "call_arguments",
    "money",
    "note_of",
    "told",
    "usage_line",
]


_DIFFERENCES = (CassetteMiss, UnplayedInteractions)
"""What they say is a difference, which takes lines."""


def told(error: BaseException) -> str:
    """Return what an error says, on one line; errors of the program itself say so."""
    if isinstance(error, _DIFFERENCES):
        return escape_control(error_text(error))
    said = error_text(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        said = f"{error.filename} could not be opened: {error.strerror}."
    text = " ".join(escape_control(said).split()) or type(error).__name__
    if isinstance(error, RoutelockError | OSError):
        return text
    return f"{type(error).__name__}: {text} (--verbose shows where)"


def bounded(text: str, room: int) -> str:
    """Return text on one line of at most ``room`` characters that no terminal obeys."""
    line = " ".join(escape_control(text[: room * 2]).split())
    return line if len(line) <= room and len(text) <= room * 2 else f"{line[: max(room - 3, 0)].rstrip()}..."


def call_arguments(text: str, room: int) -> str:
    """Return the JSON arguments of a call as ``name=value, ...``; what is no JSON object as it stands."""
    try:
        values: object = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return bounded(text, room)
    if not isinstance(values, dict):
        return bounded(text, room)
    named = cast("dict[str, Any]", values).items()
    return bounded(", ".join(f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in named), room)


def usage_line(usage: Usage) -> str:
    """Return tokens and cost of some calls: ``812 in (300 cached), 45 out, $0.0012``."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    guessed = "about " if usage.estimated else ""
    return f"{guessed}{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out, {money(usage.cost)}"


def money(dollars: float | None) -> str:
    """Return US dollars with as many places as small amounts need."""
    if dollars is None:
        return "cost unknown"
    return f"${dollars:.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


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
            return Note("info", f"repaired: {bounded(repair, _ROOM)}")
        case EmptyReply(agent=agent):
            return Note("info", f"{bounded(agent, 80)} said nothing")
        case _:
            return None


_MARKS = {"call": ">", "answer": "<", "handoff": "=>", "question": "?", "problem": "!", "info": "-"}


class PlainScreen:
    """Writes lines; who speaks is said before what is said.

    Args:
        out: where to.
        marks: what stands before a line that tells of a note.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._label = ""
        self._in_line = False
        self._waiting: Waiting | None = None

    @contextmanager
    def busy(self) -> Generator[None]:
        """Say on stderr what is waited for, until there is something to show."""
        with Waiting("") as self._waiting:
            try:
                yield
            finally:
                self.end()

    def waits_for(self, what: str) -> None:
        """Say what is going on."""
        if self._waiting is not None:
            self._waiting.what = bounded(what, 80)

    def speaker(self, name: str) -> None:
        """Name who speaks from now on."""
        self.end()
        self._label = bounded(name, 80)

    def say(self, text: str) -> None:
        """Write a piece of what is said."""
        text = escape_control(text)
        if not self._in_line:
            text = text.lstrip("\n")
            if not text:
                return
            self._write(f"{self._label}: ")
            self._in_line = True
        self._write(text)

    def end(self) -> None:
        """End the line."""
        if self._in_line:
            self._write("\n")
        self._in_line = False

    def note(self, note: Note) -> None:
        """Write a line about what happens."""
        self.line(f"  {_MARKS[note.kind]} {note.text}")

    def line(self, text: str = "") -> None:
        """Write a line."""
        self.end()
        self._write(f"{escape_control(text)}\n")

    def ask(self, prompt: str) -> str:
        """Return the next line of stdin; where nobody sees what is typed, it is written down as well."""
        if sys.stdin.isatty() and self._out.isatty():
            return input(f"{prompt}: ").strip()
        text = sys.stdin.readline()
        if not text:
            raise EOFError
        self.line(f"{prompt}: {text.strip()}")
        return text.strip()

    def _write(self, text: str) -> None:
        if self._waiting is not None:
            self._waiting.close()
        self._out.write(text)
        self._out.flush()


_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")

_LOOKS = {
    "call": ("> ", "dim"),
    "answer": ("< ", "dim"),
    "handoff": ("=> ", "bold"),
    "question": ("? ", "bold yellow"),
    "problem": ("! ", "yellow"),
    "info": ("- ", "dim"),
}

_MOST_MARKDOWN = 4000
"""Characters of a block that are set as Markdown again and again while it grows."""


class RichScreen:
    """Shows a conversation in a terminal.

    Args:
        console: rich's; None makes one for stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console  # noqa: PLC0415 - an extra

        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._blocks = Blocks()
        self._in_message = False
        """Whether a block of the present message was printed."""
        self._colours: dict[str, str] = {}
        self._waits_for = ""
        self._since = time.monotonic()

    @contextmanager
    def busy(self) -> Generator[None]:
        """Show what is being written, or what is waited for."""
        from rich.live import Live  # noqa: PLC0415 - an extra

        self._since = time.monotonic()
        live = Live(console=self._console, get_renderable=self._now, refresh_per_second=10, transient=True)
        with unseen(), live:
            try:
                yield
            finally:
                self.end()

    def waits_for(self, what: str) -> None:
        """Say what is going on."""
        if what != self._waits_for:
            self._since = time.monotonic()
        self._waits_for = what

    def speaker(self, name: str) -> None:
        """Name who speaks from now on."""
        self.end()
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._print(bounded(name, 80), f"bold {colour}")

    def say(self, text: str) -> None:
        """Show a piece of what is said."""
        for block in self._blocks.feed(escape_control(text)):
            self._set(block)

    def end(self) -> None:
        """Print what is left of what is being said."""
        for block in self._blocks.end():
            self._set(block)
        self._in_message = False

    def note(self, note: Note) -> None:
        """Print a line about what happens."""
        self.end()
        mark, style = _LOOKS[note.kind]
        self._print(f"{mark}{note.text}", style, indent=2)

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.end()
        self._print(escape_control(text), "dim")

    def ask(self, prompt: str) -> str:
        """Return what the person types."""
        self._console.print()
        bold, normal = ("\1\x1b[1m\2", "\1\x1b[0m\2") if "readline" in sys.modules else ("", "")
        return input(f"{bold}{prompt}>{normal} ").strip()  # and not rich's, which readline would paint over

    def _print(self, text: str, style: str, *, indent: int = 0) -> None:
        from rich.padding import Padding  # noqa: PLC0415 - an extra
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Padding(Text(text, style=style), (0, 0, 0, indent), expand=False))

    def _set(self, block: str) -> None:
        if self._in_message:
            self._console.print()
        self._in_message = True
        self._console.print(self._lines(_markdown(block), None))

    def _now(self) -> RenderableType:
        """Return what is still changing, at most as high as the terminal."""
        from rich.spinner import Spinner  # noqa: PLC0415 - an extra
        from rich.text import Text  # noqa: PLC0415

        if text := self._blocks.open:
            block = _markdown(text) if len(text) < _MOST_MARKDOWN else Text(text[-_MOST_MARKDOWN:])
            return self._lines(block, self._console.height - 3, gap=self._in_message)
        seconds = int(time.monotonic() - self._since)
        label = f" {bounded(self._waits_for, 80)}" + (f" ({seconds} s)" if seconds else "")
        return Spinner("dots", Text(label, style="dim"))

    def _lines(self, text: RenderableType, most: int | None, *, gap: bool = False) -> RenderableType:
        """Return the last lines of a text, without those that are empty before and after it."""
        from rich.segment import SegmentLines  # noqa: PLC0415 - an extra

        lines = [_unpadded(line) for line in self._console.render_lines(text, pad=False)]
        full = [place for place, line in enumerate(lines) if line]
        kept = lines[full[0] : full[-1] + 1] if full else []
        blank: list[list[Segment]] = [[]] if gap else []
        return SegmentLines(blank + (kept[-most:] if most else kept), new_lines=True)


def _unpadded(line: list[Segment]) -> list[Segment]:
    """Return a line without the white space at its end, which makes terminals wrap what is echoed."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    if line:
        return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())]
    return line


def _markdown(text: str) -> RenderableType:
    """Set text as Markdown that loses nothing: line ends stay, tags are text, links show where they lead."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - rich has it
    from rich.markdown import Markdown  # noqa: PLC0415 - an extra

    page = Markdown("", hyperlinks=False, code_theme="ansi_dark")
    page.markup = text
    page.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    for token in page.parsed:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return page
