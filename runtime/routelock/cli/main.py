"""The command line: ``routelock chat module:agent``, and the other commands of `routelock.cli`."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

from routelock.cli.exit_codes import INTERRUPTED, PIPE_CLOSED, code_of, exit_code_help
from routelock.cli.screen import error_line

if TYPE_CHECKING:
    from routelock.cli.command import Command

    _Adds = argparse._SubParsersAction[Any]  # pyright: ignore[reportPrivateUsage]

__all__ = ["main"]


_COMMANDS: Mapping[str, str] = {
    "chat": "chat",
    "run": "run",
    "serve": "serve",
    "mcp": "mcp",
    "dev": "dev",
    "graph": "graph",
    "record": "cassettes",
    "replay": "cassettes",
    "trace": "trace",
    "doctor": "doctor",
}
"""The module of each command, in the order of the help. Only that of the given command is loaded: all of them
take as long as routelock itself."""

_THREAD_END_SECONDS = 0.2
"""How long the end of a thread is waited for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; ``routelock --help`` explains the codes.

    Args:
        arguments: the arguments without the program's name; None takes those of the process.
    """
    before = set(threading.enumerate())
    code = _run_command(arguments)
    _exit_despite_threads(set(threading.enumerate()) - before, code)
    return code


def _run_command(arguments: Sequence[str] | None) -> int:
    _prepare_streams()
    try:
        return _run(arguments)
    except BrokenPipeError:  # as in `routelock ... | head`
        with suppress(OSError):
            _flush()
        return PIPE_CLOSED


def _run(arguments: Sequence[str] | None) -> int:
    given = argparse.Namespace(verbose=False)
    try:
        try:
            given = _parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
            return cast(int, given.run(given))
        finally:  # Python flushes at its end as well, but an error then has no exit code of ours
            _flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        if given.verbose:
            traceback.print_exception(error)
        sys.stderr.write(f"routelock: {error_line(error)}\n")
        return code_of(error)


class _Parser(argparse.ArgumentParser):
    """Refuses unknown arguments itself, so that the usage is that of the subcommand."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  # it is overloaded there
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        given, unknown = super().parse_known_args(args, namespace)
        if len(unknown) == 1 and not unknown[0].startswith("--") and getattr(given, "text", "") is None:
            given.text = unknown.pop()  # argparse leaves `[text]` empty if an option stands before it
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return given, unknown


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the command of these arguments, or with all commands if they name none."""
    parser = _Parser(
        prog="routelock",
        description="Agents on the command line.",
        epilog=f"Each command has its own help: routelock chat --help\n\nexit codes:\n{exit_code_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"routelock {_version()}")
    commands = parser.add_subparsers(required=True, metavar="command", title="commands")
    for name in arguments[:1] if arguments[:1] and arguments[0] in _COMMANDS else _COMMANDS:
        _add(commands, _command(name))
    return parser


def _command(name: str) -> Command:
    module = importlib.import_module(f"routelock.cli.{_COMMANDS[name]}")
    command: Command = getattr(module, f"{name}_command")
    return command


def _add(commands: _Adds, each: Command) -> None:
    command = commands.add_parser(
        each.name,
        help=each.help,
        description=each.help,
        epilog=each.more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    each.declare(command)
    command.add_argument("--verbose", action="store_true", help="show the traceback of an error")
    command.set_defaults(run=each.run)


def _version() -> str:
    try:
        return version("routelock")
    except PackageNotFoundError:  # a checkout on the Python path
        return "(not installed)"


def _exit_despite_threads(threads: Iterable[threading.Thread], code: int) -> None:
    """End the process if a cancelled tool is still running: Python would wait for its thread."""
    for thread in threads:
        thread.join(_THREAD_END_SECONDS)
    if any(thread.is_alive() and not thread.daemon for thread in threads):
        _flush()
        os._exit(code)


def _prepare_streams() -> None:
    """Make sure that the standard streams exist, and escape characters that they cannot decode or encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream: object = getattr(sys, name)
        if stream is None:  # the parent process closed the stream, as in `routelock ... 2>&-`
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Flush the output. If that fails, discard it, because Python would try again at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise
