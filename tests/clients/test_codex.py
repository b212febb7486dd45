"""Codex, unmodified, with agents behind a true socket as its models, and as its tools by MCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clients.a2a_cast import clerk, parrot
from clients.cast import ASIDES, DESK, GREETING, ORDER, POLYGLOT, Log, everyone
from clients.codex import Codex, caller
from clients.served import KEY, PATIENCE, served

from routelock.serving import MCP, ServeConfig, create_app

pytest.importorskip("mcp")

SETTINGS = ServeConfig(api_keys=[KEY], timeout=PATIENCE / 2, mcp=MCP())
KNOWN = "gpt-5.5"
"""A model for which Codex has a custom tool: the agent has its name."""


@pytest.fixture(scope="module")
def log() -> Log:
    """What happens on the server."""
    return Log()


@pytest.fixture(scope="module")
def codex(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Codex]:
    """Codex, and the agents that it asks."""
    agents = [*everyone(log), clerk(), parrot(), caller(), caller(KNOWN)]
    with served(create_app(agents, SETTINGS)) as url:
        yield Codex(url, tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(
    ("agent", "text"), [("greeter", GREETING), ("polyglot", POLYGLOT), ("thinker", "Yes.")]
)
def test_an_answer_is_whole(codex: Codex, agent: str, text: str) -> None:
    turn = codex.ask(agent, "Hello?")
    assert (turn.code, turn.texts) == (0, [text])


def test_own_tools_and_handoffs_stay_inside(codex: Codex, log: Log) -> None:
    turn = codex.ask("desk", "Where is it?")
    assert turn.texts == [ASIDES[0], f"\n\n{ASIDES[1]}", f"\n\n{ORDER}"]
    assert log.looked_up == [7]


def test_usage_is_that_of_the_run(codex: Codex) -> None:
    [usage] = [event["usage"] for event in codex.ask("greeter", "Hello?").events if "usage" in event]
    assert (usage["input_tokens"], usage["output_tokens"]) == (10, 5)


def test_codex_runs_its_command_and_the_agent_reads_the_output(codex: Codex) -> None:
    turn = codex.have_called("exec_command", cmd="echo from the client")
    [command] = turn.items("command_execution")
    assert (command["exit_code"], command["aggregated_output"]) == (0, "from the client\n")
    assert turn.texts[0] == "I call it."
    assert turn.texts[1].rstrip().endswith("from the client")


def test_codex_applies_a_patch_that_is_the_text_of_a_custom_tool(codex: Codex) -> None:
    patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch"
    # with these, it would look for tools by a tool of OpenAI
    plain = ("--disable", "multi_agent", "-c", "mcp_servers.agents.enabled=false")
    turn = codex.have_called("apply_patch", *plain, agent=KNOWN, input=patch)
    assert (codex.work / "a.txt").read_text() == "one\n"
    assert "Success" in turn.texts[-1]


def test_a_tool_of_mcp_is_one_of_a_namespace(codex: Codex) -> None:
    turn = codex.have_called("mcp__agents__desk", input="Where is it?")
    [called] = turn.items("mcp_tool_call")
    assert (called["tool"], called["status"]) == ("desk", "completed")
    assert turn.texts[-1].endswith(DESK)


def test_structured_content_of_mcp_comes_back(codex: Codex) -> None:
    [called] = codex.have_called("mcp__agents__clerk", input="Order?").items("mcp_tool_call")
    assert called["result"]["structured_content"] == {"number": 7, "places": ["Paris", "Rome"]}


def test_a_failure_of_a_tool_of_mcp_is_read_by_the_agent(codex: Codex) -> None:
    turn = codex.have_called("mcp__agents__broken", input="Break.")
    assert [called["status"] for called in turn.items("mcp_tool_call")] == ["failed"]
    assert turn.texts[-1].endswith("The model behind this agent failed.")


def test_a_session_goes_on(codex: Codex) -> None:
    codex.ask("parrot", "one")
    assert codex.ask("parrot", "two", "resume", "--last").texts[-1].endswith("one|two")


def test_a_failure_in_mid_stream_fails_the_turn(codex: Codex) -> None:
    turn = codex.ask("broken", "Break.")
    assert turn.code == 1
    assert turn.failure.endswith("The model behind this agent failed.")


def test_an_unknown_model_is_named(codex: Codex) -> None:
    assert "There is no model 'unknown' here." in codex.ask("unknown", "Hello?").failure


def test_a_wrong_key_is_refused(codex: Codex) -> None:
    assert "401" in codex.ask("greeter", "Hello?", key="not-a-key").failure
