"""MCP over streamable HTTP: access, limits, sessions, and clients that leave, over real sockets."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import httpx
import mcp
import pytest
from asgi_client import Exchange, Leaving
from clients.a2a_cast import payer
from clients.cast import Log, endless
from mcp_clients import BOTH, http_client, said_in
from scripted_agents import agent
from served_apps import listening
from starlette.applications import Starlette
from starlette.routing import Mount
from waiting import PATIENCE, eventually, until

from routelock import Agent, ConfigError, Request
from routelock.history.messages import text_of
from routelock.serving import MCP, ServeConfig, create_app
from routelock.testing import ScriptedHandler

pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")
SERVED = ServeConfig(mcp=MCP())
KEYED = replace(SERVED, api_keys={"one": [], "two": []})
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
ACCEPT = "application/json, text/event-stream"


def post(url: str, body: Any, key: str = "one", **headers: str) -> httpx.Response:
    sent = {"content-type": "application/json", "accept": ACCEPT, "authorization": f"Bearer {key}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(
        f"{url}/mcp", content=content, headers={**sent, **named}, timeout=PATIENCE, verify=False
    )


def calls(name: str, said: str = "Hi") -> dict[str, Any]:
    params = {"name": name, "arguments": {"input": said}}
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}


def test_mcp_is_off_by_default() -> None:
    with listening(create_app(agent("A"))) as url:
        assert post(url, HELLO).status_code == 404


def test_the_app_needs_agents_with_different_tool_names() -> None:
    with pytest.raises(ConfigError, match="are the same MCP tool"):
        create_app([agent("A b"), agent("a-b")], SERVED)


REFUSED: Mapping[str, tuple[dict[str, str], bytes, int, int, str]] = {
    # headers, the body, the status, the code of JSON-RPC, the reason
    "no key": ({"key": "wrong"}, b"{}", 401, -32000, "invalid_api_key"),
    "another host": ({"host": "evil.example"}, b"{}", 403, -32000, "host_not_allowed"),
    "a page of another host": ({"origin": "http://evil.example"}, b"{}", 403, -32000, "host_not_allowed"),
    "an origin that is none": ({"origin": "http://["}, b"{}", 403, -32000, "host_not_allowed"),
    "a page without an origin": ({"origin": "null"}, b"{}", 403, -32000, "host_not_allowed"),
    "another type": ({"content_type": "text/plain"}, b"{}", 415, -32600, "unsupported_media_type"),
    "too long": ({}, b'"' + b"x" * 2000 + b'"', 413, -32600, "body_too_large"),
    "no JSON": ({}, b"{", 400, -32700, "invalid_json"),
    "an id of another type": ({}, b'{"id": 1.5, "method": "ping"}', 400, -32600, "invalid_request"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refusal_is_a_json_rpc_error(why: str) -> None:
    headers, body, status, code, reason = REFUSED[why]
    settings = replace(KEYED, allowed_hosts=["127.0.0.1"], max_body=1000)
    with listening(create_app(agent("A"), settings)) as url:
        response = post(url, body, **headers)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["data"]["code"]) == (status, code, reason)
    assert error["data"]["requestId"] == response.headers["x-request-id"]


def test_a_page_of_this_host_is_answered() -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        assert post(url, HELLO, origin="http://localhost:6274").status_code == 200


def test_every_response_has_the_id_of_the_log() -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        assert post(url, HELLO).headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_address_may_end_in_a_slash(slash: str) -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        response = httpx.post(f"{url}/mcp{slash}", json=HELLO, headers={"accept": ACCEPT}, verify=False)
    assert response.status_code == 200


def test_a_session_belongs_to_the_key_that_began_it() -> None:
    with listening(create_app(agent("A", "Hi."), KEYED)) as url:
        session = post(url, HELLO).headers["mcp-session-id"]
        other = post(url, calls("a"), "two", mcp_session_id=session)
        own = post(url, calls("a"), mcp_session_id=session)
    assert (other.status_code, own.status_code) == (404, 200)
    assert '"text":"Hi."' in own.text


def opened(url: str, key: str = "one") -> str:
    """Open a session, and return its id."""
    response = post(url, HELLO, key)
    assert response.status_code == 200
    return response.headers["mcp-session-id"]


def is_open(url: str, session: str, key: str = "one") -> bool:
    ping = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    return post(url, ping, key, mcp_session_id=session).status_code == 200


def test_a_key_with_all_sessions_does_not_keep_others_out() -> None:
    """Its oldest one gives way; MCP's clients begin a new session when one is unknown."""
    with listening(create_app(agent("A"), replace(KEYED, max_pending=3))) as url:
        greedy = [opened(url) for _ in range(3)]
        mine = opened(url, "two")
        greedy += [opened(url) for _ in range(3)]
        assert [is_open(url, session) for session in greedy] == [False] * 4 + [True] * 2
        assert is_open(url, mine, "two")


def test_a_session_that_only_listens_gives_way_to_another_key() -> None:
    with listening(create_app(agent("A"), replace(KEYED, max_pending=1))) as url:
        headers = {"mcp-session-id": opened(url), "accept": ACCEPT, "authorization": "Bearer one"}
        with httpx.stream("GET", f"{url}/mcp", headers=headers, timeout=PATIENCE) as stream:
            opened(url, "two")
            assert not [line for line in stream.iter_lines() if line.startswith("data")], "it ends"


def test_an_ended_session_takes_no_place() -> None:
    with listening(create_app(agent("A"), replace(SERVED, max_pending=2))) as url:
        first, second = opened(url), opened(url)
        httpx.delete(f"{url}/mcp", headers={"mcp-session-id": second, "accept": ACCEPT}, timeout=PATIENCE)
        third = opened(url)
        assert [is_open(url, session) for session in (first, second, third)] == [True, False, True]


def test_a_client_ends_its_session() -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        session = post(url, HELLO).headers["mcp-session-id"]
        headers = {"mcp-session-id": session, "accept": ACCEPT}
        ended = httpx.delete(f"{url}/mcp", headers=headers, verify=False)
        assert (ended.status_code, post(url, calls("a"), mcp_session_id=session).status_code) == (200, 404)


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("mode", BOTH)
async def test_a_key_has_the_scopes_of_its_runs(mode: str) -> None:
    def repeat(request: Request) -> str:
        return text_of(request.messages[0])

    told = Agent("A", lambda context, agent: str(context.context), model=ScriptedHandler([repeat] * 2))
    keys = {"one": ["boss"], "two": []}
    settings = replace(SERVED, api_keys=keys, context=lambda request: [*request.scopes])
    texts: list[str] = []
    with listening(create_app(told, settings)) as url:
        for key in ("one", "two"):
            async with http_client(f"{url}/mcp", mode, key=key) as client:
                texts.append(said_in(await client.call_tool("a", {"input": "Hi"})))
    assert texts == ["['boss']", "[]"]


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("mode", BOTH)
async def test_a_call_that_is_cancelled_ends_its_run(mode: str) -> None:
    log, begun = Log(), threading.Event()

    async def tell(*progress: object) -> None:
        begun.set()

    with listening(create_app(endless(log), SERVED)) as url:
        async with http_client(f"{url}/mcp", mode) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(_call, client, tell)
                await until(begun.is_set)
                group.cancel_scope.cancel()
            await until(lambda: log.cancelled == ["Hi"])


async def _call(client: Any, tell: Any) -> None:
    await client.call_tool("endless", {"input": "Hi"}, progress_callback=tell)


@pytest.mark.asyncio_only
@pytest.mark.anyio
@pytest.mark.parametrize("mode", BOTH)
async def test_a_model_streams_only_for_a_client_that_asks_for_progress(mode: str) -> None:
    model = ScriptedHandler(["Hi.", "Hi."])
    told: list[str | None] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    with listening(create_app(Agent("A", model=model), SERVED)) as url:
        async with http_client(f"{url}/mcp", mode) as client:
            await client.call_tool("a", {"input": "Hi"})
            await client.call_tool("a", {"input": "Hi"}, progress_callback=tell)
    assert [request.stream for request in model.requests] == [False, True]
    assert told == ["A is active", "the model has replied"]


def test_a_connection_that_breaks_ends_its_run() -> None:
    """Nothing keeps the answer for a client of the older form that has lost its connection."""
    log = Log()
    with listening(create_app(endless(log), SERVED)) as url:
        session = post(url, HELLO).headers["mcp-session-id"]
        headers = {"mcp-session-id": session, "accept": ACCEPT, "content-type": "application/json"}
        body = json.dumps(calls("endless")).encode()
        with httpx.stream("POST", f"{url}/mcp", content=body, headers=headers, verify=False) as response:
            assert response.status_code == 200
        eventually(lambda: log.cancelled == ["Hi"])


class Strict(Leaving):
    """A client of a server that refuses what comes after the client has left."""

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert message["type"] == "http.response.start"
        await super()._send(message)


@pytest.mark.anyio
async def test_a_client_that_has_left_is_sent_nothing_more() -> None:
    app = create_app(agent("A"), SERVED)
    hello = await Exchange(HELLO).play(app, "/mcp", headers={"accept": ACCEPT})
    headers = {"accept": ACCEPT, "mcp-session-id": hello.headers["mcp-session-id"]}
    answer = await Strict(b"").play(app, "/mcp", method="GET", headers=headers)
    assert (answer.status, answer.body) == (200, b"")


def test_a_client_that_would_resume_a_stream_gets_a_new_one() -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        session = post(url, HELLO).headers["mcp-session-id"]
        headers = {"mcp-session-id": session, "accept": ACCEPT, "last-event-id": "7"}
        with httpx.stream("GET", f"{url}/mcp", headers=headers, verify=False) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("mode", BOTH)
async def test_a_server_that_ends_says_so(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    begun, errors = threading.Event(), list[str]()

    async def tell(*progress: object) -> None:
        begun.set()

    async def ask() -> None:
        async with http_client(f"{url}/mcp", mode) as client:
            with pytest.raises(mcp.MCPError) as raised:
                await _call(client, tell)
            errors.append(str(raised.value))

    with listening(create_app(endless(Log()), SERVED)) as url:
        group = anyio.create_task_group()
        await group.__aenter__()
        group.start_soon(ask)
        await until(begun.is_set)
    await group.__aexit__(None, None, None)
    assert errors == ["The server is shutting down."]
    assert any("503 shutting_down" in said for said in caplog.messages)


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("mode", BOTH)
async def test_a_mounted_app_needs_no_lifespan(mode: str) -> None:
    outer = Starlette(routes=[Mount("/agents", create_app(agent("A", "Hi."), SERVED))])
    with listening(outer) as url:
        async with http_client(f"{url}/agents/mcp", mode) as client:
            assert said_in(await client.call_tool("a", {"input": "Hi"})) == "Hi."


@pytest.mark.anyio
async def test_an_app_serves_in_one_event_loop_after_another() -> None:
    app = create_app(agent("A"), SERVED)
    headers = {"accept": ACCEPT, "content-type": "application/json", "host": "localhost"}
    statuses: list[int] = []

    def play() -> None:
        answer = anyio.run(lambda: Exchange(HELLO).play(app, "/mcp", headers=headers))
        statuses.append(answer.status)

    for _ in range(2):
        await anyio.to_thread.run_sync(play)
    assert statuses == [200, 200]


# -- decisions of the newer form --


def meta(**capabilities: Any) -> dict[str, Any]:
    prefix = "io.modelcontextprotocol/"
    return {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": capabilities}


def decide(url: str, key: str = "one", **more: Any) -> Any:
    body = calls("payer")
    body["params"] |= {"_meta": meta(elicitation={}), **more}
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "payer"}
    response = post(url, body, key, **headers)
    return response.json()


def test_a_run_waits_for_the_decision_of_its_own_caller_alone() -> None:
    paid: list[int] = []
    with listening(create_app(payer(paid), KEYED)) as url:
        asked = decide(url)["result"]
        answer = {"requestState": asked["requestState"], "inputResponses": {"pay": {"action": "accept"}}}
        other = decide(url, "two", **answer)
        changed = decide(url, arguments={"input": "More"}, **answer)
        own = decide(url, **answer)
        again = decide(url, **answer)
    assert asked["resultType"] == "input_required"
    for refused in (other, changed, again):
        assert refused["error"]["message"].startswith("The requestState is unknown or expired")
    assert own["result"]["content"][0]["text"] == "Then: paid"
    assert paid == [40]


def test_a_missing_decision_is_asked_for_again() -> None:
    paid: list[int] = []
    with listening(create_app(payer(paid), SERVED)) as url:
        asked = decide(url)["result"]
        again = decide(url, requestState=asked["requestState"], inputResponses={})["result"]
    assert (again["inputRequests"], paid) == (asked["inputRequests"], [])


def test_a_decision_that_found_no_place_may_be_sent_again() -> None:
    paid, log = list[int](), Log()
    settings = replace(SERVED, max_concurrent=1)
    with listening(create_app([payer(paid), endless(log)], settings)) as url:
        asked = decide(url)["result"]
        answer = {"requestState": asked["requestState"], "inputResponses": {"pay": {"action": "accept"}}}
        session = post(url, HELLO).headers["mcp-session-id"]
        headers = {"mcp-session-id": session, "accept": ACCEPT}
        with httpx.stream("POST", f"{url}/mcp", json=calls("endless"), headers=headers, verify=False):
            eventually(lambda: bool(log.begun))
            refused = decide(url, **answer)["result"]
        eventually(lambda: log.cancelled == ["Hi"])
        done = decide(url, **answer)["result"]
    assert refused["_meta"]["routelock/code"] == "too_many_requests"
    assert (done["content"][0]["text"], paid) == ("Then: paid", [40])


def test_two_requests_of_a_session_at_once_need_two_ids() -> None:
    log = Log()
    with listening(create_app([agent("A", "Hi."), endless(log)], KEYED)) as url:
        session = post(url, HELLO).headers["mcp-session-id"]
        headers = {"mcp-session-id": session, "accept": ACCEPT, "authorization": "Bearer one"}
        with httpx.stream("POST", f"{url}/mcp", json=calls("endless"), headers=headers, verify=False):
            eventually(lambda: bool(log.begun))
            again = post(url, calls("a"), mcp_session_id=session)
        eventually(lambda: log.cancelled == ["Hi"])
        after = post(url, calls("a"), mcp_session_id=session)
    assert (again.status_code, again.json()["error"]["message"]) == (
        400,
        "The session has another request with the id '2'. Give each request an id of its own.",
    )
    assert after.status_code == 200


def test_an_answer_that_is_no_decision_is_not_the_servers_fault(caplog: pytest.LogCaptureFixture) -> None:
    paid, said = list[int](), list[Any]()
    able = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}
    with listening(create_app(payer(paid), SERVED)) as url:
        session = post(url, able).headers["mcp-session-id"]
        headers = {"mcp-session-id": session, "accept": ACCEPT}
        with httpx.stream("POST", f"{url}/mcp", json=calls("payer"), headers=headers, verify=False) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: {"):
                    said.append(json.loads(line.removeprefix("data: ")))
                    if "method" in said[-1]:
                        answer = {"jsonrpc": "2.0", "id": said[-1]["id"], "result": {"action": "maybe"}}
                        post(url, answer, mcp_session_id=session)
    assert said[-1]["result"]["_meta"]["routelock/code"] == "approval_required"
    assert paid == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
