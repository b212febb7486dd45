"""Ways in which providers and gateways write one reply as chunks, as a hypothesis strategy.

Each way is one that somebody was seen to go; the issues are named beside them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

__all__ = ["WAYS", "Way", "replies", "written"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Way:
    """How the deltas of tool calls say whose they are, and what is in them."""

    index: str = "own"
    """``own`` for each call, ``zero`` for all, ``late`` (not in the first delta), ``none``, ``gaps``."""
    id: str = "first"
    """In the ``first`` delta, in ``every`` one, ``last``, ``changing`` with each, ``none``."""
    name: str = "first"
    """In the ``first`` delta, in ``every`` one, in ``pieces``, ``last``, after an ``empty`` one."""
    arguments: str = "pieces"
    """In ``pieces``, ``whole``, an ``object``, after ``{}`` or null, or ``repeated`` whole and in pieces."""

    @property
    def mixes(self) -> bool:
        """Whether the deltas of several calls may be mixed and still say whose they are."""
        return self.index in ("own", "gaps") or self.id == "every"

    @property
    def anonymous(self) -> bool:
        """Whether only whole calls can be told apart."""
        return self.id == "none" and self.index in ("zero", "none")


WAYS = {
    "OpenAI": Way(),
    "Moonshot, Fireworks (SillyTavern/SillyTavern 5948)": Way(id="every", name="every"),
    "MiniMax on NVIDIA (NousResearch/hermes-agent 8259)": Way(name="every"),
    "Ollama (vercel/ai 14277, BerriAI/litellm 37792)": Way(index="zero", arguments="whole"),
    "Ollama through litellm: objects": Way(index="zero", arguments="object"),
    "Dynamo (ai-dynamo/dynamo 4723)": Way(index="zero", id="every", name="every"),
    "one index, ids in the first delta only (apache/maka 1976)": Way(index="zero"),
    "LM Studio (NousResearch/hermes-agent 106943)": Way(id="changing"),
    "the same with one index for all": Way(index="zero", id="changing"),
    "Gemini without index (openai/openai-python 3246)": Way(index="none", arguments="whole"),
    "no index, by id (vercel/ai 15879)": Way(index="none", id="every"),
    "no index, one after the other (SamSaffron/term-llm 314)": Way(index="none"),
    "the index comes late (SamSaffron/term-llm 314)": Way(index="late"),
    "the same, with ids": Way(index="late", id="every"),
    "names in pieces (continuedev/continue 5849)": Way(name="pieces"),
    "the same, with their ids": Way(name="pieces", id="every"),
    "SGLang: arguments before the name (vercel/ai 5885)": Way(name="last", id="last"),
    "an empty name first (jjang-ai/vmlx 244)": Way(name="empty"),
    "no ids (ollama/ollama 6708)": Way(id="none"),
    "no ids and one index (google/adk-python 665)": Way(index="zero", id="none", arguments="whole"),
    "no ids and no index": Way(index="none", id="none", arguments="object"),
    "indexes with gaps": Way(index="gaps"),
    "Anthropic behind a gateway (BerriAI/litellm 4537)": Way(arguments="{}"),
    "null first": Way(arguments="null"),
    "xAI through litellm: said again": Way(arguments="repeated"),
    "Azure, vLLM: whole calls": Way(arguments="whole"),
}


# -- what is said --

NAMES = st.sampled_from(["look", "look_up", "transfer_to_b", "f"])
ARGUMENTS = st.builds(
    lambda value, indent: json.dumps(value, indent=indent, ensure_ascii=False),
    st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=12), max_size=3),
    st.sampled_from([None, 1]),
)
TEXTS = st.sampled_from(["", " ", "\n\n", "Let me see.", "{}", '{"a": 1}', "h\u00e9 \u2028 \U0001f44d"])


@st.composite
def replies(draw: st.DrawFn, least: int = 0) -> Json:
    """One assistant message, with at least so many calls."""
    made = draw(st.lists(st.tuples(NAMES, ARGUMENTS), min_size=least, max_size=4))
    text = draw(TEXTS)
    message: Json = {"role": "assistant", "content": None if made and not text else text}
    if draw(st.booleans()):
        message["reasoning_content"] = draw(TEXTS.filter(bool))
    if made:
        message["tool_calls"] = [
            {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(made)
        ]
    return message


def as_told(message: Json, way: Way) -> Json:
    """The message without what this way does not tell: ids, or how the arguments were spaced."""
    if "tool_calls" not in message:
        return message
    calls = [{**call, "function": dict(call["function"])} for call in message["tool_calls"]]
    for call in calls:
        if way.id == "none":
            call["id"] = ""
        if way.arguments == "object":
            arguments = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return {**message, "tool_calls": calls}


# -- how it is written --


@st.composite
def written(draw: st.DrawFn, message: Json, way: Way) -> list[Json]:
    """The chunks of a message."""
    rows: list[list[Json]] = []
    for key in ("reasoning_content", "content"):
        rows.append([{key: piece} for piece in draw(cuts(message.get(key) or "")) if piece])
    calls = [
        [{"tool_calls": [delta]} for delta in draw(_deltas(call, place, way))]
        for place, call in enumerate(message.get("tool_calls", []))
    ]
    rows += draw(_mixed(calls)) if way.mixes else [list(itertools.chain(*calls))]
    deltas = draw(_interleaved(rows))
    return draw(_chunks(draw(_joined(deltas))))


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """A text cut anywhere, also into nothing."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[begin:end] for begin, end in itertools.pairwise([0, *places, len(text)])]


@st.composite
def _deltas(draw: st.DrawFn, call: Json, place: int, way: Way) -> list[Json]:
    function = call["function"]
    pieces = draw(_argument_pieces(function["arguments"], way))
    names: list[str | None] = [function["name"], *[None] * (len(pieces) - 1)]
    if way.name == "every":
        names = [function["name"]] * len(pieces)
    elif way.name == "last":
        names.reverse()
    elif way.name == "empty":
        names, pieces = ["", *names], ["", *pieces]
    elif way.name == "pieces":
        parts: list[str | None] = [part for part in draw(cuts(function["name"])) if part]
        # a piece that is what was said before would be a repetition
        parts = parts if len(set(parts)) == len(parts) else [function["name"]]
        names, pieces = [*parts, *[None] * len(pieces)], [*[""] * len(parts), *pieces]
    ids = _ids(call["id"], len(pieces), way)
    return [
        draw(_delta(_index(place, number, way), call_id, name, piece))
        for number, (call_id, name, piece) in enumerate(zip(ids, names, pieces, strict=True))
    ]


@st.composite
def _argument_pieces(draw: st.DrawFn, arguments: str, way: Way) -> list[Any]:
    if way.arguments == "object":
        return [json.loads(arguments)]
    if way.arguments == "whole" or way.anonymous:
        return [arguments]
    pieces: list[Any] = [piece for piece in draw(cuts(arguments)) if piece or draw(st.booleans())]
    empty = json.loads(arguments) == {}
    if way.arguments == "{}" and not empty:
        return ["{}", *(piece for piece in pieces if piece)]
    if way.arguments == "null":
        return [None, *pieces]
    if way.arguments == "repeated":
        return [arguments, *draw(cuts(arguments))]
    return ["", *pieces] if draw(st.booleans()) else pieces


def _ids(call_id: str, count: int, way: Way) -> list[str | None]:
    none: list[str | None] = [None] * (count - 1)
    match way.id:
        case "first":
            return [call_id, *none]
        case "last":
            return [*none, call_id]
        case "every":
            return [call_id] * count
        case "changing":
            return [call_id, *(f"{call_id}-{number}" for number in range(1, count))]
        case _:
            return [None] * count


def _index(place: int, number: int, way: Way) -> int | None:
    indexes = {"zero": 0, "none": None, "late": place if number else None, "gaps": 3 * place + 2}
    return indexes.get(way.index, place)


@st.composite
def _delta(draw: st.DrawFn, index: int | None, call_id: str | None, name: str | None, piece: Any) -> Json:
    """What is not said may be null, empty or missing."""
    function: Json = {"arguments": piece}
    delta: Json = {"function": function}
    absent = draw(st.sampled_from(["missing", "null", "empty"]))
    for where, key, value in ((function, "name", name), (delta, "id", call_id)):
        if value is not None:
            where[key] = value
        elif absent != "missing":
            where[key] = None if absent == "null" else ""
    if index is not None or absent == "null":
        delta["index"] = index
    if draw(st.booleans()):
        delta["type"] = draw(st.sampled_from(["function", None]))
    return delta


@st.composite
def _mixed(draw: st.DrawFn, calls: Sequence[list[Json]]) -> list[list[Json]]:
    """Let calls be written at the same time, each begun in its turn."""
    if len(calls) < 2 or draw(st.booleans()):
        return [list(itertools.chain(*calls))]
    opened = [row[0] for row in calls]
    return [opened + draw(_interleaved([row[1:] for row in calls]))]


@st.composite
def _interleaved(draw: st.DrawFn, rows: Sequence[list[Json]]) -> list[Json]:
    left, mixed = [list(row) for row in rows if row], list[Json]()
    while left:
        row = draw(st.sampled_from(left))
        mixed.append(row.pop(0))
        left = [each for each in left if each]
    return mixed


@st.composite
def _joined(draw: st.DrawFn, deltas: Sequence[Json]) -> list[Json]:
    """Put neighbours into one delta: several calls (google/adk-python 7004), or text beside one."""
    joined: list[Json] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        both_calls = last is not None and "tool_calls" in last and "tool_calls" in delta
        apart = last is not None and not last.keys() & delta.keys()
        if last is not None and (both_calls or apart) and draw(st.booleans()):
            calls = [*last.get("tool_calls", []), *delta.get("tool_calls", [])]
            joined[-1] = {**last, **delta} | ({"tool_calls": calls} if calls else {})
        else:
            joined.append(delta)
    return joined


FINISHES = st.sampled_from(["stop", "tool_calls", "length", "function_call", "content_filter", "", None])
SILENCE = st.sampled_from(
    [
        {"choices": []},
        {"choices": None},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0, "delta": {"content": "", "role": "assistant"}}]},
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
    ]
)


@st.composite
def _chunks(draw: st.DrawFn, deltas: Sequence[Json]) -> list[Json]:
    """Wrap deltas, with silence between them, and the finish reason and the usage at odd places."""
    ends, counts = draw(st.integers(0, len(deltas))), draw(st.sampled_from(["last", "every", "beside"]))
    finish, role = draw(FINISHES), draw(st.sampled_from(["first", "every", "none"]))
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    chunks: list[Json] = []
    for number, delta in enumerate([*deltas, {}]):
        if draw(st.booleans()):
            chunks.append(draw(SILENCE))
        said = (
            {"role": "assistant", **delta} if role == "every" or (role == "first" and not number) else delta
        )
        if draw(st.booleans()) and "content" not in said:
            said = {**said, "content": draw(st.sampled_from(["", None]))}
        if draw(st.booleans()) and "tool_calls" not in said:
            said = {**said, "tool_calls": draw(st.sampled_from([[], None]))}
        choice = {"index": 0, "delta": said, "finish_reason": finish if number >= ends else None}
        chunks.append({"id": "r1", "model": "m", "choices": [choice]})
        if counts == "every":
            chunks[-1]["usage"] = {**usage, "completion_tokens": min(number, 2)}
    if counts == "beside":
        chunks[-1]["usage"] = usage
    else:
        chunks.append({"choices": [], "usage": usage})
    return chunks
