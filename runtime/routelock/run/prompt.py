"""The parts of a system prompt: instructions, sections of skills, the payload of a handoff."""

from __future__ import annotations

from typing import cast

from routelock._callables import argument_count, callback_errors, resolve
from routelock.agents.offer import OfferedTools
from routelock.agents.registry import PromptSection
from routelock.context import PAYLOAD_KEY
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import payload_of
from routelock.run.run import Run
from routelock.scopes import permits

__all__ = [
    "RECOMMENDED_PROMPT_PREFIX",
    "has_own_payload",
    "instructions",
    "payload_note",
    "prompt_with_handoff_instructions",
    "sections_of",
]


RECOMMENDED_PROMPT_PREFIX = (
    "# System context\n"
    "You are one of several agents that work together on one conversation. When another agent is better "
    "suited to the request, hand over by calling its transfer tool, named transfer_to_<agent>. Transfers "
    "happen in the background: do not mention them to the user."
)
"""Prompt section that explains transfers to a model."""


def prompt_with_handoff_instructions(prompt: str) -> str:
    """Return ``prompt`` with the explanation of transfers in front."""
    return f"{RECOMMENDED_PROMPT_PREFIX}\n\n{prompt}"


async def instructions(run: Run) -> str:
    """Return the active agent's instructions; a function is called with the context of now.

    Raises:
        CallbackError: the function raised or did not return text.
    """
    if run.frame.agent.instructions is None or isinstance(run.frame.agent.instructions, str):
        return run.frame.agent.instructions or ""
    what = f"The instructions of agent {run.frame.agent.name!r}"
    with callback_errors(what):
        prompt = await run.frame.agent.get_system_prompt(run.current_context())
        if not isinstance(cast(object, prompt), str | None):
            raise TypeError(f"they must be text, not {type(prompt).__name__}")
    return prompt or ""


def payload_note(run: Run) -> str:
    """Return the prompt section about the handoff payload, which is written once per handoff.

    A payload that cannot be read has no section; tools find it in the shared memory. The agent that sent the
    payload gets no section either.
    """
    if run.frame.payload_note is None:
        payload, problem = payload_of(run.memory.shared)
        markers = run.config.history_wrappers or ()
        run.frame.payload_note = ""
        mine = has_own_payload(run) and run.frame.agent.handoff_note
        if payload is not None and mine and payload.source_agent != run.active_name:
            note = payload.note(markers=markers)
            run.frame.payload_note = f"{note}\n{payload.preview(markers=markers)}" if note else ""
        given = run.memory.shared[PAYLOAD_KEY]
        if problem and isinstance(given, dict) and ("handoff_type" in given or "source_agent" in given):
            run.warn(f"turn {run.turn}: the handoff payload cannot be read: {problem}")
    return run.frame.payload_note


def has_own_payload(run: Run) -> bool:
    """Whether the payload came with a handoff of this run, and not of its outer run."""
    if not run.sub_runs.depth:
        return True
    around = run.memory.scopes[0].outer if run.memory.scopes else run.memory.shared
    return run.memory.shared.get(PAYLOAD_KEY) is not around.get(PAYLOAD_KEY)


async def sections_of(run: Run, offered: OfferedTools) -> list[str]:
    """Return the prompt sections of the agent's skills and of its other handlers.

    They do not depend on the active handler, because prompt caches need a constant prompt.
    """
    handoffs = [route for route in offered.routes.values() if isinstance(route, Handoff)]
    reachable = {each.to_handler.name for each in handoffs if each.to_handler}
    reachable |= {each.name for each in run.frame.agent.registered.handlers} | {run.frame.handler.name}
    reachable.discard(run.frame.default_handler)
    return [
        await _written(run, section)
        for section in run.frame.agent.sections
        if permits(section.scope, run.scopes) and (not section.of_handler or section.name in reachable)
    ]


async def _written(run: Run, section: PromptSection) -> str:
    if isinstance(section.text, str):
        return section.text
    with callback_errors(f"A prompt of {section.name!r}, a skill of agent {run.frame.agent.name!r},"):
        given = (run.current_context(), run.frame.agent)
        text = await resolve(section.text(*given[: argument_count(section.text, 2)]))
        if not isinstance(cast(object, text), str | None):
            raise TypeError(f"it must be text, not {type(text).__name__}")
    return text or ""
