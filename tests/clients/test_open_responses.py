"""The scenarios of the Open Responses compliance tests, by the types that its specification has."""

from __future__ import annotations

import pytest
from clients.played import Played


@pytest.mark.parametrize(
    "scenario",
    [
        "basic-response",
        "streaming-response",
        "system-prompt",
        "tool-calling",
        "tool-calling-streaming",
        "image-input",
        "multi-turn",
        "reasoning",
        "citations",
        "failure",
    ],
)
def test_answers_have_the_types_of_the_specification(open_responses: Played, scenario: str) -> None:
    assert open_responses[scenario] == []
