"""A subcommand of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand: its name, help, arguments and function."""

    name: str
    help: str
    """One sentence, for the list of all commands and for its own help."""
    declare: Callable[[argparse.ArgumentParser], None]
    """Adds the arguments of the command to a parser."""
    run: Callable[[argparse.Namespace], int]
    """Runs the command and returns an exit code, see `routelock.cli.exit_codes`.

    An error that it raises is printed as one line on stderr.
    """
    more: str = ""
    """The end of its help: examples."""
