"""The routes of a served app, over real sockets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import httpx
import pydantic
import pytest
from asgi_client import asked
from served_apps import ask, deltas_of, events_of, post, served, text_in
from waiting import PATIENCE

from routelock import Agent, Request, Retry, RunConfig, RunContext, RunHooks, function_tool
from routelock.errors import AuthenticationFailed, ContextTooLong, GuardrailTripped, RateLimited, ServerFailed
from routelock.handlers.events import HandlerEvent, TextDelta
from routelock.serving import ServeConfig, ServedRequest, create_app
from routelock.testing import ScriptedHandler, call, reply


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}"


LOOKS = reply("One moment.", calls=[call("look_up", {"order": 1})])


def agent(*replies: Any, name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler(replies, name=name), **options)


def requests(of: Agent[Any]) -> Any:
    assert isinstance(of.model, ScriptedHandler)
    return of.model.requests


def test_a_whole_reply_has_the_form_of_openai() -> None:
    with served(agent(LOOKS, "It is here.", tools=[look_up])) as url:
        response = post(url, ask())
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "A"
    assert body["id"].startswith("chatcmpl-")
    assert isinstance(body["created"], int)
    choice = body["choices"][0]
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "One moment.\n\nIt is here."
    assert body["usage"]["total_tokens"] == 30, "of both model calls"


def test_a_stream_has_the_form_of_openai() -> None:
    with served(agent(LOOKS, "It is here.", tools=[look_up])) as url:
        events = events_of(post(url, ask(stream=True)))
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert {(chunk["object"], chunk["id"], chunk["model"]) for chunk in chunks} == {
        ("chat.completion.chunk", chunks[0]["id"], "A")
    }
    assert all(chunk["choices"][0]["index"] == 0 for chunk in chunks)
    assert deltas_of(chunks)[0]["role"] == "assistant"
    assert text_in(deltas_of(chunks)) == "One moment.\n\nIt is here."
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert finishes == [None] * (len(chunks) - 1) + ["stop"]


def test_usage_ends_a_stream_if_asked_for() -> None:
    with served(agent("Hi.")) as url:
        events = events_of(post(url, ask(stream=True, stream_options={"include_usage": True})))
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["prompt_tokens"] == 10


def test_lines_of_a_stream_are_ascii() -> None:
    """Some readers take U+2028 and its like for the end of a line."""
    text = "a\u2028b\u0085c\U0001f600 d"
    with served(agent(text)) as url:
        response = post(url, ask(stream=True))
    assert response.content.isascii()
    assert text_in(deltas_of(events_of(response))) == text


def test_half_of_a_character_breaks_no_stream() -> None:
    with served(agent("broken \ud83d end", "broken \ud83d end")) as url:
        assert text_in(deltas_of(events_of(post(url, ask(stream=True))))) == "broken \ufffd end"
        assert json.loads(post(url, ask()).text)["choices"][0]["message"]["content"] == "broken \ufffd end"


def test_a_base_url_works_with_and_without_v1() -> None:
    with served(agent("Hi.", "Hi.")) as url:
        for base in (url, url.removesuffix("/v1")):
            assert post(base, ask()).json()["choices"][0]["message"]["content"] == "Hi."
            assert httpx.get(f"{base}/models", timeout=PATIENCE).status_code == 200


def test_models_are_the_agents() -> None:
    with served([agent(name="Front desk"), agent(name="a/b")]) as url:
        listed = httpx.get(f"{url}/models", timeout=PATIENCE).json()
        one = httpx.get(f"{url}/models/a/b", timeout=PATIENCE).json()
        coded = httpx.get(f"{url}/models/Front%20desk", timeout=PATIENCE).json()
        missing = httpx.get(f"{url}/models/unknown", timeout=PATIENCE)
        slash = httpx.get(f"{url}/models/", timeout=PATIENCE).json()
    assert listed["object"] == "list"
    assert slash == listed
    assert [model["id"] for model in listed["data"]] == ["Front desk", "a/b"]
    assert set(listed["data"][0]) == {"id", "object", "created", "owned_by"}
    assert (one["id"], coded["id"], coded["object"]) == ("a/b", "Front desk", "model")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("model", ["B", "", "default", None])
def test_the_model_says_which_agent_answers(model: str | None) -> None:
    with served([agent("I am A.", name="A"), agent("I am B.", name="B")]) as url:
        body = post(url, ask(model=model)).json()
    expected = "B" if model == "B" else "A"
    assert body["choices"][0]["message"]["content"] == f"I am {expected}."
    assert body["model"] == expected


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with served(agent()) as url:
        response = post(url, ask(model="gpt-4o"))
    error = response.json()["error"]
    assert response.status_code == 404
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'A'" in error["message"]


def test_health_asks_for_no_key() -> None:
    with served(agent(), ServeConfig(api_keys=["k"])) as url:
        assert httpx.get(f"{url.removesuffix('/v1')}/health", timeout=PATIENCE).json() == {"status": "ok"}


def test_unknown_paths_and_methods_have_json_errors() -> None:
    with served(agent()) as url:
        lost, wrong = (
            httpx.post(f"{url}/completions", json={}, timeout=PATIENCE),
            httpx.get(f"{url}/chat/completions", timeout=PATIENCE),
        )
    assert (lost.status_code, lost.json()["error"]["code"]) == (404, "not_found")
    assert "There are /v1/chat/completions, /v1/responses and /v1/models" in lost.json()["error"]["message"]
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_400_also_when_streaming(stream: bool) -> None:
    with served(agent()) as url:
        response = post(url, {"messages": [{"role": "boss", "content": "x"}], "stream": stream})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert set(response.json()["error"]) == {"message", "type", "param", "code", "request_id"}


def test_broken_json_is_400() -> None:
    with served(agent()) as url:
        response = httpx.post(
            f"{url}/chat/completions",
            content=b'{"messages": [',
            headers={"content-type": "application/json"},
            timeout=PATIENCE,
        )
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


ONCE = ServeConfig(run_config=RunConfig(retry=Retry(attempts=1)))

ERRORS = [
    (RateLimited("secret", retry_after=7.2), 429, "rate_limit_exceeded"),
    (AuthenticationFailed("secret", status=401), 502, "upstream_auth"),
    (ContextTooLong("secret"), 400, "context_length_exceeded"),
    (GuardrailTripped("secret"), 400, "guardrail_tripped"),
    (ValueError("secret"), 500, "handler_failed"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
def test_an_error_before_the_first_byte_has_a_status(
    error: Exception, status: int, code: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is told what kind it is, the log everything, both under one id."""
    caplog.set_level("INFO", "routelock.serving")
    with served(agent(error), ONCE) as url:
        response = post(url, ask(stream=stream))
    body = response.json()["error"]
    assert (response.status_code, body["code"]) == (status, code)
    assert "secret" not in response.text
    assert response.headers["x-request-id"] == body["request_id"]
    assert body["request_id"] in caplog.text
    assert "secret" in caplog.text
    assert response.headers.get("retry-after") == ("7" if status == 429 else None)


def test_an_error_in_mid_stream_is_the_last_event() -> None:
    """No finish reason and no [DONE]: clients raise, and none takes the text for an answer."""
    failing = [{"choices": [{"delta": {"content": "Half"}}]}, ValueError("secret")]
    with served(agent(failing)) as url:
        events = events_of(post(url, ask(stream=True)))
    assert text_in(deltas_of(events)) == "Half"
    assert set(events[-1]) == {"error"}
    assert events[-1]["error"]["code"] == "handler_failed"
    assert "secret" not in json.dumps(events)
    assert not [e for e in events[:-1] if e["choices"][0]["finish_reason"]]


async def slowly(request: Request) -> AsyncGenerator[HandlerEvent]:
    await anyio.sleep(0.3)
    yield TextDelta("At last.")


async def slowly_failing(request: Request) -> str:
    await anyio.sleep(0.3)
    raise ValueError("secret")


def test_silence_is_filled_with_comments() -> None:
    """Proxies close what says nothing. A comment is no chunk: the first of those has the role."""
    app = create_app(agent(slowly), ServeConfig(ping=0.05))
    response = asked(app, "/chat/completions", ask(stream=True), virtual=True)
    assert response.text.startswith(": ping\n\n")
    deltas = deltas_of(events_of(response))
    assert deltas[0]["role"] == "assistant"
    assert text_in(deltas) == "At last."


def test_an_error_after_a_comment_is_an_event() -> None:
    app = create_app(agent(slowly_failing), ServeConfig(ping=0.05))
    response = asked(app, "/chat/completions", ask(stream=True), virtual=True)
    assert response.status == 200
    assert [set(event) for event in events_of(response)] == [{"error"}]


def test_a_handler_outside_the_scopes_of_the_key_is_forbidden() -> None:
    model = ScriptedHandler(["Hi."])
    object.__setattr__(model, "scope", "admin")
    config = ServeConfig(api_keys={"k1": (), "k2": "admin"})
    with served(Agent("A", handlers=[model]), config) as url:
        closed, opened = (post(url, ask(), authorization=f"Bearer {key}") for key in ("k1", "k2"))
    assert (closed.status_code, closed.json()["error"]["code"]) == (403, "scope_denied")
    assert opened.status_code == 200


def test_a_failed_run_with_tool_calls_must_not_be_retried() -> None:
    """OpenAI's clients repeat every 5xx by themselves: the tools would run twice."""
    limited = RateLimited("x")
    with served(agent(limited, LOOKS, limited, tools=[look_up]), ONCE) as url:
        idle, acted = post(url, ask()), post(url, ask())
    assert (idle.status_code, acted.status_code) == (429, 429)
    assert "x-should-retry" not in idle.headers
    assert acted.headers["x-should-retry"] == "false"


class Order(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize("stream", [False, True])
def test_an_output_type_makes_the_content_json(stream: bool) -> None:
    typed = agent('{"number": 7}', name="B", output_type=Order)
    first = agent(reply("Let me hand you over.", calls=[call("transfer_to_b")]), handoffs=[typed])
    with served(first) as url:
        response = post(url, ask(stream=stream))
        content = (
            text_in(deltas_of(events_of(response)))
            if stream
            else response.json()["choices"][0]["message"]["content"]
        )
    assert json.loads(content) == {"number": 7}


def test_the_context_is_made_from_the_request() -> None:
    seen: list[Any] = []

    @function_tool
    def note(context: RunContext[ServedRequest]) -> str:
        """Note."""
        seen.append(context)
        return "ok"

    config = ServeConfig(
        api_keys={"key-1": ["owner"], "key-2": ["admin"]},
        context=lambda request: request,
        run_config=RunConfig(shared_memory={"shop": 7}),
    )
    with served(agent(call("note"), "Done.", tools=[note]), config) as url:
        body = ask(user="u-1", handoff_context={"hops": 2, "session": "s"})
        post(url, body, authorization="Bearer key-2", traceparent="00-1-2-03", cookie="c", x_chat="7")
    [context] = seen
    about = context.context
    assert (about.model, about.user, about.scopes) == ("A", "u-1", frozenset(["admin"]))
    assert about.handoff_context == {"hops": 2, "session": "s", "traceparent": "00-1-2-03"}
    assert about.headers["x-chat"] == "7"
    assert not {"authorization", "cookie"} & about.headers.keys()
    assert about.principal == hashlib.sha256(b"key-2").hexdigest()[:16]
    assert "key-2" not in repr(about)
    assert context.scopes == frozenset(["admin"])
    assert context.shared_memory == {"shop": 7, "handoff_origin": about.handoff_context}


def test_a_run_has_no_context_unless_one_is_made() -> None:
    seen: list[Any] = []

    @function_tool
    def note(context: RunContext[Any]) -> str:
        """Note."""
        seen.append((context.context, context.shared_memory))
        return "ok"

    with served(agent(call("note"), "Done.", tools=[note])) as url:
        post(url, ask())
    assert seen == [(None, {})]


def test_the_apps_own_hooks_and_retries_hold() -> None:
    class Seen(RunHooks):
        turns = 0

        async def on_llm_start(self, *about: Any) -> None:
            self.turns += 1

    failing = [{"choices": [{"delta": {"content": "Half"}}]}, ServerFailed("x")]
    hooks, config = Seen(), RunConfig(retry=Retry(mid_stream=True, first_delay=0))
    with served(agent(failing, "Whole."), ServeConfig(hooks=hooks, run_config=config)) as url:
        events = events_of(post(url, ask(stream=True)))
    assert hooks.turns == 1
    assert "error" in events[-1], "what a client was shown cannot be taken back and said anew"
    assert text_in(deltas_of(events)) == "Half"


def test_a_failing_context_function_is_the_servers_fault() -> None:
    def fail(request: ServedRequest) -> None:
        raise ValueError("secret")

    with served(agent("Hi."), ServeConfig(context=fail)) as url:
        response = post(url, ask())
    assert (response.status_code, "secret" in response.text) == (500, False)


def test_settings_of_the_client_do_not_reach_the_model() -> None:
    mine = agent("Hi.", model_settings={"temperature": 0.1})
    with served(mine) as url:
        post(url, ask(temperature=2, max_tokens=1, tool_choice="auto", seed=7))
    assert requests(mine)[0].settings == {"temperature": 0.1}


def test_messages_reach_the_agent_as_they_were_sent() -> None:
    mine = agent("Hi.", instructions="Be kind.")
    parts = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = [
        {"role": "system", "content": "From the app."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": parts},
    ]
    with served(mine) as url:
        assert post(url, {"messages": messages}).status_code == 200
    shown = list(requests(mine)[0].messages)
    assert shown[0] == {"role": "system", "content": "Be kind."}
    assert shown[1:] == messages


def test_a_limit_has_a_code_of_its_own() -> None:
    with served(agent(LOOKS, LOOKS, tools=[look_up]), ServeConfig(max_turns=1)) as url:
        response = post(url, ask())
    assert (response.status_code, response.json()["error"]["code"]) == (500, "max_turns_exceeded")
    assert response.headers["x-should-retry"] == "false"


def test_too_many_hops_are_refused() -> None:
    with served(agent("Hi.")) as url:
        assert post(url, ask(handoff_context={"hops": 8})).status_code == 200
        response = post(url, ask(handoff_context={"hops": 9}))
    assert (response.status_code, response.json()["error"]["code"]) == (508, "too_many_hops")
    assert response.headers["x-should-retry"] == "false"
