"""Taking secrets out of recorded traffic, on the way into a cassette and again when it is read.

Three nets, one behind the other: of the headers only a few harmless ones are kept; what stands
under a name such as ``api_key``, in a URL, a form or JSON, is replaced; and so is whatever has the
shape of a known key, or is a secret of this machine's environment, wherever it stands. Everything
else keeps its exact bytes, so thought signatures and broken JSON replay as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["SCRUBBED", "Scrubber", "secrets_in"]

SCRUBBED = "SCRUBBED"
"""What stands in for a secret; it needs no quoting in URLs, JSON and YAML."""

_KEPT_REQUEST_HEADERS = frozenset(("content-type", "accept", "anthropic-version", "anthropic-beta"))
_KEPT_RESPONSE_HEADERS = frozenset(
    ("content-type", "content-encoding", "retry-after", "retry-after-ms", "x-should-retry")
)

_SECRET_NAMES = (
    r"(?:x[-_])?(?:goog[-_])?api[-_]?key|key|sig|signature|"
    r"(?:access|refresh|id|auth|bearer|session|security|x-amz-security)[-_]?token|"
    r"authorization|proxy-authorization|cookie|set-cookie|"
    r"client[-_]?secret|secret|secret[-_]?(?:access[-_]?)?key|password|passwd|private[-_]?key|"
    r"aws_secret_access_key|aws_session_token|x-amz-signature|x-amz-credential"
)
_ONLY_IN_URLS = frozenset(("key", "sig", "signature"))
"""Too common as JSON keys: a thinking block's ``signature`` must go back as it came."""

_IN_JSON = re.compile(
    rf'(?P<head>"(?P<name>{_SECRET_NAMES})"\s*:\s*")(?P<value>(?:[^"\\]|\\.)*)(?P<tail>")', re.IGNORECASE
)
_IN_JSON_TEXT = re.compile(  # JSON inside a JSON string, as in the arguments of a tool call
    rf'(?P<head>(?P<esc>\\+)"(?P<name>{_SECRET_NAMES})(?P=esc)"\s*:\s*(?P=esc)")'
    r'(?P<value>(?:(?!(?P=esc)").)*)(?P<tail>(?P=esc)")',
    re.IGNORECASE,
)
_IN_QUERY = re.compile(rf"(?P<head>(?:^|[?&;])(?:{_SECRET_NAMES})=)[^&;#\s\"'\\]+", re.IGNORECASE)
_IN_AUTHORITY = re.compile(r"(?P<head>://)[^/@\s:\"'\\]+:[^/@\s\"'\\]+@")
_AFTER_SCHEME = re.compile(  # with a digit or padding in it, unlike "basic arithmetic"
    r"(?P<head>(?:Bearer|Basic) )(?=[A-Za-z._~+/-]*[0-9=])[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE
)

_SHAPES = re.compile(
    # not in the middle of base64, but also right after \n, \u0026 or %20
    r"(?:(?<![A-Za-z0-9+/_-])|(?<=\\[nrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))(?:"
    r"sk-[A-Za-z0-9_-]{16,}|"  # OpenAI, Anthropic, OpenRouter, DeepSeek, ...
    r"(?:gsk|hf|r8|xai|pplx|csk|fw|nvapi|tgp_v1|lsv2_[a-z]{2})[_-][A-Za-z0-9_-]{16,}|"
    r"AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9._-]{16,}|"  # Google
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|"  # AWS
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|"
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}|"  # Slack
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9]{16,}|"  # Stripe
    r"(?:npm|dop_v1|shpat|pypi)[_-][A-Za-z0-9_-]{20,}|"
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"  # a JSON web token
    r")"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?-----END (?P=kind)-----", re.DOTALL
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
    """Values that are secret whatever they look like."""
    keep_request_headers: frozenset[str] = _KEPT_REQUEST_HEADERS
    """Lower-case names; every other request header is dropped."""
    keep_response_headers: frozenset[str] = _KEPT_RESPONSE_HEADERS
    """Lower-case names; every other response header is dropped."""
    _known: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        longest_first = sorted((value for value in self.secrets if value), key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        object.__setattr__(self, "_known", re.compile(pattern) if pattern else None)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known:
            text = self._known.sub(SCRUBBED, text)
        text = _PRIVATE_KEY.sub(SCRUBBED, text)
        text = _SHAPES.sub(SCRUBBED, text)
        text = _AFTER_SCHEME.sub(rf"\g<head>{SCRUBBED}", text)
        text = _IN_AUTHORITY.sub(rf"\g<head>{SCRUBBED}@", text)
        text = _IN_QUERY.sub(rf"\g<head>{SCRUBBED}", text)
        text = _IN_JSON_TEXT.sub(_without_value, text)
        return _IN_JSON.sub(_without_value, text)

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


def _without_value(match: re.Match[str]) -> str:
    if match["name"].lower() in _ONLY_IN_URLS or not match["value"]:
        return match[0]
    return f"{match['head']}{SCRUBBED}{match['tail']}"
