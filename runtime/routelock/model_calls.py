"""The model call that a run is making: noted before it is made, and counted however it ends.

Part of `routelock.run.Run`, where all that changes during a run is together.
"""

from __future__ import annotations

from dataclasses import field

from routelock._records import NEW_LIST, dataclass
from routelock.books import Books
from routelock.errors import HandoffTimeout, ProviderError, ProviderTimeout
from routelock.handlers.events import AttemptFailed, MessageDone
from routelock.handlers.port import Handler, Request
from routelock.results import ModelCall, Shown
from routelock.usage import Usage

__all__ = ["ModelCalls"]


@dataclass(slots=True, kw_only=True)
class ModelCalls(Books):
    """The model calls of one run while it goes on."""

    handler: Handler
    """Who is in charge."""
    calls: list[ModelCall] = field(default_factory=NEW_LIST, init=False)
    """Those that have ended."""

    def begin_call(self, request: Request, shown: Shown) -> None:
        """Note a model call before it is made, so that a failed one is on the result as well."""
        self.open_call = (request, shown)
        self.attempted = True
        if self.tracing is not None:
            self.tracing.model_started(request)

    def unbegin_call(self, error: HandoffTimeout) -> None:
        """Take a model call back that was noted and never made, if there is one."""
        if self.open_call is not None:
            self.open_call, self.attempted = None, False
            if self.tracing is not None:
                self.tracing.model_ended(None, error)

    def end_call(self, reply: MessageDone | None, error: BaseException | None = None) -> None:
        """Put the model call that was begun on the result, with its reply if it has one."""
        assert self.open_call is not None
        if self.tracing is not None:
            self.tracing.model_ended(reply, error)
        request, shown = self.open_call
        self.open_call = None
        self.calls.append(ModelCall.of(request, shown, self.handler.name, reply))

    def forget(self) -> None:
        """Drop what arrived: it is in the transcript now, or it is void."""
        self.arrived = None
        self.partial.clear()

    def refuse_reply(self) -> None:
        """Drop what arrived of a reply to an input that must not be answered; what it took is counted."""
        if self.arrived is not None:
            self.count_failed(None)
            self.attempted = False
        self.forget()

    def void_attempt(self, failed: AttemptFailed) -> None:
        """Count an attempt that failed and is to be made again.

        Raises:
            BudgetExceeded: there may be no other.
        """
        self.count_failed(failed.error)
        if self.tracing is not None:
            self.tracing.model_retried(failed)
        self.forget()
        self.attempted = False
        self.check_budget()

    def begin_attempt(self) -> None:
        """Note that the model call is being made, and not waited for (see `routelock.attempts`)."""
        self.attempted = True

    def count_failed(self, error: BaseException | None) -> None:
        """Count a call that has no complete reply. One that the provider refused cost nothing."""
        if self.arrived is not None and self.arrived.usage is not None:
            self.count(self.arrived.usage)
            return
        refused = isinstance(error, ProviderError) and not isinstance(error, ProviderTimeout)
        nothing_came = self.arrived is None and not self.partial
        free = refused and nothing_came
        self.count(Usage(requests=1, cost=0.0) if free else Usage(requests=1, estimated=True))
