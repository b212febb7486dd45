"""Python types as JSON: their schemas, the parsing of what a model sends, and errors it can act on.

Pydantic is loaded with the first type: importing it takes a sixth of what importing routelock would with it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_origin

from typing_extensions import TypedDict

from routelock._records import dataclass
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.strict import strict_schema

if TYPE_CHECKING:
    import pydantic
    from pydantic.json_schema import GenerateJsonSchema

__all__ = ["JsonType", "clip", "default_as_json", "describe_error", "misfit", "plain_schema", "schema_of"]

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
