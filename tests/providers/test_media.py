"""Images, sound and files: what each provider is sent, byte for byte, and where they are on the way there."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from answers import Answers
from plain_and_streamed import both
from servers import HELLO

from routelock import Agent, RunConfig, Runner, ToolContext, function_tool, handoff
from routelock.handlers.port import Request
from routelock.history.input import to_messages
from routelock.history.messages import Message, text_of
from routelock.run.events import ToolOutput
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, assert_valid, call
from routelock.tools.outcome import ToolOutcome, ToolResult
from routelock.tracing.file import TraceFile
from routelock.tracing.otel_messages import RequestTexts
from routelock_providers import OpenAICompatible
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm
from routelock_providers.litellm.request import as_sent
from routelock_providers.request_shape import prepare
from routelock_providers.vendors import VendorRules

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = base64.b64encode(b"%PDF-1.4").decode()
WAV = base64.b64encode(b"RIFF").decode()
TEXT = {"type": "text", "text": "Look:"}
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
LINKED = {"type": "image_url", "image_url": {"url": "https://pictures.invalid/a.png"}}
FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
SOUND = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}

NO_IMAGE = "(An image that this model cannot be shown.)"
NO_FILE = "(A file that this model cannot be shown: 'a.pdf'.)"
NO_SOUND = "(A sound that this model cannot be shown.)"


def user(*parts: Any) -> Message:
    return {"role": "user", "content": [TEXT, *parts]}


async def sent(handler: Any, part: Any) -> str:
    """Return as JSON what a part has become on the wire, in its place behind the text."""
    with Answers(HELLO) as server:
        made = handler(server.url)
        try:
            async for _ in made.stream(Request(messages=[user(part)])):
                pass
        except Exception:  # the reply is OpenAI's, which some handlers cannot read
            assert server.requests
        finally:
            await close_litellm()
            if isinstance(made, OpenAICompatible):
                await made.aclose()
    return json.dumps(server.requests[0].body)


def litellm(model: str) -> Any:
    return lambda url: LiteLLM(model, api_base=url, api_key="test-not-a-key")


def compatible(url: str) -> OpenAICompatible:
    return OpenAICompatible("m", base_url=url)


def bedrock(url: str) -> LiteLLM:
    settings = {
        "aws_bedrock_runtime_endpoint": url,
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "aws_region_name": "us-east-1",
    }
    return LiteLLM("bedrock/converse/anthropic.claude-3-haiku-20240307-v1:0", settings=settings)


CHAT = {"image": IMAGE, "link": LINKED, "file": FILE, "sound": SOUND}
CLAUDE = {
    "image": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    "link": {"type": "image", "source": {"type": "url", "url": "https://pictures.invalid/a.png"}},
    "file": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    },
    "sound": NO_SOUND,
}
GEMINI = {
    "image": {"inline_data": {"data": PNG, "mime_type": "image/png"}},
    "file": {"inline_data": {"data": PDF, "mime_type": "application/pdf"}},
    "sound": {"inline_data": {"data": WAV, "mime_type": "audio/wav"}},
}
RESPONSES = {
    "image": {"image_url": f"data:image/png;base64,{PNG}", "detail": "auto", "type": "input_image"},
    "file": {
        "type": "input_file",
        "file_data": f"data:application/pdf;base64,{PDF}",
        "filename": "a.pdf",
    },
    "sound": NO_SOUND,
}
BEDROCK = {
    "image": {"image": {"source": {"bytes": PNG}, "format": "png"}},
    "file": f'{{"document": {{"source": {{"bytes": "{PDF}"}}, "format": "pdf", "name": "',
    "sound": NO_SOUND,
}
PARTS = {"image": IMAGE, "link": LINKED, "file": FILE, "sound": SOUND}

WIRE: dict[str, tuple[Any, dict[str, Any]]] = {
    "OpenAICompatible": (compatible, CHAT),
    "openai": (litellm("openai/gpt-4o"), CHAT),
    "openai/responses": (litellm("openai/responses/gpt-4o"), RESPONSES),
    "openrouter": (litellm("openrouter/a/b"), CHAT),
    "groq": (litellm("groq/m"), CHAT),
    "anthropic": (litellm("anthropic/claude-haiku-4-5"), CLAUDE),
    "bedrock": (bedrock, BEDROCK),
    "gemini": (litellm("gemini/gemini-2.5-flash"), GEMINI),
    "mistral": (litellm("mistral/mistral-small-latest"), CHAT | {"sound": NO_SOUND}),
    "ollama": (
        litellm("ollama_chat/qwen3"),
        {"image": [PNG], "file": NO_FILE, "sound": NO_SOUND},
    ),
    "deepseek": (
        litellm("deepseek/deepseek-chat"),
        {"image": NO_IMAGE, "link": NO_IMAGE, "file": NO_FILE, "sound": NO_SOUND},
    ),
}


@pytest.mark.asyncio_only
@pytest.mark.parametrize(
    ("handler", "part", "arrives"),
    [
        pytest.param(handler, PARTS[kind], arrives, id=f"{name} {kind}")
        for name, (handler, by_kind) in WIRE.items()
        for kind, arrives in by_kind.items()
    ],
)
async def test_parts_that_a_provider_is_sent(handler: Any, part: Any, arrives: Any) -> None:
    body = await sent(handler, part)
    assert "Look:" in body
    assert (arrives if isinstance(arrives, str) else json.dumps(arrives)) in body


def test_note_replaces_parts_that_the_vendor_does_not_take() -> None:
    parts = [TEXT, IMAGE, {"type": "vendors_own"}]
    messages: list[Any] = [{"role": "user", "content": parts}]
    assert prepare(messages, VendorRules(media=frozenset(("image_url",)))) is messages
    (message,) = prepare(messages, VendorRules(media=frozenset(("file",))))
    assert message.get("content") == [TEXT, {"type": "text", "text": NO_IMAGE}, {"type": "vendors_own"}]


# Before they are sent


def test_parts_of_the_responses_api_become_those_of_chat() -> None:
    url = IMAGE["image_url"]["url"]  # type: ignore[index]
    given: Any = [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": url, "detail": "low"},
        {"type": "input_file", **FILE["file"]},  # type: ignore[dict-item]
        SOUND,
        {"type": "input_image", "file_id": "file-1"},
    ]
    image = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    (message,) = to_messages([{"role": "user", "content": given}])
    assert message.get("content") == [TEXT, image, FILE, SOUND, given[-1]]
    assert given[0]["type"] == "input_text"
    said = [{"type": "output_text", "text": "A pixel.", "annotations": []}]
    (answer,) = to_messages([{"role": "assistant", "content": said}])
    assert answer.get("content") == [{"type": "text", "text": "A pixel."}]


async def test_a_target_is_shown_them() -> None:
    target = ScriptedHandler(["B here."])
    first = Agent("A", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[Agent("B", model=target)])
    await Runner.run(first, [user(IMAGE, FILE)])
    assert user(IMAGE, FILE) in target.requests[0].messages


def desk(target: ScriptedHandler, hops: int = 1) -> Agent[Any]:
    agent = Agent("last", model=target)
    for hop in range(hops):
        name = agent.name
        model = ScriptedHandler([call(f"transfer_to_{name}")])
        agent = Agent(f"hop{hop}", model=model, handoffs=[handoff(agent, nest_handoff_history=True)])
    return agent


@pytest.mark.parametrize("hops", [1, 2, 3])
async def test_summary_is_followed_by_the_media(hops: int) -> None:
    """However often it is nested, each is shown once, and not as text."""
    target = ScriptedHandler(["Done."])
    history: list[Any] = [user(IMAGE), {"role": "assistant", "content": "A pixel."}, user(FILE)]
    await Runner.run(desk(target, hops), [*history, {"role": "user", "content": "And now?"}])
    shown = target.requests[0].messages
    assert_valid(shown)
    summary, beside, newest = shown
    assert '{"type": "image_url", "shown": "below"}' in text_of(summary)
    assert beside.get("content") == [
        {"type": "text", "text": "(From line 1 of the conversation so far:)"},
        IMAGE,
        {"type": "text", "text": "(From line 3 of the conversation so far:)"},
        FILE,
    ]
    assert newest == {"role": "user", "content": "And now?"}
    assert json.dumps(shown).count(PNG) == 1


async def test_the_users_newest_image_stays_in_its_message() -> None:
    target = ScriptedHandler(["Done."])
    await Runner.run(desk(target), [user(IMAGE)])
    assert target.requests[0].messages[-1] == user(IMAGE)
    assert len(target.requests[0].messages) == 2


async def test_a_session_keeps_them() -> None:
    sessions, model = InMemorySessions(), ScriptedHandler(["A pixel.", "Yes."])
    await Runner.run(Agent("A", model=model), [user(IMAGE)], session=Session("s", sessions))
    await Runner.run(Agent("A", model=model), "Sure?", session=Session("s", sessions))
    assert model.requests[1].messages[0] == user(IMAGE)


async def test_a_trace_holds_an_image_once_and_no_more_of_it_than_it_may(tmp_path: Any) -> None:
    big = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50_000}}
    model = ScriptedHandler(["One.", call("transfer_to_b")])
    path = tmp_path / "runs.jsonl"
    agent = Agent("A", model=model)
    await Runner.run(agent, [user(big)], run_config=RunConfig(trace=path))
    assert path.read_text().count("A" * 50_000) == 1
    path.unlink()
    await Runner.run(
        Agent("A", model=ScriptedHandler(["One."])),
        [user(big)],
        run_config=RunConfig(trace=TraceFile(path, longest=1000)),
    )
    assert len(path.read_text()) < 10_000


# From tools

CHART = ToolResult("The chart.", media=[IMAGE])


@function_tool
def chart() -> ToolResult:
    """Draw a chart."""
    return CHART


async def test_a_tool_shows_an_image() -> None:
    played = await both(
        lambda: Agent("A", model=ScriptedHandler([call("chart", id="c"), "Up."]), tools=[chart])
    )
    answer = played.result.messages[2]
    assert answer.get("content") == [{"type": "text", "text": "The chart."}, IMAGE]
    assert [event.output for event in played.events if isinstance(event, ToolOutput)] == ["The chart."]


@pytest.mark.parametrize(
    ("model", "arrives"),
    [
        ("anthropic/claude-haiku-4-5", CLAUDE["image"]),
        ("openai/gpt-4o", {"type": "text", "text": "(From the tool results above:)"}),
        ("mistral/mistral-small-latest", IMAGE),
        ("deepseek/deepseek-chat", NO_IMAGE),
    ],
)
@pytest.mark.asyncio_only
async def test_each_provider_gets_the_image_in_its_place(model: str, arrives: Any) -> None:
    made = await Runner.run(
        Agent("A", model=ScriptedHandler([call("chart", id="abcDEF123"), "Up."]), tools=[chart]), "Hi"
    )
    with Answers(HELLO) as server:
        try:
            async for _ in litellm(model)(server.url).stream(Request(messages=made.messages[:-1])):
                pass
        except Exception:  # the reply is OpenAI's
            assert server.requests
        finally:
            await close_litellm()
    body = json.dumps(server.requests[0].body)
    assert (arrives if isinstance(arrives, str) else json.dumps(arrives)) in body


async def test_a_span_has_the_image_that_a_tool_returned() -> None:
    made = await Runner.run(Agent("A", model=ScriptedHandler([call("chart"), "Up."]), tools=[chart]), "Hi")
    request = Request(messages=made.messages)
    told = RequestTexts(largest_media=100_000).of(request)["gen_ai.input.messages"]
    assert {"type": "blob", "modality": "image", "mime_type": "image/png"}.items() <= _answer(told)[1].items()


def _answer(told: str) -> Any:
    """The parts of the answer to the tool call in the messages of a span."""
    return next(one for one in json.loads(told) if one["role"] == "tool")["parts"][0]["response"]


async def test_an_image_of_a_tool_survives_a_replay() -> None:
    outcome = await chart.invoke(ToolContext(context=None), "{}")
    again = ToolOutcome.from_envelope(json.loads(json.dumps(outcome.envelope())))
    assert (again.output, again.media) == ("The chart.", [IMAGE])


async def test_value_that_is_not_an_image_is_an_error_of_the_tool() -> None:
    @function_tool
    def broken() -> ToolResult:
        """Break."""
        return ToolResult("x", media=[TEXT])

    outcome = await broken.invoke(ToolContext(context=None), "{}")
    assert (outcome.error, outcome.media) == ("output", ())
    assert "not an image, sound or file" in outcome.output


def test_unknown_parts_become_notes_for_text_only_vendors() -> None:
    """They come with conversations of other programs, such as a ``tool_result`` in what a user said."""
    foreign: list[Message] = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]
    (sent,), _ = as_sent("deepseek/deepseek-chat", foreign)
    assert sent.get("content") == [{"type": "text", "text": "(Something that this model cannot be shown.)"}]
