"""The notebook view of a result: graph, usage and messages.

The HTML has no scripts, links or style sheets. Texts of users, models and tools are escaped and cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from routelock._text import dollars, escape_control
from routelock.agents.graph import outline_of
from routelock.agents.svg import outline_svg
from routelock.history.content import media_of
from routelock.history.messages import RunItem, calls_of, text_of
from routelock.run.result import RunResult

__all__ = ["result_html"]


_MOST_ROWS, _MOST_LETTERS = 200, 2000

_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap;overflow-wrap:break-word"

_WHO, _WHAT = f"{_CELL};min-width:7em;max-width:16em", f"{_CELL};width:100%;max-width:60em"


def result_html(result: RunResult[Any]) -> str:
    """Return a result as HTML, for ``RunResult._repr_html_``.

    The view begins with the last message of the input. It shows the beginning of long texts and the end of
    very long runs; ``result.items`` has everything.
    """
    first = max(result.input_count - 1, len(result.items) - _MOST_ROWS, 0)
    rows = [_row(item) for item in result.items[first:]]
    if first > max(result.input_count - 1, 0):
        rows.insert(0, _cells("", f"({first} items before)"))
    rows += [
        _cells("waits", f"for approval of {each.name}({each.arguments}) by {each.agent}")
        for each in result.interruptions
    ]
    rows += [_cells("problem", f"{each.agent}: {each.message}") for each in result.errors]
    rows += [_cells("warning", each) for each in result.warnings]
    return f"<div><p>{_head(result)}</p>{_picture(result)}<table>{''.join(rows)}</table></div>"


def _head(result: RunResult[Any]) -> str:
    usage, turns = result.usage, len(result.calls)
    parts = (
        _shown(result.last_agent.name),
        f"{turns} turn{'s' * (turns != 1)}",
        f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out",
        "cost unknown" if usage.cost is None else dollars(usage.cost),
    )
    return f"<b>{escape(result.stop_reason)}</b>: {', '.join(parts)}"


def _picture(result: RunResult[Any]) -> str:
    """Return the graph of the next run as SVG; empty if it has one agent only."""
    outline = outline_of(result.next_agent)
    used = [(each.source, each.target) for each in result.handoffs if each.taken]
    return outline_svg(outline, active=result.last_agent.name, used=used) if len(outline.nodes) > 1 else ""


def _row(item: RunItem) -> str:
    media = (f"({part['type']})" for part in media_of(item.message.get("content")))
    said = [text_of(item.message), item.message.get("refusal"), *media, *_calls(item)]
    return _cells(item.agent or item.message["role"], "\n".join(filter(None, said)), item.kind)


def _calls(item: RunItem) -> Iterator[str]:
    for call in calls_of(item.message):
        function = call["function"]
        yield f"{function['name']}({function['arguments']})"


def _cells(who: str, what: str, kind: str = "") -> str:
    small = f"<br><small>{escape(kind)}</small>" if kind else ""
    return f'<tr><th style="{_WHO}">{_shown(who)}{small}</th><td style="{_WHAT}">{_shown(what)}</td></tr>'


def _shown(text: str) -> str:
    cut = text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
    return escape(escape_control(cut))
