"""Where the folders of tests are: in memory if it has room, as a disk takes milliseconds for a commit."""

from __future__ import annotations

import os

__all__ = ["ram_disk"]

_FOLDER = "/dev/shm"
_ROOM = 1 << 30
"""Bytes that have to be free. A run of all tests takes far less; containers often have only 64 MB."""


def ram_disk() -> str | None:
    """Return a folder that is kept in memory; None where there is none, or tests could not use it."""
    try:
        disk = os.statvfs(_FOLDER)
    except (AttributeError, OSError):  # only Linux has one
        return None
    has_room = disk.f_bavail * disk.f_frsize >= _ROOM
    runs_programs = not disk.f_flag & os.ST_NOEXEC
    return _FOLDER if has_room and runs_programs and os.access(_FOLDER, os.W_OK) else None
