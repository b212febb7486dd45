"""Everything routelock raises, as one tree grouped by whose fault it is.

    RoutelockError
      ConfigError                 your wiring: found before the first model call where that is possible
        NoHandlerError            nothing can answer for this agent
        SkillInitError            a skill could not be initialised
        MissingExtra              an optional package is not installed
      CallbackError               a function of yours raised: instructions, is_enabled, a guardrail
      ModelBehaviorError          the model kept producing something unusable
      ToolError                   a tool raised and its policy is to stop the run
        ToolTimeout               a tool took longer than its own timeout
      HandoffError                a transfer failed and the policy is to stop the run
        HandoffFilterError        an input filter or history mapper broke what it was given
        HandoffTimeout            the target took longer than the handoff's run_timeout
        HandoffStateError         a handoff cannot go from its state to the one asked for
        PayloadError              the data that was to ride along is not what its type says
      GuardrailTripped            one of your guardrails said stop
        InputGuardrailTripped
        OutputGuardrailTripped
        ToolGuardrailTripped
      LimitExceeded               a budget of the run is used up
        MaxTurnsExceeded
        MaxHandoffsExceeded
        LoopDetected              agents or tools went round without progress
        RunTimeout                the run took longer than its timeout
        BudgetExceeded            requests, tool calls, tokens or money, see Limits
      SessionError                a session could not be loaded or stored
        SessionConflict           somebody else has gone on with the session in the meantime
      JournalError                what a step gave, or the end, could not be written down
      HandlerError                whatever answers for the model failed
        ProviderError             the vendor or the way to it failed; see .retryable and .status
          AuthenticationFailed    401, 403, a missing key
          InvalidRequest          400, 404, 409, 413, 422: the same request fails again
            ContextTooLong
            ContentRefused
            ModelNotFound
          RateLimited             429
            QuotaExhausted        429 that waiting does not cure
          ProviderTimeout         408, 504, or our own deadline
          ConnectionFailed        refused, reset, no such host
          ServerFailed            5xx
          IncompleteResponse      a stream that ended before the reply was complete
          UnreadableResponse      HTML, broken JSON, an empty body
          ProviderDefect          a missing module or a bug inside the vendor's library
          CassetteMiss            a test replays a recording that does not have this request

Every error that ends a run carries the partial result as ``error.result``: all that happened until
then, the usage included. A cancellation is no error of this tree: a `routelock.RunHandle` has the result
then.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AuthenticationFailed",
    "BudgetExceeded",
    "CallbackError",
    "CassetteMiss",
    "ConfigError",
    "ConnectionFailed",
    "ContentRefused",
    "ContextTooLong",
    "GuardrailTripped",
    "HandlerError",
    "HandoffError",
    "HandoffFilterError",
    "HandoffStateError",
    "HandoffTimeout",
    "IncompleteResponse",
    "InputGuardrailTripped",
    "InvalidRequest",
    "JournalError",
    "LimitExceeded",
    "LoopDetected",
    "MaxHandoffsExceeded",
    "MaxTurnsExceeded",
    "MissingExtra",
    "ModelBehaviorError",
    "ModelNotFound",
    "NoHandlerError",
    "OutputGuardrailTripped",
    "PayloadError",
    "ProviderDefect",
    "ProviderError",
    "ProviderTimeout",
    "QuotaExhausted",
    "RateLimited",
    "RoutelockError",
    "RunTimeout",
    "ServerFailed",
    "SessionConflict",
    "SessionError",
    "SkillInitError",
    "ToolError",
    "ToolGuardrailTripped",
    "ToolTimeout",
    "UnreadableResponse",
]


class RoutelockError(Exception):
    """The root of the tree. ``result`` is the partial `RunResult` when a run raised it, else None."""

    result: Any = None


class ConfigError(RoutelockError, ValueError):
    """Agents, handoffs, tools or settings that cannot work together as they were wired."""


class NoHandlerError(ConfigError):
    """An agent has no model and no handler, so nothing can answer."""


class SkillInitError(ConfigError):
    """A skill could not be initialised for an agent; the message names both, the cause is chained."""


class MissingExtra(ConfigError, ImportError):
    """A feature needs a package that is not installed; the message names the extra."""


class CallbackError(RoutelockError):
    """A function that the app gave to routelock raised; the message says which, the cause is chained."""


class ModelBehaviorError(RoutelockError):
    """The model kept calling tools that do not exist, sending broken arguments or invalid output."""

    asked_for = False
    """Whether ``RunConfig.raise_on`` asked for it: then it ends the run, and no agent that waits is told."""


class ToolError(RoutelockError):
    """A tool raised, and its ``on_error`` policy is to stop the run. The cause is chained."""


class ToolTimeout(ToolError):
    """A tool ran longer than its ``timeout`` in seconds."""


class HandoffError(RoutelockError):
    """A transfer could not be made, and the run's policy is to stop."""


class HandoffFilterError(HandoffError):
    """An input filter or a history mapper raised or returned something unusable.

    The run stops rather than show the next agent the unfiltered history, which the filter may have
    been there to hide.
    """


class HandoffTimeout(HandoffError):
    """The target took longer than its handoff's ``run_timeout``; the caller is told, and goes on."""

    call_id = ""
    """The call of the one that waited too long."""
    asked = True
    """Whether the model was being asked; else the time was over before that."""


class HandoffStateError(HandoffError, ValueError):
    """A handoff cannot go from the state it is in to the one that was asked for."""


class PayloadError(HandoffError, ValueError):
    """A payload that is none, names another source than it has, or does not fit its declared type.

    The message says which fields are wrong and never what is in them.
    """


class GuardrailTripped(RoutelockError):
    """A guardrail said stop. ``guardrail`` is its name, ``info`` what it reported."""

    def __init__(self, message: str, *, guardrail: str = "", info: Any = None) -> None:
        super().__init__(message)
        self.guardrail = guardrail
        self.info = info


class InputGuardrailTripped(GuardrailTripped):
    """An input guardrail refused what came in, before the agent's model was called."""


class OutputGuardrailTripped(GuardrailTripped):
    """An output guardrail refused the final output."""


class ToolGuardrailTripped(GuardrailTripped):
    """A guardrail of a tool stopped the run, because of a call's arguments or of its result."""


class LimitExceeded(RoutelockError):
    """A budget of the run is used up; ``result`` holds the work done so far."""


class MaxTurnsExceeded(LimitExceeded):
    """The next model call would have been one more than ``max_turns``."""


class MaxHandoffsExceeded(LimitExceeded):
    """The model asked for one more transfer than ``max_handoffs``, after having been told so."""


class LoopDetected(LimitExceeded):
    """Transfers or tool calls repeated without progress, after a warning."""


class RunTimeout(LimitExceeded):
    """The run took longer than ``RunConfig.timeout`` seconds."""


class BudgetExceeded(LimitExceeded):
    """The requests, tool calls, tokens or money of ``RunConfig.limits`` are used up."""


class SessionError(RoutelockError):
    """A session could not be loaded or stored; the cause is chained."""


class SessionConflict(SessionError):
    """Something was added to a session since it was loaded, so nothing more is added to what was there then.

    The partial result of the run that comes second is in ``result``. What is stored is the other's.
    """


class JournalError(RoutelockError):
    """What a step gave, or how a run began or ended, could not be written into the journal; see the cause.

    The run is still one that was cut off: the same call goes on with it once the file can be written.
    """


class HandlerError(RoutelockError):
    """The handler broke its contract: it ended without a message, or yielded something unknown."""


class ProviderError(HandlerError):
    """A vendor, or the way to it, failed.

    Args:
        message: what happened and what to do about it.
        status: the HTTP status, or None when there was no HTTP answer.
        retry_after: seconds the vendor asked to wait, or None.
        provider: the vendor's short name, such as ``"anthropic"``.
        model: the model that was asked.
        retryable: overrides the class's own answer to "may the same request succeed later?".
    """

    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        provider: str = "",
        model: str = "",
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.provider = provider
        self.model = model
        if retryable is not None:
            self.retryable = retryable


class AuthenticationFailed(ProviderError):
    """The key is missing, wrong, or not allowed to do this."""


class InvalidRequest(ProviderError):
    """The provider refuses this request and will refuse it again."""


class ContextTooLong(InvalidRequest):
    """The request has more tokens than the model takes."""


class ContentRefused(InvalidRequest):
    """The provider's content policy stopped the request, or left nothing of the reply."""


class ModelNotFound(InvalidRequest):
    """The provider does not know this model, or routelock does not know this provider."""


class RateLimited(ProviderError):
    """Too many requests; ``retry_after`` says how long to wait when the provider said so."""

    retryable = True


class QuotaExhausted(RateLimited):
    """A quota or credit is used up: waiting a few seconds does not help."""

    retryable = False


class ProviderTimeout(ProviderError):
    """No answer, or no further chunk, in time."""

    retryable = True


class ConnectionFailed(ProviderError):
    """The connection was refused or broke before a reply began."""

    retryable = True


class ServerFailed(ProviderError):
    """The provider answered with a 5xx status or said it is overloaded."""

    retryable = True


class IncompleteResponse(ProviderError):
    """The reply ended before it was complete: a cut stream is an error, not a short answer."""

    retryable = True


class UnreadableResponse(ProviderError):
    """The answer was not what the protocol says: HTML, truncated JSON, an empty body."""

    retryable = True


class ProviderDefect(ProviderError):
    """The vendor's library failed by itself (a missing module, an AttributeError): never retried."""


class CassetteMiss(ProviderError, AssertionError):
    """A request is not in the recording that a test replays: never retried.

    The first line names the request and the file; a difference to the nearest recorded request follows.
    See `routelock.testing.use_cassette`.
    """
