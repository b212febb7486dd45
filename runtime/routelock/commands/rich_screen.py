"""A conversation in a terminal, with rich: colours, Markdown, and a line that shows what is going on.

Only what cannot change any more is printed for good, block by block. What is still being written is shown
below it and painted over ten times in a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from routelock._text import inert
from routelock.commands.blocks import Blocks
from routelock.commands.keyboard import unseen
from routelock.commands.notes import Note
from routelock.commands.words import bounded

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.segment import Segment

__all__ = ["RichScreen"]

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
        for block in self._blocks.feed(inert(text)):
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
        self._print(inert(text), "dim")

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
