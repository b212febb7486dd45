"""What waits for approval and what was said of it, as JSON, and back: part of a `RunState`."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.approvals import Approvals, Decision, Interruption
from interlock.run_document import DecisionDocument, InterruptionDocument

__all__ = ["approvals_of", "decision_documents", "interruption_document", "interruption_of"]


def interruption_document(one: Interruption) -> InterruptionDocument:
    """Return a call that waits as JSON data."""
    return {
        "agent": one.agent,
        "name": one.name,
        "arguments": one.arguments,
        "call_id": one.call_id,
        "path": [*one.path],
    }


def interruption_of(document: InterruptionDocument) -> Interruption:
    """Return the call that a document holds."""
    return Interruption(
        agent=document["agent"],
        name=document["name"],
        arguments=document["arguments"],
        call_id=document["call_id"],
        path=tuple(document["path"]),
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
