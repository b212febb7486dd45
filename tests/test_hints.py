"""The error about a name of another library says what to write."""

from __future__ import annotations

from typing import Any

import pytest

from routelock._hints import hint_attributes, hint_keywords

pytestmark = pytest.mark.anyio


def test_type_error_from_within_has_no_note() -> None:
    @hint_keywords({"deps": "context="})
    def made(**given: Any) -> None:
        raise TypeError("from within")

    with pytest.raises(TypeError, match="from within") as raised:
        made(deps=1)
    assert not hasattr(raised.value, "__notes__")


def test_error_of_a_property_is_not_hidden() -> None:
    @hint_attributes({"data": "output"})
    class Made:
        @property
        def broken(self) -> int:
            raise AttributeError("from within")

    with pytest.raises(AttributeError, match="from within"):
        _ = Made().broken
