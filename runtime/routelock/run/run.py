"""`Run`: everything that changes during one run, in parts that are named after what they hold.

A run changes nothing on an agent, a handler or a module. So the next run starts with its first agent and the
default handler again, for whatever reason this one ended.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from routelock._copies import detached
from routelock._sendable import sendable
from routelock.agents.agent import Agent
from routelock.agents.deferral import FoundTools
from routelock.agents.hooks import RunHooks
from routelock.context import PAYLOAD_KEY, MemoryScope, RunContext, scoped
from routelock.guardrails import GuardrailRecord
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Handler, Request, family_of, tool_name
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Slot
from routelock.history.messages import ItemKind, Message, RunItem, ToolCall
from routelock.history.notes import Audience
from routelock.history.view import View
from routelock.run.config import RunConfig
from routelock.run.events import HandoffCompleted, RunEvent
from routelock.run.frames import Frame, asking_caller
from routelock.run.limit_errors import budget_exceeded, limit_warning, own_budget_exceeded, turns_exceeded
from routelock.run.limits import Limits
from routelock.run.progress import Progress
from routelock.run.records import Compaction, HandoffRecord, ModelCall, Problem, Shown, StopReason
from routelock.run.result import RunResult
from routelock.run.store import RunStore
from routelock.run.sub_run_accounts import with_sub_runs
from routelock.tools.approvals import NO_APPROVALS, Approvals, Interruption, still_waiting
from routelock.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from routelock.state.document import RunDocument
    from routelock.tracing.recorder import Recorder

__all__ = [
    "Budget",
    "Ending",
    "HandoffLog",
    "ModelCallState",
    "OpenCalls",
    "Report",
    "Run",
    "SharedMemory",
    "SubRuns",
    "Transcript",
]


_log = logging.getLogger("routelock.handoff")

_IN_FLIGHT = Usage(requests=1, cost=0.0)


@dataclass(slots=True, eq=False)
class Transcript:
    """The messages of a run in order; the list only grows."""

    items: list[RunItem]
    input_count: int
    """How many of the items are the input."""
    call_ids: set[str]
    """Ids of all tool calls so far. A call in a reply that repeats one gets a new id."""
    input_has_calls: bool = False
    """Whether the input of the run has calls; those of replies do not count."""
    summary: RunItem | None = None
    """The newest summary of a compaction; the views of other agents may use it too."""
    _found: FoundTools | None = None

    @property
    def found_tools(self) -> FoundTools:
        """The deferred tools that agents have found; made only for runs with a tool search."""
        if self._found is None:
            self._found = FoundTools()
        return self._found


@dataclass(slots=True, eq=False)
class Budget:
    """Usage of a run, and its limits; a run and its sub-runs are checked together."""

    limits: Limits | None
    max_turns: int | None
    outer: Budget | None = None
    """Budget of the outer run, for a sub-run."""
    own_limits: Limits | None = None
    """Limits of a sub-run and its own sub-runs alone, see ``Agent.as_tool(run_config=...)``."""
    before: tuple[Usage, int] = NO_USAGE, 0
    """Usage and tool calls of a resumed sub-run that its outer run has counted already."""
    inner: dict[str, Budget] = field(default_factory=lambda: {})
    """Budgets of the active sub-runs, by call id."""
    sub_run_turns: int = 0
    """Turns of the sub-runs that have ended."""
    turns_counted: int = 0
    """Turns of a resumed sub-run that its outer run has counted already."""
    usage: Usage = NO_USAGE
    usage_by_agent: dict[str, Usage] = field(default_factory=lambda: {})
    tool_calls: int = 0
    """Tools that were run, those of ended sub-runs included."""
    in_flight: bool = False
    """True while an attempt of a model call is in flight, False between attempts."""

    def begin_attempt(self) -> None:
        """Note that an attempt of a model call is in flight, see `routelock.run.model_call.attempts`."""
        self.in_flight = True

    def consumed(self) -> tuple[Usage, int]:
        """Return usage and number of tool calls, with active sub-runs and calls in flight."""
        usage, calls = self.usage, self.tool_calls
        if self.in_flight:
            usage += _IN_FLIGHT
        for inner in self.inner.values():
            more, made = inner.consumed()
            usage, calls = usage + more, calls + made
        return usage, calls

    def check(self, agent: str, calls: int = 0) -> None:
        """Check that the limits allow another model call, or a number of tool calls.

        Args:
            agent: name of the agent that wants to make them.
            calls: number of tool calls; 0 for a model call.

        Raises:
            BudgetExceeded: the limits do not allow it.
        """
        outermost = self
        while outermost.outer is not None:
            outermost._check_own(agent, calls)
            outermost = outermost.outer
        if self.limits is None:
            return
        if why := self.limits.used_up(*outermost.consumed(), calls):
            raise budget_exceeded(why, agent, calls)

    def _check_own(self, agent: str, calls: int) -> None:
        """Check the limits of a sub-run alone, as `check` does."""
        if self.own_limits is None:
            return
        usage, made = self.all_consumed()
        if why := self.own_limits.used_up(usage, made, calls):
            raise own_budget_exceeded(why, agent, calls)

    def all_consumed(self) -> tuple[Usage, int]:
        """Return usage and number of tool calls, also those from before a sub-run was resumed."""
        (usage, calls), (usage_before, calls_before) = self.consumed(), self.before
        return usage + usage_before, calls + calls_before

    def check_turns(self, agent: str, turn: int) -> None:
        """Check that there may be another turn after this one.

        Raises:
            MaxTurnsExceeded: the run has made ``max_turns`` turns.
        """
        if self.max_turns is not None and turn + self.sub_run_turns >= self.max_turns:
            raise turns_exceeded(self, self.max_turns, agent)


@dataclass(slots=True, kw_only=True, eq=False)
class HandoffLog:
    """The handoffs of one run: records, what each target consumed, and the slots that targets hold."""

    is_streamed: bool
    records: list[HandoffRecord] = field(default_factory=lambda: [])
    spent: dict[str, Usage] = field(default_factory=lambda: {})
    """What each target has consumed, by the id of its handoff."""
    slots: dict[str, Slot] = field(default_factory=lambda: {})
    """The capacity slots that targets hold, by the id of their handoff; see ``RunConfig.capacity``."""
    events: list[RunEvent] = field(default_factory=lambda: [])
    """The events of handoffs that were not yielded yet."""

    def get(self, handoff_id: str | None) -> HandoffRecord | None:
        """Return the record of a handoff."""
        return next((one for one in reversed(self.records) if one.id == handoff_id), None)

    def begin_count(self, handoff_id: str) -> None:
        """Begin to count what the target of this handoff consumes."""
        self.spent[handoff_id] = NO_USAGE

    def close(
        self,
        handoff_id: str | None,
        at: float,
        status: HandoffStatus | None = None,
        error: str | None = None,
    ) -> None:
        """Record the end of a handoff, unless it has ended before, and give back the slot of its target.

        Args:
            handoff_id: the id of the handoff; None is no handoff.
            at: the time, in seconds of ``RunConfig.clock``.
            status: its status from now on; None keeps the one that it has.
            error: how it failed.
        """
        self._release(handoff_id)
        for place, one in enumerate(self.records):
            if one.id != handoff_id or one.ended is not None:
                continue
            status_now = one.status if status is None else one.status.to(status, one.id)
            closed = object.__new__(type(one))  # `dataclasses.replace` takes six times as long
            ending = {"status": status_now, "error": error, "ended": at, "usage": self.spent.get(one.id)}
            closed.__dict__.update(one.__dict__, **ending)
            self.records[place] = closed
            if self.is_streamed:
                self.events.append(
                    HandoffCompleted(
                        source=one.source,
                        target=one.target,
                        call_id=one.call_id,
                        status=status_now,
                        error=error,
                    )
                )

    def close_all(self, at: float, status: HandoffStatus | None = None, error: str | None = None) -> None:
        """Record the end of all handoffs that have not ended, and give back all slots. Safe to call twice."""
        for handoff_id in [one.id for one in self.records if one.ended is None]:
            self.close(handoff_id, at, status, error)
        for handoff_id in [*self.slots]:
            self._release(handoff_id)

    def hold(self, handoff_id: str, slot: Slot | None) -> None:
        """Hold a capacity slot for the target of a handoff."""
        if slot is not None:
            self.slots[handoff_id] = slot

    def _release(self, handoff_id: str | None) -> None:
        """Give back the slot of a handoff, if it holds one. Safe to call twice."""
        if handoff_id is not None and (slot := self.slots.pop(handoff_id, None)) is not None:
            slot.release()


@dataclass(slots=True, eq=False)
class SharedMemory:
    """The shared memory of a run, and the scope that the active agent sees."""

    shared: dict[str, Any]
    """Memory that the active agent sees, see ``Handoff.share``."""
    scopes: tuple[MemoryScope, ...] = ()
    """The scopes around it, the newest last."""
    at_end: tuple[Sequence[MemoryScope], Any] | None = None
    """Scopes and payload when the run ended, for its state."""

    @property
    def payload(self) -> Any:
        """The handoff payload as JSON; None without one."""
        return self.shared.get(PAYLOAD_KEY)

    def enter_scope(self, keys: Sequence[str] | None) -> None:
        """Give the next agent a memory of its own, with the keys that are shared (`routelock.context`)."""
        scope = scoped(self.shared, keys)
        self.scopes += (scope,)
        self.shared = scope.inner

    def leave_scope(self, level: int = 0) -> None:
        """Leave scopes until ``level`` of them are left; changes of shared keys are kept."""
        while len(self.scopes) > level:
            *outer, last = self.scopes
            self.scopes, self.shared = tuple(outer), last.widened()

    def end(self, *, is_outermost: bool) -> None:
        """Leave all scopes, and drop the payload if this is the outermost run."""
        if self.at_end is None:
            self.at_end = self.scopes, self.payload
        self.leave_scope()
        if is_outermost:
            self.shared.pop(PAYLOAD_KEY, None)


@dataclass(slots=True, eq=False)
class ModelCallState:
    """The model call that is in progress."""

    request: Request | None = None
    """None between model calls."""
    shown: Shown | None = None
    family: str = ""
    """The provider family of the handler that is called."""
    reply: MessageDone | None = None
    """The complete reply, until it is in the transcript."""
    text: list[str] = field(default_factory=lambda: [])
    """Text deltas of the reply so far; not empty once any delta was streamed."""
    error: Exception | None = None
    """The handler's error while guardrails ran beside the call, kept until earlier events are streamed."""
    compacted_turn: int = 0
    """The last turn whose call was too long and was made again with a shorter view."""

    def forget_reply(self) -> None:
        """Drop the reply, because it is in the transcript now or is void."""
        self.reply = self.error = None
        self.text.clear()


@dataclass(slots=True, eq=False)
class OpenCalls:
    """Open tool calls, and the approvals for them."""

    decisions: Approvals = NO_APPROVALS
    """Approvals and denials; sub-runs have the same."""
    interruptions: Sequence[Interruption] = ()
    """Calls that wait for an approval, in this run and its sub-runs."""
    begun: set[str] = field(default_factory=lambda: set())
    """Ids of the calls that were begun and so may have had an effect."""
    pending: Sequence[ToolCall] = ()
    """Calls of external tools, which the caller has to answer."""
    claims: int = 0
    """How many times a saved state of this run was resumed in its session."""
    grace: float = 5.0
    """Seconds that calls may still take after another call of the same reply ended the run."""


@dataclass(slots=True, eq=False)
class SubRuns:
    """The sub-runs of a run, which answer calls of agents as tools, and the runs around it."""

    depth: int = 0
    """How many runs are around this one."""
    path: tuple[str, ...] = ()
    """Ids of the calls that lead from the outermost run to this one; the last one is answered by it."""
    outermost_id: str = ""
    """Id of the outermost run; empty if it is this one."""
    active: dict[str, Run] = field(default_factory=lambda: {})
    """Sub-runs in progress, by call id and in call order."""
    waiting: dict[str, Run] = field(default_factory=lambda: {})
    """Sub-runs that wait for an approval, by call id."""
    to_resume: dict[str, RunDocument] = field(default_factory=lambda: {})
    """Stored sub-runs that a resumed run has not continued yet, by call id."""
    ended: dict[str, RunResult[Any]] = field(default_factory=lambda: {})
    """Results of the sub-runs that have ended, by call id."""


@dataclass(slots=True, eq=False)
class Report:
    """Records for the result, beside the transcript."""

    model_calls: list[ModelCall] = field(default_factory=lambda: [])
    """The model calls that have ended."""
    accepted: dict[str, int] = field(default_factory=lambda: {})
    """Tokens of each agent's last request that a provider took, from before the run was resumed."""
    compactions: tuple[Compaction, ...] = ()
    errors: tuple[Problem, ...] = ()
    guardrails: list[GuardrailRecord] = field(default_factory=lambda: [])
    repairs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    warned_of_many: bool = False
    """Whether there is a warning that an agent is offered too many handoffs."""


@dataclass(slots=True, eq=False)
class Ending:
    """How the run ended; ``"unfinished"`` while it goes on."""

    stop_reason: StopReason = "unfinished"
    final_output: Any = None
    failure: str | None = None
    """The error that ended the run, as text."""
    stops_after_turn: bool = False
    """Whether the run ends before the next turn, see `Run.stop_after_turn`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One run while it goes on."""

    first_agent: Agent[Any]
    """The agent that the run began with."""
    graph: Mapping[str, Agent[Any]]
    config: RunConfig
    hooks: Sequence[RunHooks]
    """Those of the outermost run first, then those of the sub-runs down to this one."""
    is_streamed: bool
    context: Any
    run_id: str
    scopes: frozenset[str] = frozenset()
    """Permission scopes granted to this run."""

    transcript: Transcript
    frame: Frame
    """The top of the stack: the active agent and handler, and their view of the history."""
    callers: list[Frame] = field(default_factory=lambda: [])
    """The frames below it, the innermost last: agents that wait for the active one."""
    budget: Budget
    handoffs: HandoffLog
    memory: SharedMemory
    model_call: ModelCallState = field(default_factory=ModelCallState, init=False)
    open_calls: OpenCalls = field(default_factory=OpenCalls, init=False)
    sub_runs: SubRuns = field(default_factory=SubRuns, init=False)
    report: Report = field(default_factory=Report, init=False)
    ending: Ending = field(default_factory=Ending, init=False)
    progress: Progress = field(default_factory=Progress, init=False)
    store: RunStore | None = field(default=None, init=False)
    recorder: Recorder | None = field(default=None, init=False)

    turn: int = 0
    first_of_turn: int = 0
    """Id of the first item of this turn."""
    retakes_turn: bool = field(default=False, init=False)
    """Whether the next model call repeats that of this turn, and so does not count as a turn."""
    announced_agent: Agent[Any] | None = None
    """The agent of the last `AgentUpdated`."""
    agent_started: bool = False
    """Whether the hooks and input guardrails of the active agent were called."""
    is_observed: bool = field(default=True, init=False)
    """Whether hooks, a trace or the log watch this turn; if not, `emit` need not be called."""
    failed_handlers: frozenset[tuple[str, str]] = frozenset()
    """Names of the agents and their handlers that failed and were replaced."""
    cached_context: RunContext[Any] | None = field(default=None, init=False)
    """Cached `current_context`; None after a change that the context shows."""

    def current_context(self) -> RunContext[Any]:
        """Return the context that callbacks of the app get, as of this moment."""
        if self.cached_context is None:
            self.cached_context = RunContext(
                context=self.context,
                run_id=self.run_id,
                agent=self.frame.agent.name,
                turn=self.turn,
                usage=self.budget.usage,
                shared_memory=self.memory.shared,
                scopes=self.scopes,
                user_id=self.config.user_id,
                conversation_id=self.config.conversation_id,
            )
        return self.cached_context

    @property
    def active_name(self) -> str:
        """Name of the active agent, or of the handler that a handoff put in its place."""
        frame = self.frame
        return frame.handler.name if frame.handler_override else frame.agent.name

    # The transcript and the view

    def audience(self) -> Audience | None:
        """Return the active agent as reader of the history; None if no call is another agent's.

        With an audience, calls of other agents become notes.
        """
        if self.config.foreign_calls == "shown" or not (
            self.handoffs.records or self.transcript.input_has_calls
        ):
            return None
        if self.frame.audience is None:
            self.frame.audience = Audience(
                agent=self.frame.agent.name,
                is_handler=self.frame.handler_override,
                can_call=self._callable_names(),
                transfers={each.call_id: (each.target, each.taken) for each in self.handoffs.records},
            )
        return self.frame.audience

    def _callable_names(self) -> Collection[str]:
        """Return the names of the active agent's tools and handoffs, and of the external tools."""
        agent, handler = self.frame.agent, self.frame.handler.name
        names = {tool.name for tool in agent.all_tools}
        for handoff in agent.all_handoffs:
            if handoff.to_handler is None or handoff.to_handler.name != handler:
                names.add(handoff.tool_name)
        return names.union(map(tool_name, self.config.external_tools))

    def shown_next(self) -> list[Message]:
        """Return copies of the messages for the next model call, without the system prompt."""
        view = View(self.frame.view.items)
        return detached(view.messages(family_of(self.frame.handler), self.audience())[0])

    def add_message(
        self, kind: ItemKind, message: Message, *, origin: str | None = None, final: bool = False
    ) -> RunItem:
        """Append a message to the transcript and to the view.

        Args:
            kind: the source of the message. Messages of kind ``"model"`` have to be sendable already.
            message: stored without a copy; each half of a surrogate pair becomes U+FFFD.
            origin: provider family of the handler, for a complete reply.
            final: whether it is the run's final answer, even if the active agent has a caller.
        """
        content = message.get("content")
        if kind != "model" and not (isinstance(content, str) and content.isascii()):
            message = sendable(message)
        caller = asking_caller(self.callers) if self.callers and not final else None
        item = RunItem(
            len(self.transcript.items),
            kind,
            message,
            self.frame.agent.name,
            origin,
            asked_by=None if caller is None else caller.waits_for["id"],
        )
        self.transcript.items.append(item)
        self.frame.view.items.append(item)
        return item

    # The stack of frames

    def push_frame(self, frame: Frame) -> None:
        """Make another agent or handler active; the present one waits for its answer."""
        self.callers.append(self.frame)
        self._activate(frame)

    def replace_frame(self, frame: Frame) -> None:
        """Replace the active agent or handler, whose handoff is closed, with another one."""
        self._activate(frame)

    def pop_frame(self) -> ToolCall:
        """Make the innermost caller active again, and return its call, which needs a result.

        The handoff that made the active agent active has to be closed.
        """
        frame = self.callers.pop()
        call, wait = frame.waits_for, frame.stop_waiting()
        frame.audience = frame.offered = None  # the history has the target's calls now
        self._activate(frame)
        self.progress.mistakes = self.progress.empty_replies = 0  # those of the target do not count
        self.memory.leave_scope(wait.memory_level)
        self.memory.shared.pop(PAYLOAD_KEY, None)
        if wait.payload is not None:
            self.memory.shared[PAYLOAD_KEY] = wait.payload
        return call

    def _activate(self, frame: Frame) -> None:
        self.frame, self.cached_context = frame, None

    def replace_handler(self, handler: Handler) -> None:
        """Replace the handler of a failed model call; the next call repeats the turn."""
        self.failed_handlers |= {(self.frame.agent.name, self.frame.handler.name)}
        self.frame.handler, self.retakes_turn = handler, True
        self.cached_context = self.frame.audience = self.frame.offered = None

    def failed_of(self, agent: Agent[Any]) -> set[str]:
        """Return the names of an agent's handlers that failed."""
        return {handler for owner, handler in self.failed_handlers if owner == agent.name}

    def add_agents(self, agent: Agent[Any]) -> None:
        """Add an agent, and the agents that it can reach, to the graph of the run."""
        if not agent.graph.keys() <= self.graph.keys():
            self.graph = {**self.graph, **agent.graph, **self.graph}

    def close_handoff(self, status: HandoffStatus, error: str | None = None) -> None:
        """Close the handoff that made the active agent active, with the status of its work."""
        if self.frame.handoff_id is not None:
            self.handoffs.close(self.frame.handoff_id, self.config.clock(), status, error)
            self.frame.handoff_id = None

    # Turns and limits

    def note_agent_change(self) -> bool:
        """Return whether the active agent has changed since the last call; if so, mark it as not started."""
        if self.announced_agent is self.frame.agent:
            return False
        self.announced_agent = self.frame.agent
        self.agent_started = False
        return True

    def begin_turn(self) -> None:
        """Start the next turn, unless another handler repeats the model call of this one.

        Raises:
            MaxTurnsExceeded: the run has made ``max_turns`` turns.
            BudgetExceeded: a limit of ``RunConfig.limits`` is reached.
        """
        agent, is_logged = self.frame.agent.name, _log.isEnabledFor(logging.INFO)
        self.is_observed = self.frame.agent.has_hooks or bool(self.hooks or self.recorder) or is_logged
        self.budget.check(agent)
        if self.retakes_turn:
            self.retakes_turn = False
            return
        self.budget.check_turns(agent, self.turn)
        self.turn += 1
        self.cached_context = None
        self.frame.turns += 1
        self.first_of_turn = len(self.transcript.items)

    def add_usage(self, usage: Usage, agent: str | None = None) -> None:
        """Add usage to the run, to an agent (the active one, if none is named), and to the open handoff."""
        budget, name = self.budget, agent or self.frame.agent.name
        total, before = budget.usage + usage, budget.usage_by_agent.get(name, NO_USAGE)
        # many runs have one agent, whose usage is that of the run, so the sum is made once
        after = total if before is budget.usage else before + usage
        budget.usage, budget.usage_by_agent[name] = total, after
        if (handoff_id := self.frame.handoff_id) is not None:
            spent = self.handoffs.spent[handoff_id]
            # an agent that took over once has consumed what its handoff has, so the sum is made once
            self.handoffs.spent[handoff_id] = after if spent is before else spent + usage
        self.cached_context = None
        if budget.limits is not None:
            warning = limit_warning(budget.limits, budget.usage, usage, name)
            if warning is not None and warning not in self.report.warnings:
                self.warn(warning)

    def stop_after_turn(self) -> None:
        """End the run after the turn in progress. If that turn ends the run anyway, this has no effect."""
        self.ending.stops_after_turn = True

    # The result

    def add_problem(
        self, kind: Any, message: str, *, call_id: str | None = None, error: BaseException | None = None
    ) -> None:
        """Add a `Problem` to the report, which does not end the run."""
        agent = self.frame.agent.name
        found = Problem(kind=kind, agent=agent, turn=self.turn, message=message, call_id=call_id, error=error)
        self.report.errors += (found,)

    def warn(self, text: str) -> None:
        """Add a warning to the report."""
        self.report.warnings += (text,)

    def close(self, status: HandoffStatus | None = None, error: str | None = None) -> None:
        """Close the open handoffs, release capacity and leave the memory scopes.

        It is safe to call this twice; the second call does nothing.

        Args:
            status: status of the open handoffs; None if the run ended before the work of their targets.
            error: why they failed.
        """
        if self.handoffs.records:
            self.handoffs.close_all(self.config.clock(), status, error)
        if self.open_calls.interruptions:
            answered = {item.message.get("tool_call_id") for item in self.transcript.items}
            settled = self.open_calls.begun | answered
            left = still_waiting(self.open_calls.interruptions, len(self.sub_runs.path), settled)
            self.open_calls.interruptions = left
        if self.memory.scopes:
            self.cached_context = None
        self.memory.end(is_outermost=not self.sub_runs.depth)

    def next_agent(self) -> Agent[Any]:
        """Return the agent for the user's next message, see ``RunConfig.next_agent``.

        An agent that was to return an answer gives way to the outermost caller.
        """
        if self.config.next_agent == "reset":
            return self.first_agent
        return next((frame.agent for frame in self.callers if not frame.is_standby), self.frame.agent)

    def result(self) -> RunResult[Any]:
        """Return the result of the run so far."""
        if self.sub_runs.active:
            return with_sub_runs(self).result()
        return RunResult(
            final_output=self.ending.final_output,
            last_agent=self.frame.agent,
            next_agent=self.next_agent(),
            items=tuple(self.transcript.items),
            input_count=self.transcript.input_count,
            usage=self.budget.usage,
            usage_by_agent=dict(self.budget.usage_by_agent),
            handoffs=tuple(self.handoffs.records),
            errors=self.report.errors,
            guardrail_results=tuple(self.report.guardrails),
            repairs=self.report.repairs,
            warnings=self.report.warnings,
            calls=tuple(self.report.model_calls),
            compactions=self.report.compactions,
            stop_reason=self.ending.stop_reason,
            last_handler=self.frame.handler.name,
            pending=tuple(map(detached, self.open_calls.pending)),
            interruptions=self.open_calls.interruptions,
            nested=dict(self.sub_runs.ended),
            _run=self,
        )
