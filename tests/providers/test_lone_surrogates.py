"""Whatever holds half a surrogate pair, a strict reader takes what leaves: it is JSON in UTF-8.

Python reads and writes such halves, raw or as the escape ``\\ud83d``; vendors refuse the request, and each
one after it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, cast

import pytest
from answers import Answers
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from pydantic_core import from_json
from scripted_agents import agent, requests
from servers import failed
from thoroughness import examples
from view_checks import MODELS

from routelock import Agent, ModelSettings, RunConfig, Runner, Tool, handoff, tool
from routelock._sendable import sendable, sendable_json
from routelock.errors import ProviderError
from routelock.handlers.port import Handler, OutputSchema, Request
from routelock.history.messages import Message
from routelock.history.repair import repair
from routelock_providers import OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm
from routelock_providers.request_shape import prepare
from routelock_providers.vendors import vendor_rules

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

HALF = "half \ud83d"
ESCAPED = '{"x": "half \\ud83d"}'

TEXTS = st.sampled_from(["Hi", HALF, "\udcff", "\ud83d\ude00", "a\\ud83d", " "])
KEYS = st.sampled_from(["x", "k\ud83d"])
ARGUMENTS = st.sampled_from(
    [
        '{"x": 1}',
        ESCAPED,
        '{"x": "half \ud83d"}',
        '{"\\ud83d": ["\\udcff"]}',
        '{"x": "\ud83d',
        '"\\ud83d"',
        HALF,
    ]
)
IDS = st.sampled_from(["a", "b\ud83d", "b\ud83e", "\udcff", "call_1"])
NAMES = st.sampled_from(["f", "f\ud83d"])
EXTRAS = st.dictionaries(KEYS, TEXTS | st.lists(TEXTS, max_size=1) | st.dictionaries(KEYS, TEXTS), max_size=1)


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "auto\ud83d"}}
CONTENTS = TEXTS | st.lists(TEXTS.map(part) | st.just(IMAGE), min_size=1, max_size=2)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Messages as a handler gets them."""
    out: list[Any] = [{"role": "system", "content": draw(TEXTS)}]
    for role in draw(st.lists(st.sampled_from(["user", "assistant", "calls"]), max_size=4)):
        if role == "calls":
            ids = draw(st.lists(IDS, min_size=1, max_size=2, unique=True))
            calls = [
                {
                    "id": each,
                    "type": "function",
                    "function": {"name": draw(NAMES), "arguments": draw(ARGUMENTS)},
                    **draw(EXTRAS),
                }
                for each in ids
            ]
            out.append({"role": "assistant", "content": draw(TEXTS), "tool_calls": calls, **draw(EXTRAS)})
            out += [{"role": "tool", "tool_call_id": each, "content": draw(CONTENTS)} for each in ids]
        elif role == "user":
            out.append(
                {"role": "user", "content": draw(CONTENTS), **draw(st.sampled_from([{}, {"name": HALF}]))}
            )
        else:
            thought = draw(st.sampled_from([{}, {"reasoning_content": HALF}, {"refusal": HALF}]))
            out.append({"role": "assistant", "content": draw(TEXTS), **thought, **draw(EXTRAS)})
    out.append({"role": "user", "content": draw(CONTENTS)})
    return repair(out)[0]


def look_up(place: str = Field(description=HALF)) -> str:
    """Look up."""
    return place


SPECS = (
    tool(description=HALF)(look_up).spec,
    Tool(
        name="raw",
        description=HALF,
        params_json_schema={"type": "object", "properties": {"a\ud83d": {"type": "string", "enum": [HALF]}}},
        on_invoke_tool=lambda context, arguments: arguments,
    ).spec,
    handoff(Agent("B", handoff_description=HALF)).spec,
)
SCHEMA = OutputSchema(
    name="answer",
    schema={
        "type": "object",
        "properties": {"x": {"type": "string", "description": HALF}},
        "required": ["x"],
    },
    strict=False,
)
SETTINGS: dict[str, Any] = {
    "stop": [HALF],
    "user": HALF,
    "metadata": {"k\ud83d": HALF},
    "extra_body": {"x": {"y": HALF}},
}


def strictly(body: Any) -> Any:
    """Return a request's body as a reader has it that takes no lone halves.

    Raises:
        ValueError: it refuses it.
    """
    return from_json(json.dumps(body))


@pytest.fixture(scope="module")
async def refusing() -> AsyncGenerator[Answers]:
    """A server that records requests and refuses them."""
    with Answers(failed(400)) as server:
        yield server
        await close_litellm()


async def body_of(server: Answers, handler: Handler, asked: Request) -> Any:
    """Return what leaves for a request."""
    server.requests.clear()
    with suppress(ProviderError):
        async with aclosing(handler.stream(asked)) as events:
            async for _ in events:
                pass
    (seen,) = server.requests
    return seen.body


def asked(messages: list[Message], stream: bool, **more: Any) -> Request:
    return Request(messages=messages, tools=SPECS, settings=SETTINGS, stream=stream, **more)


STREAMING = ("stream", "stream_options")


@pytest.mark.asyncio_only
@pytest.mark.parametrize("vendor", MODELS)
@examples(12)
@given(messages=conversations(), stream=st.booleans())
async def test_litellm_sends_strict_json(
    refusing: Answers, vendor: str, messages: list[Message], stream: bool
) -> None:
    settings: dict[str, Any] = {"api_version": "2024-10-21"} if vendor == "azure" else {}
    key = None if vendor == "bedrock" else "k"
    handler = LiteLLM(
        MODELS[vendor], api_base=refusing.url, api_key=key, settings=settings | {"stop": [HALF]}
    )
    strictly(await body_of(refusing, handler, asked(messages, stream)))


@pytest.mark.asyncio_only
@pytest.mark.parametrize("kind", [OpenAICompatible, OpenAI])
@examples(15)
@given(messages=conversations())
async def test_direct_handlers_send_strict_json(
    refusing: Answers, kind: type[OpenAI], messages: list[Message]
) -> None:
    handler = kind("m", base_url=refusing.url)
    whole = await body_of(refusing, handler, asked(messages, False))
    pieces = await body_of(refusing, handler, asked(messages, True))
    assert strictly(whole) == {key: each for key, each in strictly(pieces).items() if key not in STREAMING}
    await handler.aclose()


@pytest.mark.asyncio_only
@pytest.mark.parametrize("vendor", ["openai", "anthropic", "gemini", "mistral"])
@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
async def test_output_schema_is_strict_json(refusing: Answers, vendor: str, mode: Any) -> None:
    schema = OutputSchema(name="answer", schema=SCHEMA.schema, strict=False, mode=mode)
    messages: list[Message] = [{"role": "user", "content": "Hi"}]
    for handler in (
        LiteLLM(MODELS[vendor], api_base=refusing.url, api_key="k"),
        OpenAICompatible("m", base_url=refusing.url),
    ):
        strictly(await body_of(refusing, handler, Request(messages=messages, output_schema=schema)))


@pytest.mark.parametrize(
    "external",
    [
        {"type": "function", "function": {"name": "f", "description": HALF}},
        Tool(name="f", description=HALF, on_invoke_tool=lambda context, arguments: arguments),
    ],
)
async def test_specs_of_the_callers_tools_are_clean(external: Any) -> None:
    a = agent("A", "Done.")
    await Runner.run(a, "Hi", run_config=RunConfig(external_tools=[external]))
    assert strictly([dict(each) for each in requests(a)[0].tools])


async def test_specs_of_all_kinds_are_clean() -> None:
    """They are made sendable when they are made, and not with each request."""
    b = agent("B", "Done.", handoff_description=HALF)
    handoffs = [handoff(b, reason=HALF), "C"]
    c = agent("C", "Done.", handoff_description=HALF)
    tools = [tool(description=HALF)(look_up), b.as_tool(tool_name="ask", tool_description=HALF)]
    a = agent("A", "Done.", tools=tools, handoffs=handoffs)
    await Runner.run(a, "Hi", run_config=RunConfig(agents=[c]))
    strictly([dict(each) for each in requests(a)[0].tools])


async def test_a_tool_is_given_the_argument_that_the_model_was_shown() -> None:
    got: list[str] = []
    schema = {"type": "object", "properties": {"a\ud83d": {"type": "string"}}, "required": ["a\ud83d"]}

    def take(context: Any, arguments: str) -> str:
        got.append(arguments)
        return "taken"

    raw = Tool(name="raw", params_json_schema=schema, on_invoke_tool=take)
    (name,) = raw.spec["function"]["parameters"]["properties"]
    assert name == "a\ufffd"
    outcome = await raw.invoke(cast(Any, None), json.dumps({name: "x"}))
    assert (outcome.output, len(got)) == ("taken", 1)


# -- arguments --


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (ESCAPED, '{"x": "half \\ufffd"}'),
        ('{"x": "\\ud83d\\ude00"}', '{"x": "\\ud83d\\ude00"}'),
        ('{"x": "\\\\ud83d"}', '{"x": "\\\\ud83d"}'),
        ('{"x": "\\\\\\ud83d"}', '{"x": "\\\\\\ufffd"}'),
        ('{"x": 1e400, "x":  2.50}', '{"x": 1e400, "x":  2.50}'),
        ('{"x": "half \ud83d"}', '{"x": "half \ufffd"}'),
    ],
)
def test_halves_in_arguments_are_replaced_and_nothing_else(text: str, sent: str) -> None:
    assert sendable_json(text) == sent


@given(st.text(st.sampled_from('ab\\u"d83c0e{}:, \ud83d\ude00\udcff😀'), max_size=12))
def test_json_text_is_what_python_would_write_anew(text: str) -> None:
    """Of any text that Python can read, strict readers have what it says, with U+FFFD for halves."""
    try:
        said = json.loads(f'{{"x": "{text}"}}')
    except ValueError:
        return
    if not isinstance(said.get("x"), str) or len(said) > 1:
        return
    read = from_json(sendable_json(f'{{"x": "{text}"}}'))["x"]
    assert read.replace("\ufffd\ufffd", "\ufffd") == sendable(said)["x"].replace("\ufffd\ufffd", "\ufffd")


@given(st.text(st.characters(), max_size=8))
def test_sendable_text_is_utf8_and_otherwise_the_same(text: str) -> None:
    fit = sendable(text)
    fit.encode()
    assert fit == text or any("\ud800" <= each <= "\udfff" for each in text)


@pytest.mark.parametrize("vendor", MODELS)
@examples(20)
@given(messages=conversations())
def test_sendable_text_is_unchanged_the_second_time(vendor: str, messages: list[Message]) -> None:
    provider, _, model = MODELS[vendor].partition("/")
    once = prepare(messages, vendor_rules(provider, model))
    assert prepare(once, vendor_rules(provider, model)) is once


# -- results --


@pytest.mark.asyncio_only
@pytest.mark.parametrize("with_image", [False, True])
@pytest.mark.parametrize(
    ("result", "sent"),
    [
        ('{"place": "Rome"}', {"place": "Rome"}),
        (ESCAPED, {"x": "half \ufffd"}),
        ('{"x": NaN}', {"content": '{"x": NaN}'}),
        ('{"x": 1e999}', {"content": '{"x": 1e999}'}),
        ('{"x": ' * 300 + "1" + "}" * 300, {"content": '{"x": ' * 300 + "1" + "}" * 300}),
        ("[" * 3000 + "]" * 3000, {"content": "[" * 3000 + "]" * 3000}),
        ("[1]", {"content": "[1]"}),
        ("{not JSON", {"content": "{not JSON"}),
    ],
    ids=["an object", "half", "NaN", "infinity", "deep", "a deep list", "a list", "no JSON"],
)
async def test_gemini_is_sent_any_result_that_is_json_text(
    refusing: Answers, result: str, sent: Any, with_image: bool
) -> None:
    """litellm reads such a text, and sends what it says."""
    used = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    messages: list[Message] = [
        {"role": "user", "content": "Where?"},
        cast(Message, {"role": "assistant", "content": None, "tool_calls": [used]}),
        {"role": "tool", "tool_call_id": "c", "content": [part(result), IMAGE] if with_image else result},
    ]
    handler = LiteLLM(MODELS["gemini"], api_base=refusing.url, api_key="k")
    body = strictly(await body_of(refusing, handler, Request(messages=messages, tools=SPECS)))
    assert body["contents"][-1]["parts"][0]["function_response"]["response"] == sent


# -- a conversation --


@pytest.mark.asyncio_only
@pytest.mark.parametrize("vendor", MODELS)
async def test_a_conversation_goes_on_after_half_a_character(refusing: Answers, vendor: str) -> None:
    """Of a model, a tool, the user and a stored message."""

    async def cut(place: str) -> str:
        return HALF

    reply: Any = {
        "role": "assistant",
        "content": HALF,
        "tool_calls": [
            {"id": "\ud83d", "type": "function", "function": {"name": "cut", "arguments": '{"place": "x"}'}},
            {"id": "\ud83e", "type": "function", "function": {"name": "cut", "arguments": ESCAPED}},
        ],
    }
    first = await Runner.run(agent("A", reply, HALF, tools=[tool(cut)]), HALF)
    settings: dict[str, Any] = {"api_version": "2024-10-21"} if vendor == "azure" else {}
    key = None if vendor == "bedrock" else "k"
    handler = LiteLLM(MODELS[vendor], api_base=refusing.url, api_key=key, settings=settings)
    a = Agent("A", HALF, model=handler, tools=[tool(cut)], model_settings=ModelSettings(stop=HALF))
    refusing.requests.clear()
    with pytest.raises(ProviderError):
        await Runner.run(a, [*first.to_input_list(), {"role": "user", "content": HALF}])
    strictly(refusing.requests[-1].body)
