"""A local server that speaks OpenAI's chat completions over HTTP and plays scripted replies, one by one.

It is no model. What it says is written down beforehand; how it says it is real: HTTP, server-sent
events, text and arguments in small pieces, parallel calls, and usage in the last chunk. It refuses a
request that does not offer the tools its next reply calls, so a script cannot drift from the agents.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

MODEL = "scripted-desk"
CREATED = 1_700_000_000  # a fixed time, so that recording anew changes nothing that has not changed
FOR_A_MILLION = (0.15, 0.60)
"""US dollars for a million tokens of input and of output: the prices of openai/gpt-4o-mini."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: text, and the calls that go with it, each as a name and its arguments."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()


class ScriptedServer:
    """Serves its replies in order, to every client. Use it in a ``with`` block."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        self._left = list(replies)
        self._made = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"http://{self.address}/v1"

    @property
    def left(self) -> int:
        """How many replies were not requested yet."""
        return len(self._left)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Mapping[str, Any]) -> tuple[int, str, list[bytes]]:
        """Return status, content type and the pieces of the body for one request."""
        refusal = self._refusal(request)
        if refusal is not None:
            error = {"error": {"message": refusal, "type": "invalid_request_error"}}
            return 400, "application/json", [json.dumps(error).encode()]
        reply = self._left.pop(0)
        self._made += 1
        message = self._message(reply)
        usage = _usage(request, message)
        if request.get("stream"):
            wants_usage = (request.get("stream_options") or {}).get("include_usage")
            chunks = [*self._chunks(message), *([self._chunk([], usage=usage)] if wants_usage else [])]
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
            return 200, "text/event-stream", [line.encode() for line in (*lines, "data: [DONE]\n\n")]
        choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
        whole = {**self._chunk([choice], usage=usage), "object": "chat.completion"}
        return 200, "application/json", [json.dumps(whole).encode()]

    def _refusal(self, request: Mapping[str, Any]) -> str | None:
        if not self._left:
            return "The script has no reply left."
        offered = {tool["function"]["name"] for tool in request.get("tools") or ()}
        missing = [name for name, _ in self._left[0].calls if name not in offered]
        return (
            f"Reply {self._made + 1} calls {missing}, but only {sorted(offered)} are offered."
            if missing
            else None
        )

    def _message(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{self._made}_{index}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for index, (name, arguments) in enumerate(reply.calls)
            ]
        return message

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        head = {"id": f"chatcmpl-{self._made}", "object": "chat.completion.chunk", "created": CREATED}
        return {**head, "model": MODEL, "choices": choices, **more}

    def _chunks(self, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if message["content"] else None}]
        deltas += [
            {"content": piece} for piece in re.findall(r".{1,24}", message["content"] or "", re.DOTALL)
        ]
        for index, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            first = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
            deltas.append({"tool_calls": [first]})
            for piece in re.findall(r".{1,16}", function["arguments"], re.DOTALL):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        for delta in deltas:
            yield self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        yield self._chunk([{"index": 0, "delta": {}, "finish_reason": _finish(message)}])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, content_type, pieces = server.answer(json.loads(body))
                self.send_response(status)
                self.send_header("content-type", content_type)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for piece in (*pieces, b""):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

            def log_message(self, format: str, *args: Any) -> None:
                """Stay silent."""

        return Handler


def _finish(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _usage(request: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, float]:
    """Count four characters as a token: about right for English, and the same on every machine.

    The cost is in US dollars, at the prices of `FOR_A_MILLION`, as OpenRouter reports it.
    """
    asked = len(json.dumps([request["messages"], request.get("tools") or []])) // 4
    said = len(json.dumps(message)) // 4
    for_input, for_output = FOR_A_MILLION
    cost = round((asked * for_input + said * for_output) / 1_000_000, 9)
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "cost": cost,
    }
