"""Tests that are answered from cassettes, in a suite with the plugin."""

from __future__ import annotations

import httpx
import pytest
import yaml
from pytest_suites import CONFTEST, names_of, run

from routelock.testing import use_cassette


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
    run(suite, "--record-mode=rewrite").assert_outcomes(passed=1)
    assert names_of(suite.path) == ["cassettes/test_desk/test_answer.yaml"]
    run(suite).assert_outcomes(passed=1)


def test_tests_classes_and_modules_can_be_marked(suite: pytest.Pytester, server: str) -> None:
    inner = suite.mkdir("inner")
    (inner / "test_module.py").write_text(
        f"""
import pytest
from asking import ask

pytestmark = pytest.mark.vcr

def test_one():
    assert ask("{server}") == "hello"
"""
    )
    suite.makepyfile(
        test_desk=f"""
        import pytest
        from asking import ask

        @pytest.mark.vcr
        class TestDesk:
            def test_two(self, vcr):
                assert ask("{server}") == "hello"

        @pytest.mark.vcr
        @pytest.mark.parametrize("question", ["where/when?"])
        def test_three(question):
            assert ask("{server}") == "hello"

        def test_unmarked(vcr):
            assert vcr is None
        """
    )
    run(suite, "--record-mode=once").assert_outcomes(passed=4)
    assert names_of(suite.path) == [
        "cassettes/test_desk/TestDesk.test_two.yaml",
        "cassettes/test_desk/test_three[where-when-].yaml",
        "inner/cassettes/test_module/test_one.yaml",
    ]
    run(suite, "--block-network").assert_outcomes(passed=4)


def test_new_episodes_and_all_keep_what_is_there(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(
        test_desk=f"""
        import os
        from asking import ask

        def test_answer(vcr, cassette):
            for path in os.environ["PATHS"].split():
                ask("{server}" + path)
            assert vcr is cassette
            assert vcr.play_count == int(os.environ["PLAYED"])
        """
    )
    cassette = suite.path / "cassettes" / "test_desk" / "test_answer.yaml"
    for mode, paths, played, recorded in [
        ("rewrite", "/a /b", 0, "ab"),
        ("new_episodes", "/b /c", 1, "abc"),
        ("all", "/c", 0, "abc"),
        ("none", "/a /b /c", 3, "abc"),
        ("rewrite", "/d", 0, "d"),
    ]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATHS", paths)
            patch.setenv("PLAYED", str(played))
            run(suite, f"--record-mode={mode}").assert_outcomes(passed=1)
        uris = [one["request"]["uri"] for one in yaml.safe_load(cassette.read_text())["interactions"]]
        assert sorted(uris) == [f"{server}/{path}" for path in recorded], mode


def test_marker_and_vcr_config_have_options(suite: pytest.Pytester, server: str) -> None:
    """The marker that is nearest to the test wins, then other markers, then the fixture."""
    suite.makepyfile(
        test_desk=f"""
        import pytest
        from asking import ask

        pytestmark = pytest.mark.vcr(record_mode="once")

        @pytest.fixture(scope="module")
        def vcr_config():
            return {{"record_mode": "none", "filter_query_parameters": ["shop"]}}

        def test_answer(vcr):
            assert ask("{server}/?shop=7&alt=sse") == "hello"
            assert vcr.record_mode == "once"

        @pytest.mark.vcr(filter_query_parameters=[], allow_unplayed=True, match_on=["method"])
        def test_other(vcr):
            assert ask("{server}/?shop=7") == "hello"
            assert vcr.match_on == ["method"]
        """
    )
    run(suite).assert_outcomes(passed=2)
    folder = suite.path / "cassettes" / "test_desk"
    assert "shop=7" not in (folder / "test_answer.yaml").read_text()
    assert "shop=7" in (folder / "test_other.yaml").read_text()


def test_option_wins_over_marker_and_vcr_config(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def vcr_config():
            return {"record_mode": "all"}

        @pytest.mark.vcr(record_mode="once")
        def test_mode(vcr):
            assert vcr.record_mode == "none"
        """
    )
    run(suite, "--record-mode=none").assert_outcomes(passed=1)


@pytest.mark.parametrize("where", ["fixture", "marker"])
def test_unknown_option_is_named(suite: pytest.Pytester, where: str) -> None:
    fixture = "{'serializer': 'json'}" if where == "fixture" else "{}"
    marker = "(serializer='json')" if where == "marker" else ""
    suite.makepyfile(
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def vcr_config():
            return {fixture}

        @pytest.mark.vcr{marker}
        def test_answer(vcr): pass
        """
    )
    result = run(suite)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["vcr_config or @pytest.mark.vcr has an unknown key 'serializer'; the keys are allow_unplayed, *"]
    )


def test_other_cassettes_can_be_named(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(
        test_desk=f"""
        import pytest
        from asking import ask

        @pytest.mark.vcr("greeting.yaml", "{suite.path}/second.yaml")
        @pytest.mark.default_cassette("named.yaml")
        def test_answer(vcr):
            assert [ask("{server}" + path) for path in ("/1", "/2", "/3")] == ["hello"] * 3
            assert vcr.path.name == "named.yaml"
        """
    )
    folder = suite.path / "cassettes" / "test_desk"
    for path, asked in [(folder / "greeting", 1), (suite.path / "second", 2), (folder / "named", 3)]:
        with use_cassette(f"{path}.yaml", record_mode="rewrite"):
            httpx.get(f"{server}/{asked}", trust_env=False)
    run(suite).assert_outcomes(passed=1)


def test_folder_and_name_of_cassettes_can_be_overridden(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def vcr_cassette_dir(request):
            return str(request.config.rootpath / "tapes")

        @pytest.fixture
        def default_cassette_name():
            return "mine"

        def test_path(cassette, pytestconfig):
            assert cassette.path == pytestconfig.rootpath / "tapes" / "mine.yaml"
        """
    )
    run(suite).assert_outcomes(passed=1)


@pytest.mark.network  # so that only the inner guard is seen
def test_network_is_open_only_while_recording(suite: pytest.Pytester) -> None:
    """Not for ``once`` with a file, which is replayed."""
    suite.makepyfile(
        test_desk="""
        import socket
        import pytest

        def is_open():
            return socket.getaddrinfo.__module__ != "routelock.testing.guards"

        @pytest.mark.vcr
        def test_marked(vcr):
            assert is_open() is not vcr.is_replaying

        def test_unmarked():
            assert not is_open()

        @pytest.mark.network
        def test_network(request):
            assert is_open() is not request.config.getoption("--block-network")
        """
    )
    run(suite).assert_outcomes(passed=3)
    run(suite, "--record-mode=once", "--block-network").assert_outcomes(passed=3)
    path = suite.path / "cassettes" / "test_desk" / "test_marked.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("interactions: []\nversion: 1\n")
    run(suite, "--record-mode=once").assert_outcomes(passed=3)


def test_the_name_of_the_event_loop_is_no_part_of_the_path(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_desk="""
        import pytest

        class TestDesk:
            @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
            @pytest.mark.parametrize("model", ["a/b"])
            def test_answer(self, cassette, anyio_backend, model):
                assert cassette.path.name == "TestDesk.test_answer[a-b].yaml"

        @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
        def test_alone(cassette, anyio_backend):
            assert cassette.path.name == "test_alone.yaml"
        """
    )
    run(suite).assert_outcomes(passed=4)


def test_name_of_a_cassette_may_be_long(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(
        test_desk=f"""
        import pytest
        from asking import ask

        @pytest.mark.vcr
        @pytest.mark.parametrize("question", ["1", "2"])
        def test_answer(question):
            assert ask("{server}") == "hello"

        @pytest.fixture
        def default_cassette_name(question):
            return "why? " * 60 + question
        """
    )
    run(suite, "--record-mode=once").assert_outcomes(passed=2)
    assert len(names_of(suite.path)) == 2
    run(suite).assert_outcomes(passed=2)


def test_requests_that_were_not_made_are_an_error(suite: pytest.Pytester, server: str) -> None:
    suite.makepyfile(test_desk="def test_answer(cassette): pass")
    with use_cassette(suite.path / "cassettes" / "test_desk" / "test_answer.yaml", record_mode="rewrite"):
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
    with use_cassette(suite.path / "cassettes" / "test_desk" / "test_answer.yaml", record_mode="rewrite"):
        httpx.get(server, trust_env=False)
    run(suite).assert_outcomes(**outcomes)


def test_pytest_vcr_is_refused(suite: pytest.Pytester) -> None:
    """It has the same marker, and fixtures of the same names that mean something else."""
    suite.makeconftest(
        f"""
        {CONFTEST}

        def pytest_addoption(pluginmanager):
            pluginmanager.register(object(), "vcr")
        """
    )
    result = run(suite)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Uninstall pytest-vcr, or switch it off with -p no:vcr."])
