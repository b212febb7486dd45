"""Fallback: the next handler by priority answers for one that failed before it showed anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest
from executors import Recording
from plain_and_streamed import QUICK, Played, Voice, both
from scenes import facts

from routelock import (
    Agent,
    GuardrailResult,
    HandoffRequest,
    Retry,
    RunConfig,
    RunHooks,
    Runner,
    RunStream,
    Tool,
    Usage,
    function_handler,
    function_tool,
    handoff,
)
from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ContentRefused,
    HandlerError,
    InputGuardrailTripped,
    InvalidRequest,
    LimitExceeded,
    MissingExtra,
    ModelBehaviorError,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    RoutelockError,
    ServerFailed,
    ToolError,
)
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.run.events import HandlerFallback
from routelock.run.executor import Call
from routelock.run.start import start
from routelock.testing import UnexpectedModelCall, assert_valid, call, reply

pytestmark = pytest.mark.anyio


@function_tool
async def add(a: int, b: int) -> int:
    """Add."""
    await anyio.lowlevel.checkpoint()
    return a + b


ONCE = Retry(attempts=1)
ADD = call("add", {"a": 1, "b": 2})


def team(first: Any, *others: Any, **options: Any) -> Agent[Any]:
    """An agent whose handlers h0, h1, ... say these things, in this order."""
    scripts = [each if isinstance(each, tuple) else (each,) for each in (first, *others)]
    handlers = [Voice(f"h{n}", *script) for n, script in enumerate(scripts)]
    return Agent("A", "Be A.", handlers=handlers, tools=[add], **options)


async def falling(*scripts: Any, **settings: Any) -> Played:
    return await fall(lambda: team(*scripts), **settings)


async def fall(make: Callable[[], Agent[Any]], **settings: Any) -> Played:
    return await both(make, **{"fallback": True, "retry": ONCE, **settings})


def kinds(played: Played) -> list[str]:
    return [problem.kind for problem in played.result.errors]


# -- when --


async def test_it_is_off_by_default() -> None:
    """The provider is a matter of cost and privacy, so fallback is off by default."""
    played = await both(lambda: team(ServerFailed("down"), "Backup."), retry=ONCE)
    assert isinstance(played.error, ServerFailed)
    assert [made.handler for made in played.result.calls] == ["h0"]


async def test_the_next_by_priority_answers() -> None:
    played = await falling(ServerFailed("down"), "Backup.")
    assert (played.result.final_output, played.result.last_handler) == ("Backup.", "h1")


async def test_it_goes_by_priority_and_not_by_registration() -> None:
    def make() -> Agent[Any]:
        down = Voice("down", ServerFailed("down"), priority=1)
        return Agent("A", handlers=[Voice("c", "C", priority=30), Voice("b", "B", priority=20), down])

    assert (await fall(make)).result.final_output == "B"


async def test_the_model_has_its_place_among_them() -> None:
    def make() -> Agent[Any]:
        return Agent("A", model=Voice("m", ServerFailed("x"), priority=10), handlers=[Voice("late", "Late.")])

    assert (await fall(make)).result.final_output == "Late."


@pytest.mark.parametrize(
    "error",
    [
        ServerFailed("x"),
        RateLimited("x"),
        ConnectionFailed("x"),
        AuthenticationFailed("x"),
        InvalidRequest("x"),
        ContentRefused("x"),
        ProviderTimeout("x"),
        HandlerError("x"),
        ValueError("x"),
        OSError("x"),
        ExceptionGroup("x", [ValueError("y")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_handler_does_wrong_is_fallen_back_from(error: Exception) -> None:
    assert (await falling(error, "Backup.")).result.final_output == "Backup."


@pytest.mark.parametrize(
    "kind",
    [
        ConfigError,
        MissingExtra,
        ModelBehaviorError,
        ToolError,
        LimitExceeded,
        AssertionError,
        UnexpectedModelCall,
    ],
)
async def test_what_is_no_fault_of_the_handler_is_raised(kind: type[Exception]) -> None:
    """A mistake in the setup, or a test's own complaint, must not be hidden by a backup."""
    agent = team(kind("x"), "Backup.")
    with pytest.raises(kind):
        await Runner.run(agent, "Hi", run_config=RunConfig(fallback=True))


async def test_a_guardrail_is_not_fallen_back_from() -> None:
    def no(*_: Any) -> GuardrailResult:
        return GuardrailResult(True)

    played = await fall(lambda: team("Hi", "Backup.", input_guardrails=[no]))
    assert isinstance(played.error, InputGuardrailTripped)


async def test_a_prompt_that_raises_is_not_fallen_back_from() -> None:
    def broken() -> str:
        raise ValueError("no prompt")

    def make() -> Agent[Any]:
        return Agent("A", broken, handlers=[Voice("h0", "Hi"), Voice("h1", "Backup.")])

    assert (await fall(make)).error is not None


@pytest.mark.parametrize(
    "shown",
    [
        [TextDelta("Hel")],
        [TextDelta("")],
        [ReasoningDelta("Hm")],
        [ToolCallDelta(0, "c", "add", "{")],
        [MessageDone(message={"role": "assistant", "content": "Whole."})],
    ],
    ids=["text", "empty text", "reasoning", "call", "whole reply"],
)
async def test_no_fallback_after_the_first_token(shown: list[HandlerEvent]) -> None:
    """The reader would see two answers."""
    played = await falling([*shown, ServerFailed("cut")], "Backup.")
    assert isinstance(played.error, ServerFailed)
    assert [made.handler for made in played.result.calls] == ["h0"]


async def test_what_was_shown_before_the_failure_is_kept() -> None:
    played = await falling([TextDelta("Hel"), ServerFailed("cut")], "Backup.")
    assert played.result.messages[-1] == {"role": "assistant", "content": "Hel"}


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "user", "content": "x"},
        {"content": 5},
        {"content": None, "tool_calls": [{"id": "c", "function": "add"}]},
    ],
)
async def test_a_broken_reply_is_no_failure_to_answer(bad: Any) -> None:
    """It was paid for; to ask another one would hide what is wrong."""
    message: Any = {"role": "assistant", **bad}
    played = await falling([MessageDone(message=message)], "Backup.")
    assert isinstance(played.error, HandlerError)


async def test_a_handler_that_says_nothing_has_failed() -> None:
    async def silent(request: Any) -> AsyncGenerator[HandlerEvent]:
        for event in ():
            yield event

    class Mute(Voice):
        async def stream(self, request: Any) -> AsyncGenerator[HandlerEvent]:
            async for event in silent(request):
                yield event

    def make() -> Agent[Any]:
        return Agent("A", handlers=[Mute("mute"), Voice("h1", "Backup.")])

    assert (await fall(make)).result.final_output == "Backup."


# -- how it is told --


async def test_it_is_an_event() -> None:
    played = await falling(ServerFailed("down"), "Backup.")
    (event,) = [event for event in played.events if isinstance(event, HandlerFallback)]
    assert (event.agent, event.handler, event.next_handler) == ("A", "h0", "h1")
    assert isinstance(event.error, ServerFailed)
    assert played.kinds == ["agent_updated", "handler_fallback", "message_done", "run_done"]


async def test_it_is_on_the_result() -> None:
    played = await falling(ServerFailed("down"), "Backup.")
    (problem,) = played.result.errors
    assert (problem.kind, problem.agent, problem.turn) == ("fallback", "A", 1)
    assert "handler 'h0' failed, 'h1' answers instead: ServerFailed: down" in problem.message
    assert isinstance(problem.error, ServerFailed)


async def test_each_attempt_is_a_model_call() -> None:
    played = await falling(ServerFailed("down"), "Backup.")
    assert [(made.handler, made.turn, made.reply is None) for made in played.result.calls] == [
        ("h0", 1, True),
        ("h1", 1, False),
    ]


async def test_each_attempt_was_shown_the_same() -> None:
    played = await falling(ServerFailed("down"), "Backup.")
    first, second = played.result.calls
    assert first.messages == second.messages
    assert first.tools == second.tools


async def test_a_refused_call_costs_nothing_and_is_counted() -> None:
    played = await falling(ServerFailed("down"), "Backup.")
    assert played.result.usage == Usage(requests=2, input_tokens=10, output_tokens=5, cost=None)
    assert not played.result.usage.estimated


async def test_call_without_usage_counts_as_an_estimate() -> None:
    played = await falling(ProviderTimeout("slow"), "Backup.")
    assert (played.result.usage.requests, played.result.usage.estimated) == (2, True)


async def test_usage_is_told_by_handler() -> None:
    played = await falling((ADD, ServerFailed("down")), "Backup.")
    used = Usage(requests=1, input_tokens=10, output_tokens=5)
    assert played.result.usage_by_handler == {"h0": used, "h1": used}


async def test_the_turn_is_counted_once() -> None:
    played = await falling(ServerFailed("down"), ServerFailed("down"), "Backup.", max_turns=1)
    assert played.result.final_output == "Backup."
    assert played.result.context.turn == 1


async def test_hooks_see_every_attempt() -> None:
    seen: list[str] = []

    class Watch(RunHooks):
        async def on_agent_start(self, *_: Any) -> None:
            seen.append("agent")

        async def on_llm_start(self, *_: Any) -> None:
            seen.append("start")

        async def on_llm_end(self, *_: Any) -> None:
            seen.append("end")

    config = RunConfig(fallback=True, retry=ONCE)
    await Runner.run(team(ServerFailed("down"), "Backup."), "Hi", hooks=Watch(), run_config=config)
    assert seen == ["agent", "start", "start", "end"]


# -- several --


async def test_a_chain_of_failures_goes_down_the_line() -> None:
    played = await falling(ServerFailed("one"), OSError("two"), RateLimited("three"), "Fourth.")
    assert played.result.last_handler == "h3"
    assert kinds(played) == ["fallback"] * 3
    assert [made.handler for made in played.result.calls] == ["h0", "h1", "h2", "h3"]


async def test_the_last_error_is_raised_when_all_fail() -> None:
    """The others are on the result."""
    played = await falling(ServerFailed("one"), RateLimited("two"))
    assert isinstance(played.error, RateLimited)
    assert [type(problem.error) for problem in played.result.errors] == [ServerFailed]
    assert played.result.stop_reason == "error"
    assert played.result.usage.requests == 2


async def test_unexpected_exception_at_the_end_is_a_handler_error() -> None:
    played = await falling(ServerFailed("one"), ZeroDivisionError("two"))
    assert isinstance(played.error, HandlerError)
    assert "'h1'" in str(played.error)
    assert isinstance(played.error.__cause__, ZeroDivisionError)


async def test_single_handler_has_no_fallback() -> None:
    assert isinstance((await falling(ServerFailed("down"))).error, ServerFailed)


# -- retries --


async def test_retries_of_the_first_come_first() -> None:
    played = await falling((ConnectionFailed("1"), ConnectionFailed("2"), "Here."), "Backup.", retry=QUICK)
    assert played.result.final_output == "Here."
    assert kinds(played) == ["provider", "provider"]


async def test_fallback_comes_after_all_retries() -> None:
    played = await falling((*[ConnectionFailed(str(n)) for n in range(3)], "never"), "Backup.", retry=QUICK)
    assert played.result.final_output == "Backup."
    assert kinds(played) == ["provider", "provider", "fallback"]
    assert len(played.asked("h0")) == 3


async def test_the_backup_is_retried_as_well() -> None:
    played = await falling(InvalidRequest("x"), (ConnectionFailed("y"), "Backup."), retry=QUICK)
    assert played.result.final_output == "Backup."
    assert kinds(played)[-2:] == ["fallback", "provider"]


async def test_void_stream_allows_a_fallback() -> None:
    """``Retry(mid_stream=True)`` told the reader that what was shown does not count."""
    retry = Retry(attempts=2, mid_stream=True, sleep=QUICK.sleep)
    first = [TextDelta("Hel"), ConnectionFailed("cut")]
    played = await falling(([*first], ConnectionFailed("again")), "Backup.", retry=retry)
    assert played.result.final_output == "Backup."
    assert any(isinstance(event, AttemptFailed) for event in played.events)


# -- it stays --


async def test_the_backup_stays_for_the_rest_of_the_run() -> None:
    played = await falling((ServerFailed("down"), "never"), (ADD, "3"))
    assert [made.handler for made in played.result.calls] == ["h0", "h1", "h1"]


async def test_the_next_run_starts_at_the_default() -> None:
    config = RunConfig(fallback=True)
    agent = team((InvalidRequest("down"), "Here again."), "Backup.")
    first = await Runner.run(agent, "Hi", run_config=config)
    second = await Runner.run(agent, "Hi", run_config=config)
    assert (first.last_handler, second.final_output) == ("h1", "Here again.")


async def test_it_may_fail_later_in_a_run() -> None:
    played = await falling((ADD, InvalidRequest("down")), "3")
    assert played.result.final_output == "3"
    assert_valid(played.asked("h1")[0].messages)
    assert [made.turn for made in played.result.calls] == [1, 2, 2]


async def test_a_handler_that_failed_is_not_tried_again() -> None:
    played = await falling(
        InvalidRequest("one"), (ADD, InvalidRequest("two")), (ADD, InvalidRequest("three"))
    )
    assert [made.handler for made in played.result.calls] == ["h0", "h1", "h1", "h2", "h2"]
    assert str(played.error) == "three"


async def test_tools_run_once() -> None:
    done: list[str] = []

    @function_tool
    def charge() -> str:
        """Charge."""
        done.append("charged")
        return "ok"

    handlers = [Voice("h0", call("charge"), InvalidRequest("down")), Voice("h1", "Charged.")]
    agent = Agent("A", handlers=handlers, tools=[charge])
    await Runner.run(agent, "Hi", run_config=RunConfig(fallback=True))
    assert done == ["charged"]


async def test_a_forced_tool_is_forced_for_the_backup_too() -> None:
    """It is the same first call of the agent, made again."""
    forced = {"tool_choice": "add"}
    played = await fall(lambda: team(InvalidRequest("x"), (ADD, "3"), model_settings=forced))
    assert [made.tool_choice for made in played.result.calls] == ["add", "add", None]


# -- families --


async def test_provider_data_is_not_shown_to_the_backup() -> None:
    def make() -> Agent[Any]:
        private = {"content": "Let me add.", "tool_calls": [ADD], "reasoning_content": "secret"}
        private["thinking_blocks"] = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
        handlers = [
            Voice("h0", private, InvalidRequest("down"), family="one"),
            Voice("h1", "3", family="two"),
        ]
        return Agent("A", handlers=handlers, tools=[add])

    played = await fall(make)
    first, second = played.asked("h0")[1], played.asked("h1")[0]
    assert "thinking_blocks" in first.messages[1]
    assert "thinking_blocks" not in second.messages[1]
    assert "reasoning_content" not in second.messages[1]


async def test_one_of_the_same_family_is_shown_it() -> None:
    def make() -> Agent[Any]:
        private = {
            "content": "x",
            "tool_calls": [ADD],
            "thinking_blocks": [{"type": "thinking", "thinking": "h"}],
        }
        handlers = [
            Voice("h0", private, InvalidRequest("down"), family="one"),
            Voice("h1", "3", family="one"),
        ]
        return Agent("A", handlers=handlers, tools=[add])

    played = await fall(make)
    assert "thinking_blocks" in played.asked("h1")[0].messages[1]


# -- with switching --


def asks(target: Any) -> Tool:
    return Tool(name="ask", on_invoke_tool=lambda context, arguments: HandoffRequest(target, input={"n": 1}))


async def test_default_replaces_a_failed_handoff_handler() -> None:
    def make() -> Agent[Any]:
        guest = Voice("guest", InvalidRequest("down"))
        default = Voice("h0", call("transfer_to_guest"), "I do it myself.")
        return Agent("A", handlers=[default], handoffs=[handoff(guest)])

    played = await fall(make)
    assert played.result.final_output == "I do it myself."
    assert [made.handler for made in played.result.calls] == ["h0", "guest", "h0"]


async def test_next_handler_by_priority_replaces_a_failed_one() -> None:
    """Not the default: that one has handed over."""

    def make() -> Agent[Any]:
        handlers = [
            Voice("h0", call("ask"), "never"),
            Voice("h1", InvalidRequest("down")),
            Voice("h2", "Next."),
        ]
        return Agent("A", handlers=handlers, tools=[asks("h1")])

    assert (await fall(make)).result.final_output == "Next."


async def test_what_was_passed_along_reaches_the_stand_in() -> None:
    def make() -> Agent[Any]:
        handlers = [Voice("h0", call("ask")), Voice("h1", InvalidRequest("down")), Voice("h2", "Next.")]
        return Agent("A", handlers=handlers, tools=[asks("h1")])

    played = await fall(make)
    assert played.asked("h2")[0].handoff_input == {"n": 1}


async def test_handoff_target_falls_back_to_its_own_handlers() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", handlers=[Voice("b0", InvalidRequest("down")), Voice("b1", "B's backup.")])
        return Agent("A", handlers=[Voice("h0", call("transfer_to_b")), Voice("h1", "never")], handoffs=[b])

    assert (await fall(make)).result.final_output == "B's backup."


async def test_failed_handler_does_not_count_for_another_agents() -> None:
    """They may be two models that are called the same."""

    def make() -> Agent[Any]:
        b = Agent("B", handlers=[Voice("b0", InvalidRequest("b0")), Voice("h0", "B's own h0.")])
        handlers = [Voice("h0", InvalidRequest("h0")), Voice("h1", call("transfer_to_b"))]
        return Agent("A", handlers=handlers, handoffs=[b])

    assert (await fall(make)).result.final_output == "B's own h0."


async def test_caller_keeps_its_backup_after_a_return() -> None:
    """It stays for the rest of the run: who is down is not asked again after each detour."""

    def make() -> Agent[Any]:
        handlers = [
            Voice("h0", InvalidRequest("down"), "never", prompt="Is h0."),
            Voice("h1", call("transfer_to_b"), "Back.", prompt="Is h1."),
        ]
        b = Agent("B", model=Voice("b", call("transfer_to_a")), handoffs=["A"])
        return Agent("A", handlers=handlers, handoffs=[b])

    played = await fall(make)
    assert [made.handler for made in played.result.calls] == ["h0", "h1", "b", "h1"]
    assert played.result.calls[1].messages[0] == played.result.calls[3].messages[0]
    assert [record.source for record in played.result.handoffs] == ["A", "B"]


async def test_the_runs_model_falls_back_to_the_agents_others() -> None:
    agent = team("never", "Backup.")
    model = Voice("mine", InvalidRequest("down"))
    result = await Runner.run(agent, "Hi", run_config=RunConfig(model=model, fallback=True))
    assert result.final_output == "Backup."


async def test_fallback_begins_at_the_handler_of_the_run() -> None:
    played = await falling("never", InvalidRequest("down"), "Next.", handler="h1")
    assert played.result.final_output == "Next."


# -- the text is shown --


async def test_streamed_run_shows_the_text_of_a_plain_backup() -> None:
    async def whole(request: Any) -> str:
        return "The whole answer."

    def make() -> Agent[Any]:
        return Agent("A", handlers=[Voice("h0", InvalidRequest("down")), function_handler(whole)])

    played = await fall(make)
    shown = [event.text for event in played.events if isinstance(event, TextDelta)]
    assert shown == ["The whole answer."]


@pytest.mark.parametrize(
    "events",
    [
        [],
        [ReasoningDelta("Hm")],
        [TextDelta("The ")],
        [TextDelta("")],
        [TextDelta("The answer.")],
        [ToolCallDelta(0, "x", "y", "")],
    ],
    ids=["nothing", "reasoning", "a part", "empty text", "all", "a call that was not made"],
)
async def test_streamed_run_always_shows_the_whole_text(events: list[Any]) -> None:
    """Joined, the text deltas are the final text."""
    done = MessageDone(message={"role": "assistant", "content": "The answer."})
    played = await both(lambda: Agent("A", model=Voice("v", [*events, done])))
    shown = "".join(event.text for event in played.events if isinstance(event, TextDelta))
    assert shown == played.result.final_output == "The answer."


async def events_of(*events: Any) -> list[Any]:
    run = Runner.run_streamed(Agent("A", model=Voice("v", [*events], "Done."), tools=[add]), "Hi")
    return [event async for event in run]


async def test_what_was_shown_is_not_shown_again() -> None:
    said = reply("Let me see.", calls=[call("add", {"a": 1, "b": 2}, id="c")], reasoning="Hm")
    first = [ReasoningDelta("Hm"), ToolCallDelta(0, "c", "add", "{}")]
    seen = await events_of(*first, MessageDone(message=said.message))
    assert [event for event in seen if isinstance(event, ReasoningDelta | ToolCallDelta)] == first
    assert TextDelta("Let me see.") in seen


async def test_text_that_differs_from_its_deltas_is_kept() -> None:
    """Two texts joined would be a third one; the complete message says what counts."""
    seen = await events_of(
        TextDelta("Foo"), MessageDone(message={"role": "assistant", "content": "Bar and more."})
    )
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["Foo"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_text_that_differs_from_its_deltas_is_logged(
    is_streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    other = MessageDone(message={"role": "assistant", "content": "Bar and more."})
    made = Agent("A", model=Voice("v", [TextDelta("Foo"), other]))
    result = await (Runner.run_streamed(made, "Hi").drain() if is_streamed else Runner.run(made, "Hi"))
    assert (result.final_output, result.warnings) == ("Bar and more.", ())
    assert "Handler 'v' of agent 'A' streamed another text than that of its reply" in caplog.text


async def test_text_beside_calls_is_shown_too() -> None:
    said = reply("Let me see.", calls=[call("add", {"a": 1, "b": 2}, id="c")])
    script: list[Any] = [MessageDone(message=said.message)]
    played = await both(lambda: Agent("A", model=Voice("v", script, "3"), tools=[add]))
    deltas = [event for event in played.events if isinstance(event, TextDelta | ToolCallDelta)]
    assert deltas[0] == TextDelta("Let me see.")
    assert deltas[1] == ToolCallDelta(0, "c", "add", '{"a": 1, "b": 2}')


async def test_a_plain_run_makes_no_deltas() -> None:
    agent = Agent("A", model=Voice("v", "Hi"))
    run = RunStream(start(agent, "Hi", None, 1, None, None, stream=False))
    assert not [event async for event in run if isinstance(event, TextDelta)]


# -- the seam --


async def test_the_keys_of_the_attempts_differ() -> None:
    recording = Recording()
    agent = team((ADD, InvalidRequest("x")), InvalidRequest("y"), (ADD, "3"))
    await Runner.run(agent, "Hi", run_config=RunConfig(fallback=True, executor=recording, run_id="r"))
    assert [step.key for step in recording.calls if step.op == "model"] == [
        "t1.model.A",
        "t2.model.A",
        "t2.model.A.h1",
        "t2.model.A.h2",
        "t3.model.A.h2",
    ]


class FailingReplay:
    """Gives back recorded replies; a step that has none failed when it was recorded, so it fails again."""

    def __init__(self, recording: Recording, errors: dict[str, Exception]) -> None:
        self.recording = recording
        self.errors = errors

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        if call.key in self.errors:
            raise self.errors[call.key]
        yield self.recording.journal[call.run_id, call.key]

    async def gather(self, calls: Any, body: Any) -> Any:
        return [self.recording.journal[call.run_id, call.key] for call in calls]


async def test_a_replayed_run_falls_back_again() -> None:
    recording, config = Recording(), {"fallback": True, "run_id": "r", "retry": QUICK}

    def make() -> Agent[Any]:
        return team((ADD, InvalidRequest("x")), (ADD, "3"))

    first = await Runner.run(make(), "Hi", run_config=RunConfig(executor=recording, **config))
    replaying = FailingReplay(recording, {"t2.model.A": InvalidRequest("x")})
    again = await Runner.run(make(), "Hi", run_config=RunConfig(executor=replaying, **config))
    assert facts(first) == facts(again)


# -- cancelled, left --


async def test_a_cancelled_handler_is_not_fallen_back_from() -> None:
    scope = anyio.CancelScope()

    async def waits(request: Any) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    backup = Voice("h1", "Backup.")
    agent = Agent("A", handlers=[function_handler(waits), backup])
    stream = Runner.run_streamed(agent, "Hi", run_config=RunConfig(fallback=True))
    with scope:
        await stream.drain()
    assert scope.cancelled_caught
    assert backup.requests == []
    assert stream.result.errors == ()


async def test_a_stream_may_be_left_at_the_fallback() -> None:
    agent = team(InvalidRequest("x"), "Backup.")
    async with Runner.run_streamed(agent, "Hi", run_config=RunConfig(fallback=True)) as stream:
        async for event in stream:
            if isinstance(event, HandlerFallback):
                break
    assert stream.result.usage.requests == 1
    assert [made.handler for made in stream.result.calls] == ["h0"]


async def test_error_of_the_reader_causes_no_fallback() -> None:
    agent = team("One two.", "Backup.")
    stream = Runner.run_streamed(agent, "Hi", run_config=RunConfig(fallback=True))

    async def read() -> None:
        async with stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()
    assert stream.result.errors == ()


async def test_nothing_is_lost_between_error_classes() -> None:
    """Every provider error is an routelock error, with the partial result on it."""
    played = await falling(ServerFailed("a"), ServerFailed("b"))
    assert isinstance(played.error, ProviderError)
    assert isinstance(played.error, RoutelockError)
    assert played.error.result is not None


async def test_a_step_says_which_handler_is_asked() -> None:
    """An engine that cannot carry a closure finds the handler by its name."""
    recording = Recording()
    agent = team((ADD, InvalidRequest("x")), "3")
    await Runner.run(agent, "Hi", run_config=RunConfig(fallback=True, executor=recording, run_id="r"))
    assert [step.args["handler"] for step in recording.calls if step.op == "model"] == ["h0", "h0", "h1"]
