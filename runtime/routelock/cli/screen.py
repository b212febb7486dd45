"""A conversation in a terminal: plain text, or with rich colours, Markdown and a line of what goes on.

Both screens are told the same notes of what happens in a run.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, cast

from routelock._callables import error_text
from routelock._text import escape_control
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
    from rich.live import Live
    from rich.status import Status
    from rich.text import Text

__all__ = [
    "Note",
    "PlainScreen",
    "RichScreen",
    "Screen",
    "Teller",
    "Waiting",
    "bounded",
    "call_arguments",
    "edit_lines",
    "money",
    "moves",
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


def moves(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that rich can draw on, and whether there is rich."""
    drawn_on = stream.isatty() and os.environ.get("TERM") != "dumb"
    return drawn_on and importlib.util.find_spec("rich") is not None


class _Doing:
    """What is going on, and for how long; rich asks for it each time it draws."""

    def __init__(self, what: str = "") -> None:
        self.what = what
        self._since = time.monotonic()

    def becomes(self, what: str) -> None:
        """Say what is going on from now on."""
        if what != self.what:
            self.what, self._since = what, time.monotonic()

    def __rich__(self) -> Text:
        from rich.text import Text  # noqa: PLC0415 - an extra

        seconds = int(time.monotonic() - self._since)
        label = self.what + (f" ({seconds} s)" if seconds else "")
        return Text(label, style="dim", no_wrap=True, overflow="ellipsis")


_SECONDS = 1.0
"""What is over sooner is not worth a word."""


class Waiting:
    """Says on stderr what is waited for, in one line, once it has taken more than a second.

    It says so to people only: nothing where stderr is no terminal. The line stays where it is: one that moved
    and was wiped away would take with it what the app prints into the same terminal. A thread writes it,
    because what is waited for may hold up this one (an import does).

    Args:
        what: what is going on, as in "loading litellm".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._timer = threading.Timer(_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Waiting:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def becomes(self, what: str) -> None:
        """Say what is waited for from now on, if nothing was said yet."""
        self._what = what

    def close(self) -> None:
        """Say nothing from now on. Safe to call twice."""
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()

    def _show(self) -> None:
        sys.stderr.write(f"{self._what} ...\n")
        sys.stderr.flush()


_FLAGS = 3
"""Place of the local flags in what ``termios.tcgetattr`` returns."""


@contextmanager
def _unseen() -> Generator[None]:
    """Do not show what is typed. It is not lost: whoever reads next gets it."""
    if not (sys.stdin.isatty() and importlib.util.find_spec("termios")):
        yield
        return
    termios: Any = importlib.import_module("termios")
    before = termios.tcgetattr(sys.stdin)
    silent = [*before]
    silent[_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def edit_lines() -> None:
    """Let a person edit what is typed and go back to earlier lines, where Python can do that."""
    if importlib.util.find_spec("readline"):
        importlib.import_module("readline")


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
            self._waiting.becomes(bounded(what, 80))

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

_LONG = 2000
"""Where so many characters or more are one block, it has to grow by a quarter to be looked at again."""


class RichScreen:
    """Shows a conversation in a terminal.

    What is being said is drawn again as it grows. That part is never higher than the terminal, where rich
    could not draw over it: blocks that are settled are printed above it, and of a block that is too high its
    end is drawn until it is printed.

    Args:
        console: rich's; None makes one for stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console  # noqa: PLC0415 - an extra

        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._open = ""
        """What is being said, and was not printed yet."""
        self._due = 0
        """How long that has to be until it is looked at for what is settled."""
        self._in_message = False
        """Whether something of the present message was printed."""
        self._colours: dict[str, str] = {}
        self._busy = False
        self._doing = _Doing()
        self._live: Live | None = None
        self._status: Status | None = None

    @contextmanager
    def busy(self) -> Generator[None]:
        """Show what is being said, or what is waited for."""
        self._busy, self._doing = True, _Doing()
        with _unseen():
            try:
                self._wait()
                yield
            finally:
                self._busy = False
                try:
                    self.end()
                finally:  # or the cursor would stay hidden
                    self._clear()

    def waits_for(self, what: str) -> None:
        """Say what is going on."""
        self._doing.becomes(bounded(what, 80))

    def speaker(self, name: str) -> None:
        """Name who speaks from now on."""
        self.end()
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._print(bounded(name, 80), f"bold {colour}")

    def say(self, text: str) -> None:
        """Show a piece of what is said."""
        self._open += escape_control(text)
        if "\n" in text and len(self._open) >= self._due and self._is_high():
            self._print_settled()
        if self._busy and self._live is None and self._open.strip():
            self._write()

    def end(self) -> None:
        """Print what is left of what is being said."""
        left, self._open, self._due = self._open, "", 0
        if left.strip():
            self._set(left)
        self._in_message = False
        if self._busy and self._status is None:
            self._wait()

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

    def _is_high(self) -> bool:
        """Tell whether what is being said takes half of the terminal, or more."""
        rows = self._open.count("\n") + len(self._open) // self._console.width
        return rows >= self._console.height // 2

    def _print_settled(self) -> None:
        """Print what no longer changes above what does."""
        from routelock.cli.markdown import settled  # noqa: PLC0415 - it needs an extra

        if end := settled(self._open):
            done, self._open = self._open[:end], self._open[end:]
            self._set(done)
        self._due = len(self._open) * 5 // 4 if len(self._open) >= _LONG else 0

    def _set(self, text: str) -> None:
        """Print a part of the message in the place of what is drawn."""
        from routelock.cli.markdown import lines  # noqa: PLC0415 - it needs an extra

        printed = lines(self._console, text, gap=self._in_message)
        self._in_message = True
        with self._console:  # at once, so that nothing flickers
            self._clear()  # rich's thread would draw over it if it drew between two steps of printing
            self._console.print(printed)

    def _wait(self) -> None:
        """Draw what is waited for."""
        self._clear()
        self._status = self._console.status(self._doing)
        self._status.start()

    def _write(self) -> None:
        """Draw what is being said."""
        from rich.live import Live  # noqa: PLC0415 - an extra

        self._clear()
        self._live = Live(
            console=self._console, get_renderable=self._growing, refresh_per_second=10, transient=True
        )
        self._live.start(refresh=True)

    def _clear(self) -> None:
        """Draw nothing, and print what a tool has printed without a line end, which rich would drop."""
        display, streams = self._live or self._status, (sys.stdout, sys.stderr)
        self._live = self._status = None
        if display is not None:
            display.stop()
            for each in streams:
                each.flush()

    def _growing(self) -> RenderableType:
        """Return what is still changing, at most as high as the terminal."""
        from routelock.cli.markdown import last_lines  # noqa: PLC0415 - it needs an extra

        return last_lines(self._console, self._open, max(self._console.height - 3, 1), gap=self._in_message)
