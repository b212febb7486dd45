"""HTTP traffic recorded once and replayed offline, on vcrpy; needs the extra ``routelock[testing]``.

A cassette is a YAML file in vcrpy's own format. It holds no secrets, because they are taken out
before it is written (`routelock.testing.scrub`), and it is only read unless recording is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

from routelock.errors import CassetteMiss, ConfigError, MissingExtra
from routelock.testing.guards import models_allowed
from routelock.testing.placeholder_keys import TOKEN, is_token_exchange, placeholders
from routelock.testing.scrub import Scrubber, secrets_in

__all__ = [
    "Asked",
    "Cassette",
    "CassetteMode",
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
"""Where a long line is parted, which may hold a whole prompt: after a line of it, or a sentence."""

MAX_LINES = 60
"""A difference is cut after this many lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What identifies a request; secrets are scrubbed before it is made."""

    method: str
    url: str
    body: bytes = b""

    @property
    def place(self) -> tuple[str, str, str]:
        """Method, host and path, without an API's stage: ``/v1beta/`` and ``/v1alpha/`` are ``/v1/``.

        LiteLLM moves Gemini and Vertex between these from one release to the next. The query is
        left out: what it holds is keys, API versions and ``alt=sse``.
        """
        parts = urlsplit(self.url)
        return self.method.upper(), (parts.netloc.rpartition("@")[2]).lower(), _path(parts.path)

    def matches(self, recorded: Asked, *, body: bool) -> bool:
        """Whether this is the request that was recorded; ``body`` compares the canonical bodies too."""
        if self.place != recorded.place:
            return False
        return not body or self.body == recorded.body or canonical(self.body) == canonical(recorded.body)


def _path(path: str) -> str:
    return _STAGE.sub(r"/\1", unquote(path)) or "/"


def canonical(body: bytes) -> object:
    """Return a body with everything out of it that may differ from one run to the next.

    In JSON, the order of keys and of tools does not count; call ids become the number of their
    first appearance; UUIDs, ids of runs and points in time become placeholders; JSON text in ``arguments`` is
    read. What is not JSON is returned as text.
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
            return "<run>"  # which RemoteAgent sends
        if key == "arguments":
            try:
                return self.of(json.loads(value))
            except (ValueError, RecursionError):
                pass  # broken JSON is compared as it stands
        return _without_moments(value)


def _tool_name(tool: object) -> str:
    fields = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    function = fields.get("function")
    named = cast("dict[str, Any]", function) if isinstance(function, dict) else fields
    return f"{named.get('name', '')} {json.dumps(tool, sort_keys=True)}"


def _without_moments(text: str) -> str:
    return _MOMENT.sub("<time>", _UUID.sub("<uuid>", text))


def _lines(asked: Asked) -> list[str]:
    body = canonical(asked.body)
    shown = body if isinstance(body, str) else json.dumps(body, indent=2, ensure_ascii=False)
    return [" ".join(asked.place), *(part for line in shown.splitlines() for part in _LONG.split(line))]


def nearest(asked: Asked, recorded: Sequence[Asked]) -> int | None:
    """Return the place of the recorded request that is most like this one, or None of none."""
    wanted = _lines(asked)

    def likeness(index: int) -> tuple[int, float]:
        other = recorded[index]
        same = sum(ours == theirs for ours, theirs in zip(asked.place, other.place, strict=True))
        return same, difflib.SequenceMatcher(None, wanted, _lines(other), autojunk=False).ratio()

    return max(range(len(recorded)), key=likeness, default=None)


def difference(recorded: Asked, asked: Asked) -> str:
    """Return what differs, as a unified diff of the canonical requests; empty when nothing does."""
    compared = difflib.unified_diff(_lines(recorded), _lines(asked), "recorded", "asked", lineterm="", n=2)
    lines = list(compared)
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


CassetteMode = Literal["replay", "record"]
"""Whether a cassette answers from its file alone, or asks the network and writes the file anew."""

VARIABLE = "ROUTELOCK_CASSETTES"
"""The environment variable that chooses the mode where the call does not."""


class UnplayedInteractions(AssertionError):
    """The cassette holds requests that were not made this time."""


@dataclass(slots=True, kw_only=True)
class Cassette:
    """What happens on a cassette while it is in use."""

    path: Path
    mode: CassetteMode
    misses: list[CassetteMiss] = field(default_factory=list[CassetteMiss])
    """Requests that were not in the file, also where a client swallowed the error."""
    allow_unplayed: bool = False
    """Whether recorded requests may be left unmade."""
    _tape: Any = field(repr=False)

    @property
    def requests(self) -> list[Asked]:
        """The recorded requests, in order."""
        return [_asked(request) for request in self._tape.requests]

    @property
    def unplayed(self) -> list[Asked]:
        """The recorded requests that nobody has made yet."""
        return [asked for place, asked in enumerate(self.requests) if not self.was_played(place)]

    def was_played(self, place: int) -> bool:
        """Whether the recorded request at this place has been answered."""
        return bool(self._tape.play_counts[place])


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
    """Answer the HTTP requests of the block from a file; httpx, httpx2, aiohttp, requests, boto.

    A request matches a recorded one by method, host and path, and by its body in canonical form: the order of
    keys and of tools does not count, nor do the values of ids and points in time. Equal requests are answered
    in the order they were recorded in, each once. Replaying needs no key: where the environment has none, a
    placeholder stands there until the block ends. While it records, vcrpy reads a stream to its end before
    the client gets the first byte: for timing, cancellation and broken connections use a local server.

    Args:
        path: the YAML file.
        mode: None takes the environment variable ``ROUTELOCK_CASSETTES``, or else ``"replay"``.
            ``"record"`` asks the network and writes the file anew, also when the block fails in the
            end: recordings cost money.
        match_body: false compares the method, host and path alone.
        allow_unplayed: whether the block may leave recorded requests unmade.
        side_calls: parts of URLs that may miss without a complaint, such as a library's look-ups.
        scrubber: what is secret; by default the usual headers, names and shapes, and the secrets in
            this process's environment.

    Raises:
        CassetteMiss: at the request, and once more at the end of the block if a client or a library
            wrapped or swallowed it.
        UnplayedInteractions: at the end of a block that ended well otherwise.
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
    """Return vcrpy's context manager. Its types are unknown, so `Any` ends in this module."""
    try:
        vcr: Any = importlib.import_module("vcr")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Cassettes need vcrpy, which is not installed: pip install 'routelock[testing]'."
        ) from error

    def same(ours: Any, recorded: Any) -> bool:
        return _asked(ours).matches(_asked(recorded), body=match_body)

    def clean_request(request: Any) -> Any:
        if is_token_exchange(request.uri):
            return None  # which vcrpy does not keep
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
        decode_compressed_response=True,  # what is compressed cannot be scrubbed
        drop_unused_requests=mode == "record",
    )
    recorder.register_matcher("same", same)
    return recorder.use_cassette(str(path.absolute()), match_on=["same"])  # the block may go elsewhere


def _loaded(stack: ExitStack, opened: AbstractContextManager[Any], path: str | os.PathLike[str]) -> Any:
    try:
        return stack.enter_context(opened)
    except Exception as error:  # of vcrpy and yaml, which name no file
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"{os.fspath(path)} is no cassette ({why}). Restore it, or delete it and record it anew."
        ) from error


def _bytes(body: Any) -> bytes | None:
    """The body as it is sent; vcrpy keeps what aiohttp was given as ``json=`` as an object."""
    if body is None or isinstance(body, bytes):
        return body
    text = body if isinstance(body, str) else json.dumps(body, default=lambda part: type(part).__name__)
    return text.encode()


def _asked(request: Any) -> Asked:
    return Asked(method=request.method, url=request.uri, body=request.body_bytes or b"")


def _strict(
    cassette: Cassette, can_play: Callable[[Any], bool], side_calls: Iterable[str]
) -> Callable[[Any], bool]:
    """Raise our own error where vcrpy would raise one that names no difference."""
    expected = tuple(side_calls)

    def can_play_response_for(request: Any) -> bool:
        if is_token_exchange(request.uri) or can_play(request):
            return True
        asked = _asked(cassette._tape.filter_request(request))  # pyright: ignore[reportPrivateUsage]
        miss = CassetteMiss(_missed(cassette, asked))
        if not any(part in asked.url for part in expected):
            cassette.misses.append(miss)
        raise miss

    return can_play_response_for


def _with_tokens(play: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Answer what asks for an access token, too."""
    return lambda request: deepcopy(TOKEN) if is_token_exchange(request.uri) else play(request)


def _missed(cassette: Cassette, asked: Asked) -> str:
    recorded = cassette.requests
    place = nearest(asked, recorded)
    lines = [f"{asked.method} {asked.url} is not in {cassette.path}."]
    if place is None:
        lines.append("The cassette is empty." if cassette.path.exists() else "There is no such file yet.")
    else:
        played = "was answered already" if cassette.was_played(place) else "was not asked for yet"
        lines.append(f"The nearest of {len(recorded)} recorded requests is number {place + 1}; it {played}.")
        lines.append(difference(recorded[place], asked) or "Nothing differs: this is one call too many.")
    lines.append(f"To record it anew, set {VARIABLE}=record (with pytest: --cassettes=record).")
    return "\n".join(lines)


def _unplayed(cassette: Cassette, left: Sequence[Asked]) -> str:
    listed = "".join(f"\n  {asked.method} {asked.url}" for asked in left)
    return f"{len(left)} of {len(cassette.requests)} requests in {cassette.path} were not made:{listed}"
