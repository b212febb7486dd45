"""Tool names are short, stable, and different for different targets."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from paths import REPO

from routelock._tool_names import TRANSFER_PREFIX, slug, transfer_tool_name

RUNTIME = REPO / "runtime"
NAMES = ["b", "Refund Agent", "東京", "北京", "😀", "a" * 80, "a" * 79 + "b", "Ärger", "___", "-", " "]


@pytest.mark.parametrize(
    ("name", "tool_name"),
    [
        ("b", "transfer_to_b"),
        ("Refund Agent", "transfer_to_refund_agent"),
        ("refund-agent", "transfer_to_refund_agent"),
        ("refund.agent", "transfer_to_refund_agent"),
        ("REFUND_AGENT", "transfer_to_refund_agent"),
        ("agent 007", "transfer_to_agent_007"),
        ("_private", "transfer_to__private"),
        ("a" * 52, "transfer_to_" + "a" * 52),
    ],
)
def test_plain_names_stay_readable(name: str, tool_name: str) -> None:
    assert transfer_tool_name(name) == tool_name


@pytest.mark.parametrize(
    ("name", "tool_name"),
    [
        ("東京", "transfer_to____681ee3"),
        ("北京", "transfer_to____685e15"),
        ("a" * 53, "transfer_to_" + "a" * 45 + "_d9b66a"),
    ],
)
def test_the_hash_of_a_name_is_the_same_for_ever(name: str, tool_name: str) -> None:
    """Recorded conversations and prompt caches hang on these very names."""
    assert transfer_tool_name(name) == tool_name


def test_names_in_other_scripts_differ() -> None:
    """They used to collapse to one row of underscores, where the last one won."""
    assert len({transfer_tool_name(name) for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", ["", " ", "-", "_", "...", " _-."])
def test_a_name_of_nothing_but_separators_still_gives_a_name(name: str) -> None:
    assert re.fullmatch("transfer_to_[_]+[0-9a-f]{6}", transfer_tool_name(name))


def test_a_slug_may_be_kept_shorter() -> None:
    assert slug("abc", longest=3) == "abc"
    assert slug("x" * 30, longest=20) == "x" * 13 + "_" + slug("x" * 30, longest=20)[-6:]
    assert len(slug("x" * 30, longest=20)) == 20


def test_a_lone_surrogate_does_not_break_the_name() -> None:
    assert re.fullmatch("[a-z0-9_]{1,64}", transfer_tool_name("a\ud800"))


def test_prefix_is_transfer_to() -> None:
    assert TRANSFER_PREFIX == "transfer_to_"


@given(st.text(max_size=120))
@example("İ" * 60)  # longer in lower case
@example("K")  # the Kelvin sign: an ASCII k in lower case
def test_every_name_gives_a_tool_name_that_providers_take(name: str) -> None:
    assert re.fullmatch("[a-z0-9_]{1,64}", transfer_tool_name(name))
    assert transfer_tool_name(name).startswith(TRANSFER_PREFIX)


def _folded(name: str) -> str:
    return re.sub("[ .-]", "_", name.lower()) if name.isascii() else name


@given(st.text(max_size=70), st.text(max_size=70))
@example("K", "k")
@example("a" * 60, "a" * 61)
@example("a b", "a\tb")
@example("-", " ")
def test_names_that_differ_give_different_tool_names(one: str, other: str) -> None:
    """Names that differ in more than case and separators never meet."""
    if _folded(one) != _folded(other):
        assert transfer_tool_name(one) != transfer_tool_name(other)


@given(st.from_regex("[A-Za-z0-9]{1,10}([ _.-][A-Za-z0-9]{1,10}){0,3}", fullmatch=True))
def test_case_and_separators_fold_into_one_name(name: str) -> None:
    """So an agent with both is an error, instead of two tools that the model cannot tell apart."""
    assert transfer_tool_name(name) == transfer_tool_name(name.upper().replace(" ", "-"))


@pytest.mark.parametrize("seed", ["0", "1234"])
def test_another_process_makes_the_same_names(seed: str) -> None:
    """Names made with hash() or id() would differ from process to process."""
    code = f"from routelock._tool_names import transfer_tool_name as t; print(*map(t, {NAMES!a}))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(RUNTIME)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [transfer_tool_name(name) for name in NAMES]
