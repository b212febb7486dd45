"""Every kind of function, whatever it gives, cut anywhere, streamed or not: the same run."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from scenes import Recorder, facts
from thoroughness import examples

from routelock import Agent, RunConfig, Runner, RunStream, function_handler, function_tool
from routelock.errors import RoutelockError
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.function_handler import handler
from routelock.handlers.port import Handler, Request
from routelock.history.messages import Message, calls_of, text_of
from routelock.run.events import RunDone
from routelock.run.start import start
from routelock.testing import ScriptedHandler
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
TOLD = Usage(requests=1, input_tokens=7, output_tokens=3, cached_tokens=2)


@dataclass(frozen=True, slots=True)
class Said:
    """The text and the calls of one turn."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Ids and arguments."""
    finish: str | None = None

    def message(self) -> Message:
        content = None if self.calls and not self.text else self.text
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}
                for call_id, arguments in self.calls
            ]
        return message  # type: ignore[return-value]


# -- cutting --


Pieces = list[tuple[str, int, str]]
"""What is said, piece by piece: the kind, which call, and the text."""


def in_order(said: Said, cut: Callable[[str], Sequence[str]]) -> Pieces:
    return [
        *(("reasoning", 0, piece) for piece in cut(said.reasoning)),
        *(("text", 0, piece) for piece in cut(said.text)),
        *(
            piece
            for place, (_, arguments) in enumerate(said.calls)
            for piece in [("call", place, ""), *(("call", place, each) for each in cut(arguments))]
        ),
    ]


def whole(text: str) -> list[str]:
    return [text] if text else []


def mixed(said: Said, cut: Callable[[str], Sequence[str]], pick: Callable[[int], int]) -> Pieces:
    """Mix the pieces as providers with parallel calls do; ``pick`` chooses the next one."""
    rows = [list(row) for _, row in itertools.groupby(in_order(said, cut), lambda piece: piece[:2])]
    pieces: Pieces = []
    begun = 0
    while rows:
        # a call begins when all before it have begun: its place is the order in which they begin
        ready = [row for row in rows if row[0][0] != "call" or row[0][1] <= begun]
        pieces.append(ready[pick(len(ready))].pop(0))
        begun = max(begun, pieces[-1][1] + 1 if pieces[-1][0] == "call" else 0)
        rows = [row for row in rows if row]
    return pieces


# -- what a function gives --


class Dumped(BaseModel):
    """Stands for the objects of openai and litellm, which are pydantic models with further fields."""

    model_config = ConfigDict(extra="allow")


def delta_of(said: Said, piece: tuple[str, int, str], begun: set[int]) -> dict[str, Any]:
    kind, place, text = piece
    if kind == "text":
        return {"content": text}
    if kind == "reasoning":
        return {"reasoning_content": text}
    call: dict[str, Any] = {"index": place, "function": {"arguments": text}}
    if place not in begun:
        begun.add(place)
        head = {"name": "look", "arguments": text}
        call |= {"id": said.calls[place][0], "type": "function", "function": head}
    return {"tool_calls": [call]}


def events(said: Said, pieces: Pieces) -> Iterator[HandlerEvent]:
    for kind, place, text in pieces:
        if kind == "text":
            yield TextDelta(text)
        elif kind == "reasoning":
            yield ReasoningDelta(text)
        else:
            yield ToolCallDelta(place, said.calls[place][0], "look", text)


def message_done(said: Said) -> MessageDone:
    return MessageDone(
        message=said.message(), usage=TOLD, finish_reason=said.finish, model="m", response_id="1"
    )


def completion(said: Said) -> dict[str, Any]:
    choice = {"index": 0, "message": said.message(), "finish_reason": said.finish}
    return {"id": "1", "model": "m", "object": "chat.completion", "choices": [choice], "usage": USAGE}


def chunks(said: Said, pieces: Pieces) -> Iterator[dict[str, Any]]:
    """Write chunks, the usage in a last one without choices."""
    common = {"id": "1", "model": "m", "object": "chat.completion.chunk"}

    def chunk(delta: Any, finish: str | None = None) -> dict[str, Any]:
        return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    begun = set[int]()
    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk(delta_of(said, piece, begun)) for piece in pieces)
    if said.finish is not None:
        yield chunk({}, said.finish)
    yield {**common, "choices": [], "usage": USAGE}


def loose(said: Said) -> dict[str, Any]:
    message = {key: value for key, value in said.message().items() if key != "role"}
    return {**message, "finish_reason": said.finish, "usage": USAGE, "model": "m", "id": "1"}


def loose_deltas(said: Said, pieces: Pieces) -> Iterator[dict[str, Any]]:
    begun = set[int]()
    yield {"content": "", "model": "m", "id": "1"}
    yield from (delta_of(said, piece, begun) for piece in pieces)
    yield {"content": None, "finish_reason": said.finish}
    yield {"usage": USAGE}


def text_if_it_can(said: Said, pieces: Pieces) -> list[Any]:
    """Text alone has no calls and no reasoning."""
    only_text = not said.calls and not said.reasoning
    return [text for _, _, text in pieces] if only_text else [said.message()]


GIVEN: dict[str, Callable[[Said, Pieces], Sequence[Any]]] = {
    "text": text_if_it_can,
    "messages": lambda said, pieces: [said.message()],
    "message events": lambda said, pieces: [message_done(said)],
    "delta events": lambda said, pieces: [*events(said, pieces)],
    "all events": lambda said, pieces: [*events(said, pieces), message_done(said)],
    "deltas and a message": lambda said, pieces: [*events(said, pieces), said.message()],
    "some deltas and a message": lambda said, pieces: [*events(said, pieces[:1]), said.message()],
    "completions": lambda said, pieces: [completion(said)],
    "completion objects": lambda said, pieces: [Dumped(**completion(said))],
    "chunks": lambda said, pieces: [*chunks(said, pieces)],
    "chunk objects": lambda said, pieces: [Dumped(**chunk) for chunk in chunks(said, pieces)],
    "loose dicts": lambda said, pieces: [loose(said)],
    "loose deltas": lambda said, pieces: [*loose_deltas(said, pieces)],
}
SILENT = {"text", "messages", "delta events", "deltas and a message", "some deltas and a message"}
"""These have no place for the usage, the finish reason and the model."""


# -- who gives it --

Turns = Sequence[Sequence[Any]]
"""What is given in each turn."""


def turn_of(turns: Turns, request: Request) -> Sequence[Any]:
    return turns[request.turn - 1]


def generator(turns: Turns) -> Handler:
    async def model(request: Request) -> AsyncGenerator[Any]:
        for piece in turn_of(turns, request):
            await anyio.lowlevel.checkpoint()
            yield piece

    return function_handler(model)


def generator_object(turns: Turns) -> Handler:
    class Model:
        async def __call__(self, request: Request) -> AsyncGenerator[Any]:
            for piece in turn_of(turns, request):
                yield piece

    return function_handler(Model(), name="model")


def coroutine(turns: Turns) -> Handler:
    """One piece is returned, more are not possible without an iterator."""

    async def model(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        pieces = turn_of(turns, request)
        return pieces[0] if len(pieces) == 1 else iterated(pieces)

    return function_handler(model)


async def iterated(pieces: Sequence[Any]) -> AsyncGenerator[Any]:
    for piece in pieces:
        yield piece


def iterator_of_coroutine(turns: Turns) -> Handler:
    async def model(context: Any, q: Request) -> AsyncIterator[Any]:
        assert context.turn == q.turn
        return iterated(turn_of(turns, q))

    return function_handler(model)


def iterator_of_sync_function(turns: Turns) -> Handler:
    def model(request: Request) -> AsyncIterator[Any]:
        return iterated(turn_of(turns, request))

    return function_handler(model)


def partial(turns: Turns) -> Handler:
    async def model(turns: Turns, request: Request) -> AsyncGenerator[Any]:
        for piece in turn_of(turns, request):
            yield piece

    return function_handler(functools.partial(model, turns))


def method(turns: Turns) -> Handler:
    class Desk:
        @handler(name="model")
        async def answer(self, messages: Any, request: Request) -> AsyncGenerator[Any]:
            assert messages is request.messages
            for piece in turn_of(turns, request):
                yield piece

    return Desk().answer


def wrapped(turns: Turns) -> Handler:
    async def model(request: Request) -> Any:
        return iterated(turn_of(turns, request))

    @functools.wraps(model)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return function_handler(wrapper)


WHO: dict[str, Callable[[Turns], Handler]] = {
    made.__name__: made
    for made in (
        generator,
        generator_object,
        coroutine,
        iterator_of_coroutine,
        iterator_of_sync_function,
        partial,
        method,
        wrapped,
    )
}


# -- runs --


@function_tool
async def look(at: int, why: str = "") -> str:
    """Look at something."""
    await anyio.lowlevel.checkpoint()
    return f"seen {at} {why}"


async def play(model: Handler, given: str = "", *, stream: bool) -> dict[str, Any]:
    """Play a run and return all that must be the same; check that a streamed one shows all there is."""
    hooks = Recorder()
    agent = Agent("A", "Be brief.", model=model, tools=[look])
    run = start(agent, "Hi", None, 10, hooks, RunConfig(run_id="r"), stream=stream)
    happened: list[Any] = []
    error: RoutelockError | None = None
    running = RunStream(run)
    try:
        async for event in running:
            happened.append(event)
    except RoutelockError as raised:
        error = raised
    if stream and error is None:
        shows_all(happened, some=given.startswith("some"))
    return {
        **facts(running.result),
        "hooks": sorted_tools(hooks.calls),
        "events": [each for each in happened if stream and not isinstance(each, (*DELTAS, RunDone))],
        "error": repr(error),
    }


def shows_all(happened: list[Any], *, some: bool) -> None:
    """What was shown before a `MessageDone` is that message, letter for letter; its text in any case."""
    text, reasoning, arguments = "", "", dict[int, str]()
    for event in happened:
        match event:
            case TextDelta(text=piece):
                text += piece
            case ReasoningDelta(text=piece):
                reasoning += piece
            case ToolCallDelta(index=index, arguments=piece):
                arguments[index] = arguments.get(index, "") + piece
            case MessageDone(message=message):
                assert text == text_of(message)
                thoughts = str(message.get("reasoning_content", ""))
                made = {place: call["function"]["arguments"] for place, call in enumerate(calls_of(message))}
                if some:  # the rest of it is in the message alone
                    assert thoughts.startswith(reasoning)
                    assert all(made[place].startswith(piece) for place, piece in arguments.items())
                else:
                    assert (reasoning, arguments) == (thoughts, made)
                text, reasoning, arguments = "", "", {}
            case _:
                pass


def sorted_tools(hooks: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sort simultaneous events, because trio starts tasks in any order."""
    groups = itertools.groupby(hooks, lambda hook: hook[0].startswith("tool"))
    return [hook for at_once, group in groups for hook in (sorted(group) if at_once else group)]


async def expected_of(script: Sequence[Said], given: str, *, stream: bool) -> dict[str, Any]:
    """What the run is with a handler that is no function and gives whole replies."""
    replies = [message_done(said) for said in script]
    if given in SILENT:
        replies = [MessageDone(message=each.message) for each in replies]
    plain, streamed = [
        await play(ScriptedHandler(replies, name="model"), stream=each) for each in (False, True)
    ]
    assert plain == {**streamed, "events": []}
    return streamed if stream else plain


ONCE = [
    Said("Let me see.", "Hm, hm.", (("a", '{"at": 1}'), ("b", '{"at": 2, "why": "both"}')), "tool_calls"),
    Said("", "", (("", '{"at": 3}'), ("", '{"at": 4}')), None),
    Said("Done.\n", "", (), "stop"),
]


SOME = ("generator", "coroutine", "iterator_of_sync_function")
TABLE = [
    pytest.param(loop, given, who, id=f"{loop}-{given}-{who}")
    for loop, callers in (("asyncio", WHO), ("trio", SOME))
    for given in GIVEN
    for who in callers
]


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(("anyio_backend", "given", "who"), TABLE, scope="module")
async def test_a_run_is_the_same_whoever_gives_whatever(given: str, who: str, stream: bool) -> None:
    """Equal items, calls, usage, finish reasons, hooks and events, in the same order."""
    turns = [GIVEN[given](said, in_order(said, list)) for said in ONCE]
    played = await play(WHO[who](turns), given, stream=stream)
    assert played == await expected_of(ONCE, given, stream=stream)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
arguments_of = st.builds(
    lambda at, why, indent: json.dumps({"at": at, "why": why}, indent=indent, ensure_ascii=False),
    st.integers(-9, 9),
    texts,
    st.sampled_from([None, 1]),
)
finishes = st.sampled_from(["stop", "tool_calls", "length", None])


@st.composite
def cut_up(draw: st.DrawFn, said: Said) -> Pieces:
    """A turn, split anywhere and mixed."""

    def cut(text: str) -> list[str]:
        places = draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
        return [text[begin:end] for begin, end in itertools.pairwise([0, *places, len(text)])]

    return mixed(said, cut, lambda count: draw(st.integers(0, count - 1)))


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[Said, Pieces]]:
    """One turn with calls, perhaps another, and then the final text."""
    script = list[Said]()
    for turn in range(draw(st.integers(1, 2))):
        every = draw(st.lists(arguments_of, min_size=1, max_size=3))
        calls = tuple(
            (draw(st.sampled_from(["", f"id{turn}{place}"])), arguments)
            for place, arguments in enumerate(every)
        )
        script.append(Said(draw(texts), draw(texts), calls, draw(finishes)))
    script.append(Said(draw(texts.filter(str.strip)), draw(st.just("") | texts), (), draw(finishes)))
    return [(said, draw(cut_up(said))) for said in script]


@pytest.mark.asyncio_only  # the table above has both loops; how a text is cut is no matter of theirs
@given(script=scripts(), who=st.sampled_from(sorted(WHO)))
@examples(8)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("given", GIVEN)
async def test_split_of_the_stream_changes_nothing(
    given: str, stream: bool, script: list[tuple[Said, Pieces]], who: str
) -> None:
    """Text, reasoning and several calls cut and mixed anywhere, with any finish reason."""
    turns = [GIVEN[given](said, pieces) for said, pieces in script]
    played = await play(WHO[who](turns), given, stream=stream)
    assert played == await expected_of([said for said, _ in script], given, stream=stream)


LAST = '{"at": 1, "why": "it"}'


@st.composite
def cut_off(draw: st.DrawFn) -> tuple[Said, Pieces]:
    """A reply that ends inside of the arguments of its last call."""
    last = LAST[: draw(st.integers(1, len(LAST) - 1))]
    said = Said(draw(texts), "", (("a", '{"at": 0}'), ("b", last)))
    return said, draw(cut_up(said))


@pytest.mark.asyncio_only
@given(reply=cut_off())
@examples(8)
@pytest.mark.parametrize("given", ["delta events", "chunks", "chunk objects", "loose deltas"])
async def test_cut_off_reply_is_an_invalid_output(given: str, reply: tuple[Said, Pieces]) -> None:
    """Nothing runs, streamed or not."""
    turns = [[piece for piece in GIVEN[given](*reply) if not _ends(piece)]]
    plain, streamed = [await play(generator(turns), stream=stream) for stream in (False, True)]
    assert plain == {**streamed, "events": []}
    assert "IncompleteResponse" in plain["error"]
    assert not [hook for hook in plain["hooks"] if hook[0].startswith("tool")]


def _ends(piece: Any) -> bool:
    given = piece.model_dump() if isinstance(piece, BaseModel) else piece
    return isinstance(given, dict) and bool(given.get("usage"))


@pytest.mark.parametrize("who", WHO)
async def test_runner_run_and_run_streamed_end_alike(who: str) -> None:
    turns = [GIVEN["chunks"](said, in_order(said, whole)) for said in ONCE]
    agent = Agent("A", model=WHO[who](turns), tools=[look])
    plain = await Runner.run(agent, "Hi")
    streamed = await Runner.run_streamed(agent, "Hi").drain()
    assert facts(plain) == facts(streamed)
    assert plain.final_output == "Done.\n"
