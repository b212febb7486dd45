"""Binary data by reference: images, sound and files are in a store, and messages refer to them.

Nothing calls these functions unless the app does. The store has each text under a reference with the SHA-256
of the text, so the same image is stored once, and a restored text is checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, cast

from routelock._copies import detached
from routelock.history.messages import Message

__all__ = ["externalize_binary", "restore_binary"]


_REF = "ref:sha256:"

_REF_PATTERN = re.compile(rf"{_REF}[0-9a-f]{{64}}")

_TEXT_KEYS = frozenset(("text", "thinking", "signature"))
"""Keys of a content part whose values are text, whatever they look like."""

_BASE64 = frozenset(("data", "file_data"))
"""Keys of bare base64: ``input_audio`` of chat completions, an image's ``source`` of Anthropic."""

_Store = MutableMapping[str, str] | Callable[[str, str], object]

_Lookup = Mapping[str, str] | Callable[[str], str]

_Entry = Message | Mapping[str, Any]


def externalize_binary(messages: Sequence[_Entry], store: _Store, over: int = 4096) -> list[Message]:
    """Return copies of messages with references in place of binary data, which goes into ``store``.

    Args:
        messages: ``data:`` URLs and bare base64 anywhere in their content parts are replaced. Text is not
            searched.
        store: a dict, or a function that is called with a reference and the text to store under it. A
            reference always has the same text.
        over: data of at most this many characters stays.
    """
    keep: Callable[[str, str], object] = store if callable(store) else store.__setitem__

    def replaced(key: str, text: str) -> str:
        if len(text) <= over or not (text.startswith("data:") or key in _BASE64):
            return text
        ref = _ref(text)
        keep(ref, text)
        return ref

    return [_with_changed_parts(message, replaced) for message in messages]


def restore_binary(messages: Sequence[_Entry], store: _Lookup) -> list[Message]:
    """Return copies of messages with the binary data in place of the references.

    Args:
        messages: the messages that `externalize_binary` returned.
        store: a mapping, or a function that is called with a reference and returns its text. Use a store of
            this conversation only, because any author of a message can write a reference into it.

    Raises:
        ValueError: the store has no text, or another text, under a reference. Other errors of the function,
            except LookupError, are raised as they are.
    """
    find: Callable[[str], str] = store if callable(store) else store.__getitem__

    def restored(key: str, text: str) -> str:
        if not _REF_PATTERN.fullmatch(text):
            return text
        try:
            found = find(text)
        except LookupError as error:
            raise ValueError(
                f"The store has nothing under {text}. Use the store that externalize_binary wrote to."
            ) from error
        if _ref(found) != text:
            raise ValueError(f"The store has another text under {text} than was stored there.")
        return found

    return [_with_changed_parts(message, restored) for message in messages]


def _ref(text: str) -> str:
    return _REF + hashlib.sha256(text.encode()).hexdigest()


def _with_changed_parts(message: _Entry, change: Callable[[str, str], str]) -> Message:
    copy = cast("dict[str, Any]", detached(message))
    if isinstance(copy.get("content"), list):
        copy["content"] = _changed("", copy["content"], change)
    return cast(Message, copy)


def _changed(key: str, value: object, change: Callable[[str, str], str]) -> object:
    if isinstance(value, str):
        return value if key in _TEXT_KEYS else change(key, value)
    if isinstance(value, list):
        return [_changed(key, each, change) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _changed(name, each, change) for name, each in cast("dict[str, object]", value).items()}
    return value
