"""One tree of errors, drawn as it is, and each of them is ready to carry a result."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from routelock import errors
from routelock.errors import (
    ConfigError,
    GuardrailTripped,
    HandlerError,
    LimitExceeded,
    MissingExtra,
    ProviderError,
    RateLimited,
    RoutelockError,
)

CLASSES: dict[str, Any] = {name: getattr(errors, name) for name in errors.__all__}
RETRYABLE = {
    "RateLimited",
    "ProviderTimeout",
    "ConnectionFailed",
    "ServerFailed",
    "IncompleteResponse",
    "UnreadableResponse",
}


def drawn() -> dict[str, str]:
    """The tree as the module's docstring draws it: each name with its parent's."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    tree = (inspect.getdoc(errors) or "").split("\n\n")[1]
    for line in tree.splitlines():
        indent, name = len(line) - len(line.lstrip()), line.split()[0]
        above = [each for each in above if each[0] < indent]
        parents[name] = above[-1][1] if above else ""
        above.append((indent, name))
    return parents


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """The tree in the docstring is right."""
    actual = {
        name: next((base.__name__ for base in each.__bases__ if issubclass(base, RoutelockError)), "")
        for name, each in CLASSES.items()
    }
    assert drawn() == actual


@pytest.mark.parametrize("each", CLASSES.values(), ids=lambda each: each.__name__)
def test_every_error_says_what_it_is_and_can_carry_a_result(each: Any) -> None:
    assert each.__doc__
    error = each("what happened")
    assert (str(error), error.result) == ("what happened", None)
    error.result = 5
    assert each("again").result is None


@pytest.mark.parametrize(
    ("error", "also"), [(ConfigError, ValueError), (MissingExtra, ImportError), (MissingExtra, ValueError)]
)
def test_errors_extend_pythons_own(error: Any, also: Any) -> None:
    assert issubclass(error, also)


@pytest.mark.parametrize(
    "each",
    [each for each in CLASSES.values() if issubclass(each, ProviderError)],
    ids=lambda each: each.__name__,
)
def test_provider_errors_know_whether_to_retry(each: Any) -> None:
    """What the same request cannot cure is not retried."""
    assert each("x").retryable is (each.__name__ in RETRYABLE)
    assert each("x", retryable=not each.retryable).retryable is not each.retryable
    assert issubclass(each, HandlerError)


def test_provider_error_has_its_details() -> None:
    error = RateLimited("slow down", status=429, retry_after=2.5, provider="openai", model="gpt-4o")
    assert (error.status, error.retry_after, error.provider, error.model) == (429, 2.5, "openai", "gpt-4o")
    bare = RateLimited("slow down")
    assert (bare.status, bare.retry_after, bare.provider, bare.model) == (None, None, "", "")


def test_a_tripped_guardrail_is_named() -> None:
    error = GuardrailTripped("stop", guardrail="no_numbers", info={"found": 5})
    assert (error.guardrail, error.info) == ("no_numbers", {"found": 5})


def test_limits_can_be_caught_together() -> None:
    limits = [name for name, each in CLASSES.items() if issubclass(each, LimitExceeded)]
    assert sorted(limits) == [
        "BudgetExceeded",
        "LimitExceeded",
        "LoopDetected",
        "MaxHandoffsExceeded",
        "MaxTurnsExceeded",
        "RunTimeout",
    ]
