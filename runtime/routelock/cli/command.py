"""What a subcommand is, and the exit codes of all of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Command", "explained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand: `routelock.cli` lists it, and gives it what was typed after its name."""

    name: str
    help: str
    """One sentence, for the list of all commands and for the top of its own help."""
    declare: Callable[[argparse.ArgumentParser], None]
    """Adds its arguments."""
    run: Callable[[argparse.Namespace], int]
    """Carries it out and returns an exit code, see `routelock.cli.command`.

    What it raises becomes one line on stderr.
    """
    more: str = ""
    """What else its help says, below the arguments: examples, as they are typed."""


DONE = 0

FAILED = 1

WRONG = 2

WAITS = 3

INTERRUPTED = 130

PIPE_CLOSED = 141

_MEANINGS = {
    DONE: "it is done",
    FAILED: "it began and failed: the model, a tool, a limit, a file",
    WRONG: "it cannot be done as it was asked for: the arguments, the agents, a missing extra",
    WAITS: "the run waits for an answer that only its caller can give",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "whoever read the output has left",
}


def explained() -> str:
    """Return what each exit code means, a line each."""
    return "".join(f"  {code:<4} {meaning}\n" for code, meaning in _MEANINGS.items())
