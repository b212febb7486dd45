"""Chat completions have no way to ask for approval, so such a run is refused."""

from __future__ import annotations

import pytest
from scripted_agents import agent
from served_apps import ask, events_of, post, served

from routelock import Agent, Runner, tool
from routelock.errors import InvalidRequest
from routelock.testing import call, reply
from routelock_providers import OpenAICompatible, RemoteAgent

done: list[str] = []


@tool(needs_approval=True)
def pay() -> str:
    """Pay."""
    done.append("paid")
    return "paid"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_needs_approval_is_an_error_and_is_not_made(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has, by default, what the client is not told: which call, and whose."""
    with served(agent("clerk", call("pay", id="p"), tools=[pay])) as url:
        answer = post(url, ask(stream=stream))
    assert answer.status_code == 403
    [told] = [one for one in caplog.records if one.levelname == "WARNING"]
    assert answer.json()["error"]["request_id"] in told.getMessage()
    assert "'pay' of agent 'clerk'" in told.getMessage()
    assert "clerk" not in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "approval_required"
    assert done == []


def test_after_something_was_said_it_is_an_error_in_the_stream() -> None:
    with served(agent("clerk", reply("One moment.", calls=[call("pay")]), tools=[pay])) as url:
        events = events_of(post(url, ask(stream=True)))
    assert events[-1]["error"]["code"] == "approval_required"


@pytest.mark.parametrize("words", [None, "One moment."])
@pytest.mark.parametrize("kind", [OpenAICompatible, RemoteAgent])
def test_our_own_clients_do_not_take_it_for_a_wrong_key(kind: type, words: str | None) -> None:
    said = call("pay", id="p") if words is None else reply(words, calls=[call("pay")])
    with served(agent("clerk", said, tools=[pay])) as url:
        model = RemoteAgent(url) if kind is RemoteAgent else OpenAICompatible("clerk", base_url=url)
        with pytest.raises(InvalidRequest, match="a person has to approve") as caught:
            Runner.run_sync(Agent("caller", model=model), "Pay.")
    assert caught.value.status == 403
    assert "api_key" not in str(caught.value)
