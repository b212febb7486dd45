"""A traced run becomes a test that pytest can run."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from dev_page import dev_page
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from routelock import Agent, RoutelockError, RunConfig, Runner
from routelock._redaction import redact
from routelock.serving.dev.pytest_export import replay_test
from routelock.testing import ScriptedHandler, call, reply
from routelock.tracing.file import as_line
from routelock.tracing.reader import read_trace
from routelock.tracing.records import RunStarted, TraceRecord

APP = """
from dev_page import shop
from routelock import Agent, function_tool
from routelock.testing import ScriptedHandler

agent = shop()
team = [Agent("other", model=ScriptedHandler([])), agent]
done = []

@function_tool(needs_approval=True)
def pay() -> str:
    done.append(1)
    return "paid"

clerk = Agent("clerk", model=ScriptedHandler([]), tools=[pay])

def make():
    return agent
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with agents."""
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def _code(agent: Agent[Any], said: str, spec: str | None = None, **options: Any) -> str:
    with dev_page(agent, spec=spec, **options) as page:
        response = page.test_of(page.say(page.begin(), said))
    assert response.status_code == 200, response.text
    return str(response.json()["code"])


def _run(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, "test_replay.py", "exec"), names)
    names["test_run"]()


def _loaded(app: str) -> Any:
    import importlib

    return importlib.import_module(app)


def test_pytest_runs_it(app: str, pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Two agents, a tool of each, a filter, and an agent that is asked as a tool."""
    code = _code(_loaded(app).agent, 'My "money" \\ please\n\u2028 {}', f"{app}:agent")
    pytester.makepyfile(test_replay=code)
    sys.modules.pop(app)
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_it_fails_when_the_agents_have_changed(app: str) -> None:
    code = _code(_loaded(app).agent, "Hi", f"{app}:agent")
    path = Path(str(sys.modules[app].__file__))
    path.write_text(APP.replace("agent = shop()", 'agent = Agent("triage", model=ScriptedHandler([]))'))
    sys.modules.pop(app)
    with pytest.raises((AssertionError, RoutelockError)):
        _run(code)


@pytest.mark.parametrize("name", ["team", "make"])
def test_a_list_or_a_function_of_agents_will_do(app: str, name: str) -> None:
    _run(_code(_loaded(app).agent, "Hi", f"{app}:{name}"))


def test_an_unknown_place_has_a_comment(app: str) -> None:
    code = _code(_loaded(app).agent, "Hi")
    told = "from app import agent as AGENT  # replace this with where the agent is"
    assert told in code
    _run(code.replace(told, f"from {app} import agent as AGENT"))


@pytest.mark.parametrize(
    "said",
    [
        "It's \"quoted\" \\ and\nbroken \u2028 \x00 {braces} '''",
        "long " * 100,
        reply("With a call.", calls=[call("nothing", '{"broken": ', id="x")]),
        call("nothing", '{"x": NaN}', id="x"),
        call("nothing", f'{{"x": {"[" * 300}{"]" * 300}}}', id="x"),
        call("nothing", f'{{"x": {"[" * 9000}{"]" * 9000}}}', id="x"),
        reply(reasoning="Hm.", text="Well."),
        {"role": "assistant", "content": [{"type": "text", "text": "In parts."}]},
    ],
)
def test_whatever_a_model_says_is_data(app: str, said: Any) -> None:
    module = _loaded(app)
    agent = Agent("triage", model=ScriptedHandler([said, "End."]))
    module.agent = agent
    _run(_code(agent, "Hi", f"{app}:agent"))


def test_a_run_that_failed_fails_again(app: str) -> None:
    module = _loaded(app)
    module.agent = Agent("triage", model=ScriptedHandler([call("nothing")] * 9))
    code = _code(module.agent, "Hi", f"{app}:agent")
    assert "with pytest.raises(errors." in code
    _run(code)


def test_an_error_that_it_does_not_know_is_any() -> None:
    class OddError(Exception):
        pass

    model = ScriptedHandler([OddError("odd")])
    assert "Exception('odd')" in _code(Agent("a", model=model), "Hi")


def test_one_that_waits_for_approval_waits_again(app: str) -> None:
    module = _loaded(app)
    module.clerk.model.replies[:] = [call("pay")]
    _run(_code(module.clerk, "Hi", f"{app}:clerk"))
    assert module.done == []


def test_earlier_messages_are_input_of_the_test(app: str) -> None:
    module = _loaded(app)
    module.agent = Agent("triage", model=ScriptedHandler(["One.", "Two."]))
    with dev_page(module.agent, spec=f"{app}:agent") as page:
        conversation = page.begin()
        page.say(conversation, "First")
        lines = page.say(conversation, "Second")[:-1]
        code = page.post("/test", {"records": [each for each in lines if each["type"] != "delta"]}).json()[
            "code"
        ]
    assert "'content': 'One.'" in code
    _run(code)


@given(st.text(), st.text())
@examples(15)
def test_whatever_is_said_the_code_is_data(said: str, text: str) -> None:
    """It is parsed, not run: what was said is in it as a literal, and nothing else is called."""
    lines: list[bytes] = []
    agent = Agent("a", model=ScriptedHandler([reply(text + "."), reply(text + ".")]))
    Runner.run_sync(agent, said, run_config=RunConfig(trace=_Lines(lines)))
    (run,) = read_trace(lines).runs
    tree = ast.parse(replay_test(run))
    literals = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {redact(said), redact(text + ".")} <= literals
    names = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert names <= {"ScriptedHandler", "Runner.run_sync", "RunConfig", "model.assert_complete", "reply"}


class _Lines:
    """Keeps a trace in memory, as it would be in a file."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def begin(self, start: RunStarted, parent: object, /) -> _Lines:
        self.write(start)
        return self

    def write(self, record: TraceRecord, /) -> None:
        self.lines.append(as_line(record))


def test_a_run_that_was_stopped_makes_no_test() -> None:
    with dev_page(Agent("a", model=ScriptedHandler(["Hi."]))) as page:
        lines = [
            each for each in page.say(page.begin(), "Hi") if each["type"] not in ("delta", "end", "run_end")
        ]
        response = page.post("/test", {"records": lines})
    assert (response.status_code, "stopped" in response.json()["error"]) == (409, True)
