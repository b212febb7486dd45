"""An agent behind a URL, as a skill."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from routelock.agents.registry import Registry
from routelock.agents.skill import Skill
from routelock.errors import ConfigError, ToolError
from routelock.handlers.port import Priority
from routelock.handoff_request import HandoffRequest
from routelock.scopes import Scope
from routelock.tools.decorators import tool
from routelock_providers.remote.agent import RemoteAgent
from routelock_providers.remote.urls import AllowList, completions_url

__all__ = ["AgentHandoffSkill"]


class AgentHandoffSkill(Skill):
    """Lets an agent behind a URL take over for the rest of a run.

    With ``url`` the model is offered ``transfer_to_<name>``. With ``allow`` it is also offered the tool
    ``tool_name``, which takes a URL; a URL that is not allowed is refused, and nothing is sent. A tool of the
    app that finds a URL hands over to it by returning ``HandoffRequest(name, input={"agent_url": url})``.

    The URL of a handoff is the one in its input, else ``url``, else ``handoff_agent_url`` in the run's
    ``shared_memory`` or context. All but ``url`` have to be in ``allow``. `routelock_providers.RemoteAgent`
    describes the request and the reply.

    Args:
        url: the address of the agent, such as ``"https://agents.example.com/v1"``.
        allow: the other URLs that may be called, see `routelock_providers.remote.AllowList`.
        name: the name of the skill and its handler.
        prompt: tells the model when to hand over to it.
        model: the agent on the server.
        api_key: sent as a bearer token, to the server of ``url`` only.
        headers: sent to the server of ``url`` only.
        settings: further keys of the body, such as ``{"temperature": 0}``.
        pass_tools: whether the remote agent may use the tools of this one, and hand over with them.
        priority: its place among the agent's handlers; the lowest number comes first.
        scope: the scope that a run needs to use it, see `routelock.scopes`; default: that of the class,
            ``"all"``.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds between two events of a stream; None for no limit.
        tool_name: the name of the tool that takes a URL.

    Raises:
        ConfigError: neither ``url`` nor ``allow`` is given, or an argument is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        allow: Collection[str] = (),
        name: str = "agent_handoff",
        prompt: str | None = None,
        model: str = "default",
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        pass_tools: bool = False,
        priority: int = Priority.REMOTE,
        scope: Scope | None = None,
        timeout: float | None = 600.0,
        chunk_timeout: float | None = 120.0,
        tool_name: str = "hand_over_to_url",
    ) -> None:
        _check_reach(name, url, allow)
        super().__init__(name=name, scope=scope)
        self.handler: RemoteAgent = RemoteAgent(
            url,
            model=model,
            name=name,
            api_key=api_key,
            headers=headers,
            allow=allow,
            settings=settings or {},
            pass_tools=pass_tools,
            prompt=prompt,
            priority=priority,
            scope=self.scope,
            expose=url is not None,
            timeout=timeout,
            chunk_timeout=chunk_timeout,
        )
        self._own_url = None if url is None else completions_url(url)
        self._allow_list = AllowList(allow)
        self._tool_name = tool_name if allow else None

    def initialize(self, registry: Registry) -> None:
        """Register the remote agent and, with ``allow``, the tool that takes a URL."""
        registry.add_handler(self.handler, source=self.name, scope=self.scope)
        if self._tool_name is not None:
            takes_url = tool(self._hand_over, name=self._tool_name, description=self._description())
            registry.add_tool(takes_url, scope=self.scope)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The skill may be used again."""
        await self.handler.aclose()

    async def _hand_over(self, agent_url: str, reason: str) -> HandoffRequest:
        """Hand over to the agent behind a URL.

        Args:
            agent_url: where the agent is.
            reason: why it should take over.
        """
        try:
            url = completions_url(agent_url)
        except ConfigError as error:
            raise ToolError(f"{error}. Nothing was sent.") from error
        if url != self._own_url and not self._allow_list.permits(url):
            raise ToolError(f"{agent_url!r:.200} may not be called, and nothing was sent. {self._list()}")
        return HandoffRequest(self.name, input={"agent_url": agent_url}, reason=reason)

    def _description(self) -> str:
        parts = ("Hand the conversation over to the agent behind a URL.", self.handler.prompt, self._list())
        return " ".join(part for part in parts if part)

    def _list(self) -> str:
        return f"Allowed are: {self._allow_list}."


def _check_reach(name: str, url: str | None, allow: Collection[str]) -> None:
    if not isinstance(cast(object, url), str | None):
        raise ConfigError(
            f"AgentHandoffSkill takes the url of the agent as text, not {url!r:.80}. There is no dict of "
            "settings: AgentHandoffSkill(url, allow=[...], headers={...})."
        )
    if url is None and not allow:
        raise ConfigError(
            f"AgentHandoffSkill {name!r} has no agent to call: pass the agent's url=, or the hosts or URLs "
            "that a handoff may name in allow=."
        )
