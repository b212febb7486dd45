"""Ready-made skills for interlock, and what it takes to write one.

    from interlock_skills import Skill, handoff, tool

    Agent("desk", model=..., skills=[SpecialistSkill("lawyer", "You know the law.", model="openai/gpt-5")])

Importing this loads neither litellm nor openai nor httpx. `handoff` and `Handoff` here are about
handlers, for those who come from webagents; the edge from one agent to another is `interlock.handoff`.
"""

from interlock import Skill, handler, tool
from interlock.skills import hook, prompt
from interlock_skills.handoffs import Handoff, handoff
from interlock_skills.litellm import LiteLLMSkill
from interlock_skills.remote import AgentHandoffSkill
from interlock_skills.specialist import SpecialistSkill

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
