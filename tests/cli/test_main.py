"""Unknown commands and arguments are errors."""

from __future__ import annotations

import pytest

from routelock.cli.main import main


@pytest.mark.parametrize("command", ["serve", "run", "graph"])
def test_an_unknown_argument_shows_the_usage_of_its_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "app:agent", "--nope"])
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"usage: routelock {command} ")
    assert shown.endswith(f"routelock {command}: error: unrecognized arguments: --nope\n")


def test_an_unknown_argument_before_the_command_shows_the_usage_of_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--nope", "serve", "app:agent"])
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("usage: routelock [-h] ")
    assert shown.endswith("routelock: error: unrecognized arguments: --nope\n")


def test_an_unknown_command_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["dance"])
    assert caught.value.code == 2
    assert "serve" in capsys.readouterr().err
