"""Collects the items of a vendor's own tools from the vendor's answer, before a library drops half of them.

A collector reads the objects of one answer, whole or streamed, and keeps the vendor's items as they came.
`noted` adds them to the message of the reply: whole for the vendor, and as calls and citations for the app
and for other vendors, see `routelock.history.VendorCall`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from routelock._json import dicts_in, list_of
from routelock.history.messages import Message
from routelock_providers.vendor_json import json_object
from routelock_providers.vendor_tools import API

__all__ = ["Collector", "collector_for", "noted"]


_Json = Mapping[str, Any]

_SAME_TOOL: Final = {
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "code_interpreter": "code_execution",
}

_OF_LITELLM: Final = frozenset(
    "citation citations web_search_results web_search_calls tool_results code_interpreter_results container "
    "server_tool_calls server_side_tool_invocations".split()
)
"""Keys in which litellm keeps parts of these items. They differ between its releases, and in streams."""


class Collector:
    """Keeps the vendor's items of one reply; each API has its own."""

    api: API = "chat"

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.is_paused = False
        """Whether the vendor has stopped in the middle of its work and goes on when it is sent the items."""
        self.continuation: dict[str, Any] = {}
        """More keys of the request with which the vendor goes on, such as the id of its sandbox."""

    def take(self, value: _Json) -> None:
        """Take in a whole answer, or one event of a streamed answer."""
        raise NotImplementedError

    @property
    def worth_keeping(self) -> bool:
        """Whether the items hold more than text, thoughts and calls of functions."""
        raise NotImplementedError

    def calls(self) -> list[dict[str, Any]]:
        """Return the calls of the vendor's tools."""
        raise NotImplementedError

    def annotations(self) -> list[dict[str, Any]]:
        """Return the citations, in the form of Chat Completions."""
        raise NotImplementedError

    def hide(self, value: dict[str, Any]) -> bool:
        """Remove items that litellm would mistake for calls of functions; return whether there were any.

        An event that holds nothing else becomes empty.
        """
        return False

    def more(self) -> dict[str, Any]:
        """Return other keys of the message, such as images; most APIs have none."""
        return {}


def collector_for(api: API) -> Collector:
    """Return a collector for an API."""
    kinds: Mapping[API, type[Collector]] = {
        "anthropic": _Claude,
        "chat": _Chat,
        "gemini": _Gemini,
        "responses": _Responses,
    }
    return kinds[api]()


def noted(message: Message, collectors: Sequence[Collector]) -> Message:
    """Return a reply with the calls, citations and items of the vendor's own tools.

    Args:
        message: the reply.
        collectors: the collectors of the answers that make up the reply, in order; several after a pause.
    """
    made: dict[str, Any] = dict(message)
    found = collectors[0]
    for each in collectors[1:]:  # a call may have its result in the next answer
        found.items += each.items
    calls, annotations = found.calls(), found.annotations()
    if found.worth_keeping or calls:
        items = found.items if found.worth_keeping else []
        made["vendor_items"] = {"api": found.api, "items": items}
    if calls:
        made["vendor_calls"] = calls
    made |= found.more()
    if annotations or (found.api != "chat" and "annotations" in made):
        made["annotations"] = annotations
    given: dict[str, Any] = made.pop("provider_specific_fields", None) or {}
    if fields := {key: value for key, value in given.items() if key not in _OF_LITELLM}:
        made["provider_specific_fields"] = fields
    return cast(Message, made)


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _given(**fields: object) -> dict[str, Any]:
    """Return a dict without the fields that are empty."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}


def _url_citation(url: object, title: object, start: int, end: int, quote: object = None) -> dict[str, Any]:
    place = {"start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": {**_given(url=url, title=title, content=quote), **place}}


class _Chat(Collector):
    """The pages that Perplexity names beside the message; other vendors' messages hold all that there is."""

    def __init__(self) -> None:
        super().__init__()
        self._pages: list[dict[str, Any]] = []

    def take(self, value: _Json) -> None:
        found = dicts_in(value.get("search_results"))
        urls: object = value.get("citations")
        pages = [_given(url=each.get("url"), title=each.get("title")) for each in found]
        pages = pages or [{"url": url} for url in list_of(urls) if isinstance(url, str)]
        self._pages = pages or self._pages

    @property
    def worth_keeping(self) -> bool:
        return False

    def calls(self) -> list[dict[str, Any]]:
        return [{"tool": "web_search", "sources": self._pages}] if self._pages else []

    def annotations(self) -> list[dict[str, Any]]:
        return [{"type": "url_citation", "url_citation": page} for page in self._pages]


class _Claude(Collector):
    """The content blocks of Anthropic's Messages API."""

    api: API = "anthropic"

    def __init__(self) -> None:
        super().__init__()
        self._json: dict[int, list[str]] = {}
        """The pieces of the input of each call that is still arriving, by the index of its block."""
        self._texts: dict[int, list[str]] = {}

    def take(self, value: _Json) -> None:
        kind = value.get("type")
        if kind == "message":
            self.items = dicts_in(value.get("content"))
            self._end(value, value)
        elif kind == "content_block_start":
            self.items.append({**_dict(value.get("content_block"))})
        elif kind == "content_block_delta" and self.items:
            self._add(_dict(value.get("delta")))
        elif kind == "content_block_stop" and self.items:
            self._close()
        elif kind == "message_delta":
            self._end(_dict(value.get("delta")), value)

    def _end(self, delta: _Json, event: _Json) -> None:
        self.is_paused = delta.get("stop_reason") == "pause_turn"
        container = _dict(delta.get("container")) or _dict(event.get("container"))
        self.continuation = {"container": container["id"]} if container.get("id") else {}

    def _add(self, delta: dict[str, Any]) -> None:
        block, place = self.items[-1], len(self.items) - 1
        kind = delta.get("type")
        if kind == "input_json_delta":
            self._json.setdefault(place, []).append(str(delta.get("partial_json") or ""))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        elif kind in ("text_delta", "thinking_delta"):
            key = "text" if kind == "text_delta" else "thinking"
            self._texts.setdefault(place, [str(block.get(key) or "")]).append(str(delta.get(key) or ""))
        elif kind == "signature_delta":
            block["signature"] = delta.get("signature")

    def _close(self) -> None:
        block, place = self.items[-1], len(self.items) - 1
        if texts := self._texts.pop(place, None):
            block["thinking" if block.get("type") == "thinking" else "text"] = "".join(texts)
        if written := "".join(self._json.pop(place, ())):
            block["input"] = json_object(written)  # empty if it was cut off, or is nested too deep

    @property
    def worth_keeping(self) -> bool:
        plain = ("text", "thinking", "redacted_thinking", "tool_use")
        return any(item.get("type") not in plain or item.get("citations") for item in self.items)

    def more(self) -> dict[str, Any]:
        # litellm adds keys to the blocks of a stream
        thoughts = [each for each in self.items if each.get("type") in ("thinking", "redacted_thinking")]
        return {"thinking_blocks": thoughts} if thoughts else {}

    def calls(self) -> list[dict[str, Any]]:
        results = {item.get("tool_use_id"): item for item in self.items if "tool_use_id" in item}
        return [
            _claude_call(item, results.get(item.get("id"), {}))
            for item in self.items
            if item.get("type") in ("server_tool_use", "mcp_tool_use")
        ]

    def annotations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        start = 0
        for item in self.items:
            if item.get("type") != "text":
                continue
            end = start + len(str(item.get("text") or ""))
            found += [_claude_citation(each, start, end) for each in dicts_in(item.get("citations"))]
            start = end
        return found


def _claude_call(asked: _Json, answered: _Json) -> dict[str, Any]:
    name, content = str(asked.get("name") or ""), answered.get("content")
    results = dicts_in(content) or (list(filter(None, [_dict(content)])))
    error = next((each.get("error_code") for each in results if each.get("error_code")), None)
    sources = [_given(url=each.get("url"), title=_title_of(each)) for each in results if each.get("url")]
    return _given(
        tool=_SAME_TOOL.get(name, name),
        id=asked.get("id"),
        input=_dict(asked.get("input")),
        output=None if sources or error else "\n".join(filter(None, map(_claude_output, results))),
        sources=sources,
        error=error or ("failed" if answered.get("is_error") else None),
    )


def _title_of(result: _Json) -> object:
    return result.get("title") or _dict(result.get("content")).get("title")


def _claude_output(result: _Json) -> str:
    printed = [result.get(key) for key in ("stdout", "stderr", "text")]
    if any(printed) or "stdout" in result or "text" in result:
        return "".join(str(each) for each in printed if each)
    rest = {key: value for key, value in result.items() if key != "type" and value is not None}
    return json.dumps(rest, ensure_ascii=False) if rest else ""


def _claude_citation(given: _Json, start: int, end: int) -> dict[str, Any]:
    if given.get("url"):
        return _url_citation(given["url"], given.get("title"), start, end, given.get("cited_text"))
    fields = _given(
        file_id=given.get("file_id"),
        filename=given.get("document_title") or given.get("title") or given.get("source"),
        quote=given.get("cited_text"),
    )
    return {"type": "file_citation", "file_citation": {**fields, "start_index": start, "end_index": end}}


class _Responses(Collector):
    """The output items of the Responses API."""

    api: API = "responses"

    def take(self, value: _Json) -> None:
        kind = value.get("type")
        if kind == "response.output_item.done":
            self.items.append(_dict(value.get("item")))
        elif kind in ("response.completed", "response.incomplete"):
            self._whole(_dict(value.get("response")))
        elif value.get("object") == "response":
            self._whole(value)

    def hide(self, value: dict[str, Any]) -> bool:
        # xAI's search in posts; a custom tool is never offered
        kind = str(value.get("type"))
        if kind.startswith("response.custom_tool_call") or _is_custom(value.get("item")):
            value.clear()
            return True
        response = _dict(value.get("response")) or value
        output = dicts_in(response.get("output"))
        if not any(map(_is_custom, output)):
            return False
        response["output"] = [item for item in output if not _is_custom(item)]
        return True

    def _whole(self, response: _Json) -> None:
        # the last event has the thoughts encrypted anew, but litellm sends back the first encryption
        thoughts = {item.get("id"): item for item in self.items if item.get("type") == "reasoning"}
        output = dicts_in(response.get("output"))
        self.items = [thoughts.get(item.get("id"), item) for item in output] or self.items

    @property
    def worth_keeping(self) -> bool:
        plain = ("message", "reasoning", "function_call")
        return any(item.get("type") not in plain for item in self.items)

    def calls(self) -> list[dict[str, Any]]:
        return [
            _responses_call(item)
            for item in self.items
            if str(item.get("type")).endswith("_call") and item.get("type") != "function_call"
        ]

    def more(self) -> dict[str, Any]:
        made = [item for item in self.items if item.get("type") == "image_generation_call"]
        images = [_image(item) for item in made if item.get("result")]
        return {"images": images} if images else {}

    def annotations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        start = 0
        for item in self.items:
            for part in dicts_in(item.get("content")) if item.get("type") == "message" else ():
                found += [_responses_citation(each, start) for each in dicts_in(part.get("annotations"))]
                start += len(str(part.get("text") or ""))
        return found


def _image(item: _Json) -> dict[str, Any]:
    """Return an image that the vendor made, in the form in which chat APIs answer images."""
    kind = item.get("output_format") or "png"
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{item['result']}"}}


def _is_custom(item: object) -> bool:
    return _dict(item).get("type") == "custom_tool_call"


def _responses_call(item: _Json) -> dict[str, Any]:
    kind = str(item["type"]).removesuffix("_call")
    action = {key: value for key, value in _dict(item.get("action")).items() if value is not None}
    found = dicts_in(action.pop("sources", None))
    results = dicts_in(item.get("results"))
    asked = {
        key: item[key] for key in ("code", "queries", "arguments", "input", "revised_prompt") if item.get(key)
    }
    printed = [str(each.get("logs") or "") for each in dicts_in(item.get("outputs"))]
    sources = [_given(url=each.get("url"), title=each.get("title") or each.get("name")) for each in found]
    sources += [_given(file_id=each.get("file_id"), title=each.get("filename")) for each in results]
    error: Any = item.get("error")
    failed = item.get("status") in ("failed", "incomplete")
    return _given(
        tool=_SAME_TOOL.get(kind, str(item.get("name") or kind) if kind in ("mcp", "custom_tool") else kind),
        id=item.get("id"),
        input=action or _read(asked),
        output="\n".join(filter(None, printed))
        or (item.get("output") if isinstance(item.get("output"), str) else None),
        sources=sources,
        error=(error if isinstance(error, str) else json.dumps(error))
        if error
        else item["status"]
        if failed
        else None,
    )


def _read(asked: dict[str, Any]) -> _Json:
    """Return the input of a call; the arguments of an MCP call are JSON in a text."""
    arguments = asked.get("arguments")
    read = json_object(arguments.encode()) if isinstance(arguments, str) else {}
    return read or asked


def _responses_citation(given: _Json, offset: int) -> dict[str, Any]:
    fields = {key: value for key, value in given.items() if key != "type"}
    for key in ("start_index", "end_index"):
        if isinstance(fields.get(key), int):
            fields[key] += offset
    kind = str(given.get("type"))
    return {"type": kind, kind: fields}


class _Gemini(Collector):
    """The parts of Google's generateContent, and what its search found."""

    api: API = "gemini"

    def __init__(self) -> None:
        super().__init__()
        self._found: list[dict[str, Any]] = []
        """The grounding metadata; a stream sends it with the last chunk, or a growing one with each."""
        self._read: list[dict[str, Any]] = []

    def take(self, value: _Json) -> None:
        for candidate in dicts_in(value.get("candidates"))[:1]:
            for part in dicts_in(_dict(candidate.get("content")).get("parts")):
                self._add(part)
            if found := _dict(candidate.get("groundingMetadata")):
                self._found = [{**(self._found[0] if self._found else {}), **found}]
            self._read = dicts_in(_dict(candidate.get("urlContextMetadata")).get("urlMetadata")) or self._read

    def _add(self, part: dict[str, Any]) -> None:
        last = self.items[-1] if self.items else {}
        is_next = {"text"} <= part.keys() and "text" in last and last.get("thought") == part.get("thought")
        if is_next and "thoughtSignature" not in last:
            self.items[-1] = {**last, **part, "text": last["text"] + part["text"]}
        else:
            self.items.append(part)

    @property
    def worth_keeping(self) -> bool:
        own = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
        return any(key in item for item in self.items for key in own)

    def calls(self) -> list[dict[str, Any]]:
        made = [*_gemini_code(self.items), *map(_gemini_call, self.items)]
        made = [each for each in made if each]
        found = self._found[0] if self._found else {}
        sources = [_gemini_source(each) for each in dicts_in(found.get("groundingChunks"))]
        queries = [each for each in list_of(found.get("webSearchQueries")) if each]
        _add_search(made, "web_search", [each for each in sources if "url" in each], queries)
        _add_search(made, "file_search", [each for each in sources if "file_id" in each])
        if self._read:
            sources = [_given(url=each.get("retrievedUrl")) for each in self._read]
            urls = [each["url"] for each in sources if each]
            made.append(_given(tool="web_fetch", input={"urls": urls}, sources=sources))
        return made

    def annotations(self) -> list[dict[str, Any]]:
        found = self._found[0] if self._found else {}
        chunks = [_gemini_source(each) for each in dicts_in(found.get("groundingChunks"))]
        text = "".join(str(item["text"]) for item in self.items if "text" in item and not item.get("thought"))
        return [
            _gemini_citation(chunks[index], _dict(support.get("segment")), text.encode())
            for support in dicts_in(found.get("groundingSupports"))
            for index in list_of(support.get("groundingChunkIndices"))
            if isinstance(index, int) and index < len(chunks)
        ]


def _gemini_code(items: Sequence[_Json]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for item in items:
        if code := _dict(item.get("executableCode")):
            made.append(_given(tool="code_execution", id=code.get("id"), input=_given(code=code.get("code"))))
        elif made and (result := _dict(item.get("codeExecutionResult"))):
            failed = result.get("outcome") not in (None, "OUTCOME_OK")
            made[-1] |= _given(output=result.get("output"), error=result.get("outcome") if failed else None)
    return made


def _gemini_call(item: _Json) -> dict[str, Any]:
    """Return the call of a vendor's tool that a part has; empty for other parts.

    Gemini has such parts from version 3 on, if functions are offered too.
    """
    call = _dict(item.get("toolCall"))
    kind = str(call.get("toolType") or "")
    name = "web_search" if kind.startswith("GOOGLE_SEARCH") else kind.lower()
    return _given(tool=name, id=call.get("id"), input=_dict(call.get("args"))) if call else {}


def _add_search(
    made: list[dict[str, Any]], tool: str, sources: Sequence[_Json], queries: Sequence[object] = ()
) -> None:
    """Add the results of a search to its call, or a call if Gemini has written none down."""
    searches = [each for each in made if each["tool"] == tool]
    if searches and sources:
        searches[-1]["sources"] = [*sources]
    elif (queries or (sources and tool == "file_search")) and not searches:
        asked = {"queries": [*queries]} if queries else {}
        made.append(_given(tool=tool, input=asked, sources=[*sources]))


def _gemini_source(chunk: _Json) -> dict[str, Any]:
    if file := _dict(chunk.get("retrievedContext")):
        store = file.get("fileSearchStore") or file.get("uri")
        return _given(file_id=store, title=file.get("title"), quote=file.get("text"))
    web = _dict(chunk.get("web"))
    return _given(url=web.get("uri"), title=web.get("title"))


def _gemini_citation(source: _Json, segment: _Json, text: bytes) -> dict[str, Any]:
    """Return a citation; Google counts the bytes of the text, all others count its characters."""
    start, end = (segment.get(key) or 0 for key in ("startIndex", "endIndex"))
    places = [len(text[:place].decode(errors="ignore")) for place in (start, end)]
    if "url" in source:
        return _url_citation(source["url"], source.get("title"), places[0], places[1])
    return {
        "type": "file_citation",
        "file_citation": {**source, "start_index": places[0], "end_index": places[1]},
    }
