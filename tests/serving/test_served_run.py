"""Settings that clients of chat completions send: ignored, used, or refused."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from served_apps import ask, post, served

from routelock import Agent, RunConfig, handoff
from routelock.serving import ServeConfig
from routelock.testing import ScriptedHandler, call, reply

FORM = {"type": "json_schema", "json_schema": {"name": "order", "schema": {"type": "object"}, "strict": True}}


class Order(BaseModel):
    number: int


def agent(*replies: Any, name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler(replies or ["Hello."], name=name), **options)


def settings_of(of: Agent[Any], config: ServeConfig | None, **body: Any) -> dict[str, Any]:
    """The settings of the last model call that a request makes."""
    with served(of, config) as url:
        response = post(url, ask(**body))
    assert response.status_code == 200, response.text
    assert isinstance(of.model, ScriptedHandler)
    return dict(of.model.requests[-1].settings)


def refused_at(of: Agent[Any], config: ServeConfig, **body: Any) -> str:
    """The parameter at which a request is refused."""
    with served(of, config) as url:
        response = post(url, ask(**body))
    assert response.status_code == 400, response.text
    assert isinstance(of.model, ScriptedHandler)
    assert not of.model.requests
    param: str = response.json()["error"]["param"]
    return param


USE, REFUSE = ServeConfig(client_settings="use"), ServeConfig(client_settings="refuse")


def test_settings_are_ignored_unless_the_app_says_otherwise() -> None:
    assert settings_of(agent(), None, temperature=0.5, max_tokens=-1, response_format=7) == {}


def test_used_settings_are_in_the_model_call() -> None:
    given = {"temperature": 0.5, "max_tokens": 7, "response_format": FORM}
    assert settings_of(agent(), USE, **given) == given


def test_used_settings_are_in_the_calls_of_all_agents() -> None:
    b = agent(name="B")
    first = agent(call("transfer_to_b"), handoffs=[handoff(b)])
    settings_of(first, USE, temperature=0.5)
    assert isinstance(b.model, ScriptedHandler)
    assert b.model.requests[0].settings["temperature"] == 0.5


def test_text_as_a_format_is_no_setting() -> None:
    assert settings_of(agent(), USE, response_format={"type": "text"}) == {}


def test_a_format_leaves_only_the_last_text() -> None:
    first = agent(reply("Let me see.", calls=[call("transfer_to_b")]), handoffs=[agent('{"n": 1}', name="B")])
    with served(first, USE) as url:
        response = post(url, ask(response_format=FORM))
    assert response.json()["choices"][0]["message"]["content"] == '{"n": 1}'


@pytest.mark.parametrize("name", ["temperature", "max_tokens", "response_format", "stop"])
def test_settings_are_refused_by_name(name: str) -> None:
    given = {"temperature": 0.5, "max_tokens": 7, "response_format": FORM, "stop": "x"}
    assert refused_at(agent(), REFUSE, **{name: given[name]}) == name


@pytest.mark.parametrize("policy", ["use", "refuse"])
@pytest.mark.parametrize("name", ["logit_bias", "web_search_options", "new_in_2030"])
def test_unsupported_parameters_are_refused_by_name(name: str, policy: Literal["use", "refuse"]) -> None:
    assert refused_at(agent(), ServeConfig(client_settings=policy), **{name: {"a": 1}}) == name


def test_parameters_that_ask_for_nothing_are_not_refused() -> None:
    settings_of(agent(), REFUSE, logprobs=False, metadata={"a": "b"}, store=None, service_tier="auto", n=1)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_a_wrong_setting_is_refused_at_its_place(given: dict[str, Any], param: str) -> None:
    assert refused_at(agent(), USE, **given) == param


def test_a_setting_of_the_agent_is_not_the_clients_to_choose() -> None:
    mine = agent(model_settings={"max_completion_tokens": 100})
    assert refused_at(mine, USE, max_tokens=10_000) == "max_tokens"


def test_a_setting_of_the_app_is_not_the_clients_to_choose() -> None:
    config = ServeConfig(client_settings="use", run_config=RunConfig(model_settings={"temperature": 0}))
    assert refused_at(agent(), config, temperature=1) == "temperature"


def test_a_format_is_refused_if_the_agent_has_an_output_type() -> None:
    assert refused_at(agent(output_type=Order), USE, response_format=FORM) == "response_format"


def test_the_agents_own_output_type_may_be_asked_for() -> None:
    """As a client writes the schema of the same class: without titles, and not always in the same order."""
    schema = {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "Order", "schema": schema, "strict": True}}
    mine = agent('{"number": 7}', output_type=Order)
    assert settings_of(mine, USE, response_format=form) == {}


class Note(BaseModel):
    """What the agent answers with."""

    description: str = Field(description="A sentence.")


def note_form(*names: str) -> dict[str, Any]:
    """The format of a note as a client sends it whose class has no docstring."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": [*names],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "Note", "schema": schema, "strict": True}}


def test_descriptions_make_no_other_schema() -> None:
    mine = agent('{"description": "x"}', output_type=Note)
    assert settings_of(mine, USE, response_format=note_form("description")) == {}


def test_a_property_named_description_is_part_of_the_schema() -> None:
    assert refused_at(agent(output_type=Note), USE, response_format=note_form("text")) == "response_format"


def test_the_schema_of_zod_is_that_of_the_same_class() -> None:
    """It names its dialect, and its whole numbers are those that JavaScript can count."""
    most = 2**53 - 1
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"number": {"type": "integer", "minimum": -most, "maximum": most}},
        "required": ["number"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema, "strict": True}}
    assert settings_of(agent('{"number": 7}', output_type=Order), USE, response_format=form) == {}


def test_an_agent_with_an_output_type_answers_with_json_anyway() -> None:
    mine = agent('{"number": 7}', output_type=Order)
    assert settings_of(mine, USE, response_format={"type": "json_object"}) == {}
