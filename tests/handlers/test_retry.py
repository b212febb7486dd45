"""Retrying: only what may succeed later, never what was shown, and never a tool."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock import Agent, Retry, RunConfig, Runner, RunResult, errors, function_tool
from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    HandlerError,
    ProviderDefect,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    ServerFailed,
)
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.port import Request
from routelock.run.model_call import attempts
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

PROVIDER_ERRORS = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ProviderError)
]
DONE = MessageDone(message={"role": "assistant", "content": "Hello"}, usage=Usage(requests=1, cost=0.5))
REQUEST = Request(messages=[{"role": "user", "content": "Hi"}])


@dataclass
class Clock:
    """Stands in for sleeping, and remembers for how long."""

    slept: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def retry(self, **settings: Any) -> Retry:
        return Retry(**{"sleep": self.sleep, "jitter": lambda: 1.0, **settings})


async def events(script: Sequence[Any], retry: Retry) -> list[HandlerEvent]:
    return [event async for event in attempts(ScriptedHandler(script), REQUEST, retry)]


async def read(source: AsyncIterable[HandlerEvent], into: list[HandlerEvent]) -> None:
    async for event in source:
        into.append(event)


async def run(script: Sequence[Any], retry: Retry, *, stream: bool = False, **agent: Any) -> RunResult[Any]:
    made = Agent("A", model=ScriptedHandler(script), **agent)
    config = RunConfig(retry=retry)
    if stream:
        return await Runner.run_streamed(made, "Hi", run_config=config).drain()
    return await Runner.run(made, "Hi", run_config=config)


# -- what is retried --


@pytest.mark.parametrize("error", PROVIDER_ERRORS, ids=lambda error: error.__name__)
async def test_only_retryable_errors_are_retried(error: type[ProviderError]) -> None:
    """401, 400 and an ImportError in disguise fail at once; 429, 5xx and a cut do not."""
    clock = Clock()
    script = ScriptedHandler([error("x"), DONE])
    tried = attempts(script, REQUEST, clock.retry())
    try:
        async for _ in tried:
            pass
    except ProviderError:
        assert not error.retryable
    assert len(script.requests) == 1 + error.retryable == 1 + len(clock.slept)


@pytest.mark.parametrize("error", [HandlerError("x"), ValueError("x")])
async def test_only_provider_errors_are_retried(error: Exception) -> None:
    clock = Clock()
    with pytest.raises(type(error)):
        await events([error, DONE], clock.retry())
    assert clock.slept == []


async def test_error_can_set_retryable() -> None:
    clock = Clock()
    with pytest.raises(ConnectionFailed):
        await events([ConnectionFailed("no such host", retryable=False)], clock.retry())
    told = await events([AuthenticationFailed("token is being renewed", retryable=True), DONE], clock.retry())
    assert told[-1] == DONE


async def test_attempts_are_counted_and_the_last_error_is_raised() -> None:
    clock = Clock()
    script = ScriptedHandler([ServerFailed(str(number)) for number in range(9)])
    seen: list[HandlerEvent] = []
    tried = attempts(script, REQUEST, clock.retry(attempts=3))
    with pytest.raises(ServerFailed, match="2"):
        await read(tried, seen)
    assert len(script.requests) == 3
    assert [(event.attempt, str(event.error)) for event in seen if isinstance(event, AttemptFailed)] == [
        (1, "0"),
        (2, "1"),
    ]


async def test_one_attempt_never_retries() -> None:
    with pytest.raises(ServerFailed):
        await events([ServerFailed("x"), DONE], Clock().retry(attempts=1))


@pytest.mark.parametrize("count", [0, -1])
async def test_no_attempt_at_all_is_a_configuration_error(count: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Retry(attempts=count)


async def test_events_are_those_of_the_handler() -> None:
    assert await events([[TextDelta("Hello"), DONE]], Retry()) == [TextDelta("Hello"), DONE]


# -- how long it waits --


async def test_waits_double_up_to_the_longest() -> None:
    clock = Clock()
    script = [*[ServerFailed("x")] * 5, DONE]
    await events(script, clock.retry(attempts=6, first_delay=1, longest_delay=5))
    assert clock.slept == [1, 2, 4, 5, 5]


async def test_jitter_spreads_waits_over_the_upper_half() -> None:
    clock = Clock()
    await events([*[ServerFailed("x")] * 2, DONE], clock.retry(jitter=lambda: 0.0))
    assert clock.slept == [0.25, 0.5]


async def test_retry_after_is_waited_for() -> None:
    """The delay that the provider asks for replaces the computed one, without jitter."""
    clock = Clock()
    failed, _ = await events([RateLimited("x", retry_after=7), DONE], clock.retry(jitter=lambda: 0.0))
    assert clock.slept == [7]
    assert isinstance(failed, AttemptFailed)
    assert failed.delay == 7


async def test_long_retry_after_raises_without_waiting() -> None:
    clock = Clock()
    with pytest.raises(RateLimited):
        await events([RateLimited("x", retry_after=3600), DONE], clock.retry(longest_delay=30))
    assert clock.slept == []


async def test_retry_after_in_the_past_means_no_delay() -> None:
    """A date in the header may be over by the time it is read."""
    clock = Clock()
    await events([RateLimited("x", retry_after=-3), DONE], clock.retry())
    assert clock.slept == [0]


@given(
    attempt=st.integers(1, 10_000),
    first=st.floats(0, 100),
    longest=st.floats(0, 1000),
    jitter=st.floats(0, 1),
    asked=st.none() | st.floats(-1e9, 1e9),
)
def test_a_wait_is_never_negative_nor_longer_than_allowed(
    attempt: int, first: float, longest: float, jitter: float, asked: float | None
) -> None:
    retry = Retry(attempts=10_001, first_delay=first, longest_delay=longest, jitter=lambda: jitter)
    delay = retry.delay(attempt, RateLimited("x", retry_after=asked))
    assert delay is None if asked is not None and asked > longest else delay is not None
    assert delay is None or 0 <= delay <= longest


# -- what was shown --

SHOWN = [TextDelta("Hel"), ReasoningDelta("Hm"), ToolCallDelta(0, "c", "add", "{")]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda event: event.type)
async def test_call_is_not_retried_after_the_first_delta(shown: HandlerEvent) -> None:
    """The reader would see it twice."""
    clock = Clock()
    with pytest.raises(ConnectionFailed):
        await events([[shown, ConnectionFailed("cut")], DONE], clock.retry())
    assert clock.slept == []


@pytest.mark.parametrize("shown", SHOWN, ids=lambda event: event.type)
async def test_mid_stream_retries_are_announced(shown: HandlerEvent) -> None:
    clock = Clock()
    first, failed, last = await events([[shown, ConnectionFailed("cut")], DONE], clock.retry(mid_stream=True))
    assert (first, last) == (shown, DONE)
    assert isinstance(failed, AttemptFailed)


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("broken_after", range(7))
async def test_broken_reply_leaves_one_attempt_in_the_transcript(broken_after: int, stream: bool) -> None:
    """Break after chunk k for every k; tools run exactly once, the void text is gone."""
    ran: list[int] = []

    @function_tool
    async def add(a: int) -> int:
        """Add."""
        ran.append(a)
        return a

    def chunk(**delta: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta}]}

    function = {"name": "add", "arguments": ""}
    chunks: list[Any] = [
        chunk(content="Let "),
        chunk(content="me see."),
        chunk(tool_calls=[{"index": 0, "id": "c", "type": "function", "function": function}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": " 1}"}}]),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    ]
    cut = [*chunks[:broken_after], ConnectionFailed("cut")]
    retry = Clock().retry(mid_stream=True)
    result = await run([cut, chunks, "One."], retry, stream=stream, tools=[add])
    assert ran == [1]
    assert [message.get("content") for message in result.messages] == ["Hi", "Let me see.", "1", "One."]
    assert [problem.kind for problem in result.errors] == ["provider"]
    assert result.usage.requests == 3


async def test_reader_can_assemble_the_valid_reply() -> None:
    """Everything before the last `AttemptFailed` of a reply is void."""
    script = [[TextDelta("Hel"), ConnectionFailed("cut")], "Hello."]
    agent = Agent("A", model=ScriptedHandler(script))
    text = ""
    config = RunConfig(retry=Clock().retry(mid_stream=True))
    async for event in Runner.run_streamed(agent, "Hi", run_config=config):
        if isinstance(event, AttemptFailed):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    assert text == "Hello."


# -- what a run makes of it --


async def test_tools_run_once_despite_retries() -> None:
    """No tool runs before its reply is complete, so none runs twice."""
    ran: list[str] = []

    @function_tool
    async def charge() -> str:
        """Charge."""
        ran.append("charged")
        return "charged"

    script = [ServerFailed("x"), call("charge"), RateLimited("x"), ServerFailed("x"), "Done."]
    result = await run(script, Clock().retry(), tools=[charge])
    assert ran == ["charged"]
    assert result.final_output == "Done."


async def test_failed_attempts_are_on_the_result() -> None:
    """A successful run still reports its failed attempts."""
    error = RateLimited("slow down")
    result = await run([error, "Hi"], Clock().retry())
    (problem,) = result.errors
    assert (problem.kind, problem.error) == ("provider", error)
    assert "attempt 1 failed: slow down" in problem.message


@pytest.mark.parametrize("error", [RateLimited("x"), ServerFailed("x"), ConnectionFailed("x")])
async def test_refused_attempt_counts_as_a_free_request(
    error: ProviderError,
) -> None:
    """Retried attempts are counted, and a refusal does not make the price unknown."""
    result = await run([error, DONE], Clock().retry())
    assert result.usage == Usage(requests=2, cost=0.5)


@pytest.mark.parametrize(
    "first",
    [ProviderTimeout("x"), [TextDelta("Hel"), ConnectionFailed("x")], [SHOWN[1], ConnectionFailed("x")]],
)
async def test_attempt_of_unknown_cost_makes_the_price_unknown(first: Any) -> None:
    """What began, or never came back, was perhaps charged."""
    result = await run([first, DONE], Clock().retry(mid_stream=True))
    assert result.usage == Usage(requests=2, estimated=True)


async def test_a_defect_in_a_library_is_not_retried() -> None:
    """An ImportError that looks like a connection error would fail again each time."""
    with pytest.raises(ProviderDefect):
        await run([ProviderDefect("No module named 'mcp'")], Clock().retry())


async def test_a_run_retries_by_default() -> None:
    retry = RunConfig().retry
    assert (retry.attempts, retry.mid_stream) == (3, False)


async def gives_text(request: Request) -> str:
    return "Hi"


@dataclass
class ByHand:
    """A handler with a name, and a stream that is not one."""

    stream: Any
    name: str = "mine"


@pytest.mark.parametrize(("stream", "gave"), [(gives_text, "coroutine"), (lambda request: "Hi", "str")])
async def test_stream_that_is_not_an_async_generator_is_an_error(stream: Any, gave: str) -> None:
    with pytest.raises(
        HandlerError, match=f"'mine' of agent 'A': stream must be an async generator, .* returned a {gave}"
    ):
        await Runner.run(Agent("A", model=ByHand(stream)), "Hi")


async def test_run_left_during_a_delay_counts_its_attempts() -> None:
    model = ScriptedHandler([ConnectionFailed("reset"), "Never asked for."])
    async with Runner.run_streamed(Agent("A", model=model), "Hi") as stream:
        async for event in stream:
            if isinstance(event, AttemptFailed):
                break
    assert stream.result.usage == Usage(requests=1, cost=0.0)
    assert len(model.requests) == 1


class Wavering:
    """Fails at first, and begins to answer at the second attempt."""

    name = "wavering"

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        self.asked += 1
        if self.asked == 1:
            raise ServerFailed("busy", retryable=True)
        yield TextDelta("Hel")
        yield DONE


async def test_abandoned_second_attempt_is_counted() -> None:
    agent = Agent("helper", model=Wavering())
    stream = Runner.run_streamed(agent, "Hi", run_config=RunConfig(retry=Clock().retry()))
    async with stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert stream.result.usage.requests == 2
