"""Every command is listed and has examples, and exit codes are explained."""

from __future__ import annotations

import re

import pytest

from routelock.cli.main import main

COMMANDS = ("chat", "run", "serve", "mcp", "dev", "graph", "record", "replay", "trace", "doctor")


def _help(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _help(capsys)
    listed = re.findall(r"^    (\w+) +[A-Z]", shown, re.MULTILINE)
    assert tuple(listed) == COMMANDS
    assert [int(code) for code in re.findall(r"^  (\d+) ", shown, re.MULTILINE)] == [0, 1, 2, 3, 130, 141]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"examples:\n  routelock {command}" in _help(capsys, command).replace("run app", f"{command} app")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("routelock ")
