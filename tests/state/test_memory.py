"""The shared memory in a state: secrets are not written, and are taken from the app when a run goes on."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import TO_B, agent, look_up

from routelock import (
    Agent,
    HandoffRequest,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    ToolContext,
    function_tool,
    handoff,
)
from routelock.handoff_request import HandoffResponse
from routelock.testing import call

pytestmark = pytest.mark.anyio


async def stopped(of: Agent[Any], input: Any = "Hi", *, after: int = 1, **settings: Any) -> RunResult[Any]:
    """The result of a run that a limit of turns ended."""
    config = RunConfig(**{"run_id": "r", "on_limit": "return", **settings})
    return await Runner.run(of, input, max_turns=after, run_config=config)


async def test_secrets_are_not_written() -> None:
    """Neither what the app shares, nor what is in its settings, its headers or its payloads."""
    secret = "sk-abcdefghijklmnopqrstuvwxyz"
    b = agent("B", call("look_up", {"order": 1}), tools=[look_up])
    payload = {"handoff_type": "x", "api_key": secret, "page": "Moss."}
    a = agent(
        "A", TO_B, handoffs=[handoff(b, payload=payload)], model_settings={"extra_headers": {"X-Key": secret}}
    )
    memory = {"db_password": "hunter2", "note": f"the key is {secret}", "open": "yes"}
    result = await stopped(a, shared_memory=memory, after=2, model_settings={"api_key": secret})
    text = result.state().to_json()
    assert secret not in text
    assert "hunter2" not in text
    assert "Moss." in text
    assert "yes" in text
    assert secret in result.state().to_json(include_secrets=True)


def sharing() -> Agent[Any]:
    """A team whose second agent sees one entry of the memory, and puts secrets into what it sees."""

    @function_tool
    def log_in(context: ToolContext[Any]) -> str:
        """Log in."""
        context.shared_memory["api_key"] = "narrow-secret"
        context.shared_memory["creds"] = {"password": "nested-secret"}
        return "ok"

    def consent(request: HandoffRequest) -> HandoffResponse:
        return HandoffResponse.accept(metadata={"api_key": "metadata-secret"})

    b = agent("B", call("log_in"), "Done.", "Done.", tools=[log_in], on_handoff_request=consent)
    return agent("A", TO_B, handoffs=[handoff(b, share=["order"])])


async def test_secrets_in_a_part_of_the_memory_are_not_written_either() -> None:
    result = await stopped(sharing(), after=2, shared_memory={"order": 1, "db_password": "outer-secret"})
    assert "-secret" not in result.state().to_json()
    assert result.state().to_json(include_secrets=True).count("-secret") == 4


async def test_a_secret_in_a_part_of_the_memory_is_given_anew_or_missed_aloud() -> None:
    a = sharing()
    result = await stopped(a, after=2, shared_memory={"order": 1})
    state = RunState.from_json(result.state().to_json(), agents=[a])
    again = await Runner.run(a, state, run_config=RunConfig(shared_memory={"api_key": "k", "creds": {}}))
    assert again.warnings == ()
    missed = await Runner.run(a, state)
    assert ["'api_key', 'creds'" in warning for warning in missed.warnings] == [True]


async def test_a_secret_is_given_anew_or_missed_aloud() -> None:
    a = agent("A", call("look_up", {"order": 1}), "Done.", "Done.", tools=[look_up])
    result = await stopped(a, shared_memory={"db_password": "hunter2", "open": "yes"})
    state = RunState.from_json(result.state().to_json(), agents=[a])
    given = RunConfig(shared_memory={"db_password": "hunter3", "open": "no"})
    again = await Runner.run(a, state, run_config=given)
    assert again.context.shared_memory == {"db_password": "hunter3", "open": "yes"}
    assert again.warnings == ()
    missed = await Runner.run(a, state)
    assert missed.warnings == (
        "shared_memory: secrets in 'db_password' were redacted when the state was written; give them anew "
        "with RunConfig(shared_memory=...)",
    )
