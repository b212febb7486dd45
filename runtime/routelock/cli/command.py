"""What a subcommand is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand: `routelock.cli` lists it, and gives it what was typed after its name."""

    name: str
    help: str
    """One sentence, for the list of all commands and for the top of its own help."""
    declare: Callable[[argparse.ArgumentParser], None]
    """Adds its arguments."""
    run: Callable[[argparse.Namespace], int]
    """Carries it out and returns an exit code, see `routelock.cli.exit_codes`.

    What it raises becomes one line on stderr.
    """
    more: str = ""
    """What else its help says, below the arguments: examples, as they are typed."""
