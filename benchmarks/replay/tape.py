"""The recorded HTTP traffic of one cassette, as plain data."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

Json = dict[str, Any]

_MODEL_PATHS = ("/chat/completions", "/messages", "/responses", "/chat", "/converse", "/converse-stream")
_MODEL_WORDS = (":generateContent", ":streamGenerateContent", "/invoke", "/api/generate")


@dataclass(frozen=True)
class Interaction:
    """One request and its answer."""

    method: str
    url: str
    request: Json
    """The body as JSON; empty when it is something else."""
    asked: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def host(self) -> str:
        """The host that was asked, with its port."""
        return urlsplit(self.url).netloc

    @property
    def path(self) -> str:
        """The path that was asked for, unquoted."""
        return unquote(urlsplit(self.url).path)

    @property
    def asks_a_model(self) -> bool:
        """Whether this is a model call, and not an upload, a poll or a look-up."""
        return asks_a_model(self.method, self.url)

    @property
    def streamed(self) -> bool:
        """Whether the answer is a stream of server-sent events."""
        kind = self.headers.get("content-type", "")
        return "event-stream" in kind or self.body.lstrip().startswith((b"data:", b"event:"))


def asks_a_model(method: str, url: str) -> bool:
    """Whether a request asks a model for a reply."""
    path = unquote(urlsplit(url).path)
    if method != "POST":
        return False
    return path.rstrip("/").endswith(_MODEL_PATHS) or any(word in path for word in _MODEL_WORDS)


def interactions_of(path: Path) -> list[Interaction]:
    """Read a cassette in vcrpy's format."""
    loaded = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return [_interaction(one["request"], one["response"]) for one in loaded["interactions"]]


def _interaction(request: Json, response: Json) -> Interaction:
    asked = _bytes(request.get("body"))
    headers = {
        name.lower(): values if isinstance(values, str) else ", ".join(map(str, values))
        for name, values in (response.get("headers") or {}).items()
    }
    body = response.get("body") or {}
    return Interaction(
        method=request["method"],
        url=request["uri"],
        request=_json(asked),
        asked=asked,
        status=response["status"]["code"],
        headers=headers,
        body=_unpacked(_bytes(body.get("string")), headers.get("content-encoding", "")),
    )


def _bytes(value: object) -> bytes:
    if isinstance(value, dict | list):
        return json.dumps(value).encode()
    return value.encode() if isinstance(value, str) else bytes(value or b"")  # type: ignore[call-overload]


def _unpacked(body: bytes, encoding: str) -> bytes:
    if "gzip" in encoding and body[:2] == b"\x1f\x8b":
        return gzip.decompress(body)
    if "deflate" in encoding:
        try:
            return zlib.decompress(body)
        except zlib.error:
            pass  # decoded already when it was recorded
    return body


def _json(body: bytes) -> Json:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
