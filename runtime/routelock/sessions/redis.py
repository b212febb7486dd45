"""Sessions in Redis: ``pip install 'routelock[redis]'``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from routelock._lazy import needs_extra
from routelock.errors import ConfigError
from routelock.sessions.stores import Record, conflict, in_thread

if TYPE_CHECKING:
    import redis

__all__ = ["RedisSessions"]


_APPEND = """
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local number = 0
if #newest > 0 then number = tonumber(string.match(newest[1][1], '^%d+')) end
if number ~= tonumber(ARGV[1]) then return 0 end
redis.call('XADD', KEYS[1], string.format('%d-0', number + 1), 'text', ARGV[2])
if ARGV[3] == '1' then redis.call('XTRIM', KEYS[1], 'MAXLEN', 1) end
if ARGV[4] ~= '' then redis.call('EXPIRE', KEYS[1], ARGV[4]) end
return 1
"""


class RedisSessions:
    """A `SessionStore` in Redis 5 or newer, or a compatible server: one stream for each session.

    Durability depends on the settings of the server: with ``appendonly yes`` and ``appendfsync always`` a
    stored turn survives a crash, by default the last second or more may be lost. Use
    ``maxmemory-policy noeviction``.

    Args:
        url: such as ``"redis://host:6379/0"``, or a ``redis.Redis`` with settings of its own.
        prefix: the beginning of the keys.
        expire: seconds after the last turn at which a session is deleted; None keeps it.
        timeout: seconds that one operation may take, with a ``url``.

    Raises:
        MissingExtra: redis is not installed.
    """

    def __init__(
        self,
        url: str | redis.Redis,
        *,
        prefix: str = "routelock:session:",
        expire: int | None = None,
        timeout: float = 10.0,
    ) -> None:
        with needs_extra("RedisSessions needs redis, which is not installed", "redis", missing=ImportError):
            import redis  # noqa: PLC0415 - an extra
        if expire is not None and expire < 1:
            raise ConfigError(
                f"expire must be at least 1 second, or None to keep everything, not {expire!r}."
            )
        self._prefix = prefix
        self._expire = "" if expire is None else str(expire)
        connect = cast(Any, redis.Redis).from_url  # redis is only partly typed
        self._client: Any = (
            connect(url, socket_timeout=timeout, socket_connect_timeout=timeout)
            if isinstance(url, str)
            else url
        )
        self._script: Any = self._client.register_script(_APPEND)

    def close(self) -> None:
        """Close the connections; the next operation opens new ones."""
        self._client.close()

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return the records of a session; see `SessionStore.load`."""
        key = self._prefix + session
        read = partial(self._client.xrevrange, key, count=newest)
        found = cast("list[tuple[Any, dict[Any, Any]]]", await in_thread(read))
        return [_record(number, fields) for number, fields in reversed(found)]

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text; see `SessionStore.append`."""
        given = [after, text, "1" if alone else "", self._expire]
        if not await in_thread(partial(self._script, keys=[self._prefix + session], args=given)):
            raise conflict(session, after)


def _record(number: str | bytes, fields: dict[Any, Any]) -> Record:
    (text,) = fields.values()
    return int(_text(number).partition("-")[0]), _text(text)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
