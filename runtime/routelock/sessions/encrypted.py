"""Sessions that nobody can read who has only the store: ``pip install 'routelock[encryption]'``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from routelock.errors import ConfigError, MissingExtra, SessionError
from routelock.sessions.stores import Record, SessionStore

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

__all__ = ["EncryptedSessions"]


class EncryptedSessions:
    """A `SessionStore` that encrypts what it puts into another one, with Fernet: AES, and a signature.

    A text can be neither read nor changed without a key, nor moved to another session or another place in
    it: either is an error when it is loaded. That the newest are missing cannot be seen. Names of sessions,
    and how many turns of what length there are, stay readable.

    Args:
        store: where the texts are kept.
        keys: from ``Fernet.generate_key()``. The first encrypts, any may decrypt: to change the key, put a
            new one in front, and take the old one away when all sessions were stored anew, see
            `Session.compact`.

    Raises:
        MissingExtra: cryptography is not installed.
        ConfigError: there is no key, or one is none.
    """

    def __init__(self, store: SessionStore, keys: Sequence[str | bytes]) -> None:
        self._store = store
        self._fernet = _fernet(keys)

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return what is stored; see `SessionStore.load`.

        Raises:
            SessionError: a text cannot be decrypted, or does not belong there.
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
            whose, place, text = json.loads(self._fernet.decrypt(token.encode()))
        except InvalidToken as error:
            raise SessionError(
                f"Record {number} of session {session!r:.80} cannot be decrypted: it was changed, it was "
                "stored without encryption, or its key is not among the keys given."
            ) from error
        if (whose, place) != (session, number):
            raise SessionError(
                f"Record {number} of session {session!r:.80} was not stored there: somebody has moved it."
            )
        return str(text)


def _fernet(keys: Sequence[str | bytes]) -> MultiFernet:
    try:
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(
            "EncryptedSessions needs cryptography, which is not installed: "
            "pip install 'routelock[encryption]'."
        ) from error
    if isinstance(keys, str | bytes) or not keys:
        raise ConfigError("EncryptedSessions needs a list of keys, the one that encrypts first.")
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError as error:  # it must not show the key
        raise ConfigError(
            "A key of EncryptedSessions is none: make it with Fernet.generate_key()."
        ) from error
