"""``routelock graph``: Mermaid text, a picture, or a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from terminals import app_in

from routelock.cli.main import main


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with app_in(tmp_path, monkeypatch) as name:
        yield name


def test_a_graph_is_mermaid(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", f"{app}:triage"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "flowchart LR",
        '    n0(["triage"]):::start',
        '    n1["refunds"]',
        "    n0 --> n1",
        "    classDef start stroke-width:3px",
    ]


def test_a_graph_is_a_picture(app: str, tmp_path: Path) -> None:
    assert main(["graph", f"{app}:triage", "--svg", "-o", str(tmp_path / "team.svg")]) == 0
    assert (tmp_path / "team.svg").read_text("utf-8").startswith("<svg ")


def test_a_graph_is_a_table(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", f"{app}:triage", "--table"]) == 0
    assert "| triage | refunds | handoff | the conversation |" in capsys.readouterr().out
