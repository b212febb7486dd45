"""Access control: keys, hosts, content types, sizes of bodies, and slots."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx
import pytest
from asgi_client import asked
from served_apps import ask, events_of, post, served
from waiting import PATIENCE

from routelock import Agent, ConfigError, Request, RunConfig
from routelock.handlers.events import TextDelta
from routelock.serving import ServeConfig, create_app
from routelock.serving.auth import AccessControl, is_loopback
from routelock.serving.errors import Refusal
from routelock.testing import ScriptedHandler


def agent(*replies: Any) -> Agent[Any]:
    return Agent("A", model=ScriptedHandler(replies))


@pytest.mark.parametrize(
    "header",
    [{}, {"authorization": "Bearer"}, {"authorization": "Bearer wrong"}, {"authorization": "Basic k1"}],
)
@pytest.mark.parametrize("path", ["/models", "/models/A", "/chat/completions"])
def test_without_a_key_nothing_is_answered(header: dict[str, str], path: str) -> None:
    mine = agent("Hi.")
    with served(mine, ServeConfig(api_keys=["k1"])) as url:
        method = "POST" if path.endswith("completions") else "GET"
        response = httpx.request(method, url + path, json=ask(), headers=header, timeout=PATIENCE)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert isinstance(mine.model, ScriptedHandler)
    assert not mine.model.requests


@pytest.mark.parametrize("value", ["Bearer k1", "bearer k1", "Bearer  k2"])
def test_any_of_the_keys_opens(value: str) -> None:
    with served(agent("Hi."), ServeConfig(api_keys=["k1", "k2"])) as url:
        assert post(url, ask(), authorization=value).status_code == 200


def test_each_key_has_its_scopes_and_is_known_by_a_digest() -> None:
    access = AccessControl(ServeConfig(api_keys={"k1": ["owner"], "k2": "admin", "k3": ()}))
    one, two, three = (access.authenticate(f"Bearer {key}") for key in ("k1", "k2", "k3"))
    assert (one.scopes, two.scopes, three.scopes) == ({"owner"}, {"admin"}, frozenset())
    assert len({one.name, two.name, three.name}) == 3
    assert "k1" not in one.name


def test_keys_without_scopes_have_those_of_the_app() -> None:
    config = RunConfig(scopes=["owner"])
    assert AccessControl(ServeConfig(api_keys=["k"], run_config=config)).authenticate("Bearer k").scopes == {
        "owner"
    }
    assert AccessControl(ServeConfig(run_config=config)).authenticate("").scopes == {"owner"}


def test_keys_of_any_script_are_compared() -> None:
    access = AccessControl(ServeConfig(api_keys=["schlüssel"]))
    assert access.authenticate("Bearer schlüssel")
    with pytest.raises(Refusal):
        access.authenticate("Bearer schl\udcc3ssel")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"api_keys": "secret"}, r"\[token\]"),
        ({"api_keys": []}, "empty"),
        ({"api_keys": {}}, "empty"),
        ({"api_keys": [""]}, "empty"),
        ({"api_keys": {"": ["admin"]}}, "empty"),
        ({"allowed_hosts": "example.com"}, "list"),
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": None}, "timeout must be more than 0, not None"),
        ({"max_hops": -1}, "max_hops"),
        ({"max_hops": "8"}, "max_hops must be 0 or more, not '8'"),
        ({"max_turns": 0}, "max_turns must be at least 1, or None for no limit, not 0"),
        ({"max_turns": "10"}, "max_turns"),
        ({"api_keys": ["secret\n"]}, "white space"),
        ({"api_keys": {" secret": []}}, "white space"),
        ({"api_keys": [7]}, "tokens"),
        ({"api_keys": 7}, "tokens"),
    ],
)
def test_wrong_access_settings_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ServeConfig(**options)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:80", "[::1]:8000", "app.localhost:1", "127.9.9.9", "LOCALHOST."]
)
def test_without_keys_the_app_answers_for_this_machine(host: str) -> None:
    AccessControl(ServeConfig()).check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost:1.evil.example",
        "127.0.0.1:80@evil.example",
        "[::1].evil.example",
        "[::1]evil.example",
        "[::1]:80.evil.example",
        "[::1",
        "[]",
        "10.0.0.1",
        "[::]",
        "[::1%evil.example]",
        "::1%evil.example",
    ],
)
def test_without_keys_a_foreign_name_is_refused(host: str) -> None:
    """A page that lets its own name point to loopback (DNS rebinding) cannot reach the app."""
    with pytest.raises(Refusal, match="403"):
        AccessControl(ServeConfig()).check_host(host)


def test_the_host_is_checked_over_the_wire() -> None:
    with served(agent("Hi.")) as url:
        response = post(url, ask(), host="evil.example")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "host_not_allowed")


def test_with_keys_any_name_will_do() -> None:
    AccessControl(ServeConfig(api_keys=["k"])).check_host("agents.example")


def test_names_can_be_allowed() -> None:
    access = AccessControl(ServeConfig(api_keys=["k"], allowed_hosts=["Agents.example"]))
    access.check_host("agents.example:443")
    with pytest.raises(Refusal):
        access.check_host("localhost")
    AccessControl(ServeConfig(allowed_hosts=["*"])).check_host("anything")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_loopback_is_known_by_name_and_address(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback("0.0.0.0")


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain;application/json",
    ],
)
def test_a_form_of_a_web_page_runs_nothing(content_type: str) -> None:
    """Browsers send these to any address without asking it first (CSRF)."""
    with served(agent("Hi.")) as url:
        response = httpx.post(
            f"{url}/chat/completions",
            content=json.dumps(ask()),
            headers={"content-type": content_type},
            timeout=PATIENCE,
        )
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_json_with_a_charset_is_json() -> None:
    with served(agent("Hi.")) as url:
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        assert (
            httpx.post(
                f"{url}/chat/completions", content=json.dumps(ask()), headers=headers, timeout=PATIENCE
            ).status_code
            == 200
        )


def test_no_page_of_another_site_may_read_answers() -> None:
    with served(agent("Hi.")) as url:
        response = post(url, ask(), origin="https://evil.example")
        preflight = httpx.options(
            f"{url}/chat/completions", headers={"origin": "https://evil.example"}, timeout=PATIENCE
        )
    assert not [name for name in (*response.headers, *preflight.headers) if name.startswith("access-control")]
    assert preflight.status_code == 405


@pytest.mark.parametrize("size", [1_000_000, 3_000_000])
def test_a_megabyte_is_taken_if_it_is_allowed(size: int) -> None:
    mine = agent("Hi.")
    with served(mine, ServeConfig(max_body=size + 1000)) as url:
        assert post(url, ask("x" * size)).status_code == 200
    assert isinstance(mine.model, ScriptedHandler)
    assert len(str(mine.model.requests[0].messages[0].get("content"))) == size


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [1001, 1_000_000])
def test_a_body_that_is_too_long_is_refused_however_it_is_sent(size: int, chunked: bool) -> None:
    """The received bytes are counted, because a chunked body declares no length."""
    body = json.dumps(ask("x" * size)).encode()
    pieces = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    with served(agent("Hi."), ServeConfig(max_body=1000)) as url:
        content: Any = pieces if chunked else body
        response = httpx.post(
            f"{url}/chat/completions",
            content=content,
            headers={"content-type": "application/json"},
            timeout=PATIENCE,
        )
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


def test_a_client_that_declares_less_than_it_sends_gains_nothing() -> None:
    """The rest is another request to HTTP, and no good one."""
    body = json.dumps(ask("x" * 5000)).encode()
    with served(agent("Hi."), ServeConfig(max_body=1000)) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), PATIENCE) as connection:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address.netloc}\r\n"
            head += "content-type: application/json\r\ncontent-length: 900\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert connection.recv(100).startswith(b"HTTP/1.1 400")


class Gate:
    """A model that answers when it is told to."""

    name = "gate"

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    async def wait(self, request: Request) -> str:
        self.entered.release()
        await anyio.to_thread.run_sync(self.open.wait, PATIENCE, abandon_on_cancel=True)
        return "Hi."


@pytest.mark.parametrize("stream", [False, True])
def test_one_request_too_many_is_refused_at_once(stream: bool) -> None:
    gate = Gate()
    mine = agent(*[gate.wait] * 4)
    statuses: list[int] = []
    with served(mine, ServeConfig(max_concurrent=2)) as url:

        def client() -> None:
            statuses.append(post(url, ask(stream=stream)).status_code)

        waiting = [threading.Thread(target=client) for _ in range(2)]
        for thread in waiting:
            thread.start()
            assert gate.entered.acquire(timeout=PATIENCE)
        refused = post(url, ask(stream=stream))
        listed = httpx.get(f"{url}/models", timeout=PATIENCE)
        gate.open.set()
        for thread in waiting:
            thread.join(PATIENCE)
        after = post(url, ask())
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
    assert refused.headers["retry-after"] == "1"
    assert listed.status_code == 200, "the list of models needs no slot"
    assert statuses == [200, 200]
    assert after.status_code == 200, "the slots are free again"


def test_a_failed_request_gives_its_place_back() -> None:
    with served(agent(ValueError(), ValueError(), "Hi."), ServeConfig(max_concurrent=1)) as url:
        assert post(url, ask()).status_code == 500
        assert post(url, ask(stream=True)).status_code == 500
        assert post(url, {}).status_code == 400
        assert post(url, ask()).status_code == 200


def test_a_run_that_takes_too_long_is_ended() -> None:
    async def never(request: Request) -> str:
        await anyio.sleep_forever()
        return ""

    app = create_app(agent(never), ServeConfig(timeout=0.1))
    response = asked(app, "/chat/completions", ask(), virtual=True)
    assert (response.status, response.json()["error"]["code"]) == (504, "timeout")
    assert response.headers["x-should-retry"] == "false"


def test_a_stream_that_times_out_ends_with_an_error() -> None:
    async def half(request: Request) -> Any:
        yield TextDelta("Half")
        await anyio.sleep_forever()

    app = create_app(agent(half), ServeConfig(timeout=1.0))
    events = events_of(asked(app, "/chat/completions", ask(stream=True), virtual=True))
    assert events[-1]["error"]["code"] == "timeout"
    assert "Half" in str(events[:-1])
