"""Requests from elsewhere are refused, and every response has security headers."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import httpx
import pytest
from asgi_client import Exchange, Leaving
from dev_page import Page, dev_page, settings_of

from routelock import Agent
from routelock.serving.dev import create_dev_app
from routelock.testing import ScriptedHandler


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with dev_page(Agent("a", model=ScriptedHandler(["Hi."] * 20))) as found:
        yield found


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.168.1.5:8001", ""])
@pytest.mark.parametrize("path", ["/", "/static/app.js", "/traces/x"])
def test_it_answers_under_a_name_of_this_machine_only(page: Page, host: str, path: str) -> None:
    """Any site can let a name of its own point to loopback (DNS rebinding)."""
    assert page.client.get(path, headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8001", "127.0.0.1", "[::1]:8001"])
def test_names_of_this_machine_will_do(page: Page, host: str) -> None:
    assert page.client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"])
def test_another_origin_may_ask_nothing(page: Page, origin: str) -> None:
    assert page.post("/talks", origin=origin).status_code == 403
    assert page.client.get("/", headers={"origin": origin}).status_code == 403


def test_its_own_origin_may(page: Page) -> None:
    assert page.post("/talks", origin=page.url).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_embedded_by_another_site_is_refused(page: Page, site: str) -> None:
    assert page.client.get("/static/app.js", headers={"sec-fetch-site": site}).status_code == 403


@pytest.mark.parametrize("token", ["", "wrong", "\xe4"])
def test_without_the_token_nothing_is_changed(page: Page, token: str) -> None:
    named = [(b"x-routelock-token", token.encode("latin-1"))] if token else []
    response = page.client.post("/talks", json={}, headers=named)
    assert (response.status_code, "Reload" in response.json()["error"]) == (403, True)


def test_a_form_of_a_web_page_changes_nothing(page: Page) -> None:
    headers = {**page.headers, "content-type": "text/plain"}
    assert page.client.post("/talks", content="{}", headers=headers).status_code == 415


def test_two_pages_have_two_tokens() -> None:
    agent = Agent("a", model=ScriptedHandler([]))
    with dev_page(agent) as one, dev_page(agent) as other:
        assert one.settings["token"] != other.settings["token"]
        one.headers = other.headers
        assert one.post("/talks").status_code == 403


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/static/nothing.js", "/nothing", "/traces/x"])
def test_every_answer_forbids_scripts_and_styles_from_elsewhere(page: Page, path: str) -> None:
    headers = page.client.get(path).headers
    parts = [part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")]
    policy = {part[0]: part[1] for part in parts}
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in str(policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control")]


def test_a_refusal_has_the_same_headers(page: Page) -> None:
    refused = page.client.get("/", headers={"host": "evil.example"})
    assert "default-src 'none'" in refused.headers["content-security-policy"]


def test_nothing_is_kept_by_the_browser(page: Page) -> None:
    response = page.client.get("/")
    assert response.headers.get_list("cache-control") == ["no-store"]


def test_a_body_that_is_too_long_is_refused(page: Page) -> None:
    conversation = page.begin()
    try:
        response = page.post(f"/talks/{conversation}/messages", {"text": "x" * (2 * 2**20)})
    except httpx.TransportError:
        pytest.fail("it was cut off without an answer")
    assert response.status_code == 413


@pytest.mark.anyio
async def test_a_page_that_is_reloaded_during_a_run_is_no_error_of_the_server() -> None:
    """The server would print a traceback for it."""
    model = ScriptedHandler([lambda request: anyio.sleep_forever()])
    app = create_dev_app(Agent("a", model=model))
    headers = {"host": "127.0.0.1", "content-type": "application/json"}
    index = await Exchange(b"").play(app, "/", method="GET", headers=headers)
    headers["x-routelock-token"] = settings_of(index.text)["token"]
    begun = await Exchange({}).play(app, "/talks", headers=headers)
    path = f"/talks/{begun.json()['id']}/messages"
    answer = await Leaving({"text": "Hi"}).play(app, path, headers=headers)
    assert (answer.status, answer.has_end) == (200, False)
