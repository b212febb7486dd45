"""JSON schemas of Python types, parsing of a model's JSON, and error texts that a model can act on.

Pydantic is imported with the first type, because it would take a sixth of routelock's import time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_origin

from typing_extensions import TypedDict

from routelock._text import clip
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.tools.unfinished_json import unfinished_value

if TYPE_CHECKING:
    import pydantic
    from pydantic.json_schema import GenerateJsonSchema

__all__ = [
    "JsonType",
    "default_as_json",
    "describe_error",
    "misfit",
    "plain_schema",
    "strict_schema",
]


_ALLOWED = frozenset(
    "type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems".split()
)

_IN_DESCRIPTION = frozenset(
    "default minLength maxLength uniqueItems minProperties maxProperties examples".split()
)
"""Keywords that a strict schema may not contain. The description states them, and the parser checks them."""

_DROPPED = frozenset("title $schema $id $comment deprecated readOnly writeOnly".split())

_CONVERTED = frozenset(
    "$ref anyOf oneOf discriminator properties required additionalProperties items format pattern".split()
)

_KNOWN = _ALLOWED | _IN_DESCRIPTION | _CONVERTED | {"description"}

_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())

_DEFS = ("$defs", "definitions")

_LONGEST_ADDITION = 300

_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


class _NotStrict(Exception):
    """The schema has no strict form."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the strict form of an object schema, or None if it has none. The input is not changed.

    In the strict form every object is closed and all its properties are required. Each value of the strict
    form is valid for the original. A property with a default becomes required, and its description states the
    default. Constraints that a strict schema may not contain move into the description. The empty schema
    means "no arguments".

    These have no strict form: an optional property without a default (a ``NotRequired`` key, a default
    factory), because the model would have to invent a value; free-form objects; tuples; ``not`` and ``if``;
    unknown keywords; and a root that is not an object.
    """
    if not schema:
        return {"additionalProperties": False, "type": "object", "properties": {}, "required": []}
    try:
        return _Strict(schema).root()
    except _NotStrict:
        return None


class _Strict:
    """One conversion to the strict form, with the definitions that references point to."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.defs: dict[str, Any] = {}
        for key in _DEFS:
            definitions: Mapping[str, Any] = schema.get(key) or {}
            self.defs |= {f"#/{key}/{name}": each for name, each in definitions.items()}

    def root(self) -> dict[str, Any]:
        node = {key: each for key, each in self.schema.items() if key not in _DEFS}
        # the root of a recursive model is a reference
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
        for ref in filter(used.__contains__, self.defs):  # in their original order
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
        """Return one node made of a reference, or an `allOf` of one, and of the keywords beside it."""
        seen: list[object] = []
        while True:
            inner, beside = self.inner(node)
            if inner is None:
                return beside
            if inner in seen or beside.keys() - _IN_DESCRIPTION - {"description"}:
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
        """Return the strict form of a node, without its description."""
        if "$ref" in node:
            self.target(node["$ref"])
            return {"$ref": node["$ref"]}
        if "anyOf" in node or "oneOf" in node:
            return {"anyOf": [self.node(each) for each in _choices(node)]}
        strict = {key: each for key, each in node.items() if key in _ALLOWED}
        strict["type"] = kinds = _types(node)
        if "object" in kinds:
            strict |= self.object(node)
        if "array" in kinds:
            strict["items"] = self.node(node.get("items"))
        return strict | {key: each for key, each in node.items() if _is_allowed_format(key, each)}

    def object(self, node: Mapping[str, Any]) -> dict[str, Any]:
        properties: Mapping[str, Any] | None = node.get("properties")
        if node.get("additionalProperties", False) is not False:
            raise _NotStrict
        if properties is None and "additionalProperties" not in node:
            raise _NotStrict  # a free-form object
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
    """Return the branches of a union; `oneOf` with a discriminator means the same as `anyOf`."""
    if node.keys() - _IN_DESCRIPTION - {"anyOf", "oneOf", "discriminator", "description"}:
        raise _NotStrict
    if "oneOf" in node and ("anyOf" in node or "discriminator" not in node):
        raise _NotStrict
    choices: list[Any] = node.get("anyOf") or node.get("oneOf") or []
    return choices


def _types(node: Mapping[str, Any]) -> str | list[str]:
    """Return the type of a node; without a ``type`` it is the type of the node's values."""
    if (named := node.get("type")) is not None:
        return cast("str | list[str]", named)
    values: list[Any] = [node["const"]] if "const" in node else node.get("enum", [])
    kinds = sorted({_JSON_TYPES.get(value.__class__, "") for value in values})
    if not kinds or "" in kinds:
        raise _NotStrict
    return kinds[0] if len(kinds) == 1 else kinds


def _is_allowed_format(key: str, value: Any) -> bool:
    """Whether a strict schema may contain this format or pattern; it may not contain lookaround."""
    return (key == "format" and value in _FORMATS) or (key == "pattern" and "(?" not in value)


def _description(node: Mapping[str, Any]) -> str:
    """Return the description, with the constraints that the strict form cannot contain in brackets."""
    text = str(node.get("description") or "")
    moved = {
        key: each
        for key, each in node.items()
        if key in _IN_DESCRIPTION or (key in ("format", "pattern") and not _is_allowed_format(key, each))
    }
    if "default" in moved and moved["default"] is None:
        del moved["default"]  # the types include null already
    if not moved:
        return text
    notes = "; ".join(f"{key}: {json.dumps(each, ensure_ascii=False)}" for key, each in moved.items())
    return f"{text} ({notes[:_LONGEST_ADDITION]})".lstrip()


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
"""The key of the object in which a type without an object schema is wrapped."""


def misfit() -> type[pydantic.ValidationError]:
    """Return pydantic's ValidationError, which is imported with the first use."""
    from pydantic import ValidationError  # noqa: PLC0415 - see above

    return ValidationError


@functools.cache
def _generator() -> type[GenerateJsonSchema]:
    # half of pydantic's import time: needed for the first schema, not for importing routelock
    from pydantic.json_schema import GenerateJsonSchema, NoDefault  # noqa: PLC0415

    empties: tuple[Any, ...] = (list, dict, set, frozenset, tuple)

    class Generator(GenerateJsonSchema):
        """A schema generator without titles that repeat names, and with defaults such as ``list``."""

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
    """Return a default in JSON form; infinity and NaN are texts, since JSON has no such numbers.

    Raises:
        ValueError: the default has no JSON form.
    """
    from pydantic_core import from_json, to_json  # noqa: PLC0415 - see above

    return from_json(to_json(default, inf_nan_mode="strings"))


def plain_schema(adapter: pydantic.TypeAdapter[Any]) -> _Schema:
    """Return the JSON schema of an adapter's type, without titles that repeat names.

    The root of a recursive type is spelled out, because providers refuse a reference there.
    """
    schema = adapter.json_schema(schema_generator=_generator())
    while isinstance(ref := schema.pop("$ref", None), str):
        schema = {**schema["$defs"][ref.rpartition("/")[2]], **schema}
    for name, node in ("", schema), *schema.get("$defs", {}).items():
        if not name or node.get("title") == name:
            node.pop("title", None)
    return schema


@dataclass(frozen=True, slots=True, eq=False)
class JsonType(Generic[T]):
    """A Python type with its JSON schema for a model, and the parser of the model's JSON.

    The type is any type that pydantic can check: a model, dataclass, TypedDict, ``list[str]``, a union. A
    type whose schema is not an object is wrapped in one, ``{"response": ...}``, because providers accept only
    objects; `parse` unwraps it.

    Raises:
        ConfigError: the type has no JSON schema.
    """

    of: type[T]
    schema: _Schema = field(init=False, repr=False)
    """The strict form if there is one, see `strict_schema`. It is shared: do not change it."""
    strict: bool = field(init=False)
    """Whether ``schema`` is strict."""
    wrapped: bool = field(init=False)
    _adapter: pydantic.TypeAdapter[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(cast(object, self.of), list | tuple):
            raise ConfigError(
                f"{self.of!r:.200} cannot be a JSON type: of several types make a union, such as A | B."
            )
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
        """Return the value of a JSON text.

        Args:
            text: JSON, exactly as the model wrote it.
            strict: whether to refuse values that need a conversion, such as 5 for a text.

        Raises:
            ModelBehaviorError: the text is not JSON, or does not match the schema. The message is for the
                model and has at most 700 characters.
        """
        try:
            value = self._adapter.validate_json(text, strict=strict or None)
        except misfit() as error:
            raise ModelBehaviorError(describe_error(error, text, schema=self.schema)) from error
        return cast(T, value[_WRAPPER] if self.wrapped else value)

    def parse_partial(self, text: str) -> T | None:
        """Return the value of a JSON text that is still being written; None if there is none yet.

        Parts at the end of the text that do not match the schema yet are left out, if the rest is valid
        without them. Such a part is a number or a word that may go on, the last item of a list, or a field
        that has a default. The last string may be incomplete.

        Args:
            text: the beginning of a JSON text. A complete text gives None: it is for `parse`.
        """
        value = unfinished_value(text, self._adapter.validate_json)
        return cast("T | None", value[_WRAPPER] if self.wrapped and value is not None else value)

    def check(self, value: object) -> tuple[T, str]:
        """Return a value of the app as one of the type, and as the JSON text that a model would write.

        Raises:
            ValueError: the value does not match the type, or has no JSON form.
        """
        checked = self._adapter.validate_python({_WRAPPER: value} if self.wrapped else value)
        text = self._adapter.dump_json(checked, by_alias=True).decode()
        return cast(T, checked[_WRAPPER] if self.wrapped else checked), text


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
    """Return a report for the model about a mistake in its JSON.

    The report has the mistakes and their places, the text that the model sent, and the expected fields.

    Args:
        error: pydantic's ValidationError, a JSONDecodeError, or any other ValueError.
        text: the text that the model sent; the report shows its beginning and its end.
        schema: the expected object schema; the report lists its fields.
        limit: the longest report, in characters.
    """
    parts = [clip(_problems(error), 350), f"You sent: {_preview(text or '')}"]
    if schema is not None:
        parts.append(clip(_expected(schema), 170))
    return clip("\n".join(parts), limit)


def _problems(error: ValueError) -> str:
    if not isinstance(error, misfit()):
        return f"{error}."
    count = error.error_count()
    if count > 1000:  # listing them takes longer than parsing the text
        return f"{count} values do not match the schema."
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [_problem(each["loc"], each["msg"]) for each in found[:3]]
    return "\n".join([*shown, f"... and {count - 3} more."] if count > 3 else shown)


def _problem(where: tuple[int | str, ...], message: str) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")
    return clip(f"{clip(path, 50)}: {message}." if path else f"{message}.", 110)


def _preview(text: str) -> str:
    """Return a text, or its beginning and its end; a reply that was cut off is wrong at its end."""
    if len(text) <= 150:
        return clip(text, 150) or "(nothing)"
    return f"{clip(text[:100], 100)} … {clip(text[-40:], 40)} ({len(text)} characters)"


def _expected(schema: Mapping[str, Any]) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties:
        return "Expected: {}, without any field."
    required, named = schema.get("required", ()), schema.get("$defs", {})
    fields = (
        f"{name} ({_kind(each, named)}{', required' if name in required else ''})"
        for name, each in properties.items()
    )
    return "Expected a JSON object with " + ", ".join(fields) + "."


def _kind(node: object, named: Mapping[str, Any]) -> str:
    """Return the type of a node as text. ``named`` are the types that it may refer to."""
    if not isinstance(node, Mapping):
        return "any"
    each = cast("Mapping[str, Any]", node)
    if "enum" in each or "const" in each:
        return "one of " + json.dumps(each.get("enum", [each.get("const")]), ensure_ascii=False)
    if "$ref" in each:
        name = str(each["$ref"]).removeprefix("#/$defs/")
        referred = _kind(named.get(name, {"type": "object"}), {})  # a type may contain itself
        return f"object {name}" if referred == "object" and name in named else referred
    if "anyOf" in each:
        return " or ".join(_kind(choice, named) for choice in each["anyOf"])
    kind: Any = each.get("type", "any")
    return " or ".join(cast("list[str]", kind)) if isinstance(kind, list) else str(kind)
