"""Scopes: all < owner < admin, own names by name, a list is any-of, what is unknown is denied."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import Voice, both

from routelock import (
    Agent,
    Handoff,
    HandoffRequest,
    RunConfig,
    RunContext,
    Runner,
    Skill,
    Tool,
    function_tool,
    handoff,
)
from routelock.agents.offer import offer_tools
from routelock.agents.registry import Registry
from routelock.errors import ConfigError, NoHandlerError
from routelock.scopes import checked_scope, permits
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

RANKS = ("all", "owner", "admin")
NAMES = st.sampled_from([*RANKS, "billing", "support", "ADMIN", ""])


@pytest.mark.parametrize(("needed", "granted"), list(itertools.product(RANKS, RANKS)))
def test_a_rank_includes_those_below_it(needed: str, granted: str) -> None:
    assert permits(needed, [granted]) == (RANKS.index(needed) <= RANKS.index(granted))


@pytest.mark.parametrize(
    ("scope", "granted", "permitted"),
    [
        ("all", (), True),
        ("owner", (), False),
        ("admin", (), False),
        ("billing", (), False),
        ("billing", ("billing",), True),
        ("billing", ("admin",), False),
        ("billing", ("owner", "admin", "support"), False),
        ("billing", ("Billing",), False),
        ("ADMIN", ("admin",), False),
        (["billing", "support"], ("support",), True),
        (["billing", "owner"], ("admin",), True),
        (["billing", "support"], ("sales",), False),
        (["nobody", "all"], (), True),
        ([], ("admin",), False),
        (frozenset({"billing"}), frozenset({"billing"}), True),
        ("", ("admin",), False),
    ],
)
def test_permits_follows_ranks_and_grants(scope: Any, granted: Any, permitted: bool) -> None:
    assert permits(scope, granted) is permitted


@given(scope=st.lists(NAMES), granted=st.sets(NAMES), more=st.sets(NAMES))
def test_more_grants_never_deny(scope: list[str], granted: set[str], more: set[str]) -> None:
    assert permits(scope, granted | more) or not permits(scope, granted)


@given(scope=st.lists(NAMES, min_size=1), granted=st.sets(NAMES))
def test_a_list_is_any_of_its_names(scope: list[str], granted: set[str]) -> None:
    assert permits(scope, granted) == any(permits(name, granted) for name in scope)


@given(scope=st.text(), granted=st.sets(st.text()))
def test_custom_scope_needs_its_own_grant(scope: str, granted: set[str]) -> None:
    if scope not in RANKS:
        assert permits(scope, granted) == (scope in granted)


@pytest.mark.parametrize("scope", ["all", "admin", "my own"])
def test_a_name_is_a_scope(scope: str) -> None:
    assert checked_scope(scope, "x") == scope


@pytest.mark.parametrize("scope", [["a", "b"], ("a", "b")])
def test_a_list_becomes_a_tuple(scope: Any) -> None:
    assert checked_scope(scope, "x") == ("a", "b")


def test_scope_may_be_a_set() -> None:
    assert set(checked_scope({"a", "b"}, "x")) == {"a", "b"}


@pytest.mark.parametrize("scope", ["", [], (), [""], [1], 1, None, b"admin", [["a"]], True])
def test_anything_else_is_no_scope(scope: Any) -> None:
    with pytest.raises(ConfigError, match="Tool 'x': scope must be a name or a list of names"):
        checked_scope(scope, "Tool 'x'")


# -- the scopes of a run --


def test_the_scopes_of_a_run_may_be_one_name() -> None:
    """A string is a collection of letters, but means one scope."""
    assert RunConfig(scopes="admin").scopes == {"admin"}


@pytest.mark.parametrize("scopes", [["owner", ""], [1], 5])
def test_invalid_scopes_of_a_run_are_refused(scopes: Any) -> None:
    with pytest.raises(ConfigError, match="RunConfig: scope must be"):
        RunConfig(scopes=scopes)


async def test_run_has_no_scopes_by_default() -> None:
    result = await Runner.run(Agent("A", model=ScriptedHandler(["Hi"])), "Hi")
    assert result.context.scopes == frozenset()


async def test_context_has_the_granted_scopes() -> None:
    config = RunConfig(scopes=["owner", "billing"])
    result = await Runner.run(Agent("A", model=ScriptedHandler(["Hi"])), "Hi", run_config=config)
    assert result.context.scopes == {"owner", "billing"}


async def test_tool_context_has_the_granted_scopes() -> None:
    """A tool that decides by itself must see what instructions, filters and hooks see."""
    seen: list[frozenset[str]] = []

    @function_tool
    def look(context: RunContext[Any]) -> str:
        """Look."""
        seen.append(context.scopes)
        return "seen"

    agent = Agent("A", model=ScriptedHandler([call("look"), "Hi"]), tools=[look])
    await Runner.run(agent, "Hi", run_config=RunConfig(scopes=["owner"]))
    assert seen == [{"owner"}]


# -- what they gate --


def tool(name: str, **options: Any) -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: f"{name} was run", **options)


def desk(*replies: Any, **options: Any) -> Agent[Any]:
    return Agent("A", "Be brief.", model=ScriptedHandler(replies, name="model"), **options)


def as_(*scopes: str) -> RunContext[Any]:
    return RunContext(context=None, scopes=frozenset(scopes))


async def offered(agent: Agent[Any], *scopes: str) -> list[str]:
    return list((await offer_tools(agent, as_(*scopes), agent.graph)).routes)


async def test_a_tool_is_offered_to_those_in_its_scope() -> None:
    agent = desk(tools=[tool("open"), tool("mine", scope="owner"), tool("own", scope=["billing", "admin"])])
    assert await offered(agent) == ["open"]
    assert await offered(agent, "owner") == ["open", "mine"]
    assert await offered(agent, "billing") == ["open", "own"]
    assert await offered(agent, "admin") == ["open", "mine", "own"]


async def test_a_handoff_is_offered_to_those_in_its_scope() -> None:
    agent = desk(handoffs=[handoff(Agent("B", model="m"), scope="owner")])
    assert await offered(agent) == []
    assert await offered(agent, "owner") == ["transfer_to_b"]


async def test_an_exposed_handler_is_offered_to_those_in_its_scope() -> None:
    agent = desk(handlers=[Voice("root", expose=True, scope="admin")])
    assert await offered(agent) == []
    assert await offered(agent, "admin") == ["transfer_to_root"]


async def test_a_declared_handoff_opens_no_handler_that_is_closed() -> None:
    """The handler's scope holds as well as the handoff's; otherwise it would be offered and refused."""
    agent = desk(handoffs=[handoff(Voice("root", scope="admin", prompt="Secret."), scope="all")])
    assert await offered(agent) == []
    assert await offered(agent, "admin") == ["transfer_to_root"]


async def test_call_of_a_tool_out_of_scope_is_unknown() -> None:
    played = await both(lambda: desk(call("wipe"), "Sorry.", tools=[tool("wipe", scope="admin")]))
    assert played.answers == ["There is no tool named 'wipe'. No tools are available; answer in words."]


async def test_call_of_a_transfer_out_of_scope_is_unknown() -> None:
    """In webagents an anonymous caller reached an admin handler."""
    played = await both(
        lambda: desk(call("transfer_to_root"), "Sorry.", handlers=[Voice("root", expose=True, scope="admin")])
    )
    assert played.result.last_handler == "model"
    assert played.result.handoffs == ()
    assert played.answers[0].startswith("There is no tool named 'transfer_to_root'.")


def asks_for(target: Any, scope: str = "all") -> Tool:
    return Tool(name="ask", on_invoke_tool=lambda context, arguments: HandoffRequest(target), scope=scope)


async def test_a_handoff_request_does_not_reach_a_handler_out_of_scope() -> None:
    def make() -> Agent[Any]:
        return desk(call("ask"), "Sorry.", tools=[asks_for("root")], handlers=[Voice("root", scope="admin")])

    played = await both(make)
    assert played.statuses == [("A", "root", "failed")]
    assert "the scopes of this run do not permit it" in played.answers[0]
    assert played.result.last_handler == "model"


async def test_a_handoff_request_reaches_it_with_the_scope() -> None:
    def make() -> Agent[Any]:
        root = Voice("root", "Root here.", scope="admin")
        return desk(call("ask"), tools=[asks_for("root")], handlers=[root])

    played = await both(make, scopes=["admin"])
    assert played.result.final_output == "Root here."


async def test_handoff_request_with_the_handler_respects_its_scope() -> None:
    def make() -> Agent[Any]:
        root = Voice("root", scope="admin")
        return desk(call("ask"), "Sorry.", tools=[asks_for(root)])

    assert (await both(make)).statuses == [("A", "root", "failed")]


async def test_handoff_request_respects_the_scope_of_a_handoff() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", model=ScriptedHandler([]))
        return desk(call("ask"), "Sorry.", tools=[asks_for("B")], handoffs=[handoff(b, scope="owner")])

    assert (await both(make)).statuses == [("A", "B", "failed")]


async def test_handoff_request_with_the_agent_respects_the_scope() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", model=ScriptedHandler([]))
        return desk(call("ask"), "Sorry.", tools=[asks_for(b)], handoffs=[handoff(b, scope="owner")])

    assert (await both(make)).statuses == [("A", "B", "failed")]


async def test_on_invoke_handoff_respects_scopes() -> None:
    def make() -> Agent[Any]:
        root = Voice("root", scope="admin")
        declared = Handoff(agent_name="chosen", on_invoke_handoff=lambda context, arguments: root)
        return desk(call("transfer_to_chosen"), "Sorry.", handoffs=[declared])

    played = await both(make)
    assert played.statuses == [("A", "chosen", "failed")]


async def test_open_name_does_not_open_another_handler_of_it() -> None:
    """What counts is the handler that would answer, not one that is called the same."""

    def make() -> Agent[Any]:
        closed = Voice("root", "never", scope="admin")
        return desk(call("ask"), "Sorry.", tools=[asks_for(closed)], handlers=[Voice("root")])

    assert (await both(make)).statuses == [("A", "root", "failed")]


async def test_an_answer_does_not_name_what_is_out_of_scope() -> None:
    def make() -> Agent[Any]:
        handlers = [Voice("open"), Voice("secret", scope="admin")]
        return desk(call("ask"), "Sorry.", tools=[asks_for("nobody")], handlers=handlers)

    played = await both(make)
    assert "open" in played.answers[0]
    assert "secret" not in played.answers[0]


async def test_the_default_is_the_first_in_scope() -> None:
    def make() -> Agent[Any]:
        root = Voice("root", "Root.", priority=1, scope="admin")
        return Agent("A", handlers=[root, Voice("plain", "Plain.")])

    assert (await both(make)).result.last_handler == "plain"
    assert (await both(make, scopes=["admin"])).result.last_handler == "root"


async def test_no_handler_in_scope_raises_before_the_run() -> None:
    agent = Agent("A", handlers=[Voice("root", scope="admin")])
    with pytest.raises(NoHandlerError, match="no handler that the scopes of this run may reach"):
        Runner.run_streamed(agent, "Hi")


async def test_an_agent_whose_handlers_are_out_of_scope_cannot_be_handed_over_to() -> None:
    def make() -> Agent[Any]:
        closed = Agent("B", handlers=[Voice("root", scope="admin")])
        return desk(call("transfer_to_b"), "Sorry.", handoffs=[closed])

    played = await both(make)
    assert played.statuses == [("A", "B", "failed")]
    assert "Go on without it." in played.answers[0]
    assert "no handler that the scopes" in played.result.errors[0].message


async def test_a_run_cannot_be_started_at_a_handler_out_of_scope() -> None:
    agent = desk(handlers=[Voice("root", scope="admin")])
    with pytest.raises(ConfigError, match="no such handler that the run's scopes may reach"):
        await Runner.run(agent, "Hi", run_config=RunConfig(handler="root"))


async def test_fallback_passes_over_what_is_out_of_scope() -> None:
    def make() -> Agent[Any]:
        handlers = [
            Voice("down", OSError("down"), priority=1),
            Voice("root", "Root.", priority=2, scope="admin"),
            Voice("plain", "Plain.", priority=3),
        ]
        return Agent("A", handlers=handlers)

    assert (await both(make, fallback=True)).result.final_output == "Plain."
    assert (await both(make, fallback=True, scopes=["admin"])).result.final_output == "Root."


async def test_the_prompt_of_a_handler_is_for_those_in_its_scope() -> None:
    def make() -> Agent[Any]:
        return desk("Hi", handlers=[Voice("root", scope="admin", prompt="Deletes accounts.")])

    assert (await both(make)).asked("model")[0].messages[0].get("content") == "Be brief."
    granted = await both(make, scopes=["admin"])
    assert granted.asked("model")[0].messages[0].get("content") == "Be brief.\n\nDeletes accounts."


async def test_on_invoke_handoff_reaches_no_closed_handler_by_name() -> None:
    def make() -> Agent[Any]:
        closed = Voice("root", scope="admin")
        declared = Handoff(agent_name="chosen", on_invoke_handoff=lambda context, arguments: closed)
        return desk(call("transfer_to_chosen"), "Sorry.", handoffs=[declared], handlers=[Voice("root")])

    assert (await both(make)).statuses == [("A", "chosen", "failed")]


async def test_caller_tool_with_a_scope_is_offered_in_that_scope() -> None:
    """Scopes hold for a `Tool` wherever it is given."""
    agent = desk()
    external = [tool("wipe", scope="admin"), {"type": "function", "function": {"name": "look"}}]
    for scopes, names in (((), ["look"]), (("admin",), ["wipe", "look"])):
        assert list((await offer_tools(agent, as_(*scopes), external=external)).routes) == names


class Closed(Skill):
    """A skill for admins, with a handler that does not say so itself."""

    def __init__(self, brought: Voice) -> None:
        super().__init__(scope="admin")
        self.brought = brought

    def initialize(self, registry: Registry) -> None:
        registry.add_handler(self.brought, source=self.name, scope=self.scope)


async def test_a_handler_is_as_closed_as_the_skill_that_brings_it() -> None:
    """Whatever way leads to it: its name, the object, or a handoff that was declared beside."""

    def make() -> Agent[Any]:
        brought = Voice("root", prompt="Secret.", expose=True)
        tools = [asks_for("root"), Tool(name="too", on_invoke_tool=lambda *_: HandoffRequest(brought))]
        declared = handoff(brought, tool_name_override="go")
        calls = [call("ask"), call("go"), call("transfer_to_root")]
        model = ScriptedHandler([*calls, call("too"), "Sorry."], name="model")
        return Agent(
            "A", "Be brief.", model=model, tools=tools, handoffs=[declared], skills=[Closed(brought)]
        )

    played = await both(make, max_mistakes=9)
    assert played.result.final_output == "Sorry."
    assert {status for _, _, status in played.statuses} == {"failed"}
    first = played.asked("model")[0]
    assert [spec["function"]["name"] for spec in first.tools] == ["ask", "too"]
    assert first.messages[0].get("content") == "Be brief."
