"""Cassettes: HTTP traffic, recorded once and replayed offline by vcrpy; needs ``routelock[testing]``.

A cassette is a YAML file in vcrpy's format. Secrets are removed before it is written
(`routelock.testing.scrub`). In the record mode ``"none"``, which is the default, a cassette is only read.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from routelock._copies import detached
from routelock._lazy import needs_extra
from routelock.errors import CassetteMiss, ConfigError
from routelock.testing.guards import models_allowed
from routelock.testing.matching import MATCH_ON, PARTS, HTTPRequest, difference, nearest
from routelock.testing.placeholder_keys import TOKEN, is_token_exchange, placeholders
from routelock.testing.scrub import Scrubber, secrets_in

__all__ = ["Cassette", "Filter", "RecordMode", "UnplayedInteractions", "answering_from", "use_cassette"]


RecordMode = Literal["none", "once", "new_episodes", "all", "rewrite"]
"""When a cassette is recorded, by the names of pytest-recording.

``"none"``: never, so every request is answered from the file. ``"once"``: if there is no file yet.
``"new_episodes"``: requests that are not in the file. ``"all"``: every request; a recorded request that is
not made again stays in the file. ``"rewrite"``: every request, and nothing else stays.
"""

Filter = str | tuple[str, Any]
"""A name whose value is removed, or a name and what replaces its value, as vcrpy takes it."""

VARIABLE = "ROUTELOCK_RECORD_MODE"
"""The environment variable with the default record mode."""


class UnplayedInteractions(AssertionError):
    """The cassette holds requests that the block did not make."""


@dataclass(slots=True, kw_only=True)
class Cassette:
    """A cassette in use, with the requests that were answered or missed."""

    path: Path
    record_mode: RecordMode
    match_on: Sequence[str] = MATCH_ON
    """The parts of a request that are compared."""
    misses: list[CassetteMiss] = field(default_factory=lambda: [])
    """Requests that were not in the file, even if a client swallowed the error."""
    allow_unplayed: bool = False
    """Whether the block may leave out recorded requests."""
    _tape: Any = field(repr=False)
    _also: range = field(default=range(0), repr=False)
    """The indices of the requests that came from other files."""

    @property
    def is_replaying(self) -> bool:
        """Whether every request is answered from the file, or refused."""
        return bool(self._tape.write_protected)

    @property
    def requests(self) -> list[HTTPRequest]:
        """The recorded requests, in order; those of other files come last."""
        return [_http_request(request) for request in self._tape.requests]

    @property
    def unplayed(self) -> list[HTTPRequest]:
        """The recorded requests that have not been made yet, without those of other files."""
        return [
            asked
            for index, asked in enumerate(self.requests)
            if index not in self._also and not self.was_played(index)
        ]

    @property
    def play_count(self) -> int:
        """How many requests were answered from the file."""
        return int(self._tape.play_count)

    def was_played(self, index: int) -> bool:
        """Whether the recorded request with this index has been answered."""
        return bool(self._tape.play_counts[index])


@contextmanager
def use_cassette(
    path: str | os.PathLike[str],
    *,
    record_mode: RecordMode | None = None,
    also: Sequence[str | os.PathLike[str]] = (),
    match_on: Sequence[str] = MATCH_ON,
    filter_headers: Sequence[Filter] = (),
    filter_query_parameters: Sequence[Filter] = (),
    ignore_hosts: Sequence[str] = (),
    ignore_localhost: bool = False,
    allow_unplayed: bool = False,
    side_calls: Sequence[str] = (),
    scrubber: Scrubber | None = None,
) -> Generator[Cassette]:
    """Answer the HTTP requests of the block from a file; for httpx, httpx2, aiohttp, requests and boto.

    A request matches a recorded one by method, host, port, path and canonical body. In the body, the order of
    keys and tools, the values of ids, and points in time do not count. Equal requests are answered in the
    order of the recording, each once. Replaying needs no key: missing keys are replaced by placeholders until
    the block ends. While recording, vcrpy reads a stream to its end before the client gets the first byte:
    for timing, cancellation and broken connections use a local server.

    Args:
        path: the YAML file.
        record_mode: when the network is called and the file written, even if the block fails in the end:
            recordings cost money. None takes the environment variable ``ROUTELOCK_RECORD_MODE``, or else
            ``"none"``.
        also: other cassettes that answer too. They are never written, and their requests need not be made.
        match_on: the parts that are compared: ``"method"``, ``"scheme"``, ``"host"``, ``"port"``, ``"path"``,
            ``"query"``, ``"uri"`` and ``"body"``.
        filter_headers: request headers that are not recorded. Without it, all but a few harmless ones.
        filter_query_parameters: query parameters that are neither recorded nor compared.
        ignore_hosts: hosts whose requests are neither recorded nor answered, and go to the network.
        ignore_localhost: whether this machine is such a host.
        allow_unplayed: whether the block may leave out recorded requests.
        side_calls: parts of the URLs of requests, such as a library's look-ups, that may be missing from the
            file: they raise no error at the end of the block.
        scrubber: finds secrets; by default the usual headers, names and shapes, and the secrets in this
            process's environment.

    Raises:
        CassetteMiss: at the request, and again at the end of the block if a client or a library wrapped or
            swallowed it.
        UnplayedInteractions: at the end of a block without another error.
        MissingExtra: vcrpy is not installed.
        ConfigError: a record mode or a part is unknown, or a file is no cassette.
    """
    mode = _mode(record_mode or os.environ.get(VARIABLE) or "none")
    if unknown := [name for name in match_on if name not in PARTS]:
        raise ConfigError(f"match_on= has an unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}.")
    filters = {
        "filter_headers": filter_headers,
        "filter_query_parameters": filter_query_parameters,
        "ignore_hosts": ignore_hosts,
        "ignore_localhost": ignore_localhost,
    }
    scrub = scrubber or Scrubber(secrets=secrets_in(os.environ))
    with models_allowed(), ExitStack() as stack:
        tape = _loaded(stack, _open(Path(path), mode, scrub, match_on, filters), path)
        others = _load_also(tape, also)
        cassette = Cassette(
            path=Path(path),
            record_mode=mode,
            match_on=match_on,
            allow_unplayed=allow_unplayed,
            _tape=tape,
            _also=others,
        )
        try:
            with answering_from(cassette, side_calls):
                yield cassette
        finally:
            del tape.data[others.start : others.stop]  # before the tape is written


@contextmanager
def answering_from(cassette: Cassette, side_calls: Sequence[str] = ()) -> Generator[None]:
    """Replay strictly, if the cassette replays: a miss shows the difference, and no key is needed."""
    if not cassette.is_replaying:
        yield
        return
    tape: Any = cassette._tape  # pyright: ignore[reportPrivateUsage]
    tape.can_play_response_for = _strict(cassette, tape.can_play_response_for, side_calls)
    tape.play_response = _with_tokens(tape.play_response)
    try:
        with placeholders(asked.url for asked in cassette.requests):
            yield
    except Exception as error:
        if cassette.misses and not isinstance(error, CassetteMiss):
            raise cassette.misses[0] from error
        raise
    if cassette.misses:
        raise cassette.misses[0]
    if not cassette.allow_unplayed and (left := cassette.unplayed):
        raise UnplayedInteractions(_unplayed(cassette, left))


def _mode(name: str) -> RecordMode:
    for mode in _MODES:
        if name == mode:
            return mode
    raise ConfigError(f"The record mode {name!r} is unknown; the modes are {', '.join(_MODES)}.")


_MODES: tuple[RecordMode, ...] = get_args(RecordMode)


def _open(
    path: Path, mode: RecordMode, scrub: Scrubber, match_on: Sequence[str], filters: dict[str, Any]
) -> Any:
    """Return vcrpy's context manager. vcrpy is untyped, so its `Any` stays in this module."""
    with needs_extra("Cassettes need vcrpy, which is not installed", "testing"):
        vcr: Any = importlib.import_module("vcr")

    def same(ours: Any, recorded: Any) -> bool:
        return _http_request(ours).matches(_http_request(recorded), match_on)

    def clean_request(request: Any) -> Any:
        if is_token_exchange(request.uri):
            return None  # then vcrpy does not record the request
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
        record_mode="all" if mode == "rewrite" else mode,
        before_record_request=clean_request,
        before_record_response=clean_response,
        decode_compressed_response=True,  # compressed bodies cannot be scrubbed
        drop_unused_requests=mode == "rewrite",
        **filters,
    )
    recorder.register_matcher("same", same)
    return recorder.use_cassette(str(path.absolute()), match_on=["same"])  # the block may change the folder


def _load_also(tape: Any, paths: Iterable[str | os.PathLike[str]]) -> range:
    """Add the interactions of other cassettes to those of the tape, and return their indices."""
    before, dirty = len(tape.data), tape.dirty
    for path in paths:
        for request, response in _read(path):
            tape.append(request, response)
        tape.rewound = True  # otherwise vcrpy answers no request
    tape.dirty = dirty
    return range(before, len(tape.data))


def _read(path: str | os.PathLike[str]) -> Iterable[tuple[Any, Any]]:
    """Return the requests and responses of a file."""
    if not Path(path).is_file():
        raise ConfigError(f"There is no cassette {os.fspath(path)}.")
    files: Any = importlib.import_module("vcr.persisters.filesystem")
    yaml: Any = importlib.import_module("vcr.serializers.yamlserializer")
    try:
        requests, responses, *_ = files.FilesystemPersister.load_cassette(path, serializer=yaml)
    except Exception as error:
        raise _no_cassette(path, error) from error
    return zip(requests, responses, strict=True)


def _loaded(stack: ExitStack, opened: AbstractContextManager[Any], path: str | os.PathLike[str]) -> Any:
    try:
        return stack.enter_context(opened)
    except Exception as error:
        raise _no_cassette(path, error) from error


def _no_cassette(path: str | os.PathLike[str], error: Exception) -> ConfigError:
    """Return an error that names the file; errors of vcrpy and yaml do not."""
    why = " ".join(f"{type(error).__name__}: {error}".split())
    return ConfigError(
        f"{os.fspath(path)} is no cassette ({why}). Restore it, or delete it and record it again."
    )


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
    """Return ``can_play`` made strict: a miss raises `CassetteMiss`, which shows the difference."""
    expected = tuple(side_calls)

    def can_play_response_for(request: Any) -> bool:
        if is_token_exchange(request.uri) or can_play(request):
            return True
        filtered = cassette._tape.filter_request(request)  # pyright: ignore[reportPrivateUsage]
        if filtered is None:
            return False  # the host is ignored
        asked = _http_request(filtered)
        miss = CassetteMiss(_missed(cassette, asked))
        if not any(part in asked.url for part in expected):
            cassette.misses.append(miss)
        raise miss

    return can_play_response_for


def _with_tokens(play: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``play`` with an answer to token exchanges too."""
    return lambda request: detached(TOKEN) if is_token_exchange(request.uri) else play(request)


def _missed(cassette: Cassette, asked: HTTPRequest) -> str:
    recorded = cassette.requests
    index = nearest(asked, recorded)
    lines = [f"{asked.method} {asked.url} is not in {cassette.path}."]
    if index is None:
        lines.append("The cassette is empty." if cassette.path.exists() else "There is no such file yet.")
    else:
        played = "was already answered" if cassette.was_played(index) else "was not requested yet"
        other = recorded[index]
        lines.append(
            f"The nearest of {len(recorded)} recorded requests is number {index + 1}, which {played}:"
        )
        lines.append(f"  {other.method} {other.url}")
        shown = difference(other, asked, cassette.match_on)
        lines += ["What differs (- recorded, + asked):", shown] if shown else [_NO_DIFFERENCE]
    mode = "rewrite" if cassette.path.exists() else "once"
    lines.append(f"To record it, set {VARIABLE}={mode} (with pytest: --record-mode={mode}).")
    return "\n".join(lines)


_NO_DIFFERENCE = "Nothing differs: this is one call too many."


def _unplayed(cassette: Cassette, left: Sequence[HTTPRequest]) -> str:
    listed = "".join(f"\n  {asked.method} {asked.url}" for asked in left)
    return f"{len(left)} of {len(cassette.requests)} requests in {cassette.path} were not made:{listed}"
