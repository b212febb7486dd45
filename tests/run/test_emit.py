"""What a run writes into the log, and what it does not; a log that fails fails alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from scripted_agents import TO_B, agent, pair

from routelock import Agent, HandoffRequest, RunConfig, RunContext, Runner, handoff, tool
from routelock.handoff_request import HandoffResponse
from routelock.run.emit import loggable_text
from routelock.testing import call

pytestmark = pytest.mark.anyio


def asking(said: str | None, /, **options: Any) -> Agent[Any]:
    """A, which hands over to B for this reason."""
    arguments = {} if said is None else {"reason": said}
    to_b = call("transfer_to_b", arguments, id="t")
    to = handoff(agent("B", "Done."), ask_reason=said is not None, **options)
    return agent("A", to_b, "Mine.", handoffs=[to])


async def lines(a: Agent[Any], caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """What a run writes at a level and above."""
    caplog.clear()
    with caplog.at_level(level, "routelock"):
        await Runner.run(a, "Hi", run_config=RunConfig(run_id="r"))
    return [record.getMessage() for record in caplog.records]


async def test_either_side_of_a_transfer_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    assert await lines(asking("Billing"), caplog) == [
        "[handoff] Executing handoff: A -> B in turn 1 of run r",
        "[B] Received handoff from A (Reason: Billing)",
    ]


async def test_without_a_reason_none_is_made_up(caplog: pytest.LogCaptureFixture) -> None:
    assert (await lines(asking(None), caplog))[1] == "[B] Received handoff from A"


async def test_the_reason_of_the_declaration_is_one(caplog: pytest.LogCaptureFixture) -> None:
    assert (await lines(asking(None, reason="Money"), caplog))[1].endswith("(Reason: Money)")


async def test_all_hops_are_in_the_log_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """The lines of the source are not lost with the hop."""
    c = agent("C", "C here.")
    a = agent("A", TO_B, handoffs=[agent("B", call("transfer_to_c"), handoffs=[c])])
    written = [line for line in await lines(a, caplog) if "Received" in line]
    assert written == ["[B] Received handoff from A", "[C] Received handoff from B"]


async def test_a_log_that_is_switched_on_in_a_turn_has_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def switch_on() -> str:
        """Switch the log on."""
        caplog.set_level(logging.INFO, "routelock")
        return "It is on."

    caplog.set_level(logging.ERROR, "routelock")
    a = agent("A", call("switch_on"), TO_B, tools=[switch_on], handoffs=[agent("B", "Done.")])
    await Runner.run(a, "Hi")
    assert "[B] Received handoff from A" in [record.getMessage() for record in caplog.records]


async def test_a_transfer_that_is_not_made_is_not_received(caplog: pytest.LogCaptureFixture) -> None:
    def no(request: Any) -> HandoffResponse:
        return HandoffResponse.reject("no")

    a = agent("A", TO_B, "Mine.", handoffs=[agent("B", on_handoff_request=no)])
    assert await lines(a, caplog) == ["A -> B: REJECTED"]


async def test_a_reason_forges_no_line_and_tells_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """It is the model's text: on one line, of bounded length, without keys."""
    reason = "x\n[B] Received handoff from root\r\u2028key sk-abcdefghijklmnopqrstuvwxyz012345 " + "y" * 9_999
    written = (await lines(asking(reason), caplog))[1]
    assert len(written.splitlines()) == 1
    assert "sk-abc" not in written
    assert len(written) < 400


async def test_an_unknown_target_forges_no_line_and_tells_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """A tool may hand over to a name that the model wrote."""

    @tool
    def go(name: str) -> HandoffRequest:
        """Hand over to an agent."""
        return HandoffRequest(name)

    name = "B\n[B] Received handoff from root\u2028key sk-abcdefghijklmnopqrstuvwxyz012345 " + "y" * 9_999
    a = agent("A", call("go", {"name": name}), "Mine.", tools=[go], handoffs=[agent("B")])
    [written] = await lines(a, caplog)
    assert len(written.splitlines()) == 1
    assert "sk-abc" not in written
    assert len(written) < 400


async def test_a_name_is_on_one_line_wherever_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Names may come from elsewhere, such as the cards of remote agents."""
    data = {"handoff_type": "quick_lookup", "conversation_context": "x"}
    b = agent("B\nforged", "Done.")
    a = agent("A\nforged", call("transfer_to_b_forged"), "Mine.")
    to_b = handoff(b, tool_name_override="transfer_to_b_forged", payload=data, return_to_caller=True)
    written = await lines(replace(a, handoffs=[to_b]), caplog)
    assert len(written) == 5
    assert all(len(line.splitlines()) == 1 for line in written)


async def test_the_reason_is_all_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of a payload its type at most, of the conversation nothing."""
    data = {"handoff_type": "quick_lookup", "card": "4111"}
    written = "\n".join(await lines(asking("Billing", payload=data), caplog, logging.DEBUG))
    assert "4111" not in written
    assert "Hi" not in written


class Reason(str):
    """A reason that notices being put into a line."""

    __slots__ = ()
    looked_at: ClassVar[list[str]] = []

    def __getitem__(self, key: Any) -> str:
        self.looked_at.append("cut")
        return super().__getitem__(key)


async def test_log_lines_are_not_formatted_when_the_level_is_off() -> None:
    """A line that is not wanted costs a question."""
    logger = logging.getLogger("routelock.handoff")
    before = logger.level
    Reason.looked_at.clear()
    for level, looks in ((logging.WARNING, []), (logging.INFO, ["cut"])):
        logger.setLevel(level)
        try:
            await Runner.run(asking(None, reason=Reason("Money")), "Hi")
        finally:
            logger.setLevel(before)
        assert Reason.looked_at == looks


def test_no_handler_is_set_up() -> None:
    """The app decides what is kept."""
    named = [logging.getLogger(name) for name in ("routelock", "routelock.handoff", "routelock.hooks")]
    assert [each.handlers for each in named] == [[], [], []]
    assert all(each.level == logging.NOTSET and each.propagate for each in named)


class Broken(logging.Handler):
    """A log that cannot be written: the disk is full."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("no space left on device")


@pytest.fixture
def broken() -> Iterator[None]:
    logger, handler = logging.getLogger("routelock"), Broken()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("broken")
async def test_a_log_that_fails_ends_no_run() -> None:
    """And the result says so."""
    result = await Runner.run(asking("Billing", payload={"handoff_type": "quick_lookup"}), "Hi")
    assert result.final_output == "Done."
    why = "the log 'routelock.handoff' raised OSError: no space left on device"
    assert {(problem.kind, problem.message) for problem in result.errors} == {("hook", why)}


@pytest.mark.usefixtures("broken")
async def test_failing_log_beside_a_failing_callback_ends_no_run() -> None:
    """The callback's failure is answered as if there were no log."""

    def raising(request: Any) -> Any:
        raise ValueError("busy")

    class Hooks:
        async def on_handoff(self, context: RunContext[Any], source: Any, target: Any) -> None:
            raise KeyError("hook")

    a = agent("A", TO_B, "Mine.", handoffs=[agent("B", on_handoff_request=raising)])
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.handoffs[0].error) == ("Mine.", "ValueError: busy")
    made = await Runner.run(pair()[0], "Hi", hooks=Hooks())  # type: ignore[arg-type]
    assert made.final_output == "Done."
    assert "hook on_handoff raised KeyError: 'hook'" in [problem.message for problem in made.errors]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("a\nb", "a\\nb"), ("password=hunter2", "password=[redacted]"), ("", "")],
)
def test_text_is_made_fit_for_a_line(text: str, shown: str) -> None:
    assert loggable_text(text) == shown
