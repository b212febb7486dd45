"""Settings and limits of a run; they hold for all its agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from routelock._callables import MaybeAwaitable
from routelock._hints import hint_keywords
from routelock._peer_names import CONFIG_KEYWORDS, LIMIT_KEYWORDS
from routelock.agents.agent import Agent
from routelock.agents.agent_problems import guardrail_problems
from routelock.errors import ConfigError, LimitExceeded, ModelBehaviorError
from routelock.guardrails import Guardrail
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import Handler, ModelSettings, ToolSpec, tool_name
from routelock.handlers.retry import Retry
from routelock.handoffs.capabilities import Capacity
from routelock.history.compaction import Compact
from routelock.history.filters import HandoffInputFilter
from routelock.history.nesting import HandoffHistoryMapper, checked_wrappers
from routelock.run.executor import Executor
from routelock.scopes import checked_scope
from routelock.tools.search import ToolSearch
from routelock.tools.tool import Tool
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.handoffs.payload_types import HandoffTypes
    from routelock.tracing.recorder import Trace

__all__ = ["Limits", "Mistake", "NextAgent", "OnLimit", "OnUnusableOutput", "RunConfig", "listed"]


@hint_keywords(LIMIT_KEYWORDS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a run; None means no limit. ``RunConfig.on_limit`` says what a limit does.

    Some limits have an option of the same meaning, such as ``max_turns``. The smaller of the two holds, so
    the code that starts a run can tighten an app's limits and cannot loosen them. The defaults of
    ``max_turns`` and ``max_handoffs`` do not count.

    The run checks its limits before it begins a model call or a tool. It never interrupts one for a limit
    (except ``seconds``), so tokens and cost may exceed their limit by the last call. The runs of agents that
    are called as tools count as part of the run.
    """

    turns: int | None = None
    """Model calls that got a reply, over all agents. Same as ``max_turns``."""
    handoffs: int | None = None
    """Handoffs that are carried out. Same as ``RunConfig.max_handoffs``. An agent that is called as a tool
    may make the same number of its own."""
    requests: int | None = None
    """Model calls, failed attempts included."""
    tool_calls: int | None = None
    """Tools that are run, agents as tools included. Handoffs do not count."""
    tokens: int | None = None
    """Input and output tokens together, estimated where the model's server does not count them. The result
    has a warning if one of the app's own handlers reports no tokens."""
    cost: float | None = None
    """US dollars, see `Usage.cost`. The result has a warning if a price is not known."""
    seconds: float | None = None
    """Duration of the whole run. Same as ``RunConfig.timeout``."""

    def problems(self) -> list[str]:
        """Return what is wrong with these limits; empty if nothing is."""
        return [
            f"limits.{each.name} must be a number above 0, or None for no limit, not {value!r:.80}"
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None and not _is_number(each.name, value)
        ]

    def used_up(self, usage: Usage, made: int = 0, calls: int = 0) -> str:
        """Return which limit is reached, as text; "" if none is.

        Args:
            usage: consumed so far.
            made: tool calls made so far.
            calls: tool calls that are about to be made; 0 to ask for another model call.
        """
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

    def for_sub_run(self) -> Limits:
        """Return the limits of a sub-run: the outer run gives it its turns and its time."""
        return replace(self, turns=None, handoffs=None, seconds=None)


def _is_number(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    whole = isinstance(value, int) or name in ("cost", "seconds")
    return whole and value >= 0 if name in ("handoffs", "tool_calls") else whole and value > 0


Mistake = Literal["unknown_tool", "bad_arguments", "failed_handoff"]
"""Mistakes that can end a run, see ``RunConfig.raise_on``."""

NextAgent = Literal["reset", "sticky"]
"""The agent that the next run begins with: the first agent of this run, or the last active one."""

OnLimit = Literal["raise", "return"] | Callable[[LimitExceeded], MaybeAwaitable[Any]]
"""What a limit does: raise, return the partial result, or call a function for the final output."""

OnUnusableOutput = Literal["raise"] | Callable[[ModelBehaviorError], MaybeAwaitable[Any]]
"""What an output that is refused or not valid does: raise, or call a function for the final output."""


@hint_keywords(CONFIG_KEYWORDS)
@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of one run; every default is safe for production."""

    model: str | Handler | None = None
    """Model or handler that answers for every agent, in place of the agent's own."""
    handler: str | None = None
    """Name of the first agent's handler that the run starts with, in place of its default."""
    fallback: bool = False
    """Whether the agent's next handler by priority answers when one fails before it showed anything."""
    scopes: Collection[str] = frozenset()
    """Permission scopes granted to this run, such as ``("owner",)``; empty for an unknown user. See
    `routelock.scopes`."""
    user_id: str | None = None
    """The app's id of the user. Tools and hooks find it in their context; models never see it."""
    conversation_id: str | None = None
    """The app's id of the conversation, available in the same places as ``user_id``."""
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    """Settings for all agents. An agent's own setting overrides the one of the same key."""
    agents: Sequence[Agent[Any]] = ()
    """More agents that handoffs may name as their target, for graphs that are wired by name."""
    handoff_input_filter: HandoffInputFilter | None = None
    """Filter for every handoff that has none of its own."""
    nest_handoff_history: bool = False
    """Whether a target sees a summary of the earlier history, where no filter applies."""
    handoff_history_mapper: HandoffHistoryMapper | None = None
    """Writes these summaries in place of `routelock.history.default_handoff_history_mapper`."""
    nest_keep_last_user: bool = True
    """Whether the newest user message follows a summary, word for word."""
    history_wrappers: tuple[str, str] | None = None
    """Markers before and after a summary. None means those of the current task, see
    `routelock.history.set_conversation_history_wrappers`."""
    handoff_prompt: bool = False
    """Whether the system prompt of agents with handoffs explains transfers."""
    multiple_handoffs: Literal["first", "reject"] = "first"
    """What to do with several handoffs in one reply: carry out the first, or refuse all and call the model
    again."""
    foreign_calls: Literal["told", "shown"] = "told"
    """How an agent sees calls that it could not have made, those of other agents: ``"told"`` in a note, or
    ``"shown"`` as calls, which models mistake for their own."""
    compact: Compact | None = None
    """When a conversation that is too long is compacted, and how; None never does. An agent's own setting
    wins, see ``Agent.compact``."""
    timeout: float | None = None
    """Seconds that the run may take. After that, the run cancels what it waits for and ends like at any
    other limit, with `RunTimeout`. The time that the reader of a stream takes does not count."""
    turn_timeout: float | None = None
    """Seconds that the reply of each turn may take, retries included. After that, the handler has failed
    with `ProviderTimeout`, and ``fallback`` applies. Tools have a ``timeout`` of their own."""
    raise_on: Collection[Mistake] = ()
    """Mistakes that end the run. By default the model gets an error as tool result and can correct itself.

    ``"unknown_tool"``: a call of a name that was not offered. ``"bad_arguments"``: arguments of a tool or a
    handoff that do not match its schema. ``"failed_handoff"``: a handoff that was tried and not carried out,
    or a target that failed or timed out while its caller waited. The first two raise `ModelBehaviorError`,
    the last raises `HandoffError` or the target's error. See docs/limits.md."""
    max_mistakes: int = 3
    """Number of turns in a row with nothing but mistakes after which the run ends."""
    limits: Limits | None = None
    """All limits of the run in one place. The smaller value holds where an option means the same."""
    tools_at_once: int | None = None
    """How many tools of one reply run at the same time; None for all. The ``timeout`` of a tool starts when
    the tool does."""
    max_handoffs: int | None = 5
    """Number of handoffs that the run carries out; None for no limit. The next one is refused, and the one
    after that ends the run."""
    detect_loops: bool = True
    """Whether a model that makes no progress, or replies with nothing after tools and handoffs, gets a
    message that says so. If that does not help, the run ends with `LoopDetected`."""
    warn_handoffs_over: int | None = 5
    """Number of handoffs offered to one agent above which the result has a warning, because models choose
    badly among many. None never warns."""
    next_agent: NextAgent = "reset"
    """Which agent ``RunResult.next_agent`` names: with ``"reset"`` the one that this run began with, with
    ``"sticky"`` the one that was active at the end. If that one was to return an answer to its caller, it is
    the caller."""
    on_limit: OnLimit = "raise"
    """What happens when a limit ends the run: raise the error, which carries the partial result; return the
    partial result; or call a function with the error, which returns the final output. That output becomes an
    assistant message of the conversation, as text or JSON. A resumed run does not show it to the model."""
    on_invalid_output: OnUnusableOutput = "raise"
    """What happens when an agent gives no valid final output in ``max_mistakes`` turns in a row: raise the
    error, or call a function with the error, which carries the partial result. The function raises, or
    returns the final output, a value of the agent's ``output_type``. The run is done then, and the output
    becomes an assistant message of the conversation. No output guardrail checks it. If an agent waits for the
    output, it is told of the error, and the function is not called."""
    on_refusal: OnUnusableOutput = "raise"
    """The same for a model that refuses to give the final output. With ``"raise"`` only a refusal by an agent
    with an ``output_type`` is an error, and another one is the final output. A function gets both."""
    available: Callable[[Agent[Any]], MaybeAwaitable[bool | str]] | None = None
    """Function, sync or async, that says whether a target can take over now. A text is a refusal and its
    reason; an exception is a refusal too. It counts towards the ``timeout`` of the handoff."""
    capacity: Capacity | None = None
    """How many handoffs each agent holds at a time, over all runs that share this object."""
    handoff_types: HandoffTypes | None = None
    """Types that handoff payloads are checked against; None for the built-in types."""
    strict_payloads: bool = False
    """Whether a payload that does not match its type refuses the handoff; otherwise it adds a warning."""
    clock: Callable[[], float] = time.time
    """Returns the time in seconds for records and traces; replace it for exact tests."""
    external_tools: Sequence[Tool | ToolSpec] = ()
    """Tools that the caller runs. They are offered to every agent and replace its own tool of the same name.
    A call of one ends the run, see ``RunResult.pending``."""
    tool_search: ToolSearch | None = None
    """Which tools the models have to find first, and how, for agents without a setting of their own."""
    shared_memory: Mapping[str, Any] = field(default_factory=lambda: {})
    """Initial ``RunContext.shared_memory``. The run works on a copy."""
    input_guardrails: Sequence[Guardrail] = ()
    """Guardrails of the run's input. They run before the first model call."""
    output_guardrails: Sequence[Guardrail] = ()
    """Guardrails of the final output."""
    guardrails_beside: bool = False
    """Whether an agent's input guardrails run while its first model call is made, and not before it. The run
    holds back the reply and its tools until they have passed. A refused input may have cost that call."""
    retry: Retry = field(default_factory=Retry)
    """How often a failed model call is tried again."""
    trace: str | PathLike[str] | Trace | Sequence[str | PathLike[str] | Trace] | None = None
    """Where the run is traced while it goes on: the path of a file to append to (see
    `routelock.tracing.TraceFile`), another `routelock.tracing.Trace`, or several. None writes no trace."""
    executor: Executor | None = None
    """Carries out model and tool calls, such as an engine for durable runs; None for direct calls. A run with
    an executor needs a ``run_id``."""
    run_id: str | None = None
    """Id of the run, used in other ids and in idempotency keys; None for a random one. A run from a state
    keeps its id."""

    def __post_init__(self) -> None:
        if self.scopes:
            scopes = checked_scope(self.scopes, "RunConfig")
            names = (scopes,) if isinstance(scopes, str) else scopes  # a str is a collection of letters, too
            object.__setattr__(self, "scopes", frozenset(names))
        if self.history_wrappers is not None:
            checked_wrappers(self.history_wrappers)
        wrong = [*_wrong_types(self), *_wrong_choices(self), *_wrong_numbers(self), *guardrail_problems(self)]
        wrong += _unused_options(self.external_tools)
        if wrong := wrong + settings_problems(self.model_settings):
            raise ConfigError(f"RunConfig: {'; '.join(wrong)}.")

    def sub_run_settings(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, for ``Agent.as_tool(run_config=...)``.

        Raises:
            ConfigError: one of them belongs to the outermost run.
        """
        defaults = RunConfig()
        names = [each.name for each in fields(self)]
        own = {name: getattr(self, name) for name in names if not _is_same(self, defaults, name)}
        refused = own.keys() & _OF_THE_OUTER_RUN
        wrong = [f"{name} (the sub-run {_OF_THE_OUTER_RUN[name]})" for name in sorted(refused)]
        if self.on_limit == "return":
            wrong.append("on_limit='return' (the call would have no result: pass a function)")
        if wrong:
            raise ConfigError(f"The run_config of as_tool() cannot set {', '.join(wrong)}.")
        return own


_OF_THE_OUTER_RUN: Mapping[str, str] = {
    "clock": "shares the clock of the outer run",
    "conversation_id": "has that of the outer run",
    "executor": "is carried out by that of the outer run",
    "external_tools": "has no caller that could answer them",
    "run_id": "is named after its call",
    "scopes": "has those of the outer run",
    "shared_memory": "shares that of the outer run",
    "user_id": "has that of the outer run",
}
"""The settings that a sub-run cannot have of its own, each with the reason."""


def _is_same(config: RunConfig, other: RunConfig, name: str) -> bool:
    mine, default = getattr(config, name), getattr(other, name)
    return mine is default or bool(mine == default)


def _wrong_types(config: RunConfig) -> list[str]:
    """Find wrong types that would otherwise fail in the middle of a run, far from their cause."""
    kinds: tuple[tuple[str, type | UnionType, str], ...] = (
        ("handler", str | None, "the name of a handler"),
        ("fallback", bool, "True or False; the next handler by priority takes over"),
        ("shared_memory", Mapping, "a dict"),
        ("agents", Collection, "a list of agents"),
        ("input_guardrails", Sequence, "a list of functions"),
        ("output_guardrails", Sequence, "a list of functions"),
        ("capacity", Capacity | None, "a Capacity, such as Capacity({'writer': 2})"),
        ("retry", Retry, "a Retry, such as Retry(attempts=3)"),
        ("limits", Limits | None, "Limits, such as Limits(turns=20)"),
        ("tool_search", ToolSearch | None, "a ToolSearch, such as ToolSearch(defer_over=20)"),
        ("compact", Compact | None, "a Compact, such as Compact(at_tokens=100_000)"),
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
        *(
            (on == "raise" or callable(on), f"{name} must be 'raise' or a function, not {on!r:.80}")
            for name, on in (
                ("on_invalid_output", config.on_invalid_output),
                ("on_refusal", config.on_refusal),
            )
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


def _unused_options(external: Sequence[Tool | ToolSpec]) -> list[str]:
    """Name the options of the caller's tools that would protect a call, and that no run can carry out."""
    unused = [
        (tool.name, option)
        for tool in external
        if isinstance(tool, Tool)
        for option, is_set in (
            ("is_enabled", tool.is_enabled is not True),
            ("needs_approval", tool.needs_approval is not False),
            ("input_guardrails", bool(tool.input_guardrails)),
            ("output_guardrails", bool(tool.output_guardrails)),
        )
        if is_set
    ]
    return [
        f"external_tools: {option} of tool {name!r} would be ignored, because the caller runs it: check the "
        "call there"
        for name, option in unused
    ]


def _is_trace(each: object) -> bool:
    return isinstance(each, str | PathLike) or callable(getattr(each, "begin", None))


def listed(trace: Any) -> Sequence[Any]:
    """Return the traces of a setting that may be one trace, several, or None."""
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
