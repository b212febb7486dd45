"""Vendors' own tools in a request: which vendor takes which, and how it spells them. Nothing is sent here.

The portable names are those of `routelock.tools.VendorTool`. A spec in a vendor's own spelling is sent as it
is, unless it is known to be another vendor's, or a tool that the app would have to run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from routelock.errors import ConfigError
from routelock.handlers.port import ToolChoice, ToolSpec

__all__ = ["API", "AddedTools", "AskedModel", "added_tools", "api_of", "check_settings", "takes_both"]


API = Literal["anthropic", "gemini", "responses", "chat"]
"""The format of a request: Anthropic's Messages, Google's generateContent, OpenAI's Responses, or Chat
Completions."""

_Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """The model that a request is for."""

    api: API
    provider: str
    """litellm's name of the provider, such as ``"groq"``."""
    model: str
    """The name of the model without the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedTools:
    """The additions of the vendor's own tools to the body of a request."""

    tools: Sequence[_Json] = ()
    """Appended to the tools of the body."""
    fields: _Json = field(default_factory=lambda: {})
    """Other keys of the body. A list is appended to one that is there, an object is merged into it."""
    betas: Sequence[str] = ()
    """Values for Anthropic's header ``anthropic-beta``."""


def api_of(provider: str, name: str, *, responses: bool) -> API:
    """Return the format of the requests that litellm sends for a model.

    Args:
        provider: litellm's name of the provider.
        name: the name of the model.
        responses: whether the call goes to the Responses API.
    """
    if responses:
        return "responses"
    on_vertex = provider in ("vertex_ai", "vertex_ai_beta")
    if provider == "anthropic" or ((on_vertex or provider == "azure_ai") and "claude" in name):
        return "anthropic"
    return "gemini" if provider == "gemini" or (on_vertex and "gemini" in name) else "chat"


def added_tools(
    specs: Sequence[ToolSpec], to: AskedModel, *, functions: bool, choice: ToolChoice | None = None
) -> AddedTools:
    """Return the additions to a request for the vendor's own tools.

    Args:
        specs: the specs, portable or in the vendor's spelling.
        to: the model.
        functions: whether the request offers functions or handoffs too.
        choice: the tool choice of the request; only the name of one of the tools is looked at.

    Raises:
        ConfigError: the vendor lacks the tool, or one of its options, or does not take it beside functions.
    """
    added = [_added(spec, to) for spec in specs]
    fields: dict[str, Any] = {}
    for each in added:
        for key, value in each.fields.items():
            fields[key] = [*fields.get(key, ()), *value] if isinstance(value, list) else value
    tools = [tool for each in added for tool in each.tools]
    if choice == "required" and tools and not functions and to.api != "gemini":
        fields["tool_choice"] = {"type": "any"} if to.api == "anthropic" else "required"
    if to.api == "gemini" and functions and tools:
        fields |= _beside_functions(tools, to)
    forced = next((spec for spec in specs if choice is not None and spec.get("type") == choice), None)
    if forced is not None:
        fields["tool_choice"] = _forced(forced, to)
    return AddedTools(tools=tools, fields=fields, betas=[beta for each in added for beta in each.betas])


_SEARCHES: Final = re.compile("web_search|google_?[sS]earch")


def check_settings(specs: Sequence[ToolSpec], added: AddedTools, settings: _Json) -> None:
    """Check that no setting duplicates a tool.

    litellm makes a tool of ``web_search_options`` for vendors that do not have the setting.

    Raises:
        ConfigError: a setting asks for the same as a tool.
    """
    given = {*settings, *(settings.get("extra_body") or ())}
    taken = added.fields.keys() - {"include", "toolConfig"}
    if any(_SEARCHES.search(str(spec.get("type") or next(iter(spec)))) for spec in specs):
        taken |= {"web_search_options"}
    if double := sorted(given & taken):
        raise ConfigError(
            f"The setting {', '.join(map(repr, double))} and a tool of the vendor in Agent(tools=[...]) ask "
            "for the same: leave the setting out, and give the tool its options."
        )


class _Options:
    """The options of one portable tool. Options that no translation has taken are refused."""

    def __init__(self, spec: ToolSpec, to: AskedModel) -> None:
        self.to = to
        self.rest = {key: value for key, value in spec.items() if key != "type"}

    def take(self, **theirs: str) -> dict[str, Any]:
        """Return the given ones of some options, by the vendor's names for them."""
        return {new: self.rest.pop(name) for name, new in theirs.items() if name in self.rest}


def _web_options(options: _Options) -> dict[str, Any]:
    """Return the hints of a web search in the form of OpenAI's Responses API."""
    return {**options.take(**_same("search_context_size")), **_location(options)}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _location(options: _Options) -> dict[str, Any]:
    given = options.take(**_same("user_location"))
    return {key: {"type": "approximate", **value} for key, value in given.items()}


def _domains(options: _Options, allowed: str, blocked: str = "") -> dict[str, Any]:
    return options.take(allowed_domains=allowed, **({"blocked_domains": blocked} if blocked else {}))


# Anthropic: docs.claude.com, "Web search tool", "Web fetch tool", "Code execution tool"


def _claude_search(options: _Options) -> AddedTools:
    kept = {**options.take(**_same("max_uses", "allowed_domains", "blocked_domains")), **_location(options)}
    options.take(**_same("search_context_size"))
    return AddedTools(tools=[{"type": "web_search_20250305", "name": "web_search", **kept}])


def _claude_fetch(options: _Options) -> AddedTools:
    kept = options.take(**_same("max_uses", "allowed_domains", "blocked_domains"))
    tool = {"type": "web_fetch_20250910", "name": "web_fetch", **kept}
    return AddedTools(tools=[tool], betas=_betas(tool))


def _claude_code(options: _Options) -> AddedTools:
    tool = {"type": "code_execution_20250825", "name": "code_execution"}
    return AddedTools(tools=[tool], betas=_betas(tool))


def _claude_tools(options: _Options) -> AddedTools:
    # "Tool search tool": the beta has another name on Vertex AI
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    on_vertex = options.to.provider.startswith("vertex_ai")
    beta = "tool-search-tool-2025-10-19" if on_vertex else "advanced-tool-use-2025-11-20"
    tools: list[_Json] = [
        {
            "name": each["name"],
            "description": each.get("description", ""),
            "input_schema": each.get("parameters") or {"type": "object", "properties": {}},
            "defer_loading": True,
        }
        for each in _deferred(options)
    ]
    return AddedTools(tools=[search, *tools], betas=[beta])


def _responses_tools(options: _Options) -> AddedTools:
    # "Tool search"; without the key the API takes a schema for a strict one
    tools: list[_Json] = [
        {"type": "function", "strict": False, **each, "defer_loading": True} for each in _deferred(options)
    ]
    return AddedTools(tools=[{"type": "tool_search"}, *tools])


def _deferred(options: _Options) -> Sequence[_Json]:
    """Return the functions that the vendor searches for, see `routelock.agents.deferral`."""
    specs: Sequence[ToolSpec] = options.rest.pop("tools", ())
    return [spec["function"] for spec in specs]


def _betas(tool: ToolSpec) -> Sequence[str]:
    dated = re.fullmatch(r"(code_execution|web_fetch)_(2025)(\d\d)(\d\d)", str(tool.get("type")))
    return [f"{dated[1].replace('_', '-')}-{dated[2]}-{dated[3]}-{dated[4]}"] if dated else ()


# Google: ai.google.dev, "Grounding with Google Search", "Code execution", "URL context", "File Search"


def _google_search(options: _Options) -> AddedTools:
    options.take(**_same("user_location", "search_context_size"))
    return AddedTools(tools=[{"googleSearch": {}}])


def _google_files(options: _Options) -> AddedTools:
    kept = options.take(stores="fileSearchStoreNames", max_results="topK")
    return AddedTools(tools=[{"fileSearch": kept}])


# OpenAI: platform.openai.com, "Web search", "Code interpreter", "File search", "Image generation". xAI's
# Responses API takes the same names (docs.x.ai, "Tools")


def _responses_search(options: _Options) -> AddedTools:
    filters = _domains(options, "allowed_domains", "excluded_domains" if options.to.provider == "xai" else "")
    kept = {**({"filters": filters} if filters else {}), **_web_options(options), **_own(options)}
    tool = {"type": "web_search", **kept}
    return AddedTools(tools=[tool], fields=_included(tool, options.to))


def _responses_code(options: _Options) -> AddedTools:
    tool = {"type": "code_interpreter", "container": {"type": "auto"}, **_own(options)}
    if options.to.provider == "xai":
        del tool["container"]
    return AddedTools(tools=[tool], fields=_included(tool, options.to))


def _responses_files(options: _Options) -> AddedTools:
    kept = options.take(stores="vector_store_ids", max_results="max_num_results")
    tool = {"type": "file_search", **kept, **_own(options)}
    return AddedTools(tools=[tool], fields=_included(tool, options.to))


def _responses_images(options: _Options) -> AddedTools:
    return AddedTools(tools=[{"type": "image_generation", **_own(options)}])


def _own(options: _Options) -> dict[str, Any]:
    """Return the options that are not portable: the dict is in the spelling of the Responses API."""
    return options.take(**_same(*(name for name in options.rest if name not in _PORTABLE_OPTIONS)))


_PORTABLE_OPTIONS: Final = frozenset(
    ("max_uses", "allowed_domains", "blocked_domains", "user_location", "search_context_size", "stores")
)

_INCLUDE: Final = {
    "web_search": "web_search_call.action.sources",
    "code_interpreter": "code_interpreter_call.outputs",
    "file_search": "file_search_call.results",
}
"""The results that the Responses API leaves out of its answer unless ``include`` names them, by tool."""


def _included(tool: ToolSpec, to: AskedModel) -> dict[str, Any]:
    found = _INCLUDE.get(str(tool.get("type"))) if to.provider in ("openai", "azure") else None
    return {"include": [found]} if found else {}


# Chat Completions


def _openai_search(options: _Options) -> AddedTools:
    if "search" not in options.to.model:
        raise ConfigError(
            f"The model {options.to.model!r} takes no web_search on OpenAI's Chat Completions API: only its "
            "search models do, such as 'openai/gpt-5-search-api'. Write the model as "
            f"'openai/responses/{options.to.model}', which asks the Responses API."
        )
    hints = _web_options(options)
    if given := hints.get("user_location"):
        place = {key: value for key, value in given.items() if key not in ("type", "approximate")}
        hints["user_location"] = {"type": "approximate", "approximate": given.get("approximate") or place}
    return AddedTools(fields={"web_search_options": hints})


def _openrouter_search(options: _Options) -> AddedTools:
    # openrouter.ai/docs, "Web search"
    kept = options.take(**_same("max_uses", "allowed_domains"), blocked_domains="excluded_domains")
    kept |= _web_options(options)
    return AddedTools(tools=[{"type": "openrouter:web_search", **({"parameters": kept} if kept else {})}])


def _perplexity_search(options: _Options) -> AddedTools:
    # docs.perplexity.ai: every model searches
    allowed, blocked = options.rest.pop("allowed_domains", ()), options.rest.pop("blocked_domains", ())
    domains = [*allowed, *(f"-{domain}" for domain in blocked)]
    hints = _web_options(options)
    fields: dict[str, Any] = {"web_search_options": hints} if hints else {}
    return AddedTools(fields={**fields, **({"search_domain_filter": domains} if domains else {})})


def _groq_search(options: _Options) -> AddedTools:
    # console.groq.com/docs, "Browser search" and "Compound": Compound searches without being told to
    if "compound" not in options.to.model:
        options.take(**_same("user_location", "search_context_size"))
        return AddedTools(tools=[{"type": "browser_search"}])
    kept = _domains(options, "include_domains", "exclude_domains")
    location = options.rest.pop("user_location", {})
    options.take(**_same("search_context_size"))
    kept |= {"country": location["country"]} if "country" in location else {}
    return AddedTools(fields={"search_settings": kept} if kept else {})


def _groq_code(options: _Options) -> AddedTools:
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    return AddedTools(tools=() if "compound" in options.to.model else (tool,))


def _only(tool: _Json) -> Callable[[_Options], AddedTools]:
    return lambda _: AddedTools(tools=[tool])


_Tools = Mapping[str, Callable[[_Options], AddedTools]]

_TAKEN: Final[Mapping[str, _Tools]] = {
    "anthropic": {
        "web_search": _claude_search,
        "web_fetch": _claude_fetch,
        "code_execution": _claude_code,
        "tool_search": _claude_tools,
    },
    "gemini": {
        "web_search": _google_search,
        "web_fetch": _only({"urlContext": {}}),
        "code_execution": _only({"codeExecution": {}}),
        "file_search": _google_files,
    },
    "responses": {
        "web_search": _responses_search,
        "code_execution": _responses_code,
        "file_search": _responses_files,
        "image_generation": _responses_images,
        "tool_search": _responses_tools,
    },
    "openai": {"web_search": _openai_search},
    "openrouter": {"web_search": _openrouter_search},
    "perplexity": {"web_search": _perplexity_search},
    "groq": {"web_search": _groq_search, "code_execution": _groq_code},
}
"""The portable tools of each API, and of each vendor of Chat Completions that has some."""

_LABELS: Final = {
    "anthropic": "Anthropic ('anthropic/...')",
    "gemini": "Gemini ('gemini/...')",
    "responses": "OpenAI's Responses API ('openai/responses/...')",
    "openai": "OpenAI's search models",
    "openrouter": "OpenRouter ('openrouter/...')",
    "perplexity": "Perplexity ('perplexity/...')",
    "groq": "Groq ('groq/...')",
}

_WITHOUT: Final = frozenset(
    "azure azure_ai bedrock bedrock_converse cerebras codestral cohere cohere_chat databricks deepinfra "
    "deepseek fireworks_ai huggingface mistral nvidia_nim ollama ollama_chat replicate sambanova snowflake "
    "together_ai vertex_ai vertex_ai_beta watsonx xai".split()
)
"""Vendors whose chat API has no such tools. Any other server may be the app's and gets the spec as it is."""

_NAMES: Final = frozenset(name for tools in _TAKEN.values() for name in tools)

_GOOGLES: Final = frozenset(
    "googleSearch google_search googleSearchRetrieval enterpriseWebSearch codeExecution code_execution "
    "urlContext url_context fileSearch googleMaps".split()
)
"""Keys of Google's tools, which have no type."""

_SPELLINGS: Final = (
    (re.compile(r"(web_search|web_fetch|code_execution|tool_search_tool_\w+|advisor)_\d{8}"), ("anthropic",)),
    (re.compile(r"web_search(_preview)?(_\d{4}_\d\d_\d\d)|web_search_preview"), ("responses",)),
    (re.compile("image_generation|file_search|x_search"), ("responses",)),
    (re.compile("code_interpreter"), ("responses", "groq")),
    (re.compile("browser_search"), ("groq",)),
    (re.compile("openrouter:.+"), ("openrouter",)),
)
"""Types that are known to be some vendors' own, with their keys in `_TAKEN`."""

_RUN_BY_THE_APP: Final = re.compile(
    r"(computer|bash|text_editor|memory)_\d{8}|computer_use_preview|computer|local_shell|shell|apply_patch|custom"
)
"""Tools whose calls the vendor sends back for the app to run."""

_BEFORE_3: Final = re.compile(r"gemini-[12](\D|$)")


def _added(spec: ToolSpec, to: AskedModel) -> AddedTools:
    kind = str(spec.get("type") or "")
    key = _key_of(to)
    if _RUN_BY_THE_APP.fullmatch(kind):
        raise ConfigError(
            f"The app has to run the tool {kind!r}, not the vendor, and routelock does not answer its calls. "
            "Write a function tool for it instead."
        )
    if key not in _TAKEN and key not in _WITHOUT and kind != "tool_search":
        return AddedTools(tools=[spec])  # a server of the app may have such a tool
    if kind in _NAMES:
        if (translate := _TAKEN.get(key, {}).get(kind)) is None:
            raise _refused(kind, to, [name for name, tools in _TAKEN.items() if kind in tools])
        return _translated(translate, spec, to)
    if (owners := _owners(kind, spec)) and key not in owners:
        raise _refused(kind or next(iter(spec)), to, owners)
    fields = _included(spec, to) if to.api == "responses" else {}
    return AddedTools(tools=[spec], fields=fields, betas=_betas(spec) if to.api == "anthropic" else ())


def _key_of(to: AskedModel) -> str:
    """Return the key of a model in `_TAKEN`; OpenAI's search models are known on any server."""
    if to.api != "chat":
        return to.api
    return "openai" if re.match("gpt-.*search", to.model) else to.provider


def _owners(kind: str, spec: ToolSpec) -> Sequence[str]:
    if not kind:
        return ["gemini"] if not _GOOGLES.isdisjoint(spec) else []
    return next((owners for pattern, owners in _SPELLINGS if pattern.fullmatch(kind)), ())


def _translated(translate: Callable[[_Options], AddedTools], spec: ToolSpec, to: AskedModel) -> AddedTools:
    options = _Options(spec, to)
    added = translate(options)
    if options.rest:
        raise ConfigError(
            f"The tool {spec['type']!r} takes no {', '.join(map(repr, options.rest))} on {_named(to)}. Leave "
            "it out, or write the tool in the vendor's own spelling."
        )
    return added


def _refused(kind: str, to: AskedModel, owners: Sequence[str]) -> ConfigError:
    takers = ", ".join(_LABELS[owner] for owner in owners)
    return ConfigError(
        f"The vendor's tool {kind!r} does not exist on {_named(to)}. It exists on {takers}. Use one of "
        "these, or give the agent a function instead."
    )


def _named(to: AskedModel) -> str:
    apis = {"responses": "the Responses API", "chat": "Chat Completions"}
    where = f" through {apis[to.api]}" if to.api in apis else ""
    return f"{to.provider or 'this provider'} (model {to.model!r}{where})"


def takes_both(to: AskedModel) -> bool:
    """Return whether a model takes the vendor's own tools beside functions."""
    return to.api != "gemini" or not _BEFORE_3.search(to.model)


def _beside_functions(tools: Sequence[_Json], to: AskedModel) -> dict[str, Any]:
    """Return the setting for Google's own tools beside functions, which Gemini takes from version 3 on."""
    if not takes_both(to):
        names = [next(iter(tool)) for tool in tools]
        raise ConfigError(
            f"{to.model} takes no functions and handoffs beside Google's {', '.join(names)}; Gemini does "
            "from version 3 on. Use a newer model, or an agent that has these tools alone, called as a tool."
        )
    return {"toolConfig": {"includeServerSideToolInvocations": True}}


def _forced(spec: ToolSpec, to: AskedModel) -> _Json:
    kind = str(spec.get("type"))
    sent = _added(spec, to).tools
    if to.api == "anthropic" and sent:
        return {"type": "tool", "name": sent[0]["name"]}
    if to.api == "responses" and sent:
        return {"type": sent[0]["type"]}
    raise ConfigError(f"{_named(to)} cannot be forced to call its own tool {kind!r}: leave tool_choice out.")
