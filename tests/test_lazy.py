"""Public names of a package that are loaded on first use."""

from __future__ import annotations

import concurrent.futures.thread

import pytest

from routelock._lazy import load_late

LATE = load_late("concurrent.futures", {"thread": "ThreadPoolExecutor", "no_such_module": "gone"})


def test_late_name_is_the_object_of_its_module() -> None:
    assert LATE("ThreadPoolExecutor") is concurrent.futures.thread.ThreadPoolExecutor


def test_unknown_name_raises_pythons_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'concurrent.futures' has no attribute 'dance'$"):
        LATE("dance")


def test_a_module_is_not_loaded_for_a_name_of_another() -> None:
    assert LATE("ThreadPoolExecutor")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        LATE("gone")
