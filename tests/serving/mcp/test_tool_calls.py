"""Calls of MCP clients: runs, progress, cancellation, approvals and errors, in both forms of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import mcp
import pytest
from clients.a2a_cast import payer
from mcp_clients import BOTH, Asks, connected, said_in
from pydantic import BaseModel
from scripted_agents import agent

from routelock import Agent, GuardrailResult, Request, RunConfig, RunContext, handler, handoff, tool
from routelock.context import ToolContext
from routelock.history.messages import text_of
from routelock.serving import MCP, ServeConfig, ServedRequest
from routelock.serving.mcp.stdio import local_server
from routelock.testing import ScriptedHandler, call, reply
from routelock.tools import ToolAnswer, ToolQuestion

pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("mode", BOTH)]

QUESTION = 'May the agent payer call pay with these arguments? {"amount": 40}'


def paying(paid: list[int], **config: Any) -> Any:
    return local_server(payer(paid), ServeConfig(**config))


async def asked(server: Any, mode: str, name: str, asks: Asks | None = None, said: str = "Hi") -> Any:
    async with connected(server, mode, asks) as client:
        return await client.call_tool(name, {"input": said})


async def test_the_answer_is_all_that_the_agents_wrote(mode: str) -> None:
    transfer = reply("One moment.", calls=[call("transfer_to_b")])
    team = agent("A", transfer, handoffs=[handoff(agent("B", "Here it is."))])
    result = await asked(local_server(team, ServeConfig()), mode, "a")
    assert said_in(result) == "One moment.\n\nHere it is."
    assert not result.is_error


async def test_an_answer_that_a_guardrail_refused_is_left_out(mode: str) -> None:
    def sourced(context: Any, agent: Any, output: Any) -> GuardrailResult:
        return GuardrailResult(False, answer=None if "source" in output else "Name a source.")

    careful = agent("A", "It is.", "It is, by source 1.", output_guardrails=[sourced])
    assert said_in(await asked(local_server(careful, ServeConfig()), mode, "a")) == "It is, by source 1."


async def test_an_output_type_is_promised_and_given(mode: str) -> None:
    class Order(BaseModel):
        number: int

    clerk = agent("clerk", reply("Let me see.", calls=[call("noop")]), '{"number": 7}', output_type=Order)
    result = await asked(local_server(clerk, ServeConfig()), mode, "clerk")
    assert (result.structured_content, said_in(result)) == ({"number": 7}, '{"number": 7}')


async def test_progress_comes_if_the_client_asks_for_it(mode: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    server = local_server([agent("A", "Hi.", "Hi.")], ServeConfig())
    async with connected(server, mode) as client:
        await client.call_tool("a", {"input": "Hi"})
        await client.call_tool("a", {"input": "Hi"}, progress_callback=tell)
    assert told == [(1, "A is active"), (2, "the model has replied")]


async def test_a_cancelled_call_ends_its_run(mode: str) -> None:
    begun, over = anyio.Event(), anyio.Event()

    @handler
    async def endless(request: Request) -> AsyncGenerator[str]:
        try:
            begun.set()
            yield "Tick"
            await anyio.sleep_forever()
        finally:
            over.set()

    async with connected(local_server(Agent("A", model=endless), ServeConfig()), mode) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "a", {"input": "Hi"})
            await begun.wait()
            group.cancel_scope.cancel()
        await over.wait()


async def test_an_accepted_call_is_made(mode: str) -> None:
    asks, paid = Asks("accept"), list[int]()
    result = await asked(paying(paid), mode, "payer", asks)
    assert (asks.questions, paid, said_in(result)) == ([QUESTION], [40], "Then: paid")


async def test_model_calls_before_an_approval_do_not_count_for_the_limit(mode: str) -> None:
    result = await asked(paying([], max_turns=1), mode, "payer", Asks("accept"))
    assert (said_in(result), result.is_error) == ("Then: paid", False)


async def test_a_declined_call_is_not_made_and_the_run_goes_on(mode: str) -> None:
    paid: list[int] = []
    result = await asked(paying(paid), mode, "payer", Asks("decline"))
    assert (paid, result.is_error) == ([], False)
    assert said_in(result) == "Then: This call was not approved, so it was not made."


async def test_each_call_is_decided_by_itself(mode: str) -> None:
    paid: list[int] = []

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    both = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    server = local_server(agent("A", reply("Now:", calls=both), "Done.", tools=[pay]), ServeConfig())
    asks = Asks("decline", "accept")
    result = await asked(server, mode, "a", asks)
    assert (len(asks.questions), len(paid)) == (2, 1)
    assert said_in(result) == "Now:\n\nDone."


def librarian() -> tuple[Agent, list[ToolAnswer]]:
    """Return an agent whose tool asks for a branch, and the answers that the tool gets."""
    heard: list[ToolAnswer] = []

    @tool
    def lend(context: ToolContext) -> Any:
        """Lend a book."""
        if context.answer is None:
            schema = {"type": "object", "properties": {"branch": {"type": "string"}}, "required": ["branch"]}
            return ToolQuestion(message="Which branch?", schema=schema)
        heard.append(context.answer)
        return "lent"

    return agent("A", call("lend"), "Done.", tools=[lend]), heard


async def test_a_question_of_a_tool_is_the_clients_form(mode: str) -> None:
    lender, heard = librarian()
    asks = Asks("accept", content={"branch": "East"})
    result = await asked(local_server(lender, ServeConfig()), mode, "a", asks)
    assert (asks.questions, said_in(result)) == (["Which branch?"], "Done.")
    assert [answer.content for answer in heard] == [{"branch": "East"}]


MISFITS = {"branch: is missing.": {}, "branch: 7 is not of type 'string'.": {"branch": 7}}


@pytest.mark.parametrize("why", MISFITS)
async def test_an_answer_that_does_not_fit_the_question_is_refused(mode: str, why: str) -> None:
    lender, heard = librarian()
    asks = Asks("accept", content=MISFITS[why])
    result = await asked(local_server(lender, ServeConfig()), mode, "a", asks)
    assert (result.is_error, heard) == (True, [])
    assert said_in(result) == f"The answer does not fit: {why}"


REFUSALS = {
    "not allowed": (MCP(approvals=False), "accept", "clients of this server may not approve calls"),
    "no decision": (MCP(), "cancel", "the user did not decide"),
}


@pytest.mark.parametrize("why", REFUSALS)
async def test_without_a_decision_nothing_is_done(
    mode: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, action, text = REFUSALS[why]
    paid: list[int] = []
    result = await asked(paying(paid, mcp=settings), mode, "payer", Asks(action))
    assert (result.is_error, paid) == (True, [])
    assert text in said_in(result)
    assert result.meta["routelock/code"] == "approval_required"
    [told] = [record for record in caplog.records if record.name == "routelock.serving"]
    assert told.levelname == "WARNING"
    assert "'pay' of agent 'payer'" in told.getMessage()


NO_ELICITATION = "this client cannot ask its user, because it does not support elicitation"


async def test_a_client_without_elicitation_is_told_so_and_nothing_is_done(mode: str) -> None:
    """The newer form of the protocol has an error for that."""
    paid: list[int] = []
    async with connected(paying(paid), mode) as client:
        if mode == "legacy":
            result = await client.call_tool("payer", {"input": "Hi"})
            assert (result.is_error, NO_ELICITATION in said_in(result)) == (True, True)
        else:
            with pytest.raises(mcp.MCPError, match=NO_ELICITATION) as raised:
                await client.call_tool("payer", {"input": "Hi"})
            assert raised.value.code == -32021
            assert raised.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    assert paid == []


async def test_a_client_that_fails_to_ask_has_not_decided(mode: str) -> None:
    async def broken(context: object, params: object) -> Any:
        return mcp.types.ErrorData(code=-32000, message="no screen")

    paid: list[int] = []
    async with connected(paying(paid), mode, broken) as client:
        try:
            result = await client.call_tool("payer", {"input": "Hi"})
        except mcp.MCPError:  # in the newer form the client itself gives up
            assert mode == "auto"
        else:
            assert "the user did not decide" in said_in(result)
    assert paid == []


async def test_an_error_is_a_result_that_says_so(mode: str) -> None:
    @handler
    async def fails(request: Request) -> str:
        raise RuntimeError("secret")

    result = await asked(local_server(Agent("A", model=fails), ServeConfig()), mode, "a")
    assert (result.is_error, said_in(result)) == (True, "The handler of this agent failed.")


async def test_arguments_that_do_not_fit_are_a_result_that_says_so(mode: str) -> None:
    async with connected(local_server(agent("A"), ServeConfig()), mode) as client:
        result = await client.call_tool("a", {})
    assert result.is_error
    assert "input (string, required)" in said_in(result)


async def test_an_unknown_tool_is_an_error_of_the_protocol(mode: str) -> None:
    async with connected(local_server(agent("A"), ServeConfig()), mode) as client:
        with pytest.raises(mcp.MCPError, match="There is no tool 'b' here"):
            await client.call_tool("b", {"input": "Hi"})


async def test_a_run_that_takes_too_long_is_ended(mode: str) -> None:
    @handler
    async def endless(request: Request) -> str:
        await anyio.sleep_forever()
        return ""

    server = local_server(Agent("A", model=endless), ServeConfig(timeout=0.01))
    result = await asked(server, mode, "a")
    assert (result.is_error, result.meta["routelock/code"]) == (True, "timeout")


async def test_calls_beyond_the_limit_are_refused(mode: str) -> None:
    begun, done = anyio.Event(), anyio.Event()

    @handler
    async def waits(request: Request) -> str:
        begun.set()
        await done.wait()
        return "Done."

    server = local_server(Agent("A", model=waits), ServeConfig(max_concurrent=1))
    async with connected(server, mode) as client, anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "a", {"input": "Hi"})
        await begun.wait()
        result = await client.call_tool("a", {"input": "Hi"})
        done.set()
    assert (result.is_error, result.meta["routelock/code"]) == (True, "too_many_requests")


async def test_a_local_run_has_the_scopes_and_the_context_of_the_app(mode: str) -> None:
    def context(request: ServedRequest) -> str:
        return f"{request.model} for {request.principal}, {sorted(request.scopes)}"

    def instructions(context: RunContext[str], agent: Agent[Any]) -> str:
        return context.context

    def repeat(request: Request) -> str:
        return text_of(request.messages[0])

    told = Agent("A", instructions, model=ScriptedHandler([repeat]))
    config = ServeConfig(context=context, run_config=RunConfig(scopes=["admin"]))
    assert said_in(await asked(local_server(told, config), mode, "a")) == "A for anonymous, ['admin']"


@pytest.mark.virtual_time(threads=True)
async def test_the_time_limit_of_a_run_does_not_count_what_a_person_takes(mode: str) -> None:
    paid, asks = list[int](), Asks("accept")

    async def slowly(context: object, params: Any) -> Any:
        await anyio.sleep(20)
        return await asks(context, params)

    async with connected(paying(paid, timeout=10), mode, slowly) as client:
        assert said_in(await client.call_tool("payer", {"input": "Hi"})) == "Then: paid"


@pytest.mark.virtual_time
async def test_the_time_of_a_run_goes_on_after_a_decision(mode: str) -> None:
    if mode == "auto":
        pytest.skip("in the newer form each decision is a request of its own")

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        await anyio.sleep(6)
        return "paid"

    payer = agent("payer", call("pay"), call("pay"), "Done.", tools=[pay])
    result = await asked(local_server(payer, ServeConfig(timeout=10)), mode, "payer", Asks("accept"))
    assert (result.is_error, result.meta["routelock/code"]) == (True, "timeout")


@pytest.mark.virtual_time
async def test_a_person_who_never_answers_has_not_decided(mode: str) -> None:
    if mode == "auto":
        pytest.skip("in the newer form the server does not wait")

    async def never(context: object, params: Any) -> Any:
        await anyio.sleep_forever()

    paid: list[int] = []
    async with connected(paying(paid, pending_ttl=5), mode, never) as client:
        result = await client.call_tool("payer", {"input": "Hi"})
    assert "the user did not decide" in said_in(result)
    assert paid == []


async def test_a_result_that_a_limit_cut_says_so(mode: str) -> None:
    looks = agent("A", reply("Let me see.", calls=[call("noop")]))
    settings = ServeConfig(max_turns=1, run_config=RunConfig(on_limit="return"))
    result = await asked(local_server(looks, settings), mode, "a")
    assert [each.text.partition(",")[0] for each in result.content] == [
        "Let me see.",
        "The answer is incomplete",
    ]
    assert result.meta["routelock/incomplete"] == "length"
