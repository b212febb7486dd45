"""The settings of a served app, and what an app of the user's learns about a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from routelock._callables import MaybeAwaitable
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError
from routelock.run.config import RunConfig
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.sessions.stores import SessionStore

__all__ = ["A2A", "ServeConfig", "ServedRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class A2A:
    """How agents are served by the Agent2Agent protocol, besides.

    Tasks, and conversations without ``sessions``, are kept in memory within ``ServeConfig.max_pending``,
    ``pending_bytes`` and ``pending_ttl``, for each agent.
    """

    sessions: SessionStore | None = None
    """Where conversations are kept, one session for each context of a client; None keeps them in memory."""
    url: str | None = None
    """What the app is reached under, such as ``"https://agents.example.com"``, for the cards; None takes
    the ``Host`` that a card was asked for under, where only names of the app's own are let in (see
    ``ServeConfig.allowed_hosts``), and else the address of the socket."""
    version: str = "1"
    """The agents' version, as their cards say it to people."""
    approvals: bool = False
    """Whether whoever asks an agent may also approve the calls that need it. Without, they are not made."""

    def __post_init__(self) -> None:
        if self.url is not None and not re.match(r"https?://[^/?#\s]+[^?#\s]*$", self.url):
            raise ConfigError(
                f"A2A: url must be what the app is reached under, such as 'https://agents.example.com', not "
                f"{self.url!r:.80}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """What is known about a request before its run begins; given to ``ServeConfig.context``."""

    request_id: str
    """As in the response's ``x-request-id`` and in the log."""
    model: str
    """The name of the agent that is asked for."""
    principal: str
    """Who is asking: the first 16 hex digits of the SHA-256 of the bearer token, never the token itself;
    ``"anonymous"`` without keys."""
    scopes: frozenset[str]
    user: str | None
    """The body's ``user``: the client's word, not checked by anyone."""
    headers: Mapping[str, str]
    """Names in lower case; ``authorization`` and ``cookie`` are left out."""
    handoff_context: Mapping[str, Any]
    """What the caller passed along, see `create_app`. Untrusted, but bounded."""


_MORE_THAN_0 = (
    "max_body",
    "max_concurrent",
    "timeout",
    "body_timeout",
    "ping",
    "max_pending",
    "pending_bytes",
    "pending_ttl",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Settings of `create_app`. The defaults are safe on a machine of one's own.

    Raises:
        ConfigError: a value that cannot work, such as an empty key.
    """

    api_keys: Mapping[str, Collection[str]] | Collection[str] | None = None
    """The bearer tokens that may ask, if given as a mapping with the scopes that each one's runs have
    (see ``RunConfig.scopes``). None: everybody may, but only under a loopback ``Host``."""
    allowed_hosts: Collection[str] | None = None
    """Names that the ``Host`` header may have; ``("*",)`` for any. None: any with ``api_keys``, and only
    those of loopback without, so that no web page can reach the app by rebinding its own name."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """The settings of every run. ``run_id`` is not used: each run has its own."""
    context: Callable[[ServedRequest], MaybeAwaitable[Any]] | None = None
    """Makes the object that is passed as ``context=`` to the run; without it there is none."""
    hooks: RunHooks | None = None
    a2a: A2A | None = None
    """Serves the agents by the Agent2Agent protocol, too; None does not."""
    client_tools: bool = True
    """Whether clients may send tools, which they run themselves. One that is named like a tool or transfer of
    the agents is refused in any case."""
    max_turns: int | None = DEFAULT_MAX_TURNS
    """Most model calls of one request; None for no limit."""
    max_body: int = 10 * 2**20
    """Bytes of a request's body."""
    max_concurrent: int = 64
    """Requests that run at the same time; one more is refused at once (429)."""
    timeout: float = 300.0
    """Seconds that one request may take, until its last byte."""
    body_timeout: float = 30.0
    """Seconds that the body of a request may take to arrive."""
    max_hops: int = 8
    """How many servers a request may have passed before this one (``handoff_context.hops``)."""
    ping: float = 15.0
    """Seconds of silence after which a stream gets a comment, so that no proxy closes it."""
    max_pending: int = 1000
    """Runs that are kept while their client answers its own tools' calls; the oldest goes first."""
    pending_bytes: int = 64 * 2**20
    """Most memory for those, counted as JSON."""
    pending_ttl: float = 900.0
    """Seconds that such a run is kept."""

    def __post_init__(self) -> None:
        rules = (
            (
                not isinstance(self.api_keys, str | bytes),
                "api_keys must be a list of tokens, not one text; write [token]",
            ),
            (
                self.api_keys is None or _are_tokens(self.api_keys),
                "api_keys must be tokens, one or more, none of them empty or with white space around it, as "
                "the line end of a file is; pass None to serve without keys",
            ),
            (not isinstance(self.allowed_hosts, str), "allowed_hosts must be a list of names, not one text"),
            (_is_count(self.max_hops, 0), f"max_hops must be 0 or more, not {self.max_hops!r:.80}"),
            (
                self.max_turns is None or _is_count(self.max_turns, 1),
                f"max_turns must be at least 1, or None for no limit, not {self.max_turns!r:.80}",
            ),
            (
                isinstance(cast("object", self.client_tools), bool),
                f"client_tools must be True or False, not {self.client_tools!r:.80}",
            ),
            (isinstance(cast("object", self.a2a), A2A | None), "a2a must be an A2A, such as A2A()"),
        )
        wrong = [message for holds, message in rules if not holds]
        wrong += [
            f"{name} must be more than 0, not {number!r}"
            for name in _MORE_THAN_0
            if not (isinstance(number := getattr(self, name), int | float) and number > 0)
        ]
        if wrong:
            raise ConfigError(f"ServeConfig: {'; '.join(wrong)}.")


def _are_tokens(keys: object) -> bool:
    if not isinstance(keys, Collection) or not keys:
        return False
    return all(
        isinstance(key, str) and key and key == key.strip() for key in cast("Collection[object]", keys)
    )


def _is_count(number: object, least: int) -> bool:
    return isinstance(number, int) and number >= least
