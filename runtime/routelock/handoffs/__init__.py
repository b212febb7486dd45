"""Handoffs: how one agent lets another go on with the conversation.

`handoff()` declares a handoff, which the model is offered as a tool named `transfer_to_<target>`. Payloads,
conversations as bytes, routing by capability, stores of pending handoffs and metrics are in this package,
too. It imports `tools`, `handlers`, `history` and the modules at the top; how a handoff is carried out is in
`routelock.run`. Start at `handoff.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late
from routelock.handoffs.capabilities import Available, CapabilityRouter, Capacity, Choice, Named
from routelock.handoffs.declaration import handoff
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import HandoffPayload, payload_of

if TYPE_CHECKING:
    from routelock.handoffs.context import *
    from routelock.handoffs.metrics import *
    from routelock.handoffs.payload_types import *
    from routelock.handoffs.store import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "context": (
                "HandoffContext ToolState deserialize_context prepare_handoff_context serialize_context"
            ),
            "metrics": "HandoffMetrics HandoffTally HandoffTotals TransferRecord",
            "payload_types": (
                "AnalysisDelegation AnalysisRequest ComponentDesign GenerationDelegation HandoffTypes "
                "QuickLookup ResearchDelegation"
            ),
            "store": "HandoffStore InMemoryHandoffStore asks decided finished incoming",
        },
    )

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
