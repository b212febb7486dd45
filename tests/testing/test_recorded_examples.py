"""The four short examples with cassettes: what they show when they are replayed."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import anyio
import pytest
from paths import REPO

from routelock import ToolContext
from routelock.testing import CassetteMiss, ScriptedHandler, call

NAMES = ("simple_triage", "math_specialist", "context_preservation", "guardrails")


def _load(name: str) -> Any:
    sys.path.insert(0, str(REPO / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


recorded = _load("recorded")


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What an example prints, started without arguments."""

    def play(name: str) -> str:
        monkeypatch.setattr(sys, "argv", [name])
        recorded.play(name, _load(name).show)
        return capsys.readouterr().out

    return play


def test_triage_hands_over_what_others_know_and_answers_the_rest(shown: Any) -> None:
    lines = shown("simple_triage").splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "Customer",
        "  Triage -> Billing",
        "Billing",
        "Customer",
        "  Triage -> Technical",
        "Technical",
        "Customer",
        "Triage",
    ]


def test_the_integral_is_calculated_by_the_specialists_tool(shown: Any) -> None:
    text = shown("math_specialist")
    assert "  Assistant -> Math specialist: a definite integral\n  integrate: 150.0\n" in text
    assert "Math specialist: The integral is 150" in text


@pytest.mark.parametrize(
    ("coefficients", "lower", "upper", "result"),
    [([5, 2], 0, 10, 150.0), ([5, 2], 10, 0, -150.0), ([], 0, 1, 0), ([0, 0, 3], 1, 2, 7.0)],
)
@pytest.mark.anyio
async def test_the_tool_integrates(coefficients: Any, lower: float, upper: float, result: float) -> None:
    example = _load("math_specialist")
    arguments = json.dumps({"coefficients": coefficients, "lower": lower, "upper": upper})
    outcome = await example.integrate.invoke(ToolContext(context=None), arguments)
    assert float(outcome.output) == result


def test_without_its_context_the_target_has_to_ask(shown: Any) -> None:
    whole, alone = shown("context_preservation").split("preserve_context=False")
    assert "Shipping is shown: user: Hello, I am Ada" in whole
    assert alone.count("Shipping is shown") == 1
    assert whole.count("kept in the transcript: 6 messages") == alone.count("6 messages") == 1


def test_guardrails_stop_where_they_belong(shown: Any) -> None:
    """The last answer is longer than the reception's own guardrail lets pass: it is not inherited."""
    text = shown("guardrails")
    assert "  stopped by no_cards, after 0 model calls\n" in text
    assert "  stopped by no_doses, after 2 model calls\n" in text
    [answer] = [line for line in text.splitlines() if line.startswith("Pharmacist: ")]
    assert len(answer) > 60


@pytest.mark.anyio
async def test_the_receptions_own_answers_have_its_guardrail(capsys: pytest.CaptureFixture[str]) -> None:
    example = _load("guardrails")
    transfer = call("transfer_to_pharmacist")
    await example.show(ScriptedHandler(["x" * 61, transfer, "y" * 61]))
    assert "stopped by short, after 1 model calls" in capsys.readouterr().out


def test_a_model_may_be_asked_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def show(model: Any) -> None:
        asked.append(model)

    monkeypatch.setattr(sys, "argv", ["simple_triage", "--live", "openai/gpt-4o-mini"])
    recorded.play("simple_triage", show)
    assert asked == ["openai/gpt-4o-mini"]


def test_another_question_was_not_recorded() -> None:
    example = _load("math_specialist")

    def ask() -> None:
        with recorded.replayed("simple_triage") as model:
            anyio.run(recorded.ask, example.show, model)

    with pytest.raises(CassetteMiss, match=r"is not in .*simple_triage"):
        ask()


def test_every_cassette_says_what_answered() -> None:
    """No cassette pretends to hold a model's words."""
    facts = json.loads((REPO / "cassettes" / "recorded.json").read_text("utf-8"))
    assert {path.stem for path in (REPO / "cassettes").glob("*.yaml")} == facts.keys()
    assert set(NAMES) <= facts.keys()
    for how in facts.values():
        assert how["answered_by"]
        assert how["asked_by"] in ("LiteLLM", "OpenAICompatible")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_can_be_read_at_a_glance(name: str) -> None:
    assert len((REPO / "examples" / f"{name}.py").read_text("utf-8").splitlines()) <= 66
