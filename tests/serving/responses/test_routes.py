"""The Responses API over real sockets: its forms, its conversations and its errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest
from served_apps import PATIENCE, served

from routelock import (
    Agent,
    HandoffInputData,
    ProviderError,
    Request,
    RunConfig,
    function_tool,
    handoff,
    tool,
)
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.history import Citation
from routelock.serving import ServeConfig
from routelock.sessions import InMemorySessions
from routelock.testing import ScriptedHandler, assert_valid, call, reply

DOOR = {"type": "function", "name": "open_door", "parameters": {"type": "object"}}
REFUSES = {"role": "assistant", "content": None, "refusal": "I will not."}


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}"


LOOKS = reply("One moment.", calls=[call("look_up", {"order": 1})])


def agent(*replies: Any, name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler(replies, name=name), **options)


def shown(of: Agent[Any], request: int = -1) -> list[Any]:
    """The messages of a model call, as their roles and contents."""
    assert isinstance(of.model, ScriptedHandler)
    messages = of.model.requests[request].messages
    assert_valid(list(messages))
    return [(message["role"], message.get("content")) for message in messages]


def post(url: str, key: str = "", **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.post(f"{url}/responses", json={"input": "Hi", **body}, headers=headers, timeout=PATIENCE)


def body_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream; each has its type as its name."""
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    found: list[dict[str, Any]] = []
    for block in response.text.split("\n\n"):
        if block.startswith("event: "):
            name, _, data = block.removeprefix("event: ").partition("\ndata: ")
            found.append(json.loads(data))
            assert found[-1]["type"] == name
    return found


def texts_of(body: Mapping[str, Any]) -> list[str]:
    parts = [part for item in body["output"] for part in item.get("content", ())]
    return [part.get("text", part.get("refusal")) for part in parts]


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_a_whole_response_has_the_form_of_openai() -> None:
    with served(agent("Hello.")) as url:
        body = body_of(post(url, metadata={"a": "b"}, max_output_tokens=7))
    [item] = body["output"]
    assert body["id"].startswith("resp_")
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", "A")
    assert (body["metadata"], body["max_output_tokens"], body["store"]) == ({"a": "b"}, 7, True)
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [{"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}]
    assert body["usage"]["total_tokens"] == 15


def test_a_stream_ends_as_the_specification_says() -> None:
    with served(agent("Hi.")) as url:
        response = post(url, stream=True)
    assert events_of(response)[-1]["type"] == "response.completed"
    assert response.text.endswith("data: [DONE]\n\n")


def test_a_streamed_response_is_the_same_as_a_whole_one() -> None:
    def bare(body: Mapping[str, Any]) -> Any:
        items = [{**item, "id": ""} for item in body["output"]]
        return {**body, "id": "", "created_at": 0, "completed_at": 0, "output": items}

    replies = (LOOKS, reply("It is here.", reasoning="Ah."))
    mine = agent(*replies, *replies, tools=[look_up])
    with served(mine) as url:
        whole = body_of(post(url))
        *_, last = events_of(post(url, stream=True))
    assert bare(last["response"]) == bare(whole)


def test_texts_are_items_that_say_together_what_a_chat_completion_says() -> None:
    with served(agent(LOOKS, "It is here.", tools=[look_up])) as url:
        assert texts_of(body_of(post(url))) == ["One moment.", "\n\nIt is here."]


@pytest.mark.parametrize("stream", [False, True])
def test_citations_are_annotations_of_the_text(stream: bool) -> None:
    source = Citation(url="https://a.example/rain", title="Rain", start=3, end=8)
    with served(agent(reply("It rains.", citations=[source]))) as url:
        response = post(url, stream=stream)
        body = events_of(response)[-1]["response"] if stream else body_of(response)
    place = {"url": source.url, "title": "Rain", "start_index": 3, "end_index": 8}
    assert body["output"][0]["content"][0]["annotations"] == [{"type": "url_citation", **place}]


def test_items_name_their_agents() -> None:
    b = agent("Done.", name="B")
    with served(agent(reply("Wait.", calls=[call("transfer_to_b")]), handoffs=[b])) as url:
        items = body_of(post(url))["output"]
    assert [item["x_agent"] for item in items] == [{"agent": "A"}, {"agent": "B"}]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_a_part_of_its_own(stream: bool) -> None:
    with served(agent(REFUSES)) as url:
        response = post(url, stream=stream)
        body = events_of(response)[-1]["response"] if stream else body_of(response)
    [item] = body["output"]
    assert item["content"] == [{"type": "refusal", "refusal": "I will not."}]
    assert body["status"] == "completed"


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_was_cut_is_incomplete(stream: bool, finish: str, reason: str) -> None:
    with served(agent(reply("Half", finish_reason=finish))) as url:
        response = post(url, stream=stream)
        body = events_of(response)[-1]["response"] if stream else body_of(response)
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert body["output"][-1]["status"] == "incomplete"


def test_a_limit_that_ends_a_run_makes_its_response_incomplete() -> None:
    looks = [reply("Wait.", calls=[call("look_up", {"order": n})]) for n in range(3)]
    config = ServeConfig(max_turns=2, run_config=RunConfig(on_limit="return"))
    with served(agent(*looks, tools=[look_up]), config) as url:
        assert body_of(post(url))["status"] == "incomplete"


def test_an_empty_answer_is_an_empty_text() -> None:
    with served(agent(reply(""))) as url:
        assert texts_of(body_of(post(url))) == [""]


def test_calls_of_the_clients_tools_are_items() -> None:
    with served(agent(reply("Sure.", calls=[call("open_door", {"n": 1})]))) as url:
        events = events_of(post(url, tools=[DOOR], stream=True))
    body = events[-1]["response"]
    said, made = body["output"]
    assert (said["type"], made["type"], made["name"]) == ("message", "function_call", "open_door")
    assert (made["arguments"], made["status"], body["status"]) == ('{"n": 1}', "completed", "completed")
    assert made["call_id"].startswith("call_")
    deltas = [each["delta"] for each in events if each["type"].endswith("arguments.delta")]
    assert "".join(deltas) == '{"n": 1}'


PATCH = {"type": "custom", "name": "patch"}
CRM = {"type": "namespace", "name": "crm", "description": "The customers.", "tools": [DOOR]}


def test_a_call_of_a_custom_tool_is_an_item_of_its_own() -> None:
    with served(agent([call("patch", {"input": "+ a"})])) as url:
        events = events_of(post(url, tools=[PATCH], stream=True))
    [made] = events[-1]["response"]["output"]
    assert (made["type"], made["name"], made["input"]) == ("custom_tool_call", "patch", "+ a")
    assert [each["type"].removeprefix("response.") for each in events[2:-1]] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert (events[3]["delta"], events[4]["input"]) == ("+ a", "+ a")


def test_a_call_of_a_namespace_names_both() -> None:
    with served(agent([call("crm__open_door", {"n": 1})])) as url:
        [made] = body_of(post(url, tools=[CRM]))["output"]
    assert (made["type"], made["namespace"], made["name"]) == ("function_call", "crm", "open_door")
    assert made["arguments"] == '{"n": 1}'


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "whole"])
def test_results_of_custom_tools_and_namespaces_continue_the_run(by_id: bool) -> None:
    calls = [call("patch", {"input": "+ a"}), call("crm__open_door", {})]
    mine = agent(reply("One moment.", calls=calls), "It is open.")
    with served(mine) as url:
        first = body_of(post(url, tools=[PATCH, CRM]))
        _, patch, door = first["output"]
        results = [
            {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "patched"},
            {"type": "function_call_output", "call_id": door["call_id"], "output": "ok"},
        ]
        whole = {"input": [{"role": "user", "content": "Hi"}, *first["output"], *results]}
        more: dict[str, Any] = {"input": results, "previous_response_id": first["id"]} if by_id else whole
        second = body_of(post(url, tools=[PATCH, CRM], **more))
    assert texts_of(second) == ["It is open."]
    assert shown(mine)[1:] == [("assistant", "One moment."), ("tool", "patched"), ("tool", "ok")]


def test_a_tool_of_a_namespace_cannot_replace_one_of_the_server() -> None:
    @function_tool(name_override="crm__open_door")
    def mine() -> str:
        return "open"

    with served(agent("Hi.", tools=[mine])) as url:
        refused = post(url, tools=[CRM])
    assert "'crm__open_door' has the name of a tool" in refused.json()["error"]["message"]


def test_the_servers_own_calls_and_handoffs_are_no_items() -> None:
    b = agent("Done.", name="B")
    mine = agent([call("look_up", {"order": 1})], [call("transfer_to_b")], tools=[look_up], handoffs=[b])
    with served(mine) as url:
        assert [item["type"] for item in body_of(post(url))["output"]] == ["message"]


def test_the_output_of_an_agent_with_a_type_is_the_only_text() -> None:
    mine = agent(LOOKS, '{"response": [7]}', tools=[look_up], output_type=list[int])
    with served(mine) as url:
        *_, last = events_of(post(url, stream=True))
    assert texts_of(last["response"]) == ['{"response": [7]}']


def test_a_response_continues_with_all_that_the_server_knows() -> None:
    mine = agent(LOOKS, "It is here.", "You are welcome.", tools=[look_up])
    with served(mine) as url:
        first = body_of(post(url))
        second = body_of(post(url, input="Thanks", previous_response_id=first["id"]))
    assert second["previous_response_id"] == first["id"]
    assert [role for role, _ in shown(mine)] == ["user", "assistant", "tool", "assistant", "user"]


def test_two_responses_may_continue_the_same_one() -> None:
    mine = agent("One.", "Two.", "Three.")
    with served(mine) as url:
        first = body_of(post(url))
        for text in ("Left", "Right"):
            body_of(post(url, input=text, previous_response_id=first["id"]))
    assert shown(mine) == [("user", "Hi"), ("assistant", "One."), ("user", "Right")]


def test_instructions_are_not_carried_over() -> None:
    mine = agent("One.", "Two.", instructions="You are A.")
    with served(mine) as url:
        first = body_of(post(url, instructions="Be short."))
        body_of(post(url, input="And?", previous_response_id=first["id"], instructions="Be long."))
    assert "Be short." in str(shown(mine, 0))
    assert "Be long." in str(shown(mine))
    assert "Be short." not in str(shown(mine))


@pytest.mark.parametrize("instructions", ["Be long.", None])
def test_instructions_are_those_of_the_request_that_answers_a_call(instructions: str | None) -> None:
    """Without an id of a response, too."""
    mine = agent([call("open_door", {})], "It is open.", "Bye.")
    with served(mine) as url:
        asked = {"role": "user", "content": "Hi"}
        first = body_of(post(url, tools=[DOOR], instructions="Be short."))
        result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "ok"}
        said = [asked, *first["output"], result]
        second = body_of(post(url, input=said, tools=[DOOR], instructions=instructions))
        body_of(post(url, input="Thanks", previous_response_id=second["id"]))
    own = [] if instructions is None else [("system", instructions)]
    assert [each for each in shown(mine, 1) if each[0] == "system"] == own
    assert "system" not in [role for role, _ in shown(mine, 2)]


def test_a_call_of_the_response_is_not_sent_again() -> None:
    with served(agent([call("open_door", {})])) as url:
        first = body_of(post(url, tools=[DOOR]))
        made = first["output"][-1]
        result = {"type": "function_call_output", "call_id": made["call_id"], "output": "ok"}
        refused = post(url, input=[made, result], previous_response_id=first["id"], tools=[DOOR])
    assert refused.status_code == 400
    assert "has this call already" in refused.json()["error"]["message"]


@pytest.mark.parametrize(("next_agent", "expected"), [("reset", "Back at A."), ("sticky", "Still B.")])
def test_the_settings_say_which_agent_goes_on(next_agent: Any, expected: str) -> None:
    b = agent("Done.", "Still B.", name="B")
    mine = agent([call("transfer_to_b")], "Back at A.", handoffs=[b])
    with served(mine, ServeConfig(run_config=RunConfig(next_agent=next_agent))) as url:
        first = body_of(post(url))
        second = body_of(post(url, previous_response_id=first["id"]))
    assert texts_of(second) == [expected]


def test_the_agent_of_a_call_goes_on_and_the_first_one_after_it() -> None:
    b = agent([call("open_door", {})], "It is open.", name="B")
    mine = agent([call("transfer_to_b")], "Back at A.", handoffs=[b])
    with served(mine) as url:
        first = body_of(post(url, tools=[DOOR]))
        result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "ok"}
        second = body_of(post(url, input=[result], previous_response_id=first["id"], tools=[DOOR]))
        third = body_of(post(url, previous_response_id=second["id"]))
    assert (texts_of(second), texts_of(third)) == (["It is open."], ["Back at A."])


def test_what_a_filter_hid_stays_hidden_when_a_call_is_answered() -> None:
    def hide(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(), pre_handoff_items=())

    b = agent([call("open_door", {})], "It is open.", name="B")
    mine = agent([call("transfer_to_b")], handoffs=[handoff(b, input_filter=hide)])
    with served(mine) as url:
        first = body_of(post(url, input="my password is 1234", tools=[DOOR]))
        result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "ok"}
        body_of(post(url, input=[result], previous_response_id=first["id"], tools=[DOOR]))
    assert "1234" not in str(shown(b))


def test_a_call_without_its_result_is_refused() -> None:
    with served(agent([call("open_door", {})])) as url:
        first = body_of(post(url, tools=[DOOR]))
        refused = post(url, previous_response_id=first["id"], tools=[DOOR])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")


def test_another_worker_goes_on_from_a_store() -> None:
    config = ServeConfig(response_sessions=InMemorySessions())
    other = agent("It is open.")
    with served(agent([call("open_door", {})]), config) as url, served(other, config) as other_url:
        first = body_of(post(url, tools=[DOOR]))
        result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "ok"}
        second = body_of(post(other_url, input=[result], previous_response_id=first["id"], tools=[DOOR]))
    assert texts_of(second) == ["It is open."]
    assert [role for role, _ in shown(other)] == ["user", "assistant", "tool"]


def test_a_kept_response_is_shown_and_deleted() -> None:
    with served(agent("Hello.")) as url:
        body = body_of(post(url))
        address = f"{url}/responses/{body['id']}"
        assert httpx.get(address).json() == body
        assert httpx.delete(address).json() == {"id": body["id"], "object": "response", "deleted": True}
        assert code_of(httpx.get(address)) == (404, "response_not_found")
        assert code_of(httpx.delete(address)) == (404, "response_not_found")


def test_a_kept_response_is_not_streamed() -> None:
    with served(agent("Hello.")) as url:
        body = body_of(post(url))
        refused = httpx.get(f"{url}/responses/{body['id']}?stream=true")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")


def test_a_response_that_is_not_stored_is_not_kept() -> None:
    with served(agent("Hello.")) as url:
        body = body_of(post(url, store=False))
        assert code_of(httpx.get(f"{url}/responses/{body['id']}")) == (404, "response_not_found")


def test_a_response_belongs_to_its_key() -> None:
    with served(agent("Hello."), ServeConfig(api_keys=["mine", "yours"])) as url:
        body = body_of(post(url, key="mine"))
        yours = {"authorization": "Bearer yours"}
        assert code_of(httpx.get(f"{url}/responses/{body['id']}", headers=yours))[0] == 404
        refused = post(url, key="yours", previous_response_id=body["id"])
    assert code_of(refused) == (400, "previous_response_not_found")


def test_a_failure_before_the_first_text_has_a_status() -> None:
    with served(agent(ProviderError("no"))) as url:
        assert code_of(post(url, stream=True)) == (502, "upstream_error")


async def _breaks(request: Request) -> AsyncIterator[HandlerEvent]:
    yield TextDelta("Half an ")
    raise ProviderError("the secret of the model")


def test_a_failure_in_mid_stream_is_an_error_and_a_failed_response() -> None:
    with served(Agent("A", model=ScriptedHandler([_breaks]))) as url:
        response = post(url, stream=True)
    *_, error, failed = events_of(response)
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    assert (error["code"], error["error"]["code"]) == ("upstream_error", "upstream_error")
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == "upstream_error"
    assert [item["status"] for item in failed["response"]["output"]] == ["incomplete"]
    assert "secret" not in response.text


async def _stays_silent(request: Request) -> AsyncIterator[HandlerEvent]:
    await anyio.sleep_forever()
    yield MessageDone(message={"role": "assistant", "content": ""})


def test_a_failure_after_signs_of_life_has_all_events() -> None:
    config = ServeConfig(ping=0.02, timeout=0.2)
    with served(Agent("A", model=ScriptedHandler([_stays_silent])), config) as url:
        kinds = [event["type"] for event in events_of(post(url, stream=True))]
    assert kinds == ["response.created", "response.in_progress", "error", "response.failed"]


class _NoRoom(InMemorySessions):
    async def append(self, *given: Any, **more: Any) -> Any:
        raise OSError("no room in /secret")


def test_a_response_that_could_not_be_kept_has_failed_without_a_gap() -> None:
    config = ServeConfig(response_sessions=_NoRoom())
    with served(agent("Hello."), config) as url:
        response = post(url, stream=True)
    events = events_of(response)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[-3:]] == [
        "response.output_item.done",
        "error",
        "response.failed",
    ]
    assert "secret" not in response.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_needs_approval_is_refused(stream: bool) -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        raise AssertionError("it was made")

    with served(agent([call("pay")], tools=[pay])) as url:
        assert code_of(post(url, stream=stream)) == (403, "approval_required")


def test_a_tool_with_the_name_of_one_of_the_server_is_refused() -> None:
    with served(agent("Hi.", tools=[look_up])) as url:
        refused = post(url, tools=[{**DOOR, "name": "look_up"}])
    assert refused.status_code == 400


def test_settings_of_a_client_are_in_the_model_call() -> None:
    mine = agent("Hi.")
    with served(mine) as url:
        body = body_of(post(url, temperature=0.5, max_output_tokens=7))
    assert isinstance(mine.model, ScriptedHandler)
    assert mine.model.requests[0].settings == {"temperature": 0.5, "max_tokens": 7}
    assert (body["temperature"], body["max_output_tokens"]) == (0.5, 7)


@pytest.mark.parametrize("policy", ["use", None])
def test_a_setting_of_the_agent_is_not_the_clients_to_choose(policy: Any) -> None:
    mine = agent("Hi.", model_settings={"max_tokens": 100})
    with served(mine, replace(ServeConfig(), client_settings=policy)) as url:
        refused = post(url, max_output_tokens=10_000)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_output_tokens")
