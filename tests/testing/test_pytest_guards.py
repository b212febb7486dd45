"""No test reaches the network or a model, in a suite with the plugin."""

from __future__ import annotations

import pytest
from pytest_suites import run


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
    result.stdout.fnmatch_lines(["*NetworkBlocked: *'model.invalid' was blocked*--allowed-hosts=model*"])


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "xdist"])
def test_swallowed_refusals_are_named_at_the_end(suite: pytest.Pytester, options: tuple[str, ...]) -> None:
    if options:
        pytest.importorskip("xdist")
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
    result = run(suite, *options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["routelock: connections refused by no_network: model.invalid"])


@pytest.mark.network  # or the guard of this session refuses what the inner one lets pass
def test_hosts_can_be_allowed(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import socket
        import pytest
        from routelock.testing import NetworkBlocked

        @pytest.fixture(scope="module")
        def vcr_config():
            return {"allowed_hosts": ["192.0.2.[3-4]$"]}

        def reached(number):
            with socket.socket() as client:
                client.setblocking(False)
                try:
                    client.connect_ex((f"192.0.2.{number}", 9))
                except NetworkBlocked:
                    return False
                return True

        def test_fixture_or_option(request):
            wanted = [1] if request.config.getoption("--allowed-hosts") else [3, 4]
            assert [number for number in range(6) if reached(number)] == wanted

        @pytest.mark.block_network(allowed_hosts=["192.0.2.2"])
        @pytest.mark.network
        def test_marker():
            assert [number for number in range(6) if reached(number)] == [2]
        """
    )
    run(suite).assert_outcomes(passed=2)
    run(suite, "--allowed-hosts=192.0.2.1").assert_outcomes(passed=2)
