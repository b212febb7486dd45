"""The outcome of a call of a tool, and the text of a result for the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from routelock._copies import detached
from routelock._sendable import sendable
from routelock._text import clip_place
from routelock.handoff_request import HandoffRequest
from routelock.history.content import chat_part, media_of
from routelock.tools.questions import ToolQuestion, as_data
from routelock.usage import Usage, is_usage

__all__ = [
    "NoTextError",
    "ToolErrorKind",
    "ToolOutcome",
    "ToolResult",
    "outcome_of",
    "to_text",
]


ToolErrorKind = Literal["arguments", "raised", "timeout", "output", "guardrail", "not_run", "cancelled"]
"""The reason why a call has no result. ``"arguments"``: they do not match the schema, so the tool did not
run. ``"raised"`` and ``"timeout"``: the tool failed. ``"output"``: it ran, and its result has no text form.
``"guardrail"``: a guardrail of the tool objected, before or after the call. ``"not_run"`` and
``"cancelled"``: another call of the same reply ended the run, before this call began or before it ended."""


@dataclass(frozen=True, init=False)
class ToolOutcome:
    """The outcome of one call. Its ``output`` is the text of the tool result, also for a failed call."""

    output: str
    error: ToolErrorKind | None = None
    """The reason why the call has no result; None if it succeeded."""
    usage: Usage | None = None
    handoff: HandoffRequest | None = None
    """The handoff request that the function returned, if any; ``output`` is the result after the handoff."""
    media: Sequence[Mapping[str, Any]] = ()
    """Images, sound and files that belong to the ``output``, as parts of a chat message."""
    question: ToolQuestion | None = None
    """The question of the function to a person; the call then waits, and has no ``output``."""
    exception: BaseException | None = field(default=None, compare=False)
    """The exception of a failed call; it exists only in the process that made the call."""
    value: Any = field(default=None, compare=False)
    """The value that the function returned; it exists only in the process that made the call."""

    def __init__(
        self,
        output: str,
        error: ToolErrorKind | None = None,
        usage: Usage | None = None,
        handoff: HandoffRequest | None = None,
        media: Sequence[Mapping[str, Any]] = (),
        question: ToolQuestion | None = None,
        exception: BaseException | None = None,
        value: Any = None,
    ) -> None:
        fields = self.__dict__  # an __init__ by dataclass takes twice as long for a frozen class
        fields["output"] = output
        fields["error"] = error
        fields["usage"] = usage
        fields["handoff"] = handoff
        fields["media"] = media
        fields["question"] = question
        fields["exception"] = exception
        fields["value"] = value

    def envelope(self) -> dict[str, Any]:
        """Return the outcome as JSON data: ``{"ok": {...}}`` or ``{"err": {...}}``."""
        if self.error is not None:
            failed = {"type": self.error, "message": self.output, "retryable": False}
            return {"err": failed | ({"usage": asdict(self.usage)} if self.usage else {})}
        made: dict[str, Any] = {"output": self.output, "usage": asdict(self.usage) if self.usage else None}
        if self.media:
            made["media"] = list(self.media)
        if self.handoff is not None:
            made["handoff"] = self.handoff.envelope()
        if self.question is not None:
            made["question"] = as_data(self.question)
        return {"ok": made}

    @classmethod
    def from_envelope(cls, envelope: Mapping[str, Any]) -> ToolOutcome:
        """Return the outcome of an `envelope`, without ``exception`` and ``value``."""
        if "err" in envelope:
            failed: Mapping[str, Any] = envelope["err"]
            usage = Usage(**failed["usage"]) if failed.get("usage") else None
            return cls(failed["message"], error=failed["type"], usage=usage)
        made: Mapping[str, Any] = envelope["ok"]
        asked: Mapping[str, Any] | None = made.get("handoff")
        question: Mapping[str, Any] | None = made.get("question")
        return cls(
            made["output"],
            usage=Usage(**made["usage"]) if made["usage"] else None,
            handoff=HandoffRequest.from_envelope(asked) if asked else None,
            media=made.get("media", ()),
            question=ToolQuestion(**question) if question else None,
        )


_NOT_KNOWN = "It is not known whether it had an effect. Check that first if it matters."

NOT_RUN = ToolOutcome(
    "This call was not made, because another call of the same reply ended the run first.", error="not_run"
)

CUT_OFF = ToolOutcome(
    f"This call was cancelled, because another call of the same reply ended the run. {_NOT_KNOWN}",
    error="cancelled",
)

LOST = ToolOutcome(
    f"Another call of the same reply ended the run before this one was recorded. {_NOT_KNOWN}",
    error="cancelled",
)
"""The outcomes of calls whose run was ended by another call of the same reply."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result with usage or media, for a tool that returns more than its content."""

    content: Any
    """The content for the model: text as it is, anything else as JSON; or a `HandoffRequest` or a
    `ToolQuestion`."""
    usage: Usage | None = None
    """The usage of the tool itself, for example of a model that it called; added to the run's usage."""
    media: Sequence[Mapping[str, Any]] = ()
    """Images, sound and files that belong to the content, as parts of a chat message:
    ``{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}``."""


def outcome_of(value: Any, most: int | None) -> ToolOutcome:
    """Return the outcome of a call that returned ``value``.

    Args:
        value: the result of the function.
        most: the most characters of the result that the model is shown; None is no limit.

    Raises:
        NoTextError: the value has no text form.
    """
    if isinstance(value, str):
        return ToolOutcome(output=to_text(value, most), value=value)
    content: object = value.content if isinstance(value, ToolResult) else value
    usage = value.usage if isinstance(value, ToolResult) else None
    if usage is not None and not is_usage(usage):
        raise NoTextError(f"usage must be a routelock.Usage of numbers, not {usage!r:.80}")
    if isinstance(content, HandoffRequest):
        return ToolOutcome(output=content.answer, usage=usage, value=value, handoff=content)
    if isinstance(content, ToolQuestion):
        return ToolOutcome(output="", usage=usage, value=value, question=_checked(content))
    if _contains_request(content):
        raise NoTextError("a HandoffRequest or a ToolQuestion must be returned by itself, not in a list")
    if hasattr(type(content), "handoff_description"):  # an agent: its instructions are not for this model
        name = getattr(content, "name", "")
        raise NoTextError(f"an agent is no tool result: use handoffs, or return HandoffRequest({name!r})")
    media = _media(value.media) if isinstance(value, ToolResult) and value.media else ()
    return ToolOutcome(output=to_text(content, most), usage=usage, value=value, media=media)


def _media(given: Sequence[Mapping[str, Any]]) -> Sequence[dict[str, Any]]:
    parts = [detached(dict(chat_part(part))) for part in given]  # the tool may change its own list later
    if len(media_of(parts)) < len(parts):
        raise NoTextError("media has a part that is not an image, sound or file of a chat message")
    return parts


def _checked(question: ToolQuestion) -> ToolQuestion:
    try:
        return ToolQuestion(**as_data(question))
    except ValueError as error:
        raise NoTextError(f"a ToolQuestion consists of JSON data: {error}") from error


def _contains_request(content: object) -> bool:
    if isinstance(content, str) or not isinstance(content, list | tuple):
        return False
    return any(isinstance(each, HandoffRequest | ToolQuestion) for each in cast("Sequence[object]", content))


class NoTextError(Exception):
    """A tool's result has no text form, so it cannot be shown to a model."""


def to_text(value: object, most: int | None = None) -> str:
    """Return a tool's result as text: text as it is, None as empty text, anything else as JSON.

    An object without a JSON form is shown as its ``str``, if its class defines one.

    Args:
        value: the result of the tool.
        most: the limit in characters; a longer text is cut, and a notice says how much is missing. None is no
            limit.

    Raises:
        NoTextError: the value has no text form, refers to itself, or is bytes that are not UTF-8.
    """
    text = _whole_text(value)
    if most is None or len(text) <= most:
        return text
    end = clip_place(text, most)
    return (
        f"{text[:end]}\n[Cut off here: {len(text) - end} of {len(text)} characters are not shown. "
        "Ask for a smaller part if there is a way.]"
    )


def _whole_text(value: object) -> str:
    if isinstance(value, str):
        text = str.__str__(value)  # of a string enum the value, not the name
        return text if text.isascii() else sendable(text)
    if value is None:
        return ""
    from pydantic_core import PydanticSerializationError, to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    fallbacks: list[object] = []

    def as_own_text(each: object) -> str:
        fallbacks.append(each)
        return str(each)

    try:
        if isinstance(value, bytes):
            return value.decode()
        text = to_json(value, inf_nan_mode="strings", fallback=as_own_text).decode()
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        return _with_replaced_surrogates(value, error)
    for each in fallbacks:
        if not _has_text_form(type(each)):
            raise NoTextError(f"a value of type {type(each).__name__} has no JSON form")
    return str(value) if fallbacks and fallbacks[0] is value else text


def _with_replaced_surrogates(value: object, error: ValueError) -> str:
    """Return a value as JSON with U+FFFD for each half of a surrogate pair.

    The names of files that are not UTF-8 contain such halves.

    Raises:
        NoTextError: serialising failed for another reason.
    """
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        data = sendable(json.loads(json.dumps(value)))
        return to_json(data, inf_nan_mode="strings").decode()
    except (TypeError, ValueError, RecursionError):
        raise NoTextError(str(error)) from error


def _has_text_form(kind: Any) -> bool:
    """Whether the class defines a text for its objects; Python's "<object at 0x7f...>" is of no use."""
    is_default = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return not is_default and kind.__module__ != "builtins"
