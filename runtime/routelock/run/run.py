"""All that changes during one run, in one place, owned by that run alone.

Nothing here outlives the run, and nothing on an agent, a handler or a module ever changes: that is
why the next run starts at the default handler again, however this one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from routelock._json import detached, sendable
from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.context import PAYLOAD_KEY, RunContext
from routelock.errors import (
    ContentRefused,
    HandoffTimeout,
    ProviderError,
    ProviderTimeout,
)
from routelock.handlers.events import AttemptFailed, MessageDone
from routelock.handlers.port import Handler, Request, family_of, tool_name
from routelock.handlers.replies import is_empty, reply_problem, with_unique_ids
from routelock.handlers.stream_assembler import join_surrogates
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Slots
from routelock.history.messages import ItemKind, Message, RunItem, ToolCall
from routelock.history.notes import Audience
from routelock.history.view import View
from routelock.run.budget import Books
from routelock.run.emit import ModelCallEnds, ModelCallRetried, emit_now
from routelock.run.frames import Caller, waiting_one
from routelock.run.handler_selection import handlers_by_priority
from routelock.run.loop_guard import Progress
from routelock.run.result import (
    ModelCall,
    RunResult,
    Shown,
    StopReason,
)
from routelock.run.routing import Offer
from routelock.tools.approvals import NO_APPROVALS, Approvals, Interruption, still_waiting
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.state.document import RunDocument
    from routelock.state.run_state import RunState

__all__ = ["Keeper", "Run"]


class Keeper(Protocol):
    """Keeps one run. It is given the `routelock.run.run.Run`, which it may change in `begin` only."""

    async def begin(self, run: Any) -> None:
        """Put what came before in front of the run's input, and keep the input.

        Raises:
            SessionError: that cannot be done.
        """
        ...

    async def claim(self, run: Any, calls: Sequence[ToolCall]) -> None:
        """See that nobody else goes on from the state of a resumed run; called before anything of it is done.

        Args:
            run: it stands where the state says.
            calls: those that are still to be made, with somebody's word or without.

        Raises:
            SessionConflict: somebody else does, or did.
            SessionError: that cannot be found out.
        """
        ...

    async def keep(self, run: Any) -> None:
        """Keep what was added since the last time; called after each turn.

        Raises:
            SessionError: that cannot be done.
        """
        ...

    async def last(self, run: Any, error: Exception | None = None) -> None:
        """Keep what is left, however the run ends, also while it is being cancelled. It raises nothing.

        It is called more than once. What goes wrong is in ``run.errors``.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Run(Books):
    """One run while it goes on."""

    handler: Handler
    """Who is in charge."""
    calls: list[ModelCall] = field(default_factory=list[ModelCall], init=False)
    """Those that have ended."""
    first: Agent[Any]
    """The agent that the run begins with."""
    graph: Mapping[str, Agent[Any]]
    hooks: RunHooks | None
    stream: bool
    context: Any
    items: list[RunItem]
    view: View
    input_count: int
    scopes: frozenset[str] = frozenset()
    """Who is asking."""

    read_calls: bool = False
    """Whether there are calls in the input."""
    speaker: Agent[Any] | None = None
    """The agent that was announced last."""
    started: bool = field(default=False, init=False)
    """Whether the active agent's own beginning, its hooks and input guardrails, is behind it."""
    first_of_turn: int = field(default=0, init=False)
    """Id of the first item of the present turn."""
    agent_turns: int = field(default=0, init=False)
    """Model calls since the active agent took over; a forced tool choice holds for the first."""
    default_handler: str = ""
    """Name of the handler with which the active agent began."""
    stands_in: bool = field(default=False, init=False)
    """Whether a transfer put another handler in charge than the active agent's default."""
    handoff_input: Any = field(default=None, init=False)
    """What the last transfer passed along."""
    callers: tuple[Caller, ...] = field(default=(), init=False)
    """Who waits for an answer, the innermost last."""
    places: Slots = field(default_factory=Slots, init=False)
    """Those of whoever speaks and of those who wait, see ``RunConfig.capacity``."""
    payload_note: str | None = field(default=None, init=False)
    """The section of the prompt about the payload that rides along, once it was written."""
    read_by: Audience | None = field(default=None, init=False)
    """Who is shown the history, once it was asked for."""
    source_prompt: str | None = field(default=None, init=False)
    """The section of the prompt with the source's instructions, when the last handoff passes them on."""
    call_ids: set[str] = field(default_factory=set[str])
    """The ids of all tool calls so far; a reply that repeats one gets new ones."""
    offered: Offer | None = field(default=None, init=False)
    """What the active agent may call, if that does not change as long as the same handler is in charge."""
    warned_of_many: bool = field(default=False, init=False)
    """Whether it was said that an agent is offered too many handoffs."""
    empty_replies: int = field(default=0, init=False)
    """How many in a row."""
    mistakes: int = field(default=0, init=False)
    """Turns in a row with nothing but mistakes."""
    looked_at: Progress | None = field(default=None, init=False)
    """What is known of its going round, once there was anything to know."""
    over_limit: int = field(default=0, init=False)
    """Transfers that were refused because there had been enough; progress does not earn another."""
    failed: frozenset[tuple[str, str]] = frozenset()
    """Names of the handlers that failed and were replaced, each with its agent's."""
    again: bool = field(default=False, init=False)
    """Whether the next model call is that of the present turn once more."""
    pending: Sequence[ToolCall] = field(default=(), init=False)
    """Calls that the caller has to answer."""
    interruptions: Sequence[Interruption] = field(default=(), init=False)
    """Calls that wait for somebody's approval, here and in the runs within this one."""
    approvals: Approvals = field(default=NO_APPROVALS, init=False)
    """What was said of such calls; runs within this one have the same."""
    path: tuple[str, ...] = field(default=(), init=False)
    """Ids of the calls that the runs around this one are answered with, the outermost first."""
    kept: dict[str, Run] = field(default_factory=lambda: {}, init=False)
    """Runs within this one that wait for an approval, by call id."""
    to_resume: dict[str, RunDocument] = field(default_factory=lambda: {}, init=False)
    """Where such runs stood when this one was stopped, by call id."""
    claims: int = field(default=0, init=False)
    """How often what a state of it left to do was begun in its session."""
    turns_counted: int = field(default=0, init=False)
    """Of a resumed run within another one: how many turns are in the books of that one."""
    grace: float = field(default=5.0, init=False)
    """Seconds that calls may still take once another call of the same reply has ended the run."""
    begun: set[str] = field(default_factory=set[str], init=False)
    """Ids of the calls that somebody began to carry out: those have an effect, or may have one."""
    failure: str | None = field(default=None, init=False)
    """The error that ended the run, in words."""
    capture: Callable[[Run], RunState] | None = None
    """Makes the state of the run, see `routelock.state.resume`."""
    keeper: Keeper | None = field(default=None, init=False)
    """Keeps the run in its session."""
    depth: int = field(default=0, init=False)
    """How many runs this one is within."""
    nested: dict[str, RunResult[Any]] = field(default_factory=dict[str, RunResult[Any]], init=False)
    """Those that have ended."""
    final_output: Any = field(default=None, init=False)
    stop_reason: StopReason = field(default="unfinished", init=False)

    def begin_call(self, request: Request, shown: Shown) -> None:
        """Note a model call before it is made, so that a failed one is on the result as well."""
        self.open_call = (request, shown)
        self.attempted = True

    def unbegin_call(self, error: HandoffTimeout) -> None:
        """Take a model call back that was noted and never made, if there is one."""
        if self.open_call is not None:
            self.open_call, self.attempted = None, False
            emit_now(self, ModelCallEnds(None, error))

    def end_call(self, reply: MessageDone | None, error: BaseException | None = None) -> None:
        """Put the model call that was begun on the result, with its reply if it has one."""
        assert self.open_call is not None
        emit_now(self, ModelCallEnds(reply, error))
        request, shown = self.open_call
        self.open_call = None
        self.calls.append(ModelCall.of(request, shown, self.handler.name, reply))

    def forget(self) -> None:
        """Drop what arrived: it is in the transcript now, or it is void."""
        self.arrived = None
        self.partial.clear()

    def refuse_reply(self) -> None:
        """Drop what arrived of a reply to an input that must not be answered; what it took is counted."""
        if self.arrived is not None:
            self.count_failed(None)
            self.attempted = False
        self.forget()

    def void_attempt(self, failed: AttemptFailed) -> None:
        """Count an attempt that failed and is to be made again.

        Raises:
            BudgetExceeded: there may be no other.
        """
        self.count_failed(failed.error)
        emit_now(self, ModelCallRetried(failed))
        self.forget()
        self.attempted = False
        self.check_budget()

    def begin_attempt(self) -> None:
        """Note that the model call is being made, and not waited for (see `routelock.handlers.retry`)."""
        self.attempted = True

    def count_failed(self, error: BaseException | None) -> None:
        """Count a call that has no complete reply. One that the provider refused cost nothing."""
        if self.arrived is not None and self.arrived.usage is not None:
            self.count(self.arrived.usage)
            return
        refused = isinstance(error, ProviderError) and not isinstance(error, ProviderTimeout)
        nothing_came = self.arrived is None and not self.partial
        free = refused and nothing_came
        self.count(Usage(requests=1, cost=0.0) if free else Usage(requests=1, estimated=True))

    def now(self) -> RunContext[Any]:
        """Return the context of this moment, for the code of the app."""
        if self.moment is None:
            self.moment = RunContext(
                context=self.context,
                run_id=self.run_id,
                agent=self.agent.name,
                turn=self.turn,
                usage=self.usage,
                shared_memory=self.shared_memory,
                scopes=self.scopes,
                user_id=self.config.user_id,
                conversation_id=self.config.conversation_id,
            )
        return self.moment

    @property
    def progress(self) -> Progress:
        """What is known of its going round."""
        if self.looked_at is None:
            self.looked_at = Progress()
        return self.looked_at

    def reader(self) -> Audience | None:
        """Return for whom foreign calls are told; the same one as long as the same handler is in charge."""
        if self.config.foreign_calls == "shown" or not (self.handoffs or self.read_calls):
            return None  # every call in the history is the agent's own
        if self.read_by is None:
            self.read_by = Audience(
                agent=self.agent.name,
                stands_in=self.stands_in,
                can_call=self._can_call(),
                transfers={each.call_id: (each.target, each.taken) for each in self.handoffs},
            )
        return self.read_by

    def shown_next(self) -> list[Message]:
        """Return copies of what the next model call is shown, without the system prompt."""
        return detached(View(self.view.items).messages(family_of(self.handler), self.reader())[0])

    def _can_call(self) -> Collection[str]:
        """Return the names of the tools and transfers of whoever is in charge, and of the caller's tools."""
        agent, handler = self.agent, self.handler.name
        names: frozenset[str] | None = agent.worked_out.get((Audience, handler))
        if names is None:
            edges = [edge for edge in agent.edges if (to := edge.to_handler) is None or to.name != handler]
            names = frozenset([tool.name for tool in agent.all_tools] + [edge.tool_name for edge in edges])
            agent.worked_out[Audience, handler] = names
        external = self.config.external_tools
        return names.union(map(tool_name, external)) if external else names

    def wind_up(self, status: HandoffStatus | None = None, error: str | None = None) -> None:
        """End what must not outlive the run, which with no status ended before its agents were done.

        Safe to call twice; the first word counts.
        """
        if self.handoffs:
            self.close_records({one.id for one in self.handoffs}, status, error)
        self.places.release()
        if self.interruptions:
            settled = self.begun | {item.message.get("tool_call_id") for item in self.items}
            self.interruptions = still_waiting(self.interruptions, len(self.path), settled)
        if self.parted is None:
            self.parted = self.narrowings, self.shared_memory.get(PAYLOAD_KEY)
        if self.narrowings:
            self.widen()
            self.moment = None
        if not self.depth:  # the memory is that of the outermost run
            self.shared_memory.pop(PAYLOAD_KEY, None)

    @property
    def in_charge(self) -> str:
        """Name of who speaks: the agent, or the handler that it was handed over to."""
        return self.handler.name if self.stands_in else self.agent.name

    def meet(self, agent: Agent[Any]) -> None:
        """Let an agent, and all that it can reach, be of the run; who is new comes last."""
        if not agent.graph.keys() <= self.graph.keys():
            self.graph = {**self.graph, **agent.graph, **self.graph}

    def switch(self, agent: Agent[Any], handler: Handler, *, given: Any = None) -> None:
        """Let another agent, or another handler of the same agent, go on with what it is given."""
        if agent is not self.agent:
            self.agent_turns = 0
            self.default_handler = handlers_by_priority(agent, self.config)[0].name
        self.stands_in = agent is self.agent and handler.name != self.default_handler
        self.agent, self.handler, self.handoff_input = agent, handler, given
        self.moment = self.read_by = self.offered = None

    def replace_handler(self, handler: Handler, error: Exception) -> None:
        """Let another handler make the model call that failed."""
        self.end_call(self.arrived, error)
        self.count_failed(error)
        self.forget()
        self.failed |= {(self.agent.name, self.handler.name)}
        self.handler, self.again = handler, True
        self.moment = self.read_by = self.offered = None

    def failed_of(self, agent: Agent[Any]) -> set[str]:
        """Return the names of an agent's handlers that failed."""
        return {handler for owner, handler in self.failed if owner == agent.name}

    def speaker_changed(self) -> bool:
        """Whether another agent than before speaks from now on; True once per change."""
        if self.speaker is self.agent:
            return False
        self.speaker = self.agent
        self.started = False
        return True

    def begin_turn(self) -> None:
        """Count one more model call, unless it is one that failed and is made again by another handler.

        Raises:
            MaxTurnsExceeded: that would be one too many.
            BudgetExceeded: the run has consumed what it may.
        """
        if self.config.limits is not None:
            self.check_budget()
        if self.again:
            self.again = False
            return
        self.check_turns()
        self.turn += 1
        self.moment = None
        self.agent_turns += 1
        self.first_of_turn = len(self.items)

    def add(
        self, kind: ItemKind, message: Message, *, origin: str | None = None, final: bool = False
    ) -> RunItem:
        """Append to the transcript and to the view. What a model said was made sendable before.

        Args:
            kind: where the message came from.
            message: goes in as it is, with U+FFFD for each half of a surrogate pair.
            origin: the family of the handler that wrote it, if it is a complete reply.
            final: whether it is the answer of the run, also where an agent is in charge that was only asked.
        """
        content = message.get("content")
        if kind != "model" and not (isinstance(content, str) and content.isascii()):
            message = sendable(message)
        place, name = len(self.items), self.agent.name
        asking = waiting_one(self.callers) if self.callers and not final else None
        asked_by = None if asking is None else asking.call["id"]
        item = RunItem(id=place, kind=kind, message=message, agent=name, origin=origin, asked_by=asked_by)
        self.items.append(item)
        self.view.add(item)
        return item

    def accept(self, reply: MessageDone) -> MessageDone:
        """Take a complete reply into the transcript and return it as it stands there."""
        done, repairs = with_unique_ids(reply, self.turn, self.call_ids)
        if repairs:
            self.repairs += (*repairs,)
        self.end_call(done)
        self.count(reply.usage or Usage(requests=1, estimated=True))
        self.forget()
        self.add("model", done.message, origin=family_of(self.handler))
        self.empty_replies = self.empty_replies + 1 if is_empty(done.message) else 0
        return done

    def keep_partial(self, error: BaseException | None = None) -> None:
        """Keep what arrived of a reply whose call did not come to its end, and count the call."""
        if self.open_call is None:
            return
        reply, text = self.arrived, sendable(join_surrogates(self.partial))
        refused = isinstance(error, ContentRefused)  # vendors refuse a history that holds what they refused
        if reply is not None and not refused and not reply_problem(reply.message):
            self.accept(reply)
            return
        self.end_call(reply if refused else None, error)
        if self.attempted:
            self.count_failed(error)
        if not text and self.partial:
            self.warn(f"turn {self.turn}: the reply was cut off before it said anything")
        self.forget()
        if text:
            self.add("model", {"role": "assistant", "content": text})
            self.warn(f"turn {self.turn}: the reply was cut off after {len(text)} characters")

    def absorb(self) -> None:
        """Take the runs within this one into its books: in call order, whoever ended first."""
        within, self.within = self.within, {}
        for call_id, inner in within.items():
            if inner.turn or inner.stop_reason != "unfinished":  # else nobody came to it
                self.nested[call_id] = inner.result()
                self.turns_within += inner.turn + inner.turns_within - inner.turns_counted
                if inner.stop_reason == "requires_action":
                    self.kept[call_id] = inner
                self.tool_calls += inner.tool_calls
                for name, usage in self.nested[call_id].usage_by_agent.items():
                    self.count(usage, name)

    def next_agent(self) -> Agent[Any]:
        """Return who answers the user's next message. Whoever was only asked something does not stay."""
        if self.config.next_agent == "reset":
            return self.first
        return next((caller.agent for caller in self.callers if not caller.stands_by), self.agent)

    def result(self) -> RunResult[Any]:
        """Return the run as it stands now."""
        if self.within:
            so_far = copy(self)
            for name in ("nested", "usage_by_agent", "spent"):
                setattr(so_far, name, {**getattr(self, name)})
            so_far.absorb()
            return so_far.result()
        return RunResult(
            final_output=self.final_output,
            last_agent=self.agent,
            next_agent=self.next_agent(),
            items=tuple(self.items),
            input_count=self.input_count,
            usage=self.usage,
            usage_by_agent=dict(self.usage_by_agent),
            handoffs=tuple(self.handoffs),
            errors=self.errors,
            repairs=self.repairs,
            warnings=self.warnings,
            calls=tuple(self.calls),
            context=self.now(),
            stop_reason=self.stop_reason,
            last_handler=self.handler.name,
            pending=tuple(map(detached, self.pending)),
            interruptions=self.interruptions,
            nested=dict(self.nested),
            capture=None if self.capture is None else partial(self.capture, self),
        )
