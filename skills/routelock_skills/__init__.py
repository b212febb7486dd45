"""Ready-made skills for routelock, and the names needed to write one.

    from routelock_skills import Skill, handoff, tool

    Agent("desk", model=..., skills=[SpecialistSkill("lawyer", "You know the law.", model="openai/gpt-5")])

Importing this loads neither litellm nor openai nor httpx. `handoff` and `Handoff` declare handlers, as
webagents does; a handoff from one agent to another is declared with `routelock.handoff`.

It imports `routelock` and `routelock_providers`. Start at `specialist.py`; `mcp/` has the tools of MCP
servers.
"""

from typing import TYPE_CHECKING

from routelock import Skill, handler, tool
from routelock._lazy import load_late
from routelock.agents.skill import hook, prompt
from routelock_skills.handoffs import Handoff, handoff
from routelock_skills.litellm import LiteLLMSkill
from routelock_skills.remote import AgentHandoffSkill
from routelock_skills.specialist import SpecialistSkill

if not TYPE_CHECKING:
    __getattr__ = load_late(__name__, {}, knows_peers=True)

__all__ = [
    "AgentHandoffSkill",
    "Handoff",
    "LiteLLMSkill",
    "Skill",
    "SpecialistSkill",
    "handler",
    "handoff",
    "hook",
    "prompt",
    "tool",
]
