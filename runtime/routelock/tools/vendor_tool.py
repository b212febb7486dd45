"""`VendorTool`: a tool that the model's vendor runs, such as its web search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from routelock._sendable import sendable
from routelock.errors import ConfigError
from routelock.handlers.port import ToolSpec
from routelock.scopes import Scope, checked_scope
from routelock.tools.tool import IsEnabled

__all__ = ["VendorTool", "spec_problem", "vendor_tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorTool:
    """A tool that the model's vendor runs: its web search, its code sandbox, its file search.

    ``VendorTool.web_search()`` and the other class methods are portable: each provider gets its own spelling.
    A vendor's own spelling is sent as it is: ``VendorTool(spec={"type": "web_search_20250305", ...})``, or
    just the dict in ``Agent(tools=[...])``. If the provider has no such tool, the run fails with a
    `ConfigError`, see docs/vendor-tools.md.

    Raises:
        ConfigError: a field is invalid.
    """

    spec: ToolSpec
    """The tool, as it stands in ``Request.tools``."""
    is_enabled: IsEnabled = True
    """A bool, or a function of the context and the agent, called in each turn."""
    scope: Scope = "all"
    """Which runs may use the tool, see `routelock.scopes`."""
    name: str = field(init=False)
    """The type of the tool, such as ``"web_search"``."""

    def __post_init__(self) -> None:
        if wrong := spec_problem(self.spec):
            raise ConfigError(f"{wrong}.")
        spec = sendable(dict(self.spec))
        name = str(spec.get("type") or next(iter(spec)))
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "scope", checked_scope(self.scope, f"The vendor's tool {name!r}"))

    @classmethod
    def web_search(
        cls,
        *,
        max_uses: int | None = None,
        allowed_domains: Sequence[str] = (),
        blocked_domains: Sequence[str] = (),
        user_location: Mapping[str, str] | None = None,
        search_context_size: str | None = None,
    ) -> VendorTool:
        """Return the vendor's web search.

        Args:
            max_uses: the most searches in one model call.
            allowed_domains: the only domains to search, such as ``"docs.python.org"``.
            blocked_domains: domains to leave out.
            user_location: where the user is: ``city``, ``region``, ``country`` (two letters), ``timezone``.
                A hint: it is left out for a vendor that does not accept it.
            search_context_size: how much of the results the model reads: low, medium or high. A hint too.
        """
        limits = _limits(max_uses, allowed_domains, blocked_domains)
        location = None if user_location is None else dict(user_location)
        hints = {"user_location": location, "search_context_size": search_context_size}
        return _made("web_search", {**limits, **hints})

    @classmethod
    def web_fetch(
        cls,
        *,
        max_uses: int | None = None,
        allowed_domains: Sequence[str] = (),
        blocked_domains: Sequence[str] = (),
    ) -> VendorTool:
        """Return the tool with which the vendor reads pages whose addresses are in the conversation.

        Args:
            max_uses: the most pages in one model call.
            allowed_domains: the only domains to read.
            blocked_domains: domains not to read.
        """
        return _made("web_fetch", _limits(max_uses, allowed_domains, blocked_domains))

    @classmethod
    def code_execution(cls) -> VendorTool:
        """Return the vendor's sandbox, in which the model runs code of its own."""
        return _made("code_execution", {})

    @classmethod
    def file_search(cls, stores: Sequence[str], *, max_results: int | None = None) -> VendorTool:
        """Return the vendor's search in files that you have stored there.

        Args:
            stores: the vendor's ids of vector stores, or names of file search stores.
            max_results: the most results of one search.
        """
        return _made("file_search", {"stores": [*stores], "max_results": max_results})

    @classmethod
    def image_generation(cls) -> VendorTool:
        """Return the tool with which the vendor makes images."""
        return _made("image_generation", {})


def _limits(
    max_uses: int | None, allowed_domains: Sequence[str], blocked_domains: Sequence[str]
) -> dict[str, Any]:
    domains = {"allowed_domains": [*allowed_domains], "blocked_domains": [*blocked_domains]}
    return {"max_uses": max_uses, **domains}


def _made(kind: str, options: Mapping[str, Any]) -> VendorTool:
    given = {name: value for name, value in options.items() if value not in (None, [], {})}
    return VendorTool(spec={"type": kind, **given})


def vendor_tool(given: Any) -> VendorTool | None:
    """Return a `VendorTool` or make one from its dict; None for anything else, also for an invalid dict."""
    if isinstance(given, VendorTool):
        return given
    if not isinstance(given, Mapping):
        return None
    spec = cast("Mapping[str, Any]", given)
    return None if spec_problem(spec) else VendorTool(spec=spec)


def spec_problem(spec: object) -> str:
    """Return the mistake in the spec of a vendor's tool; empty if there is none."""
    if not isinstance(spec, Mapping) or not spec:
        return f"A vendor's tool is a dict such as {{'type': 'web_search'}}, not {spec!r:.80}"
    known: Any = cast(object, spec)
    if not all(isinstance(key, str) for key in known):
        return f"The keys of a vendor's tool are text, not those of {known!r:.80}"
    if known.get("type") == "function" or "function" in known:
        return (
            f"The spec of a function is not a vendor's tool: {known!r:.80}. Pass the function itself, or put "
            "the spec into RunConfig(external_tools=[...]) if the caller runs it"
        )
    if not isinstance(known.get("type", ""), str):
        return f"The type of a vendor's tool is text, not {known['type']!r:.80}"
    return ""
