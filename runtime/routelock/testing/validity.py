"""Checks whether chat providers accept a list of messages: all of them, or one vendor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast

from routelock.errors import ConfigError
from routelock.handlers.port import ToolSpec, tool_name
from routelock.history.messages import Message, calls_of, text_of
from routelock.history.validity import problems
from routelock.testing.profiles import PROFILES, Profile

__all__ = ["assert_valid", "refusals"]


_ROLES: Final = ("system", "developer", "user", "assistant", "tool")

_THOUGHTS: Final = (
    *("thinking_blocks", "reasoning_content", "reasoning", "reasoning_details", "reasoning_items"),
    *("thinking", "provider_specific_fields"),
)
"""Keys with data that only the vendor itself can read."""


def assert_valid(
    messages: Sequence[Message | Mapping[str, Any]],
    profile: Profile | str | None = None,
    *,
    tools: Sequence[ToolSpec] = (),
    thinking: bool = False,
) -> None:
    """Check that a provider would accept these messages.

    Without a profile it checks the rules that all providers share, which `Request.messages` follows. Each
    tool call has exactly one answer, directly after it, and each answer has its call. Ids exist and differ,
    roles are known, and there is something to answer.

    With a profile it also checks the rules of that vendor for messages as they are sent. The providers of
    routelock adapt messages to them when they send, so pass what `routelock_providers.litellm.as_sent`
    returns, or the body of a request.

    Args:
        messages: chat-completions messages.
        profile: a vendor's profile, or its name: one of `routelock.testing.PROFILES`.
        tools: the tools that the request offers.
        thinking: whether the request turns thinking on.

    Raises:
        AssertionError: with every broken rule, its position and its source, and a short list of the messages.
        ConfigError: there is no profile of that name.
    """
    if isinstance(profile, str):
        profile = _profile(profile)
    if found := refusals(messages, profile, tools=tools, thinking=thinking):
        vendor = "A provider" if profile is None else profile.name
        listed = "\n".join(f"  {index:3} {_brief(message)}" for index, message in enumerate(messages))
        raise AssertionError(
            f"{vendor} would refuse these {len(messages)} messages:\n"
            + "\n".join(f"- {problem}" for problem in found)
            + f"\n{listed}"
        )


def refusals(
    messages: Sequence[Message | Mapping[str, Any]],
    profile: Profile | None = None,
    *,
    tools: Sequence[ToolSpec] = (),
    thinking: bool = False,
) -> list[str]:
    """Return the problems that `assert_valid` would report, one line each."""
    found = [
        f"message {index}: unknown role {message.get('role')!r}"
        for index, message in enumerate(messages)
        if message.get("role") not in _ROLES
    ]
    known = cast("Sequence[Message]", messages)
    found = found or problems(known)
    if profile is not None and not found:
        found = list(_Check(profile, known, tools, thinking).problems())
    return found


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise ConfigError(f"There is no profile {name!r}; there are {', '.join(PROFILES)}.")
    return PROFILES[name]


class _Check:
    """Checks one list of messages against one profile."""

    def __init__(
        self, profile: Profile, messages: Sequence[Message], tools: Sequence[ToolSpec], thinking: bool
    ) -> None:
        self.profile = profile
        self.messages = messages
        self.tools = tools
        self.thinking = thinking

    def problems(self) -> Iterator[str]:
        """Yield each broken rule with its position and its source."""
        for index, message in enumerate(self.messages):
            for rule, problem in self._in_message(message):
                yield self._line(rule, f"message {index}", problem)
        for rule, position, problem in (*self._in_order(), *self._in_request()):
            yield self._line(rule, position, problem)

    def _line(self, rule: str, position: str, problem: str) -> str:
        return f"{position}: {problem} ({rule}: {self.profile.sources.get(rule, 'no source')})"

    def _in_message(self, message: Message) -> Iterator[tuple[str, str]]:
        profile, role = self.profile, message["role"]
        if role not in profile.roles:
            yield "roles", f"no role {role!r} here"
        if profile.keys is not None and (surplus := message.keys() - profile.keys):
            yield "keys", f"unknown keys {sorted(surplus)}"
        if role != "assistant" and profile.input_keys and (surplus := message.keys() - profile.input_keys):
            yield "input_keys", f"unknown keys {sorted(surplus)}"
        if (name := message.get("name")) is not None:
            yield from self._matches("message_name", f"the name {name!r}", name)
        yield from self._in_content(message)
        if role == "assistant":
            yield from self._in_thoughts(message)
        for call in calls_of(message):
            yield from self._in_call(cast("Mapping[str, Any]", call))

    def _in_content(self, message: Message) -> Iterator[tuple[str, str]]:
        profile, role, content = self.profile, message["role"], message.get("content")
        calls = calls_of(message)
        others = isinstance(content, list) and any(part.get("type") != "text" for part in content)
        if others and role not in profile.parts:
            yield "parts", f"only text in a message of role {role!r}"
        if calls and content is None and not profile.null_beside_calls:
            yield "null_beside_calls", "content is null beside calls"
        if calls and not profile.text_beside_calls and text_of(message):
            yield "text_beside_calls", "a text beside calls"
        if not calls and role in profile.no_blank and not others and _is_blank(message):
            yield "no_blank", f"blank text of role {role!r}"
        if role in profile.no_blank and isinstance(content, list):
            yield from (("no_blank", "a blank text part") for part in content if _is_blank_part(part))

    def _in_thoughts(self, message: Message) -> Iterator[tuple[str, str]]:
        profile = self.profile
        if unreadable := [key for key in _THOUGHTS if message.get(key) and key not in profile.thoughts]:
            yield "thoughts", f"private fields {unreadable} that it cannot read"
        if self.thinking and profile.needs_thought and not message.get(profile.needs_thought):
            yield "needs_thought", f"no {profile.needs_thought}"

    def _in_call(self, call: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        profile = self.profile
        if profile.call_keys is not None and (surplus := call.keys() - profile.call_keys):
            yield "call_keys", f"unknown keys {sorted(surplus)} in a call"
        if call.get("provider_specific_fields") and "provider_specific_fields" not in profile.thoughts:
            yield "thoughts", "private fields of a call that it cannot read"
        name = call["function"]["name"]
        yield from self._matches("call_id", f"call id {call['id']!r}", call["id"])
        yield from self._matches("tool_name", f"tool name {name!r}", name)

    def _matches(self, rule: str, what: str, text: str) -> Iterator[tuple[str, str]]:
        """Check a text against the pattern that is the value of a rule."""
        pattern: str | None = getattr(self.profile, rule)
        if pattern and not re.fullmatch(pattern, text):
            yield rule, f"{what} does not match {pattern}"

    def _in_order(self) -> Iterator[tuple[str, str, str]]:
        profile, roles = self.profile, [message["role"] for message in self.messages]
        for index, pair in enumerate(pairwise(roles), 1):
            if pair in profile.refused_order:
                yield "refused_order", f"message {index}", f"role {pair[1]!r} after role {pair[0]!r}"
        if profile.answers_in_order:
            for index in _out_of_order(self.messages):
                yield "answers_in_order", f"message {index}", "a result before that of an earlier call"
        spoken = [role for role in roles if role not in ("system", "developer")]
        if profile.starts_with and spoken and spoken[0] not in profile.starts_with:
            yield "starts_with", "at the start", f"role {spoken[0]!r} speaks first"
        if profile.ends_with and spoken and spoken[-1] not in profile.ends_with:
            yield "ends_with", "at the end", f"role {spoken[-1]!r} speaks last"

    def _in_request(self) -> Iterator[tuple[str, str, str]]:
        profile = self.profile
        if profile.tools_for_calls and not self.tools and any(map(calls_of, self.messages)):
            yield "tools_for_calls", "as a whole", "calls without a list of tools"
        for spec in self.tools:
            if name := tool_name(spec):
                found = self._matches("tool_name", f"tool name {name!r}", name)
                yield from ((rule, "tools", problem) for rule, problem in found)
        if self.thinking and profile.thinks_first and not self._thinks(profile.thinks_first):
            yield (
                "thinks_first",
                "at the end",
                f"calls are answered whose message has no {profile.thinks_first}",
            )

    def _thinks(self, key: str) -> bool:
        """Whether the turn with the answered calls, if there is one, begins with reasoning in this key."""
        for message in reversed(self.messages):
            if message["role"] == "user":
                break
            if message.get(key):
                return True
        else:
            return False
        return self.messages[-1]["role"] != "tool"


def _out_of_order(messages: Sequence[Message]) -> Iterator[int]:
    positions: dict[str, int] = {}
    last = 0
    for index, message in enumerate(messages):
        if message["role"] != "tool":
            positions, last = {call["id"]: number for number, call in enumerate(calls_of(message))}, 0
        elif (position := positions.get(message.get("tool_call_id") or "", last)) < last:
            yield index
        else:
            last = position


def _is_blank(message: Message) -> bool:
    return not text_of(message).strip() and not any(message.get(key) for key in _THOUGHTS)


def _is_blank_part(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and not str(part.get("text") or "").strip()


def _brief(message: Message | Mapping[str, Any]) -> str:
    known = cast(Message, message)
    calls = [f"calls {call['function']['name']}#{call.get('id')}" for call in calls_of(known)]
    answered = [f"answers #{message['tool_call_id']}"] if "tool_call_id" in message else []
    text = text_of(known).replace("\n", " ")[:60]
    return " ".join((f"{message.get('role')!s:9}", *answered, text, *calls))
