"""No profile forbids what its vendor took: the requests of real recordings that were answered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from paths import REPO
from vendor_bodies import read_body

from routelock.testing import PROFILES, refusals

RECORDINGS = Path(os.environ.get("ROUTELOCK_RECORDINGS") or REPO.parent / "shared" / "recordings")
VENDORS = {**{name: name for name in PROFILES}, "ollama_chat": "ollama", "ollama_local": "ollama"}


def _cassettes() -> Iterator[tuple[str, Path]]:
    for path in sorted(RECORDINGS.glob("public/*.yaml")):
        if vendor := VENDORS.get(path.name.partition("__")[0]):
            yield vendor, path


def _taken(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for one in yaml.load(path.read_text(), Loader=loader)["interactions"]:
        body = one["request"].get("body")
        if body and one["response"]["status"]["code"] == 200:
            read = json.loads(body)
            if "input" not in read:  # the Responses API has no messages
                yield urlsplit(one["request"]["uri"]).path, read


CASSETTES = list(_cassettes())


@pytest.mark.skipif(not CASSETTES, reason="there are no recordings here; set ROUTELOCK_RECORDINGS")
@pytest.mark.parametrize(("vendor", "path"), CASSETTES, ids=[path.stem for _, path in CASSETTES])
def test_profiles_allow_accepted_recordings(vendor: str, path: Path) -> None:
    for where, body in _taken(path):
        asked = read_body(where, body)
        assert refusals(asked.messages, PROFILES[vendor], tools=asked.tools, thinking=asked.thinking) == []
