"""How a model is asked for a final answer that fits a schema, and how the JSON is found in what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["OutputMode", "json_in", "schema_prompt"]

OutputMode = Literal["auto", "native", "tool", "prompted"]
"""``"native"``: the vendor takes the schema for the reply's text. ``"tool"``: the model is offered one more
tool, whose arguments are the answer. ``"prompted"``: the schema is part of the instructions. ``"auto"``: the
first of these that the model can do in the request at hand; the provider knows."""

_PROMPT = (
    "Your final answer must be one JSON object that fits the JSON schema below, and nothing else: no words "
    "around it and no code fence.\n{schema}"
)

_FENCED = re.compile(r"^```[ \t]*\w*[ \t]*\n(.*?)\n?^```[ \t]*$", re.MULTILINE | re.DOTALL)


def schema_prompt(schema: Mapping[str, Any]) -> str:
    """Return what a model is told that has to be asked for JSON in words."""
    return _PROMPT.format(schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")))


def json_in(text: str) -> str:
    """Return the JSON object that a final answer consists of, without what a model puts around it.

    That is the whole text, or else its only code fence, or else all from the first brace to the last. It
    is never looked for inside a broken object, and of two objects none is chosen: that is no JSON, and the
    model is asked again.
    """
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        return whole
    fenced: list[str] = _FENCED.findall(text)
    if len(fenced) == 1:
        return fenced[0]
    return text[text.find("{") : text.rfind("}") + 1] or text
