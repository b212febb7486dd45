"""Responses are kept within bounds, each for its own caller."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent
from routelock.history.messages import Message
from routelock.serving.errors import Refusal
from routelock.serving.pending_runs import HeldRun
from routelock.serving.responses.kept_responses import KeptResponses
from routelock.testing import ScriptedHandler

AGENT = Agent("A", model=ScriptedHandler(["Hi."]))
HI: Message = {"role": "user", "content": "Hi"}
BE_SHORT: Message = {"role": "system", "content": "Be short."}
BE_LONG: Message = {"role": "system", "content": "Be long."}


def body(name: str = "resp_1", instructions: str | None = None) -> dict[str, Any]:
    return {"id": name, "model": "A", "instructions": instructions}


def run(*messages: Message) -> HeldRun:
    return HeldRun(agent=AGENT, handler="", messages=list(messages))


def waiting() -> HeldRun:
    return HeldRun(agent=AGENT, handler="", messages=[HI], own_ids={"call_x": "call_0", "call_y": "call_1"})


def kept(most: int = 10, size: int = 10**6, clock: Any = lambda: 0.0) -> KeptResponses:
    return KeptResponses(most=most, size=size, ttl=60.0, clock=clock)


def is_kept(responses: KeptResponses, name: str = "resp_1", principal: str = "me") -> bool:
    try:
        responses.find(principal, name)
    except Refusal:
        return False
    return True


def test_a_response_is_found_by_its_caller_only() -> None:
    responses = kept()
    responses.keep("me", body(), run(HI))
    assert is_kept(responses)
    assert not is_kept(responses, principal="you")


def test_a_response_is_continued_by_its_caller_only() -> None:
    responses = kept()
    responses.keep("me", body(), run(HI))
    with pytest.raises(Refusal) as caught:
        responses.previous("you", "resp_1", "A")
    assert (caught.value.status, caught.value.param) == (400, "previous_response_id")


def test_a_response_is_continued_by_its_model_only() -> None:
    responses = kept()
    responses.keep("me", body(), run(HI))
    with pytest.raises(Refusal, match="'A' made that response"):
        responses.previous("me", "resp_1", "B")


def test_a_removed_response_is_gone() -> None:
    responses = kept()
    responses.keep("me", body(), run(HI))
    responses.remove("me", "resp_1")
    assert not is_kept(responses)


def test_another_caller_removes_nothing() -> None:
    responses = kept()
    responses.keep("me", body(), run(HI))
    with pytest.raises(Refusal):
        responses.remove("you", "resp_1")
    assert is_kept(responses)


@pytest.mark.parametrize("bounds", [{"most": 1}, {"size": 300}])
def test_the_oldest_response_goes_first(bounds: dict[str, Any]) -> None:
    responses = kept(**bounds)
    for name in ("resp_1", "resp_2"):
        responses.keep("me", body(name), run({"role": "user", "content": "x" * 100}))
    assert [is_kept(responses, name) for name in ("resp_1", "resp_2")] == [False, True]


def test_a_response_is_kept_for_some_time() -> None:
    now = [0.0]
    responses = kept(clock=lambda: now[0])
    responses.keep("me", body(), run(HI))
    now[0] = 61.0
    assert not is_kept(responses)


def test_instructions_are_those_of_the_new_request() -> None:
    responses = kept()
    responses.keep("me", body(instructions="Be short."), run(BE_SHORT, HI))
    found = responses.previous("me", "resp_1", "A").continued([HI], "Be long.")
    assert found.messages == [BE_LONG, HI, HI]


def test_a_system_message_of_the_input_is_kept() -> None:
    responses = kept()
    responses.keep("me", body(), run(BE_SHORT, HI))
    assert responses.previous("me", "resp_1", "A").continued([HI], None).messages == [BE_SHORT, HI, HI]


def results(*ids: str) -> list[Message]:
    return [{"role": "tool", "tool_call_id": each, "content": "done"} for each in ids]


def test_results_have_the_ids_of_the_run() -> None:
    responses = kept()
    responses.keep("me", body(), waiting())
    found = responses.previous("me", "resp_1", "A").continued(results("call_y", "call_x"), None)
    assert [message.get("tool_call_id") for message in found.messages[1:]] == ["call_1", "call_0"]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["call_x"], "for the call 'call_y'"),
        ([], "no function_call_output"),
        (["call_x", "call_y", "z"], "answers no call"),
    ],
)
def test_each_call_needs_its_result(ids: list[str], said: str) -> None:
    responses = kept()
    responses.keep("me", body(), waiting())
    with pytest.raises(Refusal, match=said) as caught:
        responses.previous("me", "resp_1", "A").continued(results(*ids), None)
    assert (caught.value.status, caught.value.param) == (400, "input")
