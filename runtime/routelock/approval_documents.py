"""What waits for approval and what was said of it, as JSON, and back: part of a `RunState`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from routelock.errors import ConfigError
from routelock.run_document import DecisionDocument, InterruptionDocument
from routelock.tools.approvals import Approvals, Decision, Interruption

__all__ = ["approvals_of", "check_waiting", "decision_documents", "interruption_document", "interruption_of"]


def interruption_document(one: Interruption) -> InterruptionDocument:
    """Return a call that waits as JSON data."""
    return {
        "agent": one.agent,
        "name": one.name,
        "arguments": one.arguments,
        "call_id": one.call_id,
        "path": [*one.path],
    }


def interruption_of(document: InterruptionDocument, run_id: str) -> Interruption:
    """Return the call that a document of a run holds."""
    return Interruption(
        agent=document["agent"],
        name=document["name"],
        arguments=document["arguments"],
        call_id=document["call_id"],
        path=tuple(document["path"]),
        run_id=run_id,
    )


def check_waiting(one: Interruption, run_id: str, waiting: Sequence[InterruptionDocument]) -> None:
    """See that something can be said of a call.

    Args:
        one: the call.
        run_id: of the run that a state is of.
        waiting: the calls that wait in that state.

    Raises:
        ConfigError: it does not wait there, or has other arguments, or belongs to another run.
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
    if interruption_document(one) not in waiting:
        known = ", ".join(f"{each['name']} ({each['call_id']})" for each in waiting) or "none"
        raise ConfigError(
            f"{called} does not wait for approval in this state, or has other arguments there. Calls that "
            f"wait: {known:.400}."
        )


def decision_documents(approvals: Approvals) -> list[DecisionDocument]:
    """Return all that was said as JSON data."""
    said = [*approvals.by_call.items(), *approvals.by_tool.items()]
    return [
        {
            "on": [*on],
            "approved": decision.approved,
            "message": decision.message,
            "fingerprint": decision.fingerprint,
        }
        for on, decision in said
    ]


def approvals_of(documents: Iterable[DecisionDocument], asked: Iterable[Interruption]) -> Approvals:
    """Return what documents hold; of two decisions on the same the later one counts.

    Args:
        documents: what was said.
        asked: what it may have been said of.
    """
    by_call: dict[tuple[str, ...], Decision] = {}
    by_tool: dict[tuple[str, str], Decision] = {}
    for document in documents:
        on = document["on"]
        made = Decision(document["approved"], document["message"], document["fingerprint"])
        if made.fingerprint:
            by_call[*on,] = made
        else:
            by_tool[on[0], on[1]] = made
    return Approvals(by_call, by_tool, frozenset((*one.path, one.call_id) for one in asked))
