"""A conversation in a terminal, as plain text or, with rich, with colours, Markdown and a status line."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, cast

from routelock._callables import error_text
from routelock._text import clip, dollars, escape_control, one_line
from routelock.errors import CassetteMiss, RoutelockError
from routelock.handlers.events import AttemptFailed, MessageDone, ReasoningDelta, TextDelta
from routelock.history.messages import Message, text_of
from routelock.history.vendor_calls import Citation, VendorCall, citations_of, vendor_calls_of
from routelock.run.events import (
    AgentUpdated,
    Compacted,
    EmptyReply,
    HandlerFallback,
    HandoffFailed,
    HandoffRequested,
    HandoffReturned,
    NestedEvent,
    Repaired,
    RunDone,
    RunEvent,
    ToolCalled,
    ToolOutput,
)
from routelock.run.result import RunResult
from routelock.run.unusable_output import is_output_of_app
from routelock.testing.cassette import UnplayedInteractions
from routelock.usage import Usage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.status import Status
    from rich.text import Text

__all__ = [
    "MARKS",
    "EventPrinter",
    "Note",
    "PlainScreen",
    "RichScreen",
    "Screen",
    "Waiting",
    "bounded",
    "call_arguments",
    "can_draw",
    "drop_typed_text",
    "enable_line_editing",
    "error_line",
    "money",
    "notes_of",
    "usage_line",
    "vendor_notes",
]


_WITH_LINES = (CassetteMiss, UnplayedInteractions)
"""Errors whose text is a difference of several lines."""


def error_line(error: BaseException) -> str:
    """Return the text of an error on one line; the text of an unexpected error names its type."""
    if isinstance(error, _WITH_LINES):
        return escape_control(error_text(error))
    said = error_text(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        said = f"{error.filename} could not be opened: {error.strerror}."
    text = one_line(said) or type(error).__name__
    if isinstance(error, RoutelockError | OSError):
        return text
    return f"{type(error).__name__}: {text} (--verbose shows where)"


def bounded(text: str, room: int) -> str:
    """Return a text on one line of at most ``room`` characters, with control characters escaped."""
    line = one_line(text[: room * 2])
    return clip(line + "…" * (len(text) > room * 2), room)


def call_arguments(text: str, room: int) -> str:
    """Return the JSON arguments of a call as ``name=value, ...``.

    A text that is not a JSON object is returned as it is.
    """
    try:
        values: object = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return bounded(text, room)
    if not isinstance(values, dict):
        return bounded(text, room)
    named = cast("dict[str, Any]", values).items()
    return bounded(", ".join(f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in named), room)


def usage_line(usage: Usage) -> str:
    """Return tokens and cost of calls: ``812 in (300 cached), 45 out, $0.0012``."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    guessed = "about " if usage.estimated else ""
    return f"{guessed}{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out, {money(usage.cost)}"


def money(cost: float | None) -> str:
    """Return a cost in US dollars as text."""
    return "cost unknown" if cost is None else dollars(cost)


_ROOM = 300
"""Most characters of a call's arguments or result that are shown."""


@dataclass(frozen=True, slots=True)
class Note:
    """A line about an event of the run. Control characters in its text are escaped."""

    kind: Literal["call", "answer", "handoff", "question", "problem", "info"]
    text: str


class Screen(Protocol):
    """Shows a conversation. Control characters in texts are escaped."""

    def busy(self) -> AbstractContextManager[object]:
        """Show the current activity while the context is open."""
        ...

    def set_activity(self, what: str) -> None:
        """Set the current activity, such as ``triage answers``."""
        ...

    def set_speaker(self, name: str) -> None:
        """Set the name of the speaker."""
        ...

    def add_text(self, text: str) -> None:
        """Show a piece of the speaker's message."""
        ...

    def end_text(self) -> None:
        """End the message."""
        ...

    def show_note(self, note: Note) -> None:
        """Show an event."""
        ...

    def print_line(self, text: str = "") -> None:
        """Show a line of the program itself."""
        ...

    def ask(self, prompt: str) -> str:
        """Return the next input of the user, without white space around it.

        Args:
            prompt: the name of the user, or a question.

        Raises:
            EOFError: the input has ended.
        """
        ...


class EventPrinter:
    """Shows the events of runs on a screen.

    Args:
        screen: the screen.
        replies: whether to show messages; if not, only other events are shown.
        names: the name to show for a handler, by the name of the handler.
    """

    def __init__(
        self, screen: Screen, *, replies: bool = True, names: Mapping[str, str] | None = None
    ) -> None:
        self._screen = screen
        self._replies = replies
        self._names = names or {}
        self._speaker = ""
        self._said = False
        self._failed: set[str] = set()
        """Ids of the calls whose tools gave an error."""

    def print(self, event: RunEvent) -> None:
        """Show one event."""
        match event:
            case AgentUpdated(agent=name):
                self._speaker = name
                self._screen.set_speaker(name)
                self._screen.set_activity(f"{name} answers")
            case TextDelta(text=text):
                self._say(text)
            case MessageDone(message=message):
                self._end(message)
                self._note(event)
            case ReasoningDelta():
                self._screen.set_activity(f"{self._speaker} thinks")
            case RunDone(result=result):
                self._show_output_of_app(result)
            case _:
                self._note(event)

    def _show_output_of_app(self, result: RunResult[Any]) -> None:
        """Show a final output that no event has, because no model wrote it."""
        if is_output_of_app(result) and (last := result.items[-1]).origin is None and last.kind == "model":
            self._end(last.message)

    def _say(self, text: str) -> None:
        self._said = True
        if self._replies:
            self._screen.add_text(text)

    def _end(self, message: Message) -> None:
        """End a message, and show it if it was not streamed."""
        if not self._said:
            self._say(text_of(message) or message.get("refusal") or "")
        self._said = False
        self._screen.end_text()

    def _note(self, event: RunEvent) -> None:
        if isinstance(event, AttemptFailed):
            self._said = False  # the next attempt streams the message again
        if self._is_known(event) or not (notes := notes_of(event, self._names)):
            return
        for note in notes:
            self._screen.show_note(note)
        tool = event.name if isinstance(event, ToolCalled) else None
        self._screen.set_activity(f"{tool} runs" if tool else f"{self._speaker} answers")

    def _is_known(self, event: RunEvent) -> bool:
        """Whether the output of a tool has said already why its handoff was not made."""
        event = event.event if isinstance(event, NestedEvent) else event
        if isinstance(event, ToolOutput) and event.error is not None:
            self._failed.add(event.call_id)
        return isinstance(event, HandoffFailed) and event.call_id in self._failed


def notes_of(event: RunEvent, names: Mapping[str, str]) -> Sequence[Note]:
    """Return the notes for an event; most events have one or none.

    Args:
        event: the event.
        names: the name to show for a handler, by the name of the handler.
    """
    if isinstance(event, NestedEvent):
        path = bounded(" > ".join(event.path), 100)
        return [Note(each.kind, f"{path}: {each.text}") for each in notes_of(event.event, names)]
    if isinstance(event, MessageDone):
        return [*vendor_notes(event.message)]
    note = _of_call(event) or _of_handoff(event) or _of_trouble(event, names)
    return [] if note is None else [note]


_MOST_CITED = 10
"""Most sources of one message that are shown."""


def vendor_notes(message: Mapping[str, Any]) -> Iterator[Note]:
    """Yield a note for each call that a vendor's tool answered, and one for each source that is cited."""
    for call in vendor_calls_of(message):
        yield _of_vendor_call(call)
    texts = [_source_text(each) for each in citations_of(message)]
    cited = [text for text in dict.fromkeys(texts) if text]
    for source in cited[:_MOST_CITED]:
        yield Note("info", f"cites {source}")
    if (more := len(cited) - _MOST_CITED) > 0:
        yield Note("info", f"cites {more} more")


def _of_vendor_call(call: VendorCall) -> Note:
    asked = f"{bounded(call.tool, 80)}({call_arguments(json.dumps(dict(call.input)), _ROOM)})"
    if call.error:
        return Note("problem", f"{asked}, run by the vendor: {bounded(call.error, _ROOM)}")
    count = len(call.sources)
    sources = f"{count} source{'s' * (count > 1)}" if count else ""
    found = ", ".join(filter(None, (sources, bounded(call.output, _ROOM))))
    return Note("call", f"{asked}, run by the vendor{found and f': {found}'}")


def _source_text(source: Citation) -> str:
    """Return the title and the address of a source; of a file, its name or its id."""
    return ", ".join(filter(None, (bounded(source.title, 100), bounded(source.url, 200)))) or bounded(
        source.file_id, 100
    )


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


def _of_trouble(event: RunEvent, names: Mapping[str, str]) -> Note | None:
    match event:
        case AttemptFailed(error=error, delay=delay):
            return Note("problem", f"{bounded(error_line(error), _ROOM)} Trying again in {delay:.1f} s.")
        case HandlerFallback(handler=failed, next_handler=following):
            one, other = names.get(failed, failed), names.get(following, following)
            return Note("problem", bounded(f"{one} failed, {other} answers", 200))
        case Repaired(repair=repair):
            return Note("info", f"repaired: {bounded(repair, _ROOM)}")
        case Compacted(compaction=made):
            return Note("info", f"compacted: {compaction_line(made.how, made.replaced)}")
        case EmptyReply(agent=agent):
            return Note("info", f"{bounded(agent, 80)} said nothing")
        case _:
            return None


def compaction_line(how: str, replaced: int) -> str:
    """Return the effect of a compaction in a few words."""
    if how == "cut":
        return f"{replaced} tool results were cut"
    return f"{replaced} messages became 1 ({bounded(how, 20)})"


def can_draw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that rich can draw on, and rich is installed."""
    drawn_on = stream.isatty() and os.environ.get("TERM") != "dumb"
    return drawn_on and importlib.util.find_spec("rich") is not None


class _Activity:
    """A text for rich: what the program is doing, and for how long."""

    def __init__(self, what: str = "") -> None:
        self.what = what
        self._since = time.monotonic()

    def change(self, what: str) -> None:
        """Set the activity."""
        if what != self.what:
            self.what, self._since = what, time.monotonic()

    def __rich__(self) -> Text:
        from rich.text import Text  # noqa: PLC0415 - an extra

        seconds = int(time.monotonic() - self._since)
        label = self.what + (f" ({seconds} s)" if seconds else "")
        return Text(label, style="dim", no_wrap=True, overflow="ellipsis")


_SHOWN_AFTER = 1.0
"""Seconds after which an activity is shown."""


class Waiting:
    """Prints one line on stderr if an activity takes more than a second.

    The line stays: erasing an animated line would also erase output of the app in the same terminal. A thread
    prints it, because the activity may block the main thread, as an import does.

    Args:
        what: the activity, such as "loading litellm".
        piped: whether to print it also if stderr is not a terminal.
    """

    def __init__(self, what: str, *, piped: bool = False) -> None:
        self._what = what
        self._piped = piped
        self._timer = threading.Timer(_SHOWN_AFTER, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Waiting:
        if self._piped or sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def change(self, what: str) -> None:
        """Change the activity, if the line was not printed yet."""
        self._what = what

    def close(self) -> None:
        """Print nothing from now on. Safe to call twice."""
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()

    def _show(self) -> None:
        sys.stderr.write(f"{self._what} ...\n")
        sys.stderr.flush()


_FLAGS = 3
"""The index of the local flags in the result of ``termios.tcgetattr``."""


@contextmanager
def _without_echo() -> Generator[None]:
    """Turn off the echo of input. Typed input is not lost: the next read returns it."""
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


def drop_typed_text() -> None:
    """Drop the text that was typed into a terminal so far: it is not the answer to a later question."""
    if sys.stdin.isatty() and importlib.util.find_spec("termios"):
        termios: Any = importlib.import_module("termios")
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def enable_line_editing() -> None:
    """Let the user edit input and return to earlier lines, if Python has readline."""
    if importlib.util.find_spec("readline"):
        importlib.import_module("readline")


MARKS = {"call": ">", "answer": "<", "handoff": "=>", "question": "?", "problem": "!", "info": "-"}
"""The sign in front of each kind of note."""


class PlainScreen:
    """Writes lines. The name of the speaker is before each message.

    Args:
        out: the stream to write to.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._label = ""
        self._in_line = False
        self._waiting: Waiting | None = None

    @contextmanager
    def busy(self) -> Generator[None]:
        """Print the activity on stderr if there is no output for a second."""
        with Waiting("") as self._waiting:
            try:
                yield
            finally:
                self.end_text()

    def set_activity(self, what: str) -> None:
        """Set the current activity."""
        if self._waiting is not None:
            self._waiting.change(bounded(what, 80))

    def set_speaker(self, name: str) -> None:
        """Set the name of the speaker."""
        self.end_text()
        self._label = bounded(name, 80)

    def add_text(self, text: str) -> None:
        """Write a piece of the speaker's message."""
        text = escape_control(text)
        if not self._in_line:
            text = text.lstrip("\n")
            if not text:
                return
            self._write(f"{self._label}: ")
            self._in_line = True
        self._write(text)

    def end_text(self) -> None:
        """End the message."""
        if self._in_line:
            self._write("\n")
        self._in_line = False

    def show_note(self, note: Note) -> None:
        """Write an event as a line."""
        self.print_line(f"  {MARKS[note.kind]} {note.text}")

    def print_line(self, text: str = "") -> None:
        """Write a line."""
        self.end_text()
        self._write(f"{escape_control(text)}\n")

    def ask(self, prompt: str) -> str:
        """Return the next line of stdin. It is written to the output if the terminal does not echo it."""
        if sys.stdin.isatty() and self._out.isatty():
            return input(f"{prompt}: ").strip()
        text = sys.stdin.readline()
        if not text:
            raise EOFError
        self.print_line(f"{prompt}: {text.strip()}")
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
"""Characters from which a block is checked for settled parts only after it has grown by a quarter."""


class RichScreen:
    """Shows a conversation in a terminal.

    The message is drawn again as it grows. The drawn part is never higher than the terminal, because rich
    could not draw over it. Settled blocks are printed above it. Of a block that is too high, only the end is
    drawn until the block is printed.

    Args:
        console: a console of rich; None makes one for stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console  # noqa: PLC0415 - an extra

        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._open = ""
        """The part of the message that was not printed yet."""
        self._due = 0
        """The length at which that part is checked for settled blocks."""
        self._in_message = False
        """Whether a part of the message was printed."""
        self._colours: dict[str, str] = {}
        self._busy = False
        self._activity = _Activity()
        self._live: Live | None = None
        self._status: Status | None = None

    @contextmanager
    def busy(self) -> Generator[None]:
        """Draw the growing message, or the current activity."""
        self._busy, self._activity = True, _Activity()
        with _without_echo():
            try:
                self._draw_activity()
                yield
            finally:
                self._busy = False
                try:
                    self.end_text()
                finally:  # otherwise the cursor would stay hidden
                    self._clear()

    def set_activity(self, what: str) -> None:
        """Set the current activity."""
        self._activity.change(bounded(what, 80))

    def set_speaker(self, name: str) -> None:
        """Set the name of the speaker."""
        self.end_text()
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._print(bounded(name, 80), f"bold {colour}")

    def add_text(self, text: str) -> None:
        """Show a piece of the speaker's message."""
        self._open += escape_control(text)
        if "\n" in text and len(self._open) >= self._due and self._is_high():
            self._print_settled()
        if self._busy and self._live is None and self._open.strip():
            self._draw_message()

    def end_text(self) -> None:
        """Print the rest of the message."""
        left, self._open, self._due = self._open, "", 0
        if left.strip():
            self._print_part(left)
        self._in_message = False
        if self._busy and self._status is None:
            self._draw_activity()

    def show_note(self, note: Note) -> None:
        """Print a line about an event."""
        self.end_text()
        mark, style = _LOOKS[note.kind]
        self._print(f"{mark}{note.text}", style, indent=2)

    def print_line(self, text: str = "") -> None:
        """Print a line."""
        self.end_text()
        self._print(escape_control(text), "dim")

    def ask(self, prompt: str) -> str:
        """Return the input of the user."""
        self._console.print()
        bold, normal = ("\1\x1b[1m\2", "\1\x1b[0m\2") if "readline" in sys.modules else ("", "")
        return input(f"{bold}{prompt}>{normal} ").strip()  # not rich's prompt, which readline would overwrite

    def _print(self, text: str, style: str, *, indent: int = 0) -> None:
        from rich.padding import Padding  # noqa: PLC0415 - an extra
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Padding(Text(text, style=style), (0, 0, 0, indent), expand=False))

    def _is_high(self) -> bool:
        """Return whether the open part takes half of the terminal, or more."""
        rows = self._open.count("\n") + len(self._open) // self._console.width
        return rows >= self._console.height // 2

    def _print_settled(self) -> None:
        """Print the settled blocks above the growing one."""
        from routelock.cli.markdown import settled  # noqa: PLC0415 - it needs an extra

        if end := settled(self._open):
            done, self._open = self._open[:end], self._open[end:]
            self._print_part(done)
        self._due = len(self._open) * 5 // 4 if len(self._open) >= _LONG else 0

    def _print_part(self, text: str) -> None:
        """Print a part of the message in place of the drawn part."""
        from routelock.cli.markdown import lines  # noqa: PLC0415 - it needs an extra

        printed = lines(self._console, text, gap=self._in_message)
        self._in_message = True
        with self._console:  # at once, so that nothing flickers
            self._clear()  # rich's thread must not draw between two steps of printing
            self._console.print(printed)

    def _draw_activity(self) -> None:
        """Draw the current activity."""
        self._clear()
        self._status = self._console.status(self._activity)
        self._status.start()

    def _draw_message(self) -> None:
        """Draw the growing message."""
        from rich.live import Live  # noqa: PLC0415 - an extra

        self._clear()
        self._live = Live(
            console=self._console, get_renderable=self._growing, refresh_per_second=10, transient=True
        )
        self._live.start(refresh=True)

    def _clear(self) -> None:
        """Stop drawing, and flush output of tools without a line end, which rich would drop."""
        display, streams = self._live or self._status, (sys.stdout, sys.stderr)
        self._live = self._status = None
        if display is not None:
            display.stop()
            for each in streams:
                each.flush()

    def _growing(self) -> RenderableType:
        """Return the growing part, at most as high as the terminal."""
        from routelock.cli.markdown import last_lines  # noqa: PLC0415 - it needs an extra

        return last_lines(self._console, self._open, max(self._console.height - 3, 1), gap=self._in_message)
