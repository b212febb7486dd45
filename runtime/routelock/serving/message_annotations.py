"""Citations of a run's replies, as annotations of the one text that a client sees.

Chat completions have one kind, ``url_citation``, with an address, a title and a passage, and some clients
refuse a reply with any other. So a citation of a file is left out, and one without a passage stands at the
end of its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from routelock.history.messages import Message, text_of
from routelock.history.vendor_calls import Citation, annotation_of, citations_of

__all__ = ["MessageAnnotations"]


class MessageAnnotations:
    """Collects the annotations of one message, which has the texts of several replies."""

    def __init__(self) -> None:
        self._annotations: list[dict[str, Any]] = []
        self._held: list[Message] = []

    def add(self, reply: Message, start: int, end: int, *, skipped: int = 0) -> None:
        """Add the citations of a reply.

        Args:
            reply: the reply.
            start: where its text begins in the message.
            end: where its text ends in the message.
            skipped: the characters at the beginning of its text that the message does not have.
        """
        self._annotations += [
            annotation_of(_placed(each, start - skipped, start, end)) for each in _pages(reply)
        ]

    def hold(self, reply: Message) -> None:
        """Keep a reply whose text is held."""
        if _pages(reply):
            self._held.append(reply)

    def add_held(self, text: str, start: int, end: int) -> None:
        """Add the citations of the first held reply that has a text, which was sent now."""
        for place, reply in enumerate(self._held):
            if text and (found := text_of(reply).find(text)) >= 0:
                self.add(self._held.pop(place), start, end, skipped=found)
                return

    def deltas(self) -> list[dict[str, Any]]:
        """Return one delta with the annotations since the last call; no delta if there are none."""
        added, self._annotations = self._annotations, []
        return [{"annotations": added}] if added else []


def _pages(reply: Message) -> Sequence[Citation]:
    return [each for each in citations_of(reply) if each.url]


def _placed(citation: Citation, origin: int, first: int, last: int) -> Citation:
    """Return a citation with a title, and with its passage in the message."""
    start, end = citation.start, citation.end
    if start is None or end is None:
        start = end = last
    else:
        start, end = (min(max(origin + each, first), last) for each in (start, end))
    return replace(citation, title=citation.title or citation.url, start=start, end=end)
