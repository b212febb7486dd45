"""Which values count as secrets. Vendors' shapes are in `tests/testing/test_scrub.py`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock._redaction import REDACTED, is_secret_name, redact, redact_text, scrubbed

SECRET_NAMES = """
    api_key apiKey APIKey API_KEY x-api-key X-Api-Key openai_apikey apikey_2 OPENAI_API_KEY api_key_prod
    password Password dbPassword db_password_old password1 passwd pwd PGPASSWORD passphrase user.pass
    secret client_secret clientSecret SECRET_KEY aws_secret_access_key accessKeyId private_key sharedAccessKey
    token access_token accessToken authtoken refresh_tokens bot_token csrf-token github_token TOKEN
    authorization Authorization proxy-authorization authorization_header auth cookie Set-Cookie cookies
    connection_string connectionString DB_CONNECTION_STRING AzureWebJobsConnectionString dsn connection_uri
    OPENAI_KEY SERVICE_KEY credential credentials google_credentials jwt bearer
    encryption_key signing_key ssh_key
""".split()

OTHER_NAMES = """
    max_tokens total_tokens tokens token_count token_type token_limit tokenizer next_page_token pageToken
    continuation_token eos_token key keys cache_key primary_key PUBLIC_KEY keyboard monkey name
    value author bypass compass
    secretary password_policy secret_name secret_ref private_key_path auth_type oauth timeout_ms id
    authority tool_call_id arguments 密码 _ 1
""".split()


def test_secret_names_are_recognised() -> None:
    assert [name for name in SECRET_NAMES if not is_secret_name(name)] == []
    assert redact(dict.fromkeys(SECRET_NAMES, "hunter2")) == dict.fromkeys(SECRET_NAMES, "[redacted]")


def test_other_names_are_no_secrets() -> None:
    others = dict.fromkeys([*OTHER_NAMES, ""], "hunter2")
    assert [name for name in others if is_secret_name(name)] == []
    assert redact(others) == others


@pytest.mark.parametrize("value", ["x", 1234, 1.5, ["a", "b"], {"user": "a", "of": ["b"]}])
def test_value_of_a_secret_name_is_replaced(value: Any) -> None:
    assert redact({"deep": [{"credentials": value}]}) == {"deep": [{"credentials": REDACTED}]}


@pytest.mark.parametrize("value", [None, "", 0, [], {}, True, False])
def test_bool_none_and_empty_values_stay(value: Any) -> None:
    assert redact({"password": value}) == {"password": value}


def test_value_beside_a_secret_name_is_replaced() -> None:
    """As environments and headers are listed."""
    listed = [{"name": "DB_PASSWORD", "value": "hunter2"}, {"key": "PORT", "value": "80"}]
    assert redact(listed) == [{"name": "DB_PASSWORD", "value": REDACTED}, {"key": "PORT", "value": "80"}]


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ('{"connection_string": "Server=x", "n": 1}', '{"connection_string": "[redacted]", "n": 1}'),
        (' [{"token":"x"},"é"]', '[{"token": "[redacted]"}, "é"]'),
        ('{"in": "{\\"pwd\\": \\"x\\"}"}', '{"in": "{\\"pwd\\": \\"[redacted]\\"}"}'),
        ('{"a" :  "password=\'", "b": "it\'s"}', '{"a" :  "password=\'", "b": "it\'s"}'),
        ('{"password": "x", "password": "y"}', '{"password": "[redacted]", "password": "[redacted]"}'),
        ('{"password": "x", cut off', '{"password": "[redacted]", cut off'),
    ],
)
def test_json_text_is_redacted_as_json(text: str, redacted: str) -> None:
    """As the arguments of a call are. Without a secret it keeps its exact form."""
    assert redact(text) == redact(redacted) == redacted


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("postgresql://app:hunter2@db:5432/sales", "postgresql://[redacted]@db:5432/sales"),
        ("redis://:hunter2@cache:6379/0", "redis://[redacted]@cache:6379/0"),
        ("postgres://u:p@ss@h/d", "postgres://[redacted]@h/d"),
        ("amqp://a:b@h,amqp://c:d@h", "amqp://[redacted]@h,amqp://[redacted]@h"),
        ("host=db user=app password=hunter2 port=5432", "host=db user=app password=[redacted] port=5432"),
        ("host=db password='hunter 2'", "host=db password=[redacted]"),
        ("Server=db;User Id=app;Password=hunter2;", "Server=db;User Id=app;Password=[redacted];"),
        ("AccountName=a;AccountKey=aHVudGVyMg==;", "AccountName=a;AccountKey=[redacted];"),
        ("https://h/p?api_key=hunter2&b=1", "https://h/p?api_key=[redacted]&b=1"),
        ("Authorization: Bearer abc123def456", "Authorization: Bearer [redacted]"),
        ("auth: BASIC dXNlcjpwYXNz= é", "auth: BASIC [redacted] é"),
        ("use sk-" + "a1" * 10 + " now", "use [redacted] now"),
        ('{"api_key": "hunter2", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        ("-----BEGIN PRIVATE KEY-----\nDEK-Info: x\nabc\n-----END " + "PRIVATE KEY-----", "[redacted]"),
    ],
)
def test_only_the_secret_part_of_a_text_is_replaced(text: str, redacted: str) -> None:
    assert redact_text(text) == redact_text(redacted) == redacted
    assert redact({"note": [text]}) == {"note": [redacted]}


@pytest.mark.parametrize(
    "text",
    [
        "the password is in the vault",
        "https://registry.example.com:443/@scope/package",
        "see http://a:80/b and mail me@example.com",
        "postgresql://db:5432/sales",
        "max_tokens=100 tokenizer=x",
        "a task-oriented-assistant and a bearer of news",
        "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert redact_text(text) == text


def test_mark_can_be_chosen() -> None:
    """One that needs no quoting, for recorded traffic."""
    assert scrubbed("https://h/?api_key=x", "GONE") == "https://h/?api_key=GONE"


@pytest.mark.parametrize("length", [3, 200])
def test_long_names_are_checked(length: int) -> None:
    name = "a" * length + "_password"
    assert redact({name: "x"}) == redact({name: "x"}) == {name: REDACTED}
    assert redact({"a" * length: "x"}) == {"a" * length: "x"}


def test_keys_that_are_no_text_are_no_names() -> None:
    assert redact({1: "x", None: "y"}) == {1: "x", None: "y"}


def test_redact_does_not_change_its_input() -> None:
    value = {"a": [{"password": "x"}]}
    before = copy.deepcopy(value)
    redacted = redact(value)
    assert value == before
    assert redacted is not value


@pytest.mark.parametrize(
    "text",
    [
        "\\" * 50_000,
        "-----BEGIN PRIVATE KEY-----" * 3_000,
        "://a:" * 20_000,
        '\\"api_key\\":\\"' * 5_000,
        '"api_key": "\\' * 5_000,
        "password='" * 10_000,
        "Bearer " * 10_000,
        "eyJaaaaaaaa." * 5_000,
    ],
)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    """Each of these would take minutes in quadratic time; it is the tests' own limit that would tell."""
    redact_text(text)


@given(
    st.recursive(
        st.sampled_from(
            [
                "://u:p@h",
                "password=x",
                '{"pwd": "x"}',
                '[{"a": "{\\"jwt\\": 1}"}]',
                "Bearer abc123def",
                '"api_key": "x"',
                "[redacted]",
                "'",
            ]
        )
        | st.text()
        | st.integers()
        | st.none(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["password", "name", "value", "key", "a"]), inner)
        ),
    )
)
def test_redacting_twice_changes_nothing(value: Any) -> None:
    assert redact(redact(value)) == redact(value)


PIECES = [
    "://",
    "u:p@",
    "Bearer ",
    "password=",
    "'",
    '"',
    "\\",
    "api_key",
    "=",
    ":",
    "[",
    "?",
    "1",
    "12345678",
    " ",
]


@given(st.lists(st.sampled_from(PIECES)))
def test_redacting_text_twice_changes_nothing(pieces: list[str]) -> None:
    once = redact_text("".join(pieces))
    assert redact_text(once) == once
