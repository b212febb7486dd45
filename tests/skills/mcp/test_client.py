"""The tools of an MCP server in this process work like all other tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp_servers import Office, over_streams, protocol_error, raw

from routelock import Agent, RunHooks, Runner, RunState, tool
from routelock.context import ToolContext
from routelock.errors import ConfigError, ToolError, ToolTimeout
from routelock.state.journal import Journal
from routelock.testing import ScriptedHandler, UnexpectedModelCall, call
from routelock_skills.mcp import MCPClient

pytestmark = pytest.mark.anyio


def scripted(*replies: Any) -> ScriptedHandler:
    return ScriptedHandler(list(replies))


async def answer(client: MCPClient, name: str, arguments: str = "{}") -> Any:
    made = {each.name: each for each in client.tools}[name]
    return await made.invoke(ToolContext(context=None, tool_name=name, tool_call_id="c1"), arguments)


async def test_agent_uses_them_beside_its_own_tools() -> None:
    @tool
    def double(a: int) -> int:
        """Double it."""
        return 2 * a

    model = scripted(
        [call("add", {"a": 40}), call("double", {"a": 4}), call("files_read_v1", {"path": "x"})], "Done."
    )
    async with MCPClient(Office().server) as office:
        agent = Agent("clerk", model=model, tools=[*office.tools, double])
        result = await Runner.run(agent, "Go.")
    answers = [message.get("content") for message in result.to_input_list() if message["role"] == "tool"]
    assert answers == ["42", "8", "what is in x"]


async def test_model_gets_the_names_and_schemas_of_the_server() -> None:
    async with MCPClient(Office().server) as office:
        spec = next(each.spec for each in office.tools if each.name == "add")
    assert spec["function"]["description"] == "Add two numbers."
    assert spec["function"]["parameters"]["required"] == ["a"]
    assert "strict" not in spec["function"]


async def test_definitions_are_as_the_server_wrote_them() -> None:
    async with MCPClient(raw(), prefix="raw_") as client:
        written = client.definitions["find"]["inputSchema"]
        offered = next(each.params_json_schema for each in client.tools if each.name == "raw_find")
    assert [*written["properties"]] == ["filter[id]", "text"]
    assert [*offered["properties"]] == ["filter_id_", "text"]


async def test_name_and_instructions_of_the_server() -> None:
    async with MCPClient(Office("bureau").server) as office:
        assert (office.name, office.instructions) == ("bureau", "Ask the office.")


@pytest.mark.parametrize(("name", "origin"), [(None, "bureau"), ("library", "library")])
async def test_tools_come_from_their_server(name: str | None, origin: str) -> None:
    async with MCPClient(Office("bureau").server, name=name) as office:
        assert {each.origin for each in office.tools} == {origin}


async def test_tools_of_a_program_come_from_the_server_that_it_says_it_is() -> None:
    async with MCPClient(raw()) as client:
        assert client.name != "raw"
        assert {each.origin for each in client.tools} == {"raw"}


async def test_arguments_without_what_is_required_do_not_reach_the_server() -> None:
    office = Office()
    async with MCPClient(office.server) as client:
        outcome = await answer(client, "add", '{"b": 1}')
    assert outcome.error == "arguments"
    assert office.calls == []


async def test_error_of_the_server_is_sent_to_the_model() -> None:
    async with MCPClient(Office().server) as office:
        outcome = await answer(office, "add", '{"a": "many"}')
    assert outcome.error == "raised"
    assert "valid integer" in outcome.output


async def test_a_tool_that_fails_is_quoted() -> None:
    async with MCPClient(Office().server) as office:
        outcome = await answer(office, "fail")
    assert (outcome.error, outcome.output) == ("raised", "Tool 'fail' failed: the printer is on fire")


async def test_a_failure_may_end_the_run() -> None:
    async with MCPClient(Office().server) as office:
        strict = [replace(each, on_error="raise") for each in office.tools]
        with pytest.raises(ToolError, match="the printer is on fire"):
            await Runner.run(Agent("clerk", model=scripted(call("fail")), tools=strict), "Go.")


async def test_image_is_shown_and_code_gets_the_whole_result() -> None:
    async with MCPClient(Office().server) as office:
        outcome = await answer(office, "chart")
        whole = await office.call("chart")
    assert outcome.output == "The sales:\n[image: image/png, about 6 bytes]"
    assert [part["type"] for part in outcome.media] == ["image_url"]
    assert whole["content"][1]["data"] == "aGVsbG8="


async def test_structured_content_is_shown_if_there_is_nothing_else() -> None:
    async with MCPClient(Office().server) as office:
        assert json.loads((await answer(office, "none")).output) == {"result": []}


async def test_code_gets_the_servers_own_error() -> None:
    async with MCPClient(Office().server) as office:
        assert (await office.call("fail"))["isError"] is True


# -- which tools --


async def test_prefixes_keep_two_servers_apart() -> None:
    async with MCPClient(Office().server, prefix="a_") as one, MCPClient(Office().server, prefix="b_") as two:
        agent = Agent("clerk", model=scripted(call("b_add", {"a": 1}), "Ok."), tools=[*one.tools, *two.tools])
        result = await Runner.run(agent, "Go.")
    assert result.to_input_list()[2].get("content") == "3"


async def test_two_servers_with_the_same_names_are_refused() -> None:
    async with MCPClient(Office().server) as one, MCPClient(Office().server) as two:
        with pytest.raises(ConfigError, match="add"):
            Agent("clerk", model=scripted("Hi."), tools=[*one.tools, *two.tools])


async def test_only_selected_tools_are_offered() -> None:
    async with MCPClient(Office().server, only=["files.read/v1", "add"]) as office:
        assert sorted(each.name for each in office.tools) == ["add", "files_read_v1"]


async def test_agent_keeps_its_tools_after_a_refresh() -> None:
    office = Office()
    async with MCPClient(office.server, only=lambda name: name in ("add", "new")) as client:
        before = client.tools
        office.add_tool(lambda: "new", name="new")
        assert client.tools == before
        assert [each.name for each in await client.refresh()] == ["add", "new"]
        assert client.tools != before


# -- approvals, guardrails of time, hooks and records --


async def test_some_tools_wait_for_an_approval() -> None:
    office = Office()
    async with MCPClient(office.server, prefix="o_", needs_approval=["files.read/v1"]) as client:
        model = scripted([call("o_add", {"a": 1}), call("o_files_read_v1", {"path": "x"})], "Done.")
        agent = Agent("clerk", model=model, tools=client.tools)
        waiting = await Runner.run(agent, "Go.")
        assert [one.name for one in waiting.interruptions] == ["o_files_read_v1"]
        assert office.calls == ["add"]
        state = RunState.from_json(waiting.state().to_json(), agents=[agent])
        result = await Runner.run(agent, state.approve(state.interruptions[0]))
    assert result.final_output == "Done."
    assert office.calls == ["add", "read"]


async def test_all_tools_of_a_server_may_be_deferred() -> None:
    async with MCPClient(Office().server, deferred=True) as office:
        assert all(each.deferred for each in office.tools)


async def test_all_tools_may_wait_or_a_function_decides() -> None:
    async with MCPClient(Office().server, needs_approval=True) as office:
        assert all(each.needs_approval is True for each in office.tools)

    def decide(context: ToolContext[Any], arguments: dict[str, Any]) -> bool:
        return context.tool_name == "add" and arguments["a"] > 9

    async with MCPClient(Office().server, needs_approval=decide) as office:
        model = scripted([call("add", {"a": 1}), call("add", {"a": 10})])
        result = await Runner.run(Agent("clerk", model=model, tools=office.tools), "Go.")
    assert [one.arguments for one in result.interruptions] == ['{"a": 10}']


async def test_approval_of_an_unknown_tool_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs_approval names 'delete'"):
        async with MCPClient(Office().server, needs_approval={"delete"}):
            pass


@pytest.mark.virtual_time
async def test_call_that_times_out_is_cancelled_on_the_server() -> None:
    office = Office()
    async with MCPClient(office.server, timeout=0.05) as client:
        outcome = await answer(client, "hang")
        assert (outcome.error, outcome.output) == ("timeout", "Tool 'hang' timed out after 0.05s.")
        with anyio.fail_after(60):
            await office.called_off.wait()
        assert (await client.call("add", {"a": 1}))["content"][0]["text"] == "3"


@pytest.mark.virtual_time
async def test_apps_call_that_times_out_is_cancelled_on_the_server() -> None:
    office = Office()
    async with MCPClient(office.server, timeout=0.05) as client:
        with anyio.fail_after(60):
            with pytest.raises(ToolTimeout, match="'hang' timed out"):
                await client.call("hang")
            await office.called_off.wait()


@pytest.mark.parametrize("code", [-32000, -32600])
async def test_tool_with_the_clients_error_text_is_called_once(code: int) -> None:
    """A gateway may pass on the end of another session."""
    office = Office()

    def gateway() -> str:
        office.calls.append("gateway")
        raise protocol_error(code, "Session terminated")

    office.add_tool(gateway)
    async with MCPClient(office.server) as client:
        outcome = await answer(client, "gateway")
    assert office.calls == ["gateway"]
    assert "Session terminated" in outcome.output


async def test_other_transport_with_an_ended_session_is_not_called_twice() -> None:
    office = Office()

    def gateway() -> str:
        office.calls.append("gateway")
        raise protocol_error(-32600, "Session terminated")

    office.add_tool(gateway)
    async with MCPClient(lambda: over_streams(office.server)) as client:
        outcome = await answer(client, "gateway")
        assert (await answer(client, "add", '{"a": 1}')).output == "3"
    assert office.calls == ["gateway", "add"]
    assert outcome.error == "raised"


async def test_broken_transport_is_over_before_it_has_closed() -> None:
    """A call during its end goes to a new connection."""
    office, broken = Office(), anyio.Event()

    @asynccontextmanager
    async def slow_to_end() -> AsyncGenerator[Any]:
        async def break_down() -> None:
            await broken.wait()
            raise OSError("the cable was cut")

        async with over_streams(office.server) as streams, anyio.create_task_group() as group:
            if not broken.is_set():
                group.start_soon(break_down)
            try:
                yield streams
            finally:
                if group.cancel_scope.cancel_called:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(1)

    async with MCPClient(slow_to_end) as client:
        broken.set()
        await anyio.sleep(0.1)
        result = await client.call("add", {"a": 1})
    assert result["structuredContent"] == {"result": 3}


async def test_server_that_ended_before_a_call_is_named() -> None:
    """The error of a program that ends at once depends on timing."""

    @asynccontextmanager
    async def ended() -> AsyncGenerator[Any]:
        to_us, heard = anyio.create_memory_object_stream[Any](0)
        said, from_us = anyio.create_memory_object_stream[Any](0)

        async def write() -> None:
            await from_us.receive()
            raise ConnectionResetError("Connection lost")

        with to_us, heard, said, from_us:
            async with anyio.create_task_group() as group:
                group.start_soon(write)
                yield heard, said

    with pytest.raises(ToolError, match="'it' cannot be used: it ended at once"):
        async with MCPClient(ended, name="it"):
            pass


def test_timeout_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="timeout"):
        MCPClient(Office().server, timeout=0)


async def test_cancelled_run_cancels_its_calls() -> None:
    office = Office()
    async with MCPClient(office.server) as client:
        agent = Agent("clerk", model=scripted(call("hang")), tools=client.tools)
        async with anyio.create_task_group() as group:
            group.start_soon(Runner.run, agent, "Go.")
            with anyio.fail_after(60):
                await office.hanging.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(60):
            await office.called_off.wait()
        assert (await answer(client, "add", '{"a": 1}')).output == "3"


async def test_calls_are_made_at_the_same_time() -> None:
    async with MCPClient(Office().server) as office:
        calls = [call("add", {"a": number}) for number in range(20)]
        agent = Agent("clerk", model=scripted(calls, "Done."), tools=office.tools)
        result = await Runner.run(agent, "Go.")
    answers = [message.get("content") for message in result.to_input_list() if message["role"] == "tool"]
    assert answers == [str(number + 2) for number in range(20)]


async def test_hooks_and_journal_see_the_calls(tmp_path: Any) -> None:
    """A run that is resumed in another process does not repeat a recorded call."""
    seen: list[str] = []

    class Watch(RunHooks):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: str) -> None:
            seen.append(f"{tool.name}: {result}")

    office = Office()
    async with MCPClient(office.server) as client, Journal(tmp_path / "runs.db") as journal:
        broken = Agent("clerk", model=scripted(call("add", {"a": 1})), tools=client.tools)
        with pytest.raises(UnexpectedModelCall):
            await journal.run(broken, "Go.", run_id="one", hooks=Watch())
        whole = Agent("clerk", model=scripted("3."), tools=client.tools)
        result = await journal.run(whole, "Go.", run_id="one")
    assert (result.final_output, office.calls, seen) == ("3.", ["add"], ["add: 3"])


# -- when it is open --


async def test_use_outside_the_block_is_an_error() -> None:
    client = MCPClient(Office().server)
    with pytest.raises(ConfigError, match="'office' is not open"):
        _ = client.tools
    async with client:
        tools = client.tools
    model = scripted(call("add", {"a": 1}))
    with pytest.raises(
        ToolError, match=r"^Tool 'add' failed: ConfigError: MCP server 'office' is not open: use"
    ):
        await Runner.run(Agent("clerk", model=model, tools=tools), "Go.")


async def test_it_can_be_opened_again_but_not_twice() -> None:
    client = MCPClient(Office().server)
    for _ in range(2):
        async with client:
            assert (await client.call("add", {"a": 1}))["content"][0]["text"] == "3"
            with pytest.raises(ConfigError, match="open already"):
                async with client:
                    pass


async def test_error_in_the_block_is_unchanged() -> None:
    with pytest.raises(ZeroDivisionError):
        async with MCPClient(Office().server):
            _ = 1 / 0


async def test_several_may_be_closed_in_any_order() -> None:
    one, two = MCPClient(Office().server), MCPClient(Office().server)
    await one.__aenter__()
    await two.__aenter__()
    await one.__aexit__(None, None, None)
    assert (await two.call("add", {"a": 1}))["content"][0]["text"] == "3"
    await two.__aexit__(None, None, None)


async def test_it_may_be_closed_by_another_task() -> None:
    """A fixture of pytest, a dependency of a web framework: they enter in one task and leave in another."""
    stack = AsyncExitStack()
    async with anyio.create_task_group() as group:
        group.start_soon(stack.enter_async_context, client := MCPClient(Office().server))
    async with anyio.create_task_group() as group:
        group.start_soon(client.call, "add", {"a": 1})
    async with anyio.create_task_group() as group:
        group.start_soon(stack.aclose)


async def test_abandoned_generator_may_hold_it_open() -> None:
    office = Office()

    async def tools() -> AsyncGenerator[MCPClient]:
        async with MCPClient(office.server) as client:
            yield client

    generator = tools()
    client = await anext(generator)

    async def leave() -> None:
        await generator.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(leave)
    with pytest.raises(ConfigError, match="not open"):
        await client.call("add", {"a": 1})


async def test_reconnecting_call_leaves_nothing_open_after_the_block() -> None:
    ended: list[str] = []
    again, go_on = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        if ended:
            again.set()
            await go_on.wait()
        async with over_streams(Office().server) as streams:
            try:
                yield streams
            finally:
                ended.append("ended")

    async with anyio.create_task_group() as group:
        async with MCPClient(transport, name="it") as client:
            assert client._connection is not None
            await client._connection.close()
            group.start_soon(fails_with, "it' was closed", client.call, "add", {"a": 1})
            with anyio.fail_after(60):
                await again.wait()
        go_on.set()
    assert len(ended) == 2


async def fails_with(said: str, function: Any, *args: Any) -> None:
    with pytest.raises(ToolError, match=said):
        await function(*args)


async def test_closing_it_ends_the_calls_that_wait() -> None:
    office = Office()
    said: list[str] = []

    async def ask(client: MCPClient) -> None:
        said.append((await answer(client, "hang")).output)

    async with anyio.create_task_group() as group:
        async with MCPClient(office.server, name="it") as client:
            group.start_soon(ask, client)
            with anyio.fail_after(60):
                await office.hanging.wait()
    assert said[0].startswith("Tool 'hang' failed: MCP server 'it' was lost: the connection was closed.")


def test_another_event_loop_gets_advice() -> None:
    async def opened() -> str:
        async with MCPClient(Office().server) as client:
            agent = Agent("clerk", model=scripted(call("add", {"a": 1})), tools=client.tools)
            with pytest.raises(ToolError, match="opened in another event loop") as failed:
                await asyncio.to_thread(Runner.run_sync, agent, "Go.")
            return str(failed.value)

    assert "await Runner.run" in asyncio.run(opened())
