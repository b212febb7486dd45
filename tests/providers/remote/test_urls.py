"""URLs of remote agents have one form each, and only listed ones may be called."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from routelock.errors import ConfigError
from routelock_providers.remote.urls import AllowList, completions_url, parse_url, redirect_target

LIBRARY_URL: Any = type(AsyncOpenAI(api_key="k").base_url)
"""The URL class of what sends the requests: httpx or httpx2."""


# One form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("https://agents.example.com", "https://agents.example.com/"),
        ("HTTPS://Agents.Example.COM:443/", "https://agents.example.com/"),
        ("http://a.example:80", "http://a.example/"),
        ("http://a.example:443", "http://a.example:443/"),
        ("https://a.example.:/v1", "https://a.example/v1"),
        ("https://a.example:08443/v1", "https://a.example:8443/v1"),
        ("http://[0:0::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://[::FFFF:127.0.0.1]", "http://[::ffff:7f00:1]/"),
        ("https://müller.example/", "https://xn--mller-kva.example/"),
        ("https://\uff41。example/", "https://a.example/"),
        ("http://\uff11\uff12\uff17.0.0.1/", "http://127.0.0.1/"),
        ("https://a.example/%7ejo/%3a/x?q=%20", "https://a.example/~jo/%3A/x?q=%20"),
        ("https://under_score.example/", "https://under_score.example/"),
    ],
)
def test_a_url_has_one_form(text: str, form: str) -> None:
    assert str(parse_url(text)) == form


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agents.example.com/v1",
        "//agents.example.com/v1",
        "ftp://a.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https:a.example",
        "https:/a.example",
        "https:///a.example",
        "https://",
        "https://:443/",
        "https://user@a.example/",
        "https://user:secret@a.example/",
        "https://a.example@b.example/",
        "https://@a.example/",
        "https://a.example/#b",
        "https://a.example#@b.example/",
        "https://a.example/#",
        "https://a.example\\@b.example/",
        "https://a.example\\b.example/",
        "https:\\\\a.example/",
        " https://a.example/",
        "https://a.example/\n",
        "https://a.exa\tmple/",
        "https://a.example/\x00",
        "https://a.example/a b",
        "https://a.example/\xa0",
        "https://a.example/\u2028",
        "https://a.example/ä",
        "https://a.example/?q=ä",
        "https://a.example/%",
        "https://a.example/%zz",
        "https://a.example/..",
        "https://a.example/a/../b",
        "https://a.example/./b",
        "https://a.example/%2e%2e/b",
        "https://a.example/.%2E/b",
        "https://a.example/..;x=1/b",
        "https://a.example/a%2fb",
        "https://a.example/a%5Cb",
        "https://a.example/%252e%252e/b",
        "https://a.example/%00",
        "https://a.example:0/",
        "https://a.example:65536/",
        "https://a.example:-1/",
        "https://a.example:8o/",
        "https://a.example:\uff18\uff10/",
        "https://a.example:80:80/",
        "https://a..example/",
        "https://.a.example/",
        "https://a.example../",
        "https://-a.example/",
        "https://a-.example/",
        "https://a%2eexample/",
        "https://a,b.example/",
        "https://a*.example/",
        f"https://{'a' * 64}.example/",
        f"https://{'a.' * 127}example/",
        f"https://a.example/{'a' * 9000}",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.01/",
        "http://256.0.0.1/",
        "http://1.2.3.4.5/",
        "http://a.0x/",
        "http://[::1/",
        "http://[::1]a.example/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[v1.a]/",
        "http://[127.0.0.1]/",
        "https://straße.example/",
        "https://a\u200db.example/",
        "https://a.example\uff0f.b.example/",
        "https://a.example\uff03.b.example/",
    ],
)
def test_ambiguous_urls_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_url(text)


@pytest.mark.parametrize("given", [None, 5, {"agent_url": "https://a.example"}])
def test_a_url_that_is_not_text_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"because it must be text: "):
        parse_url(given)


def test_url_with_a_password_is_refused() -> None:
    with pytest.raises(ConfigError, match="api_key="):
        parse_url("https://user:secret@a.example/")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://a.example", "https://a.example/chat/completions"),
        ("https://a.example/", "https://a.example/chat/completions"),
        ("https://a.example/v1", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1/", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1/chat/completions/", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1?v=2", "https://a.example/v1/chat/completions?v=2"),
        ("https://a.example/v1/chat/completions?v=2", "https://a.example/v1/chat/completions?v=2"),
        ("https://a.example/chat", "https://a.example/chat/chat/completions"),
    ],
)
def test_the_path_is_completed_once(text: str, url: str) -> None:
    assert str(completions_url(text)) == url
    assert str(completions_url(url)) == url


SOME_TEXT = st.text("aA.-:/@?#%[]\\ 0123456789eExäß。\uff0f\t\n\u200b;&=~_!$'()*+,<>|", max_size=30)
SOME_URL = st.builds("{}://{}{}".format, st.sampled_from(["http", "https", "HTTPS"]), SOME_TEXT, SOME_TEXT)


@given(SOME_URL | st.text())
@example("https://a.example/%41%2d%7E%3f")
@example("http://[::ffff:1.2.3.4]:80//a//b?c?d/..")
def test_checked_url_is_the_sent_url(text: str) -> None:
    """The HTTP library must see the same host, port and path as the list did."""
    try:
        url = parse_url(text)
    except ConfigError:
        return
    assert parse_url(str(url)) == url
    sent = LIBRARY_URL(str(url))
    assert str(sent) == str(url)
    assert (sent.scheme, sent.raw_host.decode(), sent.port or {"http": 80, "https": 443}[sent.scheme]) == (
        url.scheme,
        url.host.strip("[]"),
        url.port,
    )
    assert sent.raw_path.decode() == url.path + ("?" + url.query if url.query else "")
    assert not sent.userinfo
    assert not sent.fragment


# The list


@pytest.mark.parametrize(
    ("entry", "url", "permitted"),
    [
        ("agents.example.com", "https://agents.example.com/v1", True),
        ("agents.example.com", "https://agents.example.com:443/v1?x=1", True),
        ("AGENTS.example.com.", "https://agents.Example.com./v1", True),
        ("agents.example.com", "http://agents.example.com/v1", False),
        ("agents.example.com", "https://agents.example.com:8443/v1", False),
        ("agents.example.com", "https://example.com/", False),
        ("agents.example.com", "https://x.agents.example.com/", False),
        ("agents.example.com", "https://agents.example.com.evil.example/", False),
        ("agents.example.com", "https://agents.example.comevil/", False),
        ("agents.example.com:8443", "https://agents.example.com:8443/v1", True),
        ("agents.example.com:8443", "https://agents.example.com/v1", False),
        ("agents.example.com:8443", "http://agents.example.com:8443/v1", False),
        ("10.0.0.1:8000", "https://10.0.0.1:8000/", True),
        ("10.0.0.1:8000", "http://10.0.0.1:8000/", False),
        ("localhost:8000", "http://localhost:8000/v1", True),
        ("localhost", "http://localhost:8000/v1", False),
        ("localhost", "http://localhost/v1", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1", True),
        ("127.0.0.1:8000", "http://localhost:8000/v1", False),
        ("127.0.0.1:8000", "http://127.0.0.2:8000/v1", False),
        ("[::1]:8000", "http://[0::1]:8000/v1", True),
        ("[::1]:8000", "http://127.0.0.1:8000/v1", False),
        ("*.example.com", "https://a.example.com/", True),
        ("*.example.com", "https://a.b.example.com/", True),
        ("*.example.com", "https://example.com/", False),
        ("*.example.com", "https://evilexample.com/", False),
        ("*.example.com", "http://a.example.com/", False),
        ("*.example.com:8443", "https://a.example.com:8443/", True),
        ("*.example.com:8443", "https://a.example.com/", False),
        ("müller.example", "https://xn--mller-kva.example/", True),
        ("https://example.com/agents/", "https://example.com/agents/a/v1", True),
        ("https://example.com/agents/", "https://example.com/agents", True),
        ("https://example.com/agents", "https://example.com/agents/a", True),
        ("https://example.com/agents", "https://example.com/agentsevil", False),
        ("https://example.com/agents", "https://example.com/", False),
        ("https://example.com/agents", "https://example.com/Agents/a", False),
        ("https://example.com/agents", "https://example.com//agents/a", False),
        ("https://example.com/agents", "https://example.com/x?/agents/", False),
        ("https://example.com/a%67ents", "https://example.com/%61gents/a", True),
        ("https://example.com/agents", "http://example.com/agents/a", False),
        ("https://example.com/agents", "https://example.com:8443/agents/a", False),
        ("https://example.com", "https://example.com/any/thing", True),
        ("http://agents.internal:8000/", "http://agents.internal:8000/v1", True),
        ("http://agents.internal:8000/", "https://agents.internal:8000/v1", False),
    ],
)
def test_entries(entry: str, url: str, permitted: bool) -> None:
    assert AllowList(["other.example", entry]).permits(parse_url(url)) is permitted


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.",
        "*.com",
        "**.example.com",
        "a*.example.com",
        "*.*.example.com",
        "*.0.0.1",
        "*.127.0.0.1",
        "*.[::1]",
        "[1::2::3]",
        "::1",
        "a.example/path",
        "a.example?",
        "user@a.example",
        "https://*.example.com/",
        "https://a.example/?q",
        "https://a.example/..",
        "ftp://a.example/",
        "a b.example",
        "a.example:0",
        "127.1",
        "://a",
    ],
)
def test_invalid_entries_are_refused(entry: str) -> None:
    with pytest.raises(ConfigError):
        AllowList([entry])


def test_single_text_is_refused() -> None:
    """Its letters would be taken for hosts."""
    with pytest.raises(ConfigError, match=r"\['a\.example'\]"):
        AllowList("a.example")


def test_an_empty_list_permits_nothing() -> None:
    assert not AllowList(()).permits(parse_url("https://a.example/"))
    assert str(AllowList(())) == "nothing"


ALLOWED = AllowList(["agents.example.com", "*.api.example.com", "https://shared.example/team-a/"])
TRICKS = st.sampled_from(
    [
        "agents.example.com",
        "AGENTS.example.com.",
        "x.api.example.com",
        "shared.example",
        "evil.example",
        "127.0.0.1",
        "169.254.169.254",
        "[::1]",
        "@",
        ":443",
        ":80",
        "\\",
        "/",
        "//",
        "?",
        "#",
        "..",
        "%2e%2e",
        "%2f",
        "%5c",
        "%00",
        "\t",
        "\n",
        " ",
        ".",
        "。",
        "\uff0f",
        "team-a",
        "team-b",
        ";",
        "ⓐ",
    ]
)
SCHEMES = st.sampled_from(["https://", "http://", "HTTPS://", "//", ""])


def _is_fine(url: str) -> bool:
    """The rules of the list above, checked on the text that is sent."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    if parts.scheme != "https" or port != 443:
        return False
    steps = parts.path.split("/")
    return (
        host == "agents.example.com"
        or (host.endswith(".api.example.com") and len(host) > len(".api.example.com"))
        or (host == "shared.example" and steps[1] == "team-a" and ".." not in steps)
    )


@given(
    st.sampled_from(["https://", "http://", "HTTPS://", "//", ""]), st.lists(TRICKS, max_size=7).map("".join)
)
@example("https://", "agents.example.com\\@evil.example")
@example("https://", "evil.example#@agents.example.com")
@example("https://", "shared.example/team-a/%2e%2e/team-b")
@example("https://", "agents.example.com:443@evil.example")
def test_urls_outside_the_list_are_refused(scheme: str, rest: str) -> None:
    try:
        url = completions_url(scheme + rest)
    except ConfigError:
        return
    if ALLOWED.permits(url):
        assert _is_fine(str(url))
        assert LIBRARY_URL(str(url)).host == urlsplit(str(url)).hostname


@given(st.text(min_size=1))
def test_no_other_host_passes_for_an_allowed_one(host: str) -> None:
    assume(host.lower().strip(".") != "agents.example.com")
    for text in (f"https://{host}/", f"https://{quote(host)}/", f"https://{host}.agents.example.com/"):
        try:
            url = parse_url(text)
        except ConfigError:
            continue
        if AllowList(["agents.example.com"]).permits(url):
            assert url.host == "agents.example.com"
            assert str(url).startswith("https://agents.example.com/")


# Redirects


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/v2", "https://a.example/v2"),
        ("v2/x", "https://a.example/v1/v2/x"),
        ("../v2", "https://a.example/v2"),
        ("?q=1", "https://a.example/v1/chat?q=1"),
        ("//b.example/v2", "https://b.example/v2"),
        ("https://b.example:8443/v2#top", "https://b.example:8443/v2"),
    ],
)
def test_target_of_a_redirect(location: str, target: str) -> None:
    assert str(redirect_target(parse_url("https://a.example/v1/chat"), location)) == target


@pytest.mark.parametrize(
    "location",
    [
        "http://a.example/v1",
        "ftp://a.example/",
        "https://u:p@a.example/",
        "https://a.example/\r\nx: y",
        "https://a.exam\tple/",
        "/\\b.example",
        "/%2e%2e/x",
        "https://[::1",
        "https://127.1/",
        "javascript:alert(1)",
    ],
)
def test_redirects_to_nowhere(location: str) -> None:
    with pytest.raises(ConfigError):
        redirect_target(parse_url("https://a.example/v1/chat"), location)


def test_a_redirect_may_lead_to_https() -> None:
    target = redirect_target(parse_url("http://a.example/v1"), "https://a.example/v1")
    assert target.scheme == "https"


@given(st.text() | SOME_TEXT | SOME_URL)
def test_any_location_is_a_url_or_a_config_error(location: str) -> None:
    try:
        target: Any = redirect_target(parse_url("https://a.example/v1"), location)
    except ConfigError:
        return
    assert parse_url(str(target)) == target
    assert target.scheme == "https"
