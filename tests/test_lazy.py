"""Names of a package that are loaded when somebody asks for them."""

from __future__ import annotations

import json

import pytest

from routelock._lazy import load_late


def test_a_name_is_what_its_module_defines() -> None:
    assert load_late("a", {"dumps": "json"}, "dumps") is json.dumps


def test_a_name_that_there_is_not_is_told_as_python_tells_it() -> None:
    with pytest.raises(AttributeError, match=r"^module 'a' has no attribute 'dance'$"):
        load_late("a", {"dumps": "json"}, "dance")


def test_a_module_is_not_loaded_for_a_name_of_another() -> None:
    assert load_late("a", {"dumps": "json", "gone": "no_such_module"}, "dumps")
