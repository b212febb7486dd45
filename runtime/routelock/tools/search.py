"""Tool search: a model is offered one tool that searches, and the tools that it has found with it.

A tool is deferred if it says so, or if the agent has many of them (`ToolSearch`). This module has the
settings, makes the tool that searches, and writes and reads its results. `routelock.agents.deferral` puts
what was found into the offer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from routelock._callables import MaybeAwaitable
from routelock._text import clip
from routelock._tool_names import name_words, odd_tool_name
from routelock.context import ToolContext
from routelock.errors import CallbackError, ConfigError
from routelock.handlers.port import ToolSpec
from routelock.tools.decorators import tool
from routelock.tools.failures import failure_text
from routelock.tools.invoke import run_in_thread
from routelock.tools.signature import is_async
from routelock.tools.tool import Tool

if TYPE_CHECKING:
    from routelock.tools.ranking import ToolIndex

__all__ = [
    "Catalogue",
    "RankTools",
    "SearchedTool",
    "ToolSearch",
    "found_names",
    "search_tool",
    "searched",
]


_LONGEST_DESCRIPTION = 200
"""Most characters of a description in a result: the offer has the whole of it."""

_LONGEST_QUERY = 1000

_MOST_KINDS = 30
"""Most words that tell a model what there are tools for."""

_COMMON = frozenset("add create delete find get list remove search send set update".split())
"""Words in the names of tools that say nothing about an app."""

_DESCRIPTION = (
    "Search for tools. There are {count:,} more than you are shown, for: {kinds}. Call this before you say "
    "that you cannot do something. What it finds is among your tools from then on."
)

_QUERY = (
    "What you want to do, in a few words: the action, the thing and, if you know it, the app, such as "
    '"create invoice" or "list open issues on GitHub". One task for each search.'
)

_FOUND = "You can call these tools from now on."

_NOTHING = (
    "No tool was found. Search again with other words, the action and the thing, such as 'create invoice'. "
    "There are tools for: {kinds}."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTool:
    """A deferred tool, as a search sees it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {})
    """The JSON schema of the arguments."""
    origin: str | None = None
    """The name of the MCP server or the agent that the tool comes from; None for a function of the app."""


RankTools = Callable[[str, Sequence[SearchedTool]], MaybeAwaitable[Iterable[str]]]
"""``(query, tools) -> names``, sync or async: the names of the tools that fit, the best first. A sync
function runs in a worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearch:
    """Which tools of an agent are deferred, and how its model finds them.

    A deferred tool is not offered before the model has found it by calling the search tool, or has called it.
    All else about it is as for any other tool. Handoffs are never deferred. See docs/tool-search.md.

    Raises:
        ConfigError: a setting is invalid.
    """

    defer_over: int | None = None
    """The number of tools of an agent above which all are deferred, except those with ``deferred=False``.
    None defers those with ``deferred=True`` only."""
    name: str = "search_tools"
    """The name of the tool that searches."""
    most: int = 5
    """How many tools one search finds at most."""
    rank: RankTools | None = None
    """A function that ranks the tools, for example by embeddings; None ranks them by their words."""
    by: Literal["routelock", "vendor"] = "routelock"
    """Who searches: ``"routelock"`` searches for every model. With ``"vendor"`` each request has all deferred
    tools, and the vendor searches them; a vendor without a search refuses the run with a `ConfigError`."""

    def __post_init__(self) -> None:
        over, most, rank = cast(object, self.defer_over), cast(object, self.most), cast(object, self.rank)
        odd = odd_tool_name(self.name)
        rules = (
            (over is None or _is_count(over, 0), f"defer_over must be a number or None, not {over!r:.80}"),
            (_is_count(most, 1), f"most must be at least 1, not {most!r:.80}"),
            (not odd, f"its name has {odd}; providers accept 1 to 64 of a-z, A-Z, 0-9, _ and -"),
            (rank is None or callable(rank), f"rank must be a function, not {rank!r:.80}"),
            (self.by in ("routelock", "vendor"), f"by must be 'routelock' or 'vendor', not {self.by!r:.80}"),
            (rank is None or self.by != "vendor", "rank ranks for a search by routelock, not by the vendor"),
        )
        if wrong := [message for holds, message in rules if not holds]:
            raise ConfigError(f"ToolSearch: {'; '.join(wrong)}.")

    def defers(self, deferred: bool | None, count: int) -> bool:
        """Whether a tool is deferred.

        Args:
            deferred: what the tool says, see ``Tool.deferred``.
            count: the number of tools that the agent has.
        """
        if deferred is not None or self.defer_over is None:
            return bool(deferred)
        return count > self.defer_over


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


DEFAULT_SEARCH = ToolSearch()


class Catalogue:
    """The deferred tools of an agent, for searches. It never changes, so runs and threads share it."""

    def __init__(self, tools: Iterable[SearchedTool]) -> None:
        self.tools: Mapping[str, SearchedTool] = {each.name: each for each in tools}

    @cached_property
    def index(self) -> ToolIndex:
        """The index of all tools, which is built by the first search."""
        from routelock.tools.ranking import ToolIndex  # noqa: PLC0415 - only a search needs it

        return ToolIndex([*self.tools.values()])

    async def ranked(self, settings: ToolSearch, query: str, names: Collection[str]) -> list[str]:
        """Return the tools that fit a query, the best first.

        Args:
            settings: how they are ranked.
            query: what the model wants to do.
            names: the tools that it may find.

        Raises:
            ConfigError: the ``rank`` function gave something else than names of these tools.
        """
        if settings.rank is None:
            return [name for name in self.index.rank(query) if name in names]
        tools = [each for name, each in self.tools.items() if name in names]
        rank: Callable[..., Any] = settings.rank
        asked = rank(query, tools) if is_async(rank) else run_in_thread(partial(rank, query, tools))
        found: Any = await asked
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise ConfigError(f"ToolSearch: rank must return names of tools, not {found!r:.80}.")
        ranked = dict.fromkeys(cast("Iterable[object]", found))
        if strange := [each for each in ranked if each not in names]:
            raise ConfigError(f"ToolSearch: rank returned {strange[0]!r:.80}, which is none of the tools.")
        return cast("list[str]", [*ranked])

    def kinds(self, names: Iterable[str]) -> str:
        """Return the commonest words in the names of some of the tools, without those that any app has."""
        words = Counter(word for name in names for word in dict.fromkeys(name_words(name)))
        shown = [word for word, _ in words.most_common() if len(word) > 1 and word not in _COMMON]
        return ", ".join(shown[:_MOST_KINDS]) or "other things"


def searched(spec: ToolSpec, origin: str | None = None) -> SearchedTool:
    """Return a tool as a search sees it."""
    function = spec["function"]
    return SearchedTool(
        name=function["name"],
        description=str(function.get("description") or ""),
        parameters=function.get("parameters") or {},
        origin=origin,
    )


def search_tool(
    settings: ToolSearch,
    catalogue: Catalogue,
    public: Collection[str],
    open_names: Callable[[ToolContext[Any]], Collection[str]],
    enabled: Callable[[ToolContext[Any], Sequence[str]], Awaitable[Sequence[bool]]],
) -> Tool:
    """Return the tool that searches a catalogue.

    Args:
        settings: its name, and how it searches.
        catalogue: the deferred tools.
        public: the tools that every run may use. The model is told what they are for, before any search.
        open_names: returns the tools that the run of a call may use.
        enabled: returns whether each of some tools is enabled now.
    """

    async def search(context: ToolContext[Any], query: Annotated[str, _QUERY]) -> dict[str, Any]:
        names = open_names(context)
        ranked = await catalogue.ranked(settings, query[:_LONGEST_QUERY], names)
        found: list[str] = []
        # whether a tool is enabled may be a slow question, so it is asked for no more tools than it takes
        for place in range(0, len(ranked), settings.most):
            several = ranked[place : place + settings.most]
            answers = await enabled(context, several)
            found += [name for name, is_enabled in zip(several, answers, strict=True) if is_enabled]
            if len(found) >= settings.most:
                break
        return _result(catalogue, found[: settings.most], [name for name in public if name in names])

    about = _DESCRIPTION.format(count=len(public), kinds=catalogue.kinds(public))
    return tool(
        search, name=settings.name, description=about, max_result=None, on_error=_error_text, deferred=False
    )


def _error_text(context: ToolContext[Any], error: Exception) -> str:
    """Return the error text for the model.

    Raises:
        RoutelockError: the app has made a mistake, which a model cannot correct.
    """
    if isinstance(error, ConfigError | CallbackError):
        raise error
    return failure_text(context.tool_name, error)


def _result(catalogue: Catalogue, found: Sequence[str], public: Iterable[str]) -> dict[str, Any]:
    """Return the names and descriptions of what was found; if nothing was, what there are tools for."""
    if not found:
        return {"found": [], "note": _NOTHING.format(kinds=catalogue.kinds(public))}
    shown = [
        {"name": name, "description": clip(catalogue.tools[name].description, _LONGEST_DESCRIPTION)}
        for name in found
    ]
    return {"found": shown, "note": _FOUND}


def found_names(result: str) -> list[str]:
    """Return the names of the tools in the result of a search; none if it is something else."""
    try:
        read: Any = json.loads(result)
        return [str(each["name"]) for each in read["found"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
