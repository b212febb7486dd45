"""Handoffs: how one agent lets another go on with the conversation.

`handoff()` declares one; the model is offered it as a tool named `transfer_to_<target>`. The payload, a
conversation as bytes, routing by capability, the store and the metrics belong to it. Imports `tools`,
`handlers`, `history` and the modules at the top; how a handoff is carried out is in `routelock.run`. Start
at `handoff.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock._lazy import load_late
from routelock.handoffs.capabilities import Available, CapabilityRouter, Capacity, Choice, Named
from routelock.handoffs.handoff import Handoff, handoff
from routelock.handoffs.payload import HandoffPayload, payload_of

if TYPE_CHECKING:
    from routelock.handoffs.context import (
        HandoffContext,
        ToolState,
        deserialize_context,
        prepare_handoff_context,
        serialize_context,
    )
    from routelock.handoffs.metrics import HandoffMetrics, HandoffTally, HandoffTotals, TransferRecord
    from routelock.handoffs.payload_types import (
        AnalysisDelegation,
        AnalysisRequest,
        ComponentDesign,
        GenerationDelegation,
        HandoffTypes,
        QuickLookup,
        ResearchDelegation,
    )
    from routelock.handoffs.store import HandoffStore, InMemoryHandoffStore, asks, decided, finished, incoming

__all__ = [
    "AnalysisDelegation",
    "AnalysisRequest",
    "Available",
    "CapabilityRouter",
    "Capacity",
    "Choice",
    "ComponentDesign",
    "GenerationDelegation",
    "Handoff",
    "HandoffContext",
    "HandoffMetrics",
    "HandoffPayload",
    "HandoffStore",
    "HandoffTally",
    "HandoffTotals",
    "HandoffTypes",
    "InMemoryHandoffStore",
    "Named",
    "QuickLookup",
    "ResearchDelegation",
    "ToolState",
    "TransferRecord",
    "asks",
    "decided",
    "deserialize_context",
    "finished",
    "handoff",
    "incoming",
    "payload_of",
    "prepare_handoff_context",
    "serialize_context",
]

_LATE = {
    "HandoffMetrics": "routelock.handoffs.metrics",
    "HandoffTally": "routelock.handoffs.metrics",
    "HandoffTotals": "routelock.handoffs.metrics",
    "TransferRecord": "routelock.handoffs.metrics",
    "HandoffContext": "routelock.handoffs.context",
    "ToolState": "routelock.handoffs.context",
    "deserialize_context": "routelock.handoffs.context",
    "prepare_handoff_context": "routelock.handoffs.context",
    "serialize_context": "routelock.handoffs.context",
    "AnalysisDelegation": "routelock.handoffs.payload_types",
    "AnalysisRequest": "routelock.handoffs.payload_types",
    "ComponentDesign": "routelock.handoffs.payload_types",
    "GenerationDelegation": "routelock.handoffs.payload_types",
    "HandoffTypes": "routelock.handoffs.payload_types",
    "QuickLookup": "routelock.handoffs.payload_types",
    "ResearchDelegation": "routelock.handoffs.payload_types",
    "HandoffStore": "routelock.handoffs.store",
    "InMemoryHandoffStore": "routelock.handoffs.store",
    "asks": "routelock.handoffs.store",
    "decided": "routelock.handoffs.store",
    "finished": "routelock.handoffs.store",
    "incoming": "routelock.handoffs.store",
}


def __getattr__(name: str) -> Any:
    return load_late(__name__, _LATE, name)
