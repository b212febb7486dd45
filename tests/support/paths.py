"""Where things are in the repository."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
REPO = TESTS.parent
