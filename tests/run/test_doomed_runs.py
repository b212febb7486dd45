"""A call that ends its run: those beside it have a grace, and none is begun any more."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from scenes import Recorder
from scripted_agents import agent, answers_of

from routelock import Agent, GuardrailResult, RunConfig, Runner, RunState, RunStream, function_handler, tool
from routelock.errors import (
    ConfigError,
    ModelBehaviorError,
    RoutelockError,
    ToolError,
    ToolGuardrailTripped,
    ToolTimeout,
)
from routelock.handlers.port import Request
from routelock.run.events import ToolOutput
from routelock.run.executor import InProcess, Outcome
from routelock.run.loop import run_to_end
from routelock.run.run import Run
from routelock.run.start import start
from routelock.state.journal import JournalSteps
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio

BOUND = 60
CUT_OFF = (
    "This call was cancelled, because another call of the same reply ended the run. It is not known "
    "whether it had an effect. Check that first if it matters."
)
NOT_RUN = "This call was not made, because another call of the same reply ended the run first."
each_way = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
each_executor = pytest.mark.parametrize("executor", [None, InProcess()], ids=["direct", "executor"])


class Office:
    """Tools that fail, hang and work, and what became of them."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.waits = anyio.Event()

    def tools(self) -> list[Any]:
        return [self.failing(), self.hanging(), self.working()]

    def failing(self, **settings: Any) -> Any:
        @tool(**{"on_error": "raise", **settings})
        async def fail() -> str:
            """Fail, once the others wait."""
            self.began.append("fail")
            await self.waits.wait()
            raise LookupError("gone")

        return fail

    def hanging(self) -> Any:
        @tool
        async def hang() -> str:
            """Wait for ever."""
            await self.hang()
            return "never"

        return hang

    def working(self) -> Any:
        @tool
        async def work() -> str:
            """Work."""
            self.began.append("work")
            return "worked"

        return work

    async def hang(self, request: Request | None = None) -> str:
        self.began.append("hang")
        self.waits.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.append("hang")
        return "never"


def calling(*names: str, tools: list[Any], **options: Any) -> Agent[Any]:
    calls = [call(name, {"input": "Go"} if name == "helper" else {}, id=f"c-{name}") for name in names]
    return Agent("A", model=ScriptedHandler([calls, "Done."]), tools=tools, **options)


def begun(made: Agent[Any], *, stream: bool, grace: float, hooks: Any = None, **settings: Any) -> Run:
    run = start(made, "Hi", None, 10, hooks, RunConfig(**{"run_id": "r", **settings}), stream=stream)
    run.open_calls.grace = grace
    return run


async def error_of(
    made: Agent[Any], *, stream: bool = False, grace: float = 0.0, **settings: Any
) -> RoutelockError:
    """Return what a run ended with that had to end."""
    run = begun(made, stream=stream, grace=grace, **settings)
    with anyio.fail_after(BOUND), pytest.raises(RoutelockError) as caught:
        await (RunStream(run).drain() if stream else run_to_end(run))
    assert_valid(caught.value.result.to_input_list())
    return caught.value


def problems(error: RoutelockError) -> Mapping[str, str]:
    return {each.call_id or "": each.message for each in error.result.errors}


@each_way
@each_executor
async def test_a_call_that_hangs_is_cancelled(executor: Any, stream: bool) -> None:
    office = Office()
    made = calling("hang", "fail", tools=office.tools())
    error = await error_of(made, stream=stream, executor=executor)
    assert isinstance(error, ToolError)
    assert answers_of(error.result) == [CUT_OFF, "Tool 'fail' failed: LookupError: gone"]
    assert office.ended == ["hang"]
    assert problems(error)["c-hang"] == CUT_OFF


@each_way
@each_executor
async def test_a_call_that_was_not_begun_is_left(executor: Any, stream: bool) -> None:
    office = Office()
    office.waits.set()
    made = calling("fail", "work", tools=office.tools())
    error = await error_of(made, stream=stream, executor=executor, tools_at_once=1)
    if office.began == ["fail"]:
        assert answers_of(error.result) == ["Tool 'fail' failed: LookupError: gone", NOT_RUN]
        assert problems(error)["c-work"] == NOT_RUN
    else:  # trio begins tasks in any order, and an executor has one for each
        assert executor is not None
        assert office.began == ["work", "fail"]


@each_way
async def test_an_agent_beside_it_is_no_exception(stream: bool) -> None:
    """A streamed run asks agents when the tools are done, with the same grace."""
    office = Office()
    if stream:
        office.waits.set()
    helper = Agent("helper", model=function_handler(office.hang))
    made = calling("helper", "fail", tools=[*office.tools(), helper.as_tool()])
    error = await error_of(made, stream=stream)
    assert answers_of(error.result)[0] == CUT_OFF
    assert office.ended == ["hang"]
    assert list(error.result.nested) == ["c-helper"]


@each_way
async def test_an_agent_that_fails_ends_the_others(stream: bool) -> None:
    office = Office()

    async def fail(request: Request) -> str:
        if not stream:
            await office.waits.wait()
        raise LookupError("gone")

    async def hang(request: Request) -> str:
        return await office.hang()

    team = [
        Agent("a", model=function_handler(fail)).as_tool(on_error="raise"),
        Agent("b", model=function_handler(hang)).as_tool(),
    ]
    calls = [call(name, {"input": "Go"}, id=f"c-{name}") for name in "ab"]
    error = await error_of(Agent("A", model=ScriptedHandler([calls]), tools=team), stream=stream)
    assert answers_of(error.result)[1] == CUT_OFF


@each_way
@each_executor
async def test_agent_call_that_cannot_start_ends_the_others(executor: Any, stream: bool) -> None:
    office = Office()
    helper = Agent("helper", model=ScriptedHandler([])).as_tool(on_error="raise")
    made = calling("hang", "helper", tools=[*office.tools(), helper])
    run = start(made, "Hi", None, 2, None, RunConfig(executor=executor, run_id="r"), stream=stream)
    run.open_calls.grace = 0
    with anyio.fail_after(BOUND), pytest.raises(ToolError) as caught:
        await (RunStream(run).drain() if stream else run_to_end(run))
    left = answers_of(caught.value.result)
    assert left[0] in {CUT_OFF, NOT_RUN}
    assert "none is left for tool 'helper'" in left[1]


@each_way
@each_executor
async def test_what_ends_within_the_grace_is_answered(executor: Any, stream: bool) -> None:
    office, failed = Office(), anyio.Event()

    class Hooks(Recorder):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: str) -> None:
            if tool.name == "fail":
                failed.set()

    @tool
    async def slow() -> str:
        """Take as long as the other one."""
        office.waits.set()
        await failed.wait()
        await anyio.lowlevel.checkpoint()
        return "done all the same"

    made = calling("fail", "slow", tools=[office.failing(), slow])
    error = await error_of(made, stream=stream, grace=BOUND, executor=executor, hooks=Hooks())
    assert answers_of(error.result)[1] == "done all the same"


async def test_a_thread_is_given_up() -> None:
    release = threading.Event()  # one of the loop's would need the loop, which may have ended by then

    @tool
    def block() -> str:
        """Block a thread."""
        anyio.from_thread.run_sync(office.waits.set)
        release.wait()
        return "late"

    office = Office()
    error = await error_of(calling("block", "fail", tools=[block, office.failing()]))
    assert answers_of(error.result)[0] == CUT_OFF
    release.set()


def trips(context: Any, owner: Any, value: Any) -> GuardrailResult:
    return GuardrailResult(True, "no")


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"on_error": "report", "output_guardrails": [trips]}, ToolGuardrailTripped),
        ({"on_error": lambda context, error: 1 / 0}, ToolError),
    ],
)
@each_way
async def test_whatever_it_is_that_ends_the_run(how: Any, kind: type[Exception], stream: bool) -> None:
    office = Office()
    made = calling("hang", "fail", tools=[office.hanging(), office.failing(**how)])
    error = await error_of(made, stream=stream)
    assert type(error) is kind
    assert answers_of(error.result)[0] == CUT_OFF


@each_way
async def test_tool_timeout_can_end_the_run(stream: bool) -> None:
    @tool(timeout=0.001, on_error="raise")
    async def late() -> str:
        """Take too long."""
        await anyio.sleep_forever()
        return "never"

    office = Office()
    error = await error_of(calling("hang", "late", tools=[office.hanging(), late]), stream=stream)
    assert isinstance(error, ToolTimeout)
    assert answers_of(error.result)[0] == CUT_OFF


@each_way
async def test_arguments_that_are_to_end_the_run_do(stream: bool) -> None:
    @tool
    async def exact(number: int) -> str:
        """Take a number."""
        return "ok"

    office = Office()
    made = calling("exact", "hang", tools=[exact, office.hanging()])
    error = await error_of(made, stream=stream, raise_on={"bad_arguments"})
    assert isinstance(error, ModelBehaviorError)
    assert answers_of(error.result)[1] == CUT_OFF


@each_way
async def test_unknown_tool_that_ends_the_run_starts_no_call(stream: bool) -> None:
    office = Office()
    made = calling("work", "nonsense", tools=office.tools())
    error = await error_of(made, stream=stream, raise_on={"unknown_tool"})
    assert office.began == []
    assert answers_of(error.result)[0] == NOT_RUN


@each_way
async def test_what_is_left_is_shown_and_not_counted(stream: bool) -> None:
    office, hooks = Office(), Recorder()
    office.waits.set()
    made = calling("fail", "work", tools=office.tools())
    run = begun(made, stream=stream, grace=0, hooks=hooks, tools_at_once=1)
    events: list[Any] = []

    async def read() -> None:
        async for event in RunStream(run):
            events.append(event)

    with pytest.raises(ToolError) as caught:
        await read()
    outputs = [(event.name, event.error) for event in events if isinstance(event, ToolOutput)]
    assert outputs == ([("fail", "raised"), ("work", "not_run")] if stream else [])
    assert [each for each in hooks.calls if "work" in each] == []
    assert caught.value.result.state().document.tool_calls == 1


async def test_what_was_cut_off_is_told_to_hooks() -> None:
    office, hooks = Office(), Recorder()
    await error_of(calling("hang", "fail", tools=office.tools()), hooks=hooks)
    assert [each for each in hooks.calls if "hang" in each] == [
        ("tool_start", "A", "hang", "c-hang"),
        ("tool_end", "A", "hang", "c-hang", CUT_OFF),
    ]


@each_way
async def test_a_run_that_goes_on_knows_what_was_done(stream: bool) -> None:
    """Nothing is made twice, and what was left is the model's to decide."""
    office = Office()
    office.waits.set()
    made = calling("fail", "work", tools=office.tools())
    error = await error_of(made, stream=stream, tools_at_once=1)
    state = RunState.from_json(error.result.state().to_json(), agents=[made])
    result = await Runner.run(made, state)
    assert result.final_output == "Done."
    assert answers_of(result) == ["Tool 'fail' failed: LookupError: gone", NOT_RUN]
    assert office.began == ["fail"]


@each_way
async def test_waiting_sub_run_is_kept_when_the_run_ends(stream: bool) -> None:
    """It was begun in the run before."""
    office = Office()
    office.waits.set()
    pay = tool(lambda: "paid", name="pay", needs_approval=True)
    helper = agent("helper", call("pay"), "All paid.", tools=[pay])
    fail = office.failing(needs_approval=True)
    made = calling("fail", "helper", tools=[fail, helper.as_tool()])
    first = await Runner.run(made, "Hi")
    state = first.state()
    for one in first.interruptions:
        state = state.approve(one)
    with pytest.raises(ToolError) as caught:
        await (Runner.run_streamed(made, state).drain() if stream else Runner.run(made, state))
    assert answers_of(caught.value.result) == ["Tool 'fail' failed: LookupError: gone", "All paid."]


async def test_a_wiring_mistake_ends_the_run_as_well() -> None:
    office = Office()

    class Desk:
        @tool
        async def method(self) -> str:
            """Be no method of an instance."""
            return "never"

    made = calling("hang", "method", tools=[office.hanging(), Desk.__dict__["method"]])
    error = await error_of(made)
    assert isinstance(error, ConfigError)
    assert answers_of(error.result)[0] == CUT_OFF


async def test_journal_does_not_restart_calls_after_a_recorded_failure() -> None:
    """The process died in the grace: what ended the run is written down, and the other call is not."""
    written: dict[str, str] = {}

    async def write(key: str, entry: str) -> None:
        written[key] = entry

    office = Office()
    names = ("hang", "fail")
    error = await error_of(
        calling(*names, tools=office.tools()), executor=JournalSteps({}, write), run_id="r"
    )
    kept = {key: entry for key, entry in written.items() if "hang" not in key}
    assert len(kept) == 2  # the reply, and the failure
    again = Office()
    second = await error_of(
        calling(*names, tools=again.tools()), executor=JournalSteps(kept, write), run_id="r"
    )
    assert again.began == []
    assert str(second) == str(error)
    assert answers_of(second.result)[1] == answers_of(error.result)[1]
    assert "is not known" in answers_of(second.result)[0]


async def test_sequential_executor_starts_no_further_call() -> None:
    class OneByOne(InProcess):
        async def gather(self, calls: Any, body: Any) -> list[Outcome]:
            return [await body(each) for each in calls]

    office = Office()
    office.waits.set()
    error = await error_of(calling("fail", "work", tools=office.tools()), executor=OneByOne())
    assert answers_of(error.result)[1] == NOT_RUN
    assert office.began == ["fail"]


async def test_the_grace_is_a_few_seconds() -> None:
    run = begun(agent("A", "Hi"), stream=False, grace=0)
    fresh = start(agent("A", "Hi"), "Hi", None, 10, None, RunConfig(), stream=False)
    assert run.open_calls.grace == 0
    assert 1 <= fresh.open_calls.grace <= 10
