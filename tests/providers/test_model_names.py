"""Names of models that LiteLLM does not know: one sentence with the right name, before litellm is loaded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from routelock.errors import ConfigError
from routelock_providers import OpenAI, OpenAICompatible
from routelock_providers.errors import to_provider_error
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import load_litellm
from routelock_providers.model_names import suggest_model, unknown_provider_error

MEANT = {
    "openai:gpt-4o": "openai/gpt-4o",
    "openai-responses:gpt-5": "openai/responses/gpt-5",
    "google-gla:gemini-2.5-flash": "gemini/gemini-2.5-flash",
    "google/gemini-2.5-pro": "gemini/gemini-2.5-pro",
    "openrouter:google/gemini-2.5-pro": "openrouter/google/gemini-2.5-pro",
    "litellm/openai/gpt-4o": "openai/gpt-4o",
    "opnai/gpt-4o": "openai/gpt-4o",
    "OpenAI/gpt-4o": "openai/gpt-4o",
    "antropic/claude-haiku-4-5": "anthropic/claude-haiku-4-5",
    "gorq:llama-3.3-70b": "groq/llama-3.3-70b",
    "llama3": "ollama_chat/llama3",
    "qwen3:8b": "ollama_chat/qwen3:8b",
}

RIGHT = (
    "openai/gpt-4o",
    "gpt-4o",
    "claude-haiku-4-5",
    "ollama/llama3:8b",
    "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0",
    "qwen.qwen3-32b-v1:0",
    "ft:gpt-4o:org::x",
    "my_own_provider/m",
)


@pytest.mark.parametrize(("wrong", "right"), MEANT.items())
def test_wrong_name_gets_the_right_one(wrong: str, right: str) -> None:
    assert suggest_model(wrong) == right


@pytest.mark.parametrize("handler", [LiteLLM, OpenAI, OpenAICompatible])
@pytest.mark.parametrize("model", [None, {"model": "gpt-4o"}])
def test_model_that_is_not_text_is_refused_by_each_handler(handler: Any, model: Any) -> None:
    """Such as that of a variable which is not set."""
    wrong = rf"^{handler.__name__} needs a model string such as '.*', not {re.escape(repr(model))}\.$"
    with pytest.raises(ConfigError, match=wrong):
        handler(model)


@pytest.mark.parametrize("name", RIGHT)
def test_name_that_litellm_may_know_is_not_judged(name: str) -> None:
    assert suggest_model(name) is None


def test_error_is_one_sentence_with_the_right_name() -> None:
    error = unknown_provider_error("opnai/gpt-4o", "opnai")
    assert str(error) == "No provider is known for model 'opnai/gpt-4o': write 'openai/gpt-4o'."
    assert (error.provider, error.model, error.retryable) == ("opnai", "opnai/gpt-4o", False)


def test_error_shows_the_form_of_a_name_if_nothing_is_near() -> None:
    assert "Write it as 'provider/model'" in str(unknown_provider_error("nonsense"))


@pytest.mark.parametrize(
    ("new", "right"), [("gpt-99", "openai/gpt-99"), ("gemini-99", "gemini/gemini-99"), ("x/y", None)]
)
def test_new_model_without_a_provider_gets_its_maker(new: str, right: str | None) -> None:
    text = str(unknown_provider_error(new))
    assert (f"write {right!r}" in text) == (right is not None)


# -- held against litellm --


@pytest.fixture(scope="module")
def litellm() -> Any:
    return load_litellm()


@pytest.mark.filterwarnings("ignore")
def test_no_provider_of_litellm_is_refused(litellm: Any) -> None:
    providers = [str(getattr(each, "value", each)) for each in litellm.provider_list]
    assert [each for each in providers if suggest_model(f"{each}/m") is not None] == []


def _provider(litellm: Any, model: str) -> str | None:
    try:
        return str(litellm.get_llm_provider(model)[1])
    except Exception:  # litellm raises this for an unknown model
        return None


@pytest.mark.filterwarnings("ignore")
def test_no_model_of_litellm_is_refused(litellm: Any) -> None:
    judged = [each for each in litellm.model_cost if suggest_model(each) is not None]
    assert [each for each in judged if _provider(litellm, each) is not None] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrong", MEANT)
def test_litellm_does_not_know_a_name_that_is_refused(litellm: Any, wrong: str) -> None:
    assert _provider(litellm, wrong) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("right", sorted(set(MEANT.values())))
def test_litellm_knows_the_provider_that_is_meant(litellm: Any, right: str) -> None:
    assert _provider(litellm, right) is not None


@pytest.mark.filterwarnings("ignore")
def test_error_is_the_same_once_litellm_is_loaded(litellm: Any) -> None:
    with pytest.raises(litellm.BadRequestError) as raised:
        LiteLLM("opnai/gpt-4o").target()
    error = to_provider_error(raised.value, provider="opnai", model="opnai/gpt-4o")
    assert str(error) == str(unknown_provider_error("opnai/gpt-4o"))
