"""The command line: ``interlock chat module:agent``, and the other commands of `interlock.commands`."""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, cast

from interlock.commands.cassettes import record_command, replay_command
from interlock.commands.chat import chat_command
from interlock.commands.command import Command
from interlock.commands.dev import dev_command
from interlock.commands.doctor import doctor_command
from interlock.commands.exit_codes import FAILED, INTERRUPTED, PIPE_CLOSED, WRONG, explained
from interlock.commands.graph import graph_command
from interlock.commands.run import run_command
from interlock.commands.serve import serve_command
from interlock.commands.trace import trace_command
from interlock.commands.words import told
from interlock.errors import ConfigError

if TYPE_CHECKING:
    _Adds = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]

__all__ = ["main"]

_COMMANDS: tuple[Command, ...] = (
    chat_command,
    run_command,
    serve_command,
    dev_command,
    graph_command,
    record_command,
    replay_command,
    trace_command,
    doctor_command,
)
"""In the order of the help. A new command is a module of `interlock.commands` and its place here."""

_PATIENCE = 0.2
"""Seconds for a thread that is about to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line and return its exit code, see `interlock.commands.exit_codes`.

    Args:
        arguments: without the program's name; None takes those of the process.
    """
    before = set(threading.enumerate())
    code = _carry_out(arguments)
    _leave_behind(set(threading.enumerate()) - before, code)
    return code


def _carry_out(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        _never_fail(stream)
    given, unknown = _parser().parse_known_args(arguments)
    if unknown:
        given.refuse(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        return cast(int, given.run(given))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # as in `interlock ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        if given.verbose:
            traceback.print_exception(error)
        sys.stderr.write(f"interlock: {told(error)}\n")
        return WRONG if isinstance(error, ConfigError) else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="interlock",
        description="Agents on the command line.",
        epilog=f"Each command has its own help: interlock chat --help\n\nexit codes:\n{explained()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"interlock {_version()}")
    commands = parser.add_subparsers(required=True, metavar="command", title="commands")
    for each in _COMMANDS:
        _add(commands, each)
    return parser


def _add(commands: _Adds, each: Command) -> None:
    command = commands.add_parser(
        each.name,
        help=each.help,
        description=each.help,
        epilog=each.more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    each.declare(command)
    command.add_argument("--verbose", action="store_true", help="show where an error comes from")
    command.set_defaults(run=each.run, refuse=command.error)  # with the usage of what was asked for


def _version() -> str:
    try:
        return version("interlock")
    except PackageNotFoundError:  # a checkout on the Python path
        return "(not installed)"


def _leave_behind(threads: Iterable[threading.Thread], code: int) -> None:
    """End the process if a tool that was cancelled still runs: Python would wait for its thread."""
    for thread in threads:
        thread.join(_PATIENCE)
    if any(thread.is_alive() and not thread.daemon for thread in threads):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _never_fail(stream: object) -> None:
    """Let a stream spell out what its encoding does not have, rather than end the program."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
