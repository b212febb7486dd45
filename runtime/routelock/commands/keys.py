"""Environment variables in which vendors' keys are, by name. Values are looked at by nobody here."""

from __future__ import annotations

import os

__all__ = ["keys_present"]

_OTHERS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS")


def keys_present() -> list[str]:
    """Return the names of those that are set: the known ones, and whatever ends like a key."""
    return sorted(
        name for name, value in os.environ.items() if value and (name.endswith("_API_KEY") or name in _OTHERS)
    )
