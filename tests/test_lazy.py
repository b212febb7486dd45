"""Names and packages that are loaded on first use."""

from __future__ import annotations

import concurrent.futures.thread

import pytest

from routelock._lazy import load_late, needs_extra
from routelock.errors import MissingExtra

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


def test_import_of_a_missing_package_names_the_extra() -> None:
    with (
        pytest.raises(MissingExtra, match=r"^It needs x, which is missing: pip install 'routelock\[x\]'\.$"),
        needs_extra("It needs x, which is missing", "x"),
    ):
        raise ModuleNotFoundError("no x")


def test_error_of_a_package_that_is_there_stays_as_it_is() -> None:
    with pytest.raises(ImportError, match=r"^broken$"), needs_extra("It needs x", "x"):
        raise ImportError("broken")
