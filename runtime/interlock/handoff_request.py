"""What a tool returns to hand the conversation over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import from_json, to_json

from interlock.errors import ConfigError

__all__ = ["HandoffRequest", "recordable"]


@dataclass(frozen=True, slots=True)
class HandoffRequest:
    """Asks the run to hand over; it does so when a tool's function returns one.

    Only code can make one. Text that looks like one, from a tool, a model or a user, is text (feature
    rows 4-08 and 4-09).

    Args:
        target: a handler of the agent, an agent that it may hand over to, or any other agent of the
            run, by name; or the `interlock.Handler` or `interlock.Agent` itself.
        input: given to the target: a handler finds it as ``Request.handoff_input``.
        reason: why; it is on the record.
        message: answers the tool call; ``{"assistant": "<target>"}`` when left out.
    """

    target: Any
    input: Any = None
    reason: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        if not self.target_name:
            raise ConfigError(
                f"A HandoffRequest names a handler or an agent, or is given it, not {self.target!r:.80}."
            )

    @property
    def target_name(self) -> str:
        """The name of the target; empty when it has none."""
        name: object = self.target if isinstance(self.target, str) else getattr(self.target, "name", None)
        return name if isinstance(name, str) else ""

    @property
    def answer(self) -> str:
        """What answers the tool call once the transfer is made."""
        made = json.dumps({"assistant": self.target_name}, ensure_ascii=False)
        return made if self.message is None else self.message

    def envelope(self) -> dict[str, Any]:
        """Return the request as JSON data, with the target by its name."""
        return {
            "target": self.target_name,
            "input": recordable(self.input),
            "reason": self.reason,
            "message": self.message,
        }

    @classmethod
    def from_envelope(cls, envelope: Mapping[str, Any]) -> HandoffRequest:
        """Return the request that `envelope` was made from."""
        return cls(**cast("dict[str, Any]", envelope))


def recordable(value: object) -> Any:
    """Return a value as JSON data, for a journal. What has no JSON form becomes text, never an error."""
    try:
        return from_json(to_json(value, fallback=str, inf_nan_mode="strings"))
    except ValueError:  # it refers to itself, or is no proper text
        return repr(value)
