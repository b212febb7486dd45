"""Encrypted records cannot be read, moved or changed without a key, and keys can be rotated."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.errors import ConfigError, SessionError
from routelock.sessions import (
    EncryptedSessions,
    InMemorySessions,
    Session,
)

pytestmark = pytest.mark.anyio


KEY = "ZmFrZS1rZXktZm9yLXRlc3RzLW9mLXNlc3Npb25zISE="


def fresh_key() -> str:
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode()


async def test_encrypted_texts_are_unreadable() -> None:
    inner = InMemorySessions()
    await Session("u", EncryptedSessions(inner, [KEY])).add([{"role": "user", "content": "my secret"}])
    (_, text), *_ = await inner.load("u")
    assert "secret" not in text
    with pytest.raises(SessionError, match="cannot be decrypted"):
        await Session("u", EncryptedSessions(inner, [fresh_key()])).load()


async def test_changed_or_moved_record_is_refused() -> None:
    inner = InMemorySessions()
    store = EncryptedSessions(inner, [KEY])
    for number, text in enumerate("ab"):
        await store.append("u", number, text)
    (_, first), (_, second) = await inner.load("u")
    for number, text in enumerate([second, first]):
        await inner.append("swapped", number, text)
    await inner.append("other", 0, first)
    await inner.append("changed", 0, first[:-5] + "AAAA=")
    for name in ("swapped", "other"):
        with pytest.raises(SessionError, match="it was moved in the store"):
            await store.load(name)
    with pytest.raises(SessionError, match="it was changed"):
        await store.load("changed")


async def test_key_can_be_rotated() -> None:
    inner, old, new = InMemorySessions(), fresh_key(), fresh_key()
    await Session("u", EncryptedSessions(inner, [old])).add([{"role": "user", "content": "a"}])
    both = Session("u", EncryptedSessions(inner, [new, old]))
    await both.add([{"role": "user", "content": "b"}])
    await both.compact()
    left = await Session("u", EncryptedSessions(inner, [new])).load()
    assert [message.get("content") for message in left.messages] == ["a", "b"]


@pytest.mark.parametrize("keys", [[], KEY, ["short"], [b"x"]])
def test_invalid_key_is_refused_and_not_shown(keys: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        EncryptedSessions(InMemorySessions(), keys)
    assert "short" not in str(caught.value)
