"""Outputs that cannot be used: empty ones, refusals, and those that a type or a guardrail does not allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from routelock._callables import call_user_code, error_text
from routelock.agents.agent import Agent
from routelock.errors import CallbackError, LoopDetected, ModelBehaviorError
from routelock.history.messages import Message
from routelock.run.frames import asking_caller
from routelock.run.result import RunResult
from routelock.run.run import Run

__all__ = ["accept_empty_reply", "is_output_of_app", "reject_output", "replacement"]


_EMPTY_REPLY_NUDGE = "Your reply was empty. Answer the user, or call a tool."


_REASONING_KEYS = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_items",
    "thinking_blocks",
)


def accept_empty_reply(run: Run) -> bool:
    """Accept an empty reply as the output and return True, or ask the model again and return False.

    It is asked again after a tool or a handoff, once.

    Raises:
        LoopDetected: the model was called once more, and its reply is empty again.
    """
    items, name = run.transcript.items, run.frame.agent.name
    but = " except for reasoning, which may be cut off" if _has_reasoning(items[-1].message) else ""
    run.warn(f"turn {run.turn}: the reply is empty{but}")
    first = len(items) == run.transcript.input_count + 1 and items[-2].message["role"] != "tool"
    if first or run.frame.agent.output is not None or not run.config.detect_loops:
        return True
    if run.progress.empty_replies > 1:
        raise LoopDetected(
            f"Agent {name!r} gave an empty reply in turn {run.turn}, after it was told that its "
            "last one was empty. The partial result is in error.result; with RunConfig(detect_loops=False) "
            "an empty reply is the final output."
        )
    run.add_problem("loop", _EMPTY_REPLY_NUDGE)
    run.add_message("nudge", {"role": "user", "content": _EMPTY_REPLY_NUDGE})
    return False


def _has_reasoning(message: Message) -> bool:
    """Whether a reply has the model's reasoning in a field of its own."""
    return any(message.get(key) for key in _REASONING_KEYS)


async def replacement(
    run: Run, option: Literal["on_refusal", "on_invalid_output"], error: ModelBehaviorError
) -> Any:
    """Return the output that the app gives in place of one that cannot be used, and add it to the transcript.

    Args:
        run: the run.
        option: the option of `RunConfig` that has the app's function.
        error: why the output cannot be used.

    Raises:
        ModelBehaviorError: there is no function, an agent waits for the output, or the function raised it.
        CallbackError: the function raised another error, or gave no valid output.
    """
    function = run.config.on_refusal if option == "on_refusal" else run.config.on_invalid_output
    if not callable(function) or asking_caller(run.callers) is not None:
        raise error
    if option == "on_refusal":
        run.add_problem("refusal", str(error), error=error)
    error.result = replace(run.result(), stop_reason="error")
    what = f"The {option} function of the run"
    given = await call_user_code(what, function, error)
    try:
        output, text = _checked_output(run.frame.agent, given)
    except Exception as wrong:  # a validator of the app may raise anything
        name = run.frame.agent.name
        raise CallbackError(
            f"{what} gave an output that agent {name!r} cannot have: {error_text(wrong)}"
        ) from wrong
    run.add_message("model", {"role": "assistant", "content": text}, final=True)
    return output


def _checked_output(agent: Agent[Any], output: object) -> tuple[Any, str]:
    """Return an output of the app as one of an agent, and as text of the conversation.

    Raises:
        ValueError: the agent cannot have this output.
    """
    if agent.output is not None:
        return agent.output.check(output)
    if not isinstance(output, str) or not output.strip():
        raise ValueError(f"it has no output_type, so the function must return text, not {output!r:.80}")
    return output, output


def reject_output(run: Run, wrong: str) -> ModelBehaviorError | None:
    """Tell the model why its output is not valid; the next turn is for the corrected one.

    Returns:
        the error if there is no next turn, after ``max_mistakes`` turns in a row with nothing but mistakes.
    """
    run.progress.mistakes += 1
    run.add_problem("output", wrong)
    if run.progress.mistakes >= run.config.max_mistakes:
        return ModelBehaviorError(
            f"Agent {run.frame.agent.name!r} gave no valid final output in {run.progress.mistakes} turns in "
            f"a row, up to turn {run.turn}: {wrong}"
        )
    again = (
        "Answer again"
        if run.frame.agent.output is None
        else "Answer again with nothing but the corrected JSON"
    )
    nudge: Message = {"role": "user", "content": f"Your answer is not valid: {wrong} {again}."}
    run.add_message("nudge", nudge)
    return None


def is_output_of_app(result: RunResult[Any]) -> bool:
    """Whether the app gave the final output: at a limit, or in place of an output that cannot be used."""
    if result.stop_reason == "done":
        return result.items[-1].origin is None  # else it is the reply of a handler
    return result.stop_reason == "limit" and result.final_output is not None
