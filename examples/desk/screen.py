"""The screen: a chat as text, for terminals and for pipes."""

from __future__ import annotations

import json
import os
import re
import shutil
import textwrap
import time
from collections.abc import Iterable
from typing import Any, TextIO, cast

from routelock import RunEvent, RunResult, Usage
from routelock.handlers import AttemptFailed, MessageDone, TextDelta
from routelock.run import (
    AgentUpdated,
    HandoffFailed,
    HandoffRequested,
    Repaired,
    ToolCalled,
    ToolOutput,
)

__all__ = ["Screen", "one_line"]

MARGIN = 11
"""Width of the column of names."""

BOLD, DIM = "1", "2"


class Screen:
    """Prints a conversation: who speaks in the left column, what is said and done in the right one.

    Args:
        out: where to. Only a terminal gets colours, and none if NO_COLOR is set.
        pace: seconds to wait after each word in a terminal, since a recorded reply comes all at once.
    """

    def __init__(self, out: TextIO, *, pace: float = 0.0) -> None:
        terminal = out.isatty()
        self._out = out
        self._colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._width = max(40, min(100, shutil.get_terminal_size().columns - 1)) if terminal else 100
        self._pace = pace if terminal else 0.0
        self._label = ""  # the name that the next line begins with
        self._column = 0  # 0: at the beginning of a line
        self._word = ""  # the last word, as long as it may grow

    def show(self, event: RunEvent) -> None:
        """Show what happens in a run."""
        match event:
            case AgentUpdated(agent=name):
                self.speaker(name)
            case TextDelta(text=text):
                self.say(text)
            case MessageDone():
                self.end_line()
            case _ if note := _note(event):
                self.note(note)
            case _:
                pass

    def speaker(self, name: str) -> None:
        """Name who speaks from now on."""
        self.end_line()
        self._label = name

    def say(self, text: str) -> None:
        """Print a piece of what is said. A word is held back until it is whole."""
        for part in re.split(r"(\s)", _printable(text)):
            if part == "\n":
                self.end_line()
            elif part.isspace():
                self._put_word()
            else:
                self._word += part

    def note(self, text: str) -> None:
        """Print a line or two about what happens."""
        self.end_line()
        text = textwrap.shorten(_printable(text), 400, placeholder=" ...")
        for line in textwrap.wrap(text, self._width - MARGIN, subsequent_indent="  "):
            self._begin_line()
            self._write(f"{self._styled(line, DIM)}\n")
            self._column = 0

    def line(self, text: str = "") -> None:
        """Print a line of our own."""
        self.end_line()
        self._write(f"{textwrap.fill(text, self._width)}\n")

    def end_line(self) -> None:
        """Finish the word and the line."""
        self._put_word()
        if self._column:
            self._write("\n")
        self._column = 0

    def prompt(self, name: str) -> str:
        """Return what stands before a line that is typed."""
        self.end_line()
        return self._styled(f"{name:<{MARGIN}}", BOLD)

    def totals(self, results: Iterable[RunResult]) -> None:
        """Print the tokens of each agent, and what they cost altogether."""
        by_agent: dict[str, Usage] = {}
        for result in results:
            for name, usage in result.usage_by_agent.items():
                by_agent[name] = by_agent.get(name, Usage()) + usage
        total = sum(by_agent.values(), Usage())
        self.line(f"{'':<{MARGIN}}{'calls':>7}{'tokens in':>12}{'tokens out':>12}")
        for name, usage in {**by_agent, "total": total}.items():
            self.line(
                f"{name:<{MARGIN}}{usage.requests:>7}{usage.input_tokens:>12,}{usage.output_tokens:>12,}"
            )
        unknown = "unknown, this model has no known price"
        cost = unknown if total.cost is None else f"${total.cost:.4f}"
        self.line(f"{'cost':<{MARGIN}}{cost}")

    def _put_word(self) -> None:
        word, self._word = self._word, ""
        if not word:
            return
        if self._column + 1 + len(word) > self._width:
            self.end_line()
        gap = " " if self._column else ""
        self._begin_line()
        self._write(gap + word)
        self._column += len(gap + word)
        time.sleep(self._pace)  # holds up the event loop, which has nothing else to do in a replay

    def _begin_line(self) -> None:
        if not self._column:
            label, self._label = self._label, ""
            self._write(self._styled(f"{label:<{MARGIN}}", BOLD))
            self._column = MARGIN

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and text.strip() else text


def _note(event: RunEvent) -> str | None:
    match event:
        case ToolCalled(name=name, arguments=arguments):
            return f"> {name}({_arguments(arguments)})"
        case ToolOutput(name=name, output=output, error=error):
            return f"! {output}" if error else f"< {name}: {_result(output)}"
        case HandoffRequested(target=target, arguments=arguments):
            return f"=> {target}({_arguments(arguments)})".removesuffix("()")
        case HandoffFailed(target=target, reason=reason):
            return f"! not handed over to {target}: {reason}"
        case AttemptFailed(error=error, delay=delay):
            return f"! {one_line(error)} (trying again in {delay:.1f} s)"
        case Repaired(repair=repair):
            return f"! repaired: {repair}"
        case _:
            return None


def one_line(error: BaseException) -> str:
    """Return what an error says, on one line."""
    return " ".join(_printable(str(error)).split()) or type(error).__name__


def _arguments(text: str) -> str:
    """Return JSON arguments as Python would write them; text that is not JSON is unchanged."""
    try:
        values: object = json.loads(text or "{}")
    except ValueError:
        return text
    if not isinstance(values, dict):
        return text
    named = cast("dict[str, Any]", values)
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in named.items())


def _result(text: str) -> str:
    """Return rows of the database as people would write them; text that is not JSON is unchanged."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    rows = cast("list[object]", value) if isinstance(value, list) else [value]
    if not all(isinstance(row, dict) for row in rows):
        return text
    return "; ".join(", ".join(map(str, cast("dict[str, Any]", row).values())) for row in rows) or "nothing"


def _printable(text: str) -> str:
    """Return the text without characters that could move the cursor or hide something in a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "", text)
