"""What every store of sessions does, whatever it is made of: one list of facts, and each store against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from databases import postgres, redis_server
from hypothesis import given
from hypothesis import strategies as st
from paths import SUPPORT
from session_writer import append_surely, opened
from thoroughness import examples
from waiting import PATIENCE

from routelock import Runner
from routelock.errors import SessionConflict, SessionError
from routelock.sessions import (
    EncryptedSessions,
    InMemorySessions,
    PostgresSessions,
    RedisSessions,
    Session,
    SessionStore,
)
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Place:
    """A store, and the code with which another process opens it; None for the store in memory."""

    store: SessionStore
    spec: str | None


@pytest.fixture(scope="module")
def conninfo() -> Iterator[str]:
    with postgres() as conninfo:
        yield conninfo


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres", "redis", "encrypted"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "memory":
        yield Place(InMemorySessions(), None)
        return
    servers = {"postgres": "conninfo", "redis": "redis_url"}
    if request.param in servers:
        where = request.getfixturevalue(servers[request.param])
    else:
        where = tmp_path_factory.mktemp("sessions") / "chats.db"
    store, close = opened(f"{request.param} {where}")
    yield Place(store, f"{request.param} {where}")
    close()


@pytest.fixture
def store(place: Place) -> SessionStore:
    return place.store


@pytest.fixture
def name() -> str:
    """A session that no other test knows."""
    return f'user\'s "{uuid.uuid4()}"; DROP TABLE é:*'


async def texts(store: SessionStore, name: str, **limits: Any) -> list[str]:
    return [text for _, text in await store.load(name, **limits)]


async def test_unknown_session_is_empty(store: SessionStore, name: str) -> None:
    assert [*await store.load(name)] == []


async def test_records_come_back_numbered_and_in_order(store: SessionStore, name: str) -> None:
    for number, text in enumerate("abc"):
        await store.append(name, number, text)
    assert [*await store.load(name)] == [(1, "a"), (2, "b"), (3, "c")]


async def test_the_newest_are_the_last_ones(store: SessionStore, name: str) -> None:
    for number, text in enumerate("abcd"):
        await store.append(name, number, text)
    assert await texts(store, name, newest=2) == ["c", "d"]
    assert await texts(store, name, newest=9) == ["a", "b", "c", "d"]


@pytest.mark.pairwise
@pytest.mark.parametrize("after", [0, 1, 3, 99])
async def test_writer_without_the_newest_number_is_refused(
    store: SessionStore, name: str, after: int
) -> None:
    await store.append(name, 0, "a")
    await store.append(name, 1, "b")
    with pytest.raises(SessionConflict):
        await store.append(name, after, "c")
    assert await texts(store, name) == ["a", "b"]


# -- adding at the same time --


class Racing:
    """A store whose writers have all looked before the first of them writes; then it lets them go."""

    def __init__(self, store: SessionStore, writers: int) -> None:
        self.store = store
        self.writers = writers
        self.looked = 0
        self.all_looked = anyio.Event()

    async def load(self, session: str, *, newest: int | None = None) -> Any:
        found = await self.store.load(session, newest=newest)
        self.looked += 1
        if self.looked == self.writers:
            self.all_looked.set()
        with anyio.fail_after(60):
            await self.all_looked.wait()
        return found

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        await self.store.append(session, after, text, alone=alone)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_all_that_add_at_the_same_time_are_stored(store: SessionStore, name: str) -> None:
    racing = Racing(store, 10)
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(Session(name, racing).add, [user(str(number)), user(f"{number} again")])
    said = [message.get("content") for message in (await Session(name, store).load()).messages]
    assert sorted(said[::2], key=str) == [str(number) for number in range(10)]
    assert said[1::2] == [f"{text} again" for text in said[::2]]


class Confused:
    """A store that has stored a text and says that it has not; meanwhile another one was stored."""

    def __init__(self, store: SessionStore, *, compacted: bool) -> None:
        self.store = store
        self.compacted = compacted
        self.first = True

    async def load(self, session: str, *, newest: int | None = None) -> Any:
        return await self.store.load(session, newest=newest)

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        await self.store.append(session, after, text, alone=alone)
        if self.first:
            self.first = False
            other = Session(session, self.store)
            await other.add([user("meanwhile")])
            if self.compacted:
                await other.compact()
            await self.store.append(session, after, text)  # as a client does that lost the answer


@pytest.mark.parametrize("compacted", [False, True])
async def test_text_stored_despite_an_error_is_not_stored_twice(
    store: SessionStore, name: str, compacted: bool
) -> None:
    await Session(name, Confused(store, compacted=compacted)).add([user("once")])
    said = [message.get("content") for message in (await Session(name, store).load()).messages]
    assert said == ["once", "meanwhile"]


async def test_writer_that_always_loses_raises(store: SessionStore, name: str) -> None:
    class Busy(Racing):
        tries = 0

        async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
            self.tries += 1
            raise SessionConflict("another one was faster")

    busy = Busy(store, 1)
    with pytest.raises(SessionConflict, match="faster"):
        await Session(name, busy).add([user("Hi")])
    assert 10 < busy.tries < 1000


async def test_first_number_is_one(store: SessionStore, name: str) -> None:
    with pytest.raises(SessionConflict):
        await store.append(name, 1, "a")
    assert await texts(store, name) == []


async def test_alone_replaces_all_records_and_keeps_counting(store: SessionStore, name: str) -> None:
    await store.append(name, 0, "a")
    await store.append(name, 1, "b", alone=True)
    assert [*await store.load(name)] == [(2, "b")]
    with pytest.raises(SessionConflict):
        await store.append(name, 0, "c")
    await store.append(name, 2, "c")
    assert [*await store.load(name)] == [(2, "b"), (3, "c")]


async def test_a_refused_alone_deletes_nothing(store: SessionStore, name: str) -> None:
    await store.append(name, 0, "a")
    with pytest.raises(SessionConflict):
        await store.append(name, 5, "b", alone=True)
    assert await texts(store, name) == ["a"]


async def test_sessions_are_separate(store: SessionStore, name: str) -> None:
    await store.append(name, 0, "a")
    await store.append(name + "x", 0, "b")
    assert await texts(store, name) == ["a"]
    assert await texts(store, name + "x") == ["b"]


async def test_a_text_may_be_long(store: SessionStore, name: str) -> None:
    await store.append(name, 0, "x" * 3_000_000)
    assert await texts(store, name) == ["x" * 3_000_000]


async def test_one_of_fifty_concurrent_writers_stores(store: SessionStore, name: str) -> None:
    outcomes: list[str] = []

    async def try_once(text: str) -> None:
        try:
            await store.append(name, 0, text)
        except SessionConflict:
            outcomes.append("conflict")
        else:
            outcomes.append(text)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(try_once, f"text {number}")
    assert outcomes.count("conflict") == 49
    assert await texts(store, name) == [text for text in outcomes if text != "conflict"]


async def test_fifty_retrying_writers_lose_nothing(store: SessionStore, name: str) -> None:
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(append_surely, store, name, f"text {number}")
    found = await store.load(name)
    assert [number for number, _ in found] == [*range(1, 51)]
    assert {text for _, text in found} == {f"text {number}" for number in range(50)}


CHARACTERS = 'aZ0 "\\/\x00\x1f\x7f\x85é\u2028\ud800\ufeff😀'
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(CHARACTERS, max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content, more: {**more, "role": role, "content": content},
        st.sampled_from(["user", "assistant", "system"]),
        st.text(CHARACTERS, min_size=1, max_size=20),
        st.dictionaries(st.sampled_from(["x", "reasoning_content"]), JSON, max_size=2),
    ),
    max_size=4,
)
"""Halves of surrogate pairs and NULs included; two halves that fit are one character in any JSON."""


@examples(15)
@given(batches=st.lists(MESSAGES, min_size=1, max_size=3))
async def test_any_text_comes_back_unchanged(place: Place, batches: list[list[dict[str, Any]]]) -> None:
    session = Session(str(uuid.uuid4()), place.store)
    for batch in batches:
        await session.add(batch)
    found = await session.loaded()
    assert [item.message for item in found.items] == [message for batch in batches for message in batch]
    assert found.notes == []


@pytest.mark.pairwise
@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
async def test_nan_comes_back_as_null(store: SessionStore, name: str, odd: float) -> None:
    """No request could hold it, so it would poison the conversation for ever."""
    said: Any = {"role": "user", "content": "Hi", "score": [odd]}
    await Session(name, store).add([said])
    (message,) = (await Session(name, store).load()).messages
    assert message == {"role": "user", "content": "Hi", "score": [None]}
    ((_, text),) = await store.load(name)
    json.loads(text, parse_constant=pytest.fail)


async def test_two_runs_are_one_conversation(store: SessionStore, name: str) -> None:
    from routelock import Agent

    agent = Agent("A", model=ScriptedHandler(["Hello.", "Again?"]))
    await Runner.run(agent, "Hi", session=Session(name, store))
    result = await Runner.run(agent, "Hi!", session=Session(name, store))
    assert [message.get("content") for message in result.messages] == ["Hi", "Hello.", "Hi!", "Again?"]
    assert [*(await Session(name, store).load()).messages] == result.messages


async def test_clearing_leaves_nothing_and_is_noticed(store: SessionStore, name: str) -> None:
    session = Session(name, store)
    await session.add([{"role": "user", "content": "Hi"}])
    number = await session.newest()
    await session.clear()
    assert [*(await session.load()).messages] == []
    with pytest.raises(SessionConflict):
        await store.append(name, number, "late")


async def test_compact_keeps_the_conversation(store: SessionStore, name: str) -> None:
    session = Session(name, store)
    for text in "abc":
        await session.add([{"role": "user", "content": text}])
    before = await session.load()
    await session.compact()
    assert await session.load() == before
    assert len(await store.load(name)) == 1


# -- other processes --

KILLS = int(os.environ.get("ROUTELOCK_KILLS") or 1)


@contextmanager
def writer(place: Place, *args: str) -> Iterator[subprocess.Popen[str]]:
    assert place.spec is not None
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = str(SUPPORT.joinpath("session_writer.py"))
    command = [sys.executable, script, place.spec, *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.asyncio_only
@pytest.mark.parametrize("kill", range(KILLS))
async def test_killed_process_loses_no_confirmed_turn(place: Place, name: str, kill: int) -> None:
    if place.spec is None or isinstance(place.store, EncryptedSessions):
        pytest.skip("what is in memory is in one process, and what is encrypted is another's")
    with writer(place, name, "a", "100000") as killed, writer(place, name, "b", "30") as other:
        assert killed.stdout is not None
        for _ in range(5 + 7 * kill):
            killed.stdout.readline()
        killed.kill()
        told = len([*killed.stdout]) + 5 + 7 * kill
        assert len(other.communicate(timeout=120)[0].split()) == 30
    found = await place.store.load(name)
    assert [number for number, _ in found] == [*range(1, len(found) + 1)]
    own = {who: [text for _, text in found if text.startswith(who)] for who in "ab"}
    assert own["b"] == [f"b{number} " + "x" * 3000 for number in range(30)]
    assert own["a"] == [f"a{number} " + "x" * 3000 for number in range(len(own["a"]))]
    assert told <= len(own["a"]) <= told + 1


@pytest.mark.asyncio_only
async def test_records_survive_reopening(place: Place, name: str) -> None:
    if place.spec is None:
        pytest.skip("what is in memory is gone with it")
    await place.store.append(name, 0, "a")
    other, close = opened(place.spec)
    assert await texts(other, name) == ["a"]
    close()
    assert await texts(other, name) == ["a"]  # it is opened again
    close()


# -- what is not there --


@pytest.mark.asyncio_only
@pytest.mark.parametrize(
    "store",
    [
        lambda: PostgresSessions("host=/nowhere-at-all dbname=x", timeout=0.3),
        lambda: RedisSessions("unix:///nowhere-at-all/redis.sock"),
    ],
    ids=["postgres", "redis"],
)
async def test_missing_server_is_a_clear_error(store: Callable[[], SessionStore]) -> None:
    with pytest.raises(SessionError, match="could not be loaded"):
        await Session("u", store()).load()


_WITHOUT = """
import sys
for name in ("cryptography", "psycopg", "psycopg_pool", "redis"):
    sys.modules[name] = None
from routelock.errors import MissingExtra
from routelock.sessions import EncryptedSessions, InMemorySessions, PostgresSessions, RedisSessions
for make in (
    lambda: EncryptedSessions(InMemorySessions(), ["k"]),
    lambda: PostgresSessions(""),
    lambda: RedisSessions(""),
):
    try:
        make()
    except MissingExtra as error:
        print(error)
"""


def test_missing_package_is_named_with_its_extra() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.splitlines() == [
        "EncryptedSessions needs cryptography, which is not installed: pip install 'routelock[encryption]'.",
        "PostgresSessions needs psycopg, which is not installed: pip install 'routelock[postgres]'.",
        "RedisSessions needs redis, which is not installed: pip install 'routelock[redis]'.",
    ], done.stderr
