"""The agents and the tool that all contenders share, and what a contender is.

A contender answers ``text`` with the final text, or with the number of deltas it showed. ``s1`` is one
answer, ``s2`` one call of a tool and an answer, ``s3`` triage, a transfer, a call, an answer; ``s2`` also
makes the long runs.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = [
    "ANSWER",
    "KEY",
    "LOOKUP",
    "MODEL",
    "OUTPUT",
    "SPECIALIST",
    "TRANSFER",
    "TRIAGE",
    "Contender",
    "lookup",
]

MODEL = "gpt-4o-mini"
KEY = "no-key-is-needed"
ANSWER = "The answer is 42."
TRIAGE = "You are the triage agent. Hand over to the specialist whenever something has to be looked up."
SPECIALIST = "You are the specialist. Use the lookup tool, then answer."
OUTPUT = "value: 42; " + "all work and no play makes a dull boy " * 5
"""What the tool gives: 200 bytes or so."""

_KEY_ONLY = {
    "type": "object",
    "properties": {"key": {"type": "string"}},
    "required": ["key"],
    "additionalProperties": False,
}
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
LOOKUP = {
    "type": "function",
    "function": {"name": "lookup", "description": "Look up the value of a key.", "parameters": _KEY_ONLY},
}
TRANSFER = {
    "type": "function",
    "function": {
        "name": "transfer_to_specialist",
        "description": "Hand over to the specialist, who looks things up.",
        "parameters": _NOTHING,
    },
}


async def lookup(key: str) -> str:
    """Look up the value of a key."""
    return OUTPUT


class Contender(Protocol):
    """One way to run the scenarios. It is made once, in an interpreter of its own."""

    async def s1(self, text: str) -> Any:
        """One model call."""

    async def s2(self, text: str) -> Any:
        """As many calls of the tool as the text says, one after another, and an answer."""

    async def s3(self, text: str) -> Any:
        """A transfer, a call, an answer."""

    async def stream(self, text: str) -> Any:
        """Read one streamed answer, delta by delta, and return how many there were."""

    async def aclose(self) -> None:
        """Close connections."""
