"""A fence that keeps tests from asking a model, on this machine or elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from routelock.handlers.port import FENCE, Request

__all__ = ["ModelCallBlocked", "models_allowed", "no_models"]


class ModelCallBlocked(AssertionError):
    """The code under test was about to ask a model. ``model`` is which."""

    def __init__(self, model: str, request: Request) -> None:
        super().__init__(
            f"Agent {request.agent!r} was about to ask the model {model!r} in turn {request.turn}: this "
            f"test must not. Use a ScriptedHandler or a cassette, or allow it: no_models(allow=[{model!r}])."
        )
        self.model = model


@contextmanager
def no_models(*, allow: Iterable[str] = ()) -> Generator[list[str]]:
    """Refuse every call of a model: of those at a vendor, on this machine, and of agents behind a URL.

    Unlike `no_network` it stops a call before anything is loaded or opened, says which agent asked, and lets
    no model pass that runs on this machine. It sees the handlers of `routelock_providers`, wherever they are
    called from. Scripts and functions answer as ever, and so do cassettes, see `use_cassette`.

    Yields the list of models that were refused, which grows as it happens. It holds for this task and those
    that it starts from now on.

    Args:
        allow: models that may be asked nevertheless, by the name that the error shows.

    Raises:
        ModelCallBlocked: in the run that wants to ask.
    """
    blocked: list[str] = []
    allowed = frozenset(allow)

    def check(model: str, request: Request) -> None:
        if model not in allowed:
            blocked.append(model)
            raise ModelCallBlocked(model, request)

    before = FENCE.get()
    FENCE.set(check)
    try:
        yield blocked
    finally:
        FENCE.set(before)


@contextmanager
def models_allowed() -> Generator[None]:
    """Take the fence down for the block, because something else answers."""
    before = FENCE.get()
    FENCE.set(None)
    try:
        yield
    finally:
        FENCE.set(before)
