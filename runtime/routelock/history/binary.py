"""Binary data by reference: images, sound and files stay in a store, the messages name them.

Off unless you call it. The store keeps text under a name, which is the SHA-256 of the
text: the same image is kept once, and what comes back is checked against its name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, cast

from routelock._json import detached
from routelock.history.messages import Message

__all__ = ["externalize_binary", "restore_binary"]


_REF = "ref:sha256:"

_IS_REF = re.compile(rf"{_REF}[0-9a-f]{{64}}")

_WORDS = frozenset(("text", "thinking", "signature"))
"""Keys of a content part that hold what was said, whatever it looks like."""

_BASE64 = frozenset(("data", "file_data"))
"""Keys that hold bare base64: ``input_audio`` of chat completions, an image's ``source`` of Anthropic."""

_Keep = MutableMapping[str, str] | Callable[[str, str], object]

_Find = Mapping[str, str] | Callable[[str], str]

_Entry = Message | Mapping[str, Any]


def externalize_binary(messages: Sequence[_Entry], store: _Keep, over: int = 4096) -> list[Message]:
    """Return copies of ``messages`` in which references stand for the binary data, which ``store`` keeps.

    Args:
        messages: their ``data:`` URLs and bare base64 are replaced, wherever they are in parts of content;
            text is never looked into.
        store: a dict, or a function that is called with a reference and the text to keep under it. The same
            reference always comes with the same text.
        over: what is at most this many characters long stays.
    """
    keep: Callable[[str, str], object] = store if callable(store) else store.__setitem__

    def replaced(key: str, text: str) -> str:
        if len(text) <= over or not (text.startswith("data:") or key in _BASE64):
            return text
        ref = _ref(text)
        keep(ref, text)
        return ref

    return [_over_parts(message, replaced) for message in messages]


def restore_binary(messages: Sequence[_Entry], store: _Find) -> list[Message]:
    """Return copies of ``messages`` in which the binary data stands again, as it was.

    Args:
        messages: what `externalize_binary` returned.
        store: a mapping, or a function that is called with a reference and returns the text under it.
            Let it hold what belongs to this conversation only: whoever writes a message can write a
            reference.

    Raises:
        ValueError: the store has nothing, or something else, under a reference. What the function
            raises, other than a LookupError, comes through.
    """
    find: Callable[[str], str] = store if callable(store) else store.__getitem__

    def restored(key: str, text: str) -> str:
        if not _IS_REF.fullmatch(text):
            return text
        try:
            found = find(text)
        except LookupError as error:
            raise ValueError(
                f"The store has nothing under {text}. Is it the one that was written to?"
            ) from error
        if _ref(found) != text:
            raise ValueError(f"The store has something else under {text} than what was kept there.")
        return found

    return [_over_parts(message, restored) for message in messages]


def _ref(text: str) -> str:
    return _REF + hashlib.sha256(text.encode()).hexdigest()


def _over_parts(message: _Entry, change: Callable[[str, str], str]) -> Message:
    copy = cast("dict[str, Any]", detached(message))
    if isinstance(copy.get("content"), list):
        copy["content"] = _changed("", copy["content"], change)
    return cast(Message, copy)


def _changed(key: str, value: object, change: Callable[[str, str], str]) -> object:
    if isinstance(value, str):
        return value if key in _WORDS else change(key, value)
    if isinstance(value, list):
        return [_changed(key, each, change) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _changed(name, each, change) for name, each in cast("dict[str, object]", value).items()}
    return value
