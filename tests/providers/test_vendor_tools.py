"""Which vendor takes which of the vendors' own tools, and how each spells them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from routelock.errors import ConfigError
from routelock.tools import VendorTool
from routelock_providers import LiteLLM, OpenAICompatible, load_litellm
from routelock_providers.vendor_tools import (
    AddedTools,
    AskedModel,
    added_tools,
    api_of,
    check_settings,
    takes_both,
)

SEARCH = {"type": "web_search"}
CODE = {"type": "code_execution"}
CLAUDE = AskedModel(api="anthropic", provider="anthropic", model="claude-haiku-4-5")
GEMINI_2 = AskedModel(api="gemini", provider="gemini", model="gemini-2.5-flash")
GEMINI_3 = AskedModel(api="gemini", provider="gemini", model="gemini-3-flash")
RESPONSES = AskedModel(api="responses", provider="openai", model="gpt-5")
XAI = AskedModel(api="responses", provider="xai", model="grok-4")
LOCAL = AskedModel(api="chat", provider="local", model="m")


def chat(provider: str, model: str = "m") -> AskedModel:
    return AskedModel(api="chat", provider=provider, model=model)


def added(tool: Any, to: AskedModel, **more: Any) -> AddedTools:
    spec = tool.spec if isinstance(tool, VendorTool) else tool
    return added_tools([spec], to, **{"functions": False, **more})


LITELLM_MODELS = {
    "bedrock/claude": "does not exist on bedrock",
    "deepseek/deepseek-chat": "does not exist on deepseek",
    "xai/grok-4": "does not exist on xai",
    "anthropic/claude-haiku-4-5": "",
    "groq/openai/gpt-oss-120b": "",
    "openai/responses/gpt-5": "",
    "hosted_vllm/m": "",
}


@pytest.mark.parametrize("model", LITELLM_MODELS)
def test_litellms_model_is_checked_by_its_name(model: str) -> None:
    refused = pytest.raises(ConfigError, match=said) if (said := LITELLM_MODELS[model]) else nullcontext()
    with refused:
        LiteLLM(model).check_vendor_tools([SEARCH], {}, functions=False)


@pytest.mark.parametrize(
    ("model", "more", "settings"),
    [
        ("deepseek/m", {"api_base": "https://x.example"}, {}),
        ("deepseek/m", {"settings": {"base_url": "https://x.example"}}, {}),
        ("deepseek/m", {}, {"custom_llm_provider": "hosted_vllm"}),
    ],
)
def test_what_a_server_of_the_app_takes_is_not_known_before(model: str, more: Any, settings: Any) -> None:
    LiteLLM(model, **more).check_vendor_tools([SEARCH], settings, functions=False)


def test_openais_models_are_checked_once_litellm_is_loaded() -> None:
    load_litellm()
    with pytest.raises(ConfigError, match="openai/responses/gpt-4o-mini"):
        LiteLLM("openai/gpt-4o-mini").check_vendor_tools([SEARCH], {}, functions=False)


def test_a_setting_that_asks_for_the_same_is_seen_before_the_run() -> None:
    model = OpenAICompatible(
        "gpt-5-search-api", base_url="https://api.openai.com/v1", api_key="test-not-a-key"
    )
    with pytest.raises(ConfigError, match="web_search_options"):
        model.check_vendor_tools([SEARCH], {"web_search_options": {}}, functions=False)


FULL = VendorTool.web_search(
    allowed_domains=["a.example"], user_location={"country": "NL"}, search_context_size="low"
)
NL = {"type": "approximate", "country": "NL"}


@pytest.mark.parametrize(
    ("tool", "to", "sent"),
    [
        (SEARCH, CLAUDE, {"type": "web_search_20250305", "name": "web_search"}),
        (
            FULL,
            CLAUDE,
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "allowed_domains": ["a.example"],
                "user_location": NL,
            },
        ),
        (CODE, CLAUDE, {"type": "code_execution_20250825", "name": "code_execution"}),
        (
            VendorTool.web_fetch(max_uses=2),
            CLAUDE,
            {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 2},
        ),
        (VendorTool.web_search(user_location={"country": "NL"}), GEMINI_2, {"googleSearch": {}}),
        (CODE, GEMINI_2, {"codeExecution": {}}),
        (VendorTool.web_fetch(), GEMINI_2, {"urlContext": {}}),
        (
            VendorTool.file_search(["fileSearchStores/a"], max_results=3),
            GEMINI_3,
            {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/a"], "topK": 3}},
        ),
        (SEARCH, RESPONSES, SEARCH),
        (
            FULL,
            RESPONSES,
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["a.example"]},
                "search_context_size": "low",
                "user_location": NL,
            },
        ),
        (CODE, RESPONSES, {"type": "code_interpreter", "container": {"type": "auto"}}),
        (
            VendorTool.file_search(["vs_1"], max_results=3),
            RESPONSES,
            {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3},
        ),
        (VendorTool.image_generation(), RESPONSES, {"type": "image_generation"}),
        (CODE, XAI, {"type": "code_interpreter"}),
        (
            VendorTool.web_search(blocked_domains=["b.example"]),
            XAI,
            {"type": "web_search", "filters": {"excluded_domains": ["b.example"]}},
        ),
        (SEARCH, chat("openrouter"), {"type": "openrouter:web_search"}),
        (
            VendorTool.web_search(max_uses=1, blocked_domains=["b.example"]),
            chat("openrouter"),
            {
                "type": "openrouter:web_search",
                "parameters": {"max_uses": 1, "excluded_domains": ["b.example"]},
            },
        ),
        (SEARCH, chat("groq", "openai/gpt-oss-20b"), {"type": "browser_search"}),
        (
            CODE,
            chat("groq", "openai/gpt-oss-20b"),
            {"type": "code_interpreter", "container": {"type": "auto"}},
        ),
    ],
)
def test_a_portable_tool_is_sent_in_the_vendors_spelling(tool: Any, to: AskedModel, sent: Any) -> None:
    assert added(tool, to).tools == [sent]


@pytest.mark.parametrize(
    ("tool", "to", "fields"),
    [
        (FULL, chat("perplexity"), "search_domain_filter"),
        (VendorTool.web_search(), chat("openai", "gpt-5-search-api"), "web_search_options"),
        (VendorTool.web_search(), chat("local", "gpt-4o-search-preview"), "web_search_options"),
        (FULL, chat("groq", "compound"), "search_settings"),
    ],
)
def test_some_vendors_take_a_setting_in_place_of_a_tool(tool: Any, to: AskedModel, fields: str) -> None:
    sent = added(tool, to)
    assert not sent.tools
    assert fields in sent.fields


def test_openai_nests_the_location_of_the_user() -> None:
    tool = VendorTool.web_search(user_location={"country": "NL"})
    assert added(tool, chat("openai", "gpt-4o-search-preview")).fields["web_search_options"] == {
        "user_location": {"type": "approximate", "approximate": {"country": "NL"}}
    }


def test_perplexity_marks_the_domains_to_leave_out() -> None:
    tool = VendorTool.web_search(allowed_domains=["a.example"], blocked_domains=["b.example"])
    sent = added(tool, chat("perplexity")).fields["search_domain_filter"]
    assert sent == ["a.example", "-b.example"]


@pytest.mark.parametrize(
    ("spec", "to"),
    [
        ({"type": "web_search_20260209", "name": "web_search"}, CLAUDE),
        ({"googleMaps": {}}, GEMINI_3),
        ({"type": "mcp", "server_label": "d"}, RESPONSES),
        ({"type": "x_search"}, XAI),
        ({"type": "not_known_yet"}, CLAUDE),
        (SEARCH, LOCAL),
        ({"type": "web_search", "web_search": {"enable": True}}, chat("zai")),
    ],
)
def test_a_spec_in_the_vendors_spelling_is_sent_as_it_is(spec: Any, to: AskedModel) -> None:
    assert added(spec, to).tools == [spec]


@pytest.mark.parametrize(
    ("spec", "to"),
    [
        (SEARCH, chat("deepseek")),
        (CODE, chat("openrouter")),
        ({"type": "image_generation"}, CLAUDE),
        ({"googleSearch": {}}, CLAUDE),
        ({"type": "web_search_20250305", "name": "web_search"}, RESPONSES),
        ({"type": "browser_search"}, GEMINI_2),
        ({"type": "code_interpreter"}, CLAUDE),
    ],
)
def test_a_tool_of_another_vendor_is_refused(spec: Any, to: AskedModel) -> None:
    with pytest.raises(ConfigError, match=rf"does not exist on {to.provider}.*It exists on"):
        added(spec, to)


def test_the_error_names_the_tool_the_provider_and_who_takes_it() -> None:
    with pytest.raises(ConfigError) as caught:
        added(SEARCH, chat("mistral", "mistral-large"))
    for named in ("'web_search'", "mistral", "mistral-large", "anthropic/...", "openai/responses/..."):
        assert named in str(caught.value)


def test_openais_other_models_are_told_to_use_the_responses_api() -> None:
    with pytest.raises(ConfigError, match="'openai/responses/gpt-5'"):
        added(SEARCH, chat("openai", "gpt-5"))


@pytest.mark.parametrize(
    ("tool", "to"),
    [
        (VendorTool.web_search(max_uses=1), RESPONSES),
        (VendorTool.web_search(blocked_domains=["b.example"]), RESPONSES),
        (VendorTool.web_search(allowed_domains=["a.example"]), GEMINI_3),
        ({"type": "web_search", "filters": {}}, CLAUDE),
    ],
)
def test_an_option_that_the_vendor_does_not_have_is_refused(tool: Any, to: AskedModel) -> None:
    with pytest.raises(ConfigError, match="takes no"):
        added(tool, to)


@pytest.mark.parametrize(
    "kind", ["computer_20250124", "bash_20250124", "local_shell", "text_editor_20250728"]
)
def test_a_tool_that_the_app_would_run_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="The app has to run the tool"):
        added({"type": kind, "name": "x"}, CLAUDE)


def test_gemini_takes_its_tools_beside_functions_from_version_3_on() -> None:
    with pytest.raises(ConfigError, match=r"googleSearch.*version 3"):
        added(SEARCH, GEMINI_2, functions=True)
    fields = added(SEARCH, GEMINI_3, functions=True).fields
    assert fields == {"toolConfig": {"includeServerSideToolInvocations": True}}
    assert [takes_both(each) for each in (GEMINI_2, GEMINI_3, CLAUDE)] == [False, True, True]


def test_the_responses_api_is_asked_for_what_it_leaves_out() -> None:
    sent = added_tools([SEARCH, CODE], RESPONSES, functions=False)
    assert sent.fields["include"] == ["web_search_call.action.sources", "code_interpreter_call.outputs"]
    assert added(SEARCH, XAI).fields == {}


@pytest.mark.parametrize(
    ("spec", "beta"),
    [
        (CODE, ["code-execution-2025-08-25"]),
        ({"type": "code_execution_20250522", "name": "code_execution"}, ["code-execution-2025-05-22"]),
        ({"type": "web_fetch"}, ["web-fetch-2025-09-10"]),
        (SEARCH, []),
    ],
)
def test_anthropic_wants_a_header_for_some_tools(spec: Any, beta: Any) -> None:
    assert added(spec, CLAUDE).betas == beta


@pytest.mark.parametrize(
    ("to", "choice"),
    [(CLAUDE, {"type": "tool", "name": "web_search"}), (RESPONSES, {"type": "web_search"})],
)
def test_a_vendors_tool_can_be_forced(to: AskedModel, choice: Any) -> None:
    assert added(SEARCH, to, choice="web_search").fields["tool_choice"] == choice


@pytest.mark.parametrize("to", [GEMINI_3, chat("openai", "gpt-5-search-api")])
def test_a_choice_that_cannot_be_forced_is_refused(to: AskedModel) -> None:
    with pytest.raises(ConfigError, match="cannot be forced"):
        added(SEARCH, to, choice="web_search")


def test_required_holds_where_there_are_no_functions() -> None:
    assert added(SEARCH, CLAUDE, choice="required").fields["tool_choice"] == {"type": "any"}
    assert added(SEARCH, RESPONSES, choice="required").fields["tool_choice"] == "required"
    assert "tool_choice" not in added(SEARCH, CLAUDE, choice="required", functions=True).fields


@pytest.mark.parametrize("settings", [{"web_search_options": {}}, {"extra_body": {"web_search_options": {}}}])
def test_a_setting_that_asks_for_the_same_is_refused(settings: Any) -> None:
    for to in (chat("openai", "gpt-5-search-api"), CLAUDE):
        with pytest.raises(ConfigError, match="'web_search_options'"):
            check_settings([SEARCH], added(SEARCH, to), settings)


def test_other_settings_are_allowed_beside_a_vendors_tool() -> None:
    check_settings([SEARCH], added(SEARCH, RESPONSES), {"include": ["x"], "temperature": 0})
    check_settings([CODE], added(CODE, CLAUDE), {"web_search_options": {}})


@pytest.mark.parametrize(
    ("provider", "name", "responses", "api"),
    [
        ("openai", "responses/gpt-5", True, "responses"),
        ("anthropic", "claude-haiku-4-5", False, "anthropic"),
        ("vertex_ai", "claude-haiku-4-5", False, "anthropic"),
        ("vertex_ai", "gemini-3-pro", False, "gemini"),
        ("gemini", "gemini-3-pro", False, "gemini"),
        ("bedrock", "anthropic.claude-x", False, "chat"),
        ("groq", "compound", False, "chat"),
    ],
)
def test_the_format_of_a_request_follows_from_the_model(
    provider: str, name: str, responses: bool, api: str
) -> None:
    assert api_of(provider, name, responses=responses) == api
