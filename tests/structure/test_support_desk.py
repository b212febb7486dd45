"""The support desk of examples/: its chat replayed from the cassettes, its tools, and its command line."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from paths import REPO
from scripted_agents import outcome
from waiting import PATIENCE

from routelock import Message, Runner, RunResult, ToolContext
from routelock.errors import AuthenticationFailed
from routelock.history.messages import calls_of, text_of
from routelock.testing import CassetteMiss, ScriptedHandler, assert_valid, call, use_cassette

CASSETTES = REPO / "cassettes"
CARD = "4111 1111 1111 1111"


def _load(folder: str, name: str) -> Any:
    """Import a program's module as if it had been started from its folder."""
    sys.path.insert(0, str(REPO / folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


support_desk = _load("examples", "support_desk")
agents = _load("examples", "desk.agents")
shop = _load("examples", "desk.shop")
screen = _load("examples", "desk.screen")
record_cassettes = _load("scripts", "record_cassettes")


@dataclass
class Chat:
    """A chat that is over."""

    results: list[RunResult[Any]]
    desk: Any
    shown: str

    def first_call(self, question: int, agent: str) -> list[Message]:
        """What an agent was shown when it took over, in the run of this question."""
        return next([*each.messages] for each in self.results[question].calls if each.agent == agent)


def _replay(recording: str, *, sticky: bool = False) -> Iterator[Chat]:
    out = io.StringIO()
    with closing(shop.Desk()) as desk:
        with support_desk.replayed(recording) as model:
            on_screen = screen.Screen(out)
            results = support_desk.chat(
                support_desk.recited(support_desk.QUESTIONS, on_screen), model, desk, on_screen, sticky=sticky
            )
            on_screen.totals(results)
        yield Chat(results, desk, out.getvalue())


@pytest.fixture(scope="module")
def chat() -> Iterator[Chat]:
    """The recorded chat, as `make demo` holds it."""
    yield from _replay("support_desk")


@pytest.fixture(scope="module")
def sticky_chat() -> Iterator[Chat]:
    """The recorded chat in which everybody stays who answered last."""
    yield from _replay("support_desk_sticky", sticky=True)


@pytest.fixture
def desk() -> Iterator[Any]:
    """A shop of its own for one test."""
    with closing(shop.Desk()) as made:
        yield made


def _tools(result: RunResult[Any]) -> list[str]:
    return [
        made["function"]["name"]
        for message in result.messages[result.input_count :]
        for made in calls_of(message)
        if not made["function"]["name"].startswith("transfer_to_")
    ]


# -- who speaks --


def test_every_run_starts_at_triage_again(chat: Chat) -> None:
    assert [result.calls[0].agent for result in chat.results] == ["Triage"] * 4


def test_each_question_is_answered_by_the_agent_that_it_is_for(chat: Chat) -> None:
    last = [result.last_agent.name for result in chat.results]
    assert last == ["Refunds", "Technical", "Refunds", "Triage"]


def test_handoffs_are_on_the_results(chat: Chat) -> None:
    records = [record for result in chat.results for record in result.handoffs]
    assert [(each.source, each.target, outcome(each)) for each in records] == [
        ("Triage", "Refunds", "taken"),
        ("Triage", "Technical", "taken"),
        ("Triage", "Refunds", "taken"),
    ]


def test_what_triage_passes_on_is_parsed(chat: Chat) -> None:
    passed = chat.results[2].handoffs[0].input
    assert passed == agents.RefundRequest(order_id="A-1002", reason=passed.reason)


def test_sticky_stays_with_whoever_spoke_last(sticky_chat: Chat) -> None:
    firsts = [result.calls[0].agent for result in sticky_chat.results]
    assert firsts == ["Triage", "Refunds", "Technical", "Refunds"]


def test_sticky_comes_back_to_triage_by_a_handoff(sticky_chat: Chat) -> None:
    handoffs = [(each.source, each.target) for each in sticky_chat.results[1].handoffs]
    assert handoffs == [("Refunds", "Triage"), ("Triage", "Technical")]


# -- what they do --


def test_tools_are_called_in_order(chat: Chat) -> None:
    assert [_tools(result) for result in chat.results] == [
        ["list_orders", "issue_refund"],
        ["check_devices", "search_manual", "restart_device"],
        ["look_up_order", "issue_refund"],
        ["list_orders"],
    ]


def test_parallel_calls_are_answered_right_after_in_order(chat: Chat) -> None:
    messages = chat.results[1].messages
    place = next(index for index, message in enumerate(messages) if len(calls_of(message)) == 2)
    asked = [made["id"] for made in calls_of(messages[place])]
    assert [message.get("tool_call_id") for message in messages[place + 1 : place + 3]] == asked


@pytest.mark.parametrize("which", ["chat", "sticky_chat"])
def test_the_refund_is_booked_once(which: str, request: pytest.FixtureRequest) -> None:
    held: Chat = request.getfixturevalue(which)
    assert held.desk.rows("SELECT order_id, cents FROM refunds") == [{"order_id": "A-1002", "cents": 4990}]


def test_a_refused_refund_changes_nothing(chat: Chat) -> None:
    assert chat.desk.order("A-1003")["state"] == "shipped"


def test_a_refusal_is_told_to_the_model_and_kept(chat: Chat) -> None:
    (problem,) = chat.results[0].errors
    assert problem.agent == "Refunds"
    assert "only a delivered order can be refunded" in problem.message
    assert "only a delivered order can be refunded" in text_of(chat.results[0].calls[-1].messages[-1])


def test_the_hub_is_restarted_once(chat: Chat) -> None:
    device = {"serial": "H-77", "light": "green", "restarts": 1}
    assert chat.desk.rows("SELECT serial, light, restarts FROM devices WHERE serial = 'H-77'") == [device]


# -- what they see --


def test_refunds_does_not_see_the_card_number(chat: Chat) -> None:
    shown = chat.first_call(2, "Refunds")
    assert CARD not in json.dumps(shown)
    assert "card **** 1111" in text_of(shown[-1])


def test_refunds_does_not_see_what_the_others_looked_up(chat: Chat) -> None:
    shown = chat.first_call(2, "Refunds")
    assert {message["role"] for message in shown} == {"system", "user", "assistant"}
    assert not any(calls_of(message) for message in shown)


def test_refunds_sees_all_that_was_said(chat: Chat) -> None:
    said = [text_of(message) for message in chat.first_call(2, "Refunds") if message["role"] == "user"]
    assert said[:2] == [*support_desk.QUESTIONS[:2]]
    assert len(said) == 3


def test_refunds_is_told_the_case_in_its_prompt(chat: Chat) -> None:
    prompt = text_of(chat.first_call(2, "Refunds")[0])
    assert "The case: A-1002 (Luma desk lamp): " in prompt


def test_technical_sees_a_summary_and_the_last_question(chat: Chat) -> None:
    _, summary, asked = chat.first_call(1, "Technical")
    assert (summary["role"], asked["role"]) == ("assistant", "user")
    assert text_of(summary).count("<CONVERSATION HISTORY>") == 1
    assert support_desk.QUESTIONS[0] in text_of(summary)
    assert "issue_refund" in text_of(summary)
    assert text_of(asked) == support_desk.QUESTIONS[1]


def test_filters_change_what_is_shown_and_not_what_is_kept(chat: Chat) -> None:
    assert CARD in json.dumps(chat.results[2].messages)


def test_each_run_goes_on_from_all_that_happened(chat: Chat) -> None:
    for earlier, later in zip(chat.results, chat.results[1:], strict=False):
        assert later.messages[: len(earlier.messages)] == earlier.messages


@pytest.mark.parametrize("which", ["chat", "sticky_chat"])
def test_every_request_is_one_that_providers_accept(which: str, request: pytest.FixtureRequest) -> None:
    held: Chat = request.getfixturevalue(which)
    for result in held.results:
        for each in result.calls:
            assert_valid(each.messages)


# -- streamed and plain --


def test_streamed_and_plain_are_the_same(chat: Chat, desk: Any) -> None:
    with support_desk.replayed("support_desk_plain") as model:
        plain: list[RunResult[Any]] = record_cassettes.plain(model, desk)
    for one, other in zip(chat.results, plain, strict=True):
        assert one.messages == other.messages
        assert one.final_output == other.final_output
        assert one.usage_by_agent == other.usage_by_agent
        assert [each.input for each in one.handoffs] == [each.input for each in other.handoffs]


# -- what is shown --


def test_the_screen_names_who_speaks(chat: Chat) -> None:
    for name in ("you", "Triage", "Refunds", "Technical"):
        assert f"\n{name:<11}" in f"\n{chat.shown}"


def test_the_screen_shows_calls_results_and_handoffs(chat: Chat) -> None:
    assert '> look_up_order(order_id="A-1002")' in chat.shown
    assert "< look_up_order: A-1002, Luma desk lamp, 49.90 EUR, delivered" in chat.shown
    assert "! Tool 'issue_refund' failed: Refused: order A-1003 is shipped" in chat.shown
    assert '=> Refunds(order_id="A-1003", reason=' in chat.shown
    assert "=> Technical\n" in chat.shown


def test_the_screen_says_what_an_agent_sees_when_it_takes_over(chat: Chat) -> None:
    assert "sees 2 messages; the customer's last: All right" in chat.shown
    assert "card **** 1111" in chat.shown


def test_the_screen_ends_with_tokens_and_cost(chat: Chat) -> None:
    usage = [result.usage for result in chat.results]
    total = [sum(each.requests for each in usage), sum(each.input_tokens for each in usage)]
    lines = [line.split() for line in chat.shown.splitlines()]
    (shown,) = [line for line in lines if line[:1] == ["total"]]
    assert shown[1:3] == [str(total[0]), f"{total[1]:,}"]
    assert f"cost       ${sum(each.cost or 0.0 for each in usage):.4f}\n" in chat.shown
    assert "cost       $0.0" in chat.shown


def test_a_price_that_is_not_known_is_not_zero() -> None:
    out = io.StringIO()
    with closing(shop.Desk()) as desk:
        model = ScriptedHandler(["Hello."])
        results = support_desk.chat(["Hi"], model, desk, screen.Screen(io.StringIO()))
    screen.Screen(out).totals(results)
    assert "cost       unknown, this model has no known price\n" in out.getvalue()


def test_the_screen_is_plain_in_a_pipe(chat: Chat) -> None:
    assert "\x1b" not in chat.shown
    assert max(map(len, chat.shown.splitlines())) <= 100


class Terminal(io.StringIO):
    """A terminal that remembers what was printed."""

    def isatty(self) -> bool:
        return True


def _on_terminal() -> str:
    terminal = Terminal()
    shown = screen.Screen(terminal)
    shown.speaker("Triage")
    shown.say("Hello")
    shown.note("> look_up()")
    return terminal.getvalue()


def test_a_terminal_gets_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1mTriage" in _on_terminal()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_can_ask_for_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert "\x1b" not in _on_terminal()


def _said(*pieces: str) -> str:
    out = io.StringIO()
    shown = screen.Screen(out)
    shown.speaker("Triage")
    for piece in pieces:
        shown.say(piece)
    shown.end_line()
    return out.getvalue()


def test_words_that_come_in_pieces_are_wrapped_as_one() -> None:
    lines = _said(*"word " * 17, "hand", "ker", "chief").splitlines()
    assert lines[1].strip() == "handkerchief"


def test_a_word_longer_than_the_line_is_printed() -> None:
    assert "x" * 300 in _said("see ", "x" * 300)


def test_a_reply_cannot_move_the_cursor() -> None:
    assert _said("a\x1b[2Jb\rc\u202ed") == f"{'Triage':<11}a[2Jbcd\n"


def test_a_reply_of_nothing_prints_nothing() -> None:
    assert _said("", " ", "\n") == ""


@pytest.mark.parametrize("arguments", ['{"order_id": ', "[1]", "null"])
def test_arguments_that_are_no_object_are_shown_as_they_are(arguments: str) -> None:
    out = io.StringIO()
    screen.Screen(out).show(
        importlib.import_module("routelock.run.events").ToolCalled(
            agent="Triage", call_id="c", name="look_up_order", arguments=arguments
        )
    )
    assert f"> look_up_order({arguments.strip()}" in out.getvalue()


# -- the program --


def test_the_demo_runs_by_itself(tmp_path: Path, chat: Chat) -> None:
    """As a user starts it: from anywhere, without a key, and with output that goes into a pipe."""
    paths = ":".join(str(REPO / root) for root in ("runtime", "providers", "skills"))
    done = subprocess.run(
        [sys.executable, str(REPO / "examples" / "support_desk.py")],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert chat.shown in done.stdout
    assert done.stdout.endswith("booked     refund of A-1002: arrived with a cracked shade\n")


def _main(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code: int = support_desk.main(arguments)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_question_that_was_not_recorded_is_an_error_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is the meaning of life?\n"))
    code, out, err = _main(capsys, "--chat")
    assert code == 1
    assert "What is the meaning of life?" in out
    assert err.startswith("support_desk: this was not recorded.")
    assert err.count("\n") == 1


def test_a_miss_shows_a_developer_the_difference(desk: Any) -> None:
    def ask() -> None:
        with support_desk.replayed("support_desk") as model:
            questions = ["What is the meaning of life?"]
            support_desk.chat(questions, model, desk, screen.Screen(io.StringIO()))

    with pytest.raises(CassetteMiss, match=r"(?s)nearest of 14 .*\+ .*What is the meaning of life"):
        ask()


def test_a_part_of_the_recording_will_do_when_the_questions_are_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"\n{support_desk.QUESTIONS[0]}\n\n"))
    code, out, err = _main(capsys, "--chat")
    assert (code, err) == (0, "")
    assert "I cannot refund the door sensor yet" in " ".join(out.split())


def test_going_live_without_a_key_is_an_error_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, _, err = _main(capsys, "--live")
    assert code == 1
    assert "OPENAI_API_KEY" in err
    assert err.count("\n") == 1


def test_a_model_is_for_going_live_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        support_desk.main(["--model", "openai/gpt-4o-mini"])
    assert "--model needs --live" in capsys.readouterr().err


def test_an_error_ends_the_scripted_chat(desk: Any) -> None:
    model = ScriptedHandler([AuthenticationFailed("no such key")])
    with pytest.raises(AuthenticationFailed):
        support_desk.chat(["Hello"], model, desk, screen.Screen(io.StringIO()))


def test_a_chat_with_a_person_goes_on_after_an_error(desk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What had happened before the error is not lost: the next run sees it."""
    model = ScriptedHandler([call("list_orders"), AuthenticationFailed("no\nsuch key"), "Hello again!"])
    shown = screen.Screen(io.StringIO())
    results = support_desk.chat(["Hello", "Still there?"], model, desk, shown, go_on=True)
    assert [result.stop_reason for result in results] == ["error", "done"]
    assert capsys.readouterr().err == "support_desk: no such key\n"
    assert [message["role"] for message in model.requests[-1].messages[1:]] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_recording_anew_asks_what_was_recorded(tmp_path: Path) -> None:
    """The cassettes are those of the agents as they are, and hold no address of the day."""
    record_cassettes.record(tmp_path, None, "2026-01-01")
    facts = json.loads((CASSETTES / "recorded.json").read_text("utf-8"))
    assert json.loads((tmp_path / "recorded.json").read_text("utf-8")).keys() == facts.keys()
    for made in sorted(tmp_path.glob("*.yaml")):
        assert "127.0.0.1" not in made.read_text("utf-8")
        if facts[made.stem]["answered_by"] == "scripts/scripted_server.py":
            assert _same_requests(made, CASSETTES / made.name)


def _same_requests(one: Path, other: Path) -> bool:
    with (
        use_cassette(one, record_mode="none", allow_unplayed=True) as new,
        use_cassette(other, record_mode="none", allow_unplayed=True) as old,
    ):
        pairs = zip(new.requests, old.requests, strict=True)
        return all(ours.matches(theirs) for ours, theirs in pairs)


# -- handoffs that are not made --


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"order_id": "A-9", "reason": "broken"}, "the customer has no order 'A-9'"),
        ({"order_id": "A-2001", "reason": "broken"}, "the customer has no order 'A-2001'"),
        ({"order_id": "A-1002"}, "reason"),
        ({"order_id": 1002, "reason": "broken"}, "order_id"),
        ("{", "JSON"),
    ],
)
async def test_triage_stays_in_charge_of_a_case_that_cannot_be_opened(
    desk: Any, arguments: Any, why: str
) -> None:
    model = ScriptedHandler([call("transfer_to_refunds", arguments), "Which order do you mean?"])
    config = support_desk.RunConfig(model=model)
    result = await Runner.run(support_desk.TRIAGE, "Refund it!", context=desk, run_config=config)
    assert result.last_agent.name == "Triage"
    assert outcome(result.handoffs[0]) == "failed"
    assert why in (result.handoffs[0].error or "")
    assert why in text_of(model.requests[-1].messages[-1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("4111111111111111", "**** 1111"),
        ("card 4111-1111-1111-1234!", "card **** 1234!"),
        ("4111 1111 1111", "4111 1111 1111"),
        ("order A-1002 of 2026", "order A-1002 of 2026"),
        ("", ""),
    ],
)
@pytest.mark.anyio
async def test_card_numbers_are_hidden_and_nothing_else(desk: Any, text: str, shown: str) -> None:
    transfer = call("transfer_to_refunds", {"order_id": "A-1002", "reason": "broken"})
    model = ScriptedHandler([transfer, "Done."])
    asked = [{"role": "user", "content": f"Hello. {text}"}]
    await Runner.run(support_desk.TRIAGE, asked, context=desk, run_config=support_desk.RunConfig(model=model))
    assert text_of(model.requests[-1].messages[-1]) == f"Hello. {shown}"


# -- the tools --


async def _use(desk: Any, tool: str, **arguments: Any) -> str:
    outcome = await getattr(shop, tool).invoke(ToolContext(context=desk), json.dumps(arguments))
    return outcome.output


@pytest.mark.anyio
async def test_a_delivered_order_is_paid_back(desk: Any) -> None:
    said = await _use(desk, "issue_refund", order_id="A-1001", reason="too loud")
    assert said == "Booked: 129.00 EUR for order A-1001."
    assert desk.rows("SELECT * FROM refunds") == [
        {"order_id": "A-1001", "cents": 12900, "reason": "too loud"}
    ]
    assert desk.order("A-1001")["state"] == "refunded"


@pytest.mark.anyio
async def test_two_refunds_at_a_time_book_one(desk: Any) -> None:
    said: list[str] = []

    async def refund() -> None:
        said.append(await _use(desk, "issue_refund", order_id="A-1002", reason="broken"))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(refund)
    assert sum(text.startswith("Booked") for text in said) == 1
    assert sum("A-1002 is refunded" in text for text in said) == 7
    assert len(desk.rows("SELECT * FROM refunds")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("order_id", "reason", "why"),
    [
        ("A-1003", "changed my mind", "order A-1003 is shipped; only a delivered order can be refunded"),
        ("A-2001", "not mine", "the customer has no order 'A-2001'"),
        ("", "none", "the customer has no order ''"),
        ("A-1001' OR '1'='1", "clever", "the customer has no order"),
        ("A-1001", " \n", "a refund needs a reason"),
    ],
)
async def test_a_refund_that_must_not_be_is_refused(desk: Any, order_id: str, reason: str, why: str) -> None:
    before = desk.rows("SELECT * FROM orders")
    said = await _use(desk, "issue_refund", order_id=order_id, reason=reason)
    assert said.startswith("Tool 'issue_refund' failed: Refused: ")
    assert why in said
    assert desk.rows("SELECT * FROM orders") == before
    assert desk.rows("SELECT * FROM refunds") == []


@pytest.mark.anyio
async def test_a_booking_that_fails_half_way_is_undone(desk: Any) -> None:
    with desk.transaction() as db:
        db.execute("INSERT INTO refunds VALUES ('A-1001', 12900, 'booked by hand')")
    said = await _use(desk, "issue_refund", order_id="A-1001", reason="too loud")
    assert "IntegrityError" in said
    assert desk.order("A-1001")["state"] == "delivered"


@pytest.mark.anyio
@pytest.mark.parametrize("order_id", ["a-1001", " A-1001\n"])
async def test_an_order_is_found_however_it_is_written(desk: Any, order_id: str) -> None:
    assert json.loads(await _use(desk, "look_up_order", order_id=order_id))["item"] == "Hub One"


@pytest.mark.anyio
async def test_a_customer_sees_their_own_orders_and_devices_only(desk: Any) -> None:
    orders = json.loads(await _use(desk, "list_orders"))
    assert [order["order_id"] for order in orders] == ["A-1001", "A-1002", "A-1003"]
    devices = json.loads(await _use(desk, "check_devices"))
    assert [device["serial"] for device in devices] == ["H-77"]


@pytest.mark.anyio
async def test_a_customer_without_orders_has_none() -> None:
    with closing(shop.Desk("nobody")) as desk:
        assert await _use(desk, "list_orders") == "[]"


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", ["", "{", '{"order_id": 7}', '{"order": "A-1001"}', "[]"])
async def test_arguments_that_do_not_fit_run_nothing(desk: Any, arguments: str) -> None:
    outcome = await shop.look_up_order.invoke(ToolContext(context=desk), arguments)
    assert outcome.error == "arguments"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("customer", "serial", "why"),
    [
        ("ada", "H-00", "the customer has no device 'H-00'"),
        ("ada", "H-78", "the customer has no device 'H-78'"),
        ("bob", "H-78", "H-78 is updating itself and must not be restarted"),
    ],
)
async def test_a_device_that_must_not_be_restarted_is_not(customer: str, serial: str, why: str) -> None:
    with closing(shop.Desk(customer)) as desk:
        assert why in await _use(desk, "restart_device", serial=serial)
        assert desk.rows("SELECT sum(restarts) AS n FROM devices") == [{"n": 0}]


@pytest.mark.anyio
@pytest.mark.parametrize("words", ["amber light hub", "AMBER?", "my hub is amber"])
async def test_the_manual_is_found_by_its_words(desk: Any, words: str) -> None:
    found = json.loads(await _use(desk, "search_manual", words=words))
    assert [page["topic"] for page in found] == ["Hub One: amber light"]


@pytest.mark.anyio
@pytest.mark.parametrize("words", ["", "??", "toaster", "%"])
async def test_the_manual_says_so_when_it_says_nothing(desk: Any, words: str) -> None:
    assert await _use(desk, "search_manual", words=words) == "The manual says nothing about that."
