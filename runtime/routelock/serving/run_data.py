"""The result of a run, as the data of protocols with tasks and tools. No input or output."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from routelock.history.content import media_of
from routelock.run.result import RunResult
from routelock.usage import Usage

__all__ = ["INCOMPLETE", "MadeFile", "delta_text", "made_files", "output_data", "run_data", "usage_data"]


INCOMPLETE = {
    "length": "The answer is incomplete, because the run or the model reached a limit.",
    "content_filter": "The answer is incomplete, because the model's provider filtered its content.",
}
"""The finish reasons of answers that are incomplete, with sentences for a client's model."""


def usage_data(usage: Usage) -> dict[str, int]:
    """Return the usage of a run, with names in camel case."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "cachedTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }


def run_data(result: RunResult[Any], finish: str) -> dict[str, Any]:
    """Return the agent that answered, the usage, and why the answer is incomplete, if it is.

    Args:
        result: the result of the run.
        finish: its finish reason, as chat completions have it.
    """
    cut = {"incomplete": finish} if finish in INCOMPLETE else {}
    return {"agent": result.last_agent.name, "usage": usage_data(result.usage), **cut}


def output_data(result: RunResult[Any]) -> dict[str, JsonValue] | None:
    """Return the output of a run if the agent that answered has an output type, otherwise None.

    A value that is not an object is in ``{"response": ...}``: clients accept objects only.
    """
    given = result.stop_reason == "limit" and not isinstance(result.final_output, str | None)
    if not (given or result.stop_reason == "done") or result.last_agent.output is None:
        return None
    plain: JsonValue = to_jsonable_python(result.final_output, fallback=str, inf_nan_mode="strings")
    return plain if isinstance(plain, dict) else {"response": plain}


def delta_text(deltas: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of deltas of `routelock.serving.completions`."""
    return "".join(delta.get("content") or delta.get("refusal") or "" for delta in deltas)


_DATA_URL = re.compile(r"data:(?P<kind>[^;,]*)(?:;[^;,]*)*;base64,(?P<bytes>.*)", re.DOTALL)

_ADDRESSES = ("url", "file_data", "file_url", "file_id")
"""The keys of a media part that may hold its bytes, as a data URL, or its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFile:
    """An image, a sound or a file that a model made in a run."""

    kind: str
    """The media type."""
    name: str = ""
    """Its name, if it has one."""
    data: str = ""
    """The bytes in Base64; empty if there is only an address."""
    url: str = ""


def made_files(result: RunResult[Any]) -> Iterator[MadeFile]:
    """Yield the images, sounds and files that models made in a run, without those that only a vendor has."""
    for item in result.items[result.input_count :]:
        if item.message["role"] == "assistant":
            made = cast("list[dict[str, Any]]", item.message.get("images") or [])
            for media in (*made, *media_of(item.message.get("content"))):
                if (file := _file(media)) is not None:
                    yield file


def _file(media: Mapping[str, Any]) -> MadeFile | None:
    about: Mapping[str, Any] = media.get(str(media.get("type"))) or {}
    if media.get("type") == "input_audio":
        form = str(about.get("format") or "wav")
        return MadeFile(kind=f"audio/{form}", data=str(about.get("data") or ""))
    where = next((text for key in _ADDRESSES if isinstance(text := about.get(key), str)), "")
    name = str(about.get("filename") or "")
    kind = about.get("format") or mimetypes.guess_type(name or where.partition("?")[0])[0]
    if (data := _DATA_URL.match(where)) is not None:
        kind = data["kind"] or kind
        return MadeFile(kind=kind or "application/octet-stream", name=name, data=data["bytes"])
    if not where.startswith(("https://", "http://")):
        return None
    return MadeFile(kind=kind or "application/octet-stream", name=name, url=where)
