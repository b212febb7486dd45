"""How one tool call ended: as an object here, and as JSON for an executor that records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Literal

from routelock._records import maker, record
from routelock.handoff_request import HandoffRequest
from routelock.usage import Usage

__all__ = ["OUTCOME", "ToolErrorKind", "ToolOutcome"]

ToolErrorKind = Literal["arguments", "raised", "timeout", "output", "guardrail", "not_run", "cancelled"]
"""Why a call has no proper result: the model's arguments did not fit and nothing ran; the tool
raised; it took too long; it ran and what it returned cannot be shown as text; a guardrail of the tool
objected, before or after; or another call of the same reply ended the run, before this one was begun or
before it was done."""


@record(frozen=True, slots=True)
class ToolOutcome:
    """How one call ended. There is always an ``output``: the text that answers the call."""

    output: str
    error: ToolErrorKind | None = None
    """None when the tool did what it was asked."""
    usage: Usage | None = None
    handoff: HandoffRequest | None = None
    """What the function returned, if that asks for a handoff; ``output`` is the answer once it is made."""
    media: Sequence[Mapping[str, Any]] = ()
    """Parts of a chat message that belong to the ``output``: images, sound, files."""
    exception: BaseException | None = field(default=None, compare=False)
    """What was raised; only in the process where it happened."""
    value: Any = field(default=None, compare=False)
    """What the function returned; only in the process where it happened."""

    def envelope(self) -> dict[str, Any]:
        """Return the outcome as JSON data: ``{"ok": {...}}`` or ``{"err": {...}}``."""
        if self.error is not None:
            failed = {"type": self.error, "message": self.output, "retryable": False}
            return {"err": failed | ({"usage": asdict(self.usage)} if self.usage else {})}
        made: dict[str, Any] = {"output": self.output, "usage": asdict(self.usage) if self.usage else None}
        if self.media:
            made["media"] = list(self.media)
        if self.handoff is not None:
            made["handoff"] = self.handoff.envelope()
        return {"ok": made}

    @classmethod
    def from_envelope(cls, envelope: Mapping[str, Any]) -> ToolOutcome:
        """Return the outcome that `envelope` was made from, without the Python objects."""
        if "err" in envelope:
            failed: Mapping[str, Any] = envelope["err"]
            usage = Usage(**failed["usage"]) if failed.get("usage") else None
            return cls(failed["message"], error=failed["type"], usage=usage)
        made: Mapping[str, Any] = envelope["ok"]
        asked: Mapping[str, Any] | None = made.get("handoff")
        return cls(
            made["output"],
            usage=Usage(**made["usage"]) if made["usage"] else None,
            handoff=HandoffRequest.from_envelope(asked) if asked else None,
            media=made.get("media", ()),
        )


OUTCOME = maker(ToolOutcome)
"""Makes those of a run."""

_NOT_KNOWN = "Whether it had an effect is not known. Find out first, if that matters."
NOT_RUN = ToolOutcome(
    "This call was not made, because another call of the same reply ended the run before.", error="not_run"
)
CUT_OFF = ToolOutcome(
    f"This call was cancelled, because another call of the same reply ended the run. {_NOT_KNOWN}",
    error="cancelled",
)
LOST = ToolOutcome(
    f"Another call of the same reply ended the run before this one was recorded. {_NOT_KNOWN}",
    error="cancelled",
)
"""The outcomes of calls beside one that ended the run."""
