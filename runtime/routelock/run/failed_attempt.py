"""An attempt of a model call that failed: what it counts, and what is dropped before the next one."""

from __future__ import annotations

from routelock.errors import ProviderError, ProviderTimeout
from routelock.handlers.events import AttemptFailed
from routelock.run.emit import ModelCallRetried, emit_now
from routelock.run.run import Run
from routelock.usage import Usage

__all__ = ["count_failed", "void_attempt"]


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
        run.count(reply.usage)
        return
    refused = isinstance(error, ProviderError) and not isinstance(error, ProviderTimeout)
    nothing_came = reply is None and not run.model_call.text
    free = refused and nothing_came
    run.count(Usage(requests=1, cost=0.0) if free else Usage(requests=1, estimated=True))
