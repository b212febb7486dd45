"""The files of the page. They are read once, and there is no way to ask for another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any
from xml.sax.saxutils import quoteattr

__all__ = ["index_page", "static_files"]

_KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


def static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the scripts and styles by name, each with its content type."""
    found: dict[str, tuple[bytes, str]] = {}
    for file in files("routelock.dev").joinpath("static").iterdir():
        for ending, kind in _KINDS.items():
            if file.name.endswith(ending):
                found[file.name] = (file.read_bytes(), kind)
    return found


def index_page(settings: Mapping[str, Any]) -> bytes:
    """Return the page. What differs from app to app is data in it: no script is made of anything.

    Args:
        settings: what the page's script is told, as JSON.
    """
    page = files("routelock.dev").joinpath("static", "index.html").read_text("utf-8")
    return page.replace('"{{settings}}"', quoteattr(json.dumps(settings))).encode()
