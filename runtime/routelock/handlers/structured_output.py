"""Structured output in the text of a reply: how a model is asked for it, and how it is found."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["json_begun", "json_in", "schema_prompt"]


_PROMPT = (
    "Your final answer must be one JSON object that fits the JSON schema below, and nothing else: no words "
    "around it and no code fence.\n{schema}"
)

_FENCE = re.compile(r"^```[ \t]*\w*[ \t]*\n", re.MULTILINE)

_FENCED = re.compile(r"^```[ \t]*\w*[ \t]*\n(.*?)\n?^```[ \t]*$", re.MULTILINE | re.DOTALL)


def schema_prompt(schema: Mapping[str, Any]) -> str:
    """Return the instruction that asks a model for JSON of a schema."""
    return _PROMPT.format(schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")))


def json_in(text: str) -> str:
    """Return the JSON object of a final answer, without the text that a model put around it.

    The object is the whole text, else the text of the only code fence, else the text from the first brace to
    the last one. A text with two objects, or with a broken object, comes back with both: it is not valid
    JSON, so the run asks the model again.
    """
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        return whole
    fenced: list[str] = _FENCED.findall(text)
    if len(fenced) == 1:
        return fenced[0]
    return text[text.find("{") : text.rfind("}") + 1] or text


def json_begun(text: str) -> str:
    """Return the beginning of the JSON object in an unfinished final answer; empty without one.

    `json_in` does the same with a complete answer.
    """
    start = 0
    if not text.lstrip().startswith("{") and (fence := _FENCE.search(text)) is not None:
        start = fence.end()
    found = text.find("{", start)
    return "" if found < 0 else text[found:]
