"""The arguments of a tool call while they arrive: text in pieces, which ought to become one JSON object."""

from __future__ import annotations

import json

from routelock.pieces import together

__all__ = ["as_text", "is_json", "starts_again", "whole"]

_decoder = json.JSONDecoder()


def as_text(arguments: object) -> str:
    """Return arguments as text; some vendors send an object."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def starts_again(written: list[str], more: str) -> bool:
    """Whether ``more`` begins another object, after a whole one."""
    # the cheap look at both ends keeps calls that repeat their name linear
    if not written or not more.lstrip().startswith("{") or not written[-1].rstrip().endswith("}"):
        return False
    return is_json("".join(written))


def whole(pieces: list[str]) -> str:
    """Return arguments as they were meant; what is broken or ambiguous stays as it came.

    * An empty object before another one is none: an Anthropic block begins with it, and some gateways
      pass that on (BerriAI/litellm 4537).
    * One object said over and over, whole and then in pieces, is one. litellm 1.105 does so where it makes
      up a stream (xAI's Responses), google/adk-python 665 as well. No JSON text is another one repeated.
    """
    if len(pieces) > 1 and pieces[0].strip() == "{}" and pieces[1].lstrip().startswith("{"):
        pieces = pieces[1:]
    text = together(pieces)
    if "}{" not in text:
        return text
    try:
        _, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return text
    times, rest = divmod(len(text), end)
    return text[:end] if not rest and text == text[:end] * times else text


def is_json(text: str) -> bool:
    """Whether it can be read."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # nobody can read what is nested that deep either
        return False
    return True
