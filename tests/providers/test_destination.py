"""A handler says where its calls go and where its key comes from, without a secret."""

from __future__ import annotations

import openai
import pytest

from routelock_providers import OpenAI, OpenAICompatible, RemoteAgent

BOTH = pytest.mark.parametrize("handler", [OpenAI, OpenAICompatible])


@BOTH
def test_key_that_was_passed(handler: type[OpenAI | OpenAICompatible]) -> None:
    destination = handler("m", api_key="secret").destination()
    assert (destination.provider, destination.model) == ("openai", "m")
    assert destination.key == "there, passed as api_key"
    assert destination.ready


@BOTH
def test_key_of_the_environment(
    handler: type[OpenAI | OpenAICompatible], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "secret")
    destination = handler("m", base_url="https://api.groq.com/openai/v1").destination()
    assert destination.key == "there, from GROQ_API_KEY"


@BOTH
def test_missing_key_of_openai(
    handler: type[OpenAI | OpenAICompatible], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    destination = handler("m").destination()
    assert destination.key == "missing: set OPENAI_API_KEY"
    assert not destination.ready


@BOTH
def test_missing_key_of_another_server(handler: type[OpenAI | OpenAICompatible]) -> None:
    destination = handler("m", base_url="http://localhost:1/v1").destination()
    assert destination.key.startswith("none, so none is sent")
    assert destination.ready


@BOTH
def test_address_shows_no_password(handler: type[OpenAI | OpenAICompatible]) -> None:
    destination = handler("m", base_url="https://me:secret@agents.example.com/v1").destination()
    assert "agents.example.com" in destination.address
    assert "secret" not in destination.address


def test_key_in_a_header() -> None:
    handler = OpenAICompatible("m", headers={"Authorization": "Bearer secret"})
    assert handler.destination().key == "there, in headers as authorization"


def test_client_of_the_app() -> None:
    client = openai.AsyncOpenAI(api_key="secret", base_url="https://agents.example.com/v1")
    destination = OpenAI("m", client=client).destination()
    assert destination.key == "that of the client"
    assert "agents.example.com" in destination.address


def test_remote_agent() -> None:
    destination = RemoteAgent("https://agents.example.com/v1", api_key="secret").destination()
    assert destination.address == "https://agents.example.com/v1/chat/completions"
    assert destination.key == "there, passed to it"


def test_remote_agent_without_a_url() -> None:
    destination = RemoteAgent(allow=["agents.example.com"]).destination()
    assert destination.address == "that of the handoff"
    assert destination.key == "none, so none is sent"
