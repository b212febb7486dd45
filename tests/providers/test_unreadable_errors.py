"""Exceptions of an app whose text cannot be read are handled like any other."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig, RunHooks, Runner, handoff
from routelock.errors import CallbackError, HandlerError, HandoffFilterError
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

UNREADABLE = "its message raised IndexError"


class Mute(Exception):
    """Its text cannot be read."""

    def __str__(self) -> str:
        return str(self.args[0])


def raises(*given: Any) -> Any:
    raise Mute


async def test_unreadable_error_of_a_handler() -> None:
    with pytest.raises(HandlerError, match=UNREADABLE) as caught:
        await Runner.run(Agent("A", model=ScriptedHandler([Mute()], name="a")), "Hi")
    assert isinstance(caught.value.__cause__, Mute)


async def test_unreadable_error_before_a_fallback() -> None:
    handlers = [ScriptedHandler([Mute()], name="a"), ScriptedHandler(["Hello."], name="b")]
    result = await Runner.run(Agent("A", handlers=handlers), "Hi", run_config=RunConfig(fallback=True))
    assert result.final_output == "Hello."
    assert UNREADABLE in result.errors[0].message


async def test_unreadable_error_of_a_hook() -> None:
    class Hooks(RunHooks):
        async def on_llm_start(self, context: Any, agent: Any, request: Any) -> None:
            raises()

    result = await Runner.run(Agent("A", model=ScriptedHandler(["Hello."])), "Hi", hooks=Hooks())
    assert UNREADABLE in result.errors[0].message


async def test_unreadable_error_of_a_callback() -> None:
    with pytest.raises(CallbackError, match=UNREADABLE):
        await Runner.run(Agent("A", raises, model=ScriptedHandler([])), "Hi")


async def test_unreadable_error_of_a_filter() -> None:
    model = ScriptedHandler([call("transfer_to_b")])
    declared = handoff(Agent("B", model=model), input_filter=raises)
    with pytest.raises(HandoffFilterError, match=UNREADABLE):
        await Runner.run(Agent("A", model=model, handoffs=[declared]), "Hi")
