"""The state of a run as a frozen value and as JSON, with which another process continues the run.

    text = result.state().to_json()
    ...                                                   # another process, another day
    state = RunState.from_json(text, agents=[triage])
    result = await Runner.run(triage, state)

A state holds the transcript and the position of the run, with agents and handlers by name. It holds no code:
the app passes agents, tools, the `RunConfig`, the context object and hooks again, and names are looked up
among these agents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, cast

from routelock._copies import detached
from routelock._json_document import MAX_BYTES, MAX_DEPTH, check_json, decode, encode, prefix_errors
from routelock._redaction import redact, redact_text
from routelock._sendable import sendable
from routelock.agents.agent import Agent
from routelock.agents.offer import offer_tools
from routelock.context import RunContext
from routelock.errors import ConfigError
from routelock.handoffs.handoff import Handoff
from routelock.history.input import checked_message
from routelock.history.messages import Message, RunItem, ToolCall
from routelock.run.config import RunConfig
from routelock.run.records import HandoffRecord
from routelock.state.document import RunDocument, StoredDecision, read_document, write_document
from routelock.tools.approvals import Decision, Interruption, rejection
from routelock.tools.questions import answer_to
from routelock.usage import Usage

__all__ = ["RunState", "RunStatus", "agent_named", "is_behind", "redacted"]


def redacted(document: RunDocument) -> RunDocument:
    """Return a document without the secrets in shared data and in the texts of errors.

    Messages stay unchanged.
    """
    return replace(
        document,
        error=_without_secrets(document.error),
        errors=[replace(problem, message=redact_text(problem.message)) for problem in document.errors],
        frames=[replace(frame, payload=redact(frame.payload)) for frame in document.frames],
        guardrails=[replace(one, output_info=redact(one.output_info)) for one in document.guardrails],
        handoffs=[_redacted_record(record) for record in document.handoffs],
        memory_scopes=[replace(scope, own=redact(scope.own)) for scope in document.memory_scopes],
        shared_memory=redact(document.shared_memory),
        sub_runs={call_id: redacted(inner) for call_id, inner in document.sub_runs.items()},
    )


def _without_secrets(error: str | None) -> str | None:
    return None if error is None else redact_text(error)


def _redacted_record(record: HandoffRecord) -> HandoffRecord:
    request, response = record.request, record.response
    if request is not None:
        request = replace(request, metadata=redact(request.metadata))
    if response is not None:
        response = replace(response, metadata=redact(response.metadata))
    return replace(record, error=_without_secrets(record.error), request=request, response=response)


def _answer_as_json(place: int, message: Message) -> Message:
    """Return a copy of a tool message of the caller, with U+FFFD for each half of a surrogate pair.

    Raises:
        ConfigError: a value in it is no JSON; the message says where.
    """
    try:
        answer = sendable(detached(message))
        check_json(answer)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Answer {place} must be JSON: {error}.") from error
    return answer


class RunStatus(StrEnum):
    """The status of a run."""

    IN_PROGRESS = "InProgress"
    """A model is to be called next."""
    WAITING_FOR_TOOLS = "WaitingForTools"
    """Calls have no result: those of the caller's own tools, or of tools that did not start."""
    HANDOFF_REQUESTED = "HandoffRequested"
    """A handoff was requested and not made yet, see ``RunState.requested_handoff`` and ``reason``."""
    COMPLETE = "Complete"
    FAILED = "Failed"
    """An error or a limit ended the run, see ``RunState.error``. It can still be resumed."""


@dataclass(frozen=True, slots=True, repr=False)
class RunState:
    """The state of a run, frozen. ``result.state()`` and `from_json` return one.

    ``Runner.run(agent, state)`` continues the run.
    """

    document: RunDocument
    """The data, which must not be changed; `to_json` writes it without secrets."""
    agents: Mapping[str, Agent[Any]] = field(compare=False)
    """The agents of the run by name."""

    def __repr__(self) -> str:
        return f"RunState({self.status}, run_id={self.run_id!r}, agent={self.agent!r}, turn={self.turn})"

    # -- JSON --

    def to_json(self, *, include_secrets: bool = False, max_bytes: int = MAX_BYTES) -> str:
        """Return the state as JSON text; the same state gives the same text.

        Args:
            include_secrets: whether secrets in the shared memory, in payloads, in metadata and in the texts
                of errors are kept; if not, ``"[redacted]"`` replaces them, see `routelock.tracing.redact`.
                Messages stay unchanged. When the run is resumed, ``RunConfig.shared_memory`` has to provide
                the redacted entries of the shared memory.
            max_bytes: the largest size, as `from_json` reads it.

        Raises:
            ValueError: the text is too large.
        """
        with prefix_errors("Failed to serialize RunState"):
            document = self.document if include_secrets else redacted(self.document)
            return encode(write_document(document), compress=False, max_bytes=max_bytes).decode()

    @classmethod
    def from_json(
        cls,
        text: str | bytes,
        *,
        agents: Sequence[Agent[Any]],
        max_bytes: int = MAX_BYTES,
        max_depth: int = MAX_DEPTH,
    ) -> RunState:
        """Return the state that `to_json` wrote. Text from anywhere is safe to read, in bounded memory.

        Safe means: it gives a checked state or an error, and runs no code. A changed text is a changed
        conversation, so sign the text if it passes through systems that you do not trust.

        Args:
            text: JSON.
            agents: the agents that the run began with, and other agents of the run that no handoff of these
                leads to. The text can name no others.
            max_bytes: the largest size.
            max_depth: how many lists and objects may be nested, 200 at most.

        Raises:
            ConfigError: the text names an agent that is not among these.
            ValueError: the text is no state, or has a newer format; the message says what is wrong.
        """
        with prefix_errors("This is no RunState"):
            if isinstance(cast(object, text), Mapping):  # a database may return its JSON parsed
                raise ValueError("expected the text that to_json gave, not a dict: use json.dumps")
            data = text.encode() if isinstance(text, str) else text
            document = read_document(decode(data, max_bytes=max_bytes, max_depth=max_depth))
        state = cls(document, _graph(agents))
        names = [document.first_agent, document.announced_agent, *(frame.agent for frame in document.frames)]
        for name in names:
            if name is not None:
                agent_named(state.agents, name)
        return state

    # -- the position of the run --

    @property
    def run_id(self) -> str:
        """Id of the run, a part of other ids and of idempotency keys; it stays the same."""
        return self.document.run_id

    @property
    def agent(self) -> str:
        """Name of the active agent."""
        return self.document.active.agent

    @property
    def handler(self) -> str:
        """Name of the handler that answers for the active agent."""
        return self.document.active.handler

    @property
    def turn(self) -> int:
        """How many model calls there were, without those of agents called as tools."""
        return self.document.turn

    @property
    def usage(self) -> Usage:
        """The usage of the run so far."""
        return self.document.usage

    @property
    def items(self) -> Sequence[RunItem]:
        """The transcript."""
        return tuple(self.document.items)

    @property
    def pending(self) -> Sequence[ToolCall]:
        """Calls of the caller's own tools that wait for a result, see `with_answers`."""
        return tuple(detached(self.document.pending))

    @property
    def error(self) -> str | None:
        """The error or limit that ended the run; None if there was none."""
        return self.document.error

    @property
    def status(self) -> RunStatus:
        """The status of the run."""
        stopped = self.document.stop_reason
        if stopped in ("error", "limit"):
            return RunStatus.FAILED
        if stopped == "done":
            return RunStatus.COMPLETE
        calls = self.document.open_calls
        if self.requested_handoff is not None and len(calls) == 1:
            return RunStatus.HANDOFF_REQUESTED
        return RunStatus.WAITING_FOR_TOOLS if calls else RunStatus.IN_PROGRESS

    @property
    def requested_handoff(self) -> str | None:
        """The handoff that was requested and is not made yet, by the name of its tool."""
        requested = self._requested()
        return None if requested is None else requested[1].tool_name

    @property
    def reason(self) -> str | None:
        """The reason of that handoff."""
        if (requested := self._requested()) is None:
            return None
        call, handoff = requested
        try:
            given: object = json.loads(call["function"].get("arguments") or "{}")
        except (ValueError, RecursionError):
            given = None
        said = cast("dict[str, Any]", given).get("reason") if isinstance(given, dict) else None
        return str(said) if said else handoff.reason

    async def available_handoffs(
        self, *, context: Any = None, run_config: RunConfig | None = None
    ) -> dict[str, Handoff]:
        """Return the handoffs that the next turn would offer to the active agent, by tool name.

        It calls ``is_enabled`` functions and checks scopes as a turn does, so it takes the same context and
        settings as the resumed run.

        Args:
            context: the object for the app's functions.
            run_config: the settings.

        Raises:
            CallbackError: an ``is_enabled`` function raised.
        """
        config = run_config or RunConfig()
        moment: RunContext[Any] = RunContext(
            context=context,
            run_id=self.run_id,
            agent=self.agent,
            turn=self.turn + 1,
            usage=self.usage,
            shared_memory=detached(self.document.shared_memory),
            scopes=frozenset(config.scopes),
            user_id=config.user_id,
            conversation_id=config.conversation_id,
        )
        offered = await offer_tools(
            agent_named(self.agents, self.agent),
            moment,
            self.agents,
            handler=self.handler,
            external=config.external_tools,
        )
        return {name: route for name, route in offered.routes.items() if isinstance(route, Handoff)}

    # -- approvals --

    @property
    def interruptions(self) -> Sequence[Interruption]:
        """Calls that wait for approval, see `approve` and `reject`."""
        return tuple(replace(one, run_id=self.run_id) for one in self.document.interruptions)

    def approve(
        self, one: Interruption, *, answer: Mapping[str, Any] | None = None, always: bool = False
    ) -> RunState:
        """Return the state in which a call is approved, once and with these arguments.

        Args:
            one: a call that waits.
            answer: the answer to ``one.question`` by field; fields that are left out have their defaults.
            always: whether all calls of this tool by this agent are approved for the rest of the run.

        Raises:
            ConfigError: the call does not wait in this state, or has other arguments there; or the answer
                does not fit the question.
        """
        return self._decided(one, Decision(True), always, answer)

    def reject(self, one: Interruption, *, message: str = "", always: bool = False) -> RunState:
        """Return the state in which a call is rejected.

        Args:
            one: a call that waits.
            message: the reason, for the model.
            always: whether all calls of this tool by this agent are rejected for the rest of the run.

        Raises:
            ConfigError: the call does not wait in this state, or has other arguments there; or the message is
                no text.
        """
        return self._decided(one, rejection(message), always)

    def _decided(
        self, one: Interruption, decision: Decision, always: bool, content: Mapping[str, Any] | None = None
    ) -> RunState:
        _check_waits(one, self.run_id, self.interruptions)
        if one.question is not None or content is not None:
            decision = _with_answer(one, decision, always, content)
        if always:
            made = StoredDecision(on=(one.agent, one.name), decision=decision)
        else:
            exactly = replace(decision, fingerprint=one.fingerprint)
            made = StoredDecision(on=(*one.path, one.call_id), decision=exactly)
        left = [each for each in self.interruptions if not _is_decided(each, one, always)]
        document = replace(
            self.document,
            interruptions=[replace(each, run_id="") for each in left],
            decisions=[*self.document.decisions, made],
        )
        return replace(self, document=document)

    # -- answers --

    def with_answers(self, answers: Iterable[Message | Mapping[str, Any]]) -> RunState:
        """Return the state with results of ``pending`` calls; the run can continue once all have one.

        Args:
            answers: ``tool`` messages, each with the ``tool_call_id`` of its call.

        Raises:
            ConfigError: an answer is not a tool message or not JSON; or its call is not pending, or has two
                answers.
        """
        pending = {call["id"]: call for call in self.document.pending}
        items = [*self.document.items]
        for place, given in enumerate(answers):
            message = _answer_as_json(place, checked_message(place, given))
            call_id = message.get("tool_call_id") or ""
            if message["role"] != "tool" or pending.pop(call_id, None) is None:
                raise ConfigError(_no_answer(place, message, self.document.pending, pending))
            items.append(self._answer(len(items), message))
        return self._with(items, [*pending.values()])

    def _answer(self, place: int, message: Message) -> RunItem:
        waiting = [frame.call for frame in self.document.waiting if frame.call and not frame.is_standby]
        asked_by = waiting[-1]["id"] if waiting else None
        return RunItem(id=place, kind="tool", message=message, agent=self.agent, asked_by=asked_by)

    def _with(self, items: list[RunItem], pending: list[ToolCall]) -> RunState:
        active = self.document.active
        view = [*active.view, *range(len(self.document.items), len(items))]
        document = replace(
            self.document,
            items=items,
            pending=pending,
            answered=True,
            frames=[*self.document.waiting, replace(active, view=view)],
            stop_reason="requires_action" if pending or self.interruptions else "unfinished",
        )
        return replace(self, document=document)

    def _requested(self) -> tuple[ToolCall, Handoff] | None:
        """Return the call of a handoff that is not made yet, and the handoff."""
        declared = agent_named(self.agents, self.agent).all_handoffs
        handoffs = {each.tool_name: each for each in declared}
        for call in self.document.open_calls:
            if (handoff := handoffs.get(call["function"]["name"])) is not None:
                return call, handoff
        return None


def _is_decided(each: Interruption, one: Interruption, always: bool) -> bool:
    """Whether a decision on one call holds for another one as well."""
    if always:
        return each.question is None and (each.agent, each.name) == (one.agent, one.name)
    return each == one


def _with_answer(
    one: Interruption, decision: Decision, always: bool, content: Mapping[str, Any] | None
) -> Decision:
    """Return a decision with the answer to the question of a tool.

    Raises:
        ConfigError: the call asks nothing, the answer does not fit, or ``always`` is set.
    """
    if one.question is None:
        raise ConfigError(
            f"The call {one.call_id!r:.80} of {one.name!r:.80} asks nothing: leave out the answer."
        )
    if always:
        raise ConfigError(
            f"{one.name!r:.80} asks a question, and one answer cannot hold for all: leave out always."
        )
    message = decision.message
    answer = answer_to(one.question, one.number, approved=decision.approved, content=content, message=message)
    return replace(decision, answer=answer)


def _check_waits(one: Interruption, run_id: str, waiting: Sequence[Interruption]) -> None:
    """Check that a call waits for a decision.

    Args:
        one: the call.
        run_id: the id of the state's run.
        waiting: the calls that wait in that state.

    Raises:
        ConfigError: the call does not wait there, has other arguments, or belongs to another run.
    """
    if not isinstance(cast(object, one), Interruption):
        raise ConfigError(
            f"Pass one Interruption, such as result.interruptions[0] or one of state.interruptions, not "
            f"{one!r:.80}."
        )
    called = f"The call {one.call_id!r:.80} of {one.name!r:.80}"
    if one.run_id != run_id:
        raise ConfigError(
            f"{called} belongs to the run {one.run_id!r:.80}, and this is a state of {run_id!r:.80}. "
            "Take one of this state's own interruptions."
        )
    if one not in waiting:
        known = ", ".join(f"{each.name} ({each.call_id})" for each in waiting) or "none"
        raise ConfigError(
            f"{called} does not wait for approval in this state, or has other arguments there. Calls that "
            f"wait: {known:.400}."
        )


def is_behind(given: RunDocument, kept: RunDocument) -> bool:
    """Whether ``given`` is older than ``kept``: the run, or one of its sub-runs, went on in between."""
    here, there = ((each.turn, len(each.items)) for each in (given, kept))
    if here != there:
        return here < there
    if not set(kept.begun) <= set(given.begun):
        return True
    return any(
        call_id not in given.sub_runs or is_behind(given.sub_runs[call_id], inner)
        for call_id, inner in kept.sub_runs.items()
    )


def agent_named(agents: Mapping[str, Agent[Any]], name: str) -> Agent[Any]:
    """Return the agent of that name.

    Raises:
        ConfigError: there is no such agent; the message names the known ones.
    """
    if (agent := agents.get(name)) is None:
        known = ", ".join(sorted(agents)) or "none"
        raise ConfigError(
            f"The RunState names the agent {name!r:.80}, which is not there. Known: {known:.400}. Give "
            "the agents that the run began with, and any that a tool handed over to: "
            "from_json(agents=[...]) and RunConfig(agents=[...])."
        )
    return agent


def _graph(agents: Sequence[Agent[Any]]) -> dict[str, Agent[Any]]:
    graph: dict[str, Agent[Any]] = {}
    if isinstance(cast(object, agents), Agent):
        raise ConfigError("agents must be a list of agents, such as [agent].")
    for one in agents:
        if not isinstance(cast(object, one), Agent):
            raise ConfigError(f"agents must be a list of agents; {one!r:.80} is not an agent.")
        for name, agent in one.graph.items():
            if graph.setdefault(name, agent) is not agent:
                raise ConfigError(f"Two different agents are named {name!r}; give each its own name.")
    return graph


def _no_answer(place: int, message: Message, pending: Sequence[Any], left: Mapping[str, Any]) -> str:
    call_id = message.get("tool_call_id")
    if message["role"] != "tool":
        what = f"has the role {message['role']!r}, and an answer is a tool message"
    elif call_id not in left and any(call["id"] == call_id for call in pending):
        what = f"answers the call {call_id!r:.80} a second time"
    else:
        what = f"is for the call {call_id!r:.80}, which waits for no answer"
    waiting = ", ".join(repr(call["id"]) for call in pending) or "none"
    return f"Answer {place} {what}. Calls that wait for one: {waiting:.400}."
