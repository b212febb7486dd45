"""The plugin in a suite that has pytest-recording too."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from pytest_suites import CONFTEST, names_of, run, run_without_keys, write_refund

pytestmark = pytest.mark.skipif(
    find_spec("pytest_recording") is None, reason="pytest-recording is not installed"
)

RECORDING = ("-p", "pytest_recording.plugin")

REPLAYED = """
import pytest
from routelock import Agent, Runner
from routelock_providers import LiteLLM, OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI

HANDLERS = {
    "direct": lambda: OpenAICompatible("gpt-4o"),
    "openai": lambda: OpenAI("gpt-4o"),
    "litellm": lambda: LiteLLM("openai/gpt-4o"),
}

@pytest.fixture(scope="module")
def vcr_config():
    return {"match_on": ["method", "host", "path", "body"]}

@pytest.mark.vcr
@pytest.mark.default_cassette("test_refund")
@pytest.mark.parametrize("handler", HANDLERS)
def test_refund(handler, vcr):
    agent = Agent("a", model=HANDLERS[handler]())
    Runner.run_sync(agent, "Where is my money?")
"""


@pytest.mark.parametrize("loaded", ["by conftest.py", "by an option"])
def test_a_miss_shows_the_difference_and_needs_no_key(tmp_path: Path, loaded: str) -> None:
    """In a process that finds pytest-recording by itself, whichever plugin comes first."""
    write_refund(tmp_path, "https://api.openai.com/v1")
    (tmp_path / "test_desk.py").write_text(REPLAYED)
    if loaded == "by conftest.py":
        (tmp_path / "conftest.py").write_text(CONFTEST)
        said = run_without_keys(tmp_path)
    else:
        said = run_without_keys(tmp_path, "-p", "routelock.testing.pytest_plugin")
    _, _, summary = said.partition("unanswered requests")
    difference = '  $.messages[0].content\n    - "Where is my refund?"\n    + "Where is my money?"\n'
    assert summary.count(difference) == 3, said
    assert "3 failed" in summary


def test_pytest_recording_has_options_and_fixtures_if_it_is_there(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        def test_plugins(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("routelock_beside_recording")
            assert not pytestconfig.pluginmanager.has_plugin("routelock_vcr")

        def test_vcr(disable_recording, allowed_hosts):
            pass
        """
    )
    run(suite, *RECORDING, "--disable-recording", "--record-mode=none").assert_outcomes(passed=2)


def test_pytest_recording_may_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_desk.py").write_text(
        "def test_plugins(pytestconfig): assert pytestconfig.pluginmanager.has_plugin('routelock_vcr')"
    )
    assert "1 passed" in run_without_keys(tmp_path, "-p", "no:recording", "--record-mode=none")


def test_secrets_are_not_recorded(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(
        test_desk=f"""
        import httpx
        import pytest

        @pytest.mark.vcr
        def test_answer(vcr):
            with httpx.Client(trust_env=False) as client:
                answer = client.get(
                    "{server}/?key=hunter2&shop=7",
                    headers={{"x-api-key": "hunter2", "x-shop": "7", "x-mine": "the key of this machine"}},
                )
            assert answer.text == "hello"
            assert answer.headers["content-length"] == "5"
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_API_KEY", "the key of this machine")
        run(suite, *RECORDING, "--record-mode=once").assert_outcomes(passed=1)
    [path] = suite.path.rglob("*.yaml")
    text = path.read_text()
    assert "hunter2" not in text
    assert "the key of this machine" not in text
    [played] = yaml.safe_load(text)["interactions"]
    assert played["request"]["headers"]["x-shop"] == ["7"]
    run(suite, *RECORDING, "--block-network").assert_outcomes(passed=1)


def test_its_rules_for_matching_hold(suite: pytest.Pytester) -> None:
    """Bodies are compared if it is told to, and then by what they mean."""
    write_refund(suite.path, "http://127.0.0.1:9/v1")
    suite.makepyfile(
        test_desk="""
        import httpx
        import pytest
        from routelock.errors import CassetteMiss

        def ask(**body):
            with httpx.Client(trust_env=False) as client:
                client.post("http://127.0.0.1:9/v1/chat/completions", json=body)

        SAME = {"messages": [{"content": "Where is my refund?", "role": "user"}], "model": "m"}

        @pytest.mark.vcr
        @pytest.mark.default_cassette("test_refund")
        def test_default(cassette):
            ask(model="another")
            assert cassette.play_count == 1

        @pytest.mark.vcr(match_on=["method", "body"])
        @pytest.mark.default_cassette("test_refund")
        def test_body(cassette):
            with pytest.raises(CassetteMiss, match="(?s)[$].model.*another"):
                ask(model="another")
            cassette.misses.clear()
            ask(**SAME)
        """
    )
    run(suite, *RECORDING).assert_outcomes(passed=2)


def test_recorded_headers_of_responses_are_replayed(suite: pytest.Pytester) -> None:
    """Even those that look like secrets: files that were there before belong to the suite."""
    write_refund(suite.path, "http://127.0.0.1:9/v1")
    path = suite.path / "cassettes" / "test_desk" / "test_refund.yaml"
    recording = json.loads(path.read_text())
    recording["interactions"][0]["response"]["headers"] = {"set-cookie": ["session=7"]}
    path.write_text(json.dumps(recording))
    suite.makepyfile(
        test_desk="""
        import httpx
        import pytest

        @pytest.mark.vcr
        def test_refund():
            with httpx.Client(trust_env=False) as client:
                answer = client.post("http://127.0.0.1:9/v1/chat/completions")
            assert answer.headers["set-cookie"] == "session=7"
        """
    )
    run(suite, *RECORDING).assert_outcomes(passed=1)


def test_cassette_needs_no_marker(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(
        test_desk=f"""
        from asking import ask

        def test_answer(cassette):
            assert ask("{server}") == "hello"
        """
    )
    run(suite, *RECORDING, "--record-mode=once").assert_outcomes(passed=1)
    assert names_of(suite.path) == [os.path.join("cassettes", "test_desk", "test_answer.yaml")]
    run(suite, *RECORDING).assert_outcomes(passed=1)


def test_network_stays_closed_unless_it_records(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(
        test_desk=f"""
        import socket
        import pytest
        from asking import ask
        from routelock.testing import NetworkBlocked

        def test_closed():
            with pytest.raises(NetworkBlocked):
                socket.getaddrinfo("model.invalid", 80)

        @pytest.mark.vcr
        def test_recorded():
            assert ask("{server}") == "hello"
        """
    )
    run(suite, *RECORDING, "--record-mode=once").assert_outcomes(passed=2)
    run(suite, *RECORDING).assert_outcomes(passed=2)
