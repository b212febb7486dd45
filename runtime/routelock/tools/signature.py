"""The schema and the description of a tool, from the signature and the docstring of its function."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, cast, get_args, get_origin

from typing_extensions import TypedDict

from routelock._callables import declared_parameters, hint_of, is_method, name_of, types_in, unbound
from routelock._text import clip
from routelock.context import RunContext
from routelock.errors import ConfigError
from routelock.tools.invoke import Signature
from routelock.tools.schema import default_as_json, plain_schema, strict_schema

if TYPE_CHECKING:
    import pydantic

__all__ = ["is_async", "signature_of"]


_EMPTY: Any = inspect.Parameter.empty

_ANNOTATED: Any = Annotated


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` returns a coroutine; a partial or a callable object may be async too.

    Raises:
        ConfigError: the object is not callable, or is a generator, which has more than one result.
    """
    if not callable(function):
        raise ConfigError(f"{function!r:.80} is a {type(function).__name__}; pass a function to make a tool.")
    inner = unbound(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(
            f"{name_of(function)!r} is a generator, but a tool returns one result: return a list."
        )
    return inspect.iscoroutinefunction(inner)


def signature_of(function: Callable[..., Any], *, strict: bool = True) -> Signature:
    """Return the schema and the parser for a tool's function.

    Args:
        function: any callable with a signature; arguments that a partial has bound are not in the schema.
        strict: whether to use the strict form of the schema, if it has one.

    Raises:
        ConfigError: a model cannot fill a parameter; the message names the parameter and the reason.
    """
    name = name_of(function)
    declared = _parameters(function, name)
    of_class = is_method(function, declared)
    if is_method(function, declared, "cls"):
        raise ConfigError(
            f"{name!r} is a class method, and its class does not exist yet. Leave out the decorator, and "
            f"write tool(TheClass.{name}) where the tool is used."
        )
    declared = declared[of_class:]
    context = _context(function, declared, name)
    fields = [_field(function, each, name) for each in declared if each.name != context]
    adapter, plain = _adapter(name, fields)
    description, docs = _docs(function)
    keys = _describe(plain, fields, docs)
    strict_form = strict_schema(_with_nulls(plain)) if strict else None
    rest = next((each.name for each in declared if each.kind is each.VAR_POSITIONAL), None)
    return Signature(
        name=name,
        description=description,
        schema=plain if strict_form is None else strict_form,
        strict=strict_form is not None,
        context=context,
        is_method=of_class,
        positional=tuple((each.name, each.default) for each in declared if _is_positional(each, rest)),
        rest=rest,
        optional=frozenset(key for key, each in keys.items() if each.is_optional),
        validate=adapter.validate_json,
    )


# -- parameters --


def _parameters(function: Callable[..., Any], name: str) -> Sequence[inspect.Parameter]:
    found = declared_parameters(function, f"Tool {name!r}")
    for each in found:
        if each.kind is each.VAR_KEYWORD:
            raise ConfigError(
                f"{name}: a model cannot fill **{each.name}. Name its keys as parameters, or take one "
                "parameter of type dict. A decorator around a function needs functools.wraps."
            )
    return found


def _is_positional(parameter: inspect.Parameter, rest: str | None) -> bool:
    kind = parameter.kind
    return kind is parameter.POSITIONAL_ONLY or (rest is not None and kind is parameter.POSITIONAL_OR_KEYWORD)


def _context(function: Callable[..., Any], declared: Sequence[inspect.Parameter], name: str) -> str | None:
    for place, each in enumerate(declared):
        # openai-agents fills in the first parameter, webagents any that is named context
        if each.annotation is _EMPTY and (each.name == "context" or (each.name == "ctx" and place == 0)):
            raise ConfigError(
                f"{name}: parameter {each.name!r} has no annotation, so the model would be asked for it: "
                f"write {each.name}: RunContext. If the model is to fill it, write its type, such as str."
            )
    found = [each.name for each in declared if _is_context(function, each)]
    if len(found) > 1:
        raise ConfigError(f"{name}: {' and '.join(found)} both take the run's context. Remove one of them.")
    return found[0] if found else None


def _is_context(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    return any(
        each in ("RunContext", "ToolContext") if isinstance(each, str) else issubclass(each, RunContext)
        for each in types_in(function, parameter.annotation)
    )


@dataclass(frozen=True, slots=True)
class _Field:
    """One parameter that the model fills."""

    name: str
    hint: Any
    text: str
    """The text of ``Annotated[..., "text"]``."""
    is_optional: bool
    default: Any
    """Python's own default, or inspect's ``empty``."""


def _field(function: Callable[..., Any], parameter: inspect.Parameter, owner: str) -> _Field:
    from pydantic.fields import FieldInfo  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        hint = hint_of(function, parameter.annotation)
    except Exception as error:
        raise ConfigError(
            f"{owner}: the type of parameter {parameter.name!r}, {parameter.annotation!r}, cannot be looked "
            f"up at run time: {error}. Define it at the top of the module, and import it outside "
            "`if TYPE_CHECKING`."
        ) from error
    default = parameter.default
    if isinstance(default, FieldInfo):
        hint = _ANNOTATED[hint, default]
        default = _EMPTY
    if parameter.kind is parameter.VAR_POSITIONAL:
        hint, default = types.GenericAlias(list, (hint,)), ()
    notes: tuple[Any, ...] = get_args(hint)[1:] if get_origin(hint) is _ANNOTATED else ()
    filled = any(isinstance(each, FieldInfo) and not each.is_required() for each in notes)
    text = next((each for each in notes if isinstance(each, str)), "")
    return _Field(parameter.name, hint, text, filled or default is not _EMPTY, default)


# -- schemas --


def _adapter(
    owner: str, fields: Sequence[_Field]
) -> tuple[pydantic.TypeAdapter[dict[str, Any]], dict[str, Any]]:
    """Return a validator from JSON text to keyword arguments, and its schema.

    It validates a TypedDict and not a model, because a parameter may be named ``schema`` or ``_id``. Also, an
    absent optional key stays absent, so that Python uses the default of the function.
    """
    from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415 - see `routelock.tools.schema`

    keys = {each.name: NotRequired[each.hint] if each.is_optional else each.hint for each in fields}
    make_type: Any = TypedDict
    try:
        arguments = make_type(f"{owner}_arguments", keys)
        arguments.__pydantic_config__ = ConfigDict(extra="forbid")
        adapter: pydantic.TypeAdapter[dict[str, Any]] = TypeAdapter(arguments)
        return adapter, plain_schema(adapter)
    except Exception as error:
        raise ConfigError(_culprit(owner, fields, error)) from error


def _culprit(owner: str, fields: Sequence[_Field], error: Exception) -> str:
    from pydantic import TypeAdapter  # noqa: PLC0415 - see `routelock.tools.schema`

    for each in fields:
        try:
            plain_schema(TypeAdapter(each.hint))
        except Exception as its_error:
            return (
                f"{owner}: parameter {each.name!r} has a type that JSON cannot express, {each.hint!r:.200}: "
                f"{_first_line(its_error)} Use JSON types, dataclasses or pydantic models. Values that the "
                "model does not choose belong in the run's context."
            )
    return f"{owner}: its parameters have no JSON schema: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return clip(str(error).partition("\n")[0].rstrip(".") + ".", 200)


def _describe(schema: dict[str, Any], fields: Sequence[_Field], docs: Mapping[str, str]) -> dict[str, _Field]:
    """Add descriptions and defaults to the schema; return the fields by their names in the schema."""
    properties: dict[str, dict[str, Any]] = schema["properties"]
    keys = dict(zip(properties, fields, strict=True))  # the key is an alias if there is one
    for key, each in keys.items():
        if text := properties[key].get("description") or each.text or docs.get(each.name):
            properties[key]["description"] = text
        if each.default is not _EMPTY:
            properties[key] |= _schema_default(each.default)
    return keys


def _schema_default(default: Any) -> dict[str, Any]:
    if isinstance(default, set | frozenset):  # in the same order in every process
        default = sorted(cast("set[object]", default), key=repr)
    try:
        return {"default": default_as_json(default)}
    except ValueError:  # a marker object, for example: the function still uses it
        return {}


def _with_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with null for each optional argument, since a strict schema has no optional ones."""
    required: list[str] = schema.get("required", [])
    properties: dict[str, dict[str, Any]] = {
        key: node if key in required or _takes_null(node) else _or_null(node)
        for key, node in schema["properties"].items()
    }
    return {**schema, "properties": properties, "required": list(properties)}


def _takes_null(node: Mapping[str, Any]) -> bool:
    if "anyOf" in node:
        return any(map(_takes_null, node["anyOf"]))
    return "null" in node.get("type", ()) or None in node.get("enum", ())


def _or_null(node: dict[str, Any]) -> dict[str, Any]:
    inner = dict(node)
    text, default = inner.pop("description", ""), inner.pop("default", None)
    meaning = "null: the default" + (
        "" if default is None else f", {json.dumps(default, ensure_ascii=False)}"
    )
    return {"anyOf": [inner, {"type": "null"}], "description": f"{text} ({clip(meaning, 200)})".lstrip()}


def _docs(function: Any) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and the descriptions of the parameters, in any common style."""
    function = unbound(function)
    is_object = not inspect.isroutine(function) and not inspect.isclass(function)
    text = (inspect.getdoc(type(function).__call__) if is_object else None) or inspect.getdoc(function) or ""
    if "\n" not in text:
        return text, {}
    # needed for the first long docstring, not for importing routelock
    import docstring_parser  # noqa: PLC0415

    try:
        found = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = (found.short_description, found.long_description)
    docs = {
        name.strip().lstrip("*"): each.description or ""
        for each in found.params
        for name in each.arg_name.split(",")
    }
    return "\n\n".join(part for part in parts if part), docs
