"""`A2AAgent` against A2A agents over real sockets, and before answers of respx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from answers import Answers
from clients.a2a_cast import ORDER_DATA, a2a_agents
from clients.cast import BEATS, DESK, GREETING, POLYGLOT, Log
from clients.served import KEY, comes_true, served
from servers import JSON, SSE, Reply, refused_url

from routelock import Agent, Request, Runner, handoff
from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    IncompleteResponse,
    InvalidRequest,
    ProviderError,
    ServerFailed,
    UnreadableResponse,
)
from routelock.handlers.events import MessageDone, TextDelta
from routelock.serving import A2A, ServeConfig, create_app
from routelock.testing import ScriptedHandler, call

pytest.importorskip("a2a")

from routelock_providers.remote.a2a import A2AAgent

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]


@pytest.fixture(scope="module")
def there() -> Iterator[tuple[str, Log]]:
    """The URL of the agents, and a log of their work."""
    log = Log()
    settings = ServeConfig(api_keys=[KEY], timeout=30, a2a=A2A(approvals=True))
    with served(create_app(a2a_agents(log, []), settings)) as url:
        yield url.removesuffix("/v1") + "/a2a/", log


def request(words: str = "Hello?") -> Request:
    return Request(messages=[{"role": "user", "content": words}], agent="A", stream=True)


async def asked(url: str, words: str = "Hello?", key: str = KEY) -> tuple[list[str], str]:
    """The pieces of an answer, and the whole."""
    events = [event async for event in A2AAgent(url, api_key=key).stream(request(words))]
    assert isinstance(events[-1], MessageDone)
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    return pieces, str(events[-1].message.get("content"))


@pytest.mark.parametrize(("name", "text"), [("greeter", GREETING), ("desk", DESK), ("polyglot", POLYGLOT)])
async def test_text_of_the_agent_is_complete(there: Any, name: str, text: str) -> None:
    pieces, whole = await asked(there[0] + name)
    assert (whole, "".join(pieces)) == (text, text)


async def test_data_is_json(there: Any) -> None:
    pieces, whole = await asked(there[0] + "clerk")
    assert json.loads(whole) == ORDER_DATA
    assert pieces == [whole]
    assert "7.0" not in whole


async def test_a_question_is_an_answer(there: Any) -> None:
    _, whole = await asked(there[0] + "payer")
    assert "pay({" in whole


async def test_handoff_target_gets_the_conversation(there: Any) -> None:
    remote = A2AAgent(there[0] + "parrot", api_key=KEY, name="parrot")
    script = ScriptedHandler([call("transfer_to_parrot")])
    waiter = Agent("waiter", "Serve.", model=script, handoffs=[handoff(remote)])
    result = await Runner.run(waiter, "Which wine?")
    assert result.final_output.endswith("\n\nWhich wine?")
    assert "CONVERSATION HISTORY" in result.final_output
    assert "Serve." not in result.final_output, "no instructions leave"


async def test_it_is_a_model_and_sees_a_conversation(there: Any) -> None:
    agent = Agent("A", model=A2AAgent(there[0] + "parrot", api_key=KEY))
    first = await Runner.run(agent, "one")
    assert first.final_output == "one"
    second = await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "two"}])
    assert second.final_output.endswith("\n\ntwo")
    assert '"one"' in second.final_output


async def test_half_a_character_does_not_fail_the_call(there: Any) -> None:
    agent = Agent("A", model=A2AAgent(there[0] + "parrot", api_key=KEY))
    assert (await Runner.run(agent, "half \ud83d")).final_output == "half \ufffd"


async def test_data_outside_the_protocol_is_an_unreadable_response() -> None:
    half = shown(message={"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "half \ud83d"}]})
    with Answers() as server:
        server.say(card_at(server.url), Reply((half,), content_type=SSE))
        with pytest.raises(UnreadableResponse, match="surrogate"):
            await asked(server.url)


async def test_missing_key_names_the_argument(there: Any) -> None:
    with pytest.raises(AuthenticationFailed, match="Pass A2AAgent its api_key="):
        await asked(there[0] + "parrot", key="wrong")


async def test_a_failure_is_an_error_with_what_the_agent_says(there: Any) -> None:
    agent = Agent("A", model=A2AAgent(there[0] + "broken", api_key=KEY))
    with pytest.raises(ProviderError, match="ended its task as failed: The model behind this agent failed"):
        await Runner.run(agent, "Hi")


async def test_two_at_once_do_not_mix(there: Any) -> None:
    texts: dict[str, str] = {}

    async def sing(name: str) -> None:
        _, texts[name] = await asked(there[0] + "duet", name)

    async with anyio.create_task_group() as group:
        group.start_soon(sing, "left")
        group.start_soon(sing, "right")
    assert texts == {name: "".join(f"{name}{beat} " for beat in range(BEATS)) for name in ("left", "right")}


async def test_leaving_the_stream_cancels_the_agents_task(there: Any) -> None:
    url, log = there
    async with aclosing(A2AAgent(url + "endless", api_key=KEY).stream(request("left alone"))) as events:
        async for event in events:
            assert event == TextDelta("Tick ")
            break
    assert comes_true(lambda: "left alone" in log.cancelled)


async def test_cancelled_run_cancels_the_agents_task(there: Any) -> None:
    url, log = there
    agent = Agent("A", model=A2AAgent(url + "endless", api_key=KEY))
    async with anyio.create_task_group() as group:
        async with Runner.run_streamed(agent, "called off") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    group.cancel_scope.cancel()
    assert comes_true(lambda: "called off" in log.cancelled)


async def test_wrong_key_and_refused_connection_differ(there: Any) -> None:
    with pytest.raises(AuthenticationFailed):
        await asked(there[0] + "greeter", key="wrong")
    with pytest.raises(ConnectionFailed):
        await asked(refused_url())


def card_at(url: str) -> Reply:
    """A card with this URL."""
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {"name": "A", "supportedInterfaces": [interface], "capabilities": {"streaming": True}}
    return Reply((json.dumps(card).encode(),))


async def test_card_of_another_server_is_refused() -> None:
    with Answers(Reply((b"{}",))) as other, Answers(card_at(other.url)) as own:
        with pytest.raises(InvalidRequest, match="leads to another server"):
            await asked(own.url)
    assert other.requests == []


def shown(**payload: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps({"jsonrpc": "2.0", "id": 1, "result": payload}).encode()


TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
HALF = {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "Half an "}]}}


def status(state: str, *texts: str) -> bytes:
    """A task's status with a message."""
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text} for text in texts]}
    now = {"state": f"TASK_STATE_{state}", **({"message": message} if texts else {})}
    return shown(statusUpdate={"taskId": "t", "contextId": "c", "status": now})


@pytest.mark.parametrize(
    ("pieces", "answer"),
    [
        ((status("WORKING", "Wait"), shown(artifactUpdate=HALF), status("COMPLETED")), "Half an "),
        (
            (status("WORKING", "Wait"), shown(artifactUpdate=HALF), status("INPUT_REQUIRED", "?")),
            "Half an \n\n?",
        ),
        ((status("WORKING", "Wait"), status("COMPLETED", "All of it.")), "All of it."),
    ],
)
async def test_progress_messages_are_not_part_of_the_answer(pieces: tuple[bytes, ...], answer: str) -> None:
    with Answers() as server:
        server.say(card_at(server.url), Reply((shown(task=TASK), *pieces), content_type=SSE))
        said, whole = await asked(server.url)
    assert ("".join(said), whole) == (answer, answer)


@pytest.mark.parametrize("ending", ["end", "cut"])
async def test_stream_that_just_ends_is_incomplete(ending: Any) -> None:
    pieces = (shown(task=TASK), shown(artifactUpdate=HALF))
    with Answers() as server:
        server.say(card_at(server.url), Reply(pieces, content_type=SSE, ending=ending))
        with pytest.raises(IncompleteResponse):
            await asked(server.url)


async def test_answer_outside_the_protocol_is_an_error() -> None:
    with Answers() as server:
        for body in (b"<html>", b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "No."}}'):
            server.say(card_at(server.url), Reply((body,)))
            with pytest.raises(ProviderError):
                await asked(server.url)


@pytest.mark.parametrize(
    ("code", "kind"), [(-32603, ServerFailed), (-32602, InvalidRequest), (-32005, InvalidRequest)]
)
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "in its stream"])
async def test_error_of_the_server_is_not_a_defect(begun: bool, code: int, kind: type[ProviderError]) -> None:
    error = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "It ends."}}).encode()
    pieces = (shown(task=TASK), b"event: error\ndata: " + error + b"\n\n") if begun else (error,)
    with Answers() as server:
        server.say(card_at(server.url), Reply(pieces, content_type=SSE if begun else JSON))
        with pytest.raises(ProviderError, match="It ends") as caught:
            await asked(server.url)
    assert type(caught.value) is kind


def test_wrong_arguments_are_refused_at_once() -> None:
    url = "http://x"
    for wrong in ({"url": "ftp://x"}, {"url": url, "api_key": "a\nb"}, {"url": url, "timeout": 0}):
        with pytest.raises(ConfigError):
            A2AAgent(**wrong)  # type: ignore[arg-type]
    assert A2AAgent("https://agents.example.com/a2a/wine").name == "a2a_agents_example_com_a2a_wine"
