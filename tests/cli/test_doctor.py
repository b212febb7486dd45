"""``routelock doctor``: installed packages, destinations and keys of models, without the keys themselves."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminals import app_in

from routelock.cli.main import main


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with app_in(tmp_path, monkeypatch) as name:
        yield name


def test_doctor_names_keys_and_never_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "sk-very-secret")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "  SHOP_API_KEY\n" in shown
    assert "very-secret" not in shown
    assert re.search(r"  pydantic \d", shown)
    assert re.search(r"  cli: rich \d", shown)


def test_doctor_leaves_out_the_extras_of_maintainers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    listed = re.findall(r"^  (\w+): ", capsys.readouterr().out.partition("extras\n")[2], re.MULTILINE)
    assert "serve" in listed
    assert not {"browser", "docs", "lint", "release", "test"} & {*listed}


@pytest.mark.filterwarnings("ignore")
def test_doctor_shows_the_destination_of_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://someone:hidden@127.0.0.1:9/v1")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert main(["doctor", "openai/gpt-4o-mini"]) == 0
    shown = capsys.readouterr().out
    assert "127.0.0.1:9/v1" in shown
    assert "hidden" not in shown
    assert main(["doctor", "anthropic/claude-haiku-4-5"]) == 1
    assert "missing: set ANTHROPIC_API_KEY" in capsys.readouterr().out
    assert main(["doctor", "nonsense"]) == 1
    assert "No provider is known" in capsys.readouterr().out


def test_doctor_says_the_right_name_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "openai:gpt-4o"]) == 1
    assert "openai:gpt-4o\n  No provider is known for model 'openai:gpt-4o': write 'openai/gpt-4o'." in (
        capsys.readouterr().out
    )


ASKERS = """
from routelock import Agent
from routelock_providers import OpenAICompatible
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.remote.agent import RemoteAgent

local = OpenAICompatible("m1", base_url="http://ann:pw-hidden@127.0.0.1:9/v1?key=q-hidden")
groq = OpenAICompatible("m2", base_url="https://api.groq.com/openai/v1")
passed = OpenAICompatible("m3", base_url="https://api.groq.com/openai/v1", api_key="a-hidden")
headed = OpenAICompatible("m4", headers={"Authorization": "Bearer h-hidden"})
gpt = OpenAICompatible("m5")
library = OpenAI("m6", base_url="https://api.mistral.ai/v1")
lite = LiteLLM("openai/m7", api_base="http://127.0.0.1:8/v1", api_key="l-hidden")
elsewhere = RemoteAgent("https://agents.example.com/v1", model="wine", api_key="r-hidden")
names = "local groq passed headed library lite elsewhere"
agents = [Agent(name, model=globals()[name]) for name in names.split()]
keyless = Agent("keyless", model=gpt)
"""


@pytest.mark.filterwarnings("ignore")
def test_doctor_shows_the_destination_and_key_of_handlers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL", "MISTRAL", "OPENAI"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "g-hidden")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "askers_of_doctor.py").write_text(ASKERS)
    assert main(["doctor", "askers_of_doctor:agents"]) == 0
    shown = capsys.readouterr().out
    said = {
        each.partition(":")[0]: dict(line.strip().split(None, 1) for line in each.splitlines()[1:])
        for each in shown.split("\nagent ")[1:]
    }
    assert "hidden" not in shown
    assert said["local"] == {
        "provider": "local",
        "model": "m1",
        "address": "http://127.0.0.1:9/v1/chat/completions?key=[redacted]",
        "key": "none, so none is sent (LOCAL_API_KEY is not set)",
    }
    assert said["groq"]["address"] == "https://api.groq.com/openai/v1/chat/completions"
    assert {name: each["key"] for name, each in said.items() if name != "local"} == {
        "groq": "there, from GROQ_API_KEY",
        "passed": "there, passed as api_key",
        "headed": "there, in headers as authorization",
        "library": "none, so none is sent (MISTRAL_API_KEY is not set)",
        "lite": "there, or not needed",
        "elsewhere": "there, passed to it",
    }
    assert said["lite"]["address"] == "http://127.0.0.1:8/v1"
    assert said["elsewhere"]["model"] == "wine"
    assert main(["doctor", "askers_of_doctor:keyless"]) == 1
    assert "key       missing: set OPENAI_API_KEY" in capsys.readouterr().out


def test_doctor_names_the_agents_of_a_graph(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{app}:triage"]) == 0
    shown = capsys.readouterr().out
    assert "agent triage: scripted" in shown
    assert "agent refunds: scripted" in shown


@pytest.mark.filterwarnings("ignore")
def test_doctor_names_models_as_they_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "askers_by_name.py").write_text(ASKERS)
    assert main(["doctor", "askers_by_name:agents"]) == 0
    shown = capsys.readouterr().out
    assert "agent lite: openai/m7\n" in shown
    assert "agent groq: m2\n" in shown
