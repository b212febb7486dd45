"""Citations of replies become annotations of the message that a client sees."""

from __future__ import annotations

from typing import Any

from routelock.history import Citation
from routelock.serving.message_annotations import MessageAnnotations
from routelock.testing import reply

RAIN = Citation(url="https://a.example/rain", title="Rain", start=3, end=8)


def spans(annotations: MessageAnnotations) -> list[tuple[int, int]]:
    """Return the passages of the one delta."""
    [delta] = annotations.deltas()
    cited: list[Any] = [each["url_citation"] for each in delta["annotations"]]
    return [(each["start_index"], each["end_index"]) for each in cited]


def test_without_citations_there_is_no_delta() -> None:
    annotations = MessageAnnotations()
    annotations.add(reply("It rains.").message, 0, 9)
    assert annotations.deltas() == []


def test_a_passage_moves_with_its_text() -> None:
    annotations = MessageAnnotations()
    annotations.add(reply("It rains.", citations=[RAIN]).message, 20, 29)
    assert spans(annotations) == [(23, 28)]


def test_a_passage_stays_within_its_text() -> None:
    annotations = MessageAnnotations()
    annotations.add(reply("It rains.", citations=[RAIN]).message, 20, 29, skipped=6)
    annotations.add(reply("It.", citations=[RAIN]).message, 31, 34)
    assert spans(annotations) == [(20, 22), (34, 34)]


def test_held_replies_are_found_by_their_text() -> None:
    annotations = MessageAnnotations()
    annotations.hold(reply("First.").message)
    annotations.hold(reply("--It rains.--", citations=[RAIN]).message)
    annotations.add_held("First.", 0, 6)
    annotations.add_held("It rains.", 8, 17)
    assert spans(annotations) == [(9, 14)]


def test_a_held_text_that_is_not_sent_is_not_cited() -> None:
    annotations = MessageAnnotations()
    annotations.hold(reply("It rains.", citations=[RAIN]).message)
    annotations.add_held("", 0, 0)
    annotations.add_held("Something else.", 0, 15)
    assert annotations.deltas() == []
