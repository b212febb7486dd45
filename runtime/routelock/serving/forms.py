"""Answers of clients to calls that wait: a yes or no, or the fields that a tool's question asks for.

What a client sends is checked before the run goes on, so that a wrong answer decides nothing. The checks are
those of pydantic, made of the question's JSON schema.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import CoreSchema, SchemaError, SchemaValidator, core_schema

from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption
from routelock.tools.questions import ToolQuestion

__all__ = ["Answer", "Misfit", "asked_fields", "question_text", "read_answer"]


_LONGEST_NAME = 200
"""Characters of a name that an error quotes."""

_logger = logging.getLogger("routelock.serving")

_Json = Mapping[str, Any]


class Misfit(ValueError):
    """An answer that does not fit what is asked.

    Args:
        where: the path of the wrong value; empty for the whole answer.
        why: what is wrong there, for the client.
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where = where


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's answer to one call that waits."""

    approved: bool
    message: str = ""
    """The reason for a rejection, for the model."""
    content: _Json | None = None
    """The fields of the answer, if the call asks for any."""

    def decide(self, state: RunState, one: Interruption) -> RunState:
        """Return the state in which the call has this answer."""
        if not self.approved:
            return state.reject(one, message=self.message)
        return state.approve(one, answer=self.content)


def asked_fields(one: Interruption) -> Mapping[str, _Json]:
    """Return the fields that a call asks for, with their schemas; empty if a yes or no is enough."""
    return {} if one.question is None else one.question.fields


def question_text(question: ToolQuestion) -> str:
    """Return a question for a person, with the page that it leads to."""
    return question.message if question.url is None else f"{question.message} {question.url}"


def read_answer(one: Interruption, given: object, *, key: str, where: str = "") -> Answer:
    """Return a client's answer to a call.

    It is a bool, an object with a bool under the key and perhaps a ``message``, or, if the call asks for
    fields, an object with these. A field of that name is no verdict.

    Args:
        one: the call.
        given: what the client sent, as JSON data.
        key: the name that the protocol has for a verdict.
        where: the path of the answer, for errors.

    Raises:
        Misfit: it is no answer to this call.
    """
    if given is False:
        return Answer(False)
    if given is True:
        return _agreed(one, {}, where)
    if not isinstance(given, dict):
        raise Misfit(where, "must be an object, or true or false.")
    said, fields = cast("dict[str, Any]", given), asked_fields(one)
    if key in fields or (fields and key not in said):
        return _agreed(one, said, where)
    reason: object = "" if "message" in fields else said.get("message")
    if not isinstance(said.get(key), bool):
        raise Misfit(_joined(where, key), "must be true or false.")
    if not isinstance(reason, str | None):
        raise Misfit(_joined(where, "message"), "must be text.")
    if not said[key]:
        return Answer(False, reason or "")
    own = (key,) if "message" in fields else (key, "message")
    return _agreed(one, {name: value for name, value in said.items() if name not in own}, where)


def _agreed(one: Interruption, said: _Json, where: str) -> Answer:
    """Return the answer of a client that agrees.

    Raises:
        Misfit: the fields are not those that the call asks for.
    """
    if one.question is None or not one.question.fields:
        return Answer(True)
    _check_fields(one.question, said, where)
    # in the order of the form: some protocols keep none
    return Answer(True, content={name: said[name] for name in one.question.fields if name in said})


def _check_fields(question: ToolQuestion, said: _Json, where: str) -> None:
    if unknown := [name for name in said if name not in question.fields]:
        raise Misfit(
            _joined(where, unknown[0]), f"is not asked for. Fields: {', '.join(question.fields):.200}."
        )
    if missing := [name for name in question.required if name not in said]:
        raise Misfit(_joined(where, missing[0]), "is missing.")
    shared = (question.schema or {}).get("$defs")
    for name, value in said.items():
        if (validator := _validator(question.fields[name], shared)) is not None:
            try:
                validator.validate_python(value)
            except ValidationError as error:
                first = error.errors(include_url=False, include_context=False, include_input=False)[0]
                raise Misfit(_joined(where, name + _path(first["loc"])), f"{first['msg']}.") from None


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}"[:_LONGEST_NAME] if where else name[:_LONGEST_NAME]


def _path(steps: Sequence[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


# -- JSON schemas as pydantic's validators --


def _validator(schema: object, shared: object) -> SchemaValidator | None:
    """Return the validator of a field; None, with a line in the log, if its schema cannot be read.

    Args:
        schema: the JSON schema of the field.
        shared: the schemas that it may refer to as ``#/$defs/NAME``.
    """
    try:
        named = {name: _core(each) for name, each in _mapping(shared).items()}
        own = [{**each, "ref": f"#/$defs/{name}"} for name, each in named.items()]
        core = _core(schema)
        return SchemaValidator(core_schema.definitions_schema(core, cast("Any", own)) if own else core)
    except (SchemaError, TypeError, ValueError, OverflowError, RecursionError) as error:
        _logger.warning("a field of a question is not checked: %.300s", error)
        return None


def _mapping(value: object) -> _Json:
    return cast("_Json", value) if isinstance(value, Mapping) else {}


def _core(given: object) -> CoreSchema:
    """Return the form of pydantic that a JSON schema has. What it does not know is not checked."""
    schema = _mapping(given)
    found = [part for part in (_reference(schema), _typed(schema), _choice(schema)) if part is not None]
    found += [_core(each) for each in schema.get("allOf") or ()]
    return core_schema.chain_schema(found) if found else core_schema.any_schema()


def _reference(schema: _Json) -> CoreSchema | None:
    name = schema.get("$ref")
    return core_schema.definition_reference_schema(name) if isinstance(name, str) else None


def _choice(schema: _Json) -> CoreSchema | None:
    if "const" in schema or "enum" in schema:
        return core_schema.literal_schema([schema["const"]] if "const" in schema else [*schema["enum"]])
    options: Sequence[Any] = schema.get("anyOf") or schema.get("oneOf") or ()
    if not options:
        return None
    if all("const" in _mapping(each) for each in options):  # a value for each title
        return core_schema.literal_schema([each["const"] for each in options])
    return _one_of([_core(each) for each in options])


def _one_of(options: list[CoreSchema]) -> CoreSchema:
    why = "It fits none of the forms that it may have"
    named: list[CoreSchema | tuple[CoreSchema, str]] = [*options]
    return core_schema.union_schema(named, custom_error_type="misfit", custom_error_message=why)


def _typed(schema: _Json) -> CoreSchema | None:
    kinds: object = schema.get("type")
    if isinstance(kinds, list):
        return _one_of([_of_type(schema, kind) for kind in cast("list[object]", kinds)])
    return None if kinds is None else _of_type(schema, kinds)


def _of_type(schema: _Json, kind: object) -> CoreSchema:
    match kind:
        case "string":
            low, high = schema.get("minLength"), schema.get("maxLength")
            pattern = schema.get("pattern")  # pydantic's expressions take linear time
            return core_schema.str_schema(strict=True, min_length=low, max_length=high, pattern=pattern)
        case "integer":
            return core_schema.chain_schema([core_schema.int_schema(strict=True), _number(schema)])
        case "number":
            return _number(schema)
        case "boolean":
            return core_schema.bool_schema(strict=True)
        case "null":
            return core_schema.none_schema()
        case "array":
            low, high = schema.get("minItems"), schema.get("maxItems")
            items = _core(schema.get("items"))
            return core_schema.list_schema(items, strict=True, min_length=low, max_length=high)
        case "object":
            return _object(schema)
        case _:
            return core_schema.any_schema()


def _number(schema: _Json) -> CoreSchema:
    return core_schema.float_schema(
        strict=True,
        ge=schema.get("minimum"),
        gt=schema.get("exclusiveMinimum"),
        le=schema.get("maximum"),
        lt=schema.get("exclusiveMaximum"),
        multiple_of=schema.get("multipleOf"),
    )


def _object(schema: _Json) -> CoreSchema:
    required, more = schema.get("required") or (), schema.get("additionalProperties")
    properties = {name: _core(each) for name, each in _mapping(schema.get("properties")).items()}
    fields = {
        name: core_schema.typed_dict_field(each, required=name in required)
        for name, each in properties.items()
    }
    if more is False:
        return core_schema.typed_dict_schema(fields, extra_behavior="forbid")
    return core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=_core(more))
