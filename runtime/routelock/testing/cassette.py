"""Cassettes: HTTP traffic, recorded once and replayed offline by vcrpy; needs ``routelock[testing]``.

A cassette is a YAML file in vcrpy's format. Secrets are removed before it is written
(`routelock.testing.scrub`). It is written only in the mode ``"record"``.
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

from routelock._json import detached
from routelock.errors import CassetteMiss, ConfigError, MissingExtra
from routelock.testing.guards import models_allowed
from routelock.testing.placeholder_keys import TOKEN, is_token_exchange, placeholders
from routelock.testing.scrub import Scrubber, secrets_in

__all__ = [
    "Cassette",
    "CassetteMode",
    "HTTPRequest",
    "UnplayedInteractions",
    "canonical",
    "difference",
    "nearest",
    "use_cassette",
]


_STAGE = re.compile(r"/(v\d+)(?:alpha|beta)\d*(?=/|$)")

_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)

_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")

_CALL_ID_KEYS = frozenset(("tool_call_id", "tool_use_id", "toolUseId", "call_id"))

_RUN_ID = re.compile(r"[0-9a-f]{32}")

_MADE_ID = re.compile(r"^(?:call|toolu|tooluse|fc|msg|rs|resp|chatcmpl)[_-]")

_LONG = re.compile(r"(?<=.{60}\\n)|(?<=.{60}[.!?] )")
"""Where to break a long line, such as a whole prompt: after a line or a sentence in it."""

MAX_LINES = 60
"""The longest difference that is shown, in lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRequest:
    """The parts of a scrubbed request that identify it."""

    method: str
    url: str
    body: bytes = b""

    @property
    def endpoint(self) -> tuple[str, str, str]:
        """Method, host and path, without an API's stage: ``/v1beta/`` and ``/v1alpha/`` are ``/v1/``.

        LiteLLM moves Gemini and Vertex between these from one release to the next. The query is left out: it
        holds keys, API versions and ``alt=sse``.
        """
        parts = urlsplit(self.url)
        return self.method.upper(), (parts.netloc.rpartition("@")[2]).lower(), _path(parts.path)

    def matches(self, recorded: HTTPRequest, *, body: bool) -> bool:
        """Whether this is the recorded request; ``body`` compares the canonical bodies too."""
        if self.endpoint != recorded.endpoint:
            return False
        return not body or self.body == recorded.body or canonical(self.body) == canonical(recorded.body)


def _path(path: str) -> str:
    return _STAGE.sub(r"/\1", unquote(path)) or "/"


def canonical(body: bytes) -> object:
    """Return a body without everything that may differ from one run to the next.

    In JSON, keys and tools are sorted; call ids become the number of their first appearance; UUIDs, run ids
    and points in time become placeholders; JSON text in ``arguments`` is parsed. Other bodies are returned as
    text.
    """
    try:
        parsed: object = json.loads(body)
    except ValueError:
        return _without_moments(body.decode("utf-8", "replace"))
    return _Canonical().of(parsed)


class _Canonical:
    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def of(self, value: object, key: str = "") -> object:
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            return {name: self.of(fields[name], name) for name in sorted(fields)}
        if isinstance(value, list):
            items = [self.of(item, key) for item in cast("list[object]", value)]
            return sorted(items, key=_tool_name) if key == "tools" else items
        return self.text(value, key) if isinstance(value, str) else value

    def text(self, value: str, key: str) -> object:
        if key in _CALL_ID_KEYS or (key == "id" and _MADE_ID.match(value)):
            return self.ids.setdefault(value, f"<id {len(self.ids) + 1}>")
        if key == "run_id" and _RUN_ID.fullmatch(value):
            return "<run>"  # RemoteAgent sends it
        if key == "arguments":
            try:
                return self.of(json.loads(value))
            except (ValueError, RecursionError):
                pass  # broken JSON is compared as text
        return _without_moments(value)


def _tool_name(tool: object) -> str:
    fields = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    function = fields.get("function")
    named = cast("dict[str, Any]", function) if isinstance(function, dict) else fields
    return f"{named.get('name', '')} {json.dumps(tool, sort_keys=True)}"


def _without_moments(text: str) -> str:
    return _MOMENT.sub("<time>", _UUID.sub("<uuid>", text))


def _lines(asked: HTTPRequest) -> list[str]:
    body = canonical(asked.body)
    shown = body if isinstance(body, str) else json.dumps(body, indent=2, ensure_ascii=False)
    return [" ".join(asked.endpoint), *(part for line in shown.splitlines() for part in _LONG.split(line))]


def nearest(asked: HTTPRequest, recorded: Sequence[HTTPRequest]) -> int | None:
    """Return the index of the recorded request that is most like this one; None without any."""
    wanted = _lines(asked)

    def likeness(index: int) -> tuple[int, float]:
        other = recorded[index]
        same = sum(ours == theirs for ours, theirs in zip(asked.endpoint, other.endpoint, strict=True))
        return same, difflib.SequenceMatcher(None, wanted, _lines(other), autojunk=False).ratio()

    return max(range(len(recorded)), key=likeness, default=None)


def difference(recorded: HTTPRequest, asked: HTTPRequest) -> str:
    """Return a unified diff of the canonical requests; empty if they are equal."""
    compared = difflib.unified_diff(_lines(recorded), _lines(asked), "recorded", "asked", lineterm="", n=2)
    lines = list(compared)
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


CassetteMode = Literal["replay", "record"]
"""Whether a cassette answers from its file alone, or calls the network and writes a new file."""

VARIABLE = "ROUTELOCK_CASSETTES"
"""The environment variable with the default mode."""


class UnplayedInteractions(AssertionError):
    """The cassette holds requests that the block did not make."""


@dataclass(slots=True, kw_only=True)
class Cassette:
    """A cassette in use, and what has happened on it."""

    path: Path
    mode: CassetteMode
    misses: list[CassetteMiss] = field(default_factory=lambda: [])
    """Requests that were not in the file, even if a client swallowed the error."""
    allow_unplayed: bool = False
    """Whether the block may leave out recorded requests."""
    _tape: Any = field(repr=False)

    @property
    def requests(self) -> list[HTTPRequest]:
        """The recorded requests, in order."""
        return [_http_request(request) for request in self._tape.requests]

    @property
    def unplayed(self) -> list[HTTPRequest]:
        """The recorded requests that have not been made yet."""
        return [asked for index, asked in enumerate(self.requests) if not self.was_played(index)]

    def was_played(self, index: int) -> bool:
        """Whether the recorded request with this index has been answered."""
        return bool(self._tape.play_counts[index])


@contextmanager
def use_cassette(
    path: str | os.PathLike[str],
    *,
    mode: CassetteMode | None = None,
    match_body: bool = True,
    allow_unplayed: bool = False,
    side_calls: Sequence[str] = (),
    scrubber: Scrubber | None = None,
) -> Generator[Cassette]:
    """Answer the HTTP requests of the block from a file; for httpx, httpx2, aiohttp, requests and boto.

    A request matches a recorded one by method, host and path, and by its canonical body: the order of keys
    and tools, the values of ids and points in time do not count. Equal requests are answered in the order of
    the recording, each once. Replaying needs no key: missing keys are replaced by placeholders until the
    block ends. In the mode ``"record"``, vcrpy reads a stream to its end before the client gets the first
    byte: for timing, cancellation and broken connections use a local server.

    Args:
        path: the YAML file.
        mode: None takes the environment variable ``ROUTELOCK_CASSETTES``, or else ``"replay"``.
            ``"record"`` calls the network and writes a new file, even if the block fails in the end:
            recordings cost money.
        match_body: False compares only method, host and path.
        allow_unplayed: whether the block may leave out recorded requests.
        side_calls: parts of URLs that may miss without an error at the end, such as a library's look-ups.
        scrubber: finds secrets; by default the usual headers, names and shapes, and the secrets in this
            process's environment.

    Raises:
        CassetteMiss: at the request, and again at the end of the block if a client or a library wrapped or
            swallowed it.
        UnplayedInteractions: at the end of a block without another error.
        MissingExtra: vcrpy is not installed.
        ConfigError: the mode is unknown, or the file is no cassette.
    """
    chosen = _mode(mode or os.environ.get(VARIABLE) or "replay")
    scrub = scrubber or Scrubber(secrets=secrets_in(os.environ))
    with models_allowed(), ExitStack() as stack:
        tape = _loaded(stack, _open(Path(path), chosen, scrub, match_body), path)
        cassette = Cassette(path=Path(path), mode=chosen, allow_unplayed=allow_unplayed, _tape=tape)
        if chosen == "replay":
            tape.can_play_response_for = _strict(cassette, tape.can_play_response_for, side_calls)
            tape.play_response = _with_tokens(tape.play_response)
            stack.enter_context(placeholders(asked.url for asked in cassette.requests))
        try:
            yield cassette
        except Exception as error:
            if cassette.misses and not isinstance(error, CassetteMiss):
                raise cassette.misses[0] from error
            raise
        if cassette.misses:
            raise cassette.misses[0]
        if chosen == "replay" and not cassette.allow_unplayed and (left := cassette.unplayed):
            raise UnplayedInteractions(_unplayed(cassette, left))


def _mode(name: str) -> CassetteMode:
    if name == "replay":
        return "replay"
    if name == "record":
        return "record"
    raise ConfigError(f"Cassette mode {name!r} is unknown; use 'replay' or 'record'.")


def _open(path: Path, mode: CassetteMode, scrub: Scrubber, match_body: bool) -> Any:
    """Return vcrpy's context manager. vcrpy is untyped, so its `Any` stays in this module."""
    try:
        vcr: Any = importlib.import_module("vcr")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Cassettes need vcrpy, which is not installed: pip install 'routelock[testing]'."
        ) from error

    def same(ours: Any, recorded: Any) -> bool:
        return _http_request(ours).matches(_http_request(recorded), body=match_body)

    def clean_request(request: Any) -> Any:
        if is_token_exchange(request.uri):
            return None  # vcrpy does not record it
        body = scrub.body(_bytes(request.body_bytes))
        headers = scrub.request_headers(request.headers)
        return type(request)(request.method, scrub.text(request.uri), body, headers)

    def clean_response(response: dict[str, Any]) -> dict[str, Any]:
        body = scrub.body(response["body"]["string"])
        return response | {
            "headers": scrub.response_headers(response["headers"]),
            "body": {"string": body},
        }

    recorder = vcr.VCR(
        record_mode="all" if mode == "record" else "none",
        before_record_request=clean_request,
        before_record_response=clean_response,
        decode_compressed_response=True,  # compressed bodies cannot be scrubbed
        drop_unused_requests=mode == "record",
    )
    recorder.register_matcher("same", same)
    return recorder.use_cassette(str(path.absolute()), match_on=["same"])  # the block may change the folder


def _loaded(stack: ExitStack, opened: AbstractContextManager[Any], path: str | os.PathLike[str]) -> Any:
    try:
        return stack.enter_context(opened)
    except Exception as error:  # errors of vcrpy and yaml do not name the file
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"{os.fspath(path)} is no cassette ({why}). Restore it, or delete it and record it again."
        ) from error


def _bytes(body: Any) -> bytes | None:
    """Return the body as it is sent; vcrpy keeps the ``json=`` of aiohttp as an object."""
    if body is None or isinstance(body, bytes):
        return body
    text = body if isinstance(body, str) else json.dumps(body, default=lambda part: type(part).__name__)
    return text.encode()


def _http_request(request: Any) -> HTTPRequest:
    return HTTPRequest(method=request.method, url=request.uri, body=request.body_bytes or b"")


def _strict(
    cassette: Cassette, can_play: Callable[[Any], bool], side_calls: Iterable[str]
) -> Callable[[Any], bool]:
    """Raise `CassetteMiss`, which shows the difference, instead of vcrpy's error."""
    expected = tuple(side_calls)

    def can_play_response_for(request: Any) -> bool:
        if is_token_exchange(request.uri) or can_play(request):
            return True
        asked = _http_request(cassette._tape.filter_request(request))  # pyright: ignore[reportPrivateUsage]
        miss = CassetteMiss(_missed(cassette, asked))
        if not any(part in asked.url for part in expected):
            cassette.misses.append(miss)
        raise miss

    return can_play_response_for


def _with_tokens(play: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Answer token exchanges too."""
    return lambda request: detached(TOKEN) if is_token_exchange(request.uri) else play(request)


def _missed(cassette: Cassette, asked: HTTPRequest) -> str:
    recorded = cassette.requests
    index = nearest(asked, recorded)
    lines = [f"{asked.method} {asked.url} is not in {cassette.path}."]
    if index is None:
        lines.append("The cassette is empty." if cassette.path.exists() else "There is no such file yet.")
    else:
        played = "was already answered" if cassette.was_played(index) else "was not requested yet"
        lines.append(f"The nearest of {len(recorded)} recorded requests is number {index + 1}; it {played}.")
        lines.append(difference(recorded[index], asked) or "Nothing differs: this is one call too many.")
    lines.append(f"To record it again, set {VARIABLE}=record (with pytest: --cassettes=record).")
    return "\n".join(lines)


def _unplayed(cassette: Cassette, left: Sequence[HTTPRequest]) -> str:
    listed = "".join(f"\n  {asked.method} {asked.url}" for asked in left)
    return f"{len(left)} of {len(cassette.requests)} requests in {cassette.path} were not made:{listed}"
