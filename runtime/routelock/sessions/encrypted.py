"""Encrypted sessions, in any store: ``pip install 'routelock[encryption]'``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from routelock._lazy import needs_extra
from routelock.errors import ConfigError, SessionError
from routelock.sessions.stores import Record, SessionStore

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

__all__ = ["EncryptedSessions"]


class EncryptedSessions:
    """A `SessionStore` that encrypts the texts it keeps in another store, with Fernet: AES and a signature.

    Without a key a text can be neither read nor changed. A text that was changed, or moved to another session
    or position, raises an error when it is loaded. Missing newest texts are not detected. Names of sessions,
    and the number and length of their turns, stay readable.

    Args:
        store: keeps the texts.
        keys: from ``Fernet.generate_key()``. The first encrypts, all may decrypt. To change the key, put a
            new one in front, store all sessions again with `Session.compact`, and then remove the old one.

    Raises:
        MissingExtra: cryptography is not installed.
        ConfigError: there is no key, or one is invalid.
    """

    def __init__(self, store: SessionStore, keys: Sequence[str | bytes]) -> None:
        self._store = store
        self._fernet = _fernet(keys)

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return the records of a session; see `SessionStore.load`.

        Raises:
            SessionError: a text cannot be decrypted, or was moved.
        """
        found = await self._store.load(session, newest=newest)
        return [(number, self._decrypted(session, number, text)) for number, text in found]

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text; see `SessionStore.append`."""
        sealed = json.dumps([session, after + 1, text]).encode()
        await self._store.append(session, after, self._fernet.encrypt(sealed).decode(), alone=alone)

    def _decrypted(self, session: str, number: int, token: str) -> str:
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - an extra

        try:
            owner, position, text = json.loads(self._fernet.decrypt(token.encode()))
        except InvalidToken as error:
            raise SessionError(
                f"Record {number} of session {session!r:.80} cannot be decrypted: it was changed, it was "
                "stored without encryption, or its key is not among the keys given."
            ) from error
        if (owner, position) != (session, number):
            raise SessionError(
                f"Record {number} of session {session!r:.80} was not stored there: it was moved in the store."
            )
        return str(text)


def _fernet(keys: Sequence[str | bytes]) -> MultiFernet:
    with needs_extra(
        "EncryptedSessions needs cryptography, which is not installed", "encryption", missing=ImportError
    ):
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra
    if isinstance(keys, str | bytes) or not keys:
        raise ConfigError("EncryptedSessions needs a list of keys, the one that encrypts first.")
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError as error:  # the message must not show the key
        raise ConfigError(
            "A key of EncryptedSessions is invalid: make it with Fernet.generate_key()."
        ) from error
