"""Thoughts in replies of litellm: written into the text between tags, or repeated in a stream."""

from __future__ import annotations

from typing import Any

__all__ = ["LeadingThought", "RepeatedThoughts"]


_OPENING: tuple[str, ...] = ("<think>", "<thinking>", "<budget:thinking>")

_CLOSING: tuple[str, ...] = ("</think>", "</thinking>", "</budget:thinking>")


class LeadingThought:
    """Moves a thought at the beginning of a text to the reasoning.

    litellm does so for whole replies only, and only if the thought has an end. A streamed reply has to equal
    a whole one.
    """

    def __init__(self) -> None:
        self._tags = _OPENING
        """The tags that would end the current part; none after the text has begun."""
        self._held = ""
        """Text that may be the beginning of a tag."""

    def move(self, delta: dict[str, Any]) -> None:
        """Change the delta so that its content holds text and its reasoning content the thought."""
        if self._tags is _OPENING and (delta.get("reasoning_content") or delta.get("reasoning")):
            # this vendor separates thoughts from text itself
            delta |= {key: held + (delta.get(key) or "") for key, held in self.rest().items()}
        content: object = delta.get("content")
        if not self._tags or not isinstance(content, str) or not content:
            return
        thought, text = self._split(self._held + content)
        delta["content"] = text
        if thought:
            delta["reasoning_content"] = thought

    def move_all(self, message: dict[str, Any]) -> None:
        """Move the thought at the beginning of a whole message to its reasoning."""
        self.move(message)
        message |= {key: (message.get(key) or "") + held for key, held in self.rest().items()}

    def rest(self) -> dict[str, str]:
        """Return, as a delta, the text that was held back."""
        key = "content" if self._tags is _OPENING else "reasoning_content"
        held, self._held, self._tags = self._held, "", ()
        return {key: held} if held else {}

    def _split(self, text: str) -> tuple[str, str]:
        self._held = ""
        if self._tags is _OPENING:
            found = next((tag for tag in _OPENING if text.startswith(tag)), None)
            if found is None:
                if any(tag.startswith(text) for tag in _OPENING):
                    self._held = text
                    return "", ""
                self._tags = ()
                return "", text
            self._tags, text = _CLOSING, text.removeprefix(found)
        return self._until_closed(text)

    def _until_closed(self, text: str) -> tuple[str, str]:
        places = [(place, tag) for tag in _CLOSING if (place := text.find(tag)) >= 0]
        if places:
            self._tags = ()
            place, tag = min(places)
            return text[:place], text[place + len(tag) :]
        start = text.rfind("<")
        if start >= 0 and any(tag.startswith(text[start:]) for tag in _CLOSING):
            text, self._held = text[:start], text[start:]
        return text, ""


class RepeatedThoughts:
    """Removes from the deltas of one stream the thoughts that they repeat.

    The delta with the signature of a thought also holds its whole text, and each delta holds its thinking
    blocks in two places. Joined as they are, the thought would be twice as long as the text that was signed,
    and Anthropic refuses it when it is sent back.
    """

    def __init__(self) -> None:
        self._thought = ""

    def remove(self, delta: dict[str, Any]) -> None:
        """Remove from a delta the thoughts that it holds twice, or that an earlier delta held."""
        blocks: list[dict[str, Any]] = delta.get("thinking_blocks") or []
        if not blocks:
            return
        second_place: dict[str, Any] = delta.get("provider_specific_fields") or {}
        second_place.pop("thinking_blocks", None)
        for block in blocks:
            if not block.get("signature"):
                self._thought += block.get("thinking") or ""
                continue
            if block.get("thinking") == self._thought:
                block["thinking"] = ""
            self._thought = ""
