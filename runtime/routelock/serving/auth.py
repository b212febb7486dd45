"""Access control: host names, API keys, content types, and the number of requests at the same time."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

import anyio

from routelock.serving.config import ServeConfig
from routelock.serving.errors import Refusal, too_many_requests

__all__ = ["LOOPBACK", "AccessControl", "Principal", "is_loopback"]


LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""The usual names of loopback; others are read as addresses, which takes longer."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request."""

    name: str
    """A digest of the bearer token; ``"anonymous"`` without keys."""
    scopes: frozenset[str]


class AccessControl:
    """Checks the requests of one app before their bodies are read, and counts those that run.

    Args:
        config: the settings of the app.
    """

    def __init__(self, config: ServeConfig) -> None:
        hosts = config.allowed_hosts
        self._hosts = None if hosts is None else frozenset(_host_name(each) for each in hosts)
        self.knows_its_hosts: bool = config.api_keys is None if hosts is None else "*" not in hosts
        """Whether a ``Host`` that passes `check_host` is a name of this app, and not one that a client made
        up.
        """
        self._keys = _keys(config)
        self.anonymous: Principal = Principal("anonymous", _scopes(config.run_config.scopes))
        """The caller of a request without a key."""
        self._most = config.max_concurrent
        self._running = 0
        self._idle: anyio.Event | None = None
        self._most_bytes, self._bytes = config.max_concurrent * config.max_body, 0

    def check_host(self, host: str) -> None:
        """Refuse a request to a host name that is not allowed.

        Without keys, a web page in the user's browser could reach an app on loopback by a name of its own
        that resolves to loopback (DNS rebinding). The ``Host`` header has that name.

        Raises:
            Refusal: 403.
        """
        if not self.knows_its_hosts:
            return
        name = _host_name(host)
        if not (is_loopback(name) if self._hosts is None else name in self._hosts):
            raise Refusal(
                403,
                f"This server does not answer for the host {name[:100]!r}. Serve with an API key, or name "
                "the host in allowed_hosts.",
                "host_not_allowed",
            )

    def authenticate(self, authorization: str) -> Principal:
        """Return the caller of a request.

        Args:
            authorization: the ``Authorization`` header; empty if there is none.

        Raises:
            Refusal: 401.
        """
        if self._keys is None:
            return self.anonymous
        scheme, _, token = authorization.strip().partition(" ")
        given = _digest(token.strip())
        found: Principal | None = None
        # always all of them, so that the time does not show which one matched
        for digest, principal in self._keys.items():
            if hmac.compare_digest(digest, given):
                found = principal
        if found is None or scheme.lower() != "bearer":
            raise Refusal(
                401,
                "Send a valid API key: Authorization: Bearer <key>.",
                "invalid_api_key",
                headers={"www-authenticate": 'Bearer realm="routelock"'},
            )
        return found

    def check_content_type(self, content_type: str) -> None:
        """Refuse content types that a form on any web page can post without a preflight request (CSRF).

        Raises:
            Refusal: 415.
        """
        if content_type.partition(";")[0].strip().lower() != "application/json":
            raise Refusal(
                415, "Send the request as Content-Type: application/json.", "unsupported_media_type"
            )

    @contextmanager
    def slot(self) -> Generator[None]:
        """Hold one of the slots for requests that run at the same time.

        Raises:
            Refusal: 429, because no slot is free. This does not wait.
        """
        if self._running >= self._most:
            raise too_many_requests(f"The server already runs {self._most} requests.")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running and self._idle is not None:
                self._idle.set()

    @contextmanager
    def body_room(self, size: int) -> Generator[None]:
        """Reserve memory for the body of a request while it is read, before its run takes a slot.

        The limit is ``max_concurrent`` bodies of ``max_body`` bytes. A body takes no slot: a run that holds a
        slot may wait for an answer that comes in another body.

        Args:
            size: the bytes of the body.

        Raises:
            Refusal: 429, because there is not enough room. This does not wait.
        """
        if self._bytes + size > self._most_bytes:
            raise too_many_requests("The server already reads too many long requests.")
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size

    async def drained(self) -> None:
        """Wait until no request is running."""
        if self._running:
            self._idle = anyio.Event()
            await self._idle.wait()


def _keys(config: ServeConfig) -> Mapping[bytes, Principal] | None:
    keys = config.api_keys
    if keys is None:
        return None
    scoped: dict[str, Collection[str]] = dict.fromkeys(keys, config.run_config.scopes)
    if isinstance(keys, Mapping):
        scoped.update(cast("Mapping[str, Collection[str]]", keys))
    return {
        digest: Principal(digest.hex()[:16], _scopes(scopes))
        for token, scopes in scoped.items()
        for digest in (_digest(token),)
    }


def _scopes(scopes: Collection[str]) -> frozenset[str]:
    return frozenset((scopes,) if isinstance(scopes, str) else scopes)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _host_name(host: str) -> str:
    """Return a ``Host`` without its port; one that is not valid is returned as a whole."""
    match = re.fullmatch(r"(?:\[(?P<address>[^\[\]]*)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?", host)
    if match is None:
        return host.lower()
    return (match["address"] or (match["name"] or "").rstrip(".")).lower()


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is one of loopback. It is not looked up.

    An address with a zone (``::1%name``) is none: the zone may be any text.
    """
    if host in LOOPBACK or host.endswith(".localhost"):
        return True
    if "%" in host:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
