"""The clients that others wrote, unmodified: tests/clients plays scenes with each over real sockets.

A case is one fact about one scene, so a client that sees a scene differently fails.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from clients.served import clients
from conformance.junit import run_pytest
from conformance.suite import NotRun, Result, Settings, Suite
from paths import REPO

_TESTS = ("-n0", "--no-cov")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client and the tests that are played with it.

    Args:
        name: the client, as the table has it.
        version: returns its version.
        files: the files of tests, in tests/clients.
        parameter: how the parameter of the tests that names the client begins; empty if they are all its own.
    """

    name: str
    version: Callable[[], str]
    files: Sequence[str]
    parameter: str = ""


def _python(folder: str, package: str) -> str:
    """Return the version of a package that scripts/clients has put into a folder of its own."""
    found = next((clients() / folder).glob(f"{package}-*.dist-info"), None)
    if found is None:
        raise NotRun(f"{folder} is not in {clients().name}/; scripts/clients installs it")
    return found.name.removeprefix(f"{package}-").removesuffix(".dist-info")


def _node(package: str, folder: str = "js") -> str:
    """Return the version of an npm package that scripts/clients has installed."""
    about = clients() / folder / "node_modules" / package / "package.json"
    if not about.exists():
        raise NotRun(f"{package} is not in {clients().name}/{folder}; scripts/clients installs it")
    return json.loads(about.read_text())["version"]


_OPENAI = ("test_openai_clients.py", "test_openai_responses.py")

CLIENTS = {
    "openai2": Client(
        name="openai for Python, major 2",
        version=partial(_python, "openai2", "openai"),
        files=_OPENAI,
        parameter="openai 2",
    ),
    "openai3": Client(
        name="openai for Python, major 3",
        version=partial(_python, "openai3", "openai"),
        files=_OPENAI,
        parameter="openai 3",
    ),
    "openai-js": Client(
        name="openai for JavaScript", version=partial(_node, "openai"), files=_OPENAI, parameter="openai js"
    ),
    "open-responses": Client(
        name="Open Responses, scenarios and types",
        version=partial(_python, "openresponses", "openresponses_types"),
        files=["test_open_responses.py"],
    ),
    "ai-sdk": Client(name="AI SDK", version=partial(_node, "ai"), files=["test_ai_sdk.py"]),
    "codex": Client(name="Codex", version=partial(_node, "@openai/codex", "codex"), files=["test_codex.py"]),
    "litellm": Client(
        name="LiteLLM as a client", version=partial(version, "litellm"), files=["test_litellm_caller.py"]
    ),
    "a2a-python": Client(
        name="a2a-sdk for Python",
        version=partial(version, "a2a-sdk"),
        files=["test_a2a_clients.py"],
        parameter="python",
    ),
    "a2a-python-0.3": Client(
        name="a2a-sdk for Python, 0.3",
        version=partial(_python, "a2a03", "a2a_sdk"),
        files=["test_a2a_old_client.py"],
    ),
    "a2a-js": Client(
        name="@a2a-js/sdk",
        version=partial(_node, "@a2a-js/sdk"),
        files=["test_a2a_clients.py"],
        parameter="js",
    ),
    "mcp-python": Client(
        name="mcp for Python",
        version=partial(version, "mcp"),
        files=["test_mcp_clients.py"],
        parameter="python",
    ),
    "mcp-js1": Client(
        name="@modelcontextprotocol/sdk",
        version=partial(_node, "@modelcontextprotocol/sdk"),
        files=["test_mcp_clients.py"],
        parameter="js 1",
    ),
    "mcp-js2": Client(
        name="@modelcontextprotocol/client",
        version=partial(_node, "@modelcontextprotocol/client"),
        files=["test_mcp_clients.py"],
        parameter="js 2",
    ),
    "ag-ui": Client(
        name="@ag-ui/client",
        version=partial(_node, "@ag-ui/client"),
        files=["test_ag_ui_clients.py"],
        parameter="1",
    ),
    "ag-ui-0": Client(
        name="@ag-ui/client, 0.0",
        version=partial(_node, "ag-ui-client-0"),
        files=["test_ag_ui_clients.py"],
        parameter="0.0.59",
    ),
    "assistant-ui": Client(
        name="assistant-ui",
        version=partial(_node, "@assistant-ui/react-ag-ui", "page"),
        files=["test_assistant_ui.py"],
    ),
    "assistant-ui-chromium": Client(
        name="assistant-ui in Chromium",
        version=partial(_node, "@assistant-ui/react-ag-ui", "page"),
        files=["test_front_ends.py"],
        parameter="assistant-ui",
    ),
    "copilotkit": Client(
        name="CopilotKit in Chromium",
        version=partial(_node, "@copilotkit/react-core", "copilotkit"),
        files=["test_front_ends.py"],
        parameter="CopilotKit",
    ),
}


def suite_of(name: str) -> Suite:
    """Return the suite of a client."""
    return partial(_judged, name, CLIENTS[name])


def _judged(name: str, client: Client, settings: Settings) -> Result:
    version = client.version()
    cases = run_pytest([*_TESTS, *_cases_of(client)], settings.home / "clients" / f"{name}.xml", folder=REPO)
    return Result(
        name=client.name,
        version=version,
        passed=len(cases.passed),
        failed=cases.failed,
        not_applicable=cases.skipped,
    )


def _cases_of(client: Client) -> list[str]:
    """Return the ids of the tests that are played with a client."""
    files = [f"tests/clients/{file}" for file in client.files]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *_TESTS, *files]
    done = subprocess.run(command, cwd=REPO, capture_output=True, encoding="utf-8", timeout=120)
    named = (
        re.compile(rf"\[{re.escape(client.parameter)}(-|,| with |\])")
        if client.parameter
        else re.compile("::")
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("tests/") and named.search(line)]
    if not found:
        raise NotRun(f"no test is played with it: {done.stdout[-300:]}{done.stderr[-300:]}")
    return found
