"""Words of texts, and their stems."""

from __future__ import annotations

import pytest

from routelock.tools.stems import split, stem


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("invoices", "invoice"),
        ("copies", "copy"),
        ("creating", "create"),
        ("stopped", "stop"),
        ("cancelled", "cancel"),
        ("verification", "verify"),
        ("took", "take"),
        ("people", "person"),
    ],
)
def test_forms_of_a_word_have_the_same_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(("one", "other"), [("hope", "hop"), ("bus", "bu"), ("news", "new"), ("sms", "sm")])
def test_other_words_keep_their_own(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("list_open-issues", ["list", "open", "issues"]),
        ("chat.postMessage", ["chat", "post", "message"]),
        ("HTTPGet", ["http", "get"]),
        ("S3 and k8s and 2FA", ["s3", "and", "k8s", "and", "2fa"]),
        ("page 3 of 10", ["page", "of"]),
        ("neue\u00dcberweisung", ["neue", "\u00fcberweisung"]),
        ("\u00dcBERWEISUNG", ["\u00fcberweisung"]),
        ("get\u5929\u6c14\u9884\u62a5", ["get", "\u5929\u6c14", "\u6c14\u9884", "\u9884\u62a5"]),
        ("\u96e8", ["\u96e8"]),
        ("", []),
    ],
)
def test_a_text_is_split_into_words(text: str, words: list[str]) -> None:
    assert split(text)[0] == words
