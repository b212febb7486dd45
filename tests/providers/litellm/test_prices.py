"""The cost of a call through litellm: litellm's figure, the price table, or unknown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from servers import HELLO, Server

from routelock_providers.litellm.library import load_litellm
from routelock_providers.litellm.prices import cost_of, model_info, price


def test_cost_is_that_of_the_table() -> None:
    cost = price(load_litellm(), "openai", "gpt-4o-mini", {"prompt_tokens": 5, "completion_tokens": 7})
    assert cost == pytest.approx(5 * 0.15e-6 + 7 * 0.6e-6)


def test_a_model_that_is_not_in_the_table_has_no_entry() -> None:
    assert model_info(load_litellm(), "openai", "unknown-model") is None


@pytest.mark.parametrize("said", [0.25, 1])
def test_litellms_own_figure_of_a_reply_counts(said: float) -> None:
    assert cost_of(SimpleNamespace(_hidden_params={"response_cost": said})) == said


@pytest.mark.parametrize("said", [None, 0, -1.0, float("inf"), float("nan"), "0.25"])
def test_impossible_cost_is_not_used(said: object) -> None:
    assert cost_of(SimpleNamespace(_hidden_params={"response_cost": said})) is None


def test_a_model_that_litellm_has_no_entry_of_is_not_free() -> None:
    """Of OpenRouter's it makes entries up, in which all prices are zero."""
    assert price(load_litellm(), "openrouter", "unknown/unknown-model", {"prompt_tokens": 1}) is None


def test_ollama_is_free_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as server:
        monkeypatch.setenv("OLLAMA_API_BASE", server.url)
        assert price(load_litellm(), "ollama_chat", "qwen3", {"prompt_tokens": 1}) == 0
    assert server.requests == []
