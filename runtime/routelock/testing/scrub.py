"""Taking secrets out of recorded traffic, on the way into a cassette and again when it is read.

Three nets, one behind the other: of the headers only a few harmless ones are kept; what stands
under a name such as ``api_key``, in a URL, a form or JSON, is replaced; and so is whatever has the
shape of a known key, or is a secret of this machine's environment, wherever it stands. Everything
else keeps its exact bytes, so thought signatures and broken JSON replay as they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from routelock._redaction import scrubbed

__all__ = ["SCRUBBED", "Scrubber", "secrets_in"]


SCRUBBED = "SCRUBBED"
"""What stands in for a secret; it needs no quoting in URLs, JSON and YAML."""

_KEPT_REQUEST_HEADERS = frozenset(("content-type", "accept", "anthropic-version", "anthropic-beta"))

_KEPT_RESPONSE_HEADERS = frozenset(
    ("content-type", "content-encoding", "location", "retry-after", "retry-after-ms", "x-should-retry")
)

_SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)

_SHORTEST_SECRET = 8
"""Characters: a shorter value is likelier a word that happens to stand in a text."""


def secrets_in(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of the variables whose names end like a secret's, such as ``OPENAI_API_KEY``."""
    return frozenset(
        value
        for name, value in environment.items()
        if _SECRET_VARIABLE.search(name) and len(value) >= _SHORTEST_SECRET
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubber:
    """Replaces secrets in requests and responses. Scrubbing twice is scrubbing once."""

    secrets: frozenset[str] = frozenset()
    """Values that are secret whatever they look like, also as URLs and JSON spell them."""
    keep_request_headers: frozenset[str] = _KEPT_REQUEST_HEADERS
    """Lower-case names; every other request header is dropped."""
    keep_response_headers: frozenset[str] = _KEPT_RESPONSE_HEADERS
    """Lower-case names; every other response header is dropped."""
    _known: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        longest_first = sorted((value for value in self.secrets if value), key=len, reverse=True)
        pattern = "|".join("".join(map(_spelled, value)) for value in longest_first)
        object.__setattr__(self, "_known", re.compile(pattern) if pattern else None)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known:
            text = self._known.sub(SCRUBBED, text)
        return scrubbed(text, SCRUBBED)

    def body(self, body: bytes | str | None) -> bytes | None:
        """Return a body without secrets; all other bytes stay as they are, valid UTF-8 or not."""
        if not body:
            return b"" if body is not None else None
        text = body if isinstance(body, str) else body.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def request_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that are kept, scrubbed."""
        return {
            name: self.text(value)
            for name, value in headers.items()
            if name.lower() in self.keep_request_headers
        }

    def response_headers(self, headers: Mapping[str, Iterable[str] | str]) -> dict[str, list[str]]:
        """Return the headers that are kept, scrubbed; each with all of its values."""
        return {
            name: [self.text(value) for value in ([values] if isinstance(values, str) else values)]
            for name, values in headers.items()
            if name.lower() in self.keep_response_headers
        }


def _spelled(char: str) -> str:
    """Return a pattern for a character as it stands, in a URL, in JSON, and in JSON within JSON."""
    if char.isascii() and char.isalnum():
        return char
    return f"(?:{'|'.join(map(re.escape, sorted({*_spellings(char)}, key=len, reverse=True)))})"


def _spellings(char: str) -> Iterator[str]:
    in_url = quote(char, safe="", errors="surrogateescape")
    yield from (char, in_url, in_url.lower(), *("+" if char == " " else ()))
    for in_json in (json.dumps(char)[1:-1], f"\\u{ord(char):04x}"):
        yield in_json
        yield json.dumps(in_json)[1:-1]
