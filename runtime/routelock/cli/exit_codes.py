"""What the command line exits with."""

from __future__ import annotations

from routelock.errors import ConfigError

__all__ = ["code_of", "explained"]

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


def code_of(error: Exception) -> int:
    """Return the exit code for an error that ends a command."""
    return WRONG if isinstance(error, ConfigError) else FAILED
