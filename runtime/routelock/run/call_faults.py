"""Notes of model calls that go wrong: failed attempts, filtered replies, ignored tool choices."""

from __future__ import annotations

import logging
from dataclasses import replace

from routelock._sendable import sendable
from routelock._text import clip
from routelock.agents.offer import OfferedTools
from routelock.errors import ContentRefused, ProviderError, ProviderTimeout
from routelock.handlers.events import AttemptFailed, MessageDone
from routelock.handlers.port import Request, model_of
from routelock.handlers.stream_assembler import join_surrogates
from routelock.history.messages import Message, calls_of, refusal_of, text_of
from routelock.history.vendor_calls import vendor_calls_of
from routelock.run.emit import ModelCallRetried, emit_now
from routelock.run.run import Run
from routelock.usage import Usage

__all__ = [
    "count_failed",
    "filter_error",
    "handler_label",
    "log_other_text",
    "void_attempt",
    "warn_of_absent_choice",
    "warn_of_ignored_choice",
    "without_usage",
]

_logger = logging.getLogger("routelock.run")


def handler_label(run: Run) -> str:
    """Return the active handler and its agent for an error, such as ``Handler 'fast' of agent 'desk'``."""
    return f"Handler {run.frame.handler.name!r} of agent {run.frame.agent.name!r}"


def void_attempt(run: Run, failed: AttemptFailed) -> None:
    """Count a failed attempt and drop its reply, before the next attempt.

    Raises:
        BudgetExceeded: the budget does not allow another attempt.
    """
    count_failed(run, failed.error)
    emit_now(run, ModelCallRetried(failed))
    run.model_call.forget_reply()
    run.budget.check(run.frame.agent.name)


def count_failed(run: Run, error: BaseException | None) -> None:
    """Count a call without a complete reply; it is free if the provider refused it."""
    run.budget.in_flight = False
    reply = run.model_call.reply
    if reply is not None and reply.usage is not None:
        run.add_usage(reply.usage)
        return
    refused = isinstance(error, ProviderError) and not isinstance(error, ProviderTimeout)
    nothing_came = reply is None and not run.model_call.text
    free = refused and nothing_came
    run.add_usage(Usage(requests=1, cost=0.0) if free else Usage(requests=1, estimated=True))


def without_usage(run: Run, done: MessageDone) -> MessageDone:
    """Return a reply without its usage, which is not valid: the message must not be lost."""
    run.warn(
        f"turn {run.turn}: handler {run.frame.handler.name!r} gave {done.usage!r:.80} as usage, which is not "
        "a routelock.Usage of numbers, so the usage of the call is unknown"
    )
    return replace(done, usage=None)


def warn_of_ignored_choice(run: Run, request: Request, reply: MessageDone) -> None:
    """Warn if the reply ignores a forced tool choice: some servers accept the setting and ignore it."""
    choice, called = request.tool_choice, [call["function"].get("name") for call in calls_of(reply.message)]
    called += [call.tool for call in vendor_calls_of(reply.message)]
    kept = bool(called) if choice == "required" else choice in called
    if not kept and request.output_schema is None:  # with one, a tool of the provider may carry the output
        run.warn(
            f"turn {run.turn}: the model was to call {'a tool' if choice == 'required' else 'one tool'} "
            f"(tool_choice={choice!r}) and did not: the provider, or the model, ignores it"
        )


def warn_of_absent_choice(run: Run, choice: str, offered: OfferedTools) -> None:
    """Warn that a tool choice is left out, because it names a tool that the agent is not offered."""
    names = [*offered.routes, *sorted(offered.vendor)]
    known = f"It is offered: {clip(', '.join(names), 400)}" if names else "It is offered no tool"
    text = (
        f"turn {run.turn}: tool_choice={choice!r:.80} is left out, because agent {run.frame.agent.name!r} is "
        f"not offered a tool of that name. {known}"
    )
    if text not in run.report.warnings:  # another handler may take the turn
        run.warn(text)


def log_other_text(run: Run, message: Message) -> None:
    """Log if a reply has another text than what its handler streamed: readers of a stream have seen that.

    It is no warning on the result, which is the same for a run that is not streamed, or replayed.
    """
    seen = sendable(join_surrogates(run.model_call.text))
    if not (text_of(message).startswith(seen) or refusal_of(message) == seen):
        _logger.warning(
            "run %s, turn %d: %s streamed another text than that of its reply, which is the one that is kept",
            run.run_id,
            run.turn,
            handler_label(run),
        )


def filter_error(run: Run, reply: MessageDone, why: str) -> ContentRefused:
    """Return the error of a reply that the provider's content filter removed."""
    return ContentRefused(
        f"The provider's content filter left nothing of the reply of agent {run.frame.agent.name!r} in turn "
        f"{run.turn} ({why}). The same request will be refused again: change what is asked, or use another "
        "model.",
        provider=model_of(run.frame.handler)["provider"] or "",
        model=reply.model or "",
    )
