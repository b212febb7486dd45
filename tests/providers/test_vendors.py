"""Facts about a vendor that follow from the model string."""

from __future__ import annotations

import pytest

from routelock_providers.vendors import (
    can_be_forced,
    family_for,
    has_one_key,
    lacks_key,
    split_model,
    takes_schema,
    thinks_before_calls,
)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("anthropic/claude-haiku-4-5", "anthropic"),
        ("bedrock/converse/us.anthropic.claude-sonnet-4-v1:0", "anthropic"),
        ("vertex_ai/claude-sonnet-4", "anthropic"),
        ("claude-haiku-4-5", "anthropic"),
        ("bedrock/converse/amazon.nova-micro-v1:0", "bedrock/amazon"),
        ("bedrock/eu.amazon.nova-micro-v1:0", "bedrock/amazon"),
        ("gemini/gemini-2.5-flash", "gemini"),
        ("vertex_ai/gemini-2.5-pro", "vertex_ai/gemini"),
        ("openai/gpt-4o", "openai"),
        ("gpt-4o", "openai"),
        ("o3-mini", "openai"),
        ("openai/responses/gpt-5", "openai/responses"),
        ("azure/responses/mine", "azure/responses"),
        ("openrouter/anthropic/claude-haiku-4.5", "openrouter/anthropic"),
        ("openrouter/openai/gpt-4o-mini", "openrouter/openai"),
        ("deepseek/deepseek-chat", "deepseek"),
        ("unheard-of", "unheard-of"),
    ],
)
def test_families(model: str, family: str) -> None:
    assert family_for(model) == family


@pytest.mark.parametrize(
    ("model", "api_base", "family"),
    [
        ("openai/responses/grok-4", "https://api.x.ai/v1", "openai/responses@api.x.ai"),
        ("openai/qwen3", "http://localhost:11434/v1", "openai@localhost"),
        ("anthropic/claude-x", "http://10.0.0.1/", "anthropic@10.0.0.1"),
        ("deepseek/deepseek-chat", "https://api.deepseek.com", "deepseek"),
        ("openai/gpt-4o", "https://api.openai.com/v1", "openai"),
    ],
)
def test_address_of_the_app_is_a_family(model: str, api_base: str, family: str) -> None:
    assert family_for(model, api_base) == family


def test_splitting() -> None:
    assert split_model("openrouter/openai/gpt-4o") == ("openrouter", "openai/gpt-4o")
    assert split_model("gemini-2.5-pro") == ("vertex_ai", "gemini-2.5-pro")
    assert split_model("whatever") == ("", "whatever")


@pytest.mark.parametrize(
    ("provider", "name", "does"),
    [
        ("openai", "gpt-4o", True),
        ("anthropic", "claude-haiku-4-5", False),
        ("gemini", "gemini-2.5-flash", False),
        ("gemini", "gemini-3-pro", True),
        ("vertex_ai", "gemini-3.5-flash", True),
        ("mistral", "mistral-small", False),
    ],
)
def test_vendors_with_a_schema_beside_tools(provider: str, name: str, does: bool) -> None:
    assert takes_schema(provider, name, with_tools=True) is does


@pytest.mark.parametrize(
    ("provider", "name", "does"),
    [
        ("openai", "gpt-4o", True),
        ("localhost", "qwen3", True),
        ("groq", "openai/gpt-oss-20b", True),
        ("groq", "llama-3.3-70b-versatile", False),
        ("deepseek", "deepseek-chat", False),
    ],
)
def test_vendors_with_a_schema_for_text(provider: str, name: str, does: bool) -> None:
    assert takes_schema(provider, name, with_tools=False) is does


def test_models_that_can_be_forced() -> None:
    assert can_be_forced("gpt-5", {"reasoning_effort": "low"})
    assert can_be_forced("claude-sonnet-4-5", {"reasoning_effort": None})
    assert not can_be_forced("claude-sonnet-4-5", {"thinking": {"type": "enabled"}})
    assert not can_be_forced("deepseek-reasoner", {})
    assert not can_be_forced("deepseek-ai/DeepSeek-R1", {})


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("claude-3-7-sonnet-20250219", True),
        ("claude-sonnet-4-20250514", True),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("claude-opus-4-1", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-5", False),
        ("gpt-4o", False),
    ],
)
def test_claudes_that_think_before_calls(name: str, before: bool) -> None:
    assert thinks_before_calls(name) is before


@pytest.mark.parametrize(
    ("provider", "environment", "lacks"),
    [
        ("anthropic", {}, True),
        ("anthropic", {"ANTHROPIC_API_KEY": ""}, True),
        ("anthropic", {"ANTHROPIC_API_KEY": "k"}, False),
        ("anthropic", {"ANTHROPIC_AUTH_TOKEN": "k"}, False),
        ("anthropic", {"OPENAI_API_KEY": "k"}, True),
        ("gemini", {"GOOGLE_API_KEY": "k"}, False),
        ("bedrock", {}, False),
    ],
)
def test_missing_keys(provider: str, environment: dict[str, str], lacks: bool) -> None:
    assert lacks_key(provider, environment) is lacks


def test_vendors_with_a_key_as_the_only_credential() -> None:
    assert has_one_key("openai")
    assert not has_one_key("azure")
