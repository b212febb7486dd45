"""OpenAI's Codex without a screen: a client of the Responses API and of MCP that is written in Rust."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.cast import Plays, answered, asked
from clients.served import KEY, PATIENCE, client_folder

from routelock import Agent
from routelock.handlers.port import Request
from routelock.history.messages import text_of
from routelock.testing import call, reply
from routelock.testing.scripted import Reply

_CONFIG = """
model_provider = "agents"
web_search = "disabled"

[model_providers.agents]
name = "agents"
base_url = "{url}"
wire_api = "responses"
env_key = "AGENTS_KEY"
stream_max_retries = 0
request_max_retries = 0

[mcp_servers.agents]
url = "{mcp}"
bearer_token_env_var = "AGENTS_KEY"
"""


def caller(name: str = "caller") -> Agent[Any]:
    """Return an agent that makes the call that the user writes as JSON, and then says its result."""

    def part(request: Request) -> Reply:
        if answered(request):
            return f"Then: {text_of(request.messages[-1])}"
        said = json.loads(asked(request))
        return reply("I call it.", calls=[call(said["tool"], said["arguments"])])

    return Agent(name, "Call.", model=Plays(name, part))


@dataclass(frozen=True)
class Turn:
    """What Codex printed of a turn."""

    code: int
    events: Sequence[dict[str, Any]]

    def items(self, kind: str) -> list[dict[str, Any]]:
        """The finished items of a type."""
        done = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]

    @property
    def texts(self) -> list[str]:
        """What the agents said."""
        return [item["text"] for item in self.items("agent_message")]

    @property
    def failure(self) -> str:
        """Why the turn failed; empty if it did not."""
        return "".join(event["error"]["message"] for event in self.events if event["type"] == "turn.failed")


class Codex:
    """Codex with its own home, and agents at a URL as its models and as its tools of MCP.

    Args:
        url: the base URL of the agents.
        home: an empty folder.
    """

    def __init__(self, url: str, home: Path) -> None:
        folder = client_folder("codex")
        self._command = [
            str(folder / "node"),
            str(folder / "node_modules/@openai/codex/bin/codex.js"),
            "exec",
        ]
        self._home, self.work = home, home / "work"
        self.work.mkdir()
        (home / "config.toml").write_text(_CONFIG.format(url=url, mcp=f"{url.removesuffix('/v1')}/mcp"))

    def ask(self, agent: str, text: str, *options: str, key: str = KEY) -> Turn:
        """Run a turn in which Codex may do everything."""
        free = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        done = subprocess.run(
            [*self._command, *options, *free, "-m", agent, text],
            cwd=self.work,
            env={
                "HOME": str(self._home),
                "CODEX_HOME": str(self._home),
                "AGENTS_KEY": key,
                "PATH": os.environ["PATH"],
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
        )
        return Turn(done.returncode, [json.loads(line) for line in done.stdout.split("\n") if line])

    def have_called(self, tool: str, *options: str, agent: str = "caller", **arguments: Any) -> Turn:
        """Run a turn in which the agent calls a tool of Codex."""
        return self.ask(agent, json.dumps({"tool": tool, "arguments": arguments}), *options)
