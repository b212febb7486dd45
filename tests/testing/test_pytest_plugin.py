"""The plugin as a whole: how it is loaded, and what it says at the end."""

from __future__ import annotations

import pytest
from pytest_suites import CONFTEST, run, run_without_keys, write_refund

MISSED = """
import pytest
from routelock import Agent, Runner
from routelock_providers import LiteLLM, OpenAICompatible, RemoteAgent
from routelock_providers.chat_completions.openai import OpenAI

url = "http://127.0.0.1:9/v1"
HANDLERS = {
    "direct": lambda: OpenAICompatible("m", base_url=url),
    "openai": lambda: OpenAI("m", base_url=url),
    "litellm": lambda: LiteLLM("openai/m", api_base=url),
    "remote": lambda: RemoteAgent(url),
}

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
@pytest.mark.vcr
@pytest.mark.default_cassette("test_refund")
@pytest.mark.parametrize("handler", HANDLERS)
async def test_whole(handler):
    await Runner.run(Agent("a", model=HANDLERS[handler]()), "Where is my money?")

@pytest.mark.anyio
@pytest.mark.vcr
@pytest.mark.default_cassette("test_refund")
@pytest.mark.parametrize("handler", HANDLERS)
async def test_streamed(handler):
    async for _ in Runner.run_streamed(Agent("a", model=HANDLERS[handler]()), "Where is my money?"):
        pass
"""


@pytest.fixture(scope="module")
def missed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says if each handler asks something that was not recorded, in a process without keys."""
    folder = tmp_path_factory.mktemp("missed")
    write_refund(folder, "http://127.0.0.1:9/v1")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_desk.py").write_text(MISSED)
    return run_without_keys(folder, "-p", "no:recording")  # which does not compare bodies


@pytest.mark.parametrize("test", ["whole", "streamed"])
@pytest.mark.parametrize("handler", ["direct", "openai", "litellm", "remote"])
def test_summary_shows_the_difference_of_a_miss(missed: str, handler: str, test: str) -> None:
    assert f"FAILED test_desk.py::test_{test}[{handler}] - routelock.errors.CassetteMiss: POST" in missed
    _, _, shown = missed.partition("unanswered requests")
    _, _, shown = shown.partition(f"\ntest_desk.py::test_{test}[{handler}]\n")
    shown = shown.partition("\ntest_desk.py")[0]
    assert shown.startswith("  POST http://127.0.0.1:9/v1/chat/completions is not in ")
    assert "\n  The nearest of 1 recorded requests is number 1, which was not requested yet" in shown
    assert '\n  $.messages[0].content\n    - "Where is my refund?"\n    + "Where is my money?"\n' in shown


def test_summary_shows_a_miss_that_the_test_swallowed(suite: pytest.Pytester) -> None:
    """And once, though both the test and its end report it."""
    url = "http://127.0.0.1:9/v1"
    write_refund(suite.path, url)
    suite.makepyfile(
        test_desk=f"""
        from asking import ask

        def test_refund(cassette):
            try:
                ask("{url}")
            except Exception:
                answer = "sorry"
            assert answer == "hello"
        """
    )
    result = run(suite)
    result.assert_outcomes(failed=1, errors=1)
    assert "\n".join(result.outlines).count("\n  GET http://127.0.0.1:9/v1 is not in") == 1


def test_summary_has_the_misses_of_xdist_workers(suite: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    write_refund(suite.path, "http://127.0.0.1:9/v1")
    suite.makepyfile(
        test_desk="from asking import ask\ndef test_refund(cassette): ask('http://127.0.0.1:9/v1')"
    )
    result = run(suite, "-p", "xdist", "-n", "1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unanswered requests*", "  GET http://127.0.0.1:9/v1 is not in *"])


def test_the_plugin_is_not_registered_by_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_answer(cassette): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'cassette' not found*"])
