"""Conversations that outlive a run and its process.

    from routelock.sessions import Session, SQLiteSessions

    store = SQLiteSessions("chats.db")
    result = await Runner.run(agent, "Hi", session=Session("user-7", store))

This package imports `state` (its SQLite file and its JSON), `run` and the rooms below them. Start at
`session.py`; a store of your own has the two methods of `SessionStore`.
"""

from routelock.sessions.encrypted import EncryptedSessions
from routelock.sessions.postgres import PostgresSessions
from routelock.sessions.redis import RedisSessions
from routelock.sessions.session import Conversation, Session
from routelock.sessions.sqlite import SQLiteSessions
from routelock.sessions.stores import InMemorySessions, SessionStore

__all__ = [
    "Conversation",
    "EncryptedSessions",
    "InMemorySessions",
    "PostgresSessions",
    "RedisSessions",
    "SQLiteSessions",
    "Session",
    "SessionStore",
]
