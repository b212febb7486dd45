"""The settings of a run, for all its agents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.agents import Agent
from interlock.attempts import Retry
from interlock.callables import MaybeAwaitable
from interlock.errors import ConfigError, LimitExceeded
from interlock.executor import Executor
from interlock.filters import HandoffInputFilter
from interlock.guardrails import Guardrail
from interlock.history import HandoffHistoryMapper
from interlock.port import Handler

__all__ = ["Mistake", "OnLimit", "RunConfig"]

Mistake = Literal["unknown_tool", "bad_arguments", "failed_handoff"]
OnLimit = Literal["raise", "return"] | Callable[[LimitExceeded], MaybeAwaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of one run. Everything has a default that is safe to ship."""

    model: str | Handler | None = None
    """Overrides the model of every agent of the run."""
    model_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Added to each agent's own settings, which win key by key."""
    agents: Sequence[Agent[Any]] = ()
    """More agents that handoffs may name, for graphs that objects alone do not connect."""
    handoff_input_filter: HandoffInputFilter | None = None
    """Used on every handoff that has no filter of its own."""
    nest_handoff_history: bool = False
    """Whether a target sees a summary of what came before, where no filter applies."""
    handoff_history_mapper: HandoffHistoryMapper | None = None
    """Writes those summaries instead of `interlock.history.default_handoff_history_mapper`."""
    handoff_prompt: bool = False
    """Whether agents that have handoffs are told about transfers in their system prompt."""
    multiple_handoffs: Literal["first", "reject"] = "first"
    """What to do with several transfers in one reply: take the first, or refuse all and ask again."""
    raise_on: Collection[Mistake] = ()
    """Mistakes of the model that end the run instead of being answered so that it can correct them."""
    max_mistakes: int = 3
    """So many turns in a row with nothing but mistakes end the run."""
    max_handoffs: int | None = 5
    """So many transfers may happen; one more is refused, and after that the run ends."""
    detect_loops: bool = True
    """Whether going round without progress is answered with a nudge, and then ends the run."""
    on_limit: OnLimit = "raise"
    """What happens when a limit ends the run: raise the error (which carries the partial result),
    return the partial result, or a function of the error that gives the final output."""
    input_guardrails: Sequence[Guardrail] = ()
    output_guardrails: Sequence[Guardrail] = ()
    retry: Retry = field(default_factory=Retry)
    executor: Executor | None = None
    """Carries out model and tool calls; None runs them right here."""
    run_id: str | None = None
    """Names the run in ids and idempotency keys; None makes one up."""

    def __post_init__(self) -> None:
        if self.handoff_input_filter is not None and not callable(self.handoff_input_filter):
            raise ConfigError(
                f"handoff_input_filter must be a function, not {self.handoff_input_filter!r:.80}."
            )
        if unknown := set(self.raise_on) - {"unknown_tool", "bad_arguments", "failed_handoff"}:
            raise ConfigError(f"raise_on does not know {', '.join(sorted(unknown))}.")
