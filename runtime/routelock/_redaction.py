"""Finds and replaces secrets, by the name of a field or by the shape of a value.

All data that routelock itself sends out of the process is redacted here: snapshots of contexts, recorded
traffic, traces. It cannot find everything: a secret under a harmless name that looks like a word stays.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from routelock._json_document import decode

__all__ = ["REDACTED", "is_secret_name", "redact", "redact_text"]


REDACTED = "[redacted]"
"""The text that replaces a secret."""

T = TypeVar("T")

# `re` compiles them on first use: at import that would take a good part of the import time of routelock.

_VARIABLE = r"(?!.*(?:PUBLIC|PRIMARY))[A-Z][A-Z0-9_]*_KEY"
"""Matches the name of an environment variable with a key: ``OPENAI_API_KEY``, but not ``cache_key``."""

_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+"

_SECRET = (
    r"passw(?:or)?d|passphrase|passcode|secret(?!ar[iy])|credential|apikey|auth(?:orization)?header|"
    r"connection(?:string|uri)|connstr|"
    r"(?:access|account|auth|encryption|master|private|session|shared|signing|ssh|subscription)key|"
    r"(?:access|api|auth|bearer|bot|id|refresh|security|session)tokens$"
)
"""Matches words that mark a secret, anywhere in the words of a name without their separators."""

_SECRET_WORDS = frozenset("auth authorization bearer cookie cookies dsn jwt otp pass pwd".split())
"""Words that mark a secret if they end a name: ``pass`` is also in ``bypass``, ``auth`` in ``author``."""

_ABOUT_ONE = frozenset("count endpoint file length limit name path policy ref type".split())
"""Last words of a name whose value describes a secret, or says where it is, and is not secret itself."""

_OTHER_TOKENS = frozenset(
    "bos continuation end eos first last mask next pad page sep start stop sync unk".split()
)
"""Words before ``token`` in the names of page tokens and parts of a text, which are not secret."""

_SECRET_NAMES = (
    r"(?:x[-_])?(?:goog[-_])?api[-_]?key|key|sig|signature|"
    r"(?:access|refresh|id|auth|bearer|session|security|x-amz-security)[-_]?token|"
    r"authorization|proxy-authorization|cookie|set-cookie|"
    r"client[-_]?secret|secret|secret[-_]?(?:access[-_]?)?key|password|passwd|private[-_]?key|"
    r"aws_secret_access_key|aws_session_token|x-amz-signature|x-amz-credential"
)

_ONLY_IN_URLS = frozenset(("key", "sig", "signature"))
"""Names of secrets in URLs only. As JSON keys they are too common: the ``signature`` of a thinking block
must be sent back unchanged."""

_IN_JSON = rf'(?i)(?P<head>"(?P<name>{_SECRET_NAMES})"\s*:\s*")(?P<value>(?:[^"\\]|\\.)*)(?P<tail>")'

_IN_JSON_TEXT = (
    # JSON inside a JSON string, as in the arguments of a tool call. The match starts at the first of several
    # backslashes only, because a long row of backslashes would take quadratic time otherwise.
    rf'(?i)(?P<head>(?<!\\)(?P<esc>\\+)"(?P<name>{_SECRET_NAMES})(?P=esc)"\s*:\s*(?P=esc)")'
    r'(?P<value>(?:(?!(?P=esc)").)*)(?P<tail>(?P=esc)")'
)

_IN_QUERY = rf"(?i)(?P<head>(?:^|[?&;])(?:{_SECRET_NAMES})=)[^&;#\s\"'\\]+"

_IN_AUTHORITY = r"(?P<head>://)[^/@\s:\"'\\]*:[^/\s\"'\\]+@"

_AFTER_SCHEME = (  # with a digit or padding in it, unlike "basic arithmetic"
    r"(?ai)(?P<head>(?:Bearer|Basic) )(?=[A-Za-z._~+/-]*[0-9=])[A-Za-z0-9._~+/=-]{8,}"
)

_IN_SETTINGS = (  # "host=db password=x" and "Server=db;Pwd=x;"
    r"(?i)(?P<head>(?:^|[\s,;?&])(?:password|passwd|pwd|accountkey|sharedaccesskey)=)"
    r"(?:'[^']*'|\"[^\"]*\"|[^\s;,&\"'\\])+"
)

_SHAPES: Mapping[str, str] = {
    "sk-": r"sk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek, ...
    **{
        start: start + r"[_-][A-Za-z0-9_-]{16,}" for start in "gsk hf r8 xai pplx csk fw nvapi tgp_v1".split()
    },
    "lsv2_": r"lsv2_[a-z]{2}[_-][A-Za-z0-9_-]{16,}",
    "AIza": r"AIza[A-Za-z0-9_-]{30,}",  # Google
    "ya29.": r"ya29\.[A-Za-z0-9._-]{16,}",
    "AKIA": r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    "ASIA": r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])",
    **{start: start + r"[A-Za-z0-9]{20,}" for start in "ghp_ gho_ ghu_ ghs_ ghr_".split()},
    "github_pat_": r"github_pat_[A-Za-z0-9_]{20,}",
    "glpat-": r"glpat-[A-Za-z0-9_-]{16,}",
    "xox": r"xox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    "k_live_": r"[rs]k_live_[A-Za-z0-9]{10,}",  # Stripe
    "k_test_": r"[rs]k_test_[A-Za-z0-9]{10,}",
    "whsec_": r"whsec_[A-Za-z0-9]{16,}",
    **{start: start + r"[_-][A-Za-z0-9_-]{20,}" for start in "npm dop_v1 shpat pypi".split()},
    "eyJ": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # a JSON web token
}
"""The shapes of keys and tokens, by a text that each of them contains literally."""

_ANY_SHAPE = (
    # not in the middle of base64, but also right after \n, \u0026 or %20
    r"(?:(?<![A-Za-z0-9+/_-])|(?<=\\[nrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
    rf"(?:{'|'.join(_SHAPES.values())})"
)

_LONG_WORD = r"[A-Za-z0-9._-]{15}"
"""Matches in each text of `_SHAPES`: all of them are at least this long."""

_PRIVATE_KEY = r"(?s)-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----(?:(?!-----).)*+-----END (?P=kind)-----"


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret: ``api_key``, ``dbPassword``, ``X-Auth-Token``.

    ``max_tokens``, ``token_type``, ``next_page_token`` and ``password_policy`` do not.
    """
    words = [word.lower() for word in re.findall(_WORDS, name)]
    if not words or words[-1] in _ABOUT_ONE:
        return False
    if words[-1].endswith("token"):
        return words[-2:-1] == [] or words[-2] not in _OTHER_TOKENS
    if words[-1] in _SECRET_WORDS or re.fullmatch(_VARIABLE, name):
        return True
    return re.search(_SECRET, "".join(words)) is not None


def redact(value: T) -> T:
    """Return a copy of JSON data with ``[redacted]`` in place of secrets. Redacting twice changes nothing.

    The value of a field with a secret name is replaced, unless it is empty, None or a bool, and so is the
    ``value`` beside a secret ``name`` or ``key``. Text that is JSON, such as the arguments of a call, is
    parsed and redacted the same way. In any other text only secrets are replaced, see `redact_text`.
    """
    if isinstance(value, str):
        return cast(T, _redacted_text(value))
    if isinstance(value, list):
        return cast(T, [redact(each) for each in cast("list[Any]", value)])
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        named = any(_is_secret_text(fields.get(key)) for key in ("name", "key"))
        return cast(T, {key: _under(key, each, named) for key, each in fields.items()})
    return value


def _redacted_text(text: str) -> str:
    if text.lstrip()[:1] not in ("{", "["):
        return redact_text(text)
    try:
        value = decode(text.encode())
    except ValueError:
        return redact_text(text)
    redacted = redact(value)
    return text if redacted == value else json.dumps(redacted, ensure_ascii=False)


def _is_secret_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return _is_secret_name_cached(value) if len(value) < _LONGEST_NAME else is_secret_name(value)


_LONGEST_NAME = 60

_is_secret_name_cached = functools.lru_cache(maxsize=1_000)(is_secret_name)  # records repeat their keys


def _under(key: object, value: Any, named: bool) -> object:
    if (_is_secret_text(key) or (named and key == "value")) and value and value is not True:
        return REDACTED
    return redact(value)


def redact_text(text: str) -> str:
    """Return the text with ``[redacted]`` in place of everything that looks like a secret.

    Secrets are: keys and tokens of well-known vendors, private keys, JSON web tokens, the token after
    ``Bearer``, user and password in a URL, and values after ``api_key=``, ``"password":`` and the like.
    """
    text = scrubbed(text, REDACTED)
    return re.sub(_IN_SETTINGS, rf"\g<head>{REDACTED}", text) if "=" in text else text


def scrubbed(text: str, mark: str) -> str:
    """Return the text with ``mark`` in place of each secret, where `REDACTED` would not fit.

    Each pattern runs only if its literal part is in the text. Most text of traces and states has no secret,
    and this check takes a tenth of the time of the match.
    """
    if "-----BEGIN " in text:
        text = re.sub(_PRIVATE_KEY, mark, text)
    if re.search(_LONG_WORD, text) and any(start in text for start in _SHAPES):
        text = re.sub(_ANY_SHAPE, mark, text)
    small = text.lower()
    if "bearer " in small or "basic " in small:
        text = re.sub(_AFTER_SCHEME, rf"\g<head>{mark}", text)
    if "://" in text:
        text = re.sub(_IN_AUTHORITY, rf"\g<head>{mark}@", text)
    if "=" in text:
        text = re.sub(_IN_QUERY, rf"\g<head>{mark}", text)
    return _without_fields(text, mark) if '"' in text else text


def _without_fields(text: str, mark: str) -> str:
    def without_value(match: re.Match[str]) -> str:
        if match["name"].lower() in _ONLY_IN_URLS or not match["value"]:
            return match[0]
        return f"{match['head']}{mark}{match['tail']}"

    if '\\"' in text:
        text = re.sub(_IN_JSON_TEXT, without_value, text)
    return re.sub(_IN_JSON, without_value, text)
