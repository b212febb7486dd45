"""Taking a reply without calls as an output: parsed, guarded, and given to whoever waits for it."""

from __future__ import annotations

from typing import Any

from routelock._concurrency import ask_all
from routelock._json import own_copy
from routelock._showing import show, show_all
from routelock.caller_stack import come_back, stop_all_standing_by
from routelock.callers import waiting_one
from routelock.errors import ModelBehaviorError
from routelock.events import HandoffReturned
from routelock.guardrails import output_questions
from routelock.handlers.events import MessageDone
from routelock.handlers.port import json_in
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import Message, refusal_of, text_of
from routelock.run import Run
from routelock.tell import heard, tell

__all__ = ["conclude"]


async def conclude(run: Run, reply: MessageDone) -> None:
    """Turn a reply without calls into an output, or tell the model what is wrong with it.

    The output is the final one, or goes back to the agent that waits for it.
    """
    returned = await _concluded(run, reply)
    if run.watched:
        await show_all(run.take_completed())
        if returned is not None:
            await show(returned)


async def _concluded(run: Run, reply: MessageDone) -> HandoffReturned | None:
    text = text_of(reply.message) or refusal_of(reply.message)
    output: Any = text
    if run.agent.output is not None:
        if (refusal := refusal_of(reply.message)) and text == refusal:
            raise ModelBehaviorError(f"The model of agent {run.agent.name!r} refused: {refusal}")
        try:
            output = run.agent.output.parse(json_in(text))
        except ModelBehaviorError as error:
            _ask_again(run, str(error))
            return None
    if run.agent.output_guardrails or run.config.output_guardrails:
        await _guard(run, output)
    if run.callers and waiting_one(run.callers) is not None:
        await tell(run, "on_agent_end", "on_end", own_copy(output))
        return come_back(run, text)
    run.final_output = output
    run.stop_reason = "done"
    run.close_record(HandoffStatus.COMPLETED)
    stop_all_standing_by(run)
    if heard(run):
        await tell(run, "on_agent_end", "on_end", own_copy(output))
    return None


async def _guard(run: Run, output: Any) -> None:
    """Ask the guardrails of the agent, and of the run if the output is its final one."""
    is_final = not run.callers or waiting_one(run.callers) is None
    agent, now = run.agent, run.now()
    of_run = run.config.output_guardrails if is_final else ()
    asked = output_questions(agent.output_guardrails, now, agent, output, whose=f"agent {agent.name!r}")
    await ask_all([*asked, *output_questions(of_run, now, agent, output, whose="the run")])


def _ask_again(run: Run, wrong: str) -> None:
    run.mistakes += 1
    run.problem("output", wrong)
    if run.mistakes >= run.config.max_mistakes:
        raise ModelBehaviorError(
            f"Agent {run.agent.name!r} gave no valid final output in {run.mistakes} turns in a row: {wrong}"
        )
    text = f"Your answer is not valid: {wrong} Answer again with nothing but the corrected JSON."
    nudge: Message = {"role": "user", "content": text}
    run.add("nudge", nudge)
