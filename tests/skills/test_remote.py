"""`AgentHandoffSkill`: whole runs that hand over to agents behind URLs, which answers of respx play."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from answers import Answers, AnyServer
from served_apps import served
from servers import HELLO, HELLO_STREAM, Server, chunk, failed, refused_url, said, streamed

from routelock import Agent, HandoffRequest, Request, Retry, Runner
from routelock.errors import ConfigError, IncompleteResponse, ServerFailed
from routelock.handlers.events import TextDelta
from routelock.run.events import HandoffOccurred
from routelock.testing import ScriptedHandler, assert_valid, call
from routelock_providers import RemoteAgent
from routelock_providers.remote import UrlNotAllowed
from routelock_skills import AgentHandoffSkill, Skill, SpecialistSkill, handler, tool

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

TO_REMOTE = call("transfer_to_agent_handoff")
ONCE = Retry(attempts=1)


@pytest.fixture
def streamed_run(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.callspec.params.get("play"))


@pytest.fixture
def hello(streamed_run: bool) -> Any:
    """Says hello, streamed to those who want it so."""
    return HELLO_STREAM if streamed_run else HELLO


@asynccontextmanager
async def remote(url: str | None = None, **options: Any) -> AsyncGenerator[AgentHandoffSkill]:
    skill = AgentHandoffSkill(url, **options)
    try:
        yield skill
    finally:
        await skill.aclose()


def desk(*replies: Any, skills: Any = (), **options: Any) -> Agent[Any]:
    return Agent(
        "Desk", "You are the desk.", model=ScriptedHandler(replies, name="model"), skills=skills, **options
    )


def to_url(url: str) -> Any:
    return call("hand_over_to_url", {"agent_url": url, "reason": "it knows"})


def host_of(server: AnyServer) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def offered(of: Agent[Any]) -> dict[str, str]:
    """The names and descriptions of what the model was offered in the first turn."""
    assert isinstance(of.model, ScriptedHandler)
    specs = [spec["function"] for spec in of.model.requests[0].tools]
    return {spec["name"]: spec["description"] for spec in specs}


def answers(result: Any) -> list[str]:
    return [item.message["content"] for item in result.new_items if item.message["role"] == "tool"]


# -- a URL of its own --


async def test_the_model_hands_over_to_the_url(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        async with remote(server.url, prompt="Knows the weather.") as skill:
            asked = desk(TO_REMOTE, skills=[skill])
            result = await play(asked)
    assert (result.final_output, result.last_handler) == ("Hello", "agent_handoff")
    assert offered(asked)["transfer_to_agent_handoff"].endswith("Knows the weather.")
    assert [seen.path for seen in server.requests] == ["/v1/chat/completions"]


async def test_url_without_allow_adds_no_tool(play: Any) -> None:
    async with remote("http://localhost:1/v1") as skill:
        asked = desk("Hi.", skills=[skill])
        await play(asked)
    assert list(offered(asked)) == ["transfer_to_agent_handoff"]


async def test_conversation_is_sent_without_instructions(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        async with remote(server.url) as skill:
            await play(desk(TO_REMOTE, skills=[skill]))
    body = server.requests[0].body
    assert_valid(body["messages"])
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
    assert "tools" not in body


async def test_the_run_streams_on_across_the_switch() -> None:
    """The handoff is an event, the deltas are the answer and nothing else."""
    with Answers(HELLO_STREAM) as server:
        async with remote(server.url) as skill:
            async with Runner.run_streamed(desk(TO_REMOTE, skills=[skill]), "Hi") as stream:
                seen = [each async for each in stream]
    deltas = [each.text for each in seen if isinstance(each, TextDelta)]
    (switch,) = [place for place, each in enumerate(seen) if isinstance(each, HandoffOccurred)]
    assert deltas == ["Hel", "lo"]
    assert seen.index(TextDelta("Hel")) > switch


async def test_what_the_remote_run_consumed_is_counted(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        async with remote(server.url) as skill:
            result = await play(desk(TO_REMOTE, skills=[skill]))
    assert result.usage_by_handler["agent_handoff"].output_tokens == 7


async def test_the_next_run_starts_at_the_default(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        async with remote(server.url) as skill:
            asked = desk(TO_REMOTE, "Hi.", skills=[skill])
            await play(asked)
            assert (await play(asked)).last_handler == "model"


async def test_key_headers_and_settings_are_sent(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        options = {"api_key": "k", "headers": {"x-team": "red"}, "settings": {"seed": 7}, "model": "weather"}
        async with remote(server.url, **options) as skill:
            await play(desk(TO_REMOTE, skills=[skill]))
    (seen,) = server.requests
    assert (seen.headers["authorization"], seen.headers["x-team"]) == ("Bearer k", "red")
    assert (seen.body["seed"], seen.body["model"]) == (7, "weather")


async def test_it_may_be_allowed_to_use_the_tools(play: Any, streamed_run: bool) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "it rains"

    made = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    if streamed_run:
        first = streamed(chunk({"tool_calls": [{"index": 0, **made}]}), chunk({}, finish="tool_calls"))
    else:
        first = said({"content": None, "tool_calls": [made]}, finish="tool_calls")
    with Answers(first, HELLO_STREAM if streamed_run else HELLO) as server:
        async with remote(server.url, pass_tools=True) as skill:
            result = await play(desk(TO_REMOTE, skills=[skill], tools=[look]))
    assert (result.final_output, answers(result)[-1]) == ("Hello", "it rains")
    assert [spec["function"]["name"] for spec in server.requests[0].body["tools"]] == ["look"]


async def test_scope_is_enforced(play: Any, hello: Any) -> None:
    """Nothing is sent for a run without the scope."""
    with Answers(hello) as server:
        async with remote(server.url, allow=[host_of(server)], scope="owner", prompt="Knows.") as skill:
            asked = desk(TO_REMOTE, to_url(server.url), "No.", skills=[skill])
            result = await play(asked)
            assert (result.final_output, server.requests, offered(asked)) == ("No.", [], {})
            with_owner = await play(desk(TO_REMOTE, skills=[skill]), scopes=["owner"])
    assert with_owner.final_output == "Hello"


async def test_subclass_may_set_the_scope(play: Any) -> None:
    class Internal(AgentHandoffSkill):
        scope = "owner"

    skill = Internal("http://localhost:1/v1", allow=["localhost:1"])
    asked = desk("Hi.", skills=[skill])
    await play(asked)
    assert offered(asked) == {}


async def test_two_of_them_lead_to_their_own_servers(play: Any, hello: Any) -> None:
    with Answers(hello) as one, Answers(hello) as two:
        async with remote(one.url, name="one") as first, remote(two.url, name="two") as second:
            await play(desk(call("transfer_to_two"), skills=[first, second]))
    assert (len(one.requests), len(two.requests)) == (0, 1)


async def test_one_skill_serves_two_agents_at_the_same_time() -> None:
    with Answers(HELLO) as server:
        async with remote(server.url) as skill, anyio.create_task_group() as tasks:
            for name in ("A", "B"):
                made = Agent(name, model=ScriptedHandler([TO_REMOTE]), skills=[skill])
                tasks.start_soon(Runner.run, made, "Hi")
    assert sorted(seen.body["handoff_context"]["agent"] for seen in server.requests) == ["A", "B"]


async def test_an_agent_that_routelock_serves_takes_over(play: Any) -> None:
    """On the server a specialist answers, which this side does not know."""
    poet = SpecialistSkill("poet", "You rhyme.", model=ScriptedHandler(["Rain, again."]))
    there = Agent("There", model=ScriptedHandler([call("transfer_to_poet")]), skills=[poet])
    with served(there) as url:
        async with remote(url) as skill:
            result = await play(desk(TO_REMOTE, skills=[skill]))
    assert (result.final_output, result.last_handler) == ("Rain, again.", "agent_handoff")
    assert [record.target for record in result.handoffs] == ["agent_handoff"]


# -- failures --


async def test_a_failure_is_an_error_and_never_text(play: Any) -> None:
    """Webagents made it an answer of the assistant."""
    with Answers(failed(500)) as server:
        async with remote(server.url) as skill:
            with pytest.raises(ServerFailed) as caught:
                await play(desk(TO_REMOTE, skills=[skill]), retry=ONCE)
    assert caught.value.result is not None
    assert caught.value.result.final_output is None


async def test_a_cut_stream_is_an_error() -> None:
    with Answers(streamed(chunk({"content": "Hel"}), done=False)) as server:
        async with remote(server.url) as skill:
            with pytest.raises(IncompleteResponse):
                async with Runner.run_streamed(desk(TO_REMOTE, skills=[skill]), "Hi") as stream:
                    await stream.drain()


async def test_the_next_handler_answers_for_a_server_that_is_down(play: Any) -> None:
    """The remote agent is the default, and a local handler is the fallback."""

    @handler
    async def local(request: Request) -> str:
        return "I am here."

    async with remote(refused_url()) as skill:
        made = Agent("Desk", handlers=[local], skills=[skill])
        result = await play(made, fallback=True, retry=ONCE)
    assert (result.final_output, result.last_handler) == ("I am here.", "local")
    assert [problem.kind for problem in result.errors] == ["fallback"]


# -- a URL per call --


async def test_the_model_names_a_url_that_is_allowed(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        async with remote(allow=[host_of(server)]) as skill:
            result = await play(desk(to_url(server.url), skills=[skill]))
    (record,) = result.handoffs
    assert (result.final_output, record.target, record.reason) == ("Hello", "agent_handoff", "it knows")
    assert (record.requested_by, record.input) == ("tool", {"agent_url": server.url})


@pytest.mark.pairwise
@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://agents.example.com.evil.example/v1",
        "https://agents.example.com@evil.example/v1",
        "http://agents.example.com/v1",
        "https://agents.example.com:8443/v1",
        "file:///etc/passwd",
        "https://agents.example.com/v1#fragment",
        "",
        "nonsense",
    ],
)
async def test_refused_url_is_named_to_the_model(url: str, play: Any) -> None:
    """The model is told, the run goes on, and nothing is sent."""
    async with remote(allow=["agents.example.com"]) as skill:
        asked = desk(to_url(url), "I could not reach it.", skills=[skill])
        result = await play(asked)
    assert (result.final_output, result.last_handler) == ("I could not reach it.", "model")
    assert "nothing was sent" in answers(result)[0].lower()
    assert [problem.kind for problem in result.errors] == ["tool"]
    assert result.handoffs == ()


async def test_a_refused_url_is_not_called(play: Any, hello: Any) -> None:
    with Server(hello) as other, Server(hello) as server:
        async with remote(server.url, allow=["agents.example.com"]) as skill:
            await play(desk(to_url(other.url), "No.", skills=[skill]))
    assert (other.requests, other.connections, server.requests) == ([], 0, [])


async def test_tool_lists_the_allowed_urls(play: Any) -> None:
    async with remote(allow=["agents.example.com", "*.example.org"], prompt="Knows more.") as skill:
        asked = desk("Hi.", skills=[skill])
        await play(asked)
    assert offered(asked) == {
        "hand_over_to_url": "Hand the conversation over to the agent behind a URL. Knows more. "
        "Allowed are: agents.example.com, *.example.org."
    }


async def test_its_own_url_is_allowed_too(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        async with remote(server.url, allow=["agents.example.com"]) as skill:
            asked = desk(to_url(server.url + "/chat/completions"), skills=[skill])
            result = await play(asked)
    assert result.final_output == "Hello"
    assert list(offered(asked)) == ["hand_over_to_url", "transfer_to_agent_handoff"]


async def test_below_its_own_url_nothing_is_allowed(play: Any, hello: Any) -> None:
    """Only that very URL is trusted, and not the rest of its server."""
    with Answers(hello) as server:
        async with remote(server.url, allow=["agents.example.com"]) as skill:
            await play(desk(to_url(f"{server.url}/admin"), "No.", skills=[skill]))
    assert server.requests == []


async def test_the_tool_may_have_another_name(play: Any) -> None:
    """Two skills of one agent that both take URLs need two."""
    async with remote(allow=["a.example"], name="a") as one:
        async with remote(allow=["b.example"], name="b", tool_name="call_b") as two:
            asked = desk("Hi.", skills=[one, two])
            await play(asked)
    assert list(offered(asked)) == ["hand_over_to_url", "call_b"]


async def test_a_key_stays_with_the_server_it_belongs_to(play: Any, hello: Any) -> None:
    with Answers(hello) as home, Answers(hello) as other:
        async with remote(home.url, allow=[host_of(other)], api_key="k", headers={"x-team": "red"}) as skill:
            await play(desk(to_url(other.url), skills=[skill]))
    assert not {"authorization", "x-team"} & other.requests[0].headers.keys()


# -- a URL from code --


class Directory(Skill):
    """Finds agents by what they know."""

    @tool
    def find_agent(self, topic: str) -> str | HandoffRequest:
        """Find an agent that knows about a topic, and hand over to it."""
        known = self.config["agents"]
        if topic not in known:
            return f"No agent knows about {topic}. There are: {', '.join(known)}."
        return HandoffRequest("agent_handoff", input={"agent_url": known[topic]}, reason=f"knows {topic}")


async def test_a_tool_looks_the_url_up(play: Any, hello: Any) -> None:
    with Answers(hello) as weather, Answers(hello) as maths:
        agents = {"weather": weather.url, "maths": maths.url}
        async with remote(allow=list(agents.values())) as skill:
            directory = Directory({"agents": agents}, dependencies=["agent_handoff"])
            asked = desk(
                call("find_agent", {"topic": "poems"}),
                call("find_agent", {"topic": "maths"}),
                skills=[directory, skill],
            )
            result = await play(asked)
    assert (result.final_output, result.handoffs[0].reason) == ("Hello", "knows maths")
    assert answers(result)[0] == "No agent knows about poems. There are: weather, maths."
    assert (len(weather.requests), len(maths.requests)) == (0, 1)


def asking_for(url: str | None) -> Any:
    """A tool that hands over to a URL, or to that of the skill."""

    @tool
    def ask() -> HandoffRequest:
        return HandoffRequest("agent_handoff", input=None if url is None else {"agent_url": url})

    return ask


@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("passed", "own", "in_context", "expected"),
    [
        (True, True, True, "passed"),
        (False, True, True, "own"),
        (False, False, True, "in_context"),
        (True, False, True, "passed"),
    ],
)
async def test_the_url_passed_comes_before_its_own_and_that_before_the_contexts(
    passed: bool, own: bool, in_context: bool, expected: str, play: Any, hello: Any
) -> None:
    with Answers(hello) as one, Answers(hello) as two, Answers(hello) as three:
        servers = {"passed": one, "own": two, "in_context": three}
        ask = asking_for(one.url if passed else None)
        memory = {"handoff_agent_url": three.url} if in_context else {}
        allow = [host_of(one), host_of(three)]
        async with remote(two.url if own else None, allow=allow) as skill:
            await play(desk(call("ask"), tools=[ask], skills=[skill]), shared_memory=memory)
    assert {name for name, server in servers.items() if server.requests} == {expected}


async def test_missing_url_is_an_error(play: Any) -> None:
    async with remote(allow=["agents.example.com"]) as skill:
        with pytest.raises(ConfigError, match="agent_url required for remote handoff"):
            await play(desk(call("ask"), tools=[asking_for(None)], skills=[skill]))


async def test_code_cannot_leave_the_list_either(play: Any, hello: Any) -> None:
    """A tool may pass on what a model said: the list holds for it as well."""
    with Answers(hello) as other:
        async with remote(allow=["agents.example.com"]) as skill:
            with pytest.raises(UrlNotAllowed, match="Nothing was sent"):
                await play(desk(call("ask"), tools=[asking_for(other.url)], skills=[skill]), retry=ONCE)
    assert other.requests == []


async def test_other_input_reaches_the_remote_run(play: Any, hello: Any) -> None:
    @tool
    def ask() -> HandoffRequest:
        return HandoffRequest("agent_handoff", input={"agent_url": server.url, "case": 7})

    with Answers(hello) as server:
        async with remote(allow=[host_of(server)]) as skill:
            await play(desk(call("ask"), tools=[ask], skills=[skill]))
    assert server.requests[0].body["handoff_context"]["input"] == {"case": 7}


# -- what it is --


async def test_it_is_a_remote_agent_with_the_usual_priority() -> None:
    async with remote("https://agents.example.com/v1") as skill:
        assert isinstance(skill.handler, RemoteAgent)
        (found,) = Agent("Desk", skills=[skill]).registered.handlers
    assert (found.name, found.priority, found.source, found.expose) == (
        "agent_handoff",
        20,
        "agent_handoff",
        True,
    )


def test_without_a_url_there_is_no_transfer() -> None:
    """It would lead nowhere."""
    made = Agent("Desk", skills=[AgentHandoffSkill(allow=["agents.example.com"])])
    assert made.all_handoffs == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "AgentHandoffSkill 'agent_handoff' has no agent to call"),
        ({"url": "ftp://agents.example.com"}, "must begin with http:// or https://"),
        ({"allow": "agents.example.com"}, "allow must be a list"),
        ({"allow": ["*"]}, "This URL or host of a remote agent cannot be used"),
        ({"url": "https://agents.example.com", "scope": 5}, "scope must be"),
        ({"url": "https://agents.example.com", "timeout": -1}, "timeout"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AgentHandoffSkill(**options)


def test_a_tool_name_that_providers_refuse_is_refused_with_the_agent() -> None:
    with pytest.raises(ConfigError, match="its name has"):
        Agent("Desk", skills=[AgentHandoffSkill(allow=["agents.example.com"], tool_name="über")])
