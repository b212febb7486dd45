"""The scenes of A2A's client for Python that speaks version 0.3, see tests/clients/test_a2a_old_client.py.

usage: a2a_old_client.py URL KEY

It prints one line of JSON for each scene.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import httpx

# by name, because type checkers know the version of the SDK that routelock uses
sdk: Any = import_module("a2a.client")
types: Any = import_module("a2a.types")
PATIENCE = 60.0


class Scenes:
    """One client's look at a server."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self._url, self._http = url, http

    async def of(self, agent: str, *, streaming: bool = False) -> Any:
        """Return a client of an agent, made from its card."""
        card = await sdk.A2ACardResolver(self._http, f"{self._url}/a2a/{agent}").get_agent_card()
        return sdk.ClientFactory(sdk.ClientConfig(httpx_client=self._http, streaming=streaming)).create(card)

    async def card(self) -> Any:
        """Look at the card of the first agent."""
        card = await sdk.A2ACardResolver(self._http, self._url).get_agent_card()
        schemes = sorted(scheme.root.type for scheme in (card.security_schemes or {}).values())
        return {"name": card.name, "version": card.protocol_version, "schemes": schemes}

    async def answers(self, agent: str, words: str) -> Any:
        """Ask plain and streamed, and fetch the task again."""
        whole = await ask(await self.of(agent), words)
        streamed = await ask(await self.of(agent, streaming=True), words)
        kept = await (await self.of(agent)).get_task(types.TaskQueryParams(id=streamed.id))
        return [told(task) for task in (whole, streamed, kept)]

    async def structured(self) -> Any:
        """Ask an agent that answers with data."""
        task = await ask(await self.of("clerk"), "Hi")
        return [part.root.data for each in task.artifacts or () for part in each.parts]

    async def approval(self) -> Any:
        """Be asked for approval, and approve."""
        client = await self.of("payer")
        asked = await ask(client, "Pay.")
        done = await ask(client, "yes", task_id=asked.id, context_id=asked.context_id)
        return [asked.status.state.value, done.status.state.value]

    async def form(self) -> Any:
        """Be asked for fields, and answer with data that does not fit, and then with data that does."""
        client = await self.of("librarian")
        asked = await ask(client, "Lend it.")
        same = {"task_id": asked.id, "context_id": asked.context_id}
        [form] = [part.root.data for part in asked.status.message.parts if part.root.kind == "data"]
        wrong = await ask(client, types.DataPart(data={"branch": "west"}), **same)
        done = await ask(client, types.DataPart(data={"branch": "north", "days": 3}), **same)
        states = [task.status.state.value for task in (asked, wrong)]
        return {"states": states, "schema": form["approvals"][0]["schema"], "done": told(done)}

    async def cancelled(self) -> Any:
        """Cancel a task that is streamed."""
        client = await self.of("endless", streaming=True)
        async for event in client.send_message(message("cancelled")):
            task: Any = event[0] if isinstance(event, tuple) else event
            if task.artifacts:
                ended = await client.cancel_task(types.TaskIdParams(id=task.id))
                return ended.status.state.value
        return "ended before"

    async def unknown(self) -> Any:
        """Ask for a task that is not there."""
        client = await self.of("greeter")
        try:
            await client.get_task(types.TaskQueryParams(id="none"))
        except Exception as error:
            return str(error)
        return "no error"


def message(words: Any, **more: Any) -> Any:
    """Return a message of the user, of a text or a part."""
    root = types.TextPart(text=words) if isinstance(words, str) else words
    return types.Message(
        message_id=str(uuid.uuid4()),
        role=types.Role.user,
        parts=[types.Part(root=root)],
        **more,
    )


async def ask(client: Any, words: Any, **more: Any) -> Any:
    """Send a message, and return its task as it is at the end."""
    last: Any = None
    async for event in client.send_message(message(words, **more)):
        last = event[0] if isinstance(event, tuple) else event
    return last


def told(task: Any) -> Any:
    """Return the state and the text of a task."""
    text = [part.root.text for each in task.artifacts or () for part in each.parts]
    return [task.status.state.value, "".join(text)]


async def main(url: str, key: str) -> None:
    """Play all scenes."""
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        scenes = Scenes(url, http)
        played: dict[str, Callable[[], Awaitable[Any]]] = {
            "card": scenes.card,
            "greeting": lambda: scenes.answers("greeter", "Hi"),
            "transfer": lambda: scenes.answers("desk", "Where is my order?"),
            "unicode": lambda: scenes.answers("polyglot", "Hi"),
            "structured": scenes.structured,
            "approval": scenes.approval,
            "form": scenes.form,
            "cancelled": scenes.cancelled,
            "unknown": scenes.unknown,
        }
        for name, play in played.items():
            try:
                facts: Any = {"facts": await play()}
            except Exception as error:
                facts = {"failed": f"{type(error).__name__}: {error}"}
            sys.stdout.write(f"{json.dumps([name, facts])}\n")


asyncio.run(main(sys.argv[1], sys.argv[2]))
