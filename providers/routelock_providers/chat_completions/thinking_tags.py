"""Thoughts that a model writes into its text, between tags at the very beginning."""

from __future__ import annotations

from typing import Any

__all__ = ["LeadingThought"]


_OPENING: tuple[str, ...] = ("<think>", "<thinking>", "<budget:thinking>")

_CLOSING: tuple[str, ...] = ("</think>", "</thinking>", "</budget:thinking>")


class LeadingThought:
    """Moves a thought at the head of a text to the reasoning, where it belongs.

    litellm does so for whole replies alone, not for streams, and only where the thought has an end. A reply
    is to be the same either way.
    """

    def __init__(self) -> None:
        self._tags = _OPENING
        """The tags that would end what is being written now; none when the text has begun."""
        self._held = ""

    def move(self, delta: dict[str, Any]) -> None:
        """Change the delta so that its content holds text and its reasoning content the thought."""
        if self._tags is _OPENING and (delta.get("reasoning_content") or delta.get("reasoning")):
            # this vendor tells thoughts from text by itself
            delta |= {key: held + (delta.get(key) or "") for key, held in self.rest().items()}
        content: object = delta.get("content")
        if not self._tags or not isinstance(content, str) or not content:
            return
        thought, text = self._split(self._held + content)
        delta["content"] = text
        if thought:
            delta["reasoning_content"] = thought

    def move_all(self, message: dict[str, Any]) -> None:
        """Do so in a whole message."""
        self.move(message)
        message |= {key: (message.get(key) or "") + held for key, held in self.rest().items()}

    def rest(self) -> dict[str, str]:
        """Return, as a delta, what was held back because it looked like the beginning of a tag."""
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
