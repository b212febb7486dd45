"""The scenes of the A2A client for Python: what it sees of the served agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_data_parts, get_text_parts
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value

Facts = dict[str, Any]
PATIENCE = 60.0


class Seen:
    """What a stream has shown so far, put together as the protocol says."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.states: list[str] = []
        self.speakers: list[str] = []
        self.pieces: list[str] = []
        self.parts: list[Part] = []
        self.why = ""
        self.task = ""

    def take(self, event: StreamResponse) -> None:
        kind = event.WhichOneof("payload") or ""
        if self.kinds[-1:] != [kind]:
            self.kinds.append(kind)
        if kind == "task":
            self.task = event.task.id
            self.states.append(state_of(event.task))
        elif kind == "status_update":
            self.states.append(TaskState.Name(event.status_update.status.state))
            self.why = " ".join(get_text_parts(event.status_update.status.message.parts))
            self.speakers.append(MessageToDict(event.status_update.metadata).get("agent", ""))
        elif kind == "artifact_update":
            parts = list(event.artifact_update.artifact.parts)
            self.pieces += get_text_parts(parts)
            self.parts = [*self.parts, *parts] if event.artifact_update.append else parts

    @property
    def text(self) -> str:
        return "".join(get_text_parts(self.parts))


def state_of(task: Task) -> str:
    return TaskState.Name(task.status.state)


def text_of(task: Task) -> list[str]:
    return [text for artifact in task.artifacts for text in get_text_parts(artifact.parts)]


def said(text: str | None, *, data: Any = None, **more: Any) -> SendMessageRequest:
    part = Part(text=text) if text is not None else Part(data=value_of(data))
    options = SendMessageConfiguration(return_immediately=more.pop("at_once", False))
    message = Message(message_id="m", role=Role.ROLE_USER, parts=[part], **more)
    return SendMessageRequest(message=message, configuration=options)


def value_of(data: Any) -> Value:
    value = Value()
    value.struct_value.update(data)
    return value


class Scenes:
    """One client's look at a server.

    Args:
        url: of the app.
        key: the token to ask with.
    """

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    @asynccontextmanager
    async def client(self, agent: str, *, streaming: bool = True, key: str = "") -> AsyncIterator[Client]:
        headers = {"authorization": f"Bearer {key or self._key}"}
        # there is no TLS here, and reading the certificates takes longer than all else
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE, verify=False) as http:
            config = ClientConfig(streaming=streaming, httpx_client=http)
            yield await create_client(f"{self._url}/a2a/{agent}", client_config=config)

    async def send(self, agent: str, request: SendMessageRequest) -> Task:
        async with self.client(agent, streaming=False) as client:
            async for event in client.send_message(request):
                assert event.WhichOneof("payload") == "task"
                return event.task
        raise AssertionError("no answer")

    async def both_ways(self, agent: str) -> Facts:
        task = await self.send(agent, said("Hello?"))
        seen = Seen()
        async with self.client(agent) as client:
            async for event in client.send_message(said("Hello?")):
                seen.take(event)
            kept = await client.get_task(GetTaskRequest(id=seen.task))
        return {
            "whole": {"state": state_of(task), "text": text_of(task)},
            "streamed": {"kinds": seen.kinds, "states": [seen.states[0], seen.states[-1]], "text": seen.text},
            "speakers": [name for name in dict.fromkeys(seen.speakers) if name],
            "why": [" ".join(get_text_parts(task.status.message.parts)), seen.why],
            "kept": {"state": state_of(kept), "text": text_of(kept)},
        }

    async def greeting(self) -> Facts:
        return await self.both_ways("greeter")

    async def transfer(self) -> Facts:
        return await self.both_ways("desk")

    async def unicode(self) -> Facts:
        return await self.both_ways("polyglot")

    async def broken(self) -> Facts:
        return await self.both_ways("broken")

    async def structured(self) -> Facts:
        task = await self.send("clerk", said("Which order?"))
        return {"data": get_data_parts(task.artifacts[0].parts), "text": text_of(task)}

    async def conversation(self) -> Facts:
        first = await self.send("parrot", said("one"))
        second = await self.send("parrot", said("two", context_id=first.context_id))
        other = await self.send("parrot", said("two"))
        return {
            "texts": [text_of(task) for task in (first, second, other)],
            "tasks differ": first.id != second.id,
            "contexts": [first.context_id == second.context_id, first.context_id == other.context_id],
        }

    async def together(self) -> Facts:
        """Two messages at once in one context: each is answered, and one of them knows of the other."""
        begun = await self.send("parrot", said("zero"))
        tasks = await asyncio.gather(
            *(self.send("parrot", said(word, context_id=begun.context_id)) for word in ("left", "right"))
        )
        async with self.client("parrot") as client:
            listed = await client.list_tasks(ListTasksRequest(context_id=begun.context_id))
        return {"texts": sorted((text_of(task)[0] for task in tasks), key=len), "listed": len(listed.tasks)}

    async def unknown(self) -> Facts:
        async with self.client("greeter") as client:
            return {
                "get": await raised(client.get_task(GetTaskRequest(id="nobody"))),
                "cancel": await raised(client.cancel_task(CancelTaskRequest(id="nobody"))),
                "continue": await raised(self.send("greeter", said("Hi", task_id="nobody"))),
            }

    async def cancelled(self) -> Facts:
        """Cancel a task while its stream is read."""
        seen, answer = Seen(), None
        async with self.client("endless") as client:
            async for event in client.send_message(said("cancelled")):
                seen.take(event)
                if seen.text and answer is None:
                    answer = await client.cancel_task(CancelTaskRequest(id=seen.task))
            kept = await client.get_task(GetTaskRequest(id=seen.task))
            again = await raised(client.cancel_task(CancelTaskRequest(id=seen.task)))
        assert answer is not None
        states = [state_of(answer), seen.states[-1], state_of(kept)]
        return {"states": states, "text": seen.text, "again": again}

    async def leaving(self) -> Facts:
        """Leave in the middle of a stream, and come back to the task, which went on."""
        seen, later = Seen(), Seen()
        async with self.client("endless") as client:
            stream: Any = client.send_message(said("leaving"))
            async for event in stream:
                seen.take(event)
                if seen.text:
                    break
            await stream.aclose()
        async with self.client("endless") as client:
            kept = await client.get_task(GetTaskRequest(id=seen.task))
            async for event in client.subscribe(SubscribeToTaskRequest(id=seen.task)):
                later.take(event)
                if len(later.kinds) == 1:
                    await client.cancel_task(CancelTaskRequest(id=seen.task))
        states = [state_of(kept), later.states[0], later.states[-1]]
        return {"text": [seen.text, *text_of(kept)], "states": states}

    async def at_once(self) -> Facts:
        """Do not wait for the end."""
        task = await self.send("endless", said("at once", at_once=True))
        async with self.client("endless") as client:
            done = await client.cancel_task(CancelTaskRequest(id=task.id))
        return {"states": [state_of(task), state_of(done)]}

    async def approval(self) -> Facts:
        first = await self.send("payer", said("Pay."))
        task = {"task_id": first.id, "context_id": first.context_id}
        unclear = await self.send("payer", said("Maybe.", **task))
        second = await self.send("payer", said(None, data={"approve": True}, **task))
        other = await self.send("payer", said("Pay."))
        task = {"task_id": other.id, "context_id": other.context_id}
        declined = await self.send("payer", said("No.", **task))
        tasks = (first, unclear, second, declined)
        asked = get_data_parts(first.status.message.parts)
        return {"states": [state_of(each) for each in tasks], "asked": asked, "said": [*map(text_of, tasks)]}

    async def form(self) -> Facts:
        first = await self.send("librarian", said("Lend it."))
        task = {"task_id": first.id, "context_id": first.context_id}
        wrong = await self.send("librarian", said(None, data={"branch": "west"}, **task))
        done = await self.send("librarian", said(None, data={"branch": "north", "days": 3}, **task))
        [asked] = get_data_parts(first.status.message.parts)
        states = [state_of(each) for each in (first, wrong, done)]
        problem = get_text_parts(wrong.status.message.parts)[0]
        return {"states": states, "asked": asked, "problem": problem, "said": text_of(done)}

    async def key(self) -> Facts:
        async with self.client("greeter", key="wrong") as client:
            return {"refused": await raised(anext(aiter(client.send_message(said("Hi")))))}


async def raised(call: Awaitable[Any]) -> str:
    try:
        await call
    except Exception as error:
        return type(error).__name__
    return "nothing"


async def played(url: str, key: str) -> dict[str, Facts]:
    """Play all scenes."""
    scenes = Scenes(url, key)
    parts: list[Callable[[], Awaitable[Facts]]] = [
        scenes.greeting, scenes.transfer, scenes.unicode, scenes.broken, scenes.structured,
        scenes.conversation, scenes.together, scenes.unknown, scenes.cancelled, scenes.leaving,
        scenes.at_once, scenes.approval, scenes.form, scenes.key,
    ]  # fmt: skip
    facts: dict[str, Facts] = {}
    for scene in parts:
        name = scene.__name__  # type: ignore[attr-defined]
        try:
            facts[name] = await asyncio.wait_for(scene(), PATIENCE)  # type: ignore[arg-type]
        except Exception as error:  # the test shows it; the other scenes are still played
            facts[name] = {"failed": f"{type(error).__name__}: {error}"}
    return facts
