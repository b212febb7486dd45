"""The system prompt of a turn."""

from __future__ import annotations

from interlock.agents import Handoff
from interlock.messages import Message
from interlock.routing import Offer
from interlock.run_state import RunState, users_code

__all__ = ["RECOMMENDED_PROMPT_PREFIX", "prompt_with_handoff_instructions", "system_message"]

RECOMMENDED_PROMPT_PREFIX = (
    "# System context\n"
    "You are one of several agents that work together on one conversation. When another agent is better "
    "suited to the request, hand over by calling its transfer tool, named transfer_to_<agent>. Transfers "
    "happen in the background: do not mention them to the user."
)
"""Explains transfers to a model (feature row 1-40)."""


def prompt_with_handoff_instructions(prompt: str) -> str:
    """Return ``prompt`` with the explanation of transfers in front."""
    return f"{RECOMMENDED_PROMPT_PREFIX}\n\n{prompt}"


async def system_message(run: RunState, offered: Offer) -> Message | None:
    """Return the active agent's system prompt, with what the last handoff and the run add to it."""
    with users_code(f"The instructions of agent {run.agent.name!r}"):
        prompt = await run.agent.get_system_prompt(run.now()) or ""
    if run.config.handoff_prompt and any(isinstance(route, Handoff) for route in offered.routes.values()):
        prompt = prompt_with_handoff_instructions(prompt)
    if run.source_prompt:
        prompt = f"{prompt}\n\n{run.source_prompt}".strip()
    return {"role": "system", "content": prompt} if prompt else None
