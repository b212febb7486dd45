"""What a model is told of errors whose own text is for the developer of the app.

A text such as ``Raise max_turns of its as_tool()`` is no use to a model, which can only make another call, or
go on without one.
"""

from __future__ import annotations

from collections.abc import Mapping

from routelock.errors import (
    BudgetExceeded,
    ConfigError,
    ContentRefused,
    ContextTooLong,
    JournalError,
    LoopDetected,
    MaxHandoffsExceeded,
    MaxTurnsExceeded,
    ProviderError,
    RoutelockError,
    RunNotDone,
    RunTimeout,
    SessionConflict,
    SessionError,
)

__all__ = ["advice_of"]


_SMALLER = "Give it a smaller task, or go on without it."

_OTHER = "Ask for something else, or go on without it."

_CHECK = "Check what was done before you call it again."

_WITHOUT = "Go on without it."

_NOT_STARTED = (
    "no model call is left for it, so it did not begin. Go on without it, and make no more such calls."
)

_LATER = "its model gave no reply this time. Try it once more, or go on without it."

_NEVER = "its model cannot be asked, and trying again does not help. Go on without it."

_BY_CLASS: Mapping[type[BaseException], str] = {
    MaxTurnsExceeded: f"it made all of its model calls and has no answer yet. {_SMALLER}",
    MaxHandoffsExceeded: f"its agents handed over to one another too often. {_SMALLER}",
    LoopDetected: f"it made no progress. {_OTHER}",
    RunTimeout: f"it took longer than it may. {_SMALLER}",
    BudgetExceeded: f"its budget is used up. {_SMALLER}",
    RunNotDone: f"it ended before it had an answer. {_WITHOUT}",
    ConfigError: f"it is not set up correctly, which you cannot change. {_WITHOUT}",
    SessionConflict: f"another run changed its conversation meanwhile. {_CHECK}",
    SessionError: f"its conversation could not be loaded or stored. {_CHECK}",
    JournalError: f"its steps could not be recorded. {_CHECK}",
    ContextTooLong: f"its conversation is too long for its model. {_SMALLER}",
    ContentRefused: f"the provider of its model refuses this content. {_OTHER}",
}


def advice_of(error: BaseException) -> str:
    """Return what a model is told in place of an error's text; "" if the text is for a model as well.

    A `ProviderError` itself has a text of the app's handler; its subclasses have that of a vendor.
    """
    if not isinstance(error, RoutelockError):
        return ""
    if isinstance(error, MaxTurnsExceeded) and error.result is None:  # the sub-run was not even started
        return _NOT_STARTED
    for kind in type(error).__mro__:
        if kind in _BY_CLASS:
            return _BY_CLASS[kind]
    if not isinstance(error, ProviderError) or type(error) is ProviderError:
        return ""
    return _LATER if error.retryable else _NEVER
