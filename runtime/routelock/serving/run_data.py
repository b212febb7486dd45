"""What a run has brought, as the data of protocols with tasks and tools. No input or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from routelock.run.result import RunResult
from routelock.usage import Usage

__all__ = ["delta_text", "output_data", "usage_data"]


def usage_data(usage: Usage) -> dict[str, int]:
    """Return the usage of a run, with names in camel case."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "cachedTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }


def output_data(result: RunResult[Any]) -> dict[str, JsonValue] | None:
    """Return the output of a run if the agent that answered has an output type, otherwise None.

    A value that is not an object is in ``{"response": ...}``: clients accept objects only.
    """
    given = result.stop_reason == "limit" and not isinstance(result.final_output, str | None)
    if not (given or result.stop_reason == "done") or result.last_agent.output is None:
        return None
    plain: JsonValue = to_jsonable_python(result.final_output, fallback=str, inf_nan_mode="strings")
    return plain if isinstance(plain, dict) else {"response": plain}


def delta_text(deltas: Sequence[Mapping[str, Any]]) -> str:
    """Return what the deltas of `routelock.serving.completions` say."""
    return "".join(delta.get("content") or delta.get("refusal") or "" for delta in deltas)
