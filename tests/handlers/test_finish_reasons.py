"""A reply that a vendor's content filter emptied is one typed error: every handler, plain and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from struct import pack
from typing import Any
from zlib import crc32

import pytest
from answers import Answers
from litellm_answers import served
from servers import JSON, SSE, USAGE, Reply, chunk, event, streamed
from servers import said as completion

from routelock import Agent, RunConfig, Runner, RunResult, function_handler
from routelock.errors import ContentRefused
from routelock.handlers.events import MessageDone, ReasoningDelta, TextDelta
from routelock.handlers.port import Handler
from routelock.handlers.retry import Retry
from routelock.run.events import HandlerFallback
from routelock.testing import ScriptedHandler
from routelock.usage import Usage
from routelock_providers import OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.litellm.handler import LiteLLM

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

WAYS = pytest.mark.parametrize("watched", [False, True], ids=["plain", "streamed"])
COUNTED = Usage(requests=1, input_tokens=5, output_tokens=7)


async def run(agent: Agent[Any], watched: bool, **settings: Any) -> RunResult[Any]:
    config = RunConfig(**settings)
    if watched:
        return await Runner.run_streamed(agent, "Hi", run_config=config).drain()
    return await Runner.run(agent, "Hi", run_config=config)


async def refused(model: Handler, watched: bool) -> ContentRefused:
    """Run an agent whose reply is refused, with the default retries."""
    with pytest.raises(ContentRefused) as caught:
        await run(Agent("a", model=model), watched)
    return caught.value


# whatever answers


def emptied(text: str | None = "", reason: str = "content_filter", **more: Any) -> MessageDone:
    message: Any = {"role": "assistant", "content": text, **more}
    return MessageDone(message=message, finish_reason=reason, usage=COUNTED, model="m-1")


@WAYS
@pytest.mark.parametrize("text", ["", None, " \n"])
async def test_an_emptied_reply_is_refused_content(text: str | None, watched: bool) -> None:
    error = await refused(ScriptedHandler([emptied(text), "again"]), watched)
    assert not error.retryable
    assert "'a'" in str(error)
    assert "turn 1" in str(error)
    assert error.model == "m-1"


@WAYS
async def test_usage_of_a_filtered_reply_is_counted(watched: bool) -> None:
    error = await refused(ScriptedHandler([emptied()]), watched)
    assert error.result.usage == COUNTED
    assert error.result.calls[0].reply.finish_reason == "content_filter"


@WAYS
async def test_the_emptied_reply_is_not_in_the_transcript(watched: bool) -> None:
    error = await refused(ScriptedHandler([emptied(reasoning_content="Hm.")]), watched)
    assert error.result.to_input_list() == [{"role": "user", "content": "Hi"}]


async def test_what_was_shown_stays_in_the_partial_result() -> None:
    """Only a handler's own deltas can say more than its message."""
    script = [ReasoningDelta("Hm."), TextDelta("Sure"), emptied()]
    error = await refused(ScriptedHandler([script]), True)
    assert error.result.to_input_list()[-1] == {"role": "assistant", "content": "Sure"}


@WAYS
async def test_another_handler_may_answer_instead(watched: bool) -> None:
    first = ScriptedHandler([emptied()], name="first")
    agent = Agent("a", model=first, handlers=[ScriptedHandler(["Hello"], name="second")])
    result = await run(agent, watched, fallback=True)
    assert result.final_output == "Hello"
    assert result.usage.input_tokens > COUNTED.input_tokens


async def test_the_fallback_is_shown() -> None:
    first = ScriptedHandler([emptied()], name="first")
    agent = Agent("a", model=first, handlers=[ScriptedHandler(["Hello"], name="second")])
    events = [each async for each in Runner.run_streamed(agent, "Hi", run_config=RunConfig(fallback=True))]
    (seen,) = [each for each in events if isinstance(each, HandlerFallback)]
    assert isinstance(seen.error, ContentRefused)


@WAYS
async def test_text_cut_by_a_filter_is_kept_with_a_warning(watched: bool) -> None:
    result = await run(Agent("a", model=ScriptedHandler([emptied("Once upon")])), watched)
    assert result.final_output == "Once upon"
    assert result.warnings == ("turn 1: the reply was cut short (content_filter)",)


@WAYS
@pytest.mark.parametrize("reason", ["refusal", "SAFETY", "sensitive", "content_filter: RECITATION"])
async def test_other_words_for_a_filter_are_known(reason: str, watched: bool) -> None:
    await refused(ScriptedHandler([emptied(reason=reason)]), watched)


async def test_explanation_of_the_vendor_is_in_the_error() -> None:
    error = await refused(ScriptedHandler([emptied(None, refusal="It is about weapons.")]), False)
    assert "It is about weapons" in str(error)


async def test_a_models_own_refusal_is_an_answer() -> None:
    model = ScriptedHandler([emptied(None, reason="stop", refusal="I would rather not.")])
    result = await run(Agent("a", model=model), False)
    assert result.final_output == "I would rather not."


@WAYS
async def test_a_function_that_returns_an_emptied_completion(watched: bool) -> None:
    async def asks(request: Any) -> Any:
        choice = {"index": 0, "message": {"role": "assistant"}, "finish_reason": "content_filter"}
        return {"object": "chat.completion", "model": "m-1", "choices": [choice], "usage": USAGE}

    error = await refused(function_handler(asks), watched)
    assert error.result.usage == COUNTED


# over HTTP


def body(said: Mapping[str, Any]) -> Reply:
    return Reply((json.dumps(said).encode(),))


def events(*said: Mapping[str, Any], named: bool = False) -> Reply:
    pieces = [(b"event: " + one["type"].encode() + b"\n" if named else b"") + event(one) for one in said]
    return Reply(pieces, content_type=SSE)


def chat(reason: str = "content_filter", **message: Any) -> tuple[Reply, Reply]:
    filters = {"violence": {"filtered": True, "severity": "high"}}
    whole = completion(message, finish=reason, usage=USAGE, created=1)
    first = chunk({"role": "assistant", "content": ""}, created=1)
    last = chunk({}, finish=reason, created=1, content_filter_results=filters)
    bill = event({"id": "r1", "model": "m-1", "created": 1, "choices": [], "usage": USAGE})
    return whole, streamed(first, last, bill)


def anthropic() -> tuple[Reply, Reply]:
    usage = {"input_tokens": 5, "output_tokens": 7}
    head = {"id": "m1", "type": "message", "role": "assistant", "model": "m-1", "content": [], "usage": usage}
    why = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "It is a virus."}}
    return body({**head, **why}), events(
        {"type": "message_start", "message": head},
        {"type": "message_delta", "delta": why, "usage": usage},
        {"type": "message_stop"},
        named=True,
    )


TOLD = {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12}


def gemini(reason: str) -> tuple[Reply, Reply]:
    answer = {
        "candidates": [{"finishReason": reason, "index": 0}],
        "usageMetadata": TOLD,
        "modelVersion": "m",
    }
    return body(answer), events(answer)


def gemini_prompt(reason: str) -> tuple[Reply, Reply]:
    answer = {"promptFeedback": {"blockReason": reason}, "usageMetadata": TOLD, "modelVersion": "m"}
    return body(answer), events(answer)


def responses() -> tuple[Reply, Reply]:
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    answer = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m-1",
        "status": "incomplete",
        "incomplete_details": {"reason": "content_filter"},
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }
    begun = {**answer, "status": "in_progress", "incomplete_details": None, "usage": None}
    return body(answer), events(
        {"type": "response.created", "response": begun, "sequence_number": 0},
        {"type": "response.incomplete", "response": answer, "sequence_number": 1},
        named=True,
    )


def cohere() -> tuple[Reply, Reply]:
    tokens = {"input_tokens": 5, "output_tokens": 7}
    answer = {"id": "r1", "message": {"role": "assistant", "content": []}, "finish_reason": "ERROR_TOXIC"}
    whole = body({**answer, "usage": {"billed_units": tokens, "tokens": tokens}})
    return whole, whole  # litellm cannot read its streams


def bedrock() -> tuple[Reply, Reply]:
    answer: dict[str, Any] = {
        "output": {"message": {"role": "assistant", "content": []}},
        "stopReason": "content_filtered",
        "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12},
        "metrics": {"latencyMs": 1},
    }
    stream = [
        framed("messageStart", {"role": "assistant"}),
        framed("messageStop", {"stopReason": "content_filtered"}),
        framed("metadata", {"usage": answer["usage"], "metrics": {"latencyMs": 1}}),
    ]
    return body(answer), Reply(stream, content_type="application/vnd.amazon.eventstream")


def framed(kind: str, said: Mapping[str, Any]) -> bytes:
    """One message of Amazon's binary stream."""
    names = {":event-type": kind, ":content-type": JSON, ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + pack(">H", len(value)) + value.encode()
        for name, value in names.items()
    )
    payload = json.dumps(said).encode()
    sizes = pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = sizes + pack(">I", crc32(sizes)) + headers + payload
    return message + pack(">I", crc32(message))


VENDORS: dict[str, tuple[str, tuple[Reply, Reply]]] = {
    "openai": ("openai/gpt-4o-mini", chat(content="")),
    "openai null": ("openai/gpt-4o-mini", chat(content=None)),
    "azure ai": ("azure_ai/gpt-4o-mini", chat()),
    "mistral": ("mistral/mistral-small-latest", chat(content="")),
    "groq": ("groq/llama-3.3-70b", chat(content="")),
    "zai": ("zai/glm-4.7", chat("sensitive", content="")),
    "openrouter": ("openrouter/a/b", chat(content="", refusal=None)),
    "responses": ("openai/responses/gpt-4o", responses()),
    "anthropic": ("anthropic/claude-haiku-4-5", anthropic()),
    "gemini safety": ("gemini/gemini-2.5-flash", gemini("SAFETY")),
    "gemini recitation": ("gemini/gemini-2.5-flash", gemini("RECITATION")),
    "gemini spii": ("gemini/gemini-2.5-flash", gemini("SPII")),
    "gemini armor": ("gemini/gemini-2.5-flash", gemini("MODEL_ARMOR")),
    "gemini prompt": ("gemini/gemini-2.5-flash", gemini_prompt("PROHIBITED_CONTENT")),
    "bedrock": ("bedrock/converse/anthropic.claude-3-haiku-20240307-v1:0", bedrock()),
    "cohere": ("cohere_chat/command-r", cohere()),
}


@pytest.mark.asyncio_only
@WAYS
@pytest.mark.parametrize("vendor", VENDORS)
async def test_litellm_makes_one_call_and_counts_it(vendor: str, watched: bool) -> None:
    model, replies = VENDORS[vendor]
    async with served(replies[watched]) as server:
        error = await refused(LiteLLM(model, api_base=server.url, api_key="test-not-a-key"), watched)
        assert len(server.requests) == 1
    assert not error.retryable
    assert error.provider == model.partition("/")[0]
    used = error.result.usage
    assert (used.requests, used.input_tokens, used.output_tokens) == (1, 5, 7)


DIRECT: dict[str, Callable[[str], Handler]] = {
    "OpenAI": lambda url: OpenAI("m", base_url=url),
    "OpenAICompatible": lambda url: OpenAICompatible("m", base_url=url),
}


@pytest.mark.asyncio_only
@WAYS
@pytest.mark.parametrize("reason", ["content_filter", "content_filter: PROHIBITED_CONTENT", "sensitive"])
@pytest.mark.parametrize("name", DIRECT)
async def test_direct_handlers_ask_once_and_count(name: str, reason: str, watched: bool) -> None:
    with Answers(chat(reason, content="")[watched]) as server:
        error = await refused(DIRECT[name](server.url), watched)
        assert len(server.requests) == 1
    assert error.provider == "local"
    assert error.result.usage == COUNTED


PROMPT_REFUSED: Mapping[str, tuple[int, dict[str, Any]]] = {
    "azure": (
        400,
        {
            "message": "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy. Please modify your prompt and retry.",
            "type": None,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}},
        },
    ),
    "anthropic": (
        400,
        {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
    ),
    "xai": (403, {"message": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}),
}


@pytest.mark.asyncio_only
@pytest.mark.pairwise
@WAYS
@pytest.mark.parametrize("vendor", PROMPT_REFUSED)
@pytest.mark.parametrize("name", [*DIRECT, "LiteLLM"])
async def test_refused_prompt_is_not_retried(name: str, vendor: str, watched: bool) -> None:
    status, error = PROMPT_REFUSED[vendor]
    async with served(Reply((json.dumps({"error": error}).encode(),), status, JSON)) as server:
        model = DIRECT[name](server.url) if name in DIRECT else LiteLLM("openai/m", api_base=server.url)
        caught = await refused(model, watched)
        assert len(server.requests) == 1
    assert caught.status == status


@pytest.mark.asyncio_only
@WAYS
@pytest.mark.parametrize("name", [*DIRECT, "LiteLLM"])
async def test_an_error_of_the_filter_within_a_success(name: str, watched: bool) -> None:
    error = {"error": {"code": "content_filter", "message": "The output was filtered."}}
    async with served(events(error) if watched else body(error)) as server:
        model = DIRECT[name](server.url) if name in DIRECT else LiteLLM("openai/m", api_base=server.url)
        await refused(model, watched)
        assert len(server.requests) == 1


@pytest.mark.asyncio_only
@WAYS
async def test_a_reply_that_litellm_did_not_fetch_over_http(watched: bool) -> None:
    """``mock_response`` is litellm's own way to answer without asking, as is replacing ``acompletion``."""
    filtered = {"choices": [{"index": 0, "finish_reason": "content_filter", "message": {"content": ""}}]}
    model = LiteLLM("openai/m", api_key="test-not-a-key", settings={"mock_response": filtered})
    await refused(model, watched)


@pytest.mark.asyncio_only
@WAYS
async def test_gemini_keeps_the_text_that_was_cut(watched: bool) -> None:
    """litellm drops it from a whole reply, and shows it in a stream."""
    content = {"role": "model", "parts": [{"text": "Once upon"}]}
    candidate = {"finishReason": "SAFETY", "index": 0, "content": content}
    answer = {"candidates": [candidate], "usageMetadata": TOLD, "modelVersion": "m"}
    async with served(events(answer) if watched else body(answer)) as server:
        model = LiteLLM("gemini/gemini-2.5-flash", api_base=server.url, api_key="test-not-a-key")
        result = await run(Agent("a", model=model), watched, retry=Retry(attempts=1))
    assert result.final_output == "Once upon"
    assert result.warnings == ("turn 1: the reply was cut short (content_filter)",)


@pytest.mark.asyncio_only
@WAYS
@pytest.mark.parametrize("vendor", ["gemini safety", "gemini armor", "gemini prompt"])
async def test_litellm_tells_the_vendors_reason(vendor: str, watched: bool) -> None:
    model, replies = VENDORS[vendor]
    reasons = {
        "gemini safety": "SAFETY",
        "gemini armor": "MODEL_ARMOR",
        "gemini prompt": "PROHIBITED_CONTENT",
    }
    async with served(replies[watched]) as server:
        error = await refused(LiteLLM(model, api_base=server.url, api_key="test-not-a-key"), watched)
    assert reasons[vendor] in str(error)
