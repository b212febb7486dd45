"""Settings of a run; they hold for all its agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from routelock._callables import MaybeAwaitable
from routelock._hints import hint_keywords
from routelock._peer_names import CONFIG_KEYWORDS
from routelock.agents.agent import Agent
from routelock.errors import ConfigError, LimitExceeded, ModelBehaviorError
from routelock.guardrails import Guardrail
from routelock.handlers.port import Handler, ModelSettings, ToolSpec
from routelock.handlers.retry import Retry
from routelock.handoffs.capabilities import Capacity
from routelock.history.compaction import Compact
from routelock.history.filters import HandoffInputFilter
from routelock.history.nesting import HandoffHistoryMapper, checked_wrappers
from routelock.run.config_problems import problems_of_config
from routelock.run.executor import Executor
from routelock.run.limits import Limits, Mistake
from routelock.scopes import checked_scope
from routelock.tools.search import ToolSearch
from routelock.tools.tool import Tool

if TYPE_CHECKING:
    from routelock.handoffs.payload_types import HandoffTypes
    from routelock.tracing.recorder import Trace

__all__ = ["NextAgent", "OnLimit", "OnUnusableOutput", "RunConfig"]


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
        if wrong := problems_of_config(self):
            raise ConfigError(f"RunConfig: {'; '.join(wrong)}.")
        if self.history_wrappers is not None:
            checked_wrappers(self.history_wrappers)

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
