"""A remote agent: requests, replies and whole runs, before answers of respx."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
from answers import Answers
from pydantic import BaseModel
from remote_agents import BOTH, WEATHER, agent_at, answer, ask, failure, host_of, request
from servers import (
    HELLO,
    HELLO_STREAM,
    SSE,
    USAGE,
    Reply,
    Server,
    chunk,
    event,
    failed,
    refused_url,
    said,
    streamed,
)

from routelock import Agent, Handler, Message, Retry, RunConfig, RunContext, Runner, function_tool, handoff
from routelock.errors import ConfigError, IncompleteResponse, ServerFailed, UnreadableResponse
from routelock.handlers.events import MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import OutputSchema, Priority, Request, family_of
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage
from routelock_providers import RemoteAgent
from routelock_providers.remote import UrlNotAllowed

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

CALLS = {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "weather"}}]}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# What comes back


@BOTH
async def test_an_answer(watched: bool) -> None:
    with Answers(HELLO_STREAM if watched else HELLO) as server:
        *deltas, done = await ask(server.url, request(stream=watched))
    assert deltas == ([TextDelta("Hel"), TextDelta("lo")] if watched else [])
    assert done == MessageDone(
        message={"role": "assistant", "content": "Hello"},
        usage=Usage(requests=1, input_tokens=5, output_tokens=7),
        finish_reason="stop",
        model="m-1",
        response_id="r1",
    )


@BOTH
async def test_a_server_that_streams_all_or_nothing(watched: bool) -> None:
    with Answers(HELLO if watched else HELLO_STREAM) as server:
        done = await answer(server.url, request(stream=watched))
    assert done.message.get("content") == "Hello"


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/octet-stream"])
async def test_a_stream_under_a_wrong_name(kind: str) -> None:
    with Answers(Reply(HELLO_STREAM.pieces, content_type=kind)) as server:
        events = await ask(server.url, request(stream=True))
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo")]


@BOTH
async def test_the_side_channel_does_not_get_into_the_message(watched: bool) -> None:
    """routelock's own server says with x_agent who speaks; other servers say other things."""
    deltas = [
        {"role": "assistant", "content": "", "x_agent": {"agent": "Refunds"}},
        {"content": "Hello", "x_event": "e"},
    ]
    reply = streamed(*map(chunk, deltas), chunk({}, finish="stop", x_run="r"))
    whole = said({"content": "Hello", "x_agent": {"agent": "Refunds"}}, x_run="r")
    with Answers(reply if watched else whole) as server:
        done = await answer(server.url, request(stream=watched))
    assert done.message == {"role": "assistant", "content": "Hello"}


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize(
    "more",
    [{"name": 7}, {"name": "a b"}, {"tool_call_id": "c"}, {"refusal": {"a": 1}}, {"_origin": "openai"}],
    ids=lambda more: str(*more),
)
async def test_keys_that_no_reply_has_are_dropped(watched: bool, more: Any) -> None:
    reply = streamed(chunk({"content": "Hello", **more}, finish="stop"))
    with Answers(reply if watched else said({"content": "Hello", **more}), HELLO) as server:
        done = await answer(server.url, request(stream=watched))
        async with agent_at(server.url) as remote:
            history = [{"role": "user", "content": "Hi"}, done.message, {"role": "user", "content": "More"}]
            await Runner.run(Agent("A", model=remote), cast("list[Message]", history))
        assert server.requests[1].body["messages"] == history
    assert done.message == {"role": "assistant", "content": "Hello"}


async def test_reasoning_is_shown() -> None:
    reply = streamed(chunk({"reasoning_content": "hm"}), chunk({"content": "Hi"}, finish="stop"))
    with Answers(reply) as server:
        events = await ask(server.url, request(stream=True))
    assert events[:2] == [ReasoningDelta("hm"), TextDelta("Hi")]


@pytest.mark.parametrize("usage", [{"prompt_tokens": -5, "completion_tokens": 1}, {"prompt_tokens": "5"}])
async def test_impossible_usage_is_not_counted(usage: Any) -> None:
    """A negative number would give the run back a budget that it has spent."""
    with Answers(said({"content": "Hi"}, usage=usage)) as server:
        done = await answer(server.url)
    assert done.usage is not None
    assert done.usage.estimated
    assert done.usage.total_tokens < 20


# What goes out


async def test_the_body() -> None:
    asked = request(
        stream=True,
        messages=[
            {"role": "system", "content": "secret"},
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": "secret"},
        ],
        tools=[WEATHER],
        tool_choice="required",
        settings={"temperature": 0, "extra_body": {"a": 1}, "extra_headers": {"x-a": "1"}},
        output_schema=OutputSchema("city", {"type": "object"}),
        turn=3,
    )
    with Answers(HELLO_STREAM) as server:
        await ask(server.url, asked)
    assert server.requests[0].body == {
        "model": "default",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "handoff_context": {"run_id": "run-1", "agent": "A", "turn": 3, "hops": 1},
    }
    assert "x-a" not in server.requests[0].headers


async def test_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's settings in the environment and the library's headers about the machine are not sent."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-secret: 1")
    monkeypatch.setenv("OPENAI_BASE_URL", refused_url())
    with Server(HELLO) as server:
        await ask(server.url)
    assert server.requests[0].path == "/v1/chat/completions"
    assert {
        name: value for name, value in server.requests[0].headers.items() if name != "content-length"
    } == {
        "host": host_of(server),
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "connection": "keep-alive",
        "content-type": "application/json",
        "user-agent": "routelock",
        "x-routelock-run-id": "run-1",
    }


@pytest.mark.parametrize("end", ["", "/", "/chat/completions", "/chat/completions/"])
async def test_the_path_is_completed_once(end: str) -> None:
    with Answers(HELLO) as server:
        await ask(f"{server.url}{end}?v=1&w=%20")
    assert server.requests[0].path == "/v1/chat/completions?v=1&w=%20"


async def test_settings_that_can_be_passed() -> None:
    asked = request(messages=[{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}])
    options: Any = {"api_key": "k", "headers": {"X-Team": "t"}, "settings": {"temperature": 1}, "model": "m"}
    with Answers(HELLO) as server:
        await ask(server.url, asked, pass_instructions=True, **options)
    sent = server.requests[0]
    assert [message["role"] for message in sent.body["messages"]] == ["system", "user"]
    assert (sent.body["temperature"], sent.body["model"]) == (1, "m")
    assert (sent.headers["authorization"], sent.headers["x-team"]) == ("Bearer k", "t")


async def test_schema_in_settings_is_sent() -> None:
    with Answers(HELLO) as server:
        await ask(server.url, settings={"response_format": {"type": "json_object"}, "extra_body": {"a": 1}})
    body = server.requests[0].body
    assert (body["response_format"], body["a"], body["handoff_context"]["hops"]) == (
        {"type": "json_object"},
        1,
        1,
    )


@pytest.mark.parametrize("model", ["default", "claude-haiku", "mistral-small"])
async def test_history_with_calls_gets_no_placeholder_tools(model: str) -> None:
    """Models of Claude need tools beside such a history; an agent has its own."""
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("weather", {}, id="call_1")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    with Answers(HELLO) as server:
        await ask(server.url, request(messages=history, tools=[WEATHER]), model=model)
    assert server.requests[0].body["messages"] == history
    assert "tools" not in server.requests[0].body


class Transfer(BaseModel):
    order: int
    agent_url: str | None = None


@dataclass
class Plain:
    order: int
    agent_url: str | None = None


@pytest.mark.parametrize(
    "passed", [{"order": 7, "agent_url": None}, Transfer(order=7, agent_url=""), Plain(order=7)], ids=repr
)
async def test_input_of_the_handoff_is_sent(passed: Any) -> None:
    with Answers(HELLO) as server:
        await ask(server.url, request(handoff_input=passed))
    assert server.requests[0].body["handoff_context"]["input"] == {"order": 7}


@pytest.mark.parametrize(("passed", "sent"), [("refund", "refund"), (None, None), ({}, None), (0, 0)])
async def test_input_of_any_type_is_sent(passed: Any, sent: Any) -> None:
    with Answers(HELLO) as server:
        await ask(server.url, request(handoff_input=passed))
    assert server.requests[0].body["handoff_context"].get("input") == sent


async def test_an_input_that_does_not_fit_into_json() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ConfigError, match="must fit into JSON"):
        await ask(refused_url(), request(handoff_input=circle))


async def test_a_served_run_counts_the_servers_and_passes_the_trace_on() -> None:
    memory = {"handoff_origin": {"hops": 2, "traceparent": PARENT, "run_id": "other"}}
    with Answers(HELLO) as server:
        await ask(server.url, request(memory=memory))
    assert server.requests[0].body["handoff_context"]["hops"] == 3
    assert server.requests[0].body["handoff_context"]["run_id"] == "run-1"
    assert server.requests[0].headers["traceparent"] == PARENT


@pytest.mark.parametrize(
    "context", [{"hops": "2", "traceparent": "x\r\ny: z"}, {"hops": -1, "traceparent": 5}, "text", None]
)
async def test_broken_incoming_context_is_ignored(context: Any) -> None:
    """It is the text of an unknown client: it must neither stop the run nor get into a header."""
    with Answers(HELLO) as server:
        await ask(server.url, request(memory={"handoff_origin": context}))
    assert server.requests[0].body["handoff_context"]["hops"] == 1
    assert "traceparent" not in server.requests[0].headers


async def test_without_a_run() -> None:
    with Answers(HELLO) as server:
        await ask(server.url, Request(messages=[{"role": "user", "content": "Hi"}]))
    assert server.requests[0].body["handoff_context"] == {"run_id": "", "agent": "", "turn": 1, "hops": 1}
    assert "x-routelock-run-id" not in server.requests[0].headers


async def test_private_keys_are_sent_to_their_agent_only() -> None:
    mine = {"role": "assistant", "content": "a", "reasoning_content": "thought"}
    history = [{"role": "user", "content": "Hi"}, mine, {"role": "user", "content": "Go on"}]
    with Answers(HELLO) as home, Answers(HELLO) as other:
        for passed in (None, {"agent_url": other.url}):
            asked = request(messages=history, handoff_input=passed)
            await ask(home.url, asked, allow=[host_of(other)])
    assert home.requests[0].body["messages"][1] == mine
    assert other.requests[0].body["messages"][1] == {"role": "assistant", "content": "a"}


# Which URL


@pytest.mark.parametrize(
    "wrap", [lambda url: {"agent_url": url}, lambda url: Transfer(order=1, agent_url=url)]
)
async def test_the_input_of_the_transfer_comes_first(wrap: Any) -> None:
    with Answers(HELLO) as asked_for, Answers(HELLO) as own:
        asked = request(handoff_input=wrap(asked_for.url), memory={"handoff_agent_url": own.url})
        await ask(own.url, asked, allow=[host_of(asked_for)])
    assert (len(asked_for.requests), len(own.requests)) == (1, 0)


async def test_own_url_comes_second() -> None:
    with Answers(HELLO) as own, Answers(HELLO) as other:
        await ask(own.url, request(memory={"handoff_agent_url": other.url}), allow=[host_of(other)])
    assert (len(own.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize("where", ["memory", "context"])
async def test_url_of_the_run_comes_last(where: str) -> None:
    with Answers(HELLO) as server:
        told: dict[str, Any] = {where: {"handoff_agent_url": server.url}}
        asked = request(**told)
        await ask(None, asked, allow=[host_of(server)])
    assert len(server.requests) == 1


@pytest.mark.parametrize("asked", [request(), request(context="text"), Request(messages=[])])
async def test_no_url_at_all(asked: Request) -> None:
    with pytest.raises(ConfigError, match="agent_url required for remote handoff") as caught:
        await ask(None, asked)
    assert isinstance(caught.value, ValueError)
    for way in ("url=", "agent_url", "handoff_agent_url"):
        assert way in str(caught.value)


@BOTH
async def test_url_outside_the_list_gets_no_request(watched: bool) -> None:
    with Server(HELLO) as server:
        asked = request(stream=watched, handoff_input={"agent_url": server.url})
        error = await failure("https://agents.example.com/v1", asked, allow=["agents.example.org"])
        assert server.connections == 0
    assert type(error) is UrlNotAllowed
    assert "agents.example.org" in str(error)
    assert not error.retryable


@pytest.mark.parametrize("where", ["memory", "context"])
async def test_a_url_of_the_run_is_not_trusted_either(where: str) -> None:
    with Server(HELLO) as server:
        told: dict[str, Any] = {where: {"handoff_agent_url": server.url}}
        error = await failure(None, request(**told))
        assert server.connections == 0
    assert type(error) is UrlNotAllowed


@pytest.mark.parametrize("url", ["file:///etc/passwd", "not a url", "http://a@b/", 5])
async def test_text_that_is_not_a_url_is_refused(url: Any) -> None:
    error = await failure("https://agents.example.com", request(handoff_input={"agent_url": url}))
    assert type(error) is UrlNotAllowed


async def test_its_own_url_may_be_asked_for() -> None:
    with Answers(HELLO) as server:
        await ask(server.url, request(handoff_input={"agent_url": f"{server.url}/chat/completions"}))
    assert len(server.requests) == 1


# What is no answer


async def test_an_error_in_a_stream() -> None:
    broken = event({"error": {"message": "overloaded", "type": "server_error"}})
    with Answers(streamed(chunk({"content": "Hel"}), broken)) as server:
        error = await failure(server.url, request(stream=True))
    assert type(error) is ServerFailed
    assert "overloaded" in str(error)


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize(
    "reply",
    [
        Reply((b"<html>Log in</html>",), content_type="text/html"),
        Reply((b'{"choices": [',)),
        Reply(()),
        Reply((b"[]",)),
        Reply((b'{"choices": 5}',)),
        Reply((b'{"choices": [5]}',)),
        Reply((b'{"choices": [{"message": 5, "finish_reason": "stop"}]}',)),
        Reply((b'{"choices": [{"message": {"content": 5}, "finish_reason": "stop"}]}',)),
        Reply((b"[" * 100_000,)),
        Reply((b'{"choices": [{"delta": {"a": ' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}}]}",)),
    ],
    ids=lambda reply: str(reply.pieces)[:40],
)
async def test_answers_without_a_reply(reply: Reply, watched: bool) -> None:
    with Answers(reply) as server:
        error = await failure(server.url, request(stream=watched))
    assert isinstance(error, UnreadableResponse | IncompleteResponse)


@pytest.mark.parametrize("choices", [5, [5], [{"delta": 5}], [{"delta": {"tool_calls": 5}}], {"delta": {}}])
async def test_chunks_in_odd_shapes(choices: Any) -> None:
    with Answers(streamed(event({"choices": choices}))) as server:
        error = await failure(server.url, request(stream=True))
    assert type(error) is UnreadableResponse


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(streamed(chunk({"content": "Hel"}), done=False, ending="cut"), id="cut"),
        pytest.param(streamed(chunk({"content": "Hel"}), done=False), id="no end"),
        pytest.param(streamed(chunk({"content": "Hel"})), id="[DONE] and no finish reason"),
        pytest.param(streamed(chunk({"content": "Hel"}, usage=USAGE)), id="usage and no finish reason"),
        pytest.param(streamed(), id="nothing but [DONE]"),
        pytest.param(streamed(done=False), id="nothing"),
        pytest.param(streamed(chunk({"content": "x"}, finish=""), chunk({})), id="an empty finish reason"),
    ],
)
async def test_streams_that_end_too_early(reply: Reply) -> None:
    with Answers(reply) as server:
        error = await failure(server.url, request(stream=True))
    assert type(error) is IncompleteResponse
    assert error.retryable


@pytest.mark.parametrize("ending", ["end", "cut"])
async def test_a_finish_reason_is_enough(ending: Any) -> None:
    """Servers leave [DONE] out, and nothing of the message comes after the finish reason."""
    reply = streamed(chunk({"content": "Hi"}), chunk({}, finish="stop"), done=False, ending=ending)
    with Answers(reply) as server:
        done = await answer(server.url, request(stream=True))
    assert done.message.get("content") == "Hi"


@pytest.mark.asyncio_only
async def test_stream_cut_before_its_finish_reason_is_incomplete() -> None:
    """A truncated stream must not look like a complete one."""
    whole = b"".join(HELLO_STREAM.pieces)
    last = whole.index(b'"stop"}]}') + len(b'"stop"}]}')
    cuts = range(1, len(whole))
    with Answers(*[Reply((whole[:cut],), content_type=SSE) for cut in cuts]) as server:
        async with agent_at(server.url) as agent:
            for cut in cuts:
                try:
                    events = [event async for event in agent.stream(request(stream=True))]
                except IncompleteResponse:
                    assert cut < last
                else:
                    assert cut >= last
                    assert isinstance(events[-1], MessageDone)
                    assert events[-1].message.get("content") == "Hello"


# Tools


@BOTH
async def test_a_call_of_a_tool_that_was_not_passed(watched: bool) -> None:
    """Otherwise a remote server could run the tools of this agent."""
    reply = streamed(chunk(CALLS), chunk({}, finish="tool_calls")) if watched else said(CALLS)
    with Answers(reply) as server:
        error = await failure(server.url, request(stream=watched, tools=[WEATHER]))
    assert type(error) is UnreadableResponse
    assert "pass_tools=True" in str(error)
    assert not error.retryable


@BOTH
async def test_tools_that_are_passed(watched: bool) -> None:
    reply = streamed(chunk(CALLS), chunk({}, finish="tool_calls")) if watched else said(CALLS)
    with Answers(reply) as server:
        asked = request(stream=watched, tools=[WEATHER], tool_choice="weather")
        *deltas, done = await ask(server.url, asked, pass_tools=True)
    assert deltas == ([ToolCallDelta(0, "a", "weather", "")] if watched else [])
    assert isinstance(done, MessageDone)
    assert done.message.get("tool_calls") == [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]
    assert server.requests[0].body["tools"] == [WEATHER]
    assert server.requests[0].body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}


# What it is


@pytest.mark.parametrize(
    ("url", "options", "name", "family"),
    [
        ("https://agents.example.com/v1", {}, "remote_agents_example_com_v1", "agents.example.com"),
        ("https://agents.example.com", {}, "remote_agents_example_com", "agents.example.com"),
        ("http://[::1]:80/v1/chat/completions?v=1", {}, "remote_1_v1", "[::1]"),
        (
            "http://localhost:8000/v1",
            {"model": "Billing"},
            "remote_localhost_8000_v1_billing",
            "localhost:8000",
        ),
        ("https://h.example", {"name": "billing"}, "billing", "h.example"),
        (None, {}, "remote_agent", "remote_agent"),
        (None, {"name": "any"}, "any", "any"),
    ],
)
def test_names_and_families(url: str | None, options: Any, name: str, family: str) -> None:
    agent: Handler = RemoteAgent(url, **options)
    assert agent.name == name
    assert family_of(agent) == family


def test_long_names_differ() -> None:
    names = {RemoteAgent(f"https://h.example/{'x' * 80}/{end}").name for end in "ab"}
    assert len(names) == 2
    assert all(len(name) <= 64 for name in names)


def test_place_among_the_handlers() -> None:
    agent = RemoteAgent(None, prompt="Refunds", scope=["owner", "team"], expose=True)
    assert (agent.priority, agent.prompt, agent.scope, agent.expose) == (
        Priority.REMOTE,
        "Refunds",
        ("owner", "team"),
        True,
    )


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://x", {}),
        ("https://u:p@x", {}),
        (None, {"allow": ["*"]}),
        (None, {"allow": "agents.example.com"}),
        (None, {"timeout": 0}),
        (None, {"chunk_timeout": -1}),
        (None, {"max_bytes": 0}),
        (None, {"max_redirects": -1}),
        (None, {"headers": {"x y": "1"}}),
        (None, {"headers": {"x": "1\r\ny: 2"}}),
        (None, {"api_key": "a\nb"}),
        (None, {"settings": {"extra_headers": {}}}),
        (None, {"scope": ""}),
    ],
)
def test_arguments_that_cannot_work(url: str | None, options: Any) -> None:
    with pytest.raises(ConfigError):
        RemoteAgent(url, **options)


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        RemoteAgent("https://x", api_key="secret\n", headers={})
    assert "secret" not in str(caught.value)


# In a run


def texts_of(result: Any) -> list[Any]:
    return [(item.kind, item.message.get("content")) for item in result.new_items]


@BOTH
async def test_an_agent_whose_model_is_a_remote_agent(watched: bool) -> None:
    with Answers(HELLO_STREAM if watched else HELLO) as server:
        async with agent_at(server.url) as remote:
            agent = Agent("A", "You are secret.", model=remote)
            if watched:
                stream = Runner.run_streamed(agent, "Hi")
                shown = [event.text async for event in stream if isinstance(event, TextDelta)]
                result = stream.result
                assert shown == ["Hel", "lo"]
            else:
                result = await Runner.run(agent, "Hi")
    assert result.final_output == "Hello"
    assert result.usage == Usage(requests=1, input_tokens=5, output_tokens=7)
    assert server.requests[0].body["messages"] == [{"role": "user", "content": "Hi"}]
    told = server.requests[0].body["handoff_context"]
    assert told == {
        "run_id": server.requests[0].headers["x-routelock-run-id"],
        "agent": "A",
        "turn": 1,
        "hops": 1,
    }


@BOTH
async def test_handing_over_to_a_remote_agent(watched: bool) -> None:
    """The input of the transfer arrives, and streamed and plain runs end alike."""
    with Answers(HELLO_STREAM if watched else HELLO) as server:
        async with agent_at(server.url, name="refunds") as remote:
            model = ScriptedHandler([call("transfer_to_refunds", {"order": 7}, id="t")])
            agent = Agent("A", model=model, handoffs=[handoff(remote, on_handoff=note, input_type=Transfer)])
            if watched:
                stream = Runner.run_streamed(agent, "Refund order 7")
                shown = [event.text async for event in stream if isinstance(event, TextDelta)]
                result = stream.result
                assert shown == ["Hel", "lo"]
            else:
                result = await Runner.run(agent, "Refund order 7")
    assert result.final_output == "Hello"
    assert texts_of(result)[-1] == ("model", "Hello")
    sent = server.requests[0].body
    assert sent["handoff_context"]["input"] == {"order": 7}
    assert sent["handoff_context"]["turn"] == 2
    assert sent["messages"][-1] == {"role": "user", "content": "Refund order 7"}
    assert "tools" not in sent


def note(context: RunContext[Any], passed: Transfer) -> None:
    """Do nothing: handoff() wants a callback beside an input type."""


async def test_invented_url_gets_no_request() -> None:
    """The model is the one that may be talked into this, so the list decides."""
    with Server(HELLO) as server:
        async with agent_at(None, name="any") as remote:
            passed = {"order": 7, "agent_url": server.url}
            model = ScriptedHandler([call("transfer_to_any", passed, id="t")])
            agent = Agent("A", model=model, handoffs=[handoff(remote, on_handoff=note, input_type=Transfer)])
            with pytest.raises(UrlNotAllowed) as caught:
                await Runner.run(agent, "Hi")
        assert server.connections == 0
    assert caught.value.result is not None


@BOTH
async def test_an_error_is_never_the_answer(watched: bool) -> None:
    """The text of an error must not become a message of the assistant."""
    with Answers(failed(500, "boom")) as server:
        async with agent_at(server.url) as remote:
            agent = Agent("A", model=remote)
            once = RunConfig(retry=Retry(attempts=1))
            run = partial(Runner.run, agent, "Hi", run_config=once)
            if watched:
                run = Runner.run_streamed(agent, "Hi", run_config=once).drain
            with pytest.raises(ServerFailed) as caught:
                await run()
    assert caught.value.result.final_output is None
    assert not caught.value.result.new_items


@function_tool
def weather() -> str:
    """Tell the weather."""
    return "sunny"


@BOTH
async def test_a_remote_agent_may_use_tools_that_it_is_passed(watched: bool) -> None:
    calling = streamed(chunk(CALLS), chunk({}, finish="tool_calls")) if watched else said(CALLS)
    with Answers(calling, HELLO_STREAM if watched else HELLO) as server:
        async with agent_at(server.url, pass_tools=True) as remote:
            agent = Agent("A", model=remote, tools=[weather])
            if watched:
                result = await Runner.run_streamed(agent, "Hi").drain()
            else:
                result = await Runner.run(agent, "Hi")
    assert result.final_output == "Hello"
    answered = server.requests[1].body["messages"][-1]
    assert (answered["role"], answered["content"]) == ("tool", "sunny")


async def test_the_text_of_a_remote_agent_is_parsed_here() -> None:
    with Answers(said({"content": '{"order": 7}'})) as server:
        async with agent_at(server.url) as remote:
            result = await Runner.run(Agent("A", model=remote, output_type=Transfer), "Hi")
    assert result.final_output == Transfer(order=7)
    assert "response_format" not in server.requests[0].body


async def test_the_next_handler_answers_when_the_remote_agent_does_not() -> None:
    async with agent_at(refused_url()) as remote:
        agent = Agent("A", handlers=[remote, ScriptedHandler(["Here."], name="local")])
        config = RunConfig(fallback=True, retry=Retry(attempts=1))
        result = await Runner.run(agent, "Hi", run_config=config)
    assert result.final_output == "Here."
