"""The routes of A2A over real sockets: cards, access, errors, and stored conversations."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from a2a_calls import SERVED, ask, post, rpc, task_of, text_of, told
from asgi_client import asked
from clients.a2a_cast import parrot, payer
from clients.cast import Log, endless
from scripted_agents import agent, requests
from served_apps import listening
from waiting import PATIENCE

from routelock import Agent, ConfigError, Retry, RunConfig, RunContext, function_tool
from routelock.errors import ServerFailed
from routelock.serving import A2A, ServeConfig, ServedRequest, create_app
from routelock.sessions import Session, SQLiteSessions
from routelock.testing import ScriptedHandler, call

pytest.importorskip("a2a")
CARD = "/.well-known/agent-card.json"


# -- cards --


def test_the_first_agent_is_the_one_of_the_host() -> None:
    team = [agent("A B/ü", handoff_description="Knows it."), agent("C")]
    with listening(create_app(team, SERVED)) as url:
        first, second = (httpx.get(url + path + CARD, timeout=PATIENCE).json() for path in ("", "/a2a/C"))
        answered = ask(first["supportedInterfaces"][0]["url"])
    assert (first["name"], first["description"]) == ("A B/ü", "Knows it.")
    assert second["supportedInterfaces"][0]["url"] == f"{url}/a2a/C"
    assert "result" in answered, "whatever the name, its address works"


def test_a_card_tells_how_to_ask_and_nothing_of_the_inside() -> None:
    secret = Agent("A", "The secret plan.", model=ScriptedHandler([]), tools=[look_up])
    settings = ServeConfig(api_keys=["k"], a2a=A2A(url="https://agents.example.com/x/", version="7"))
    with listening(create_app(secret, settings)) as url:
        response = httpx.get(url + CARD, timeout=PATIENCE)
    card = response.json()
    assert [each["url"] for each in card["supportedInterfaces"]] == ["https://agents.example.com/x/a2a/A"] * 2
    assert [each["protocolVersion"] for each in card["supportedInterfaces"]] == ["1.0", "0.3"]
    assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
    assert card["version"] == "7"
    assert "secret" not in response.text
    assert "look_up" not in response.text


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}"


def test_a2a_is_off_by_default() -> None:
    with listening(create_app(agent("A"))) as url:
        assert httpx.get(url + CARD, timeout=PATIENCE).status_code == 404
        assert post(f"{url}/a2a/A", b"{}").status_code == 404


# -- who is let in --


REFUSED: Mapping[str, tuple[str, dict[str, Any], int, int, str]] = {
    # where, what is sent, the status, the code of JSON-RPC, the reason
    "no key": ("A", {"key": "wrong"}, 401, -32000, "INVALID_API_KEY"),
    "another host": ("A", {"host": "evil.example"}, 403, -32000, "HOST_NOT_ALLOWED"),
    "no such agent": ("unknown", {}, 404, -32000, "MODEL_NOT_FOUND"),
    "too long": ("A", {"body": b'"' + b"x" * 2000 + b'"'}, 413, -32600, "BODY_TOO_LARGE"),
    "another type": ("A", {"content-type": "text/plain"}, 415, -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refusal_is_a_json_rpc_error(why: str) -> None:
    """Also what does not come as far as the protocol's SDK: clients read an integer as the code."""
    where, sent, status, code, reason = REFUSED[why]
    settings = replace(SERVED, api_keys=["k"], allowed_hosts=["127.0.0.1"], max_body=1000)
    with listening(create_app(agent("A"), settings)) as url:
        response = post(f"{url}/a2a/{where}", **{"body": b"{}", "key": "k", **sent})
    body = response.json()
    assert (response.status_code, body["jsonrpc"], body["id"]) == (status, "2.0", None)
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    [about] = body["error"]["data"]
    assert about["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (about["reason"], about["metadata"]) == (reason, {"requestId": response.headers["x-request-id"]})


def test_cards_are_refused_as_pages_are() -> None:
    settings = replace(SERVED, api_keys=["k"], allowed_hosts=["127.0.0.1"])
    with listening(create_app(agent("A"), settings)) as url:
        elsewhere = httpx.get(url + CARD, headers={"host": "evil.example"}, timeout=PATIENCE)
        unknown = httpx.get(f"{url}/a2a/unknown{CARD}", timeout=PATIENCE)
    assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (403, "host_not_allowed")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("name", ["A", "A/", "/", "A/B"])
@pytest.mark.parametrize("slash", ["", "/", "//"])
def test_an_address_may_end_in_a_slash(name: str, slash: str) -> None:
    """The protocol's own conformance kit asks so."""
    with listening(create_app([agent(name, "Hi."), agent("other")], SERVED)) as url:
        address = httpx.get(f"{url}/a2a/{quote(name, safe='')}{slash}{CARD}", timeout=PATIENCE).json()["url"]
        answered = ask(address + slash)
    assert text_of(task_of(answered)) == "Hi."


@pytest.mark.parametrize("path", ["/a2a/", "/a2a//"])
def test_the_first_agent_answers_without_a_name(path: str) -> None:
    with listening(create_app([agent("A", "Hi."), agent("B")], SERVED)) as url:
        assert text_of(task_of(ask(url + path))) == "Hi."


@pytest.mark.parametrize(
    ("options", "repeated"),
    [
        ({}, True),
        ({"api_keys": ["k"]}, False),
        ({"api_keys": ["k"], "allowed_hosts": ["*"]}, False),
        ({"api_keys": ["k"], "allowed_hosts": ["app.localhost"]}, True),
    ],
)
def test_a_card_repeats_no_host_that_a_client_made_up(options: dict[str, Any], repeated: bool) -> None:
    """Its address is where other clients send their keys."""
    with listening(create_app(agent("A"), replace(SERVED, **options))) as url:
        card = httpx.get(url + CARD, headers={"host": "app.localhost:81"}, timeout=PATIENCE).json()
    base = "http://app.localhost:81" if repeated else url
    assert {each["url"] for each in card["supportedInterfaces"]} == {f"{base}/a2a/A"}


@pytest.mark.parametrize("server", [("::1", 8000), ("/run/app.sock", None), None])
def test_a_card_has_the_address_of_the_socket(server: Any) -> None:
    app = create_app(agent("A"), replace(SERVED, api_keys=["k"]))
    card = json.loads(anyio.run(_asked, app, CARD, server))
    assert card["url"] == {"::1": "http://[::1]:8000/a2a/A"}.get(
        (server or ("",))[0], "http://localhost/a2a/A"
    )


async def _asked(app: Any, path: str, server: Any) -> bytes:
    """Ask an app without a socket, as an ASGI server does."""
    got: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        got.append(message.get("body", b""))

    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"x")], "server": server}
    await app({**scope, "query_string": b"", "root_path": "", "scheme": "http"}, receive, send)
    return b"".join(got)


def test_a_card_may_be_kept_for_a_while() -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        one, two = (httpx.get(url + CARD, timeout=PATIENCE).headers for _ in range(2))
    assert one["cache-control"] == "max-age=300"
    assert one["etag"] == two["etag"]


@pytest.mark.parametrize(
    ("header", "told", "status"),
    [
        ("if-none-match", "{etag}", 304),
        ("if-none-match", '"other", W/{etag}', 304),
        ("if-none-match", "*", 304),
        ("if-none-match", '"other"', 200),
        ("if-modified-since", "{last-modified}", 304),
        ("if-modified-since", "Sat, 01 Jan 2000 00:00:00 GMT", 200),
        ("if-modified-since", "yesterday", 200),
    ],
)
def test_a_card_that_a_client_has_is_not_sent_again(header: str, told: str, status: int) -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        first = httpx.get(url + CARD, timeout=PATIENCE)
        sent = {header: told.format(**first.headers)}
        second = httpx.get(url + CARD, headers=sent, timeout=PATIENCE)
    assert (second.status_code, bool(second.content)) == (status, status == 200)
    assert second.headers["etag"] == first.headers["etag"]
    assert second.headers["cache-control"] == first.headers["cache-control"]


def test_a_changed_tag_counts_more_than_the_time() -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        since = httpx.get(url + CARD, timeout=PATIENCE).headers["last-modified"]
        sent = {"if-none-match": '"other"', "if-modified-since": since}
        assert httpx.get(url + CARD, headers=sent, timeout=PATIENCE).status_code == 200


@pytest.mark.parametrize(
    "url", ["agents.example.com", "ftp://x", "//x", "https://", "", "https:///x", "http://x y", "https://x?y"]
)
def test_the_address_of_an_app_is_a_whole_one(url: str) -> None:
    with pytest.raises(ConfigError, match=r"such as 'https://agents\.example\.com'"):
        A2A(url=url)


def test_tasks_belong_to_one_caller() -> None:
    settings = ServeConfig(api_keys=["k1", "k2"], a2a=A2A())
    with listening(create_app(parrot(), settings)) as base:
        url = f"{base}/a2a/parrot"
        mine = task_of(ask(url, "mine", key="k1"))
        theirs = task_of(ask(url, "theirs", key="k2", contextId=mine["contextId"]))
        found = rpc(url, {"method": "GetTask", "params": {"id": mine["id"]}}, key="k2")
        stopped = rpc(url, {"method": "CancelTask", "params": {"id": mine["id"]}}, key="k2")
        listed = rpc(url, {"method": "ListTasks", "params": {}}, key="k2")["result"]["tasks"]
    assert text_of(theirs) == "theirs", "the same name of a context is another conversation"
    assert (found["error"]["code"], stopped["error"]["code"]) == (-32001, -32001)
    assert [task["id"] for task in listed] == [theirs["id"]]


def test_the_scopes_of_a_key_and_the_conversation_reach_the_run() -> None:
    seen: list[Any] = []

    @function_tool
    def look(context: RunContext[ServedRequest]) -> str:
        about = context.context
        secret = about.headers.get("authorization")
        seen.append((sorted(context.scopes), about.model, secret, about.principal))
        return "seen"

    settings = ServeConfig(api_keys={"k": ["boss"]}, context=lambda about: about, a2a=A2A())
    with listening(create_app(agent("A", call("look"), "Done.", tools=[look]), settings)) as url:
        assert text_of(task_of(ask(f"{url}/a2a/A", key="k"))) == "Done."
    scopes, model, secret, principal = seen[0]
    assert (scopes, model, secret) == (["boss"], "A", None)
    assert principal not in ("", "k", "anonymous")


# -- requests that are none --


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{nonsense", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "Nothing"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 7}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": ""}}', -32602),
    ],
)
def test_an_invalid_request_is_a_protocol_error(body: bytes, code: int) -> None:
    mine = agent("A", "Hi.")
    with listening(create_app(mine, SERVED)) as url:
        response = post(f"{url}/a2a/A", body)
    assert (response.status_code, response.json()["error"]["code"]) == (200, code)
    assert "x-request-id" in response.headers
    assert not requests(mine)


def test_an_error_quotes_little_of_a_long_request() -> None:
    """The SDK quotes all names that it does not know."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "1" * 5_000: 1})
    with listening(create_app(agent("A", "Hi."), SERVED)) as url:
        response = post(f"{url}/a2a/A", body.encode())
    assert response.json()["error"]["code"] == -32600
    assert len(response.text) < 2_000


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([{"url": "http://169.254.169.254/secret", "mediaType": "image/png"}], "content_not_supported"),
        ([{}], "content_not_supported"),
    ],
)
def test_parts_for_no_model_are_rejected(parts: Any, code: str) -> None:
    mine = agent("A", "Hi.")
    with listening(create_app(mine, SERVED)) as url:
        state, told_code, _ = told(task_of(ask(f"{url}/a2a/A", parts)))
    assert (state, told_code) == ("REJECTED", code)
    assert not requests(mine)


def test_an_endless_name_of_a_context_is_rejected() -> None:
    with listening(create_app(agent("A", "Hi."), SERVED)) as url:
        assert told(task_of(ask(f"{url}/a2a/A", contextId="x" * 300)))[0] == "REJECTED"


def test_a_message_may_have_data_and_files() -> None:
    mine = agent("A", "Seen.")
    parts = [
        {"text": "Look."},
        {"data": {"order": 7}},
        {"raw": "aGk=", "mediaType": "image/png"},
        {"raw": "aGk=", "mediaType": "text/csv", "filename": "a.csv"},
    ]
    with listening(create_app(mine, SERVED)) as url:
        assert text_of(task_of(ask(f"{url}/a2a/A", parts))) == "Seen."
    assert requests(mine)[0].messages[-1].get("content") == [
        {"type": "text", "text": "Look."},
        {"type": "text", "text": '{"order": 7}'},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv;base64,aGk="}},
    ]


def test_half_of_a_character_is_replaced() -> None:
    """Models have split what JSON writes as two escapes, and the SDK takes no half of a pair."""
    with listening(create_app(agent("A", "a\ud83d b"), SERVED)) as url:
        task = task_of(ask(f"{url}/a2a/A"))
    assert (told(task)[0], text_of(task)) == ("COMPLETED", "a\ufffd b")


# -- runs that do not end well --


@pytest.mark.parametrize(
    ("reply", "state", "code"),
    [
        (RuntimeError("secret"), "FAILED", "handler_failed"),
        (ServerFailed("secret"), "FAILED", "upstream_error"),
    ],
)
def test_an_error_says_nothing_of_the_inside(reply: Exception, state: str, code: str) -> None:
    settings = replace(SERVED, run_config=RunConfig(retry=Retry(attempts=1)))
    with listening(create_app(agent("A", reply, reply, reply), settings)) as url:
        answer = ask(f"{url}/a2a/A")
    assert told(task_of(answer))[:2] == (state, code)
    assert "secret" not in json.dumps(answer)
    assert task_of(answer)["metadata"]["requestId"].startswith("req_")


def test_a_run_that_takes_too_long_fails() -> None:
    log = Log()
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    app = create_app(endless(log), replace(SERVED, timeout=0.5))
    answer = asked(app, "/a2a/endless", body, headers={"a2a-version": "1.0"}, virtual=True)
    state, code, text = told(task_of(answer.json()))
    assert (state, code) == ("FAILED", "timeout")
    assert "0.5 seconds" in text
    assert log.cancelled == ["Hi"]


def test_a_full_server_rejects_one_run_only() -> None:
    log = Log()
    team = [endless(log), parrot()]
    with listening(create_app(team, replace(SERVED, max_concurrent=1))) as url:
        configuration = {"configuration": {"returnImmediately": True}}
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
        params = {"message": message, **configuration}
        running = task_of(rpc(f"{url}/a2a/endless", {"method": "SendMessage", "params": params}))
        refused = told(task_of(ask(f"{url}/a2a/parrot")))
        rpc(f"{url}/a2a/endless", {"method": "CancelTask", "params": {"id": running["id"]}})
        again = told(task_of(ask(f"{url}/a2a/parrot")))
    assert refused[:2] == ("REJECTED", "too_many_requests")
    assert again[0] == "COMPLETED"


def test_callers_may_not_approve_by_default() -> None:
    paid: list[int] = []
    with listening(create_app(payer(paid), SERVED)) as url:
        task = task_of(ask(f"{url}/a2a/payer"))
        again = ask(f"{url}/a2a/payer", "yes", taskId=task["id"])
    assert told(task)[:2] == ("REJECTED", "approval_required")
    assert "error" in again
    assert paid == []


def test_a_task_that_waits_for_approval_can_be_cancelled() -> None:
    paid: list[int] = []
    with listening(create_app(payer(paid), replace(SERVED, a2a=A2A(approvals=True)))) as base:
        url = f"{base}/a2a/payer"
        task = task_of(ask(url))
        done = rpc(url, {"method": "CancelTask", "params": {"id": task["id"]}})
        late = ask(url, "yes", taskId=task["id"])
    assert (task["status"]["state"], done["result"]["status"]["state"]) == (
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_CANCELED",
    )
    assert "error" in late
    assert paid == []


def test_a_client_cannot_answer_for_a_context_that_went_on() -> None:
    """Its user has said something else meanwhile, so the calls of the first task wait no more."""
    paid: list[int] = []
    with listening(create_app(payer(paid), replace(SERVED, a2a=A2A(approvals=True)))) as url:
        first = task_of(ask(f"{url}/a2a/payer"))
        ask(f"{url}/a2a/payer", "Something else.", contextId=first["contextId"])
        late = task_of(ask(f"{url}/a2a/payer", "yes", taskId=first["id"], contextId=first["contextId"]))
    assert told(late)[:2] == ("REJECTED", "not_waiting")
    assert paid == []


# -- what is kept --


def test_a_conversation_outlives_the_server_where_there_is_a_store(tmp_path: Path) -> None:
    store = SQLiteSessions(tmp_path / "chats.db")
    settings = ServeConfig(api_keys=["k"], a2a=A2A(sessions=store))
    texts: list[str] = []
    for word in ("one", "two"):
        with listening(create_app(parrot(), settings)) as url:
            texts.append(text_of(task_of(ask(f"{url}/a2a/parrot", word, key="k", contextId="c"))))
    assert texts == ["one", "one|two"]


def test_a_failing_store_leaks_no_text() -> None:
    class Broken:
        async def load(self, session: str, *, newest: int | None = None) -> Any:
            raise OSError("secret disk")

        async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
            raise OSError("secret disk")

    with listening(create_app(parrot(), replace(SERVED, a2a=A2A(sessions=Broken())))) as url:
        answer = ask(f"{url}/a2a/parrot")
    assert told(task_of(answer))[:2] == ("FAILED", "session_failed")
    assert "secret" not in json.dumps(answer)


# -- version 0.3 --


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"method": "message/send", "params": {"message": {"parts": []}}}, -32602),
        ({"method": "message/send"}, -32602),
        ({"method": "message/send", "params": {}, "id": {}}, -32600),
        ({"method": "message/send", "params": {}, "jsonrpc": "1.0"}, -32600),
        ({"method": "message/nothing", "params": {}}, -32601),
    ],
)
def test_an_invalid_request_of_version_0_3_has_the_code_of_its_fault(body: dict[str, Any], code: int) -> None:
    with listening(create_app(agent("A"), SERVED)) as url:
        assert rpc(f"{url}/a2a/A", body, version="0.3")["error"]["code"] == code


def test_an_app_may_speak_the_newest_version_only() -> None:
    """A client that checks cards by the schema of 1.0 refuses the fields of 0.3."""
    with listening(create_app(parrot(), replace(SERVED, a2a=A2A(versions=("1.0",))))) as url:
        card = httpx.get(url + CARD, timeout=PATIENCE).json()
        old = rpc(f"{url}/a2a/parrot", {"method": "message/send", "params": {}}, version="0.3")
        new = ask(f"{url}/a2a/parrot")
    assert [each["protocolVersion"] for each in card["supportedInterfaces"]] == ["1.0"]
    assert card.keys().isdisjoint({"url", "protocolVersion", "preferredTransport"})
    assert "error" in old
    assert text_of(task_of(new)) == "Hi"


@pytest.mark.parametrize("versions", [(), ("0.3",), ("2.0", "1.0"), "1.0"])
def test_other_versions_are_an_error(versions: Any) -> None:
    with pytest.raises(ConfigError, match="versions must be"):
        A2A(versions=versions)


def test_clients_of_version_0_3_are_answered_too() -> None:
    message = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "Hi"}]}
    with listening(create_app(parrot(), SERVED)) as url:
        body = {"method": "message/send", "params": {"message": message}}
        task = rpc(f"{url}/a2a/parrot", body, version="0.3")["result"]
        kept = rpc(f"{url}/a2a/parrot", {"method": "tasks/get", "params": {"id": task["id"]}}, version="0.3")
        streamed = post(
            f"{url}/a2a/parrot",
            json.dumps({"jsonrpc": "2.0", "id": 1, **body, "method": "message/stream"}).encode(),
            version="0.3",
        )
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "Hi"}]
    assert kept["result"]["artifacts"] == task["artifacts"]
    lines = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line.startswith("data: ")]
    last = json.loads(lines[-1])["result"]
    assert (last["kind"], last["status"]["state"], last["final"]) == ("status-update", "completed", True)


# -- many at once --


def test_clients_at_once_do_not_get_one_anothers_answers() -> None:
    answers: dict[int, str] = {}

    def client(number: int, url: str) -> None:
        answers[number] = text_of(task_of(ask(url, f"I am {number}.")))

    with listening(create_app(parrot(), SERVED)) as url:
        threads = [threading.Thread(target=client, args=(each, f"{url}/a2a/parrot")) for each in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert answers == {number: f"I am {number}." for number in range(12)}


def test_wrong_a2a_settings_are_errors() -> None:
    with pytest.raises(ConfigError, match="A2A"):
        ServeConfig(a2a=True)  # type: ignore[arg-type]


def test_clients_cannot_reach_sessions_of_the_app(tmp_path: Path) -> None:
    """A client that chooses the name of its context does not get at a session that the app has."""
    store = SQLiteSessions(tmp_path / "chats.db")
    with listening(create_app(parrot(), replace(SERVED, a2a=A2A(sessions=store)))) as url:
        names = ["user-7", '", "other", "x', "../user-7"]
        texts = [text_of(task_of(ask(f"{url}/a2a/parrot", "Hi", contextId=name))) for name in names]
        kept = anyio.run(Session("user-7", store).load)
    assert texts == ["Hi"] * 3
    assert not kept.messages
