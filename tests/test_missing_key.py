"""A missing key is one sentence, at once; litellm that was interrupted while it loaded is loaded anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from servers import HELLO, Server

WHERE = {
    "openai/gpt-4o-mini": "OPENAI_API_KEY",
    "gpt-4o-mini": "OPENAI_API_KEY",
    "openai/responses/gpt-4o": "OPENAI_API_KEY",
    "anthropic/claude-haiku-4-5": "ANTHROPIC_API_KEY",
    "gemini/gemini-2.5-flash": "GEMINI_API_KEY",
    "mistral/mistral-small-latest": "MISTRAL_API_KEY",
    "groq/llama-3.3-70b": "GROQ_API_KEY",
    "deepseek/deepseek-chat": "DEEPSEEK_API_KEY",
    "openrouter/a/b": "OPENROUTER_API_KEY",
    "cohere_chat/command-r": "COHERE_API_KEY",
    "xai/grok-4": "XAI_API_KEY",
    "together_ai/m": "TOGETHER_AI_API_KEY",
    "fireworks_ai/m": "FIREWORKS_AI_API_KEY",
}

_HEAD = """
import json, sys, traceback
from interlock import Agent, Runner
from interlock_providers import LiteLLM, OpenAICompatible
from interlock_providers.openai import OpenAI

def run(model):
    try:
        return {"said": Runner.run_sync(Agent("a", model=model), "Hi").final_output}
    except Exception as error:
        whole = "".join(traceback.format_exception(error))
        kinds = [name for name in ("litellm", "openai") if name in sys.modules]
        return {
            "error": type(error).__name__, "text": str(error), "loaded": kinds,
            "tracebacks": whole.count("Traceback (most"),
        }
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without any key."""
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}


def outcome(program: str, environment: Mapping[str, str], **more: str) -> Any:
    """Run a program on a machine without any key, and return what it prints as JSON."""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    env = {**environment, **more, "PYTHONPATH": paths}
    command = [sys.executable, "-c", _HEAD + program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_litellm_is_not_loaded_to_miss_a_key(bare: dict[str, str]) -> None:
    program = f"print(json.dumps({{model: run(model) for model in {[*WHERE]!r}}}))"
    told = outcome(program, bare)
    for model, variable in WHERE.items():
        error = told[model]
        assert error["error"] == "AuthenticationFailed", model
        assert error["loaded"] == []
        assert error["tracebacks"] == 1
        hint = f"Set {variable} in the environment, or pass api_key= to the handler, such as LiteLLM("
        assert hint in error["text"]


def test_the_direct_handlers_say_the_same(bare: dict[str, str]) -> None:
    program = """print(json.dumps([run(OpenAI("m")), run(OpenAICompatible("m"))]))"""
    for error, name in zip(outcome(program, bare), ("OpenAI", "OpenAICompatible"), strict=True):
        assert error["error"] == "AuthenticationFailed"
        assert error["loaded"] == []
        assert error["tracebacks"] == 1
        assert f"pass api_key= to the handler, {name}('m', api_key=...)" in error["text"]


def test_what_litellm_misses_itself_is_one_error_too(bare: dict[str, str]) -> None:
    error = outcome("""print(json.dumps(run("azure/x")))""", bare, AZURE_API_BASE="http://127.0.0.1:1")
    assert error["error"] == "AuthenticationFailed"
    assert error["tracebacks"] == 1
    assert "AZURE_API_KEY" in error["text"]


OTHER_WAYS = {
    "an address": """LiteLLM("openai/m", api_base={url!r})""",
    "a key in the settings": """LiteLLM("mistral/m", settings={{"api_base": {url!r}, "api_key": "k"}})""",
    "no request at all": """LiteLLM("openai/m", settings={{"mock_response": "Hello"}}, api_key="k")""",
}


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_another_way_than_the_environment_works(way: str, bare: dict[str, str]) -> None:
    with Server(HELLO) as server:
        program = f"print(json.dumps(run({OTHER_WAYS[way].format(url=server.url)})))"
        assert outcome(program, bare) == {"said": "Hello"}


@pytest.mark.parametrize(
    ("model", "variables"),
    [
        ("openai/m", {"OPENAI_BASE_URL": "{url}"}),
        ("openrouter/a/b", {"OPENROUTER_API_BASE": "{url}", "OR_API_KEY": "k"}),
    ],
)
def test_other_variables_are_left_to_litellm(
    model: str, variables: dict[str, str], bare: dict[str, str]
) -> None:
    with Server(HELLO) as server:
        told = {name: value.format(url=server.url) for name, value in variables.items()}
        assert outcome(f"print(json.dumps(run({model!r})))", bare, **told) == {"said": "Hello"}


_INTERRUPTED = """
from interlock_providers.litellm_library import load_litellm

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            raise KeyboardInterrupt

impatient = Impatient()
sys.meta_path.insert(0, impatient)
try:
    load_litellm()
except KeyboardInterrupt:
    sys.meta_path.remove(impatient)
print(json.dumps(run(LiteLLM("openai/m", api_base=URL))))
"""


@pytest.mark.parametrize("module", ["litellm.main", "openai.resources.chat"])
def test_litellm_loads_after_it_was_interrupted(module: str, bare: dict[str, str]) -> None:
    with Server(HELLO) as server:
        program = _INTERRUPTED.replace("MODULE", repr(module)).replace("URL", repr(server.url))
        assert outcome(program, bare) == {"said": "Hello"}
