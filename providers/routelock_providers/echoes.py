"""What litellm says twice in a stream of Claude's thoughts."""

from __future__ import annotations

from typing import Any

__all__ = ["Echoes"]


class Echoes:
    """Takes out of the deltas of one stream what they repeat.

    The delta that brings the signature of a thought brings its whole text again, and each delta has its
    thinking blocks in two places. Put together as they come, the thought would be twice as long as what
    was signed, and Anthropic refuses it when it is sent back.
    """

    def __init__(self) -> None:
        self._thought = ""

    def take_out(self, delta: dict[str, Any]) -> None:
        """Change the delta so that nothing in it was said before."""
        blocks: list[dict[str, Any]] = delta.get("thinking_blocks") or []
        if not blocks:
            return
        elsewhere: dict[str, Any] = delta.get("provider_specific_fields") or {}
        elsewhere.pop("thinking_blocks", None)
        for block in blocks:
            if not block.get("signature"):
                self._thought += block.get("thinking") or ""
                continue
            if block.get("thinking") == self._thought:
                block["thinking"] = ""
            self._thought = ""
