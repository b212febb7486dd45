"""Routers of respx that see the requests of all handlers; needs ``routelock[respx]``.

respx answers requests of httpx. Handlers send most of theirs with aiohttp, and the openai library 3 has
httpx2: the transport shows these to the router as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar, overload

from routelock._lazy import needs_extra
from routelock.testing.guards import models_allowed
from routelock.testing.placeholder_keys import placeholders

__all__ = ["import_respx", "use_respx"]


Router = TypeVar("Router")
"""``respx.MockRouter``; respx is an optional package, so its types may be unknown."""


@overload
def use_respx() -> AbstractContextManager[Any]: ...
@overload
def use_respx(router: Router) -> AbstractContextManager[Router]: ...
@contextmanager
def use_respx(router: Any = None) -> Generator[Any]:
    """Answer the HTTP requests of the block from the routes of respx: those of all handlers, and of httpx.

    It needs no key: missing keys are replaced by placeholders until the block ends.

    Args:
        router: such as ``respx.mock(base_url="https://api.openai.com/v1")``; it is started unless it already
            is, as that of the fixture ``respx_mock``. None makes a new one.

    Raises:
        CassetteMiss: in the run that makes a request without a route.
        AssertionError: at the end, if a route was not asked and the router has not
            ``assert_all_called=False``.
        MissingExtra: respx is not installed.
    """
    library = import_respx()
    used = library.mock() if router is None else router

    async def answer(request: Any) -> Any:
        started = used.Mocker or used  # all routers that are started, unless this one stands alone
        try:
            return await started.async_handler(request)
        except library.models.PassThrough:
            return None

    with models_allowed(), placeholders(()), ExitStack() as stack:
        if used.Mocker is None or used not in used.Mocker.routers:
            stack.enter_context(used)
        stand_in: Any = importlib.import_module("routelock_providers.http.stand_in")
        stack.enter_context(stand_in.answered_by(answer))
        yield used


def import_respx() -> Any:
    """Return respx.

    Raises:
        MissingExtra: respx is not installed.
    """
    with needs_extra("Routes of respx need respx, which is not installed", "respx"):
        return importlib.import_module("respx")
