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
from paths import SUPPORT
from servers import HELLO, Server
from waiting import PATIENCE

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
from routelock import Agent, Runner
from routelock_providers import LiteLLM, OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI

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
    return nothing_set(tmp_path)


def nothing_set(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}


def outcome(program: str, environment: Mapping[str, str]) -> Any:
    """Run a program on a machine without any key, and return what it prints as JSON.

    No library may print a traceback of its own beside the error.
    """
    paths = os.pathsep.join([str(SUPPORT), *sys.path])
    env = {**environment, "PYTHONPATH": paths}
    command = [sys.executable, "-c", _HEAD + program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
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


def test_litellm_is_not_loaded_for_a_misspelt_provider(bare: dict[str, str]) -> None:
    error = outcome("""print(json.dumps(run("opnai/gpt-4o")))""", bare)
    assert (error["error"], error["loaded"]) == ("ModelNotFound", [])
    assert error["text"] == "No provider is known for model 'opnai/gpt-4o': write 'openai/gpt-4o'."


def test_the_direct_handlers_say_the_same(bare: dict[str, str]) -> None:
    program = """print(json.dumps([run(OpenAI("m")), run(OpenAICompatible("m"))]))"""
    for error, name in zip(outcome(program, bare), ("OpenAI", "OpenAICompatible"), strict=True):
        assert error["error"] == "AuthenticationFailed"
        assert error["loaded"] == []
        assert error["tracebacks"] == 1
        assert f"pass api_key= to the handler, {name}('m', api_key=...)" in error["text"]


WAYS = {
    "an address": ("""LiteLLM("openai/m", api_base={url!r})""", {}),
    "a key in the settings": (
        """LiteLLM("mistral/m", settings={{"api_base": {url!r}, "api_key": "k"}})""",
        {},
    ),
    "no request at all": ("""LiteLLM("openai/m", settings={{"mock_response": "Hello"}}, api_key="k")""", {}),
    "an address in the environment": ("""'openai/m'""", {"OPENAI_BASE_URL": "{url}"}),
    "a key of another name": (
        """'openrouter/a/b'""",
        {"OPENROUTER_API_BASE": "{url}", "OR_API_KEY": "k"},
    ),
    "none": ("""'azure/x'""", {"AZURE_API_BASE": "http://127.0.0.1:1"}),
    "none of Vertex AI": ("""'gemini-2.5-pro'""", {}),
}
"""By what it is: the model, and the variables that are set."""

_EACH = """
import os

told = {}
for way, (model, variables) in WAYS.items():
    os.environ.update(variables)
    told[way] = run(eval(model))
    for name in variables:
        del os.environ[name]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def by_way(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What comes of each way without the vendor's variable: in one process, since litellm takes its time."""
    with Server(HELLO) as server:
        ways = {
            way: (
                model.format(url=server.url),
                {key: value.format(url=server.url) for key, value in more.items()},
            )
            for way, (model, more) in WAYS.items()
        }
        return outcome(f"WAYS = {ways!r}{_EACH}", nothing_set(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("none")])
def test_another_way_than_the_variable_works(way: str, by_way: Any) -> None:
    assert by_way[way] == {"said": "Hello"}


def test_key_missed_by_litellm_is_the_same_error(by_way: Any) -> None:
    error = by_way["none"]
    assert error["error"] == "AuthenticationFailed"
    assert error["tracebacks"] == 1
    assert "AZURE_API_KEY" in error["text"]


def test_gemini_without_a_provider_is_told_of_the_other_key(by_way: Any) -> None:
    """LiteLLM sends it to Vertex AI, which has other credentials."""
    error = by_way["none of Vertex AI"]
    assert error["error"] == "AuthenticationFailed"
    assert "With a GEMINI_API_KEY, write 'gemini/gemini-2.5-pro'." in error["text"]
    assert "(Your default credentials were not found. To set up" in error["text"]


_INTERRUPTED = """
from routelock_providers.litellm.library import load_litellm

class Impatient:
    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise KeyboardInterrupt

interrupted = []
for module in ("openai.types.chat", "litellm.main"):
    impatient = Impatient(module)
    sys.meta_path.insert(0, impatient)
    try:
        load_litellm()
    except KeyboardInterrupt:
        interrupted.append(module)
    sys.meta_path.remove(impatient)
print(json.dumps([interrupted, run(LiteLLM("openai/m", api_base=URL))]))
"""


def test_litellm_loads_after_an_interrupted_import(bare: dict[str, str]) -> None:
    """The second can only be where it is if the first left nothing half loaded."""
    with Server(HELLO) as server:
        program = _INTERRUPTED.replace("URL", repr(server.url))
        interrupted, told = outcome(program, bare)
    assert interrupted == ["openai.types.chat", "litellm.main"]
    assert told == {"said": "Hello"}
