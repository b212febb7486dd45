"""What litellm says twice is heard once."""

from __future__ import annotations

from typing import Any

from routelock_providers.litellm.fixes import Echoes


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {"thinking_blocks": [{"type": "thinking", "thinking": text, **more}]}


def heard(*deltas: dict[str, Any]) -> list[str]:
    echoes = Echoes()
    for delta in deltas:
        echoes.take_out(delta)
    return [block["thinking"] for delta in deltas for block in delta.get("thinking_blocks", ())]


def test_a_signature_that_brings_the_whole_thought_again_brings_only_itself() -> None:
    deltas = [thought("Hm"), thought(", yes"), thought("Hm, yes", signature="s1")]
    assert heard(*deltas) == ["Hm", ", yes", ""]
    assert deltas[2]["thinking_blocks"][0]["signature"] == "s1"


def test_each_thought_has_its_own_echo() -> None:
    told = heard(thought("a"), thought("a", signature="1"), thought("b"), thought("b", signature="2"))
    assert told == ["a", "", "b", ""]


def test_a_thought_that_comes_whole_with_its_signature_stays() -> None:
    assert heard(thought("Hm", signature="s1")) == ["Hm"]
    assert heard(thought("Hm"), thought("other", signature="s1")) == ["Hm", "other"]


def test_the_copy_in_the_provider_specific_fields_is_taken_out() -> None:
    delta = thought("Hm") | {"provider_specific_fields": {"thinking_blocks": [1], "citation": 2}}
    Echoes().take_out(delta)
    assert delta["provider_specific_fields"] == {"citation": 2}


def test_a_delta_without_thoughts_is_left_alone() -> None:
    delta: dict[str, Any] = {"content": "x", "provider_specific_fields": {"a": 1}}
    Echoes().take_out(delta)
    assert delta == {"content": "x", "provider_specific_fields": {"a": 1}}
