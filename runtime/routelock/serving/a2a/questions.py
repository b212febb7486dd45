"""The questions of a task to its client, and the answers in its message. No input or output.

A task asks about all calls of its run that wait: whether they may be made, or the questions of their tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_core import from_json

from routelock._copies import detached
from routelock._sendable import integral
from routelock.serving.forms import Answer, Misfit, asked_fields, question_text, read_answer
from routelock.tools.approvals import Interruption

__all__ = ["question_parts", "read_answers"]


_KEY = "approve"
"""The name of a verdict in an answer."""

_ANSWERS = "answers"
"""The name of the answers by id."""

_YES_OR_NO = 'May these calls be made? Answer yes or no, or with the data {"approve": true}.'

_FORM = 'Answer with data that fits the schema, or decline with no or with the data {"approve": false}.'

_TEXT = "Answer with a text, or with data that fits the schema, or decline with no."

_EACH = (
    'These calls wait. Answer each by its id with the data {"answers": {ID: ANSWER}}, where an answer is '
    "true, false, or the data that fits its schema. No declines all."
)


def question_parts(calls: Sequence[Interruption], problem: str = "") -> list[dict[str, Any]]:
    """Return the parts of the question: a text for models and people, and data for programs.

    Args:
        calls: the calls that wait.
        problem: the problem with an answer, if the client is asked again.
    """
    asked = [_asked(one) for one in calls]
    text = "\n".join(filter(None, (problem, _text(calls))))
    return [{"text": text}, {"data": {"approvals": asked}, "mediaType": "application/json"}]


def _text(calls: Sequence[Interruption]) -> str:
    if len(calls) == 1 and asked_fields(calls[0]):
        how = _FORM if _text_field(calls) is None else _TEXT
        return f"{_question(calls[0])}\n{how}"
    forms = any(map(asked_fields, calls))
    lines = [f"{one.agent}: {one.name}({one.arguments}) {_question(one)}".rstrip() for one in calls]
    if forms:
        lines = [f"{_id(one)}: {line}" for one, line in zip(calls, lines, strict=True)]
    return "\n".join((_EACH if forms else _YES_OR_NO, *lines))


def _question(one: Interruption) -> str:
    return "" if one.question is None else question_text(one.question)


def _id(one: Interruption) -> str:
    """Return the name of a question. The next question of the same call has another one."""
    return one.fingerprint[:16]


def _asked(one: Interruption) -> dict[str, Any]:
    """Return a call for a program, without the data that its tool keeps with the question."""
    asked: dict[str, Any] = {
        "id": _id(one),
        "agent": one.agent,
        "name": one.name,
        "arguments": one.arguments,
    }
    if one.question is None:
        return asked
    asked["question"] = one.question.message
    if one.question.url is not None:
        asked["url"] = one.question.url
    if one.question.schema is not None and asked_fields(one):
        asked["schema"] = detached(dict(one.question.schema))
    return asked


# -- answers --


def read_answers(said: Mapping[str, Any], calls: Sequence[Interruption]) -> Sequence[Answer]:
    """Return a client's answer to each of the calls.

    Args:
        said: the client's message.
        calls: the calls that wait.

    Raises:
        Misfit: the message does not answer all of them; it says why.
    """
    parts: Sequence[Mapping[str, Any]] = said.get("parts", ())
    given = next((part["data"] for part in parts if isinstance(part.get("data"), dict)), None)
    if given is not None:
        # the protocol's numbers are floats
        return _of_data(cast("dict[str, Any]", integral(given)), calls)
    text = " ".join(part["text"] for part in parts if "text" in part).strip()
    data = _data_in(text, calls)
    return _of_text(text, calls) if data is None else _of_data(data, calls)


def _data_in(text: str, calls: Sequence[Interruption]) -> Mapping[str, Any] | None:
    """Return the JSON object that a text is, unless the text may be the answer to a question for one.

    Google's ADK sends the response of a function, with which its users answer, as such a text.
    """
    try:
        said: object = from_json(text, allow_inf_nan=False) if text.startswith("{") else None
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    given, field = cast("dict[str, Any]", said), _text_field(calls)
    return given if field is None or {field, _KEY, _ANSWERS} & given.keys() else None


def _of_data(given: Mapping[str, Any], calls: Sequence[Interruption]) -> Sequence[Answer]:
    alone = calls[0] if len(calls) == 1 else None
    if _ANSWERS in given and (alone is None or _ANSWERS not in asked_fields(alone)):
        return _by_id(given[_ANSWERS], calls)
    if alone is not None:
        return [read_answer(alone, given, key=_KEY)]
    verdict = read_answer(replace(calls[0], question=None), given, key=_KEY)
    return _agreed(calls) if verdict.approved else [verdict for _ in calls]


def _agreed(calls: Sequence[Interruption]) -> Sequence[Answer]:
    """Return a yes to all calls.

    Raises:
        Misfit: one of them needs fields.
    """
    if len(calls) == 1:
        return [read_answer(calls[0], True, key=_KEY)]
    return [read_answer(one, True, key=_KEY, where=f"answers.{_id(one)}") for one in calls]


def _by_id(given: object, calls: Sequence[Interruption]) -> Sequence[Answer]:
    if not isinstance(given, dict):
        raise Misfit("answers", "must be an object.")
    answers, ids = cast("dict[str, object]", given), [_id(one) for one in calls]
    if unknown := [name for name in answers if name not in ids]:
        raise Misfit(f"answers.{unknown[0]:.80}", "no call with this id waits.")
    if missing := [name for name in ids if name not in answers]:
        raise Misfit(f"answers.{missing[0]}", "is missing.")
    return [
        read_answer(one, answers[name], key=_KEY, where=f"answers.{name}")
        for one, name in zip(calls, ids, strict=True)
    ]


def _of_text(text: str, calls: Sequence[Interruption]) -> Sequence[Answer]:
    """Return the answers of a text. A no declines, unless it is one of the choices."""
    field, word = _text_field(calls), text.rstrip(".!").lower()
    if field is not None and text in _choices(calls, field):
        return [read_answer(calls[0], {field: text}, key=_KEY)]
    if word == "no":
        return [Answer(False) for _ in calls]
    if word == "yes" and not any(one.needs_answer for one in calls):
        return _agreed(calls)
    if field is not None and text:
        return [read_answer(calls[0], {field: text}, key=_KEY)]
    if word == "yes":
        return _agreed(calls)  # which names the missing field
    raise Misfit("", "it has no answer.")


def _text_field(calls: Sequence[Interruption]) -> str | None:
    """Return the field that a text fills: the only one of the only question, if it is a text."""
    if len(calls) != 1 or len(fields := asked_fields(calls[0])) != 1:
        return None
    [(name, schema)] = fields.items()
    choices = _choices(calls, name)
    is_choice = bool(choices) and all(isinstance(each, str) for each in choices)
    return name if is_choice or schema.get("type") == "string" else None


def _choices(calls: Sequence[Interruption], field: str) -> Sequence[object]:
    schema = asked_fields(calls[0])[field]
    if (listed := schema.get("enum")) is not None:
        return cast("Sequence[object]", listed)
    titled: Sequence[object] = schema.get("oneOf") or schema.get("anyOf") or ()
    found = [cast("dict[str, object]", each) for each in titled if isinstance(each, dict)]
    return [each["const"] for each in found if "const" in each]
