"""Agents, skills and hooks: the declarations of an app, and tables and pictures of them.

An `Agent` has instructions, a model or handlers, tools, handoffs and skills, and may be called as a tool;
nothing in this room calls a model. It imports `handoffs` and the rooms below it. Start at `agent.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late
from routelock.agents.agent import Agent, Instructions
from routelock.agents.hooks import AgentHooks, RunHooks
from routelock.agents.skill import Hook, Prompt, Skill, hook, prompt

if TYPE_CHECKING:
    from routelock.agents.graph import *
    from routelock.agents.svg import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "graph": "HandoffRow as_markdown graph_mermaid handoff_matrix outline_mermaid",
            "svg": "graph_svg outline_svg",
        },
    )

__all__ = [
    "Agent",
    "AgentHooks",
    "HandoffRow",
    "Hook",
    "Instructions",
    "Prompt",
    "RunHooks",
    "Skill",
    "as_markdown",
    "graph_mermaid",
    "graph_svg",
    "handoff_matrix",
    "hook",
    "outline_mermaid",
    "outline_svg",
    "prompt",
]
