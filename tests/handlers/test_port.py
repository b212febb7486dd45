"""What makes a handler, what is told of it, and that a copy of a request is one."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.handlers.port import (
    MODEL_CALL_CHECK,
    OutputSchema,
    Request,
    about_to_ask,
    copy_of,
    family_of,
    is_handler,
    model_of,
    tool_name,
)
from routelock.testing import ScriptedHandler


class Named:
    """A handler with a model and a provider."""

    name = "named"

    def __init__(self, **more: Any) -> None:
        self.__dict__.update(more)

    def stream(self, request: Request) -> Any: ...


def test_a_handler_has_a_name_and_streams() -> None:
    assert is_handler(ScriptedHandler([]))
    assert is_handler(Named())
    assert not is_handler(Named), "the class is none"
    assert not is_handler("openai/gpt-4o-mini")


def test_handler_without_family_is_its_own_family() -> None:
    assert family_of(Named()) == "named"
    assert family_of(Named(family="anthropic")) == "anthropic"
    assert family_of(Named(family=7)) == "named"


@pytest.mark.parametrize(
    ("says", "model", "provider"),
    [
        ({}, None, None),
        ({"model": "gpt-4o-mini"}, "gpt-4o-mini", None),
        ({"model": "openai/gpt-4o-mini"}, "openai/gpt-4o-mini", "openai"),
        ({"model": "m", "provider": "groq"}, "m", "groq"),
    ],
)
def test_model_of_returns_model_and_provider(says: Any, model: str | None, provider: str | None) -> None:
    assert model_of(Named(**says)) == {"model": model, "provider": provider}


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ({"type": "function", "function": {"name": "f"}}, "f"),
        ({"type": "web_search"}, ""),
        (Named(), "named"),
        (7, ""),
    ],
)
def test_the_name_of_a_tool_or_of_its_spec(tool: Any, name: str) -> None:
    assert tool_name(tool) == name


def test_edit_of_a_copied_request_keeps_the_original() -> None:
    request = Request(
        messages=[{"role": "user", "content": "Hi"}],
        tools=({"type": "function", "function": {"name": "f", "parameters": {}}},),
        settings={"extra_body": {"a": 1}},
        output_schema=OutputSchema("o", {"type": "object", "properties": {}}),
        handoff_input={"page": [1]},
    )
    copy: Any = copy_of(request)
    assert copy == request
    copy.messages[0]["content"] = "Bye"
    copy.tools[0]["function"]["name"] = "g"
    copy.settings["extra_body"]["a"] = 2
    copy.output_schema.schema["properties"]["x"] = {}
    copy.handoff_input["page"].append(2)
    assert request == Request(
        messages=[{"role": "user", "content": "Hi"}],
        tools=({"type": "function", "function": {"name": "f", "parameters": {}}},),
        settings={"extra_body": {"a": 1}},
        output_schema=OutputSchema("o", {"type": "object", "properties": {}}),
        handoff_input={"page": [1]},
    )


def test_check_is_called_before_each_model_call() -> None:
    asked: list[str] = []
    request = Request(messages=[])
    about_to_ask("m0", request)
    token = MODEL_CALL_CHECK.set(lambda model, _: asked.append(model))
    about_to_ask("m1", request)
    MODEL_CALL_CHECK.reset(token)
    about_to_ask("m2", request)
    assert asked == ["m1"]
