"""Something to look at while something takes longer than a second."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType

__all__ = ["Waiting"]


_FRAMES = "|/-\\"

_PAUSE = 0.1

_CLEAR = "\r\x1b[K"


class Waiting:
    """Says on stderr what is waited for, and since when, once it has taken more than a second.

    It says so to people only: nothing where stderr is no terminal, and one line where a terminal cannot go
    back in its line. It has a thread, because what is waited for may hold up this one (an import does).

    Args:
        what: what is going on, as in "loading litellm". It may be changed meanwhile.
        after: seconds until it is said.
    """

    def __init__(self, what: str, *, after: float = 1.0) -> None:
        self.what = what
        self._after = after
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Waiting:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop saying so, and leave an empty line. Safe to call twice."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        begun = time.monotonic()
        if self._done.wait(self._after):
            return
        if os.environ.get("TERM") == "dumb":
            _write(f"{self.what} ...\n")
            return
        frame = 0
        while not self._done.wait(_PAUSE):
            seconds = int(time.monotonic() - begun)
            _write(f"{_CLEAR}{_FRAMES[frame % len(_FRAMES)]} {self.what} ({seconds} s)")
            frame += 1
        _write(_CLEAR)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
