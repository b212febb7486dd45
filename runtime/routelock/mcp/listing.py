"""The tools that an MCP server lists, under names and with schemas that model providers accept."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from routelock._names import LONGEST_TOOL_NAME, odd_tool_name
from routelock.errors import ConfigError
from routelock.mcp.schemas import digest_of, object_schema, renamed

__all__ = ["ListedTool", "WantedTools", "check_known", "offered_name", "wanted_tools"]

WantedTools = Collection[str] | Callable[[str], bool] | None
"""Which tools of a server are wanted: names as the server spells them, a function of the name, or all."""

_log = logging.getLogger("routelock.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool of a server's list."""

    name: str
    """As the server spells it."""
    offered: str
    """As the model is to call it."""
    description: str
    schema: Mapping[str, Any]
    arguments: Mapping[str, str]
    """The server's names of arguments that are offered under others, by those."""


def wanted_tools(
    tools: Iterable[Mapping[str, Any]], *, prefix: str, only: WantedTools, where: str
) -> dict[str, ListedTool]:
    """Return the wanted tools of a list, by the server's names for them.

    Args:
        tools: as ``tools/list`` gives them.
        prefix: what the offered names begin with.
        only: which are wanted.
        where: the server, for messages.

    Raises:
        ConfigError: the server lacks a tool that ``only`` names, two would be offered under one name, or
            the arguments of one are no object.
    """
    listed: dict[str, ListedTool] = {}
    for tool in tools:
        name = str(tool.get("name"))
        if name in listed:
            _log.warning("%s lists the tool %r twice; the first one counts", where, name)
            continue
        listed[name] = _listed(tool, name, prefix)
    if only is not None and not callable(only):
        check_known(only, listed, "only", where)
    wanted = {name: each for name, each in listed.items() if _is_wanted(name, only)}
    _check(wanted.values(), where)
    return wanted


def check_known(named: Collection[str], listed: Collection[str], option: str, where: str) -> None:
    """Make sure that names in an option are names of tools: a wrong one would do nothing, without a word.

    Raises:
        ConfigError: they are not.
    """
    if isinstance(named, str):
        raise ConfigError(f"{where}: {option} must be a list of names, not the text {named!r}.")
    unknown = [repr(name) for name in named if name not in listed]
    if unknown:
        there = ", ".join(sorted(listed)) or "none"
        raise ConfigError(f"{where}: {option} names {', '.join(unknown)}. Its tools are: {there}.")


def offered_name(name: str) -> str:
    """Return a name that providers accept.

    Dots, slashes and spaces become underscores. Where more than that is lost, six hex digits of the name's
    SHA-1 keep two names apart, as in `routelock.names.slug`.
    """
    if not odd_tool_name(name):
        return name
    folded = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if len(folded) <= LONGEST_TOOL_NAME and re.fullmatch(r"[\w\-./ ]+", name, re.ASCII):
        return folded
    return f"{folded[: LONGEST_TOOL_NAME - 7]}_{digest_of(name)}"


def _listed(tool: Mapping[str, Any], name: str, prefix: str) -> ListedTool:
    schema, arguments = renamed(object_schema(tool.get("inputSchema") or {}))
    return ListedTool(
        name=name,
        offered=offered_name(prefix + name),
        description=str(tool.get("description") or tool.get("title") or ""),
        schema=schema,
        arguments=arguments,
    )


def _is_wanted(name: str, only: WantedTools) -> bool:
    if only is None:
        return True
    return bool(only(name)) if callable(only) else name in only


def _check(wanted: Iterable[ListedTool], where: str) -> None:
    offered: dict[str, str] = {}
    for tool in wanted:
        other = offered.setdefault(tool.offered, tool.name)
        if other != tool.name:
            raise ConfigError(
                f"{where}: its tools {other!r} and {tool.name!r} would both be offered as {tool.offered!r}. "
                "Leave one out with only=[...]."
            )
        if tool.schema["type"] != "object":
            raise ConfigError(
                f"{where}: its tool {tool.name!r} takes {tool.schema['type']!r} instead of an object with "
                "arguments. Leave it out with only=[...]."
            )
