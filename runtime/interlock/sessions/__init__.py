"""Conversations that outlive a run and its process.

from interlock.sessions import Session, SQLiteSessions

store = SQLiteSessions("chats.db")
result = await Runner.run(agent, "Hi", session=Session("user-7", store))
"""

from interlock.sessions.encrypted import EncryptedSessions
from interlock.sessions.postgres import PostgresSessions
from interlock.sessions.redis import RedisSessions
from interlock.sessions.session import Conversation, Session
from interlock.sessions.sqlite import SQLiteSessions
from interlock.sessions.stores import InMemorySessions, SessionStore

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
