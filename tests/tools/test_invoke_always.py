"""Whatever a stream does, a tool runs for a whole call, once, because it was called."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import QUICK
from reply_chunks import FINISHES, WAYS, Json, replies, written
from scenes import facts
from thoroughness import examples

from routelock import Agent, Retry, RunConfig, Runner, RunResult, Tool, function_handler
from routelock import tool as make_tool
from routelock.errors import ConnectionFailed, ContentRefused, IncompleteResponse, RoutelockError
from routelock.handlers.port import Handler, Request
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio


class Bench:
    """Tools with the names that generated replies call, and a record of their calls."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.tools = [self._tool(name) for name in ("look", "look_up", "f")]

    def _tool(self, name: str) -> Any:
        async def use(context: Any, arguments: str) -> str:
            self.ran.append((name, arguments))
            return f"{name} {arguments}"

        return Tool(name=name, on_invoke_tool=use, strict=False)

    def agent(self, model: Handler) -> Agent[Any]:
        b = Agent("B", model=ScriptedHandler(["B here."] * 9))
        return Agent("A", model=model, tools=self.tools, handoffs=[b])


async def ended(agent: Agent[Any], *, stream: bool, **config: Any) -> tuple[RunResult[Any], str]:
    settings: Any = {"run_config": RunConfig(**{"run_id": "r", "retry": QUICK, **config})}
    try:
        if stream:
            return await Runner.run_streamed(agent, "Hi", **settings).drain(), ""
        return await Runner.run(agent, "Hi", **settings), ""
    except RoutelockError as error:
        return error.result, repr(error)


def says(turns: Sequence[Sequence[Json]], breaks: Exception | None = None) -> Handler:
    """A handler that passes on these chunks, turn by turn; the first turn may break at its end."""
    asked: list[Request] = []

    async def model(request: Request) -> AsyncGenerator[Json]:
        asked.append(request)
        for chunk in turns[min(len(asked), len(turns)) - 1]:
            yield chunk
        if len(asked) == 1 and breaks is not None:
            raise breaks

    return function_handler(model)


DONE: Json = {"choices": [{"delta": {"content": "Done."}, "finish_reason": "stop"}]}
WRITTEN = replies(least=1).flatmap(lambda said: st.tuples(st.just(said), written(said, WAYS["OpenAI"])))


@examples(12)
@given(
    turns=st.lists(replies(least=1), min_size=1, max_size=3),
    reasons=st.lists(FINISHES, min_size=8, max_size=8),
    stream=st.booleans(),
)
async def test_finish_reason_does_not_change_the_run(
    turns: list[Json], reasons: list[str | None], stream: bool
) -> None:
    """google/adk-python 4482, googleapis/python-genai 2868: "stop" with calls, "tool_calls" without."""

    def completions(reasons: Sequence[str | None]) -> list[list[Json]]:
        said = [*turns, {"role": "assistant", "content": "Done."}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        return [
            [{"choices": [{"message": message, "finish_reason": reason}], "usage": usage}]
            for message, reason in zip(said, reasons, strict=False)
        ]

    benches = Bench(), Bench()
    outcomes = [
        await ended(bench.agent(says(completions(given))), stream=stream)
        for bench, given in zip(benches, (reasons[:4], reasons[4:]), strict=True)
    ]
    decided: list[Any] = []
    for result, error in outcomes:
        shared = facts(result)
        del shared["warnings"], shared["calls"]  # where the reason is reported
        decided.append((shared, error))
    assert decided[0] == decided[1]
    assert sorted(benches[0].ran) == sorted(benches[1].ran)  # trio starts tasks in any order


@examples(12)
@given(said=WRITTEN, cut=st.floats(0, 1), stream=st.booleans())
async def test_no_tool_runs_of_a_reply_that_broke(
    said: tuple[Json, list[Json]], cut: float, stream: bool
) -> None:
    """The connection breaks anywhere in the reply, also after its last call was whole."""
    _, chunks = said
    bench = Bench()
    model = says([chunks[: round(cut * len(chunks))]], ConnectionFailed("reset"))
    _, error = await ended(bench.agent(model), stream=stream, retry=Retry(attempts=1))
    assert "ConnectionFailed" in error
    assert bench.ran == []


@examples(12)
@given(said=WRITTEN, cut=st.floats(0, 1), stream=st.booleans())
async def test_tool_runs_once_for_a_retried_reply(
    said: tuple[Json, list[Json]], cut: float, stream: bool
) -> None:
    """Retries in the middle of a stream, which the caller has to allow."""
    _, chunks = said
    bench, quiet = Bench(), Bench()
    model = says([chunks[: round(cut * len(chunks))], chunks, [DONE]], ConnectionFailed("reset"))
    again = Retry(sleep=QUICK.sleep, mid_stream=True)
    result, error = await ended(bench.agent(model), stream=stream, retry=again)
    whole, _ = await ended(quiet.agent(says([chunks, [DONE]])), stream=stream)
    assert error == ""
    assert (result.final_output, sorted(bench.ran)) == (whole.final_output, sorted(quiet.ran))
    assert [item.message for item in result.items] == [item.message for item in whole.items]
    assert result.usage.requests == whole.usage.requests + 1


@examples(12)
@given(said=WRITTEN, cut=st.floats(0, 1), stream=st.booleans())
async def test_tool_never_runs_with_incomplete_arguments(
    said: tuple[Json, list[Json]], cut: float, stream: bool
) -> None:
    """A stream that just stops. What is half is never completed, guessed or taken for nothing."""
    message, chunks = said
    bench = Bench()
    _, error = await ended(bench.agent(says([chunks[: round(cut * len(chunks))], [DONE]])), stream=stream)
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    for ran in bench.ran:
        assert ran in calls or ran[1] == "{}"
    # a reply whose text is white space counts as refused if its finish reason is a content filter's
    known = ("HandlerError", IncompleteResponse.__name__, ContentRefused.__name__)
    assert error == "" or any(name in error for name in known)


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    "arguments",
    ['{"a": 1, "b": 2', '{"a": 1, "b": 2,}', "{'a': 1, 'b': 2}", '{"a": 1}{"b": 2}', '[{"a": 1}]'],
)
async def test_arguments_are_read_and_never_repaired(arguments: str, stream: bool) -> None:
    """CrewAI pull 4573 runs tools with ``{}`` instead; here the model gets a report and tries again."""
    ran: list[int] = []

    @make_tool
    async def add(a: int = 0, b: int = 0) -> int:
        """Add."""
        ran.append(a + b)
        return a + b

    def turn(text: str) -> list[Json]:
        call = {"index": 0, "id": "c", "function": {"name": "add", "arguments": text}}
        return [{"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}]

    agent = Agent("A", model=says([turn(arguments), turn('{"a": 1, "b": 2}'), [DONE]]), tools=[add])
    result, error = await ended(agent, stream=stream)
    assert (error, result.final_output, ran) == ("", "Done.", [3])
    assert [problem.kind for problem in result.errors] == ["bad_arguments"]
