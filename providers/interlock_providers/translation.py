"""litellm's translation without what its wrapper does around it.

``litellm.acompletion`` is a wrapper (logging, callbacks, caches, budgets, prices) around the function that
translates the request, sends it and reads the answer, and a stream comes back inside another wrapper. Here
that function is called by itself, and its stream is read by itself. Everything that decides what is sent
stays litellm's own: all its steps are taken, in whatever order the release at hand takes them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Self, cast
from uuid import uuid4

__all__ = ["Chunks", "ask", "can_ask"]

_SWITCHES = ("cache", "max_budget", "credential_list", "model_fallbacks", "modify_params", "pre_call_rules")
_LISTENERS = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "_async_input_callback",
    "_async_success_callback",
    "_async_failure_callback",
    "post_call_rules",
)
"""What an app may have set in litellm that its wrapper does."""


def can_ask(litellm: Any, provider: str, name: str) -> bool:
    """Whether a model can be asked below the wrapper, and the wrapper has nothing to do."""
    if not _is_tried(provider, name) or not hasattr(litellm.main.acompletion, "__wrapped__"):
        return False
    heard = (listener for name in _LISTENERS for listener in getattr(litellm, name, None) or ())
    # litellm adds "cache" by itself at the first call to Gemini
    switched_on = any(getattr(litellm, name, None) for name in _SWITCHES)
    return not switched_on and all(listener == "cache" for listener in heard)


def _is_tried(provider: str, name: str) -> bool:
    """Whether recorded replies are the same this way. The wrapper mends what the readers of others leave."""
    if provider == "bedrock":
        name = name.removeprefix("converse/")  # "invoke/..." has other readers
        return "/" not in name and ("claude" in name or "nova" in name)
    if provider in ("vertex_ai", "vertex_ai_beta"):
        return name.startswith("gemini")
    return provider in ("anthropic", "gemini")


async def ask(litellm: Any, arguments: Mapping[str, Any]) -> Any:
    """Make one call below the wrapper, and return the reply or the `Chunks` of a stream."""
    call_id = str(uuid4())
    logs = importlib.import_module("litellm.litellm_core_utils.litellm_logging")
    # the translation asks this for a few things on its way; nobody reads what it notes
    notes = logs.Logging(
        model=arguments["model"],
        messages=arguments["messages"],
        stream=bool(arguments.get("stream")),
        call_type="acompletion",
        start_time=datetime.now(),
        litellm_call_id=call_id,
        function_id="",
    )
    inner = inspect.unwrap(litellm.main.acompletion)
    reply = await inner(litellm_logging_obj=notes, litellm_call_id=call_id, **arguments)
    return Chunks(reply) if hasattr(reply, "completion_stream") else reply


class Chunks:
    """A stream as the reader of its vendor gives it, without the wrapper that would copy each chunk."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._source: AsyncIterator[Any] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Return the next chunk: litellm's own object, or a dict of the same form."""
        if self._source is None:
            self._source = await self._opened()
        while True:
            chunk = await anext(self._source)
            if isinstance(chunk, dict):
                chunk = _from_generic(cast("Mapping[str, Any]", chunk))
            if chunk is not None:  # else it was a line without an event in it
                return chunk

    async def aclose(self) -> None:
        """Close the stream."""
        close = getattr(self._wrapper.completion_stream, "aclose", None)
        if close is not None:
            await close()

    async def _opened(self) -> AsyncIterator[Any]:
        source: AsyncIterator[Any] | None = self._wrapper.completion_stream
        if source is None:  # some vendors are asked when the first chunk is
            await self._wrapper.fetch_stream()
            source = cast("AsyncIterator[Any]", self._wrapper.completion_stream)
        return aiter(source)


def _from_generic(said: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return litellm's older kind of chunk, its ``GenericStreamingChunk``, in the form of the newer one."""
    delta: dict[str, Any] = dict(said.get("provider_specific_fields") or {})
    if said.get("text"):
        delta["content"] = said["text"]
    if said.get("tool_use"):
        delta["tool_calls"] = [said["tool_use"]]
    finish = said.get("finish_reason") or None
    usage = said.get("usage")
    if not delta and finish is None and not usage:
        return None
    choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"choices": [choice], **({"usage": dict(usage)} if usage else {})}
