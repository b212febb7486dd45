"""What a model step gave is the same when it is read back: replies, errors, and attempts that failed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from routelock.errors import ConfigError, HandlerError, HandoffTimeout, RateLimited
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone, ReasoningDelta, TextDelta
from routelock.run.executor import Call, InProcess
from routelock.state.steps import ModelStep, ReplayedSteps, StepExecutor, StepLost, recorded_error
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

STEP = Call("r", "t1.model.A", "model", {"agent": "A", "handler": "m"})
DONE = MessageDone(
    message={"role": "assistant", "content": "Hi."},
    usage=Usage(requests=1, input_tokens=3),
    finish_reason="stop",
)


def read_back(given: ModelStep) -> ModelStep:
    return ModelStep.from_json(given.to_json())


def test_a_reply_comes_back_whole_and_its_pieces_are_not_kept_beside_it() -> None:
    given = ModelStep()
    for event in (TextDelta("H"), TextDelta("i."), DONE):
        given.note(event)
    assert read_back(given).events() == [DONE]


def test_what_was_said_before_it_broke_off_comes_back() -> None:
    given = ModelStep(error=HandlerError("It broke."))
    for event in (TextDelta("Half "), TextDelta("a word")):
        given.note(event)
    back = read_back(given)
    assert "".join(event.text for event in back.events() if isinstance(event, TextDelta)) == "Half a word"
    assert (type(back.error), str(back.error)) == (HandlerError, "It broke.")


def test_that_something_was_shown_is_kept_also_where_it_is_no_text() -> None:
    given = ModelStep()
    given.note(ReasoningDelta("Hm"))
    assert read_back(given).text == [""]


def test_an_attempt_that_failed_is_told_again_with_the_vendors_words() -> None:
    given = ModelStep()
    given.note(TextDelta("H"))
    error = RateLimited("Slow down.", status=429, retry_after=2.0, provider="openai", model="m")
    given.note(AttemptFailed(error=error, attempt=1, delay=0.5))
    given.note(DONE)
    text, failed, done = read_back(given).events()
    assert (text, done) == (TextDelta(""), DONE)
    assert isinstance(failed, AttemptFailed)
    assert isinstance(failed.error, RateLimited)
    assert (failed.attempt, failed.delay, failed.error.retry_after, failed.error.status) == (1, 0.5, 2.0, 429)


def test_who_was_too_late_and_for_whom_comes_back() -> None:
    late = HandoffTimeout("Too late.")
    late.call_id, late.asked = "t", True
    back = read_back(ModelStep(error=late)).error
    assert isinstance(back, HandoffTimeout)
    assert (back.call_id, back.asked) == ("t", True)


def test_an_error_of_the_apps_own_lasts_as_a_failure_of_its_handler() -> None:
    kept = recorded_error(OSError("away"), STEP)
    assert isinstance(kept, HandlerError)
    assert str(kept) == "Handler 'm' of agent 'A' raised OSError: away"


def test_what_a_handler_raised_comes_back() -> None:
    back = read_back(ModelStep(error=recorded_error(OSError("away"), STEP))).error
    assert isinstance(back, HandlerError)
    assert back.raised == "OSError: away"


@pytest.mark.parametrize("error", [AssertionError("a test"), ConfigError("wrong")])
def test_what_is_to_end_the_run_does_not_last(error: Exception) -> None:
    assert recorded_error(error, STEP) is None


def test_text_is_kept_if_an_error_follows_the_reply() -> None:
    given = ModelStep()
    for event in (TextDelta("Hi."), DONE):
        given.note(event)
    given.to_json()
    given.error = HandlerError("It went on after its end.")
    assert read_back(given).events() == [TextDelta("Hi."), DONE]


async def body(call: Call) -> AsyncGenerator[HandlerEvent]:
    yield DONE


async def test_records_are_left_as_long_as_only_records_are_replayed() -> None:
    kept = ModelStep(done=DONE).to_json()
    steps = ReplayedSteps({STEP.key: kept, "t2.model.A": kept}, InProcess())
    assert [event async for event in steps.stream(STEP, body)] == [DONE]
    assert steps.left == {"t2.model.A": kept}


async def test_no_record_is_left_after_a_step_without_one() -> None:
    steps = ReplayedSteps({"t2.model.A": "{}"}, InProcess())
    assert [event async for event in steps.stream(STEP, body)] == [DONE]
    assert steps.left == {}


class Engine:
    """Keeps texts by key."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.error: Exception | None = None

    async def step(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        if call.key not in self.texts:
            try:
                text = await work()
            except Exception as error:
                raise OSError("the step failed") from error
            if self.error is not None:
                raise self.error
            self.texts.setdefault(call.key, text)
        return self.texts[call.key]


async def failing(call: Call) -> AsyncGenerator[HandlerEvent]:
    raise OSError("away")
    yield


async def wrong(call: Call) -> AsyncGenerator[HandlerEvent]:
    raise ConfigError("The wiring is wrong.")
    yield


async def read(engine: Engine, model: Callable[[Call], AsyncGenerator[HandlerEvent]]) -> list[HandlerEvent]:
    return [event async for event in StepExecutor(engine.step).stream(STEP, model)]


async def test_an_error_of_the_engine_stops_the_run_as_a_crash_would() -> None:
    """As an Exception, a fallback would answer, or the model would be told of it."""
    engine = Engine()
    engine.error = OSError("disk full")
    with pytest.raises(StepLost, match=r"'t1\.model\.A' of the run 'r' was not recorded") as lost:
        await read(engine, body)
    assert lost.value.__cause__ is engine.error


async def test_an_error_of_the_app_is_recorded_with_its_cause() -> None:
    engine = Engine()
    with pytest.raises(HandlerError, match="raised OSError: away") as raised:
        await read(engine, failing)
    assert isinstance(raised.value.__cause__, OSError)
    assert list(engine.texts) == [STEP.key]


async def test_an_error_that_the_engine_wraps_is_raised_as_it_was() -> None:
    with pytest.raises(ConfigError, match="The wiring is wrong"):
        await read(Engine(), wrong)


async def test_a_process_whose_result_came_second_stops() -> None:
    engine = Engine()

    async def overtaken(call: Call) -> AsyncGenerator[HandlerEvent]:
        engine.texts[call.key] = ModelStep(error=HandlerError("It broke.")).to_json()
        yield DONE

    with pytest.raises(StepLost, match="another process has the run"):
        await read(engine, overtaken)


async def test_events_are_shown_as_they_happen_and_not_again() -> None:
    engine, shown = Engine(), list[tuple[str, HandlerEvent]]()
    for _ in range(2):
        steps = StepExecutor(engine.step, show=lambda call, event: shown.append((call.key, event)))
        assert [event async for event in steps.stream(STEP, body)] == [DONE]
    assert shown == [(STEP.key, DONE)]
