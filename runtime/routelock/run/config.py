"""The settings of a run, for all its agents, and its limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from routelock._callables import MaybeAwaitable
from routelock.agents.agent import Agent, guardrail_problems
from routelock.errors import ConfigError, LimitExceeded
from routelock.guardrails import Guardrail
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import Handler, ToolSpec, tool_name
from routelock.handlers.retry import Retry
from routelock.handoffs.capabilities import Capacity
from routelock.history.filters import HandoffInputFilter
from routelock.history.nesting import HandoffHistoryMapper, checked_wrappers
from routelock.run.executor import Executor
from routelock.scopes import checked_scope
from routelock.tools.tool import Tool
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.handoffs.payload_types import HandoffTypes
    from routelock.tracing.recorder import Trace

__all__ = ["Limits", "Mistake", "NextAgent", "OnLimit", "RunConfig", "listed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may consume; None is no limit. See ``RunConfig.limits``, and ``on_limit`` for how it ends.

    Where an option says the same, such as ``max_turns``, the smaller one holds: so whoever makes a run can
    be stricter than an app's limits, and not laxer. ``max_turns`` and ``max_handoffs`` as they are by default
    say nothing here.

    A limit is looked at before a model call or a tool is begun, and what has begun comes to its end: tokens
    and money may go over by what the last call took. Runs of agents as tools count as part of the run.
    """

    turns: int | None = None
    """Model calls that got a reply, over all agents; ``max_turns`` says the same."""
    handoffs: int | None = None
    """Transfers; ``RunConfig.max_handoffs`` says the same. An agent that is asked as a tool may make as
    many."""
    requests: int | None = None
    """Model calls with those that failed and were made again."""
    tool_calls: int | None = None
    """Tools that are run, agents as tools included; transfers are none."""
    tokens: int | None = None
    """Input and output tokens together, estimated where a model's server does not count them; if a handler of
    the app's does not say, the result has a warning."""
    cost: float | None = None
    """US dollars, as far as prices are known, see `Usage.cost`; if one is not, the result has a warning."""
    seconds: float | None = None
    """From beginning to end; ``RunConfig.timeout`` says the same."""

    def problems(self) -> list[str]:
        """Return what cannot be meant."""
        return [
            f"limits.{each.name} must be a number above 0, or None for no limit, not {value!r:.80}"
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None and not _is_number(each.name, value)
        ]

    def used_up(self, usage: Usage, made: int = 0, calls: int = 0) -> str:
        """Say which limit does not allow another model call, or so many more tool calls; "" if all do."""
        if calls:
            over = self.tool_calls is not None and made + calls > self.tool_calls
            return f"{made} of {self.tool_calls} tool calls are made" if over else ""
        if self.requests is not None and usage.requests >= self.requests:
            return f"{usage.requests} of {self.requests} requests are made"
        if self.tokens is not None and usage.total_tokens >= self.tokens:
            return f"{usage.total_tokens:,} of {self.tokens:,} tokens are used"
        if self.cost is not None and usage.cost is not None and usage.cost >= self.cost:
            return f"{usage.cost:.4f} of {self.cost:.4f} US dollars are spent"
        return ""

    def within(self) -> Limits:
        """Return what holds for a run within another one too: its turns and its time are given to it."""
        return replace(self, turns=None, handoffs=None, seconds=None)


def _is_number(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    whole = isinstance(value, int) or name in ("cost", "seconds")
    return whole and value >= 0 if name in ("handoffs", "tool_calls") else whole and value > 0


Mistake = Literal["unknown_tool", "bad_arguments", "failed_handoff"]

NextAgent = Literal["reset", "sticky"]
"""The agent that the next run should begin with: the first one again, or the one that spoke last."""

OnLimit = Literal["raise", "return"] | Callable[[LimitExceeded], MaybeAwaitable[Any]]
"""What a limit does: raise, end the run with what there is, or end it with what a function returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of one run. Everything has a default that is safe to ship."""

    model: str | Handler | None = None
    """Answers for every agent of the run in place of its own model or default handler."""
    handler: str | None = None
    """Starts the run at this handler of the first agent instead of at its default."""
    fallback: bool = False
    """Whether, when a handler fails before it showed anything, the agent's next one by priority answers."""
    scopes: Collection[str] = frozenset()
    """Who is asking, such as ``("owner",)``; nothing for somebody unknown. See `routelock.scopes`."""
    user_id: str | None = None
    """The app's name for the user. Tools and hooks find it in their context; no model is told."""
    conversation_id: str | None = None
    """The app's name for the conversation, alike."""
    model_settings: Mapping[str, Any] = field(default_factory=lambda: {})
    """Added to each agent's own settings, which win key by key."""
    agents: Sequence[Agent[Any]] = ()
    """More agents that handoffs may name, for graphs that objects alone do not connect."""
    handoff_input_filter: HandoffInputFilter | None = None
    """Used on every handoff that has no filter of its own."""
    nest_handoff_history: bool = False
    """Whether a target sees a summary of what came before, where no filter applies."""
    handoff_history_mapper: HandoffHistoryMapper | None = None
    """Writes those summaries instead of `routelock.history.default_handoff_history_mapper`."""
    nest_keep_last_user: bool = True
    """Whether the newest user message follows a summary, word for word."""
    history_wrappers: tuple[str, str] | None = None
    """The markers around a summary; None takes those of the task, see
    `routelock.history.set_conversation_history_wrappers`."""
    handoff_prompt: bool = False
    """Whether agents that have handoffs are told about transfers in their system prompt."""
    multiple_handoffs: Literal["first", "reject"] = "first"
    """What to do with several transfers in one reply: take the first, or refuse all and ask again."""
    foreign_calls: Literal["told", "shown"] = "told"
    """How an agent sees what it could not have called itself, the others' tools and transfers: told in
    a note, or shown as calls, which models take for their own."""
    timeout: float | None = None
    """Seconds that the run may take; then whatever it waits for is cancelled, and it ends as at any other
    limit, with `RunTimeout`. What a slow reader of a stream takes does not count."""
    turn_timeout: float | None = None
    """Seconds that each turn's reply may take, its retries included; then the handler has failed with
    `ProviderTimeout`, and ``fallback`` applies. A tool has a ``timeout`` of its own."""
    raise_on: Collection[Mistake] = ()
    """What ends the run instead of being answered, so that the model can correct it or go on without:
    ``"unknown_tool"``, a call of a name that was not offered; ``"bad_arguments"``, arguments of a tool or a
    transfer that do not fit; ``"failed_handoff"``, a transfer that was tried and not made, for whatever
    reason, and a target that fails or is too slow while its caller waits. The first two end it with
    `ModelBehaviorError`, the last with `HandoffError` or with the target's error. See docs/agents.md."""
    max_mistakes: int = 3
    """So many turns in a row with nothing but mistakes end the run."""
    limits: Limits | None = None
    """What the run may consume, all in one place. Where an option beside it says the same, the smaller one
    holds."""
    tools_at_once: int | None = None
    """So many of the tools that one reply calls run at the same time; None for all. The time that a call
    waits does not count for its ``timeout``."""
    max_handoffs: int | None = 5
    """So many transfers may happen; one more is refused, and after that the run ends."""
    detect_loops: bool = True
    """Whether going round without progress, or saying nothing after tools and transfers, is answered
    with a nudge, and then ends the run."""
    warn_handoffs_over: int | None = 5
    """One warning on the result when an agent is offered more handoffs than that: models choose badly
    among many. None warns never."""
    next_agent: NextAgent = "reset"
    """Who answers the user's next message: with ``"reset"`` the agent that this run began with, with
    ``"sticky"`` whoever was in charge when it ended, but nobody who was only asked something and was to
    return. It is ``RunResult.next_agent``, to be passed on."""
    on_limit: OnLimit = "raise"
    """What happens when a limit ends the run: raise the error (which carries the partial result),
    return the partial result, or a function of the error that gives the final output. That is an assistant
    message of the conversation then, as text or JSON; a run that goes on is not shown it."""
    available: Callable[[Agent[Any]], MaybeAwaitable[bool | str]] | None = None
    """Asked about each target at the time of a transfer, sync or async; a text says why it cannot take over
    now. What it raises is a no. It is within the ``timeout`` of the handoff."""
    capacity: Capacity | None = None
    """How many transfers each agent holds at a time, over all runs that share this object."""
    handoff_types: HandoffTypes | None = None
    """Checks the payloads that ride along; None knows the built-in types."""
    strict_payloads: bool = False
    """Whether a payload that does not fit its type refuses the transfer, instead of a warning."""
    clock: Callable[[], float] = time.time
    """Gives the seconds of `HandoffRecord.started`; replace it for exact tests."""
    external_tools: Sequence[Tool | ToolSpec] = ()
    """Tools that the caller runs. Every agent is offered them, before a tool of its own with the same
    name. A call of one ends the run, see ``RunResult.pending``."""
    shared_memory: Mapping[str, Any] = field(default_factory=lambda: {})
    """What ``RunContext.shared_memory`` starts with. The run works on a copy."""
    input_guardrails: Sequence[Guardrail] = ()
    output_guardrails: Sequence[Guardrail] = ()
    guardrails_beside: bool = False
    """Whether an agent's input guardrails run beside its first model call, and not before it. Nothing of the
    reply is shown, and no tool runs, before they are done; what they refuse may have cost that call. Those of
    the run come first in any case."""
    retry: Retry = field(default_factory=Retry)
    trace: str | PathLike[str] | Trace | Sequence[str | PathLike[str] | Trace] | None = None
    """What happens is written there as it happens: the path of a file, which is appended to, see
    `routelock.tracing.TraceFile`; any other `routelock.tracing.Trace`; or several. None writes nothing."""
    executor: Executor | None = None
    """Carries out model and tool calls; None runs them right here."""
    run_id: str | None = None
    """Names the run in ids and idempotency keys; None makes one up."""

    def __post_init__(self) -> None:
        if self.scopes:
            scopes = checked_scope(self.scopes, "RunConfig")
            names = (scopes,) if isinstance(scopes, str) else scopes  # a str is a collection of letters, too
            object.__setattr__(self, "scopes", frozenset(names))
        if self.history_wrappers is not None:
            checked_wrappers(self.history_wrappers)
        wrong = [*_wrong_types(self), *_wrong_choices(self), *_wrong_numbers(self), *guardrail_problems(self)]
        if wrong := wrong + settings_problems(self.model_settings):
            raise ConfigError(f"RunConfig: {'; '.join(wrong)}.")


def _wrong_types(config: RunConfig) -> list[str]:
    """Find what would only fail in the middle of a run, as somebody else's fault."""
    kinds: tuple[tuple[str, type | UnionType, str], ...] = (
        ("handler", str | None, "the name of a handler"),
        ("fallback", bool, "True or False; whoever is next by priority takes over"),
        ("shared_memory", Mapping, "a dict"),
        ("agents", Collection, "a list of agents"),
        ("input_guardrails", Sequence, "a list of functions"),
        ("output_guardrails", Sequence, "a list of functions"),
        ("capacity", Capacity | None, "a Capacity, such as Capacity({'writer': 2})"),
        ("retry", Retry, "a Retry, such as Retry(attempts=3)"),
        ("limits", Limits | None, "Limits, such as Limits(turns=20)"),
    )
    return [
        f"{name} must be {what}, not {value!r:.80}"
        for name, kind, what in kinds
        if not isinstance(value := getattr(config, name), kind)
    ]


def _wrong_choices(config: RunConfig) -> list[str]:
    unknown = sorted(set(config.raise_on) - set(get_args(Mistake)))
    shape, on_limit, available = config.handoff_input_filter, config.on_limit, config.available
    rules = (
        (available is None or callable(available), f"available must be a function, not {available!r:.80}"),
        (shape is None or callable(shape), f"handoff_input_filter must be a function, not {shape!r:.80}"),
        (
            not unknown,
            f"raise_on does not know {', '.join(unknown)}; it knows {', '.join(get_args(Mistake))}",
        ),
        (
            all(_is_trace(each) for each in listed(config.trace)),
            f"trace must be the path of a file, or have begin(start, parent), not {config.trace!r:.80}",
        ),
        (
            on_limit in ("raise", "return") or callable(on_limit),
            f"on_limit must be 'raise', 'return' or a function, not {on_limit!r:.80}",
        ),
        (
            all(tool_name(tool) for tool in config.external_tools),
            "external_tools are Tools, or dicts such as {'type': 'function', 'function': {'name': ...}}",
        ),
    )
    words: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("multiple_handoffs", config.multiple_handoffs, ("first", "reject")),
        ("foreign_calls", config.foreign_calls, ("told", "shown")),
        ("next_agent", config.next_agent, get_args(NextAgent)),
    )
    return [message for holds, message in rules if not holds] + [
        f"{name} must be {' or '.join(map(repr, allowed))}, not {word!r:.80}"
        for name, word, allowed in words
        if word not in allowed
    ]


def _is_trace(each: object) -> bool:
    return isinstance(each, str | PathLike) or callable(getattr(each, "begin", None))


def listed(trace: Any) -> Sequence[Any]:
    """Return one trace or several as several, and none as none."""
    if isinstance(trace, list | tuple):
        return cast("Sequence[Any]", trace)
    return () if trace is None else (trace,)


def _wrong_numbers(config: RunConfig) -> list[str]:
    limits = (
        ("max_handoffs", config.max_handoffs, "no limit"),
        ("warn_handoffs_over", config.warn_handoffs_over, "no warning"),
    )
    wrong = [
        f"{name} must be at least 0, or None for {none}, not {number!r}"
        for name, number, none in limits
        if number is not None and not _from(0, number)
    ]
    for name, seconds in (("timeout", config.timeout), ("turn_timeout", config.turn_timeout)):
        if seconds is not None and not _is_time(seconds):
            wrong.append(f"{name} must be more than 0 seconds, or None for no limit, not {seconds!r:.80}")
    if isinstance(config.limits, Limits):
        wrong += config.limits.problems()
    if config.tools_at_once is not None and not _from(1, config.tools_at_once):
        wrong.append(f"tools_at_once must be at least 1, or None for all, not {config.tools_at_once!r}")
    if not _from(1, config.max_mistakes):
        wrong.append(f"max_mistakes must be at least 1, not {config.max_mistakes!r}")
    return wrong


def _from(least: int, number: object) -> bool:
    return isinstance(number, int) and number >= least


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and seconds > 0
