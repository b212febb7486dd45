"""Comparing what came out of a call with what was recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from replay.replies import Expected
from replay.runs import Outcome
from replay.tape import Interaction
from routelock import errors
from routelock.errors import ProviderError
from routelock.handlers.events import MessageDone
from routelock.history.messages import calls_of, text_of

__all__ = ["misses", "missing_signatures"]

_THOUGHT = re.compile(r"^\s*<(think|thinking)>.*?</\1>\s*", re.DOTALL)

_CLASS_OF_STATUS: dict[int, tuple[type[ProviderError], ...]] = {
    401: (errors.AuthenticationFailed,),
    402: (errors.QuotaExhausted,),
    403: (errors.AuthenticationFailed, errors.ContentRefused),
    404: (errors.ModelNotFound, errors.InvalidRequest),
    408: (errors.ProviderTimeout,),
    429: (errors.RateLimited,),
    504: (errors.ProviderTimeout,),
}
_OPAQUE = frozenset(("signature", "thoughtSignature", "encrypted_content"))


def misses(
    expected: Expected,
    outcome: Outcome,
    answer: Interaction | None = None,
    earlier_ids: Collection[str] = (),
) -> list[str]:
    """Return what is wrong, in words; nothing for a call that came out as recorded.

    Args:
        expected: what was recorded.
        outcome: what came out.
        answer: the recorded answer itself, where it is known.
        earlier_ids: of the calls that the same run answered before.
    """
    if outcome.error is not None:
        return list(_of_error(expected, outcome))
    if expected.failed:
        return [f"an error was recorded (status {expected.status}), a reply came out"]
    if outcome.reply is None:
        return ["the run did not make this call"]
    return list(_of_reply(expected, outcome, outcome.reply, answer, earlier_ids))


def _of_reply(
    expected: Expected,
    outcome: Outcome,
    reply: MessageDone,
    answer: Interaction | None,
    earlier_ids: Collection[str],
) -> Iterator[str]:
    text = text_of(reply.message)
    # litellm moves a thought that is written into the text of a whole reply to where it belongs
    if text != expected.text and text.strip() != _THOUGHT.sub("", expected.text or "").strip():
        yield f"text: recorded {expected.text!r:.200}, got {text!r:.200}"
    if outcome.shown is not None and outcome.shown != text:
        yield f"text was streamed as {outcome.shown!r:.200} and is {text!r:.200} in the complete reply"
    calls = calls_of(reply.message)
    ours = [(call["function"]["name"], _read(call["function"]["arguments"])) for call in calls]
    theirs = [(call["name"], call["arguments"]) for call in expected.calls]
    if ours != theirs:
        yield f"tool calls: recorded {theirs!r:.300}, got {ours!r:.300}"
    else:
        recorded = [call.get("id") for call in expected.calls]
        fresh = [None if call_id in earlier_ids else call_id for call_id in recorded]
        yield from _of_ids(fresh, [call["id"] for call in calls])
    yield from _of_usage(expected, reply, answer)


def _of_ids(recorded: Sequence[Any], ours: Sequence[str]) -> Iterator[str]:
    if len(set(ours)) < len(ours) or not all(ours):
        yield f"call ids are empty or not unique: {ours}"
    for theirs, mine in zip(recorded, ours, strict=True):
        # a vendor that repeats an id gets another one from us
        if theirs and recorded.count(theirs) == 1 and theirs.partition("__thought__")[0] != mine:
            yield f"call id: recorded {theirs!r:.80}, got {mine!r:.80}"


def _of_usage(expected: Expected, reply: MessageDone, answer: Interaction | None) -> Iterator[str]:
    if expected.usage is None:
        return
    usage = reply.usage
    got = None if usage is None else (usage.input_tokens, usage.output_tokens)
    if usage is not None and usage.estimated:
        yield "usage was recorded and is called estimated"
    if got == tuple(expected.usage):
        return
    server_side = tokens_beside(answer) if answer is not None else (0, 0)
    if got != (expected.usage[0] + server_side[0], expected.usage[1] + server_side[1]):
        yield f"usage: recorded {tuple(expected.usage)}, got {got}"


def tokens_beside(answer: Interaction) -> tuple[int, int]:
    """Return the tokens that an answer counts apart from its main numbers: those of tools that ran on
    the vendor's side (Gemini's ``toolUsePromptTokenCount``, the other models in Anthropic's
    ``iterations``). They are consumed and paid for, so a run counts them too.
    """
    last = re.findall(rb'"toolUsePromptTokenCount"\s*:\s*(\d+)', answer.body)
    if last:
        return int(last[-1]), 0
    found = re.findall(rb'"iterations"\s*:\s*(\[[^\]]*\])', answer.body)
    beside = [one for one in _read(found[-1].decode()) if one.get("type") != "message"] if found else []
    return sum(one.get("input_tokens", 0) for one in beside), sum(
        one.get("output_tokens", 0) for one in beside
    )


def _of_error(expected: Expected, outcome: Outcome) -> Iterator[str]:
    error = outcome.error
    told = f"{type(error).__name__}: {error!s:.300}"
    if not expected.failed:
        if isinstance(error, errors.ContentRefused) and not expected.text and not expected.calls:
            return  # the recorded reply is empty because it was refused
        yield told
        return
    if not isinstance(error, ProviderError):
        yield f"recorded error {expected.status}, got {told}"
        return
    if expected.status is not None and error.status != expected.status:
        yield f"recorded error {expected.status}, got {error.status}: {told}"
    if not isinstance(error, _classes(expected)):
        yield f"recorded error {expected.status or expected.kind}, which {told} is not the class for"
    if expected.retryable is not None and error.retryable is not expected.retryable:
        yield f"may it be tried again? {expected.retryable} is right, not {error.retryable}: {told}"
    if expected.text is not None and outcome.shown is not None and outcome.shown != expected.text:
        yield f"before the error, recorded text {expected.text!r:.200}, streamed {outcome.shown!r:.200}"


def _classes(expected: Expected) -> tuple[type[ProviderError], ...]:
    if expected.kind is not None:
        return (getattr(errors, expected.kind),)
    status = expected.status
    if status is None:
        return (ProviderError,)
    if status in _CLASS_OF_STATUS:
        return _CLASS_OF_STATUS[status]
    refused = (errors.InvalidRequest, errors.AuthenticationFailed, errors.QuotaExhausted)
    return refused if status < 500 else (errors.ServerFailed,)


def missing_signatures(recorded: Sequence[Interaction], sent: Sequence[bytes]) -> list[str]:
    """Return the signatures of the model's reasoning that were once sent back and were not this time.

    What the first request held is not the loop's: it came from another conversation.
    """
    everything = _plain_base64(b"\n".join(sent).decode("utf-8", "replace"))
    first = set(_opaque(recorded[0].request)) if recorded else set()
    wanted = {mark for one in recorded for mark in _opaque(one.request)} - first
    lost = [mark for mark in sorted(wanted) if _plain_base64(mark) not in everything]
    return [f"signature {mark[:24]}... was not sent back" for mark in lost]


def _plain_base64(text: str) -> str:
    """Base64 has two alphabets, and padding that may be left out."""
    return text.replace("-", "+").replace("_", "/").rstrip("=")


def _opaque(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _OPAQUE and isinstance(inner, str) and len(inner) > 20:
                yield inner
            else:
                yield from _opaque(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _opaque(inner)


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
