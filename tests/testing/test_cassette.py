"""Cassettes: recorded against a local server, replayed without it."""

from __future__ import annotations

import importlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
import yaml
from servers import served_by

from routelock.errors import ConfigError, MissingExtra
from routelock.testing import CassetteMiss, UnplayedInteractions, use_cassette
from routelock.testing.cassette import RecordMode
from routelock.testing.scrub import SCRUBBED, Scrubber

DIGITS = "0123456789abcdef0123456789abcdef"


class Echo(BaseHTTPRequestHandler):
    """Answers each POST with what it got, and with things that must not be recorded."""

    protocol_version = "HTTP/1.1"
    leak = ""

    def do_POST(self) -> None:
        got = self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"echo": json.loads(got), "leak": self.leak}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("set-cookie", "session=hunter2")
        self.send_header("x-request-id", "hunter2")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Redirect the client, once."""
        moved = self.path.startswith("/old")
        self.send_response(307 if moved else 200)
        if moved:
            self.send_header("location", "/new?api_key=hunter2")
        self.send_header("content-length", "0" if moved else "4")
        self.end_headers()
        self.wfile.write(b"" if moved else b"here")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that is there while the test records, and for as long as it runs."""
    with served_by(Echo) as url:
        yield url


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "cassette.yaml"


def post(url: str, body: object, **options: Any) -> Any:
    with httpx.Client(trust_env=False) as client:
        return client.post(f"{url}/v1/chat", json=body, **options).json()


def careless_post(url: str, body: object) -> None:
    """What a library with retries and fall-backs does."""
    with suppress(Exception):
        post(url, body)


def renaming_post(url: str, body: object) -> None:
    """What LiteLLM does: every failure becomes one that looks worth a retry."""
    try:
        post(url, body)
    except Exception as error:
        raise ConnectionError("please try again") from error


@pytest.fixture
def recorded(server: str, path: Path) -> str:
    """A cassette with two requests; its server is gone."""
    with use_cassette(path, record_mode="rewrite"):
        post(server, {"n": 1})
        post(server, {"n": 2})
    return server


def test_what_was_recorded_is_replayed(recorded: str, path: Path) -> None:
    with use_cassette(path) as cassette:
        assert post(recorded, {"n": 1})["echo"] == {"n": 1}
        assert post(recorded, {"n": 2})["echo"] == {"n": 2}
    assert [asked.body for asked in cassette.requests] == [b'{"n":1}', b'{"n":2}']
    assert (cassette.unplayed, cassette.misses) == ([], [])


def test_urllib_is_answered_from_the_same_file(recorded: str, path: Path) -> None:
    with use_cassette(path, allow_unplayed=True):
        request = urllib.request.Request(f"{recorded}/v1/chat", data=b'{"n": 2}', method="POST")
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["echo"] == {"n": 2}


@pytest.mark.anyio
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_async_clients_are_answered_on_every_loop(recorded: str, path: Path, library: str) -> None:
    client_of: Any = pytest.importorskip(library)
    with use_cassette(path, allow_unplayed=True):
        async with client_of.AsyncClient(trust_env=False) as client:
            answer = await client.post(f"{recorded}/v1/chat", json={"n": 1})
    assert answer.json()["echo"] == {"n": 1}


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_aiohttp_is_answered_from_the_same_file(recorded: str, path: Path) -> None:
    aiohttp: Any = importlib.import_module("aiohttp")
    with use_cassette(path, allow_unplayed=True):
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{recorded}/v1/chat", json={"n": 1}) as answer,
        ):
            assert (await answer.json())["echo"] == {"n": 1}


def test_equal_requests_are_answered_in_the_order_of_the_recording(server: str, path: Path) -> None:
    with use_cassette(path, record_mode="rewrite"):
        post(server, {"n": 1})
        post(server, {"n": 2})
    with use_cassette(path, match_on=["method", "path"]):
        assert [post(server, {"n": n})["echo"]["n"] for n in (8, 9)] == [1, 2]


def test_a_miss_shows_the_nearest_request_and_the_difference(recorded: str, path: Path) -> None:
    with pytest.raises(CassetteMiss) as caught, use_cassette(path):
        post(recorded, {"n": 3})
    shown = str(caught.value)
    assert f"POST {recorded}/v1/chat is not in {path}." in shown
    assert (
        "The nearest of 2 recorded requests is number 1, which was not requested yet:\n"
        f"  POST {recorded}/v1/chat\nWhat differs (- recorded, + asked):\n$.n\n  - 1\n  + 3\n"
    ) in shown
    assert "ROUTELOCK_RECORD_MODE=rewrite" in shown


def test_one_call_too_many_says_so(recorded: str, path: Path) -> None:
    expected = r"(?s)number 1, which was already answered.*one call too many"
    with use_cassette(path, allow_unplayed=True, side_calls=[recorded]):
        post(recorded, {"n": 1})
        with pytest.raises(CassetteMiss, match=expected):
            post(recorded, {"n": 1})


def test_swallowed_miss_is_raised_at_the_end(recorded: str, path: Path) -> None:
    with pytest.raises(CassetteMiss, match=r"\+ 3"), use_cassette(path, allow_unplayed=True):
        careless_post(recorded, {"n": 3})


def test_wrapped_miss_is_raised_as_itself(recorded: str, path: Path) -> None:
    with pytest.raises(CassetteMiss) as caught, use_cassette(path):
        renaming_post(recorded, {"n": 3})
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_an_error_of_the_block_itself_stays(recorded: str, path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), use_cassette(path):
        raise ValueError("mine")


def test_side_calls_may_miss(recorded: str, path: Path) -> None:
    with use_cassette(path, allow_unplayed=True, side_calls=["/v1/ch"]) as cassette:
        with pytest.raises(CassetteMiss):
            post(recorded, {"n": 3})
    assert cassette.misses == []


def test_requests_that_were_not_made_are_reported(recorded: str, path: Path) -> None:
    with pytest.raises(
        UnplayedInteractions, match=r"1 of 2 requests in .* were not made:\n  POST http://127"
    ):
        with use_cassette(path):
            post(recorded, {"n": 1})


def test_a_cassette_that_does_not_exist_is_never_recorded_by_accident(server: str, path: Path) -> None:
    expected = r"(?s)no such file yet.*--record-mode=once"
    with pytest.raises(CassetteMiss, match=expected), use_cassette(path):
        post(server, {"n": 1})
    assert not path.exists()


def test_an_empty_cassette_says_so(server: str, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("interactions: []\nversion: 1\n")
    with pytest.raises(CassetteMiss, match="The cassette is empty"), use_cassette(path):
        post(server, {"n": 1})


def test_a_redirection_is_followed_again(server: str, path: Path) -> None:
    def fetched() -> tuple[str, bytes]:
        with httpx.Client(trust_env=False, follow_redirects=True) as client:
            return client.get(f"{server}/old").text, urllib.request.urlopen(f"{server}/old").read()

    with use_cassette(path, record_mode="rewrite"):
        assert fetched() == ("here", b"here")
    assert "hunter2" not in path.read_text()
    with use_cassette(path):
        assert fetched() == ("here", b"here")


def test_recording_keeps_its_path_when_the_block_changes_the_folder(
    server: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent.parent)
    with use_cassette(path.relative_to(path.parent.parent), record_mode="rewrite"):
        monkeypatch.chdir("/")
        post(server, {"n": 1})
    assert path.exists()


@pytest.mark.parametrize("mode", get_args(RecordMode))
@pytest.mark.parametrize("text", ["<<<<<<< ours\na: [\n", "just words", "interactions: 7\nversion: 1\n"])
def test_a_file_that_is_no_cassette_is_named(path: Path, mode: RecordMode, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"\.yaml is no cassette \(.*Restore it, or delete it"):
        with use_cassette(path, record_mode=mode):
            pass
    assert path.read_text() == text


def test_replaying_leaves_the_file_alone(recorded: str, path: Path) -> None:
    before = path.read_bytes()
    with use_cassette(path, allow_unplayed=True):
        post(recorded, {"n": 1})
    assert path.read_bytes() == before


def test_recording_again_replaces_what_was_there(recorded: str, path: Path) -> None:
    with use_cassette(path, record_mode="rewrite"):
        post(recorded, {"n": 3})
    with use_cassette(path) as cassette:
        post(recorded, {"n": 3})
    assert len(cassette.requests) == 1


def test_a_recording_is_kept_when_the_block_fails(server: str, path: Path) -> None:
    def block() -> None:
        post(server, {"n": 1})
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), use_cassette(path, record_mode="rewrite"):
        block()
    with use_cassette(path):
        post(server, {"n": 1})


def test_an_environment_variable_chooses_the_mode(
    server: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTELOCK_RECORD_MODE", "rewrite")
    with use_cassette(path) as cassette:
        post(server, {"n": 1})
    assert cassette.record_mode == "rewrite"
    assert path.exists()


def answered(url: str, *numbers: int) -> list[int]:
    return [post(url, {"n": n})["echo"]["n"] for n in numbers]


def recorded_numbers(path: Path) -> list[int]:
    return [
        json.loads(one["request"]["body"])["n"] for one in yaml.safe_load(path.read_text())["interactions"]
    ]


def test_once_records_only_if_there_is_no_file(server: str, path: Path) -> None:
    with use_cassette(path, record_mode="once"):
        answered(server, 1)
    with pytest.raises(CassetteMiss), use_cassette(path, record_mode="once", allow_unplayed=True):
        answered(server, 2)
    with use_cassette(path, record_mode="once") as cassette:
        answered(server, 1)
    assert (cassette.play_count, cassette.is_replaying) == (1, True)
    assert recorded_numbers(path) == [1]


def test_new_episodes_are_added_to_what_is_there(recorded: str, path: Path) -> None:
    with use_cassette(path, record_mode="new_episodes") as cassette:
        assert answered(recorded, 1, 3) == [1, 3]
    assert cassette.play_count == 1
    assert recorded_numbers(path) == [1, 2, 3]


def test_all_asks_again_and_keeps_what_was_not_asked(recorded: str, path: Path) -> None:
    with use_cassette(path, record_mode="all") as cassette:
        answered(recorded, 1)
    assert cassette.play_count == 0
    assert sorted(recorded_numbers(path)) == [1, 2]


@pytest.fixture
def other(server: str, path: Path) -> Path:
    """Another cassette, with the request 7."""
    other = path.with_name("other.yaml")
    with use_cassette(other, record_mode="rewrite"):
        answered(server, 7)
    return other


def test_other_cassettes_answer_too(recorded: str, path: Path, other: Path) -> None:
    with use_cassette(path, also=[other]) as cassette:
        assert answered(recorded, 1, 7, 2) == [1, 7, 2]
        assert len(cassette.requests) == 3


def test_requests_of_other_cassettes_need_not_be_made(recorded: str, path: Path, other: Path) -> None:
    with use_cassette(path, also=[other]) as cassette:
        answered(recorded, 1, 2)
    assert cassette.unplayed == []


def test_other_cassettes_are_not_written_into_the_first(recorded: str, path: Path, other: Path) -> None:
    with use_cassette(path, also=[other], record_mode="new_episodes"):
        assert answered(recorded, 7, 3) == [7, 3]
    assert recorded_numbers(path) == [1, 2, 3]
    assert recorded_numbers(other) == [7]


def test_missing_other_cassette_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no cassette other\.yaml"):
        with use_cassette(path, also=["other.yaml"]):
            pass


def test_an_unknown_part_to_match_on_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown part 'headers'; the parts are method, scheme"):
        with use_cassette(path, match_on=["method", "headers"]):
            pass


def test_filtered_headers_and_query_are_not_recorded(server: str, path: Path) -> None:
    with use_cassette(
        path,
        record_mode="rewrite",
        filter_headers=["content-type", ("accept", "any")],
        filter_query_parameters=["shop"],
    ):
        post(server, {"n": 1}, params={"shop": "7", "alt": "sse"})
    [played] = yaml.safe_load(path.read_text())["interactions"]
    assert played["request"]["uri"] == f"{server}/v1/chat?alt=sse"
    assert played["request"]["headers"] == {"accept": ["any"]}


def test_ignored_hosts_are_asked(server: str, path: Path) -> None:
    with use_cassette(path, ignore_hosts=["127.0.0.1"]) as cassette:
        assert answered(server, 1) == [1]
    with use_cassette(path, ignore_localhost=True):
        assert urllib.request.urlopen(f"{server}/new").read() == b"here"
    assert cassette.misses == []


def test_an_unknown_mode_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="'record' is unknown; the modes are none, once"):
        with use_cassette(path, record_mode="record"):  # pyright: ignore[reportArgumentType]
            pass


def test_without_vcrpy_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vcr", None)
    with pytest.raises(MissingExtra, match=r"routelock\[testing\]"), use_cassette(path):
        pass


SECRETS = {
    "a header": "secret-of-a-header",
    "a header of another name": "secret-of-another-header",
    "a cookie": "secret-of-a-cookie",
    "the user part of the address": "secret-of-the-address",
    "the query": "secret-of-the-query",
    "a JSON key": "secret-of-a-key",
    "JSON in JSON": "secret-of-an-argument",
    "a shape in the prompt": "sk-" + "proj-" + DIGITS,
    "a token in the prompt": "Bearer " + "tok3n" + DIGITS,
    "a private key in the prompt": "-----BEGIN "
    + "PRIVATE KEY-----\nMII"
    + DIGITS
    + "\n-----END "
    + "PRIVATE KEY-----",
    "a shape in the answer": "AK" + "IA" + DIGITS.upper()[:16],
    "a shapeless secret of the environment": "correct horse battery staple",
}


def send_all_secrets(server: str) -> Any:
    arguments = json.dumps({"password": SECRETS["JSON in JSON"], "kept": "kept in arguments"})
    return post(
        server.replace("://", f"://user:{SECRETS['the user part of the address']}@"),
        {
            "api_key": SECRETS["a JSON key"],
            "function": {"arguments": arguments},
            "messages": [
                SECRETS["a shape in the prompt"],
                f"Authorization: {SECRETS['a token in the prompt']}",
                SECRETS["a private key in the prompt"],
                f"I say {SECRETS['a shapeless secret of the environment']}.",
                "kept in the prompt",
            ],
        },
        params={"key": SECRETS["the query"], "alt": "sse"},
        headers={
            "authorization": f"Bearer {SECRETS['a header']}",
            "x-internal": SECRETS["a header of another name"],
            "cookie": f"session={SECRETS['a cookie']}",
        },
    )


def test_twelve_secrets_leave_no_trace(server: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_PASSWORD", SECRETS["a shapeless secret of the environment"])
    monkeypatch.setattr(Echo, "leak", f"{SECRETS['a shape in the answer']} kept in the answer")
    with use_cassette(path, record_mode="rewrite"):
        answer = send_all_secrets(server)
    assert SECRETS["a JSON key"] in json.dumps(answer), "the block itself sees the true answer"

    text = path.read_text("utf-8")
    everything = json.dumps(yaml.safe_load(text))
    assert len(SECRETS) == 12
    left = [
        where for where, secret in SECRETS.items() if secret in text or json.dumps(secret)[1:-1] in everything
    ]
    assert left == []
    assert DIGITS[:12] not in everything.lower()
    assert "hunter2" not in everything, "headers of the answer"
    for kept in ("kept in arguments", "kept in the prompt", "kept in the answer", "alt=sse", SCRUBBED):
        assert kept in everything

    with use_cassette(path):
        send_all_secrets(server)


def test_a_cassette_recorded_with_a_key_replays_without_it(
    server: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_API_KEY", "the true key of one machine")
    with use_cassette(path, record_mode="rewrite"):
        post(server, {"api_key": "the true key of one machine"})
    monkeypatch.delenv("MODEL_API_KEY")
    with use_cassette(path):
        post(server, {"api_key": "none"})


def test_a_scrubber_of_ones_own_is_used(server: str, path: Path) -> None:
    with use_cassette(path, record_mode="rewrite", scrubber=Scrubber(secrets=frozenset({"Ada"}))):
        post(server, {"name": "Ada"})
    assert "Ada" not in path.read_text()
