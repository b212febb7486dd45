"""The settings of a served app, and the request that the app's own code is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from routelock._callables import MaybeAwaitable
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError
from routelock.run.config import RunConfig
from routelock.run.result import RunResult
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.sessions.stores import SessionStore

__all__ = ["A2A", "AGUI", "MCP", "ClientSettings", "ServeConfig", "ServedRequest"]


ClientSettings = Literal["use", "refuse"]
"""The treatment of a client's settings, see `ServeConfig`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class A2A:
    """The settings of the Agent2Agent protocol.

    Tasks, and conversations without ``sessions``, are kept in memory within ``ServeConfig.max_pending``,
    ``pending_bytes`` and ``pending_ttl``, for each agent.
    """

    sessions: SessionStore | None = None
    """The store of conversations, with one session for each context of a client; None keeps them in
    memory."""
    url: str | None = None
    """The URL of the app in the agent cards, such as ``"https://agents.example.com"``. None takes the
    ``Host`` header of the request for a card if only known names are allowed (see
    ``ServeConfig.allowed_hosts``), and otherwise the address of the socket."""
    version: str = "1"
    """The version of the agents in their cards, for people."""
    approvals: bool = False
    """Whether the caller of an agent may approve its calls. If not, calls that need approval are not made."""
    is_question: Callable[[RunResult[Any]], bool] | None = None
    """Whether the answer of a run is a question to the caller. Its task then waits for a message with its
    id, which goes on with the conversation, instead of being completed. None: no answer is one."""
    tasks: bool | Callable[[ServedRequest], bool] = True
    """Whether a request begins a task, or a function that says so of each request. If not, the answer is a
    message, which is sent whole, and of which the server keeps nothing but the conversation. A run that fails
    or that waits for its caller is a task all the same."""
    versions: Collection[Literal["1.0", "0.3"]] = ("1.0", "0.3")
    """The versions of the protocol. ``("1.0",)`` refuses clients of version 0.3, and leaves the fields for
    them out of the cards."""

    def __post_init__(self) -> None:
        if isinstance(self.versions, str) or set(self.versions) not in ({"1.0"}, {"1.0", "0.3"}):
            raise ConfigError(
                f"A2A: versions must be ('1.0', '0.3') or ('1.0',), not {self.versions!r:.80}: there is no "
                "server for version 0.3 alone."
            )
        if self.url is not None and not re.match(r"https?://[^/?#\s]+[^?#\s]*$", self.url):
            raise ConfigError(
                f"A2A: url must be the URL of the app, such as 'https://agents.example.com', not "
                f"{self.url!r:.80}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AGUI:
    """The settings of AG-UI, the protocol of front ends.

    ``shared_memory["ag_ui"]`` of each run is ``{"state": ..., "forwarded_props": ...}``, as the client sent
    them. Neither is checked. ``state`` is the state that client and agents share: when a tool changes it, the
    client is sent the new one. Runs that wait for their client are kept in memory within
    ``ServeConfig.max_pending``, ``pending_bytes`` and ``pending_ttl``.
    """

    approvals: bool = False
    """Whether the client may approve calls, which it is asked for as the protocol's interrupts. If not, calls
    that need approval are not made."""
    edits: bool = False
    """Whether the client may change the arguments of a tool call that it approves, so that it may call the
    tool with any. The client must be shown the call."""
    show_calls: bool = True
    """Whether the client is shown the calls of the agents' own tools, with arguments and results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MCP:
    """The settings of the Model Context Protocol, whose clients see each served agent as a tool.

    Sessions, and calls that wait for approval, are kept in memory within ``ServeConfig.max_pending``,
    ``pending_bytes`` and ``pending_ttl``.
    """

    name: str | None = None
    """The name of the server, which hosts show; None takes that of the first agent."""
    version: str = "1"
    """The version of the server, for people."""
    instructions: str | None = None
    """Instructions for a host's model about all the tools."""
    input_types: Mapping[str, type[Any]] = field(default_factory=lambda: {})
    """By the name of an agent, a pydantic model, dataclass or TypedDict that its callers pass. The agent gets
    it as JSON. The callers of other agents pass one text, ``input``."""
    approvals: bool = True
    """Whether a client may ask its user to approve calls. If not, calls that need approval are not made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """A request before its run begins, as ``ServeConfig.context`` is given it."""

    request_id: str
    """The id in the response's ``x-request-id`` header and in the log."""
    model: str
    """The name of the requested agent."""
    principal: str
    """The caller: the first 16 hex digits of the SHA-256 of the bearer token, never the token itself;
    ``"anonymous"`` without keys."""
    scopes: frozenset[str]
    user: str | None = None
    """The ``user`` of the body, as the client sent it: it is not verified."""
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    """Names in lower case; ``authorization`` and ``cookie`` are left out."""
    handoff_context: Mapping[str, Any] = field(default_factory=lambda: {})
    """The ``handoff_context`` of the body, see `create_app`. It is untrusted, and bounded in size."""


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
    """The settings of `create_app`. The defaults are safe on the user's own machine.

    Raises:
        ConfigError: a value is wrong, such as an empty key.
    """

    api_keys: Mapping[str, Collection[str]] | Collection[str] | None = None
    """The accepted bearer tokens. A mapping gives each token the scopes of its runs (see
    ``RunConfig.scopes``).
    None: no key is needed, but the ``Host`` has to be loopback."""
    allowed_hosts: Collection[str] | None = None
    """The accepted names in the ``Host`` header; ``("*",)`` accepts any. None: any with ``api_keys``, and
    only loopback without, so that no web page can reach the app by DNS rebinding."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """The settings of every run. ``run_id`` is not used: each run has an id of its own. An ``executor`` is
    used for the tasks of A2A alone: no other request has an id by which an engine would find its run again.
    """
    context: Callable[[ServedRequest], MaybeAwaitable[Any]] | None = None
    """Makes the object that is passed as ``context=`` to the run; None passes none."""
    hooks: RunHooks | None = None
    a2a: A2A | None = None
    """Serves the agents by the Agent2Agent protocol, too; None does not."""
    ag_ui: AGUI | None = None
    """Serves the agents by AG-UI, too; None does not."""
    mcp: MCP | None = None
    """Serves the agents as tools by the Model Context Protocol, too; None does not."""
    client_tools: bool = True
    """Whether clients may send tools, which they run themselves. A tool with the name of a tool or handoff of
    an agent that the run may reach is always refused."""
    client_settings: ClientSettings | None = None
    """The treatment of ``temperature``, ``max_tokens``, ``response_format`` and other settings that a client
    sends for its run. ``"use"``: all model calls of the run have them; one that the agents or ``run_config``
    set themselves is refused (400). ``"refuse"``: all are refused. With both, a parameter that is not
    supported is refused as well. None: responses use them, and chat completions ignore them."""
    response_sessions: SessionStore | None = None
    """The store of the responses that ``previous_response_id`` names, with one session for each: any process
    that shares it goes on from them, and they stay until they are deleted. None keeps them in memory, within
    ``max_pending``, ``pending_bytes`` and ``pending_ttl``."""
    max_turns: int | None = DEFAULT_MAX_TURNS
    """Most model calls of a request; None for no limit. Those before a question that the client answered do
    not count."""
    max_body: int = 10 * 2**20
    """Most bytes of a request's body."""
    max_concurrent: int = 64
    """Most requests that run at the same time; one more is refused with 429."""
    timeout: float = 300.0
    """Seconds that one request may take, until its last byte."""
    body_timeout: float = 30.0
    """Seconds that the body of a request may take to arrive."""
    max_hops: int = 8
    """Most servers that a request may have passed before this one (``handoff_context.hops``)."""
    ping: float = 15.0
    """Seconds of silence after which a stream gets a comment, so that no proxy closes it."""
    max_pending: int = 1000
    """Most runs that are kept while their clients run their own tools, most responses that are kept for
    ``previous_response_id``, and most sessions of MCP. The key that has the most of them loses its oldest one
    first, so that no key pushes out the others."""
    pending_bytes: int = 64 * 2**20
    """Most bytes of those runs, and of those responses, counted as JSON."""
    pending_ttl: float = 900.0
    """Seconds that such a run or response is kept."""

    def __post_init__(self) -> None:
        wrong = [message for holds, message in self._rules() if not holds]
        wrong += [
            f"{name} must be more than 0, not {number!r}"
            for name in _MORE_THAN_0
            if not (isinstance(number := getattr(self, name), int | float) and number > 0)
        ]
        if wrong:
            raise ConfigError(f"ServeConfig: {'; '.join(wrong)}.")

    def _rules(self) -> Sequence[tuple[bool, str]]:
        """Return the rules of the settings: whether each holds, and the error if it does not."""
        return (
            (
                not isinstance(self.api_keys, str | bytes),
                "api_keys must be a list of tokens, not one string; write [token]",
            ),
            (
                self.api_keys is None or _are_tokens(self.api_keys),
                "api_keys must have one or more tokens, none of them empty or with white space around it, "
                "such as the line end of a file; pass None to serve without keys",
            ),
            (
                not isinstance(self.allowed_hosts, str),
                "allowed_hosts must be a list of names, not one string",
            ),
            (_is_count(self.max_hops, 0), f"max_hops must be 0 or more, not {self.max_hops!r:.80}"),
            (
                self.max_turns is None or _is_count(self.max_turns, 1),
                f"max_turns must be at least 1, or None for no limit, not {self.max_turns!r:.80}",
            ),
            (
                isinstance(cast("object", self.client_tools), bool),
                f"client_tools must be True or False, not {self.client_tools!r:.80}",
            ),
            (
                self.client_settings in (None, *get_args(ClientSettings)),
                f"client_settings must be 'use', 'refuse' or None, not {self.client_settings!r:.80}",
            ),
            (
                self.response_sessions is None or _is_store(self.response_sessions),
                f"response_sessions must be a store of sessions, such as SQLiteSessions, not "
                f"{self.response_sessions!r:.80}",
            ),
            *self._protocol_rules(),
        )

    def _protocol_rules(self) -> Sequence[tuple[bool, str]]:
        return (
            (isinstance(cast("object", self.a2a), A2A | None), "a2a must be an A2A, such as A2A()"),
            (isinstance(cast("object", self.ag_ui), AGUI | None), "ag_ui must be an AGUI, such as AGUI()"),
            (isinstance(cast("object", self.mcp), MCP | None), "mcp must be an MCP, such as MCP()"),
            (
                self.run_config.executor is None or self.a2a is not None,
                "run_config has no executor without a2a, because a chat request has no id by which an engine "
                "would find its run again",
            ),
        )


def _are_tokens(keys: object) -> bool:
    if not isinstance(keys, Collection) or not keys:
        return False
    return all(
        isinstance(key, str) and key and key == key.strip() for key in cast("Collection[object]", keys)
    )


def _is_store(store: object) -> bool:
    return all(callable(getattr(store, name, None)) for name in ("load", "append"))


def _is_count(number: object, least: int) -> bool:
    return isinstance(number, int) and number >= least
