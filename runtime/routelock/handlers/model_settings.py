"""What cannot be meant among the settings of a model: found when they are declared, before any call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

__all__ = ["settings_problems"]


_OWN: Mapping[str, str] = {
    "tools": "it would replace the tools and the transfers: pass Agent(tools=[...]); a vendor's own tools go "
    "beside them in LiteLLM(..., settings={'tools': [...]})",
    "functions": "it would stand in for the tools and the transfers: pass Agent(tools=[...])",
    "function_call": "write tool_choice in an agent's model_settings",
    "tool_choice": "it holds for an agent's first call: put it into the agent's model_settings",
    "messages": "it would replace the conversation: pass it as the input of the run",
    "model": "it would replace the model: pass Agent(model=...) or RunConfig(model=...)",
}
"""Keys of a request that the run fills in itself, and where what they say belongs."""

_COMMON = (
    *("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop", "parallel_tool_calls"),
    *("tool_choice", "reasoning_effort", "extra_headers", "extra_body", "frequency_penalty"),
    *("presence_penalty", "response_format", "logit_bias", "logprobs", "top_logprobs", "service_tier"),
    *("stream_options", "metadata", "thinking", "verbosity"),
)
"""Settings that most vendors know: one that looks like these, and is none, is taken for a mistake."""

_ALIKE = frozenset(("reasoning_format", "speed", "maxTokens", "topP"))
"""Settings of Groq, Anthropic and Amazon that look like others. Of some 650 that the openai package, litellm,
vLLM, Ollama and OpenRouter know, these are all that do."""

_NEAR = 0.85
"""How much of two names must be the same, from 0 to 1, so that one is taken for the other misspelt."""


def settings_problems(settings: object, allowed: Collection[str] = ("tool_choice",)) -> list[str]:
    """Return what cannot be meant among the settings of a model; those of any vendor can.

    Args:
        settings: of an agent, a run or a handler.
        allowed: which keys of the run's own have a meaning there; the default is that of an agent.
    """
    if not isinstance(settings, Mapping):
        return [f"model_settings must be a dict, not {settings!r:.80}"]
    given = cast("Mapping[str, Any]", settings)
    wrong = [f"setting {key!r}: {_OWN[key]}" for key in given if key in _OWN and key not in allowed]
    if isinstance(extra := given.get("extra_body"), Mapping):
        inner = cast("Mapping[str, Any]", extra)
        wrong += [f"extra_body has {key!r}: {_OWN[key]}" for key in inner if key in _OWN]
    return wrong + [_misspelt(key, meant) for key in map(str, given) if (meant := _meant(key)) is not None]


def _meant(key: str) -> str | None:
    """Return the name that a key is taken for, or None for one that is known or like no other."""
    if key in _COMMON or key in _OWN or key in _ALIKE:
        return None
    plain = _plain(key)
    if (same := next((name for name in _COMMON if _plain(name) == plain), None)) is not None:
        return same
    import difflib  # noqa: PLC0415 - for the few settings that are not among the common ones

    return next(iter(difflib.get_close_matches(key, _COMMON, n=1, cutoff=_NEAR)), None)


def _plain(key: str) -> str:
    return "".join(filter(str.isalnum, key.lower()))


def _misspelt(key: str, meant: str) -> str:
    return (
        f"setting {key!r} looks like {meant!r} misspelt: write {meant!r}, or, if the provider does take "
        f"{key!r}, pass extra_body={{{key!r}: ...}}"
    )
