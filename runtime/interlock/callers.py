"""Agents that wait for the answer of the one they handed over to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.agents import Agent
from interlock.history import View
from interlock.messages import ToolCall
from interlock.port import Handler

__all__ = ["Caller"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who waits for the answer of whoever speaks, see ``Handoff.return_to_caller``."""

    agent: Agent[Any]
    handler: Handler
    default_handler: str
    stands_in: bool
    agent_turns: int
    handoff_input: Any
    source_prompt: str | None
    view: View
    call: ToolCall
