"""Markdown in a terminal, rendered by rich without hiding any text.

A text that still grows is split into finished blocks and one block that grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.segment import Segment, SegmentLines
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

__all__ = ["last_lines", "lines", "settled"]


_Lines: TypeAlias = list[list[Segment]]


_NARROWEST = 6
"""Least characters for each column; a narrower table is printed as lines."""

_MOST_RENDERED = 4000
"""Most characters of a growing text that are rendered as Markdown each time."""


def settled(text: str) -> int:
    """Return how many characters of a growing text are settled: all blocks except the last one."""
    finished = text[: text.rfind("\n") + 1]
    starts = [block[0].map[0] for block in _blocks(finished) if block[0].map]
    return sum(len(row) + 1 for row in finished.split("\n")[: starts[-1]]) if len(starts) > 1 else 0


def lines(console: Console, text: str, *, gap: bool = False) -> SegmentLines:
    """Return Markdown as lines. Line ends stay, HTML tags are text, links and pictures show their addresses.

    Args:
        console: the console, for its width.
        text: Markdown.
        gap: whether an empty line is before it.
    """
    return SegmentLines(_set(console, text, gap), new_lines=True)


def last_lines(console: Console, text: str, most: int, *, gap: bool = False) -> SegmentLines:
    """Return the last lines of a growing text; those of a long text as plain text, which is fast."""
    shown = (
        _set(console, text, gap)
        if len(text) < _MOST_RENDERED
        else _rendered(console, Text(text[-_MOST_RENDERED:]))
    )
    return SegmentLines(shown[-most:], new_lines=True)


def _blocks(text: str) -> list[list[Token]]:
    """Return the tokens of each paragraph, list, table and the like."""
    found: list[list[Token]] = []
    for token in _parser().parse(text):
        if not token.level and token.nesting >= 0:
            found.append([])
        found[-1].append(token)
    return found


def _set(console: Console, text: str, gap: bool) -> _Lines:
    """Return the lines of all blocks, with an empty line between two blocks."""
    page = _Page("", hyperlinks=False, code_theme="ansi_dark")
    shown: _Lines = []
    for block in _blocks(text):
        page.parsed = [_with_hard_breaks(token) for token in block]
        if rendered := _rendered(console, page):
            shown += [[], *rendered] if shown or gap else rendered
    return shown


def _with_hard_breaks(token: Token) -> Token:
    for child in token.children or ():
        if child.type == "softbreak":
            child.type = "hardbreak"
    return token


def _rendered(console: Console, text: RenderableType) -> _Lines:
    """Return the lines of a text without empty lines before and after it."""
    rendered = [_unpadded(line) for line in console.render_lines(text, pad=False)]
    full = [place for place, line in enumerate(rendered) if line]
    return rendered[full[0] : full[-1] + 1] if full else []


def _parser() -> MarkdownIt:
    """Return a parser that hides neither addresses of pictures nor link definitions."""
    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable(["strikethrough", "table"]).disable(["reference", "image"])


class _Table(TableElement):
    """A table that folds texts that are too long for their column."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table) and len(part.columns) * _NARROWEST > options.max_width:
                yield from self._as_lines()
                continue
            for column in part.columns if isinstance(part, Table) else ():
                column.overflow = "fold"  # rich would cut the text off
            yield part

    def _as_lines(self) -> Iterator[Text]:
        head = [self.header.row] if self.header and self.header.row else []
        for row in [*head, *(self.body.rows if self.body else [])]:
            yield Text(" | ").join(cell.content for cell in row.cells)


class _Code(CodeBlock):
    """Code without padding of its own: rich before 14.1 loses letters of long words otherwise."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax(str(self.text).rstrip(), self.lexer_name, theme=self.theme, word_wrap=True)
        yield Padding(code, 1)


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "code_block": _Code,
        "fence": _Code,
        "table_open": _Table,
    }


def _unpadded(line: list[Segment]) -> list[Segment]:
    """Return a line without white space at its end, which makes terminals wrap lines."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    if line:
        return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())]
    return line
