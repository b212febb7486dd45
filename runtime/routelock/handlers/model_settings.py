"""A check of model settings for mistakes, made when the settings are declared, before any call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

__all__ = ["settings_problems"]


_OWN: Mapping[str, str] = {
    "tools": "it would replace the tools and the handoffs: pass Agent(tools=[...]), also for a vendor's own "
    "tools, as in Agent(tools=[{'type': 'web_search'}])",
    "functions": "it would replace the tools and the handoffs: pass Agent(tools=[...])",
    "function_call": "write tool_choice in an agent's model_settings",
    "tool_choice": "it applies to an agent's first call: put it into the agent's model_settings",
    "messages": "it would replace the conversation: pass it as the input of the run",
    "model": "it would replace the model: pass Agent(model=...) or RunConfig(model=...)",
}
"""Keys of a request that the run sets itself, and what to write instead."""

_COMMON = (
    *("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop", "parallel_tool_calls"),
    *("tool_choice", "reasoning_effort", "extra_headers", "extra_body", "frequency_penalty"),
    *("presence_penalty", "response_format", "logit_bias", "logprobs", "top_logprobs", "service_tier"),
    *("stream_options", "metadata", "thinking", "verbosity"),
)
"""Settings that most vendors accept. A setting with a similar name is reported as a misspelling."""

_ALIKE = frozenset(("reasoning_format", "speed", "maxTokens", "topP"))
"""Settings of Groq, Anthropic and Amazon whose names are similar to common ones. Among about 650 settings of
the openai package, litellm, vLLM, Ollama and OpenRouter, no other names are similar."""

_NEAR = 0.85
"""The similarity, from 0 to 1, from which a name counts as a misspelling of another."""


def settings_problems(settings: object, allowed: Collection[str] = ("tool_choice",)) -> list[str]:
    """Return one line for each mistake in the settings of a model; a setting of any vendor is allowed.

    Args:
        settings: the settings of an agent, a run or a handler.
        allowed: keys of the run that may be set here nevertheless; by default those that an agent may set.
    """
    if not isinstance(settings, Mapping):
        return [f"model_settings must be a dict, not {settings!r:.80}"]
    given = cast("Mapping[str, Any]", settings)
    wrong = [f"setting {key!r}: {_OWN[key]}" for key in given if key in _OWN and key not in allowed]
    if not isinstance(choice := given.get("tool_choice", ""), str | None):
        wrong.append(f"setting 'tool_choice' is 'required', 'none' or the name of a tool, not {choice!r:.80}")
    if isinstance(extra := given.get("extra_body"), Mapping):
        inner = cast("Mapping[str, Any]", extra)
        wrong += [f"extra_body has {key!r}: {_OWN[key]}" for key in inner if key in _OWN]
    return wrong + [
        _misspelt(key, common) for key in map(str, given) if (common := _common_name(key)) is not None
    ]


def _common_name(key: str) -> str | None:
    """Return the common setting that a key misspells; None if the key is known or similar to none."""
    if key in _COMMON or key in _OWN or key in _ALIKE:
        return None
    plain = _plain(key)
    if (same := next((name for name in _COMMON if _plain(name) == plain), None)) is not None:
        return same
    import difflib  # noqa: PLC0415 - needed for few settings

    return next(iter(difflib.get_close_matches(key, _COMMON, n=1, cutoff=_NEAR)), None)


def _plain(key: str) -> str:
    return "".join(filter(str.isalnum, key.lower()))


def _misspelt(key: str, common: str) -> str:
    return (
        f"setting {key!r} looks like a misspelling of {common!r}: write {common!r}. If the provider accepts "
        f"{key!r}, pass extra_body={{{key!r}: ...}}"
    )
