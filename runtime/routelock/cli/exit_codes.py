"""The exit codes of the command line."""

from __future__ import annotations

from routelock.errors import ConfigError

__all__ = ["code_of", "exit_code_help"]

DONE = 0

FAILED = 1

WRONG = 2

WAITS = 3

INTERRUPTED = 130

PIPE_CLOSED = 141

_MEANINGS = {
    DONE: "success",
    FAILED: "failure of a run: the model, a tool, a limit, a file",
    WRONG: "wrong arguments or agents, or a missing extra",
    WAITS: "the run waits for an approval or for a result of an external tool",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "the reader of the output has closed the pipe",
}


def exit_code_help() -> str:
    """Return the meaning of each exit code, one per line."""
    return "".join(f"  {code:<4} {meaning}\n" for code, meaning in _MEANINGS.items())


def code_of(error: Exception) -> int:
    """Return the exit code for an error that ends a command."""
    return WRONG if isinstance(error, ConfigError) else FAILED
