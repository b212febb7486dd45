"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from routelock._copies import detached
from routelock._hints import hint_attributes
from routelock._peer_names import RESULT
from routelock.agents.agent import Agent
from routelock.context import RunContext
from routelock.errors import ConfigError, RunNotDone
from routelock.guardrails import GuardrailRecord
from routelock.handlers.events import MessageDone
from routelock.history.marked import marked, shown_later
from routelock.history.messages import Message, RunItem, ToolCall, refusal_of
from routelock.history.repair import repair
from routelock.history.vendor_calls import Citation, VendorCall
from routelock.run.records import Compaction, HandoffRecord, ModelCall, Problem, StopReason
from routelock.tools.approvals import Interruption
from routelock.usage import Usage, total_by

if TYPE_CHECKING:
    from routelock.run.run import Run
    from routelock.state.run_state import RunState

__all__ = ["RunResult"]


Output = TypeVar("Output", default=Any, covariant=True)

U = TypeVar("U")


@hint_attributes(RESULT)
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult(Generic[Output]):
    """Everything that a run did; a failed run has a partial result in ``error.result``."""

    final_output: Output
    """Text, or a value of the last agent's ``output_type``. In a run that is not done it is None, whatever
    the type says: see ``stop_reason``, or use `require_output`. `Runner.run` returns such a result only if
    the app allows it: for an approval, an external tool, a limit with ``on_limit="return"``, or a stop."""
    last_agent: Agent[Any]
    """The agent that was active last."""
    next_agent: Agent[Any]
    """The agent to start the next run with, see ``RunConfig.next_agent``."""
    items: Sequence[RunItem]
    """The transcript: the input and everything that happened after it, in order and complete. Do not edit
    the items, they belong to the run; `messages` returns copies."""
    input_count: int
    """How many of ``items`` are the input."""
    usage: Usage
    """Usage of the whole run, sub-runs and failed attempts included."""
    usage_by_agent: dict[str, Usage]
    """The same, by name of the agent."""
    handoffs: Sequence[HandoffRecord]
    """Every requested handoff in order, whether it was carried out or not."""
    errors: Sequence[Problem]
    """Problems that did not end the run."""
    repairs: Sequence[str]
    """Repairs that made the history valid for a provider, as text."""
    guardrail_results: Sequence[GuardrailRecord] = ()
    """The verdicts of the guardrails of the run, its agents and its tools, in the order of the transcript,
    also of those that let the value pass. A guardrail that raised, or was cancelled by another one, has no
    record, and those of sub-runs are in ``nested``."""
    warnings: Sequence[str]
    """Other things that a reader of the result should know, as text."""
    calls: Sequence[ModelCall]
    """The model calls in order, each with its request and its reply."""
    compactions: Sequence[Compaction] = ()
    """Each time that an agent's view of the conversation was compacted."""
    stop_reason: StopReason = "done"
    """Why the run ended."""
    last_handler: str = ""
    """Name of the handler that answered last."""
    pending: Sequence[ToolCall] = ()
    """Calls of tools in ``RunConfig.external_tools``, which the caller has to answer."""
    interruptions: Sequence[Interruption] = ()
    """Calls that wait for an approval, those in sub-runs included, see docs/approvals.md."""
    nested: Mapping[str, RunResult[Any]] = field(default_factory=lambda: {})
    """Results of the sub-runs: the runs of agents that were called as tools, by call id, and those that wrote
    a summary. ``usage`` includes theirs; all other fields are about this run only."""
    _run: Run = field(compare=False)
    """The run, for `context` and `state`."""

    def __repr__(self) -> str:
        # asyncio formats the value of a finished task: the whole history would take seconds
        output = None if self.final_output is None else str(self.final_output)[:200]
        return (
            f"RunResult({self.stop_reason}, last_agent={self.last_agent.name!r}, turns={len(self.calls)}, "
            f"final_output={output!r})"
        )

    def _repr_html_(self) -> str:
        # an upward import: the drawing code loads only if a notebook shows a result
        from routelock.run.notebook import result_html  # noqa: PLC0415

        return result_html(self)

    @property
    def context(self) -> RunContext[Any]:
        """The context of the run as it was at the end; while the run goes on, as it is now."""
        return self._run.current_context()

    @property
    def new_items(self) -> Sequence[RunItem]:
        """The items that the run added to its input."""
        return self.items[self.input_count :]

    @property
    def refusal(self) -> str | None:
        """Text with which the model refused to answer; None if it did not refuse.

        The final output is the same text. With an ``output_type``, the run ends with a `ModelBehaviorError`
        instead, and ``error.result.refusal`` has the text. With a function as ``RunConfig.on_refusal``, its
        output takes the place of the text.
        """
        said = refusal_of(self.items[-1].message) if len(self.items) > self.input_count else ""
        return said if said.strip() else None

    @property
    def citations(self) -> list[Citation]:
        """The citations in the run's last message, as its vendor gave them; empty if it gave none.

        Citations of other messages are on their items, see `routelock.history.RunItem`.
        """
        return self.items[-1].citations if len(self.items) > self.input_count else []

    @property
    def vendor_calls(self) -> list[VendorCall]:
        """The calls of vendors' own tools in the run, in order: searches, code that ran, pages."""
        return [call for item in self.new_items for call in item.vendor_calls]

    @property
    def usage_by_handler(self) -> dict[str, Usage]:
        """Usage of the complete replies, by name of the handler."""
        counted = ((each.handler, each.reply.usage) for each in self.calls if each.reply and each.reply.usage)
        return total_by(counted, *(inner.usage_by_handler.items() for inner in self.nested.values()))

    @property
    def usage_by_model(self) -> dict[str, Usage]:
        """Usage of the complete replies, by the provider's name of the model.

        A handler that names no model counts under its own name. Failed attempts, usage that tools report, and
        calls made before the run was resumed from a state are in ``usage`` only.
        """
        counted = (
            (each.reply.model or each.handler, each.reply.usage or Usage(requests=1, estimated=True))
            for each in self.calls
            if each.reply is not None
        )
        return total_by(counted, *(inner.usage_by_model.items() for inner in self.nested.values()))

    @property
    def usage_by_edge(self) -> dict[tuple[str, str], Usage]:
        """Usage while the target of a handoff was active, by source and target.

        It is the sum of ``HandoffRecord.usage``, which includes sub-runs; the handoffs within a sub-run are
        on its own result. Usage before the first handoff is not in it.
        """
        return total_by(((each.source, each.target), each.usage) for each in self.handoffs if each.usage)

    @property
    def messages(self) -> list[Message]:
        """Copies of all messages of the transcript, in order."""
        return [detached(item.message) for item in self.items]

    @property
    def raw_replies(self) -> list[MessageDone]:
        """The complete replies of the model calls, in order."""
        return [call.reply for call in self.calls if call.reply is not None]

    def state(self) -> RunState:
        """Return the state of the run, which ``Runner.run`` can resume, here or in another process.

        Take it after the run has ended, for whatever reason. While a stream goes on, ``stream.result`` is a
        snapshot: call ``stream.result.state()`` in one expression, best between two turns.

        Raises:
            ConfigError: shared data of the run is not JSON (the message says where), the run has gone on
                since this result was taken, or it is a sub-run.
        """
        from routelock.state.capture import capture  # noqa: PLC0415 - an upward import, for this method alone

        state = capture(self._run)
        if len(state.items) != len(self.items):
            raise ConfigError(
                "The run has gone on since this result was taken: call stream.result.state() again."
            )
        return state

    def to_input_list(self) -> list[Message]:
        """Return the conversation as valid input for another run; append the next user message to it.

        A call without a result, because the run ended early, gets a result that says so. The calls in
        ``pending`` stay open: append a ``tool`` message for each.

        The messages are copies. Provider data in them has a private mark, and the next run shows it to the
        same provider only. The agent of each call is marked too, and other agents see the call in a note. The
        work of an agent that returned an answer to its caller (``Handoff.return_to_caller``) is left out; the
        answer is in.
        """
        messages = repair([marked(item) for item in shown_later(self.items)])[0]
        if not self.pending:
            return messages
        still_open = {call["id"] for call in self.pending}
        return [message for message in messages if message.get("tool_call_id") not in still_open]

    def require_output(self) -> Output:
        """Return the final output of a run that is done.

        Raises:
            RunNotDone: the run has no final output. It waits for an approval or for the result of an external
                tool, a limit or an error ended it, or it was stopped or cancelled.
        """
        if self.stop_reason != "done" and self.final_output is None:
            raise RunNotDone(_not_done(self))
        return self.final_output

    def final_output_as(self, cls: type[U], *, raise_if_incorrect_type: bool = False) -> U:
        """Return the final output, typed as ``cls``.

        Raises:
            TypeError: it is of another type, and ``raise_if_incorrect_type`` is set.
        """
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            found = type(self.final_output).__name__
            raise TypeError(
                f"The final output of agent {self.last_agent.name!r} is of type {found}, not {cls.__name__}."
            )
        return cast(U, self.final_output)


def _not_done(result: RunResult[Any]) -> str:
    """Return why a run has no final output, and what to do."""
    calls = [call["function"]["name"] for call in result.pending]
    waits = [*(each.name for each in result.interruptions), *calls]
    if waits:
        why = f"it waits for {', '.join(waits)}: answer or approve these calls, and resume the run"
    elif result.stop_reason in ("limit", "error"):
        why = f"it ended with a {result.stop_reason}: see result.errors"
    elif result.stop_reason == "stopped":
        why = "the app stopped it: resume it from result.state()"
    else:
        why = "it was ended early, or still goes on: resume it from result.state()"
    return f"The run has no final output, because {why}."
