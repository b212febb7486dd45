"""Removes secrets from recorded traffic, before a cassette is written and again when it is read.

Of the headers only a few harmless ones are kept. In URLs, forms and JSON, values with a name such as
``api_key`` are replaced. Everywhere, text is replaced that has the shape of a known key, or is a secret of
this machine's environment. All other bytes stay as they are, so thought signatures and broken JSON replay
exactly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from routelock._redaction import is_secret_name, scrubbed

__all__ = ["SCRUBBED", "Scrubber", "secrets_in"]


SCRUBBED = "SCRUBBED"
"""The text that replaces a secret; it needs no quoting in URLs, JSON and YAML."""

_KEPT_REQUEST_HEADERS = frozenset(("content-type", "accept", "anthropic-version", "anthropic-beta"))

_KEPT_RESPONSE_HEADERS = frozenset(
    ("content-type", "content-encoding", "location", "retry-after", "retry-after-ms", "x-should-retry")
)

_SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)

_SHORTEST_SECRET = 8
"""The fewest characters of a secret; a shorter value is more likely a word that occurs by chance."""


def secrets_in(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables whose names end like that of a secret, such as ``OPENAI_API_KEY``."""
    return frozenset(
        value
        for name, value in environment.items()
        if _SECRET_VARIABLE.search(name) and len(value) >= _SHORTEST_SECRET
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubber:
    """Replaces secrets in requests and responses. Scrubbing twice changes nothing."""

    secrets: frozenset[str] = frozenset()
    """Secret values; they are found also as URLs and JSON encode them."""
    keep_request_headers: frozenset[str] | None = _KEPT_REQUEST_HEADERS
    """Lower-case names of the request headers to keep. None keeps all headers, but not the values of those
    with a secret name."""
    keep_response_headers: frozenset[str] | None = _KEPT_RESPONSE_HEADERS
    """Lower-case names of the response headers to keep, as in ``keep_request_headers``."""
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
        """Return a body without secrets; all other bytes stay, even if they are not valid UTF-8."""
        if not body:
            return b"" if body is not None else None
        text = body if isinstance(body, str) else body.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def request_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that are kept, scrubbed."""
        keep = self.keep_request_headers
        return {
            name: self._header(name, value, keep)
            for name, value in headers.items()
            if keep is None or name.lower() in keep
        }

    def response_headers(self, headers: Mapping[str, Iterable[str] | str]) -> dict[str, list[str]]:
        """Return the headers that are kept, scrubbed, each with all its values."""
        keep = self.keep_response_headers
        return {
            name: [
                self._header(name, value, keep) for value in ([values] if isinstance(values, str) else values)
            ]
            for name, values in headers.items()
            if keep is None or name.lower() in keep
        }

    def _header(self, name: str, value: str, keep: frozenset[str] | None) -> str:
        return SCRUBBED if keep is None and is_secret_name(name) else self.text(value)


def _spelled(char: str) -> str:
    """Return a pattern for a character, plain or encoded for a URL, for JSON, or for JSON within JSON."""
    if char.isascii() and char.isalnum():
        return char
    return f"(?:{'|'.join(map(re.escape, sorted({*_spellings(char)}, key=len, reverse=True)))})"


def _spellings(char: str) -> Iterator[str]:
    in_url = quote(char, safe="", errors="surrogateescape")
    yield from (char, in_url, in_url.lower(), *("+" if char == " " else ()))
    for in_json in (json.dumps(char)[1:-1], f"\\u{ord(char):04x}"):
        yield in_json
        yield json.dumps(in_json)[1:-1]
