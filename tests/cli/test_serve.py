"""``routelock serve``: access, settings, and shutdown."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from served_apps import served
from terminals import environment
from waiting import PATIENCE, eventually

from routelock import Agent
from routelock.cli.main import main
from routelock.serving import ServeConfig
from routelock.sessions import SQLiteSessions
from routelock.testing import ScriptedHandler

APP = """
import gc

import anyio
from routelock import Agent, RunConfig
from routelock.handlers.events import MessageDone, TextDelta
from routelock.testing import ScriptedHandler

agent = Agent("A", model=ScriptedHandler(["Hi.", "Hi."]))
team = [agent, Agent("B", model=ScriptedHandler([]))]
async def endless(request):
    if request.stream:
        yield TextDelta("Half")
    await anyio.sleep_forever()

async def short(request):
    yield TextDelta("Half")
    await anyio.sleep(1)
    yield MessageDone(message={"role": "assistant", "content": "Half and half."})

busy = Agent("Busy", model=ScriptedHandler([endless, endless]))
slow = Agent("Slow", model=ScriptedHandler([short]))

def tell(request):
    return request.messages[0]["content"]

told = Agent("T", lambda context, agent: str(context.context), model=ScriptedHandler([tell, tell]))
shop = {"name": "lamps", "asked": 0}

def make_shop():
    shop["asked"] += 1
    return shop

def collection(request):
    return [gc.get_freeze_count(), *gc.get_threshold()]

def of_request(request):
    return f"{request.model} for {request.user}"

config = RunConfig(model=ScriptedHandler(["As configured."]))

"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder to be in, with an app; its module has a name of its own for each test."""
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    for module in [each for each in sys.modules if each.startswith(name)]:
        del sys.modules[module]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "agents.example"])
def test_other_machines_are_not_served_without_a_key(
    folder: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", f"{folder}:agent", "--host", host]) == 2
    assert "--api-key-env" in capsys.readouterr().err


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_key_is_an_error(
    folder: str, value: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("SHOP_KEY", value)
    assert main(["serve", f"{folder}:agent", "--api-key-env", "SHOP_KEY"]) == 2
    assert "SHOP_KEY" in capsys.readouterr().err


def test_a_wrong_number_is_an_error(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", f"{folder}:agent", "--max-concurrent", "0"]) == 2
    assert "max_concurrent" in capsys.readouterr().err


def test_a_store_of_responses_has_to_be_one(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", f"{folder}:agent", "--response-sessions", f"{folder}:shop"]) == 2
    assert "response_sessions must be a store of sessions" in capsys.readouterr().err


_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from routelock.cli.main import main
sys.exit(main(["serve", "app:agent", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("missing", "extra", "options"),
    [
        ("starlette", "serve", []),
        ("uvicorn", "serve", []),
        ("a2a", "a2a", ["--a2a"]),
        ("mcp", "mcp", ["--mcp"]),
    ],
)
def test_a_missing_extra_is_named(missing: str, extra: str, options: list[str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = _python("-c", _WITHOUT.format(missing=missing), *options, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install" in done.stderr
    assert done.stderr.strip().endswith(f"'routelock[{extra}]'.")
    assert "Traceback" not in done.stderr


def _python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@contextmanager
def running(cwd: Path, *arguments: str, **more: str) -> Iterator[tuple[Any, str]]:
    """The command as a process of its own, and its address; what it says is in ``process.said``."""
    process: Any = subprocess.Popen(
        [sys.executable, "-m", "routelock", "serve", *arguments, "--port", "0"],
        cwd=cwd,
        env=environment(**more),
        stderr=subprocess.PIPE,
        text=True,
    )
    process.said = ""
    found = threading.Event()
    address: list[str] = []

    def read() -> None:
        for line in process.stderr:
            process.said += line
            if "running on " in line:
                address.append(line.split("running on ")[1].split()[0])
                found.set()
        found.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert found.wait(PATIENCE)
        assert address, process.said
        yield process, address[0]
    finally:
        process.kill()
        process.wait(PATIENCE)
        reader.join(PATIENCE)
        process.stderr.close()


def test_a_port_that_is_taken_is_one_sentence_and_2(tmp_path: Path) -> None:
    """uvicorn's own code for it would say that a run waits for an answer."""
    (tmp_path / "app.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        ended = _python("-m", "routelock", "serve", "app:agent", "--port", number, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"routelock: Port {number} of 127.0.0.1 cannot be used: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, {0}), (signal.SIGTERM, {0, -signal.SIGTERM})])
def test_it_serves_and_ends_cleanly(tmp_path: Path, sent: signal.Signals, code: set[int]) -> None:
    (tmp_path / "app.py").write_text(APP)
    with running(tmp_path, "app:agent") as (process, url):
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE)
        process.send_signal(sent)
        assert process.wait(PATIENCE) in code
    assert response.json()["choices"][0]["message"]["content"] == "Hi."
    assert "Traceback" not in process.said


def test_running_requests_are_answered_at_shutdown(tmp_path: Path) -> None:
    """The stream ends with an error, a waiting client gets a status, and the log no traceback."""
    (tmp_path / "app.py").write_text(APP)
    told, streams = dict[bool, str](), threading.Event()
    with running(tmp_path, "app:busy", "--grace", "1") as (process, url):

        def client(stream: bool) -> None:
            body = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream}
            where = f"{url}/v1/chat/completions"
            with httpx.stream("POST", where, json=body, timeout=PATIENCE) as response:
                told[stream] = f"{response.status_code} "
                for piece in response.iter_text():
                    told[stream] += piece
                    if "Half" in told[stream]:
                        streams.set()

        clients = [threading.Thread(target=client, args=(stream,)) for stream in (True, False)]
        for thread in clients:
            thread.start()
        assert streams.wait(PATIENCE)
        eventually(lambda: process.said.count("model 'Busy'") == 2)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        for thread in clients:
            thread.join(PATIENCE)
    assert told[True].startswith("200 data: ")
    assert told[True].rstrip().split("data: ")[-1].startswith('{"error"')
    assert told[False].startswith("503 ")
    assert "shutting_down" in told[False]
    assert "Traceback" not in process.said


@pytest.mark.parametrize(
    ("grace", "ending"),
    [("1", "The server is shutting down."), ("60", "TASK_STATE_COMPLETED")],
    ids=["too short", "long enough"],
)
def test_a_task_may_end_within_the_grace_period(tmp_path: Path, grace: str, ending: str) -> None:
    pytest.importorskip("a2a")
    (tmp_path / "app.py").write_text(APP)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
    name, told = "busy" if grace == "1" else "slow", list[str]()
    with running(tmp_path, f"app:{name}", "--a2a", "--grace", grace) as (process, url):
        card = httpx.get(f"{url}/.well-known/agent-card.json", timeout=PATIENCE).json()
        where = card["supportedInterfaces"][0]["url"]
        headers = {"a2a-version": "1.0"}
        with httpx.stream("POST", where, json=body, headers=headers, timeout=PATIENCE) as response:
            for line in response.iter_lines():
                told += [line] if line.startswith("data: ") else []
                if "Half" in line and len(told) == 3:  # the first piece, after two states
                    process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    assert ending in told[-1]
    assert "Traceback" not in process.said


def test_a_client_that_waits_for_a_task_gets_an_error_at_shutdown(tmp_path: Path) -> None:
    """It is no answer that a task of a server that ends still works."""
    pytest.importorskip("a2a")
    (tmp_path / "app.py").write_text(APP)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    told: list[httpx.Response] = []
    with running(tmp_path, "app:busy", "--a2a", "--grace", "1") as (process, url):

        def ask(method: str, **params: Any) -> httpx.Response:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            headers = {"a2a-version": "1.0"}
            return httpx.post(f"{url}/a2a/Busy", json=body, headers=headers, timeout=PATIENCE)

        client = threading.Thread(target=lambda: told.append(ask("SendMessage", message=message)))
        client.start()
        eventually(lambda: "WORKING" in ask("ListTasks").text)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        client.join(PATIENCE)
    assert (told[0].status_code, told[0].json()["error"]["code"]) == (503, -32603)
    assert told[0].json()["error"]["message"] == "The server is shutting down."
    assert "Traceback" not in process.said


@pytest.mark.parametrize(
    ("spec", "contexts"),
    [
        ("app:shop", ["{'name': 'lamps', 'asked': 0}"] * 2),
        ("app:make_shop", ["{'name': 'lamps', 'asked': 1}"] * 2),
        ("app:of_request", ["T for ada", "T for bob"]),
    ],
)
def test_the_context_is_given_to_each_request(tmp_path: Path, spec: str, contexts: list[str]) -> None:
    """An object is for all, as is what a function of nothing makes; one of the request is asked each time."""
    (tmp_path / "app.py").write_text(APP)
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    with running(tmp_path, "app:told", "--context", spec) as (_, url):
        replies = [
            httpx.post(f"{url}/v1/chat/completions", json={**body, "user": user}, timeout=PATIENCE).json()
            for user in ("ada", "bob")
        ]
    assert [reply["choices"][0]["message"]["content"] for reply in replies] == contexts


def test_garbage_collections_are_rare_and_do_not_visit_what_the_start_has_made(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with running(tmp_path, "app:told", "--context", "app:collection") as (_, url):
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE).json()
    frozen, *thresholds = json.loads(reply["choices"][0]["message"]["content"])
    assert frozen > 10_000
    assert thresholds == [50_000, 20, 100]


def test_the_config_is_that_of_every_run(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    with running(tmp_path, "app:agent", "--config", "app:config") as (_, url):
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE).json()
    assert reply["choices"][0]["message"]["content"] == "As configured."


def test_the_key_of_the_environment_is_required(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with running(tmp_path, "app:team", "--api-key-env", "SHOP_KEY", SHOP_KEY="k-1") as (_, url):
        closed = httpx.get(f"{url}/v1/models", timeout=PATIENCE)
        opened = httpx.get(f"{url}/v1/models", headers={"authorization": "Bearer k-1"}, timeout=PATIENCE)
    assert closed.status_code == 401
    assert [model["id"] for model in opened.json()["data"]] == ["A", "B"]


def test_insecure_accepts_every_host(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with running(tmp_path, "app:agent", "--insecure", "--host", "0.0.0.0") as (_, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert (
            httpx.get(f"{url}/v1/models", headers={"host": "any.example"}, timeout=PATIENCE).status_code
            == 200
        )


def test_an_allowed_host_is_answered_for(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with running(tmp_path, "app:agent", "--allow-host", "agents.example") as (_, url):
        statuses = {
            host: httpx.get(f"{url}/v1/models", headers={"host": host}, timeout=PATIENCE).status_code
            for host in ("agents.example", "localhost", "evil.example")
        }
    assert statuses == {"agents.example": 200, "localhost": 200, "evil.example": 403}


def test_responses_are_kept_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with running(tmp_path, "app:agent", "--response-sessions", "kept.db") as (_, url):
        made = httpx.post(f"{url}/v1/responses", json={"input": "Hi"}, timeout=PATIENCE).json()
    config = ServeConfig(response_sessions=SQLiteSessions(tmp_path / "kept.db"))
    with served(Agent("A", model=ScriptedHandler([])), config) as url:
        shown = httpx.get(f"{url}/responses/{made['id']}", timeout=PATIENCE)
    assert shown.json() == made


def test_settings_of_clients_may_be_refused(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}
    with running(tmp_path, "app:agent", "--client-settings", "refuse") as (_, url):
        refused = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")


def test_a_front_end_is_told_that_the_server_ends(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    message = {"id": "1", "role": "user", "content": "Hi"}
    body, told = {"threadId": "t", "runId": "r", "messages": [message]}, ""
    with running(tmp_path, "app:busy", "--ag-ui", "--client-approvals", "--grace", "1") as (process, url):
        with httpx.stream("POST", f"{url}/ag-ui/Busy", json=body, timeout=PATIENCE) as response:
            for line in response.iter_lines():
                told = line or told
                if "Half" in line:
                    process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    assert '"RUN_ERROR"' in told
    assert "shutting_down" in told
