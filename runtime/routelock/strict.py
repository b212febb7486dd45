"""The strict form of a JSON schema: what OpenAI calls structured outputs.

The vendor then guarantees that the model's JSON fits the schema. Not every schema has a strict form;
one that has none is sent as it is, and everything is validated by us in either case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

__all__ = ["strict_schema"]

_KEPT = frozenset(
    "type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems".split()
)
_TOLD = frozenset("default minLength maxLength uniqueItems minProperties maxProperties examples".split())
"""Said in the description instead, since a strict schema may not contain them; we still check them."""
_DROPPED = frozenset("title $schema $id $comment deprecated readOnly writeOnly".split())
_HANDLED = frozenset(
    "$ref anyOf oneOf discriminator properties required additionalProperties items format pattern".split()
)
_KNOWN = _KEPT | _TOLD | _HANDLED | {"description"}
_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
_DEFS = ("$defs", "definitions")
_LONGEST_NOTES = 300
_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


class _NotStrict(Exception):
    """This schema has no strict form."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the strict form of an object schema, or None if it has none. The input is not changed.

    Every object is closed and all its properties are required. The meaning stays: whatever fits the
    strict form fits the original. A property with a default becomes required, and its description
    tells the default. A property that may be left out and has no default (a ``NotRequired`` key, a
    default that a function makes) has no strict form, because the model would have to invent one.
    Constraints that a strict schema may not contain move into the description. None as well for
    free-form objects, tuples, ``not``, ``if``, keywords unknown here, and a root that is no object.
    The empty schema means "no arguments".
    """
    if not schema:
        return {"additionalProperties": False, "type": "object", "properties": {}, "required": []}
    try:
        return _Strict(schema).root()
    except _NotStrict:
        return None


class _Strict:
    """One conversion; holds the definitions that references point to."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.defs: dict[str, Any] = {}
        for key in _DEFS:
            definitions: Mapping[str, Any] = schema.get(key) or {}
            self.defs |= {f"#/{key}/{name}": each for name, each in definitions.items()}

    def root(self) -> dict[str, Any]:
        node = {key: each for key, each in self.schema.items() if key not in _DEFS}
        # a model that contains itself is a reference at the top
        strict = self.node(self.resolved(node) if "$ref" in node else node)
        if strict.get("type") != "object":
            raise _NotStrict
        return strict | self.used_definitions(strict)

    def used_definitions(self, strict: dict[str, Any]) -> dict[str, Any]:
        used: dict[str, dict[str, Any]] = {}
        waiting = _references(strict)
        while waiting:
            ref = waiting.pop()
            if ref not in used and ref != "#":
                used[ref] = self.node(self.target(ref))
                waiting += _references(used[ref])
        kept: dict[str, Any] = {}
        for ref in filter(used.__contains__, self.defs):  # in their old order
            _, key, name = ref.split("/", 2)
            kept.setdefault(key, {})[name] = used[ref]
        return kept

    def target(self, ref: object) -> Mapping[str, Any]:
        target = self.schema if ref == "#" else self.defs.get(str(ref))
        if not isinstance(target, Mapping):
            raise _NotStrict
        return cast("Mapping[str, Any]", target)

    def node(self, schema: object) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            raise _NotStrict  # True and False are schemas too
        node: Mapping[str, Any] = _without_notes(cast("Mapping[str, Any]", schema))
        if "allOf" in node or ("$ref" in node and len(node) > 1):
            node = self.resolved(node)
        if node.keys() - _KNOWN:
            raise _NotStrict
        strict = self.shape(node)
        if description := _description(node):
            strict["description"] = description
        return strict

    def resolved(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fold a reference, or an `allOf` of one, and the notes beside it into one node."""
        seen: list[object] = []
        while True:
            inner, beside = self.inner(node)
            if inner is None:
                return beside
            if inner in seen or beside.keys() - _TOLD - {"description"}:
                raise _NotStrict
            seen.append(inner)
            node = {**inner, **beside}

    def inner(self, node: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, dict[str, Any]]:
        beside = _without_notes(node)
        if "$ref" in beside:
            return self.target(beside.pop("$ref")), beside
        if "allOf" not in beside:
            return None, beside
        part, *others = beside.pop("allOf") or [None]
        if others or not isinstance(part, Mapping):
            raise _NotStrict
        return cast("Mapping[str, Any]", part), beside

    def shape(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """What a value must look like, without the words about it."""
        if "$ref" in node:
            self.target(node["$ref"])
            return {"$ref": node["$ref"]}
        if "anyOf" in node or "oneOf" in node:
            return {"anyOf": [self.node(each) for each in _choices(node)]}
        strict = {key: each for key, each in node.items() if key in _KEPT}
        strict["type"] = kinds = _types(node)
        if "object" in kinds:
            strict |= self.object(node)
        if "array" in kinds:
            strict["items"] = self.node(node.get("items"))
        return strict | {key: each for key, each in node.items() if _is_sayable(key, each)}

    def object(self, node: Mapping[str, Any]) -> dict[str, Any]:
        properties: Mapping[str, Any] | None = node.get("properties")
        if node.get("additionalProperties", False) is not False:
            raise _NotStrict
        if properties is None and "additionalProperties" not in node:
            raise _NotStrict  # any object at all
        properties = properties or {}
        required: set[str] = set(node.get("required") or ())
        optional = [each for name, each in properties.items() if name not in required]
        if required - properties.keys() or not all(map(_has_default, optional)):
            raise _NotStrict
        return {
            "additionalProperties": False,
            "properties": {name: self.node(each) for name, each in properties.items()},
            "required": list(properties),
        }


def _without_notes(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in node.items() if key not in _DROPPED and not key.startswith("x-")}


def _has_default(node: object) -> bool:
    return isinstance(node, Mapping) and "default" in node


def _choices(node: Mapping[str, Any]) -> list[Any]:
    """The branches of a union. `oneOf` says the same as `anyOf` where a discriminator parts them."""
    if node.keys() - _TOLD - {"anyOf", "oneOf", "discriminator", "description"}:
        raise _NotStrict
    if "oneOf" in node and ("anyOf" in node or "discriminator" not in node):
        raise _NotStrict
    choices: list[Any] = node.get("anyOf") or node.get("oneOf") or []
    return choices


def _types(node: Mapping[str, Any]) -> str | list[str]:
    """The node's type, worked out from its values where it has no more than those."""
    if (named := node.get("type")) is not None:
        return cast("str | list[str]", named)
    values: list[Any] = [node["const"]] if "const" in node else node.get("enum", [])
    kinds = sorted({_JSON_TYPES.get(value.__class__, "") for value in values})
    if not kinds or "" in kinds:
        raise _NotStrict
    return kinds[0] if len(kinds) == 1 else kinds


def _is_sayable(key: str, value: Any) -> bool:
    """Whether a strict schema may contain this format or pattern; lookaround it may not."""
    return (key == "format" and value in _FORMATS) or (key == "pattern" and "(?" not in value)


def _description(node: Mapping[str, Any]) -> str:
    """The description, and in brackets after it what the strict form cannot say."""
    text = str(node.get("description") or "")
    told = {
        key: each
        for key, each in node.items()
        if key in _TOLD or (key in ("format", "pattern") and not _is_sayable(key, each))
    }
    if "default" in told and told["default"] is None:
        del told["default"]  # null is among the types, and says so
    if not told:
        return text
    notes = "; ".join(f"{key}: {json.dumps(each, ensure_ascii=False)}" for key, each in told.items())
    return f"{text} ({notes[:_LONGEST_NOTES]})".lstrip()


def _references(node: object) -> list[str]:
    if isinstance(node, list):
        return [ref for each in cast("list[object]", node) for ref in _references(each)]
    if not isinstance(node, dict):
        return []
    items = cast("dict[str, object]", node).items()
    own = [each for key, each in items if key == "$ref" and isinstance(each, str)]
    return own + [ref for _, each in items for ref in _references(each)]
