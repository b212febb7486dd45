"""The loop of a run, and the steps of a turn.

A turn offers the tools, calls the model, answers every tool call once and carries out a handoff. This room
imports `agents` and the rooms below it. Start at `loop.py`; `run.py` has the parts of a run, `result.py` its
result.
"""

from __future__ import annotations

from routelock.run.config import NextAgent, OnLimit, OnUnusableOutput, RunConfig
from routelock.run.events import (
    AgentUpdated,
    ApprovalRequested,
    Compacted,
    EmptyReply,
    HandlerFallback,
    HandoffCompleted,
    HandoffFailed,
    HandoffOccurred,
    HandoffRequested,
    HandoffReturned,
    NestedEvent,
    Repaired,
    RunDone,
    RunEvent,
    ToolCalled,
    ToolOutput,
)
from routelock.run.executor import Call, Executor, InProcess, Outcome
from routelock.run.limits import Limits
from routelock.run.prompt import RECOMMENDED_PROMPT_PREFIX, prompt_with_handoff_instructions
from routelock.run.records import Compaction, HandoffRecord, ModelCall, Problem, Shown, StopReason
from routelock.run.result import RunResult
from routelock.run.stream import RunHandle, RunStream

__all__ = [
    "RECOMMENDED_PROMPT_PREFIX",
    "AgentUpdated",
    "ApprovalRequested",
    "Call",
    "Compacted",
    "Compaction",
    "EmptyReply",
    "Executor",
    "HandlerFallback",
    "HandoffCompleted",
    "HandoffFailed",
    "HandoffOccurred",
    "HandoffRecord",
    "HandoffRequested",
    "HandoffReturned",
    "InProcess",
    "Limits",
    "ModelCall",
    "NestedEvent",
    "NextAgent",
    "OnLimit",
    "OnUnusableOutput",
    "Outcome",
    "Problem",
    "Repaired",
    "RunConfig",
    "RunDone",
    "RunEvent",
    "RunHandle",
    "RunResult",
    "RunStream",
    "Shown",
    "StopReason",
    "ToolCalled",
    "ToolOutput",
    "prompt_with_handoff_instructions",
]
