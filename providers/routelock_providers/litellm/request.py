"""Turns a request into the arguments of one call to litellm."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from routelock._sendable import sendable
from routelock.handlers.port import Request, ToolChoice, ToolSpec, tool_name, vendor_specs
from routelock.history.messages import Message, calls_of
from routelock_providers.chat_completions.openai_compatible import PATH
from routelock_providers.litellm.prices import model_info
from routelock_providers.litellm.wire import Turn, own_turns, turns_in
from routelock_providers.request_shape import prepare, tool_choice, tools_for
from routelock_providers.structured_output import Plan, plan_for, with_prompt
from routelock_providers.vendor_tools import (
    API,
    AddedTools,
    AskedModel,
    added_tools,
    api_of,
    check_settings,
    takes_both,
)
from routelock_providers.vendors import (
    VendorRules,
    can_be_forced,
    cannot_stream,
    ignores_tool_choice,
    split_model,
    takes_schema,
    thinks_before_calls,
    vendor_rules,
)

__all__ = [
    "OWN_CONNECTION",
    "Call",
    "Target",
    "as_sent",
    "asked_by_name",
    "asked_model",
    "call_for",
    "find_target",
    "first_variable",
]


_READ_BY_LITELLM = frozenset("anthropic azure_ai bedrock databricks gemini vertex_ai vertex_ai_beta".split())
"""Providers for which litellm converts its own keys in a message back to the vendor's."""

_INVENTED = frozenset(("provider_specific_fields", "thinking_blocks", "reasoning_items"))
"""Keys that litellm invented. It sends them to other vendors unchanged, and strict ones refuse them."""

_OPENAIS_OWN = "https://api.openai.com/v1"

_TAKE_SCHEMAS = frozenset(("azure", "ollama", "ollama_chat", "openai"))
"""Providers all of whose models take schemas. For Ollama, litellm would ask the server and block the event
loop."""

_READ_ANOTHER_WAY = frozenset(("openrouter",))
"""Providers whose model names litellm reads in another way if the provider is passed too."""

OWN_CONNECTION = frozenset(("client", "shared_session", "ssl_verify"))
"""Settings with a connection of the app: such calls are neither changed nor filtered."""

_THINKING = frozenset(("thinking", "reasoning_effort"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The provider, model and address that litellm resolves a model string to."""

    provider: str
    name: str
    """The model's name without the provider."""
    api_base: str | None
    api_key: str | None
    given: Mapping[str, str]
    """Arguments of the call: ``api_base`` and ``api_key`` if litellm would not find them itself, and the
    provider if the model string names it, which saves litellm one of its searches."""
    responses: bool
    """Whether the call goes to the Responses API: only if the model string says so, or if the model exists
    there only."""

    @property
    def is_translated(self) -> bool:
        """Whether litellm converts its own keys in a message back to the vendor's."""
        return self.responses or self.provider in _READ_BY_LITELLM


@dataclass(slots=True, kw_only=True)
class Call:
    """The arguments of one call, and the plan by which its reply is read."""

    arguments: Mapping[str, Any]
    plan: Plan
    api: API = "chat"
    turns: Mapping[str, Turn] = field(default_factory=lambda: {})
    """Turns in which this vendor's own tools ran, by their marks."""
    added: AddedTools | None = None
    """The fields that the vendor's own tools add to the request; None if the agent has none."""
    collects: bool = False
    """Whether the vendor's own tools are offered, so that their items must be kept."""


def find_target(litellm: Any, model: str, api_base: str | None, api_key: str | None) -> Target:
    """Return where litellm sends the calls for a model.

    Raises:
        litellm.BadRequestError: the provider is unknown.
    """
    api_base = api_base and api_base.rstrip("/")  # otherwise litellm asks some providers at "//"
    name, provider, key, base = litellm.get_llm_provider(model, api_base=api_base, api_key=api_key)
    if provider in ("openai", "custom_openai"):
        api_base = api_base and api_base.removesuffix(PATH)  # the openai library adds the path
        base = api_base or base or litellm.api_base or first_variable("OPENAI_BASE_URL", "OPENAI_API_BASE")
        base = base or _OPENAIS_OWN
        key = key or api_key or litellm.api_key or litellm.openai_key or first_variable("OPENAI_API_KEY")
        if not key and base != _OPENAIS_OWN:
            key = api_key = "none"  # a local server needs no key; any other answers 401
    if (key := key or api_key) and key != key.strip():
        key = api_key = key.strip()  # a key that was read from a file may end with a newline
    is_named = model.startswith(f"{provider}/") and provider not in _READ_ANOTHER_WAY
    given = {
        "api_base": api_base,
        "api_key": api_key,
        "custom_llm_provider": provider if is_named else None,
    }
    return Target(
        provider=provider,
        name=name,
        api_base=base or api_base,
        api_key=key,
        given={key: value for key, value in given.items() if value is not None},
        responses=_is_responses(litellm, provider, name),
    )


def call_for(litellm: Any, target: Target, request: Request, settings: Mapping[str, Any]) -> Call:
    """Return the arguments of the call for a request.

    Args:
        litellm: the module.
        target: where litellm sends the call.
        request: the request of the run.
        settings: the settings of the handler; those of the request win.
    """
    merged = sendable({**settings, **request.settings})
    merged.pop("tool_choice", None)
    vendor_tools = merged.pop("tools", None) or ()  # such as {"googleSearch": {}}, which the vendor runs
    to = asked_model(target)
    api = to.api if OWN_CONNECTION.isdisjoint(merged) else "chat"  # other requests cannot be changed
    request, added = _without_vendor_tools(request, to, merged)
    plan = _plan(litellm, target, request, merged, None if added is None else to)
    offered, choice = _offered(target.provider, plan)
    rules = vendor_rules(target.provider, target.name)
    source, items = own_turns(with_prompt(request.messages, plan.prompt), api)
    messages, offered_tools = _prepared(source, offered, rules, whole=target.is_translated)
    tools = [*offered_tools, *vendor_tools]
    if not tools:
        merged.pop("parallel_tool_calls", None)  # OpenAI refuses this key without tools
    if _must_not_think(request.messages, target.name):
        merged = {key: value for key, value in merged.items() if key not in _THINKING}
    arguments: dict[str, Any] = {
        "messages": [*messages],
        "drop_params": True,  # a setting that this vendor does not know is left out, not an error
        **({"tools": tools} if tools else {}),
        **({"tool_choice": tool_choice(choice)} if offered and choice else {}),
        **({"response_format": plan.response_format} if plan.response_format else {}),
        **{key: value for key, value in merged.items() if value is not None},
    }
    if request.stream and not cannot_stream(target.provider, target.name):
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    return Call(
        arguments=_fixed(arguments, target),
        plan=plan,
        api=api,
        turns=turns_in(messages, items),
        added=added,
        collects=bool(vendor_tools) or added is not None,
    )


def asked_model(target: Target) -> AskedModel:
    """Return the model for its vendor's own tools; a server of the app's is no vendor."""
    is_openai = target.provider in ("openai", "custom_openai")
    is_apps = is_openai and not target.responses and target.api_base != _OPENAIS_OWN
    api = api_of(target.provider, target.name, responses=target.responses)
    provider = "local" if is_apps else target.provider
    return AskedModel(api=api, provider=provider, model=target.name.removeprefix("responses/"))


def asked_by_name(provider: str, name: str, *, responses: bool) -> AskedModel:
    """Return the model for its vendor's own tools, at the vendor's own address."""
    api = api_of(provider, name, responses=responses)
    return AskedModel(api=api, provider=provider, model=name.removeprefix("responses/"))


def _without_vendor_tools(
    request: Request, to: AskedModel, settings: Mapping[str, Any]
) -> tuple[Request, AddedTools | None]:
    """Return the request without the vendor's own tools, and the additions that these tools need.

    Raises:
        ConfigError: the vendor has no such tool, or a setting asks for the same tool.
    """
    vendor_tools = vendor_specs(request.tools)
    if not vendor_tools:
        return request, None
    functions = request.tools[: -len(vendor_tools)]
    choice = request.tool_choice
    added = added_tools(vendor_tools, to, functions=bool(functions), choice=choice)
    check_settings(vendor_tools, added, settings)
    is_function = choice in ("auto", "required", "none", *map(tool_name, functions))
    return replace(request, tools=functions, tool_choice=choice if is_function else None), added


def as_sent(
    model: str, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
) -> tuple[Sequence[Message], Sequence[ToolSpec]]:
    """Return messages and tools as they are passed to litellm for a model, fitted to the rules of its vendor.

    Args:
        model: the model string, such as ``"mistral/mistral-large-latest"``.
        messages: the messages of a request, as in `Request.messages`.
        tools: the tools of a request.
    """
    provider, name = split_model(model)
    whole = name.startswith("responses/") or provider in _READ_BY_LITELLM
    shown, _ = own_turns(messages, "chat")
    return _prepared(shown, tools, vendor_rules(provider, name), whole=whole)


def _prepared(
    messages: Sequence[Message], tools: Sequence[ToolSpec], rules: VendorRules, *, whole: bool
) -> tuple[Sequence[Message], Sequence[ToolSpec]]:
    if not whole:  # before the messages are fitted, so that a message of nothing else is left out
        messages = [_without_inventions(message) for message in messages]
    ready = prepare(messages, rules)
    return ready, tools_for(ready, tools, rules)


def _must_not_think(messages: Sequence[Message], name: str) -> bool:
    """Return whether the calls with new results lack the thought that a thinking Claude needs before them.

    Another model made the calls, or a filter removed the thought. Anthropic then refuses thinking and says to
    disable it (opencode 3077); litellm does so only with a global switch.
    """
    if messages[-1]["role"] != "tool" or not thinks_before_calls(name):
        return False
    for message in reversed(messages):
        if message["role"] == "user":
            break
        if message.get("thinking_blocks"):
            return False
    return True


def _without_inventions(message: Message) -> Message:
    calls = calls_of(message)
    if _INVENTED.isdisjoint(message) and all(_INVENTED.isdisjoint(call) for call in calls):
        return message
    kept: dict[str, Any] = {key: value for key, value in message.items() if key not in _INVENTED}
    if calls:
        kept["tool_calls"] = [
            {key: value for key, value in call.items() if key not in _INVENTED} for call in calls
        ]
    return cast(Message, kept)


def _fixed(arguments: dict[str, Any], target: Target) -> dict[str, Any]:
    """Add the arguments that no setting can change."""
    # only the run retries; with tools, some releases import an MCP gateway without the last one
    arguments |= {"num_retries": 0, "max_retries": 0, "_skip_mcp_handler": True}
    if not target.responses:
        # litellm would send gpt-5.4 and later with tools to the Responses API
        arguments["_skip_responses_api_bridge"] = True
    return arguments


def _plan(
    litellm: Any,
    target: Target,
    request: Request,
    settings: Mapping[str, Any],
    vendor_model: AskedModel | None,
) -> Plan:
    """Return how tools and schema are sent; ``vendor_model`` is None if no tool of the vendor is offered."""
    if request.output_schema is None:
        return Plan(tools=request.tools, tool_choice=request.tool_choice)
    model = {"model": target.name, "custom_llm_provider": target.provider}
    native = takes_schema(target.provider, target.name, with_tools=bool(request.tools or vendor_model))
    if native and not request.tools and target.provider not in _TAKE_SCHEMAS:
        native = bool(litellm.supports_response_schema(**model))
    # litellm silently drops parameters that it does not list
    calls = native or "tools" in (litellm.get_supported_openai_params(**model) or ())
    if vendor_model is not None and not request.tools:
        calls = calls and takes_both(vendor_model)
    return plan_for(request, native=native, calls=calls, can_force=can_be_forced(target.name, settings))


def _offered(provider: str, plan: Plan) -> tuple[Sequence[ToolSpec], ToolChoice | None]:
    """Return the tools and the choice to send. A choice that litellm drops is expressed by the tools."""
    choice = plan.tool_choice
    if not ignores_tool_choice(provider) or choice in (None, "auto", "required"):
        return plan.tools, choice
    if choice == "none":
        return (), None
    return [tool for tool in plan.tools if tool["function"]["name"] == choice], "required"


def _is_responses(litellm: Any, provider: str, name: str) -> bool:
    if name.startswith("responses/"):
        return True
    if provider not in ("openai", "azure"):
        return False
    return (model_info(litellm, provider, name) or {}).get("mode") == "responses"


def first_variable(*names: str) -> str | None:
    """Return the first of these environment variables that is not empty, or None."""
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
