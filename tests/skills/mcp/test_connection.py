"""An MCP server that is a program, over real pipes: it dies, hangs, sends nonsense, and is ended."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_servers import raw

from routelock import Agent, Runner
from routelock.context import ToolContext
from routelock.errors import ToolError
from routelock.testing import ScriptedHandler, call
from routelock_skills.mcp import MCPClient

pytestmark = pytest.mark.anyio


async def answer(client: MCPClient, name: str, arguments: str = "{}") -> Any:
    made = {each.name: each for each in client.tools}[name]
    return await made.invoke(ToolContext(context=None, tool_name=name, tool_call_id="c1"), arguments)


def noted(notes: Path, what: str) -> list[str]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [line for line in lines if line.startswith(what)]


def silent(notes: Path) -> dict[str, Any]:
    """A program that never answers the first request."""
    code = (
        f"import os, sys; print('started as', os.getpid(), file=open({str(notes)!r}, 'w')); sys.stdin.read()"
    )
    return {"command": sys.executable, "args": ["-S", "-c", code]}


async def gone(notes: Path) -> bool:
    """Whether all programs that were started have ended."""
    for line in noted(notes, "started"):
        for _ in range(6000):
            try:
                os.kill(int(line.split()[-1]), 0)
            except ProcessLookupError:
                break
            await anyio.sleep(0.01)
        else:
            return False
    return True


async def test_program_is_used_and_ended(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    model = ScriptedHandler([call("raw_echo", {"text": "hello"}), "Done."])
    async with MCPClient(raw(notes), prefix="raw_") as client:
        assert (client.name, client.instructions) == (Path(sys.executable).name, "Be brief.")
        agent = Agent("clerk", model=model, tools=client.tools)
        result = await Runner.run(agent, "Go.")
    assert result.to_input_list()[2].get("content") == "hello"
    assert noted(notes, "ended")
    assert await gone(notes)


async def test_all_pages_of_the_list_are_read() -> None:
    async with MCPClient(raw()) as client:
        assert len(client.tools) == 17


async def test_program_gets_few_environment_variables() -> None:
    async with MCPClient({**raw(), "env": {"TOKEN": "t"}}) as client:
        variables = (await answer(client, "environment")).output.split()
    assert "TOKEN" in variables
    assert "OPENAI_API_KEY" not in variables


async def test_renamed_argument_reaches_the_server() -> None:
    async with MCPClient(raw()) as client:
        found = await answer(client, "find", '{"filter_id_": 3, "text": "a"}')
    assert json.loads(found.output) == {"filter[id]": 3, "text": "a"}


async def test_lines_that_are_not_messages_are_skipped() -> None:
    async with MCPClient(raw()) as client:
        assert (await answer(client, "babble", '{"text": "after all"}')).output == "after all"


async def test_bytes_that_are_not_utf8_are_replaced() -> None:
    async with MCPClient(raw(), timeout=60) as client:
        assert (await answer(client, "latin")).output == "caf\ufffd"
        assert (await answer(client, "echo", '{"text": "still there"}')).output == "still there"


async def test_answer_cut_inside_an_emoji_is_read() -> None:
    """Servers in JavaScript send such text."""
    async with MCPClient(raw(), timeout=60) as client:
        assert (await answer(client, "halved")).output == "cut here: \ufffd"


async def test_half_a_surrogate_pair_keeps_the_connection(tmp_path: Path) -> None:
    """Other calls may be waiting on it."""
    notes = tmp_path / "notes"
    async with MCPClient(raw(notes)) as client:
        result = await client.call("echo", {"text": "cut here: \ud83d"})
        assert result["content"] == [{"type": "text", "text": "cut here: \ufffd"}]
    assert len(noted(notes, "started")) == 1


async def test_unreadable_answer_is_an_error() -> None:
    async with MCPClient(raw(), name="raw") as client:
        outcome = await answer(client, "nonsense")
        assert outcome.output.startswith(
            "Tool 'nonsense' failed: MCP server 'raw' sent an answer that cannot"
        )
        assert (await answer(client, "echo", '{"text": "still there"}')).output == "still there"


async def test_protocol_error_is_an_error() -> None:
    async with MCPClient(raw(), name="raw") as client:
        outcome = await answer(client, "refuse")
    expected = "Tool 'refuse' failed: MCP server 'raw' refused: no such thing (code -32602)"
    assert (outcome.error, outcome.output) == ("raised", expected)


async def test_a_long_result_is_cut_as_any_other() -> None:
    async with MCPClient(raw()) as client:
        assert "900000 of 1000000 characters are not shown" in (await answer(client, "huge")).output


async def test_dead_server_is_restarted_and_no_call_repeated(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with MCPClient(raw(notes), name="raw") as client:
        outcome = await answer(client, "die")
        lost = "MCP server 'raw' was lost: it has ended. It is unknown whether the call was carried out."
        assert lost in outcome.output
        assert (await answer(client, "echo", '{"text": "back"}')).output == "back"
    assert len(noted(notes, "started")) == 2
    assert len(noted(notes, "called die")) == 1


async def test_slow_restart_does_not_use_up_the_calls_time(tmp_path: Path) -> None:
    """``connect_timeout`` covers the restart."""
    async with MCPClient(raw(tmp_path / "notes", "--slow-again"), timeout=2.0) as client:
        assert "was lost" in (await answer(client, "die")).output
        assert (await answer(client, "echo", '{"text": "back"}')).output == "back"


async def test_last_answer_of_a_dying_server_is_read() -> None:
    async with MCPClient(raw()) as client:
        assert (await answer(client, "answer_and_die", '{"text": "last words"}')).output == "last words"


async def test_all_waiting_calls_fail_when_the_server_dies() -> None:
    said: list[str] = []

    async def ask(client: MCPClient, name: str) -> None:
        said.append((await answer(client, name)).output)

    async with MCPClient(raw()) as client:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for name in ("hang", "hang", "die"):
                    group.start_soon(ask, client, name)
    assert len([text for text in said if "was lost" in text]) == 3


async def test_call_that_times_out_is_cancelled_on_the_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with MCPClient(raw(notes), timeout=1.0) as client:
        outcome = await answer(client, "hang")
        assert outcome.error == "timeout"
        assert (await client.call("echo", {"text": "still there"}))["content"][0]["text"] == "still there"
    assert noted(notes, "called off")


async def test_server_that_cannot_be_started_is_an_error() -> None:
    with pytest.raises(ToolError, match=r"'no-such-program' cannot be used: FileNotFoundError"):
        async with MCPClient({"command": "no-such-program"}):
            pass


async def test_server_that_ends_at_once_is_an_error() -> None:
    with pytest.raises(ToolError, match="'it' cannot be used: it ended at once; its stderr may say why"):
        async with MCPClient(
            {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit(3)"]}, name="it"
        ):
            pass


async def test_silent_server_is_ended(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with pytest.raises(ToolError, match=r"it did not answer within 0\.3 seconds"):
        async with MCPClient(silent(notes), connect_timeout=0.3):
            pass
    assert await gone(notes)


async def test_cancelled_start_ends_the_program(tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    async def enter() -> None:
        async with MCPClient(silent(notes)):
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(enter)
        for _ in range(1000):
            if noted(notes, "started"):
                break
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert await gone(notes)
