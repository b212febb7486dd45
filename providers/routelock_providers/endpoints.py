"""What the address of an OpenAI-compatible endpoint tells: whose it is, and what that vendor demands."""

from __future__ import annotations

import os
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from routelock._records import record
from routelock._redaction import redact_text
from routelock.errors import ConfigError
from routelock_providers.shapes import Shape, shape_of
from routelock_providers.vendors import provider_at

__all__ = [
    "OPENAI",
    "PATH",
    "Destination",
    "chat_url",
    "family_at",
    "host_of",
    "key_of",
    "key_variable",
    "open_address",
    "shape_at",
    "told_key",
]

OPENAI = "https://api.openai.com/v1"
PATH = "/chat/completions"

_OPENAI_KEYS = frozenset(
    "role content name tool_calls tool_call_id refusal audio function_call annotations".split()
)
"""What OpenAI's own messages have; LiteLLM, whose family is the same, may have kept more in them."""


@record(frozen=True, slots=True, kw_only=True)
class Destination:
    """Whom a handler would ask, for people: no secret is in it."""

    provider: str
    model: str
    address: str
    key: str
    """Where the key comes from, never the key."""
    ready: bool = True
    """False where a key is missing without which nothing is asked."""


def chat_url(base_url: str) -> str:
    """Return where an endpoint is asked: ``/chat/completions`` is added unless it is there, before the query.

    Raises:
        ConfigError: it is no address.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"base_url must be an http or https address, not {base_url!r}.")
    path = parts.path.rstrip("/").removesuffix(PATH)
    return urlunsplit(parts._replace(path=path + PATH, fragment=""))


def open_address(url: str) -> str:
    """Return an address as people may see it: without user, password and other secrets."""
    parts = urlsplit(url)
    return redact_text(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))


def told_key(provider: str, passed: str | None) -> str:
    """Say where the key for a vendor comes from."""
    if passed and passed.strip():
        return "there, passed as api_key"
    variable = key_variable(provider)
    if key_of(provider):
        return f"there, from {variable}"
    if provider == "openai":
        return f"missing: set {variable}"
    return f"none, so none is sent ({variable} is not set)"


def host_of(base_url: str) -> str:
    """Return the host of an address, or the text itself when it has none."""
    return urlsplit(base_url).hostname or base_url


def family_at(host: str) -> str:
    """Return the family of the models at this host: those that can read one another's private fields."""
    return "openai" if provider_at(host) == "openai" else host


def shape_at(host: str, model: str) -> Shape:
    """Return what the vendor at this host demands of messages to ``model``."""
    provider = provider_at(host)
    shape = shape_of(provider, model)
    return replace(shape, message_keys=_OPENAI_KEYS) if provider in ("openai", "azure") else shape


def key_of(provider: str, passed: str | None = None) -> str | None:
    """Return the key that was passed or, for none, what the environment has, such as ``GROQ_API_KEY``.

    A newline at its end is of the file that it was read from. A blank one is none: a variable that nobody
    set is passed on as an empty one.
    """
    return (passed or "").strip() or os.environ.get(key_variable(provider), "").strip() or None


def key_variable(provider: str) -> str:
    """Return the name of the environment variable for a vendor's key."""
    return f"{provider.upper()}_API_KEY"
