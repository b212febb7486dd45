"""Lines for the log, by way of `logging` alone: whoever runs the app says what is kept, and where.

All loggers are below ``routelock``. A line that nobody wants costs one question, and a handler or filter of
the log that raises does not end a run: what it raised is on the result.
"""

from __future__ import annotations

import logging

from routelock._callables import words_of
from routelock._redaction import redact_text
from routelock._text import plain
from routelock.run import Run

__all__ = ["log", "loggable_text"]

_LONGEST = 200


def log(
    run: Run, to: logging.Logger, level: int, text: str, *args: object, error: BaseException | None = None
) -> None:
    """Write a line to a log.

    Args:
        run: on whose result it is noted when that cannot be done.
        to: the logger.
        level: one of `logging`.
        text: what to write, with ``args`` as `logging` puts them in.
        args: made ready even when nobody listens: ask ``to.isEnabledFor`` before, if that takes time.
        error: its traceback is added.
    """
    if not to.isEnabledFor(level):
        return
    try:
        to.log(level, text, *args, exc_info=error, stacklevel=2)
    except Exception as raised:
        what = f"the log {to.name!r} raised {type(raised).__name__}: {words_of(raised)}"
        run.problem("hook", what, error=raised)


def loggable_text(text: str) -> str:
    """Return what somebody wrote as it may stand in a log: bounded, without secrets or line breaks."""
    return plain(redact_text(text[: 4 * _LONGEST]), _LONGEST)
