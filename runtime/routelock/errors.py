"""All errors of routelock, as one tree grouped by cause.

    RoutelockError
      ConfigError                 wrong settings: found before the first model call where possible
        NoHandlerError            an agent has no model and no handler
        SkillInitError            a skill could not be initialised
        MissingExtra              an optional package is not installed
      CallbackError               a function of the app raised: instructions, is_enabled, a guardrail
      ModelBehaviorError          the model kept producing something unusable
      ToolError                   a tool raised and its policy is to stop the run
        ToolTimeout               a tool took longer than its own timeout
      HandoffError                a transfer failed and the policy is to stop the run
        HandoffFilterError        an input filter or history mapper failed
        HandoffTimeout            the target took longer than the handoff's run_timeout
        HandoffStateError         a handoff cannot change from its state to the requested one
        PayloadError              the data of a handoff does not fit its type
      GuardrailTripped            a guardrail stopped the run
        InputGuardrailTripped
        OutputGuardrailTripped
        ToolGuardrailTripped
      LimitExceeded               a budget of the run is used up
        MaxTurnsExceeded
        MaxHandoffsExceeded
        LoopDetected              agents or tools repeated themselves without progress
        RunTimeout                the run took longer than its timeout
        BudgetExceeded            requests, tool calls, tokens or money, see Limits
      RunNotDone                  `RunResult.require_output` found no final output
      SessionError                a session could not be loaded or stored
        SessionConflict           another run added to the session in the meantime
      JournalError                the journal of a run could not be written
      HandlerError                a handler failed
        ProviderError             the vendor or the way to it failed; see .retryable and .status
          AuthenticationFailed    401, 403, a missing key
          InvalidRequest          400, 404, 413, 422: the same request fails again; 409: it may succeed
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

Every error that ends a run has the partial result as ``error.result``: everything that happened until then,
including the usage. A cancellation is not an error of this tree; after one a `routelock.RunHandle` has the
result.
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
    "RunNotDone",
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
    """Agents, handoffs, tools or settings are wrong, or contradict one another."""


class NoHandlerError(ConfigError):
    """An agent has no model and no handler."""


class SkillInitError(ConfigError):
    """A skill could not be initialised for an agent; the message names both, the cause is chained."""


class MissingExtra(ConfigError, ImportError):
    """A feature needs a package that is not installed; the message names the extra."""


class CallbackError(RoutelockError):
    """A function of the app raised; the message names the function, the cause is chained."""


class ModelBehaviorError(RoutelockError):
    """The model kept calling tools that do not exist, sending broken arguments or invalid output."""

    ends_run = False
    """Whether the error ends the run for waiting agents too, because ``RunConfig.raise_on`` names the
    mistake."""


class ToolError(RoutelockError):
    """A tool raised, and its ``on_error`` policy is to stop the run. The cause is chained."""


class ToolTimeout(ToolError):
    """A tool ran longer than its ``timeout`` in seconds."""


class HandoffError(RoutelockError):
    """A transfer could not be made, and the run's policy is to stop."""


class HandoffFilterError(HandoffError):
    """An input filter or a history mapper raised, or returned something unusable.

    The run stops, so that the next agent does not see the unfiltered history, which the filter may have been
    meant to hide.
    """


class HandoffTimeout(HandoffError):
    """The target took longer than its handoff's ``run_timeout``.

    The source gets this as the result of its call with ``return_to_caller``, and as a message without it.
    """

    call_id = ""
    """The handoff call whose time is over."""
    asked = True
    """Whether a model call was in flight; if not, the time was over before it."""


class HandoffStateError(HandoffError, ValueError):
    """A handoff cannot change from its state to the requested one."""


class PayloadError(HandoffError, ValueError):
    """A payload cannot be read, names another source, or does not fit its declared type.

    The message names the wrong fields and never shows their values.
    """


class GuardrailTripped(RoutelockError):
    """A guardrail stopped the run. ``guardrail`` is its name, ``info`` its ``output_info``."""

    def __init__(self, message: str, *, guardrail: str = "", info: Any = None) -> None:
        super().__init__(message)
        self.guardrail = guardrail
        self.info = info


class InputGuardrailTripped(GuardrailTripped):
    """An input guardrail refused the input, before the agent's model was called."""


class OutputGuardrailTripped(GuardrailTripped):
    """An output guardrail refused the final output."""


class ToolGuardrailTripped(GuardrailTripped):
    """A guardrail of a tool stopped the run, because of the arguments or the result of a call."""


class LimitExceeded(RoutelockError):
    """A limit of the run is reached; ``result`` holds the work done so far."""


class MaxTurnsExceeded(LimitExceeded):
    """The next model call would have exceeded ``max_turns``."""


class MaxHandoffsExceeded(LimitExceeded):
    """The model requested more transfers than ``max_handoffs``, after a message about the limit."""


class LoopDetected(LimitExceeded):
    """Transfers or tool calls repeated without progress, after a warning."""


class RunTimeout(LimitExceeded):
    """The run took longer than ``RunConfig.timeout`` seconds."""


class BudgetExceeded(LimitExceeded):
    """The requests, tool calls, tokens or money of ``RunConfig.limits`` are used up."""


class RunNotDone(RoutelockError):
    """A run has no final output: it waits, or a limit or a cancellation ended it."""


class SessionError(RoutelockError):
    """A session could not be loaded or stored; the cause is chained."""


class SessionConflict(SessionError):
    """A session was changed after it was loaded, so this run stores nothing more in it.

    The partial result of this run is in ``result``. The session keeps what the other run stored.
    """


class JournalError(RoutelockError):
    """A step, or the start or end of a run, could not be written into the journal; see the cause.

    The run counts as interrupted: the same call resumes it once the file can be written.
    """


class HandlerError(RoutelockError):
    """A handler raised, or broke its contract: it ended without a message, or yielded something unknown."""

    raised: str = ""
    """What the handler raised, such as ``"ValueError: no such order"``, without secrets; empty if it raised
    nothing of its own. A model is told this and not the whole message."""


class ProviderError(HandlerError):
    """A vendor, or the connection to it, failed.

    Args:
        message: what happened and what to do about it.
        status: the HTTP status, or None without an HTTP response.
        retry_after: seconds to wait before a retry, as the vendor said, or None.
        provider: the vendor's short name, such as ``"anthropic"``.
        model: the model that was called.
        retryable: whether the same request may succeed later; None for the default of the class.
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
    """The response does not follow the protocol: HTML, truncated JSON, an empty body."""

    retryable = True


class ProviderDefect(ProviderError):
    """The vendor's library failed by itself (a missing module, an AttributeError): never retried."""


class CassetteMiss(ProviderError, AssertionError):
    """A request is not in the recording that a test replays, or has no route of respx: never retried.

    The first line names the request and the file; the difference to the nearest recorded request follows.
    See `routelock.testing.use_cassette`.
    """
