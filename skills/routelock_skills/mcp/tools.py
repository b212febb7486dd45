"""Tools of a server's list: selection, names and schemas."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from routelock._json import list_of
from routelock._tool_names import LONGEST_TOOL_NAME, odd_tool_name
from routelock.errors import ConfigError

__all__ = [
    "ListedTool",
    "WantedTools",
    "check_known",
    "digest_of",
    "object_schema",
    "offered_name",
    "renamed",
    "wanted_tools",
]


_Schema = Mapping[str, Any]

_BRANCHING = ("allOf", "anyOf", "oneOf")

_REFUSED = (*_BRANCHING, "enum", "not", "$ref")
"""Keywords at the top of a tool's schema for which OpenAI and Claude refuse the whole request."""


def object_schema(given: _Schema) -> dict[str, Any]:
    """Return a schema whose top level only lists the arguments.

    Arguments of branches become optional arguments, and the rule is added to the description: the server
    checks it anyway. Lower levels stay unchanged.

    Args:
        given: the server's schema; it may use all of JSON Schema.
    """
    schema: dict[str, Any] = _read({key: each for key, each in given.items() if key != "$ref"})
    if "$ref" in given:
        schema = {**_read(_target(given, given)), **schema}
    schema = cast("dict[str, Any]", {"type": "object", "properties": {}, **schema})  # OpenAI wants properties
    rules = {key: schema.pop(key) for key in _REFUSED if key in schema}
    if not rules:
        return schema
    rule = f"The arguments also have to fit: {json.dumps(rules, ensure_ascii=False)}"
    schema["description"] = f"{schema.get('description') or ''} {rule}".lstrip()
    schema["properties"] = _with_branches(schema, rules, given)
    all_of = [name for each in _branches(rules, given, ("allOf",)) for name in each.get("required", ())]
    if all_of:
        schema["required"] = list(dict.fromkeys([*schema.get("required", ()), *all_of]))
    return schema


def renamed(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a schema whose arguments have names that Claude takes.

    The second result maps these names to the server's names.

    Claude refuses a whole request for one name like ``filter[id]``. The description of a renamed argument
    holds the server's name.

    Args:
        schema: the result of `object_schema`.
    """
    properties: dict[str, Any] = schema["properties"]
    names: dict[str, str] = {}
    for name in properties:
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
            names[name] = _name(name, {*properties, *names.values()})
    if not names:
        return schema, {}
    made = {names.get(name, name): _described(each, name in names, name) for name, each in properties.items()}
    changed: dict[str, Any] = {"properties": made}
    if "required" in schema:
        changed["required"] = [names.get(name, name) for name in schema["required"]]
    return {**schema, **changed}, {offered: name for name, offered in names.items()}


def digest_of(name: str) -> str:
    """Return six hex digits of a name's SHA-1, which keep two names apart."""
    return hashlib.sha1(name.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()[:6]


def _name(name: str, taken: set[str]) -> str:
    folded = re.sub(r"[^a-zA-Z0-9_.-]", "_", name)
    is_free = 1 <= len(folded) <= 64 and folded not in taken
    return folded if is_free else f"{folded[:57]}_{digest_of(name)}"


def _described(node: Any, is_renamed: bool, name: str) -> Any:
    if not is_renamed or not isinstance(node, Mapping):
        return node
    known = cast("_Schema", node)
    return {**known, "description": f"{known.get('description') or ''} (The server calls it {name})".lstrip()}


def _read(schema: _Schema) -> dict[str, Any]:
    """Return the schema without its draft and without odd empty values.

    Go and PHP servers write null and ``[]`` for "none".
    """
    read = {key: each for key, each in schema.items() if key != "$schema" and each is not None}
    if not isinstance(read.get("properties"), Mapping):
        read.pop("properties", None)
    if "required" in read:
        read["required"] = [name for name in list_of(read["required"]) if isinstance(name, str)]
    return read


def _with_branches(schema: _Schema, rules: _Schema, whole: _Schema) -> dict[str, Any]:
    own: dict[str, Any] = schema["properties"]
    found: dict[str, list[Any]] = {}
    for branch in _branches(rules, whole, _BRANCHING):
        for name, each in branch.get("properties", {}).items():
            known = found.setdefault(name, [])
            if each not in known:
                known.append(each)
    added = {name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in found.items()}
    return {**added, **own}


def _branches(rules: _Schema, whole: _Schema, keys: tuple[str, ...]) -> Iterator[_Schema]:
    for key in keys:
        for branch in list_of(rules.get(key)):
            if isinstance(branch, Mapping):  # true and false are schemas as well
                yield _read(_target(cast("_Schema", branch), whole))


def _target(node: _Schema, whole: _Schema) -> _Schema:
    """Return the schema that a node refers to, or the node."""
    _, _, path = str(node.get("$ref", "")).partition("#/")
    key, _, name = path.partition("/")
    held: object = whole.get(key) if key in ("$defs", "definitions") else None
    found: object = cast("_Schema", held).get(name) if isinstance(held, Mapping) else None
    return cast("_Schema", found) if isinstance(found, Mapping) else node


WantedTools = Collection[str] | Callable[[str], bool] | None
"""The tools of a server to offer: the server's names, a function of the name, or None for all."""

_log = logging.getLogger("routelock.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool of a server's list."""

    name: str
    """The server's name for the tool."""
    offered: str
    """The name that the model is offered."""
    description: str
    schema: Mapping[str, Any]
    arguments: Mapping[str, str]
    """The server's names of renamed arguments, by the names that the model is offered."""


def wanted_tools(
    tools: Iterable[Mapping[str, Any]], *, prefix: str, only: WantedTools, where: str
) -> dict[str, ListedTool]:
    """Return the tools of a list that are offered, by the server's names for them.

    Args:
        tools: the result of ``tools/list``.
        prefix: the beginning of all offered names.
        only: the tools to offer.
        where: the server, for messages.

    Raises:
        ConfigError: the server lacks a tool that ``only`` names, two tools would be offered under one name,
            or the arguments of a tool are not an object.
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
    """Check that the names in an option are names of tools: a wrong one would silently have no effect.

    Raises:
        ConfigError: a name is not that of a tool.
    """
    if isinstance(named, str):
        raise ConfigError(f"{where}: {option} must be a list of names, not the text {named!r}.")
    unknown = [repr(name) for name in named if name not in listed]
    if unknown:
        there = ", ".join(sorted(listed)) or "none"
        raise ConfigError(f"{where}: {option} names {', '.join(unknown)}. Its tools are: {there}.")


def offered_name(name: str) -> str:
    """Return a name that providers accept.

    Dots, slashes and spaces become underscores. If other characters are replaced, six hex digits of the
    name's SHA-1 keep two names apart, as in `routelock._tool_names.slug`.
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
