"""Any request gets a response in the form of its protocol, and never an internal error.

The apps are asked without a socket, so that much can be tried; nothing between the two would make it easier.
"""

from __future__ import annotations

import html
import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import asgi_client
import pytest
from asgi_client import Answer
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples
from waiting import PATIENCE

from routelock import Agent, Request, function_handler, function_tool
from routelock.history.messages import text_of
from routelock.serving import A2A, MCP, ServeConfig, create_app
from routelock.serving.dev import create_dev_app
from routelock.testing import assert_valid, watch_requests


def asked(app: Any, path: str, body: bytes, **options: Any) -> Answer:
    """Ask an app. A part of a kind that no vendor has is passed on: it is the client's."""
    return asgi_client.asked(app, path, body, before=lambda: watch_requests(None), **options)


async def echo(request: Request) -> str:
    """Answer as a provider would that takes only what is valid, and repeat what was said."""
    assert_valid(list(request.messages))
    json.dumps([*request.messages], ensure_ascii=False).encode("utf-8")  # as it would go on the wire
    json.dumps([*request.tools], ensure_ascii=False).encode("utf-8")
    return f"You said: {text_of(request.messages[-1])}"[:2000]


@function_tool
def look_up(order: int) -> str:
    """Look up."""
    return "a lamp"


@pytest.fixture(scope="module")
def app() -> Any:
    agent = Agent("echo", "Repeat.", handlers=[function_handler(echo)], tools=[look_up])
    return create_app([agent, Agent("other", handlers=[function_handler(echo)])], ServeConfig(a2a=A2A()))


@pytest.fixture(scope="module")
def mcp_app() -> Any:
    pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")
    agent = Agent("echo", "Repeat.", handlers=[function_handler(echo)], tools=[look_up])
    return create_app(agent, ServeConfig(mcp=MCP()))


# -- what is sent --

NUMBERS = ["1e999", "-1e999", "NaN", "Infinity", "-0.0", "1" * 400, "1" * 5000, "1e308", "0.1e-400"]
HALF = "\ud83d"
TEXTS = st.one_of(
    st.text(max_size=6),
    st.text(st.characters(categories=["Cs", "Cc", "Cf", "Ll"]), max_size=6),
    st.sampled_from(
        [
            "",
            " ",
            HALF,
            f"x{HALF}",
            "\x00",
            "\u2028",
            "\ufeff",
            "a" * 300,
            "__proto__",
            "../..",
            "tool",
            "user",
        ]
    ),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.sampled_from([2**63, -(2**63) - 1, 10**30, 1e308]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
DEEP = st.sampled_from([5, 100, 900, 5_000, 100_000])


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all that is in a value."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _places(each, (*path, index))


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy


@st.composite
def changed(draw: st.DrawFn, body: Any) -> bytes:
    """A sound request in which something is replaced, added, or of another type, as bytes."""
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(_places(body))))
        body = _with(body, path, draw(VALUES))
    if isinstance(body, dict) and draw(st.booleans()):
        body = {**body, draw(TEXTS): draw(VALUES)}
    text = json.dumps(body)
    if draw(st.integers(0, 4)) == 0:  # what Python writes is escaped; raw text may be anything
        text = json.dumps(body, ensure_ascii=False)
    place = draw(st.integers(0, 9))
    if place == 0:
        text = text.replace("7", draw(st.sampled_from(NUMBERS)))
    elif place == 1:
        depth = draw(DEEP)
        text = text.replace('"Hi"', "[" * depth + "]" * depth).replace(
            '"Hello"', '{"a":' * depth + "1" + "}" * depth
        )
    return text.encode("utf-8", "surrogatepass")


RAW = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"",
            b"null",
            b"[]",
            b"[[]]",
            b"{}",
            b'"x"',
            b"7",
            b"true",
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{\x00}\x00",
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"messages": [' * 3,
            b'"' + b"\\ud800" * 1000 + b'"',
            b"1" * 100_000,
            b'{"a": 1, "a": 2}',
            b"\x00" * 100,
        ]
    ),
)


def sent(body: Any) -> st.SearchStrategy[bytes]:
    return st.one_of(changed(body), changed(body), changed(body), RAW)


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "open_door", "description": "Hello", "parameters": {"type": "object"}},
}
CALL = {"id": "c7", "type": "function", "function": {"name": "look_up", "arguments": '{"order": 7}'}}
CHAT = {
    "model": "echo",
    "messages": [
        {"role": "system", "content": "Hello"},
        {"role": "user", "content": "Hi", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c7", "content": "Hello"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ],
    "stream": False,
    "stream_options": {"include_usage": True},
    "n": 1,
    "tools": [TOOL],
    "tool_choice": "auto",
    "user": "ann",
    "handoff_context": {"hops": 7, "session": "Hello"},
}


def is_chat_answer(answer: Answer) -> None:
    body = answer.body.decode()
    circles = answer.status == 508 and "too_many_hops" in body
    assert answer.status == 200 or 400 <= answer.status < 500 or circles, (answer.status, body)
    if answer.status == 200 and body.startswith("data: "):
        events = [each.removeprefix("data: ") for each in body.split("\n\n") if each]
        assert events[-1] == "[DONE]", events[-1]
        assert all("choices" in json.loads(each) for each in events[:-1])
        return
    parsed = answer.json()
    if answer.status == 200:
        assert parsed["choices"][0]["finish_reason"]
        return
    error = parsed["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert {"type", "code", "param"} <= error.keys()
    assert len(body) < 4000, "an error is a sentence"


@given(data=st.data())
@examples(150)
def test_chat_completions_answer_whatever_is_sent(app: Any, data: st.DataObject) -> None:
    body = data.draw(sent({**CHAT, "stream": data.draw(st.booleans())}))
    is_chat_answer(asked(app, "/v1/chat/completions", body))


RESPONSE: dict[str, Any] = {
    "model": "echo",
    "input": [
        {"role": "system", "content": "Hello"},
        {"type": "reasoning", "id": "r7", "summary": []},
        {"type": "function_call", "call_id": "c7", "name": "look_up", "arguments": '{"order": 7}'},
        {"type": "function_call_output", "call_id": "c7", "output": "Hello"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Hi"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    ],
    "instructions": "Hello",
    "previous_response_id": None,
    "tools": [{**TOOL["function"], "type": "function"}],
    "tool_choice": "auto",
    "max_output_tokens": 7,
    "text": {"format": {"type": "text"}},
    "metadata": {"a": "Hi"},
    "handoff_context": {"hops": 7},
}


@given(data=st.data())
@examples(60)
def test_the_responses_api_answers_whatever_is_sent(app: Any, data: st.DataObject) -> None:
    stream = data.draw(st.booleans())
    answer = asked(app, "/v1/responses", data.draw(sent({**RESPONSE, "stream": stream})))
    body = answer.body.decode()
    if answer.status == 200 and body.startswith("event: "):
        events = [json.loads(each.partition("\ndata: ")[2]) for each in body.split("\n\n")[:-2]]
        assert [event["sequence_number"] for event in events] == [*range(len(events))]
        assert events[-1]["type"] == "response.completed"
    elif answer.status == 200:
        assert answer.json()["status"] == "completed"
    else:
        assert 400 <= answer.status < 500 or "too_many_hops" in body, (answer.status, body)
        assert {"message", "type", "code", "param"} <= answer.json()["error"].keys()
        assert len(body) < 4000, "an error is a sentence"


MCP_PREFIX = "io.modelcontextprotocol/"
MCP_CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "tools/call",
    "params": {
        "name": "echo",
        "arguments": {"input": "Hi"},
        "_meta": {
            f"{MCP_PREFIX}protocolVersion": "2026-07-28",
            f"{MCP_PREFIX}clientCapabilities": {"elicitation": {"form": {}}},
            "progressToken": 7,
        },
    },
}
AGAIN = {"requestState": "Hello", "inputResponses": {"Hi": {"action": "accept", "content": {"a": 7}}}}
MCP_BODIES: list[dict[str, Any]] = [
    MCP_CALL,
    {**MCP_CALL, "params": {**MCP_CALL["params"], **AGAIN}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "Hi"}},
]


@given(data=st.data(), body=st.sampled_from(MCP_BODIES))
@examples(60)
def test_mcp_answers_whatever_is_sent(mcp_app: Any, data: st.DataObject, body: dict[str, Any]) -> None:
    headers = {"accept": "*/*", "mcp-protocol-version": "2026-07-28", "mcp-method": body["method"]}
    answer = asked(
        mcp_app,
        "/mcp",
        data.draw(sent(body)),
        headers={**headers, "mcp-name": body["params"].get("name", "")},
    )
    said = answer.body.decode()
    assert answer.status in (200, 202) or 400 <= answer.status < 500, (answer.status, said)
    assert "internal_error" not in said
    if answer.status == 202:
        return
    lines = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")]
    assert all(json.loads(each)["jsonrpc"] == "2.0" for each in lines or [said])


HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "content-type",
            "content-length",
            "host",
            "authorization",
            "traceparent",
            "a2a-version",
            "accept",
            "x-odd",
            "a2a-extensions",
        ]
    ),
    st.one_of(
        st.text(st.characters(max_codepoint=255), max_size=12),
        st.sampled_from(
            [
                "-1",
                "0",
                "1" * 50,
                "1e9",
                "\xb2",
                "application/json; charset=utf-16",
                "Bearer",
                "Bearer \xff",
                "[::1",
                "9.9",
                "0.3",
            ]
        ),
    ),
    max_size=3,
)


@given(headers=HEADERS)
@examples(100)
def test_chat_completions_answer_under_any_headers(app: Any, headers: dict[str, str]) -> None:
    is_chat_answer(asked(app, "/v1/chat/completions", json.dumps(CHAT).encode(), headers=headers))


@given(name=TEXTS, method=st.sampled_from(["GET", "POST", "DELETE", "HEAD", "OPTIONS", "X"]))
@examples(60)
@pytest.mark.parametrize("where", ["/v1/models/", "/", "/v1/", "/a2a/", "/.well-known/"])
def test_any_address_is_answered(app: Any, where: str, name: str, method: str) -> None:
    answer = asked(app, where + name, b"{}", method=method)
    assert answer.status < 500
    assert answer.status == 200 or answer.body == b"" or "error" in answer.json()


PARTS = [
    {"text": "Hi"},
    {"data": {"a": 7}, "mediaType": "application/json"},
    {"raw": "aGVsbG8=", "mediaType": "image/png", "filename": "Hello"},
]
MESSAGE = {
    "messageId": "m7",
    "role": "ROLE_USER",
    "contextId": "Hello",
    "parts": PARTS,
    "metadata": {"a": "Hi"},
    "referenceTaskIds": ["t7"],
}
CALLS: Mapping[str, Any] = {
    "SendMessage": {
        "message": MESSAGE,
        "configuration": {"historyLength": 7, "acceptedOutputModes": ["text/plain"]},
    },
    "SendStreamingMessage": {"message": MESSAGE},
    "GetTask": {"id": "t7", "historyLength": 7},
    "ListTasks": {"pageSize": 7, "pageToken": "Hi", "contextId": "Hello", "status": "TASK_STATE_WORKING"},
    "CancelTask": {"id": "t7"},
    "SubscribeToTask": {"id": "t7"},
    "GetExtendedAgentCard": {},
    "message/send": {
        "message": {
            "kind": "message",
            "messageId": "m7",
            "role": "user",
            "parts": [{"kind": "text", "text": "Hi"}],
        }
    },
    "message/stream": {
        "message": {
            "kind": "message",
            "messageId": "m7",
            "role": "user",
            "parts": [{"kind": "text", "text": "Hi"}],
        }
    },
    "tasks/get": {"id": "t7"},
    "tasks/cancel": {"id": "t7"},
}


def is_a2a_answer(answer: Answer) -> None:
    body = answer.body.decode()
    assert answer.status == 200 or 400 <= answer.status < 500, (answer.status, body)
    if answer.status == 200 and (body.startswith(("data: ", "event: "))):
        replies = [
            json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")
        ]
        assert replies
    else:
        replies = [answer.json()]
    for reply in replies:
        assert reply["jsonrpc"] == "2.0"
        assert isinstance(reply["id"], str | int | None)
        assert ("result" in reply) != ("error" in reply)
        if "error" in reply:
            assert isinstance(reply["error"]["code"], int)
            assert reply["error"]["code"] != -32603, f"the server takes it for a failure of its own: {reply}"
            assert len(json.dumps(reply["error"])) < 4000, "an error is a sentence"


@given(data=st.data(), method=st.sampled_from(sorted(CALLS)))
@examples(250)
def test_a2a_answers_whatever_is_sent(app: Any, data: st.DataObject, method: str) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": data.draw(st.sampled_from([7, "i7", HALF])),
        "method": method,
        "params": CALLS[method],
    }
    raw = data.draw(sent(body))
    version = "0.3" if "/" in method else "1.0"
    is_a2a_answer(asked(app, "/a2a/echo", raw, headers={"a2a-version": version}))


@given(headers=HEADERS)
@examples(100)
def test_a2a_answers_under_any_headers(app: Any, headers: dict[str, str]) -> None:
    body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": CALLS["SendMessage"]}
    is_a2a_answer(asked(app, "/a2a/echo", json.dumps(body).encode(), headers=headers))


# -- much of it --


def _call(call_id: str) -> dict[str, Any]:
    return {**CALL, "id": call_id}


def _tool(call_id: str, content: Any = "x") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _calls(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [_call(each) for each in ids]}


PIECES = [{"type": "text", "text": str(number)} for number in range(50_000)]
LARGE: Mapping[str, tuple[int, list[dict[str, Any]]]] = {
    "parts": (200, [{"role": "user", "content": PIECES * 4}]),
    "messages": (200, [{"role": "user", "content": "x" * 400}] * 19_000),
    "calls of one id": (200, [_calls(*["c"] * 1000) for _ in range(60)]),
    "turns of one id": (200, [_calls("c"), _tool("c")] * 9_000),
    "answers before their calls": (200, [_tool("c")] * 9_000 + [_calls("c")] * 9_000),
    "answers of many parts": (200, [_calls("c"), _tool("c", PIECES), _tool("c", PIECES)]),
    "answers the other way round": (
        200,
        [_calls(*map(str, range(1000))), *map(_tool, map(str, range(999, -1, -1)))],
    ),
    "calls in one message": (400, [_calls(*["c"] * 1025)]),
}


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Fail, and do not hang, where something takes for ever without a pause."""

    def ring(number: int, frame: Any) -> None:
        raise AssertionError(f"it took more than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", LARGE)
def test_large_requests_take_linear_time(what: str) -> None:
    """It takes time that grows with what is sent, and not with its square, which would be many minutes."""
    status, messages = LARGE[what]

    async def answer(request: Request) -> str:
        return "Yes."

    app = create_app(Agent("echo", handlers=[function_handler(answer)]))
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}, *messages]}).encode()
    with _within(PATIENCE):
        assert asked(app, "/v1/chat/completions", body).status == status


def test_a2a_takes_no_more_than_its_reader_can(app: Any) -> None:
    """The protocol's SDK needs some ten microseconds for each value, several times over."""
    message = {**MESSAGE, "parts": [{"text": "x"}] * 60_000}
    body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": message}}
    answer = asked(app, "/a2a/echo", json.dumps(body).encode(), headers={"a2a-version": "1.0"})
    assert (answer.status, answer.json()["error"]["code"]) == (413, -32600)


# -- the dev page --


@pytest.fixture(scope="module")
def page() -> Any:
    """The app of the page, its token, and a conversation with which things can be done."""
    app = create_dev_app([Agent("echo", handlers=[function_handler(echo)], tools=[look_up])])
    index = html.unescape(asked(app, "/", b"", method="GET").body.decode())
    token = json.loads(
        re.findall(r"content='(\{.*?\})'", index.replace('content="{', "content='{").replace('}">', "}'>"))[0]
    )["token"]
    return app, {"x-routelock-token": token}


RECORDS = [
    {
        "type": "run_start",
        "run": "r7",
        "time": 7,
        "format": 1,
        "agent": "echo",
        "input_count": 1,
        "agents": [
            {
                "name": "echo",
                "handlers": ["echo"],
                "tools": ["look_up"],
                "handoffs": [{"tool_name": "Hello", "target": "b"}],
            }
        ],
    },
    {
        "type": "item",
        "run": "r7",
        "time": 7,
        "id": 0,
        "kind": "input",
        "message": {"role": "user", "content": "Hi"},
    },
    {
        "type": "model_start",
        "run": "r7",
        "time": 7,
        "call": 1,
        "agent": "echo",
        "handler": "echo",
        "shown": [[0, 0]],
    },
    {"type": "model_end", "run": "r7", "time": 7, "call": 1, "item": 1},
    {
        "type": "item",
        "run": "r7",
        "time": 7,
        "id": 1,
        "kind": "model",
        "message": {"role": "assistant", "content": "Hello"},
    },
    {
        "type": "run_end",
        "run": "r7",
        "time": 7,
        "stop_reason": "done",
        "output": "Hello",
        "last_agent": "echo",
    },
]
PAGES: Mapping[str, Any] = {
    "/talks": {"agent": "echo"},
    "/talks/{id}/messages": {"text": "Hi"},
    "/talks/{id}/messages?": {"words": [{"approve": True, "message": "Hello"}]},
    "/talks/{id}/stop": {},
    "/talks/nothing/messages": {"text": "Hi"},
    "/graph": RECORDS[0],
    "/test": {"records": RECORDS},
}


@given(data=st.data(), path=st.sampled_from(sorted(PAGES)))
@examples(250)
def test_the_dev_page_answers_whatever_is_sent(page: Any, data: st.DataObject, path: str) -> None:
    app, headers = page
    talk = asked(app, "/talks", b"{}", headers=headers).json()["id"]
    answer = asked(app, path.rstrip("?").format(id=talk), data.draw(sent(PAGES[path])), headers=headers)
    body = answer.body.decode()
    assert answer.status == 200 or 400 <= answer.status < 500, (answer.status, body)
    if answer.status != 200:
        assert answer.json()["error"]
        assert len(body) < 4000, "an error is a sentence"
    elif path.startswith("/talks/") and "messages" in path:
        lines = [
            json.loads(each.removeprefix("data: "))
            for each in body.split("\n\n")
            if each.startswith("data: ")
        ]
        assert lines[-1]["type"] == "end"
    else:
        answer.json()
