"""Where the spans and metrics of a test go."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from recorded_spans import Spans


@pytest.fixture
def spans(caplog: pytest.LogCaptureFixture) -> Iterator[Spans]:
    """Whatever a test does: nothing complains, all spans end, and none stays the current one."""
    found = Spans()
    before = trace.get_current_span()
    with caplog.at_level(logging.WARNING, "opentelemetry"):
        yield found
    # older releases of its SDK warn of an instrument that two OpenTelemetry objects of a test both ask for
    said = [one for one in caplog.get_records("call") if not one.name.startswith("opentelemetry.sdk.metrics")]
    assert said == []
    assert trace.get_current_span() is before
