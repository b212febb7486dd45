"""How many requests a second one process serves, and what each costs it, over real sockets.

Clients, servers and the model are processes of their own. The CPU time is that of the server process, by the
system's own count, so other work on the machine changes it little; the times of requests it does change.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from speed.scene import ANSWER, KEY, MODEL
from speed.server import marker

__all__ = ["ROWS", "Load", "Row", "about_load", "measured_load", "shown_load"]

_HERE = Path(__file__).resolve().parent
_CHUNKS, _PACE, _WAIT = 20, 5, 50
"""Chunks of a streamed answer, milliseconds between two of them, and milliseconds before the first."""
_PATIENCE = 120.0
"""Seconds that LiteLLM's proxy has to start."""


_LITELLM = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it asks the internet
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # only this machine reaches it
}


def _chat(text: str, *, stream: bool) -> Any:
    return {"model": "plain", "messages": [{"role": "user", "content": text}], "stream": stream}


def _response(text: str, *, stream: bool) -> Any:
    return {"model": "plain", "input": text, "stream": stream}


def _task(text: str, *, stream: bool) -> Any:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    method = "SendStreamingMessage" if stream else "SendMessage"
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}


def _page(text: str, *, stream: bool) -> Any:
    message = {"id": "m", "role": "user", "content": text}
    rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": "t", "runId": "r", "messages": [message], **rest}


_VERSION = "2026-07-28"
"""The version of MCP without sessions."""


def _tool_call(text: str, *, stream: bool) -> Any:
    prefix = "io.modelcontextprotocol/"
    meta: dict[str, Any] = {f"{prefix}protocolVersion": _VERSION, f"{prefix}clientCapabilities": {}}
    params = {"name": "plain", "arguments": {"input": text}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


_OF_MCP = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": _VERSION,
    "mcp-method": "tools/call",
    "mcp-name": "plain",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A protocol of a server, as a row of the table."""

    server: str
    """Which of the servers of `load_servers` is asked, or ``"litellm"``."""
    path: str
    body: Callable[..., Any]
    """Returns the body of a request for a text, streamed or not."""
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    requests: int = 6
    """How many each client sends."""
    kinds: Sequence[bool] = (False, True)
    """Whether it is asked for whole answers, which is False, and for streamed ones."""


ROWS: Mapping[str, Row] = {
    "bare starlette": Row(server="bare", path="/v1/chat/completions", body=_chat),
    "chat completions": Row(server="routelock", path="/v1/chat/completions", body=_chat),
    "responses": Row(server="routelock", path="/v1/responses", body=_response),
    "A2A": Row(server="routelock", path="/a2a/plain", body=_task, headers={"a2a-version": "1.0"}, requests=2),
    "AG-UI": Row(server="routelock", path="/ag-ui/plain", body=_page, kinds=(True,)),
    "MCP": Row(server="routelock", path="/mcp", body=_tool_call, headers=_OF_MCP, requests=2, kinds=(False,)),
    "LiteLLM's proxy": Row(server="litellm", path="/v1/chat/completions", body=_chat, requests=1),
}
"""The floor comes first. A protocol more is a row more."""


@dataclass(slots=True)
class Load:
    """What was seen of one protocol, streamed or not; one figure for each round."""

    cpu: list[float] = field(default_factory=lambda: [])
    """Seconds of CPU for each request."""
    rate: list[float] = field(default_factory=lambda: [])
    """Requests a second."""
    slow: list[float] = field(default_factory=lambda: [])
    """Seconds within which 99 of 100 requests are answered."""

    def add(self, cpu: float, seconds: float, latencies: Sequence[float]) -> None:
        """Note one round."""
        self.cpu.append(cpu / len(latencies))
        self.rate.append(len(latencies) / seconds)
        self.slow.append(quantiles(latencies, n=100)[98])


Seen = Mapping[tuple[str, bool], Load]
"""By the name of a row, and whether it was streamed."""


def measured_load(url: str, *, clients: int, rounds: int, litellm: str = "") -> Seen:
    """Put each protocol under load and return what was seen.

    Args:
        url: the address of the model server.
        clients: how many ask at once.
        rounds: how often each protocol is measured, one after another.
        litellm: a Python that has LiteLLM's proxy; empty to leave it out.
    """
    rows = {name: row for name, row in ROWS.items() if litellm or row.server != "litellm"}
    seen = {(name, stream): Load() for name, row in rows.items() for stream in row.kinds}
    with ExitStack() as stack:
        names = dict.fromkeys(row.server for row in rows.values())
        servers = {name: stack.enter_context(_serving(name, url, litellm)) for name in names}
        asking = stack.enter_context(_process(str(_HERE / "load_clients.py")))
        for number in range(rounds + 1):  # the first one warms up
            for (name, stream), load in seen.items():
                row = rows[name]
                process, port = servers[row.server]
                task = _asked(row, port, clients, stream=stream, requests=row.requests if number else 1)
                before = _cpu(process.pid)
                said = _told(asking, task)
                if number:
                    load.add(_cpu(process.pid) - before, said["seconds"], said["latencies"])
    return seen


def _asked(row: Row, port: int, clients: int, *, stream: bool, requests: int) -> Mapping[str, Any]:
    text = marker(chunks=_CHUNKS, wait=_WAIT, pace=_PACE) if stream else marker(wait=_WAIT)
    headers = {"content-type": "application/json", **row.headers}
    lines = [f"POST {row.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return {
        "port": port,
        "head": "\r\n".join(lines),
        "body": json.dumps(row.body(text, stream=stream)),
        "expected": "tok9" if stream else ANSWER,
        "clients": clients,
        "requests": requests,
    }


def _told(process: subprocess.Popen[str], task: Mapping[str, Any]) -> Mapping[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    said: Mapping[str, Any] = json.loads(process.stdout.readline() or '{"error": "the clients are gone"}')
    if "error" in said:
        raise SystemExit(f"{task['head'].splitlines()[0]}: {said['error']}")
    return said


@contextmanager
def _process(*command: str, python: str = sys.executable, **more: str) -> Iterator[subprocess.Popen[str]]:
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    with subprocess.Popen(
        [python, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, **more},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def _serving(name: str, url: str, litellm: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a server, and yield its process and its port."""
    if name == "litellm":
        with _litellm(url, litellm) as served:
            yield served
        return
    with _process(str(_HERE / "load_servers.py"), name, url) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


@contextmanager
def _litellm(url: str, python: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run LiteLLM's proxy with one model, without a database, keys or logs."""
    import socket

    model = {"model": f"openai/{MODEL}", "api_base": url, "api_key": KEY}
    config = {"model_list": [{"model_name": "plain", "litellm_params": model}]}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "config.yaml"
        settings.write_text(json.dumps(config), "utf-8")  # JSON is YAML
        run = "import sys; from litellm import run_server; sys.argv[0] = 'litellm'; run_server()"
        options = ["--config", str(settings), "--port", str(port), "--host", "127.0.0.1"]
        with _process("-c", run, *options, python=python, **_LITELLM) as process:
            _wait_for(f"http://127.0.0.1:{port}/health/liveliness", process)
            yield process, port


def _wait_for(url: str, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise SystemExit(f"LiteLLM's proxy did not start within {_PATIENCE:g} seconds.")


def _cpu(process: int) -> float:
    """Return the seconds of CPU of a process and its children, as Linux counts them."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()
    except OSError as error:
        raise SystemExit(
            f"The CPU time of a server is read from /proc, which only Linux has: {error}"
        ) from error
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(_cpu(int(child)) for child in children)


def shown_load(seen: Seen) -> str:
    """Return the table as Markdown, with how many times the first row each figure is in brackets."""
    names = list(dict.fromkeys(name for name, _ in seen))
    kinds = ("CPU per request", "requests/s", "p99")
    titles = [*kinds, *(f"streamed: {kind}" for kind in kinds)]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for name in names:
        cells = [cell for stream in (False, True) for cell in _cells(seen, name, names[0], stream)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(seen: Seen, name: str, floor: str, stream: bool) -> Sequence[str]:
    if (name, stream) not in seen:
        return ("", "", "")
    mine, least = seen[name, stream], seen[floor, stream]

    def beside(ours: Sequence[float], theirs: Sequence[float]) -> str:
        # the clock of the CPU counts hundredths of a second: a short round of the floor may take none
        ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b]
        return "" if mine is least or not ratios else f" ({median(ratios):.3g})"

    return (
        f"{median(mine.cpu) * 1000:.2f} ms{beside(mine.cpu, least.cpu)}",
        f"{median(mine.rate):.0f}",
        f"{median(mine.slow) * 1000:.0f} ms{beside(mine.slow, least.slow)}",
    )


def about_load(clients: int, rounds: int) -> str:
    """Return what the table is about, in one line."""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores; {rounds} rounds, {clients} clients at once; "
        f"streamed: {_CHUNKS} chunks, {_PACE} ms apart; the model takes {_WAIT} ms"
    )
