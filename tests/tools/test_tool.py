"""A call becomes an answer, whatever the model sends and whatever the function does."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from contextvars import ContextVar
from dataclasses import replace
from typing import Annotated, Any, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError, ModelBehaviorError, ToolError, ToolTimeout
from routelock.tools.decorators import tool
from routelock.tools.outcome import ToolOutcome, ToolResult
from routelock.tools.tool import Tool
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext(context={"user": "ada"}, tool_name="it", tool_call_id="c1")


async def answer(made: Tool, arguments: str = "{}") -> ToolOutcome:
    return await made.invoke(CONTEXT, arguments)


@tool
async def lookup(key: str, limit: int = 10) -> str:
    """Look it up.

    Args:
        key: What to look for.
        limit: How many.
    """
    return f"{key} {limit}"


# -- calling --


async def test_arguments_arrive_as_named_and_typed() -> None:
    assert await answer(lookup, '{"key": "a", "limit": "3"}') == ToolOutcome("a 3")


async def test_null_means_the_default() -> None:
    assert (await answer(lookup, '{"key": "a", "limit": null}')).output == "a 10"


async def test_sync_functions_partials_and_objects_can_be_tools() -> None:
    class Adder:
        def __call__(self, a: int) -> int:
            return a + 1

    class AsyncAdder:
        async def __call__(self, a: int) -> int:
            return a + 1

    def add(a: int, b: int) -> int:
        return a + b

    for function in (Adder(), AsyncAdder(), functools.partial(add, b=1), functools.partial(add, 1)):
        schema_names = {"a"} if not getattr(function, "args", ()) else {"b"}
        made = tool(function, name="add")
        assert set(made.params_json_schema["properties"]) == schema_names
        assert (await answer(made, json.dumps(dict.fromkeys(schema_names, 2)))).output == "3"


async def test_a_bound_method_can_be_a_tool() -> None:
    class Shop:
        async def find(self, name: str) -> str:
            return name

    assert (await answer(tool(Shop().find), '{"name": "hat"}')).output == "hat"


class Counter:
    """An object whose methods are tools."""

    def __init__(self, start: int) -> None:
        self.value = start

    @tool
    async def add(self, n: int) -> int:
        """Add."""
        self.value += n
        return self.value

    @tool
    def peek(self, context: RunContext[Any]) -> str:
        return f"{self.value} for {context.context['user']}"


async def test_a_tool_in_a_class_belongs_to_the_instance() -> None:
    one, two = Counter(1), Counter(10)
    assert (await answer(one.add, '{"n": 1}')).output == "2"
    assert (await answer(two.add, '{"n": 1}')).output == "11"
    assert (await answer(one.peek)).output == "2 for ada"
    assert one.add.spec is Counter.add.spec
    assert "self" not in one.add.params_json_schema["properties"]


async def test_tool_method_without_an_instance_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'add' is a method: take the tool from an instance"):
        await answer(Counter.add, '{"n": 1}')


async def test_class_method_cannot_be_decorated_as_a_tool() -> None:
    """The schema would contain ``cls``."""
    unchecked: Any = tool
    with pytest.raises(ConfigError, match=r"write tool\(TheClass\.of_today\) where"):

        class Cart:
            @classmethod
            @unchecked
            def of_today(cls, day: int) -> str:
                return f"{cls.__name__} {day}"

    class Basket:
        @classmethod
        def of_today(cls, day: int) -> str:
            return f"{cls.__name__} {day}"

    assert (await answer(tool(Basket.of_today), '{"day": 3}')).output == "Basket 3"


async def test_tool_as_a_class_attribute_is_not_bound() -> None:
    class Box:
        it = lookup

    assert Box().it is lookup


async def test_the_context_comes_with_the_validated_arguments() -> None:
    @tool
    async def f(ctx: ToolContext[dict[str, str]], key: str, limit: int = 1) -> Any:
        return [ctx.context["user"], ctx.tool_call_id, dict(ctx.arguments)]

    assert (await answer(f, '{"key": "a"}')).output == '["ada","c1",{"key":"a"}]'


async def test_a_plain_run_context_will_do() -> None:
    @tool
    async def f(ctx: RunContext[int]) -> int:
        return ctx.context

    context: Any = RunContext(context=5)
    assert (await f.invoke(context, "{}")).output == "5"


async def test_a_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    @tool
    def f() -> Any:
        return anyio.lowlevel.checkpoint()

    assert (await answer(f)) == ToolOutcome("")


async def test_a_tool_may_report_its_usage() -> None:
    @tool
    async def f() -> ToolResult:
        return ToolResult({"a": 1}, usage=Usage(requests=1, input_tokens=5))

    assert await answer(f) == ToolOutcome('{"a":1}', usage=Usage(requests=1, input_tokens=5))


async def test_invalid_usage_is_a_failure_of_the_tool() -> None:
    @tool
    async def f() -> ToolResult:
        return ToolResult("a", usage=cast(Any, {"tokens": 5}))

    outcome = await answer(f)
    assert (outcome.error, outcome.usage) == ("output", None)
    assert "usage must be a routelock.Usage" in outcome.output


async def test_a_pair_of_text_and_a_dict_stays_content() -> None:
    """Nothing is unwrapped that was not declared."""

    @tool
    async def f() -> Any:
        return "text", {"total_tokens": 5}

    outcome = await answer(f)
    assert outcome.usage is None
    assert outcome.output == '["text",{"total_tokens":5}]'
    assert outcome.value == ("text", {"total_tokens": 5})


# -- threads --


async def test_a_sync_tool_does_not_block_the_loop() -> None:
    """Another task goes on while the tool waits for it."""
    beats = threading.Semaphore(0)

    @tool
    def f() -> str:
        return "released" if all(beats.acquire(timeout=60) for _ in range(3)) else "starved"

    async def heart() -> None:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            beats.release()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heart)
        assert (await answer(f)).output == "released"


async def test_a_sync_tool_sees_context_variables() -> None:
    user: ContextVar[str] = ContextVar("user")
    user.set("ada")

    @tool
    def f() -> str:
        return user.get()

    assert (await answer(f)).output == "ada"


async def test_a_sync_tool_may_call_back_into_the_loop() -> None:
    @tool
    def f() -> str:
        anyio.from_thread.run(anyio.lowlevel.checkpoint)
        return "back"

    assert (await answer(f)).output == "back"


async def test_run_does_not_wait_for_a_late_sync_tool() -> None:
    release, finished = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def f() -> None:
        release.wait(60)
        finished.set()

    outcome = await answer(f)
    assert outcome.error == "timeout"
    assert not finished.is_set()
    release.set()


# -- arguments that do not fit --


BAD = [
    '{"key": ',
    '{"key": "a",}',
    "[]",
    "5",
    '"key"',
    "",
    "null",
    "{}",
    '{"key": null}',
    '{"key": 5}',
    '{"key": "a", "other": 1}',
    '{"key": "a", "limit": "many"}',
    '{"key": "\ud800"}',
    "[" * 100_000,
    "9" * 5000,
    "x" * 1_000_000,
    json.dumps({"key": ["x"] * 250_000}),
    json.dumps({f"k{n}": n for n in range(100_000)}),
]


@pytest.mark.parametrize("arguments", BAD, ids=range(len(BAD)))
async def test_call_with_invalid_arguments_is_reported_and_not_made(arguments: str) -> None:
    ran: list[str] = []

    @tool(on_error="raise")
    async def f(key: str, limit: int = 10) -> None:
        ran.append(key)

    outcome = await answer(f, arguments)
    assert not ran
    assert outcome.error == "arguments"
    assert isinstance(outcome.exception, ModelBehaviorError)
    assert outcome.output.startswith("Tool 'f' was not run.\n")
    assert len(outcome.output) <= 800
    outcome.output.encode()


RAN: list[str] = []


@tool(name="x" * 64)
async def picky(key: str, numbers: list[int], nested: dict[str, dict[str, int]]) -> None:
    RAN.append(key)


def raw_tool(**options: Any) -> Tool:
    async def call(context: ToolContext[Any], text: str) -> str:
        RAN.append(text)
        return text

    return Tool(name="raw", on_invoke_tool=call, **options)


RAW = raw_tool(params_json_schema={"type": "object", "required": ["key", "numbers"]})


@given(st.one_of(st.text(alphabet=st.characters()), st.dictionaries(st.text(), st.text()).map(json.dumps)))
def test_junk_never_runs_a_tool_and_never_raises(junk: str) -> None:
    RAN.clear()

    async def both() -> list[ToolOutcome]:
        return [await answer(made, junk) for made in (picky, RAW)]

    for outcome in anyio.run(both):
        assert outcome.error == "arguments"
        assert len(outcome.output) <= 800
        outcome.output.encode()
    assert RAN == []


async def test_a_validator_that_breaks_is_the_tools_failure() -> None:
    def broken(value: str) -> str:
        raise KeyError(value)

    async def f(key: str) -> None: ...

    f.__annotations__["key"] = Annotated[str, pydantic.AfterValidator(broken)]
    outcome = await answer(tool(f), '{"key": "a"}')
    assert (outcome.error, outcome.output) == ("raised", "Tool 'f' failed: KeyError: 'a'")


# -- a schema and a callable --


def test_a_raw_schema_becomes_strict_where_it_can() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert raw_tool(params_json_schema=schema).params_json_schema == {**schema, "additionalProperties": False}
    assert raw_tool(params_json_schema=schema, strict=False).params_json_schema == schema
    optional = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert raw_tool(params_json_schema=optional).params_json_schema == optional
    assert not raw_tool(params_json_schema=optional).strict


async def test_on_invoke_tool_of_a_function_can_be_called() -> None:
    assert await lookup.on_invoke_tool(CONTEXT, '{"key": "a"}') == "a 10"
    with pytest.raises(ModelBehaviorError):
        await lookup.on_invoke_tool(CONTEXT, "{}")


# -- failures --


def failing(error: BaseException, **options: Any) -> Tool:
    async def f() -> None:
        raise error

    return tool(f, **options)


async def test_failure_is_reported_to_the_model() -> None:
    error = ValueError("no such key")
    outcome = await answer(failing(error))
    assert (outcome.error, outcome.output) == ("raised", "Tool 'f' failed: ValueError: no such key")
    assert outcome.exception is error


async def test_failure_of_a_sync_tool_is_reported() -> None:
    @tool
    def f() -> None:
        raise ValueError("no such key")

    assert (await answer(f)).output == "Tool 'f' failed: ValueError: no such key"


async def test_a_failure_can_stop_the_run() -> None:
    error = ValueError("no such key")
    with pytest.raises(ToolError, match="Tool 'f' failed: ValueError: no such key") as caught:
        await answer(failing(error, on_error="raise"))
    assert caught.value.__cause__ is error


async def test_on_error_function_makes_the_report() -> None:
    def word(context: ToolContext[Any], error: Exception) -> str:
        return f"{context.tool_name}: {error}"

    async def word_later(context: ToolContext[Any], error: Exception) -> str:
        return word(context, error)

    for how in (word, word_later):
        outcome = await answer(failing(ValueError("no"), on_error=how))
        assert (outcome.error, outcome.output) == ("raised", "it: no")


async def test_a_function_that_words_failures_can_stop_the_run() -> None:
    def word(context: ToolContext[Any], error: Exception) -> str:
        raise error

    with pytest.raises(ToolError, match=r"^Tool 'f' failed: ValueError: no$") as caught:
        await answer(failing(ValueError("no"), on_error=word))
    assert isinstance(caught.value.__cause__, ValueError)


async def test_failing_on_error_function_is_named() -> None:
    def word(context: ToolContext[Any], error: Exception) -> str:
        raise KeyError("words")

    with pytest.raises(ToolError, match="on_error of tool 'f' raised KeyError: 'words'"):
        await answer(failing(ValueError("no"), on_error=word))


async def test_a_long_failure_is_bounded() -> None:
    many = ExceptionGroup("g", [ValueError("x" * 10_000) for _ in range(5)])
    assert len((await answer(failing(many))).output) <= 800


async def test_errors_of_a_task_group_are_listed() -> None:
    async def fail() -> None:
        raise ValueError("no")

    @tool
    async def f() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    assert (await answer(f)).output == "Tool 'f' failed: ValueError: no"


async def test_result_without_a_text_form_is_a_failure() -> None:
    @tool
    async def f() -> object:
        return object()

    outcome = await answer(f)
    assert outcome.error == "output"
    assert (
        outcome.output
        == "Tool 'f' ran, but its result cannot be shown: a value of type object has no JSON form."
    )
    with pytest.raises(ToolError):
        await answer(replace(f, on_error="raise"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
async def test_base_exceptions_are_not_caught(error: BaseException) -> None:
    with pytest.raises(type(error)):
        await answer(failing(error))


# -- time and cancellation --


@pytest.mark.virtual_time
async def test_late_tool_is_cancelled_and_reported() -> None:
    stopped: list[str] = []

    @tool(timeout=0.01)
    async def f() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("stopped")

    outcome = await answer(f)
    assert (outcome.error, outcome.output) == ("timeout", "Tool 'f' timed out after 0.01s.")
    assert isinstance(outcome.exception, ToolTimeout)
    assert stopped


@pytest.mark.virtual_time
async def test_a_timeout_can_stop_the_run() -> None:
    with pytest.raises(ToolTimeout, match=r"timed out after 0\.01s"):
        await answer(tool(anyio.sleep_forever, name="f", timeout=0.01, on_error="raise"))


async def test_timeout_error_raised_by_a_tool_is_a_failure() -> None:
    outcome = await answer(failing(TimeoutError("socket"), timeout=10))
    assert (outcome.error, outcome.output) == ("raised", "Tool 'f' failed: TimeoutError: socket")


async def test_a_tool_in_time_is_not_disturbed() -> None:
    assert (await answer(replace(lookup, timeout=10), '{"key": "a"}')).output == "a 10"


@pytest.mark.virtual_time
@pytest.mark.parametrize("timeout", [None, 10])
async def test_cancellation_passes_through(timeout: float | None) -> None:
    def word(context: ToolContext[Any], error: Exception) -> str:
        raise AssertionError("cancellation is no failure")

    made = tool(anyio.sleep_forever, name="f", on_error=word, timeout=timeout)
    with anyio.move_on_after(0.01) as scope:
        await answer(made)
    assert scope.cancelled_caught


async def test_a_cancelled_sync_tool_is_not_waited_for() -> None:
    release, finished = threading.Event(), threading.Event()

    @tool
    def f() -> None:
        release.wait(60)
        finished.set()

    with anyio.move_on_after(0.01) as scope:
        await answer(f)
    assert scope.cancelled_caught
    assert not finished.is_set()
    release.set()


@pytest.mark.asyncio_only
async def test_tool_that_cancels_itself_is_reported() -> None:
    """Its siblings and the run go on."""

    @tool
    async def f() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    outcome = await answer(f)
    assert (outcome.error, outcome.output) == (
        "raised",
        "Tool 'f' failed: ToolError: it raised a cancellation although nothing cancelled it",
    )


async def test_asyncio_cancellation_under_trio_passes(anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        with pytest.raises(asyncio.CancelledError):
            await answer(failing(asyncio.CancelledError()))


@pytest.mark.asyncio_only
async def test_cancelling_the_task_is_not_the_tools_doing() -> None:
    task = asyncio.create_task(answer(tool(anyio.sleep_forever, name="f")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.virtual_time
async def test_a_failing_tool_leaves_its_siblings_alone() -> None:
    outcomes: dict[int, ToolOutcome] = {}

    async def one(n: int, made: Tool) -> None:
        outcomes[n] = await answer(made, '{"key": "a"}' if made is lookup else "{}")

    async with anyio.create_task_group() as tasks:
        middle = (failing(ValueError("no")), tool(anyio.sleep_forever, name="f", timeout=0.01))
        for n, made in enumerate((lookup, *middle, lookup)):
            tasks.start_soon(one, n, made)
    assert [outcomes[n].error for n in range(4)] == [None, "raised", "timeout", None]


# -- enabled --


async def test_is_enabled_may_be_a_bool_or_a_function() -> None:
    async def later(context: RunContext[Any], agent: Any) -> bool:
        return context.context["user"] == agent

    for is_enabled, expected in (
        (True, True),
        (False, False),
        (lambda context, agent: 1, True),
        (later, True),
        (lambda context, agent: False, False),
    ):
        made = raw_tool(is_enabled=is_enabled)
        assert await made.enabled(CONTEXT, "ada") is expected


# -- envelopes --


@pytest.mark.parametrize(
    "outcome",
    [
        ToolOutcome("text"),
        ToolOutcome("", usage=Usage(requests=1, cost=0.5)),
        ToolOutcome("Tool 'f' failed", error="raised"),
        ToolOutcome("too long", error="timeout"),
    ],
)
def test_an_outcome_survives_json(outcome: ToolOutcome) -> None:
    assert ToolOutcome.from_envelope(json.loads(json.dumps(outcome.envelope()))) == outcome


def test_an_envelope_holds_no_python_objects() -> None:
    outcome = ToolOutcome("no", error="raised", exception=ValueError("no"), value=object())
    assert outcome.envelope() == {"err": {"type": "raised", "message": "no", "retryable": False}}
