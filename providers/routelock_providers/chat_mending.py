"""What of a chat completion litellm cannot read, or drops, and the other handlers take: made what it reads.

Pure functions on what was parsed already. What is not a chat completion is left alone, and so is whatever
litellm reads by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from routelock.usage import to_usage

__all__ = ["as_chunk", "mend_chunk", "mend_completion", "unshield"]

_Json = dict[str, Any]

_SHIELD = "\ufeff"
"""Before arguments that litellm is not to read: at a byte order mark Python's reader stops, and litellm then
leaves them as they are."""
_SEVERAL = "multi_tool_use.parallel"
"""A name that OpenAI's models invent. Of a call of it litellm makes others, but not in a stream."""
_SURELY_READABLE = 200
"""Arguments are surely that if they begin as an object, and have fewer brackets than this ..."""
_SURELY_SHORT = 4000
"""... and fewer characters than this: Python reads no number of more than 4,300 digits."""


def mend_chunk(provider: str, chunk: _Json) -> bool:
    """Change a chunk of a stream so that litellm can read it, and say whether anything had to be.

    Args:
        provider: litellm's name of the provider.
        chunk: any event of a stream; it is changed in place.
    """
    if "choices" not in chunk:
        if chunk.get("object") != "chat.completion.chunk":
            return False
        chunk["choices"] = None
    changed = _mend_head(chunk)
    if usage := chunk.get("usage"):
        # or litellm counts the tokens of a streamed thought itself, and gives that out as the vendor's number
        changed = _add_details(usage) or changed
    if chunk["choices"] is None:
        chunk["choices"], changed = [], True
    for choice in _dicts(cast("object", chunk["choices"])):
        if choice.get("delta", choice) is None:
            choice["delta"], changed = {}, True
        delta: object = choice.get("delta")
        if isinstance(delta, dict):
            changed = _mend_delta(provider, cast("_Json", delta)) or changed
    return changed


def mend_completion(provider: str, reply: _Json) -> bool:
    """Change a whole reply so that litellm can read it, and say whether anything had to be.

    Args:
        provider: litellm's name of the provider.
        reply: any JSON object; it is changed in place.
    """
    if "choices" not in reply:
        return False
    changed = _mend_head(reply)
    for choice in _dicts(reply["choices"]):
        message: object = choice.get("message")
        if not isinstance(message, dict):
            continue
        said = cast("_Json", message)
        if not said.get("role"):
            said["role"], changed = "assistant", True
        changed = _join_content(provider, said) or changed
        changed = _shield(said) or changed
    return changed


def unshield(message: _Json) -> None:
    """Take what `mend_completion` put before arguments away again, in a whole message as litellm gives it."""
    for function in _functions(message):
        function["arguments"] = function["arguments"].removeprefix(_SHIELD)


def _shield(message: _Json) -> bool:
    """Keep litellm from reading arguments of which it would fail, or make another call than a stream has.

    It reads those of whole replies alone.
    """
    changed = False
    for function in _functions(message):
        arguments: str = function["arguments"]
        odd = function.get("name") == _SEVERAL or arguments.startswith(_SHIELD)
        if odd or not _is_readable(arguments):
            function["arguments"], changed = _SHIELD + arguments, True
    return changed


def _is_readable(arguments: str) -> bool:
    """Whether litellm reads arguments as an object, or sees that they are no JSON."""
    brackets = arguments.count("[") + arguments.count("{")
    if arguments.startswith("{") and brackets < _SURELY_READABLE and len(arguments) < _SURELY_SHORT:
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except json.JSONDecodeError:
        return True
    except (ValueError, RecursionError):
        return False


def _functions(message: Mapping[str, Any]) -> Iterable[_Json]:
    for call in _dicts(message.get("tool_calls")):
        function: object = call.get("function")
        if isinstance(function, dict) and isinstance(cast("_Json", function).get("arguments"), str):
            yield cast("_Json", function)


def as_chunk(reply: Mapping[str, Any]) -> _Json:
    """Return a whole reply as the one chunk of a stream."""
    choices: list[_Json] = []
    for choice in _dicts(reply.get("choices")):
        delta = dict(cast("_Json", choice.get("message") or {}))
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{**call, "index": place} for place, call in enumerate(calls)]
        rest = {key: value for key, value in choice.items() if key != "message"}
        choices.append({**rest, "delta": delta, "finish_reason": choice.get("finish_reason") or "stop"})
    return {**reply, "object": "chat.completion.chunk", "choices": choices}


def _mend_head(said: _Json) -> bool:
    """See to what stands around the choices: the time, and a bill that nobody can read."""
    changed = False
    if isinstance(created := said.get("created"), float):
        said["created"], changed = int(created), True
    usage: object = said.get("usage")
    if usage is None:
        return changed
    if to_usage(cast(Any, usage)) is None:
        del said["usage"]
        return True
    bill = cast("_Json", usage)
    if not isinstance(bill.get("total_tokens", 0), int | float | None):
        del bill["total_tokens"]
        changed = True
    return changed


def _add_details(usage: _Json) -> bool:
    if usage.get("completion_tokens_details") is not None:
        return False
    usage["completion_tokens_details"] = {"reasoning_tokens": 0}
    return True


def _mend_delta(provider: str, delta: _Json) -> bool:
    changed = _join_content(provider, delta)
    if not delta.get("content") and delta.get("annotations") is None and _says_more(delta):
        delta["annotations"], changed = [], True
    return changed


def _says_more(delta: _Json) -> bool:
    """Whether litellm (1.105 to 1.110) would drop a delta that says something.

    It does so where there is neither a text nor a call beside it: a piece of a refusal, or a signature in
    OpenRouter's ``reasoning_details``, without which the thought is refused when it goes back.
    """
    if delta.get("tool_calls"):
        return False
    return any(value and key not in _IS_HEARD for key, value in delta.items())


_IS_HEARD = frozenset(("role", "content", "function_call", "reasoning", "reasoning_content"))


def _join_content(provider: str, said: _Json) -> bool:
    """Make one text of parts that are text; what Mistral says in parts, litellm reads by itself."""
    content: object = said.get("content")
    if provider == "mistral" or not isinstance(content, list):
        return False
    parts = cast("list[object]", content)
    texts = [str(part.get("text") or "") for part in _dicts(parts) if part.get("type") == "text"]
    if len(texts) < len(parts):
        return False
    said["content"] = "".join(texts)
    return True


def _dicts(value: object) -> list[_Json]:
    every = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("_Json", each) for each in every if isinstance(each, dict)]
