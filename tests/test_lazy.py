"""Public names of a package that are loaded on first use."""

from __future__ import annotations

import json

import pytest

from routelock._lazy import load_late


def test_late_name_is_the_object_of_its_module() -> None:
    assert load_late("a", {"dumps": "json"}, "dumps") is json.dumps


def test_unknown_name_raises_pythons_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'a' has no attribute 'dance'$"):
        load_late("a", {"dumps": "json"}, "dance")


def test_a_module_is_not_loaded_for_a_name_of_another() -> None:
    assert load_late("a", {"dumps": "json", "gone": "no_such_module"}, "dumps")
