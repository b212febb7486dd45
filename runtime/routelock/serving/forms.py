"""Answers of clients to calls that wait: a yes or no, or the fields that a tool's question asks for.

An answer is checked by the question's JSON schema before the run goes on: a wrong one decides nothing.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption
from routelock.tools.questions import ToolQuestion

__all__ = ["Answer", "Misfit", "asked_fields", "question_text", "read_answer"]


_LONGEST_NAME = 200
"""Characters of a name that an error quotes."""

_logger = logging.getLogger("routelock.serving")

_Json = Mapping[str, Any]


class Misfit(ValueError):
    """An answer that does not fit its question.

    Args:
        where: the path of the wrong value; empty for the whole answer.
        why: the problem with that value, for the client.
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
    fields, an object with these. A field of that name is not a verdict.

    Args:
        one: the call.
        given: the answer of the client, as JSON data.
        key: the name that the protocol has for a verdict.
        where: the path of the answer, for errors.

    Raises:
        Misfit: it does not answer this call.
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
    for name, value in said.items():
        _check_value(question, name, value, where)


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}"[:_LONGEST_NAME] if where else name[:_LONGEST_NAME]


def _path(steps: Iterable[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)[1:]


def _check_value(question: ToolQuestion, name: str, value: object, where: str) -> None:
    """Check the value of a field. A schema that cannot be read checks nothing, with a line in the log.

    Raises:
        Misfit: the value does not fit the schema of the field.
    """
    # only answers need it, and importing it takes time
    jsonschema: Any = importlib.import_module("jsonschema")
    referencing: Any = importlib.import_module("referencing")
    unread = (jsonschema.SchemaError, referencing.exceptions.Unresolvable, SchemaError)
    form = jsonschema.validators.extend(jsonschema.Draft202012Validator, _OWN_RULES)
    # of an empty registry: to follow an address in a schema would be a request to another server
    validator = form(dict(question.schema or {}), registry=referencing.Registry())
    schema = question.fields[name]
    try:
        form.check_schema(schema)
        error = next(validator.descend(value, schema, path=name), None)
    except unread as error:
        _logger.warning("a field of a question is not checked: %.300s", error)
        return
    except RecursionError:
        raise Misfit(_joined(where, name), "is nested too deeply.") from None
    if error is not None:
        raise Misfit(_joined(where, _path(error.path)), f"{error.message:.{_LONGEST_NAME}}.")


def _matches(validator: Any, pattern: str, value: object, schema: object) -> Iterator[Exception]:
    """Check a pattern with pydantic's expressions: those of Python can take time without end."""
    if isinstance(value, str):
        try:
            SchemaValidator(core_schema.str_schema(pattern=pattern)).validate_python(value)
        except ValidationError:
            jsonschema: Any = importlib.import_module("jsonschema")
            yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _is_unchecked(*_: object) -> Iterator[Exception]:
    return iter(())


_OWN_RULES: Mapping[str, Any] = {"pattern": _matches, "uniqueItems": _is_unchecked}
"""Rules in place of the library's. Its check for equal items compares each with each."""
