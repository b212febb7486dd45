"""The arguments of a call to litellm, some of which no setting can change."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.handlers.port import Request
from routelock_providers.litellm.library import load_litellm
from routelock_providers.litellm.request import as_sent, call_for, find_target

pytestmark = pytest.mark.filterwarnings("ignore")

HI: Any = {"role": "user", "content": "Hi"}
TOOL: Any = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}


def arguments(model: str = "openai/gpt-4o-mini", settings: Any = None, **more: Any) -> Any:
    litellm = load_litellm()
    request = Request(**{"messages": [HI], **more})
    return call_for(litellm, find_target(litellm, model, None, "k"), request, settings or {}).arguments


def test_a_model_string_names_provider_and_model() -> None:
    target = find_target(load_litellm(), "anthropic/claude-haiku-4-5", None, "k\n")
    assert (target.provider, target.name) == ("anthropic", "claude-haiku-4-5")
    assert target.api_key == "k", "the line end is of the file that it was read from"


def test_local_server_needs_no_key() -> None:
    target = find_target(load_litellm(), "openai/m", "http://127.0.0.1:9/v1/chat/completions", None)
    assert target.api_base == "http://127.0.0.1:9/v1"


def test_litellm_gets_the_provider_that_the_model_string_names() -> None:
    litellm = load_litellm()
    assert find_target(litellm, "openai/m", None, "k").given["custom_llm_provider"] == "openai"
    assert "custom_llm_provider" not in find_target(litellm, "openrouter/m", None, "k").given


@pytest.mark.parametrize("name", ["m", "openai/m"])
def test_litellm_finds_the_same_if_it_gets_the_provider(name: str) -> None:
    litellm = load_litellm()
    log_in = {"chatgpt", "github_copilot"}  # litellm asks a server for these
    providers = {getattr(each, "value", each) for each in litellm.provider_list} - log_in
    where = {"api_base": "http://127.0.0.1:9/v1", "api_key": "k"}
    for provider in sorted(providers):
        try:
            target = find_target(litellm, f"{provider}/{name}", *where.values())
        except litellm.BadRequestError:
            continue
        if passed := target.given.get("custom_llm_provider"):
            alone = litellm.get_llm_provider(f"{provider}/{name}", **where)
            assert alone == litellm.get_llm_provider(f"{provider}/{name}", passed, **where)


def test_litellm_never_retries_and_drops_unknown_settings() -> None:
    made = arguments()
    assert (made["num_retries"], made["max_retries"], made["drop_params"]) == (0, 0, True)
    assert "stream" not in made
    assert arguments(stream=True)["stream_options"] == {"include_usage": True}


def test_settings_of_the_request_win_over_the_handlers() -> None:
    handlers, own = {"temperature": 1, "top_p": 0.5}, {"temperature": 0}
    litellm = load_litellm()
    target = find_target(litellm, "openai/gpt-4o-mini", None, "k")
    made = call_for(litellm, target, Request(messages=[HI], settings=own), handlers).arguments
    assert (made["temperature"], made["top_p"]) == (0, 0.5)


def test_no_parallel_calls_without_tools() -> None:
    settings = {"parallel_tool_calls": False}
    assert "parallel_tool_calls" not in arguments(settings=settings)
    assert arguments(settings=settings, tools=[TOOL])["parallel_tool_calls"] is False


def test_a_forced_tool_is_named_as_chat_completions_name_it() -> None:
    made = arguments(tools=[TOOL], tool_choice="f")
    assert made["tool_choice"] == {"type": "function", "function": {"name": "f"}}


def test_keys_of_litellm_are_sent_to_their_vendor_only() -> None:
    thought: Any = {
        "role": "assistant",
        "content": "Hm.",
        "thinking_blocks": [{"type": "thinking", "thinking": "x"}],
    }
    history = [HI, thought, HI]
    assert "thinking_blocks" in as_sent("anthropic/claude-sonnet-4-5", history)[0][1]
    assert "thinking_blocks" not in as_sent("openai/gpt-4o-mini", history)[0][1]
