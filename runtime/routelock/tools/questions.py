"""Questions that a tool asks a person in the middle of a call, and the answers to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from routelock._sendable import sendable
from routelock.errors import ConfigError

__all__ = ["ToolAnswer", "ToolQuestion", "answer_to", "as_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQuestion:
    """A question to a person, which a tool returns instead of a result.

    The call then waits like one that needs approval. Once the question is answered, the tool is called again
    with the same arguments, and with the answer in ``context.answer``.
    """

    message: str = field(kw_only=False)
    """The question, for a person."""
    schema: Mapping[str, Any] | None = None
    """A JSON schema of the object that answers it; None if an approval is enough."""
    url: str | None = None
    """A page that the person has to visit before the approval."""
    data: Any = None
    """JSON data that the tool gets back with the answer. It is stored in the state of the run."""

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """The fields of the answer with their schemas, by name."""
        found: object = (self.schema or {}).get("properties")
        if not isinstance(found, Mapping):
            return {}
        named = cast("Mapping[str, object]", found)
        return {name: _schema(each) for name, each in named.items()}

    @property
    def required(self) -> Sequence[str]:
        """The fields that an answer has to have, because they have no default."""
        found: object = (self.schema or {}).get("required")
        names = cast("list[str]", found) if isinstance(found, list) else []
        return [name for name in names if "default" not in self.fields.get(name, {})]

    def content_of(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the content of an answer: the given fields, and the defaults of all others.

        Returns:
            None if the question has no schema.

        Raises:
            ConfigError: a required field is missing, or the question does not ask for one of the fields.
        """
        if unknown := [name for name in given if name not in self.fields]:
            asked = ", ".join(self.fields) or "none"
            raise ConfigError(
                f"The answer has {', '.join(map(repr, unknown))}; fields of the question: {asked}."
            )
        if missing := [name for name in self.required if name not in given]:
            raise ConfigError(
                f"The question {self.message!r:.200} needs an answer with {', '.join(map(repr, missing))}: "
                "approve(one, answer={...})."
            )
        if self.schema is None:
            return None
        defaults = {name: each["default"] for name, each in self.fields.items() if "default" in each}
        return {**defaults, **given}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """A person's answer to the question of a tool; the tool finds it in ``context.answer``."""

    question: ToolQuestion
    approved: bool
    """False if the person declined."""
    content: Mapping[str, Any] | None = None
    """The fields of the answer; None if the person declined, or the question has no schema."""
    message: str = ""
    """The reason of a person who declined."""
    number: int = 1
    """Which question of this call it answers, from 1."""


def _schema(given: object) -> Mapping[str, Any]:
    """Return the schema of a field; one that is true, and takes any value, as an object."""
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}


def answer_to(
    question: ToolQuestion,
    number: int,
    *,
    approved: bool,
    content: Mapping[str, Any] | None,
    message: str = "",
) -> ToolAnswer:
    """Return the answer to a question.

    Raises:
        ConfigError: the content does not fit the question, or is no JSON data.
    """
    if not approved:
        return ToolAnswer(question=question, approved=False, message=message, number=number)
    whole = question.content_of(content or {})
    try:
        plain = sendable(json.loads(json.dumps(whole, allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"The answer to {question.message!r:.200} must be JSON data: {error}.") from error
    return ToolAnswer(question=question, approved=True, content=plain, number=number)


def as_data(question: ToolQuestion) -> dict[str, Any]:
    """Return a question as JSON data that shares nothing with it.

    Raises:
        ValueError: something in it is no JSON data.
    """
    try:
        return cast("dict[str, Any]", sendable(json.loads(json.dumps(asdict(question), allow_nan=False))))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
