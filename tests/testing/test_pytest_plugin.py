"""The plugin as a user's test suite has it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import vcr  # noqa: F401 - pytester forgets what an inner run imports, and yaml cannot be loaded twice

from routelock.testing import use_cassette


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project that asks for the plugin; its tests see Python code that asks a URL."""
    pytester.makeconftest('pytest_plugins = ["routelock.testing.pytest_plugin"]')
    pytester.makepyfile(
        asking="""
        import httpx

        def ask(url):
            with httpx.Client(trust_env=False) as client:
                return client.get(url, timeout=60).text
        """
    )
    return pytester


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run the suite as it runs for a user: without the plugins that happen to be installed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return suite.runpytest_inprocess("-p", "no:cacheprovider", *options)


def test_no_test_reaches_the_network_unless_it_is_marked(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import socket
        import pytest
        from routelock.testing import NetworkBlocked

        before = socket.getaddrinfo

        def test_closed():
            with pytest.raises(NetworkBlocked):
                socket.getaddrinfo("model.invalid", 80)

        @pytest.mark.network
        def test_open():
            assert socket.getaddrinfo is not before

        def test_closed_again():
            assert socket.getaddrinfo.__module__ == "routelock.testing.guards"
        """
    )
    run(suite).assert_outcomes(passed=3)


def test_forbid_models_refuses_model_calls(suite: pytest.Pytester) -> None:
    """On this machine either; the fence is open where the network is, and in a cassette."""
    suite.makeini("[pytest]\nforbid_models = true")
    suite.makepyfile(
        """
        import pytest
        from routelock import Agent, Runner
        from routelock.errors import ConnectionFailed
        from routelock.testing import ModelCallBlocked
        from routelock_providers import OpenAICompatible

        local = OpenAICompatible("qwen3", base_url="http://127.0.0.1:9/v1", api_key="none")

        def ask():
            from routelock import RunConfig, Retry
            Runner.run_sync(Agent("a", model=local), "Hi", run_config=RunConfig(retry=Retry(attempts=1)))

        def test_closed():
            with pytest.raises(ModelCallBlocked, match="Agent 'a' .* 'local/qwen3' in turn 1"):
                ask()

        @pytest.mark.network
        def test_open():
            with pytest.raises(ConnectionFailed):
                ask()

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_closed_again(anyio_backend):
            with pytest.raises(ModelCallBlocked):
                await Runner.run(Agent("a", model=local), "Hi")
        """
    )
    run(suite, "-p", "anyio").assert_outcomes(passed=3)


@pytest.mark.parametrize("first", ["closed", "open"])
def test_forbid_models_holds_with_a_shared_event_loop(suite: pytest.Pytester, first: str) -> None:
    """Its tasks have the context variables of the test that began it."""
    suite.makeini("[pytest]\nforbid_models = true")
    suite.makepyfile(
        f"""
        import pytest
        from routelock import Agent, Runner, RunConfig, Retry
        from routelock.errors import CassetteMiss, ConnectionFailed
        from routelock.testing import ModelCallBlocked
        from routelock_providers import OpenAICompatible

        pytestmark = pytest.mark.anyio
        local = OpenAICompatible("qwen3", base_url="http://127.0.0.1:9/v1", api_key="none")

        @pytest.fixture(scope="module")
        def anyio_backend():
            return "asyncio"

        @pytest.fixture(scope="module", autouse=True)
        async def database(anyio_backend):
            yield

        async def ask():
            await Runner.run(Agent("a", model=local), "Hi", run_config=RunConfig(retry=Retry(attempts=1)))

        @pytest.mark.skipif({first == "open"}, reason="comes later")
        async def test_closed():
            with pytest.raises(ModelCallBlocked):
                await ask()

        @pytest.mark.network
        async def test_open():
            with pytest.raises(ConnectionFailed):
                await ask()

        async def test_closed_again():
            with pytest.raises(ModelCallBlocked):
                await ask()

        async def test_in_a_cassette(cassette):
            with pytest.raises(CassetteMiss, match="no such file"):
                await ask()
            cassette.misses.clear()
        """
    )
    closed = int(first == "closed")
    run(suite, "-p", "anyio").assert_outcomes(passed=3 + closed, skipped=1 - closed)


def test_import_does_not_reach_the_network(suite: pytest.Pytester) -> None:
    suite.makepyfile("import socket; socket.getaddrinfo('model.invalid', 80)")
    result = run(suite)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*NetworkBlocked: Looking up 'model.invalid' was blocked*"])


def test_swallowed_refusals_are_named_at_the_end(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import socket

        def test_careless():
            try:
                socket.getaddrinfo("model.invalid", 80)
            except Exception:
                pass
        """
    )
    result = run(suite)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["routelock: connections refused by no_network: model.invalid"])


def test_a_cassette_is_recorded_when_asked_and_replayed_otherwise(
    suite: pytest.Pytester, server: str
) -> None:
    suite.makepyfile(
        test_desk=f"""
        from asking import ask

        def test_answer(cassette):
            assert ask("{server}") == "hello"
        """
    )
    missing = run(suite)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*CassetteMiss: GET*is not in*test_answer.yaml*"])
    run(suite, "--cassettes=record").assert_outcomes(passed=1)
    assert (suite.path / "cassettes" / "desk" / "test_answer.yaml").exists()
    run(suite).assert_outcomes(passed=1)


def test_summary_shows_the_difference_of_a_miss(suite: pytest.Pytester) -> None:
    url = "http://127.0.0.1:9/v1"
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Where is my refund?"}]})
    request = {"method": "POST", "uri": f"{url}/chat/completions", "body": body, "headers": {}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": ""}}
    path = suite.path / "cassettes" / "desk" / "test_refund.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"interactions": [{"request": request, "response": response}], "version": 1}))
    suite.makepyfile(
        test_desk=f"""
        from routelock import Agent, Runner
        from routelock_providers import OpenAICompatible

        def test_refund(cassette):
            Runner.run_sync(Agent("a", model=OpenAICompatible("m", base_url="{url}")), "Where is my money?")
        """
    )
    result = run(suite, "-vv")
    result.assert_outcomes(failed=1)
    summary = result.outlines[
        result.outlines.index(next(line for line in result.outlines if "short" in line)) :
    ]
    assert summary[1].startswith(
        f"FAILED test_desk.py::test_refund - routelock.errors.CassetteMiss: POST {url}"
    )
    assert '-      "content": "Where is my refund?",' in summary
    assert '+      "content": "Where is my money?",' in summary


def test_a_marker_takes_another_path_and_options(suite: pytest.Pytester, server: str) -> None:
    suite.makeini("[pytest]\ncassette_dir = tapes")
    suite.makepyfile(
        f"""
        import pytest
        from asking import ask

        @pytest.mark.cassette("shared.yaml", allow_unplayed=True)
        def test_nothing(cassette):
            assert cassette.path.name == "shared.yaml"

        @pytest.mark.cassette("shared.yaml")
        def test_answer(cassette):
            assert ask("{server}") == "hello"
        """
    )
    with use_cassette(suite.path / "tapes" / "shared.yaml", mode="record"):
        httpx.get(server, trust_env=False)
    run(suite).assert_outcomes(passed=2)


def test_the_name_of_the_event_loop_is_no_part_of_the_path(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_desk="""
        import pytest

        class TestDesk:
            @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
            @pytest.mark.parametrize("model", ["a/b"])
            def test_answer(self, cassette, anyio_backend, model):
                assert cassette.path.name == "TestDesk.test_answer-a-b.yaml"

        @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
        def test_alone(cassette, anyio_backend):
            assert cassette.path.name == "test_alone.yaml"
        """
    )
    run(suite).assert_outcomes(passed=4)


def test_requests_that_were_not_made_are_an_error(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(test_desk="def test_answer(cassette): pass")
    with use_cassette(suite.path / "cassettes" / "desk" / "test_answer.yaml", mode="record"):
        httpx.get(server, trust_env=False)
    result = run(suite)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*UnplayedInteractions: 1 of 1 requests*"])


@pytest.mark.parametrize(
    ("stops", "outcomes"),
    [
        ("assert False", {"failed": 1}),
        ("pytest.skip('no time')", {"skipped": 1}),
        ("pytest.xfail('some day')", {"xfailed": 1}),
    ],
)
def test_test_that_ended_early_reports_no_unmade_requests(
    suite: pytest.Pytester, server: str, stops: str, outcomes: dict[str, int]
) -> None:
    suite.makepyfile(test_desk=f"import pytest\ndef test_answer(cassette): {stops}")
    with use_cassette(suite.path / "cassettes" / "desk" / "test_answer.yaml", mode="record"):
        httpx.get(server, trust_env=False)
    run(suite).assert_outcomes(**outcomes)


def test_the_plugin_is_not_registered_by_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_answer(cassette): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'cassette' not found*"])
