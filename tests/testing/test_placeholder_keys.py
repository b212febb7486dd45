"""Replaying needs no key: for every handler and vendor, in a process whose environment has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from vendor_replies import answer
from waiting import PATIENCE

from routelock.testing import use_cassette

GOOGLE = ("GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_CREDENTIALS", "VERTEXAI_PROJECT")
AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN")

HOSTS = {
    "anthropic": "https://api.anthropic.com/v1/messages",
    "azure": "https://desk.openai.azure.com/openai/deployments/gpt-4o/chat/completions",
    "bedrock": "https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-lite-v1%3A0/converse",
    "cohere": "https://api.cohere.com/v2/chat",
    "deepseek": "https://api.deepseek.com/beta/chat/completions",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent",
    "groq": "https://api.groq.com/openai/v1/chat/completions",
    "mistral": "https://api.mistral.ai/v1/chat/completions",
    "openai": "https://api.openai.com/v1/chat/completions",
    "vertex": "https://us-central1-aiplatform.googleapis.com/v1/projects/shop-1/locations/us-central1"
    "/publishers/google/models/gemini-2.5-flash:generateContent",
    "xai": "https://api.x.ai/v1/chat/completions",
}
"""Where each vendor is asked."""

HANDLERS = {
    "LiteLLM of anthropic": "LiteLLM('anthropic/claude-haiku-4-5')",
    "LiteLLM of azure": "LiteLLM('azure/gpt-4o', api_base='https://desk.openai.azure.com')",
    "LiteLLM of bedrock": "LiteLLM('bedrock/converse/amazon.nova-lite-v1:0')",
    "LiteLLM of cohere": "LiteLLM('cohere_chat/command-a-03-2025')",
    "LiteLLM of deepseek": "LiteLLM('deepseek/deepseek-chat')",
    "LiteLLM of gemini": "LiteLLM('gemini/gemini-2.5-flash')",
    "LiteLLM of groq": "LiteLLM('groq/llama-3.3-70b-versatile')",
    "LiteLLM of mistral": "LiteLLM('mistral/mistral-large-latest')",
    "LiteLLM of openai": "LiteLLM('openai/gpt-4o')",
    "LiteLLM of vertex": "LiteLLM('vertex_ai/gemini-2.5-flash')",
    "LiteLLM of xai": "LiteLLM('xai/grok-4')",
    "OpenAI of openai": "OpenAI('gpt-4o')",
    "OpenAI of groq": "OpenAI('m', base_url='https://api.groq.com/openai/v1')",
    "OpenAICompatible of openai": "OpenAICompatible('gpt-4o')",
    "OpenAICompatible of mistral": "OpenAICompatible('m', base_url='https://api.mistral.ai/v1')",
    "a name of openai": "'openai/gpt-4o'",
}

PROGRAM = """
import asyncio, json, sys
from routelock import Agent, Runner
from routelock.testing import no_network, use_cassette
from routelock_providers import LiteLLM, OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI

handlers, cassettes = json.load(sys.stdin)
said = {}
with no_network() as blocked:
    for name, handler in handlers.items():
        try:
            with use_cassette(cassettes[name], match_on=["host", "path"]):
                agent = Agent("desk", model=eval(handler))
                said[name] = asyncio.run(Runner.run(agent, "Where is my refund?")).final_output
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
print(json.dumps([said, blocked]))
"""


def write_cassette(path: Path, vendor: str) -> str:
    """Write a recording of one plain answer of a vendor, and return where it is."""
    reply = answer("gemini" if vendor == "vertex" else vendor, "Hm.", "Paid.", ())
    response = {
        "status": {"code": 200, "message": "OK"},
        "headers": {"content-type": ["application/json"]},
        "body": {"string": b"".join(reply.pieces).decode()},
    }
    request = {"method": "POST", "uri": HOSTS[vendor], "body": None, "headers": {}}
    path.write_text(json.dumps({"interactions": [{"request": request, "response": response}], "version": 1}))
    return str(path)


def without_keys(home: Path) -> dict[str, str]:
    """Return this environment without a key, a token, or a file that has one."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in (*GOOGLE, *AWS) and not name.endswith(("_KEY", "_TOKEN"))
    }
    return kept | {"HOME": str(home), "CLOUDSDK_CONFIG": str(home), "AWS_REGION_NAME": "us-east-1"}


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, str], list[str]]:
    """What each handler says in a process without keys, and the hosts that it wanted to reach."""
    folder = tmp_path_factory.mktemp("cassettes")
    cassettes = {name: write_cassette(folder / f"{name}.yaml", name.split()[-1]) for name in HANDLERS}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        input=json.dumps([HANDLERS, cassettes]),
        capture_output=True,
        text=True,
        env=without_keys(folder),
        cwd=folder,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    said, blocked = json.loads(done.stdout)
    return said, blocked


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_answers_from_a_cassette_without_a_key(
    replayed: tuple[Mapping[str, str], list[str]], handler: str
) -> None:
    if handler.endswith("bedrock"):
        pytest.importorskip("boto3")
    if handler.endswith("vertex"):
        pytest.importorskip("google.auth")
    assert replayed[0][handler] == "Paid."


def test_replaying_without_a_key_sends_nothing(replayed: tuple[Mapping[str, str], list[str]]) -> None:
    assert replayed[1] == []


KEY = "GROQ_API_KEY"


def test_a_missing_key_has_a_placeholder_while_a_cassette_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY)
    with use_cassette(tmp_path / "a.yaml"):
        assert os.environ[KEY]
    assert KEY not in os.environ


def test_an_empty_key_is_missing_and_empty_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "")
    with use_cassette(tmp_path / "a.yaml"):
        assert os.environ[KEY]
    assert os.environ[KEY] == ""


def test_a_key_that_is_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "mine")
    with use_cassette(tmp_path / "a.yaml"):
        assert os.environ[KEY] == "mine"
    assert os.environ[KEY] == "mine"


def test_credentials_for_google_that_are_set_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERTEXAI_CREDENTIALS", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "mine.json")
    with use_cassette(tmp_path / "a.yaml"):
        assert "VERTEXAI_CREDENTIALS" not in os.environ


def test_a_key_that_the_block_sets_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    with use_cassette(tmp_path / "a.yaml"):
        monkeypatch.setenv(KEY, "mine")
    assert os.environ[KEY] == "mine"


def test_a_block_that_fails_leaves_no_placeholder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    with pytest.raises(ValueError, match="mine"), use_cassette(tmp_path / "a.yaml"):
        raise ValueError("mine")
    assert KEY not in os.environ


def test_recording_has_no_placeholder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    with use_cassette(tmp_path / "a.yaml", record_mode="rewrite"):
        assert KEY not in os.environ


def test_the_whole_environment_is_as_before(tmp_path: Path) -> None:
    before = dict(os.environ)
    with use_cassette(tmp_path / "a.yaml"):
        assert dict(os.environ) != before
    assert dict(os.environ) == before


def test_a_recorded_exchange_of_tokens_need_not_be_made_again(tmp_path: Path) -> None:
    """It is made at the first call of a process, whichever test makes it."""
    path = tmp_path / "a.yaml"
    write_cassette(path, "groq")
    recording = json.loads(path.read_text())
    exchange = json.loads(path.read_text())["interactions"][0]
    exchange["request"]["uri"] = "https://oauth2.googleapis.com/token"
    recording["interactions"].insert(0, exchange)
    path.write_text(json.dumps(recording))
    with use_cassette(path, allow_unplayed=True) as cassette:
        assert [asked.url for asked in cassette.requests] == [HOSTS["groq"]]
