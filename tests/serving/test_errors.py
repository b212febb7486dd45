"""Errors become refusals with a status and a code, and without internal texts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from routelock import errors
from routelock.errors import NoHandlerError, ProviderTimeout, RateLimited, RoutelockError, ServerFailed
from routelock.serving.errors import Refusal, log_refusal, refusal_for

EVERY: list[type[RoutelockError]] = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, RoutelockError)
]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_keeps_its_text_to_itself(kind: Any) -> None:
    refusal = refusal_for(kind("secret"))
    assert 400 <= refusal.status < 600
    if kind is not NoHandlerError:
        assert refusal.status not in (401, 403), "the client's key is not what is wrong"
    assert "secret" not in str(refusal.body("req_1"))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InputGuardrailTripped("x"), 400, "guardrail_tripped"),
        (NoHandlerError("x"), 403, "scope_denied"),
        (errors.ContentRefused("x"), 400, "content_filter"),
        (errors.InvalidRequest("x"), 502, "upstream_error"),
        (errors.InvalidRequest("x", status=508), 508, "too_many_hops"),
        (errors.ModelNotFound("x"), 502, "upstream_error"),
        (errors.QuotaExhausted("x"), 502, "upstream_quota"),
        (ProviderTimeout("x"), 504, "upstream_timeout"),
        (errors.LoopDetected("x"), 500, "loop_detected"),
        (errors.ToolTimeout("x"), 500, "tool_failed"),
        (errors.ConfigError("x"), 500, "internal_error"),
        (errors.CallbackError("x"), 500, "internal_error"),
        (KeyError("x"), 500, "internal_error"),
    ],
)
def test_each_error_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    refusal = refusal_for(error)
    assert (refusal.status, refusal.code) == (status, code)


@pytest.mark.parametrize(("asked", "told"), [(7.2, "7"), (0.1, "1"), (None, "1")])
def test_a_rate_limit_says_how_long_to_wait(asked: float | None, told: str) -> None:
    assert refusal_for(RateLimited("x", retry_after=asked)).headers["retry-after"] == told


def test_only_temporary_errors_may_be_retried() -> None:
    assert "x-should-retry" not in refusal_for(ServerFailed("x")).headers
    assert refusal_for(errors.MaxTurnsExceeded("x")).headers["x-should-retry"] == "false"


def test_a_refusal_stays_itself() -> None:
    refusal = Refusal(400, "No.", "no")
    assert refusal_for(refusal) is refusal


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "authentication_error"),
        (404, "not_found_error"),
        (422, "invalid_request_error"),
        (504, "server_error"),
    ],
)
def test_a_refusal_has_the_form_of_openai(status: int, kind: str) -> None:
    body = Refusal(status, "No.", "no", "n").body("req_1")
    assert body == {
        "error": {"message": "No.", "type": kind, "param": "n", "code": "no", "request_id": "req_1"}
    }


@pytest.mark.parametrize("cause", [None, errors.GuardrailTripped("x\nreq_2: 200 forged")])
def test_a_client_writes_no_line_of_the_log(
    caplog: pytest.LogCaptureFixture, cause: Exception | None
) -> None:
    refusal = Refusal(400, "x\nreq_2: 200 forged\x1b[1m", "no")
    refusal.__cause__ = cause
    with caplog.at_level(logging.INFO, "routelock.serving"):
        log_refusal("req_1", refusal)
    [said] = caplog.messages
    assert said.isprintable()
    assert said.startswith("req_1: 400 no: x req_2: 200 forged")
