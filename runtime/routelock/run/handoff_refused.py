"""The exception with which a check refuses a handoff."""

from __future__ import annotations

from typing import Literal

from routelock._text import clip
from routelock.handoff_request import HandoffStatus

__all__ = ["LONGEST_REASON", "HandoffRefused", "RefusedBy"]


LONGEST_REASON = 700  # characters of an error: it stays in the history and is paid for again

RefusedBy = Literal["arguments", "limit", "loop"]
"""The check that refused a handoff, if the run treats that differently from a target's refusal."""


class HandoffRefused(Exception):
    """A check refused the handoff; the text is the reason that the model is told.

    Args:
        why: the reason; it is cut to `LONGEST_REASON`.
        by: the check, see `RefusedBy`; None for all others.
        status: the status of the handoff from now on.
        cause: the error of a callback, if one raised.
    """

    def __init__(
        self,
        why: str,
        *,
        by: RefusedBy | None = None,
        status: HandoffStatus = HandoffStatus.REJECTED,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(clip(why, LONGEST_REASON))
        self.by: RefusedBy | None = by
        self.status = status
        self.cause = cause
