"""Python types as JSON: their schemas, the parsing of what a model sends, and errors it can act on.

Pydantic is loaded with the first type: importing it takes a sixth of what importing routelock would with it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_origin

from typing_extensions import TypedDict

from routelock.errors import ConfigError, ModelBehaviorError

if TYPE_CHECKING:
    import pydantic
    from pydantic.json_schema import GenerateJsonSchema

__all__ = [
    "JsonType",
    "clip",
    "default_as_json",
    "describe_error",
    "misfit",
    "plain_schema",
    "schema_of",
    "strict_schema",
]


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


T = TypeVar("T")

_Schema = dict[str, Any]

_WRAPPER = "response"
"""The one key of the object that a type without an object schema is wrapped in."""


def misfit() -> type[pydantic.ValidationError]:
    """Return the class of what pydantic raises when something does not fit."""
    from pydantic import ValidationError  # noqa: PLC0415 - see above

    return ValidationError


@functools.cache
def _generator() -> type[GenerateJsonSchema]:
    # half of pydantic's import time, paid with the first schema and not by everyone who imports us
    from pydantic.json_schema import GenerateJsonSchema, NoDefault  # noqa: PLC0415

    empties: tuple[Any, ...] = (list, dict, set, frozenset, tuple)

    class Generator(GenerateJsonSchema):
        """Leaves out the titles that only repeat names, and says what an empty default is."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def get_default_value(self, schema: Any) -> Any:
            factory = schema.get("default_factory")
            if (get_origin(factory) or factory) in empties:
                return factory()
            return schema.get("default", NoDefault)

        def encode_default(self, dft: Any) -> Any:
            return default_as_json(super().encode_default(dft))

    return Generator


def default_as_json(default: object) -> Any:
    """Return a default as a schema can tell it: infinity and NaN as text, since JSON has no such numbers.

    Raises:
        ValueError: it has no JSON form.
    """
    from pydantic_core import from_json, to_json  # noqa: PLC0415 - see above

    return from_json(to_json(default, inf_nan_mode="strings"))


def plain_schema(adapter: pydantic.TypeAdapter[Any]) -> _Schema:
    """Return the JSON schema of what ``adapter`` accepts, without the titles that repeat names.

    A type that contains itself is spelled out at the top: providers take no reference there.
    """
    schema = adapter.json_schema(schema_generator=_generator())
    while isinstance(ref := schema.pop("$ref", None), str):
        schema = {**schema["$defs"][ref.rpartition("/")[2]], **schema}
    for name, node in ("", schema), *schema.get("$defs", {}).items():
        if not name or node.get("title") == name:
            node.pop("title", None)
    return schema


def schema_of(of: Any) -> tuple[_Schema, bool]:
    """Return the JSON schema of a type, wrapped as `JsonType` does, and whether it is strict.

    Raises:
        ConfigError: the type has no JSON schema.
    """
    made = JsonType(of)
    return made.schema, made.strict


@dataclass(frozen=True, slots=True, eq=False)
class JsonType(Generic[T]):
    """A Python type as JSON: the schema that a model is shown, and the parser of what it sends.

    Takes whatever pydantic can check: a model, dataclass, TypedDict, ``list[str]``, a union. A type
    whose schema is not an object is wrapped in one, ``{"response": ...}``, since that is what
    providers take; `parse` unwraps it.

    Raises:
        ConfigError: the type has no JSON schema.
    """

    of: type[T]
    schema: _Schema = field(init=False, repr=False)
    """Strict where possible, see `strict_schema`. It is shared: do not change it."""
    strict: bool = field(init=False)
    """Whether ``schema`` is strict."""
    wrapped: bool = field(init=False)
    _adapter: pydantic.TypeAdapter[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            adapter, schema, wrapped = _adapted(self.of)
        except Exception as error:
            why = clip(str(error).partition("\n")[0], 300)
            raise ConfigError(
                f"{self.of!r:.200} cannot be a JSON type: {why} "
                "Use a pydantic model, a dataclass, a TypedDict, or built-in types."
            ) from error
        strict = strict_schema(schema)
        object.__setattr__(self, "schema", schema if strict is None else strict)
        object.__setattr__(self, "strict", strict is not None)
        object.__setattr__(self, "wrapped", wrapped)
        object.__setattr__(self, "_adapter", adapter)

    def parse(self, text: str, *, strict: bool = False) -> T:
        """Return the value that the JSON ``text`` stands for.

        Args:
            text: JSON, exactly as the model wrote it.
            strict: whether to refuse values that would have to be converted, such as 5 for a text.

        Raises:
            ModelBehaviorError: the text is not JSON or does not fit; the message is written for the
                model and at most 700 characters long.
        """
        try:
            value = self._adapter.validate_json(text, strict=strict or None)
        except misfit() as error:
            raise ModelBehaviorError(describe_error(error, text, schema=self.schema)) from error
        return cast(T, value[_WRAPPER] if self.wrapped else value)


def _adapted(of: Any) -> tuple[pydantic.TypeAdapter[Any], _Schema, bool]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - see above

    adapter: pydantic.TypeAdapter[Any] = TypeAdapter(of)
    schema = plain_schema(adapter)
    if schema.get("type") == "object":
        return adapter, schema, False
    make_type = cast(Any, TypedDict)
    adapter = TypeAdapter(make_type("Response", {_WRAPPER: of}))
    return adapter, plain_schema(adapter), True


def describe_error(
    error: ValueError, text: str | None, *, schema: Mapping[str, Any] | None = None, limit: int = 700
) -> str:
    """Say what is wrong with ``text``, where, what was sent and what is expected, in bounded length.

    Args:
        error: pydantic's ValidationError, a JSONDecodeError, or any other ValueError.
        text: what the model sent; a preview of it is shown.
        schema: the object schema that was expected; its fields are listed.
        limit: longest answer, in characters.
    """
    parts = [clip(_problems(error), 350), f"You sent: {_preview(text or '')}"]
    if schema is not None:
        parts.append(clip(_expected(schema), 170))
    return clip("\n".join(parts), limit)


def clip(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` characters, and without what cannot be sent as UTF-8."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _problems(error: ValueError) -> str:
    if not isinstance(error, misfit()):
        return f"{error}."
    count = error.error_count()
    if count > 1000:  # listing them takes longer than reading the text did
        return f"{count} values do not fit."
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [_problem(each["loc"], each["msg"]) for each in found[:3]]
    return "\n".join([*shown, f"... and {count - 3} more."] if count > 3 else shown)


def _problem(where: tuple[int | str, ...], message: str) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")
    return clip(f"{clip(path, 50)}: {message}." if path else f"{message}.", 110)


def _preview(text: str) -> str:
    """The text, or its two ends: a cut reply shows what is wrong at its end."""
    if len(text) <= 150:
        return clip(text, 150) or "(nothing)"
    return f"{clip(text[:100], 100)} … {clip(text[-40:], 40)} ({len(text)} characters)"


def _expected(schema: Mapping[str, Any]) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties:
        return "Expected: {}, without any field."
    required = schema.get("required", ())
    fields = (
        f"{name} ({_kind(each)}{', required' if name in required else ''})"
        for name, each in properties.items()
    )
    return "Expected a JSON object with " + ", ".join(fields) + "."


def _kind(node: object) -> str:
    if not isinstance(node, Mapping):
        return "any"
    each = cast("Mapping[str, Any]", node)
    if "enum" in each or "const" in each:
        return "one of " + json.dumps(each.get("enum", [each.get("const")]), ensure_ascii=False)
    if "$ref" in each:
        return "object"
    if "anyOf" in each:
        return " or ".join(_kind(choice) for choice in each["anyOf"])
    kind: Any = each.get("type", "any")
    return " or ".join(cast("list[str]", kind)) if isinstance(kind, list) else str(kind)
