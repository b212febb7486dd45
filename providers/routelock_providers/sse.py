"""Server-sent events: bytes in, the data of whole events out. No I/O (WHATWG HTML, section 9.2)."""

from __future__ import annotations

__all__ = ["EventDecoder"]


_BOM = b"\xef\xbb\xbf"


class EventDecoder:
    """Cuts a stream of bytes into the data of its events.

    Lines end with LF, CR or CRLF and with nothing else: U+2028 inside a JSON text is text. Comments
    and the fields ``event``, ``id`` and ``retry`` are skipped, for chat streams say all in the data, and so
    are events without any, or with nothing but spaces, which keep a connection alive. The data stays bytes:
    whether it is UTF-8 is its reader's question.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """Take in the next bytes and return the data of the events that they complete."""
        lines = (self._rest + received).splitlines(keepends=True)
        # a CR at the very end may be the first half of a CRLF
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n"))) is not None]

    def flush(self) -> list[bytes]:
        """Return what stands at the end of the stream without the empty line that should follow it."""
        lines = [self._rest.rstrip(b"\r\n"), b""] if self._rest else [b""]
        self._rest = b""
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> bytes | None:
        line = line.removeprefix(_BOM)  # at the very beginning, where else nobody puts one
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data = []
            return data if data.strip() else None
        return None
