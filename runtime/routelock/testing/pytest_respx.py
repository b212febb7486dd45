"""The part of the pytest plugin for respx: its fixture, which sees the requests of all handlers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from routelock.testing.respx_mock import import_respx, use_respx

__all__ = ["respx_mock"]


@pytest.fixture
def respx_mock(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The router of respx's own fixture, with the options of ``@pytest.mark.respx``."""
    marker = request.node.get_closest_marker("respx")
    mock = import_respx().mock
    with use_respx(mock if marker is None else mock(**marker.kwargs)) as router:
        yield router
