"""Loops written by hand, without a framework: nothing is checked, and no error is handled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from speed.scene import ANSWER, KEY, LOOKUP, MODEL, SPECIALIST, TRANSFER, TRIAGE, lookup
from speed.script import Script

__all__ = ["Aiohttp", "InProcess", "LiteLLMFloor", "OpenAIFloor"]

_AGENTS: dict[str, tuple[str, list[Any] | None]] = {
    "plain": (SPECIALIST, None),
    "specialist": (SPECIALIST, [LOOKUP]),
    "triage": (TRIAGE, [TRANSFER]),
}


class _ByHand:
    """The loop. A floor adds how a model is asked."""

    async def ask(
        self, messages: list[Any], tools: list[Any] | None
    ) -> tuple[str | None, list[tuple[str, str, str]]]:
        raise NotImplementedError

    def deltas(self, messages: list[Any]) -> AsyncIterator[str]:
        raise NotImplementedError

    async def s1(self, text: str) -> Any:
        return await self._run("plain", text)

    async def s2(self, text: str) -> Any:
        return await self._run("specialist", text)

    async def s3(self, text: str) -> Any:
        return await self._run("triage", text)

    async def stream(self, text: str) -> Any:
        pieces = [piece async for piece in self.deltas(_opening("plain", text))]
        return len(pieces) if "".join(pieces) else 0

    async def aclose(self) -> None: ...

    async def _run(self, agent: str, text: str) -> str | None:
        tools, messages = _AGENTS[agent][1], _opening(agent, text)
        while True:
            content, calls = await self.ask(messages, tools)
            if not calls:
                return content
            written = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in calls
            ]
            messages.append({"role": "assistant", "content": content, "tool_calls": written})
            for call_id, name, arguments in calls:
                if name == "lookup":
                    output = await lookup(**json.loads(arguments))
                else:
                    output, tools = '{"assistant": "specialist"}', _AGENTS["specialist"][1]
                    messages[0] = {"role": "system", "content": SPECIALIST}
                messages.append({"role": "tool", "tool_call_id": call_id, "content": output})


def _opening(agent: str, text: str) -> list[Any]:
    return [{"role": "system", "content": _AGENTS[agent][0]}, {"role": "user", "content": text}]


class InProcess(_ByHand):
    """A model that is a function."""

    def __init__(self, url: str) -> None:
        self._script = Script()

    async def ask(
        self, messages: list[Any], tools: list[Any] | None
    ) -> tuple[str | None, list[tuple[str, str, str]]]:
        call = self._script.next_call(messages, tools)
        return (None, [call]) if call else (ANSWER, [])

    async def deltas(self, messages: list[Any]) -> AsyncIterator[str]:
        for _ in range(self._script.chunks(messages[1]["content"])):
            yield "tok0 "


class Aiohttp(_ByHand):
    """aiohttp and json."""

    def __init__(self, url: str) -> None:
        import aiohttp

        self._url = f"{url}/chat/completions"
        self._headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=600)
        )

    async def ask(
        self, messages: list[Any], tools: list[Any] | None
    ) -> tuple[str | None, list[tuple[str, str, str]]]:
        body: dict[str, Any] = {"model": MODEL, "messages": messages}
        if tools:
            body["tools"] = tools
        sent = json.dumps(body).encode()
        async with self._session.post(self._url, data=sent, headers=self._headers) as response:
            said = await response.read()
            if response.status != 200:
                raise RuntimeError(said)
        message = json.loads(said)["choices"][0]["message"]
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        return message["content"], calls

    async def deltas(self, messages: list[Any]) -> AsyncIterator[str]:
        body = {
            "model": MODEL,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sent = json.dumps(body).encode()
        async with self._session.post(self._url, data=sent, headers=self._headers) as response:
            rest = b""
            async for data in response.content.iter_any():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if not line.startswith(b"data: {"):
                        continue
                    choices = json.loads(line[6:])["choices"]
                    if choices and (text := choices[0]["delta"].get("content")):
                        yield text

    async def aclose(self) -> None:
        await self._session.close()


class OpenAIFloor(_ByHand):
    """The openai library, below the layer that walks over each message."""

    def __init__(self, url: str) -> None:
        import openai

        self._openai = openai
        self._client = openai.AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)

    async def ask(
        self, messages: list[Any], tools: list[Any] | None
    ) -> tuple[str | None, list[tuple[str, str, str]]]:
        body: dict[str, Any] = {"model": MODEL, "messages": messages, **({"tools": tools} if tools else {})}
        said: Any = await self._client.post("/chat/completions", cast_to=object, body=body)
        message = said["choices"][0]["message"]
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        return message["content"], calls

    async def deltas(self, messages: list[Any]) -> AsyncIterator[str]:
        body = {
            "model": MODEL,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        kind: Any = self._openai.AsyncStream[object]
        chunks: Any = await self._client.post(
            "/chat/completions", cast_to=object, body=body, stream=True, stream_cls=kind
        )
        async for chunk in chunks:
            if chunk["choices"] and (text := chunk["choices"][0]["delta"].get("content")):
                yield text

    async def aclose(self) -> None:
        await self._client.close()


class LiteLLMFloor(_ByHand):
    """``litellm.acompletion``, as its documentation says."""

    def __init__(self, url: str) -> None:
        import litellm

        litellm.suppress_debug_info = True
        self._litellm: Any = litellm
        self._where = {"model": f"openai/{MODEL}", "api_base": url, "api_key": KEY}

    async def ask(
        self, messages: list[Any], tools: list[Any] | None
    ) -> tuple[str | None, list[tuple[str, str, str]]]:
        offered = {"tools": tools} if tools else {}
        reply = await self._litellm.acompletion(messages=messages, **self._where, **offered)
        message = reply.choices[0].message
        calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
        return message.content, calls

    async def deltas(self, messages: list[Any]) -> AsyncIterator[str]:
        chunks = await self._litellm.acompletion(
            messages=messages, **self._where, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in chunks:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                yield text

    async def aclose(self) -> None:
        await self._litellm.close_litellm_async_clients()
