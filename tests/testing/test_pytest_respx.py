"""The fixture of respx in a suite with the plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_suites import CONFTEST, run_without_keys

SUITE = """
import pytest
from routelock import Agent, Runner
from routelock_providers import OpenAICompatible

URL = "https://model.invalid/v1"
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Paid."}, "finish_reason": "stop"}
REPLY = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}
agent = Agent("a", model=OpenAICompatible("m", base_url=URL))

pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"

@pytest.fixture(scope="module", autouse=True)
async def shared_loop(anyio_backend):
    yield

async def test_without_options(respx_mock):
    respx_mock.post(URL + "/chat/completions").respond(json=REPLY)
    assert (await Runner.run(agent, "Hi")).final_output == "Paid."

@pytest.mark.respx(base_url=URL)
async def test_with_options(respx_mock):
    respx_mock.post("/chat/completions").respond(json=REPLY)
    assert (await Runner.run(agent, "Hi")).final_output == "Paid."

@pytest.mark.respx(base_url=URL, assert_all_called=False)
async def test_without_a_route(respx_mock):
    await Runner.run(agent, "Hi")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("respx")
    (tmp_path / "test_desk.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nforbid_models = true")
    return tmp_path


@pytest.mark.parametrize("loaded", ["by conftest.py", "by an option"])
def test_the_fixture_of_respx_sees_handlers(folder: Path, loaded: str) -> None:
    """Whichever plugin comes first, and if tests share an event loop."""
    if loaded == "by conftest.py":
        (folder / "conftest.py").write_text(CONFTEST)
        said = run_without_keys(folder)
    else:
        said = run_without_keys(folder, "-p", "routelock.testing.pytest_plugin")
    assert "1 failed, 2 passed" in said, said
    _, _, summary = said.partition("unanswered requests")
    assert "test_desk.py::test_without_a_route\n  RESPX: <Request('POST', 'https://model.invalid" in summary


def test_the_fixture_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.modules['respx'] = None\n{CONFTEST}")
    (tmp_path / "test_desk.py").write_text("def test_routes(respx_mock): pass")
    said = run_without_keys(tmp_path, "-p", "no:respx")
    assert "pip install 'routelock[respx]'" in said
    assert "1 error" in said
