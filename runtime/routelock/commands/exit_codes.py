"""How a command ends, for scripts."""

from __future__ import annotations

__all__ = ["explained"]

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
