"""What a task asks its client, and what the client's message answers."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.serving.a2a.questions import question_parts, read_answers
from routelock.serving.forms import Answer, Misfit
from routelock.tools import Interruption, ToolQuestion

PAY = Interruption(agent="A", name="pay", arguments='{"amount": 40}', call_id="p", run_id="r")

BRANCH = {"branch": {"type": "string", "enum": ["north", "south", "no"]}}

NAME = {"name": {"type": "string", "minLength": 2}}


def asks(
    fields: dict[str, Any] | None = None, *, call_id: str = "c", number: int = 1, **more: Any
) -> Interruption:
    """A call whose tool asks for these fields, which are all required."""
    schema = None if fields is None else {"type": "object", "properties": fields, "required": [*fields]}
    question = ToolQuestion(message="Which?", schema=schema, **more)
    return Interruption(
        agent="A", name="lend", arguments="{}", call_id=call_id, run_id="r", question=question, number=number
    )


def approvals_of(*calls: Interruption) -> list[dict[str, Any]]:
    _, data = question_parts(calls)
    found: list[dict[str, Any]] = data["data"]["approvals"]
    return found


def text_of(*calls: Interruption, problem: str = "") -> str:
    return str(question_parts(calls, problem)[0]["text"])


def answers(calls: list[Interruption], data: Any) -> list[Answer]:
    return [*read_answers({"parts": [{"data": data}]}, calls)]


def answers_of_text(calls: list[Interruption], text: str) -> list[Answer]:
    return [*read_answers({"parts": [{"text": text}]}, calls)]


# -- what is asked --


def test_an_approval_names_the_call() -> None:
    [one] = approvals_of(PAY)
    assert one == {"id": one["id"], "agent": "A", "name": "pay", "arguments": '{"amount": 40}'}
    assert text_of(PAY).startswith("May these calls be made? Answer yes or no")
    assert text_of(PAY).endswith('\nA: pay({"amount": 40})')


def test_a_question_without_fields_is_a_part_of_the_approval() -> None:
    [one] = approvals_of(asks(url="https://example.com"))
    assert (one["question"], one["url"], "schema" in one) == ("Which?", "https://example.com", False)
    assert text_of(asks(url="https://example.com")).endswith("\nA: lend({}) Which? https://example.com")


def test_a_form_has_its_schema() -> None:
    [one] = approvals_of(asks(NAME))
    assert one["schema"] == {"type": "object", "properties": NAME, "required": ["name"]}
    assert text_of(asks(NAME)).startswith("Which?\nAnswer with a text")
    assert text_of(asks({**NAME, **BRANCH})).startswith("Which?\nAnswer with data")


def test_what_a_tool_keeps_with_its_question_is_not_sent() -> None:
    assert "secret" not in str(question_parts([asks(NAME, data={"shelf": "secret"})]))


def test_of_two_calls_with_a_form_each_has_its_id_in_the_text() -> None:
    ids = [one["id"] for one in approvals_of(PAY, asks(NAME))]
    assert [line.partition(":")[0] for line in text_of(PAY, asks(NAME)).splitlines()[1:]] == ids


def test_the_next_question_of_a_call_has_another_id() -> None:
    ids = [approvals_of(one)[0]["id"] for one in (asks(NAME), asks(NAME, number=2), asks(NAME, call_id="d"))]
    assert len(set(ids)) == 3


def test_a_problem_stands_first() -> None:
    assert text_of(PAY, problem="That was no answer.").startswith("That was no answer.\nMay these")


# -- verdicts --


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ([{"text": " Yes. "}], Answer(True)),
        ([{"text": "NO!"}], Answer(False)),
        ([{"data": {"approve": True}}], Answer(True)),
        ([{"data": {"approve": False, "message": "Too much."}}], Answer(False, "Too much.")),
        ([{"data": ["approve"]}, {"text": "yes"}], Answer(True)),
        ([{"data": {"approve": False}}, {"text": "yes"}], Answer(False)),
    ],
)
def test_a_verdict_holds_for_all_calls(parts: Any, answer: Answer) -> None:
    for calls in ([PAY], [PAY, asks()]):
        assert [*read_answers({"parts": parts}, calls)] == [answer] * len(calls)


@pytest.mark.parametrize(
    "parts",
    [
        [{"text": "yes, but less"}],
        [{"text": ""}],
        [],
        [{"data": {"approve": "yes"}}],
        [{"data": {"other": True}}, {"text": "yes"}],
    ],
)
def test_only_a_clear_answer_is_one(parts: Any) -> None:
    for calls in ([PAY], [PAY, asks()]):
        with pytest.raises(Misfit):
            read_answers({"parts": parts}, calls)


# -- forms --


def test_data_fills_a_form_with_whole_numbers_as_such() -> None:
    fields = {"days": {"type": "integer"}, "share": {"type": "number"}}
    assert answers([asks(fields)], {"days": 3.0, "share": 0.5}) == [
        Answer(True, content={"days": 3, "share": 0.5})
    ]


def test_a_form_is_declined_by_data_or_text() -> None:
    assert answers([asks(NAME)], {"approve": False, "message": "Why?"}) == [Answer(False, "Why?")]
    assert answers_of_text([asks(NAME)], "No.") == [Answer(False)]


@pytest.mark.parametrize(
    ("fields", "text"), [(NAME, "Jane Austen"), (BRANCH, "no"), (BRANCH, "north"), (NAME, "yes")]
)
def test_a_text_fills_the_only_field_if_it_is_a_text(fields: dict[str, Any], text: str) -> None:
    [field] = fields
    assert answers_of_text([asks(fields)], text) == [Answer(True, content={field: text})]


@pytest.mark.parametrize("text", ['{"approve": true}', ' {"approve": true}\n'])
def test_data_may_be_a_text(text: str) -> None:
    """Google's ADK sends the data of an answer as its text."""
    assert answers_of_text([PAY], text) == [Answer(True)]


def test_data_in_a_text_fills_a_form() -> None:
    fields = {"branch": {"type": "string"}, "days": {"type": "integer"}}
    given = answers_of_text([asks(fields)], '{"branch": "north", "days": 7}')
    assert given == [Answer(True, content={"branch": "north", "days": 7})]


def test_data_in_a_text_fills_the_only_field_by_its_name() -> None:
    assert answers_of_text([asks(NAME)], '{"name": "Ann"}') == [Answer(True, content={"name": "Ann"})]


def test_other_json_is_the_text_of_the_only_field() -> None:
    text = '{"first": "Ann"}'
    assert answers_of_text([asks(NAME)], text) == [Answer(True, content={"name": text})]


@pytest.mark.parametrize("text", ["[true]", "true", '{"approve": tr', '{"approve": NaN}'])
def test_a_text_that_is_no_object_is_no_answer(text: str) -> None:
    with pytest.raises(Misfit):
        answers_of_text([PAY], text)


@pytest.mark.parametrize(
    "schema",
    [{"enum": ["a"]}, {"oneOf": [{"const": "a", "title": "A"}]}],
)
def test_choices_are_a_text_field(schema: dict[str, Any]) -> None:
    assert answers_of_text([asks({"x": schema})], "a") == [Answer(True, content={"x": "a"})]


@pytest.mark.parametrize(
    ("fields", "text", "where"),
    [
        (NAME, "J", "name"),
        (BRANCH, "west", "branch"),
        (NAME, "", ""),
        ({"days": {"type": "integer"}}, "3", ""),
        ({"days": {"anyOf": [True]}}, "3", ""),
        ({"days": {"type": "integer"}}, "yes", "days"),
        ({**NAME, **BRANCH}, "north", ""),
        ({**NAME, **BRANCH}, "yes", "name"),
    ],
)
def test_a_text_that_does_not_fill_the_form_is_no_answer(
    fields: dict[str, Any], text: str, where: str
) -> None:
    with pytest.raises(Misfit) as caught:
        answers_of_text([asks(fields)], text)
    assert caught.value.where == where


def test_a_yes_takes_the_defaults_of_a_form_that_needs_nothing() -> None:
    question = ToolQuestion(message="Any wish?", schema={"properties": {"wish": {"type": "string"}}})
    one = Interruption(agent="A", name="f", arguments="{}", call_id="c", question=question, number=1)
    assert answers_of_text([one], "yes") == [Answer(True, content={})]
    assert answers_of_text([one], "Window seat") == [Answer(True, content={"wish": "Window seat"})]


def test_wrong_data_names_the_field() -> None:
    with pytest.raises(Misfit, match=r"^branch: 'west' is not one of \['north', 'south', 'no'\]\.$"):
        answers([asks(BRANCH)], {"branch": "west"})


# -- more than one --


def test_each_call_is_answered_by_its_id() -> None:
    calls = [PAY, asks(NAME), asks(BRANCH, call_id="d")]
    first, second, third = (one["id"] for one in approvals_of(*calls))
    given = {first: {"approve": False, "message": "No."}, second: {"name": "Jo"}, third: False}
    assert answers(calls, {"answers": given}) == [
        Answer(False, "No."),
        Answer(True, content={"name": "Jo"}),
        Answer(False),
    ]


def test_a_single_call_may_be_answered_by_its_id() -> None:
    [one] = approvals_of(asks(NAME))
    assert answers([asks(NAME)], {"answers": {one["id"]: {"name": "Jo"}}}) == [
        Answer(True, content={"name": "Jo"})
    ]


def test_an_answer_by_id_to_an_earlier_question_is_none_to_the_next() -> None:
    [earlier] = approvals_of(asks(NAME))
    with pytest.raises(Misfit, match="no call with this id waits"):
        answers([asks(NAME, number=2)], {"answers": {earlier["id"]: {"name": "Jo"}}})


def test_a_field_may_be_named_as_the_answers_are() -> None:
    fields = {"answers": {"type": "array"}, "approve": {"type": "boolean"}}
    said = {"answers": [1], "approve": False}
    assert answers([asks(fields)], said) == [Answer(True, content=said)]


@pytest.mark.parametrize("given", [None, [], {}, {"x": True}])
def test_answers_that_are_not_those_of_all_calls_are_none(given: Any) -> None:
    with pytest.raises(Misfit, match=r"^answers"):
        answers([PAY, asks(NAME)], {"answers": given})


def test_a_yes_to_all_does_not_fill_a_form() -> None:
    _, form = approvals_of(PAY, asks(NAME))
    with pytest.raises(Misfit, match=rf"^answers\.{form['id']}\.name: is missing\.$"):
        answers([PAY, asks(NAME)], {"approve": True})
    with pytest.raises(Misfit, match=r"\.name: is missing\.$"):
        answers_of_text([PAY, asks(NAME)], "yes")


def test_a_no_declines_all() -> None:
    assert answers_of_text([PAY, asks(NAME)], "no") == [Answer(False)] * 2
    assert answers([PAY, asks(NAME)], {"approve": False}) == [Answer(False)] * 2
