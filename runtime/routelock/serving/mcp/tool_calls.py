"""Calls of MCP clients: each is a run of an agent, with progress, cancellation and approvals.

The SDK is imported when an app is made, so that ``import routelock.serving`` needs no extra. It speaks two
forms of the protocol. Up to version 2025-11-25 the server asks the client while the call runs. Later the
call is answered with the questions for the user, and the client calls again with the decisions; until then
the run is kept in memory.
"""

from __future__ import annotations

import itertools
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import anyio
import pydantic

from routelock._text import one_line
from routelock.errors import MissingExtra
from routelock.run.result import RunResult
from routelock.serving.bounded_store import BoundedStore, bounds_of, state_size
from routelock.serving.catalog import ServedApp
from routelock.serving.config import MCP, ServedRequest
from routelock.serving.errors import Refusal, log_refusal, out_of_time, refusal_for
from routelock.serving.forms import Misfit, asked_fields, read_answer
from routelock.serving.json_rpc import INVALID_PARAMS
from routelock.serving.mcp.tools import ServedTool, error_body, progress_text, question, served_tools
from routelock.serving.run_data import delta_text
from routelock.serving.served_run import needs_approval, run_result, run_stream
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolRequestParams, ListToolsResult

__all__ = ["CALLER", "Caller", "ToolCalls", "can_serve"]


CALLER = "routelock.caller"
"""The key of the `Caller` in the ASGI scope."""

_NOT_MADE = "The agent made a call that a person has to approve, and {}. The call was not made."

_NO_ELICITATION = "this client cannot ask its user, because it does not support elicitation"

_NOT_ALLOWED = "clients of this server may not approve calls"

_NO_DECISION = "the user did not decide"

_CAPABILITY_MISSING = -32021
"""An error code of MCP."""

_ELICITATION: Mapping[str, Any] = {"requiredCapabilities": {"elicitation": {"form": {}}}}

_logger = logging.getLogger("routelock.serving")


def can_serve(sdk: str) -> bool:
    """Whether a version of the SDK has a server that bounds its sessions, without which it is not safe."""
    return tuple(map(int, sdk.split(".")[:2])) >= (2, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """The client of a call."""

    about: Callable[[str], ServedRequest]
    """Returns the request for an agent, as the app's own code is given it."""
    while_connected: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled when no answer can reach the client any more."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A run that waits for decisions, and the text that its agents wrote."""

    state: RunState
    text: str

    @property
    def questions(self) -> Mapping[str, Any]:
        """The requests that ask for a decision on each call, by the key of its answer."""
        requests: dict[str, Any] = {}
        for number, one in enumerate(self.state.interruptions, 1):
            key = one.name if one.name not in requests else f"{one.name}-{number}"
            requests[key] = {"method": "elicitation/create", "params": question(one)}
        return requests

    def decided(self, answers: Sequence[object]) -> RunState:
        """Return the state with a decision on each call that waits.

        Args:
            answers: the answers of the client, in order; each has an ``action``, and perhaps ``content``.

        Raises:
            Refusal: 403, the user did not decide on a call; 400, an answer does not fit the tool's question.
        """
        state = self.state
        for one, answer in zip(state.interruptions, answers, strict=True):
            action: object = getattr(answer, "action", "")
            if action not in ("accept", "decline"):
                waits = f"call that waits: {one.name!r} of agent {one.agent!r}"
                why = _NOT_MADE.format(_NO_DECISION)
                raise Refusal(403, why, "approval_required", for_log=waits)
            if action == "decline":
                state = state.reject(one)
                continue
            content: object = cast("Any", answer).content or dict[str, Any]()
            fields = content if asked_fields(one) else True  # a yes is enough for all other calls
            try:
                state = read_answer(one, fields, key="").decide(state, one)
            except Misfit as error:
                raise Refusal(400, f"The answer does not fit: {error}", "invalid_answer") from error
        return state


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call of a client."""

    tool: ServedTool
    about: ServedRequest
    context: ServerRequestContext[Any, Any]
    params: CallToolRequestParams

    @property
    def digest(self) -> str:
        """The tool and the arguments, which stay the same when the client calls again."""
        return json.dumps([self.params.name, self.params.arguments], sort_keys=True)

    @property
    def wants_progress(self) -> bool:
        """Whether the client may have asked for progress. One without HTTP need not send a token for it."""
        return self.context.request is None or "progress_token" in (self.context.meta or {})

    @property
    def can_ask(self) -> bool:
        """Whether the client can show its user a form."""
        capabilities = self.context.session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        # one without modes is of a version that had forms only
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A run that may start."""

    given: Callable[[], str | RunState]
    """Returns the input of the run, or raises a `Refusal` of the client's arguments or decisions."""
    said: str = ""
    """The text that the agents wrote before."""


class ToolCalls:
    """The tools of an app, and the calls of its clients.

    Args:
        app: the agents and settings of the app, and the number of its runs at the same time.
        settings: the settings of the protocol.
        local: returns the caller where there is no HTTP request.

    Raises:
        ConfigError: the agents cannot be tools.
        MissingExtra: version 2.2 of the SDK, or a newer one, is not installed.
    """

    def __init__(self, app: ServedApp, settings: MCP, local: Callable[[], Caller] | None = None) -> None:
        self._settings, self._config, self._access, self._local = settings, app.config, app.access, local
        self._tools = served_tools(app.catalog, settings)
        self._run_config = replace(app.config.run_config, run_id=None, executor=None)
        self._waiting = BoundedStore[tuple[str, str, str], _Waiting](bounds_of(app.config))
        self.server: Server[Any] = self._server(settings.name or app.catalog.names[0])
        """The SDK's server."""

    def _server(self, name: str) -> Server[Any]:
        try:
            if not can_serve(version("mcp")):
                raise ImportError("an older version of mcp is installed")
            from mcp.server.lowlevel import Server  # noqa: PLC0415 - an extra
            from mcp_types import CallToolRequestParams  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtra(
                "Serving by MCP needs version 2.2 or newer of the mcp package, which is not installed: "
                "pip install 'mcp>=2.2' 'routelock[mcp]'."
            ) from error
        server = Server[Any](
            name,
            version=self._settings.version,
            instructions=self._settings.instructions,
            on_list_tools=self._list,
        )
        server.add_request_handler("tools/call", CallToolRequestParams, self._call)
        # without it, the SDK from 2.3 lists all tools for each call that comes by HTTP; older ones ignore it
        server.get_tool_input_schema = self._input_schema
        return server

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.call.takes.schema

    async def _list(self, context: object, params: object) -> ListToolsResult:
        from mcp_types import ListToolsResult  # noqa: PLC0415 - an extra

        return ListToolsResult.model_validate({"tools": [tool.definition for tool in self._tools.values()]})

    async def _call(
        self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> dict[str, Any]:
        # as JSON: the SDK checks it against the client's version, a model of ours would be one check more
        return {"resultType": "complete", **await self._called(context, params)}

    async def _called(
        self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> dict[str, Any]:
        if (tool := self._tools.get(params.name)) is None:
            raise _protocol_error(f"There is no tool {params.name[:100]!r} here.")
        caller = self._caller(context)
        asked = _Asked(tool, caller.about(tool.served.agent.name), context, params)
        with caller.while_connected:
            return await self._result(asked)
        _logger.info("%s: the client has left", asked.about.request_id)
        raise _protocol_error("The client has left.")

    def _caller(self, context: ServerRequestContext[Any, Any]) -> Caller:
        if self._local is not None:
            return self._local()
        caller: Caller = cast(Any, context.request).scope[CALLER]
        return caller

    async def _result(self, asked: _Asked) -> dict[str, Any]:
        """Return the result of a call; an error is a result, too."""
        from mcp import MCPError  # noqa: PLC0415 - an extra

        begun = self._begin(asked)
        if not isinstance(begun, _Begun):
            return begun
        request_id = asked.about.request_id
        _logger.info("%s: agent %r for %s", request_id, asked.about.model, asked.about.principal)
        try:
            with self._access.slot():
                return await self._answer(asked, begun)
        except MCPError:
            raise
        except Exception as error:
            refusal = refusal_for(error)
        log_refusal(request_id, refusal)
        return error_body(refusal, request_id)

    def _begin(self, asked: _Asked) -> _Begun | dict[str, Any]:
        """Return the run; or the questions once more, if the client has not answered all of them.

        Raises:
            MCPError: there is no such run.
        """
        params = asked.params
        if params.request_state is None:
            return _Begun(lambda: asked.tool.read(params.arguments))
        key = (asked.about.principal, asked.digest, params.request_state)
        if (waiting := self._waiting.get(key)) is None:
            raise _protocol_error("The requestState is unknown or expired. Call the tool without it.")
        answers = params.input_responses or {}
        if missing := [name for name in waiting.questions if name not in answers]:
            _logger.info("%s: no answer to %s", asked.about.request_id, ", ".join(missing))
            return _input_required(waiting, params.request_state)
        given = [answers[name] for name in waiting.questions]

        def decided() -> RunState:
            # a decision holds once, and a call that found no slot has not used it
            self._waiting.remove(key)
            return waiting.decided(given)

        return _Begun(decided, waiting.text)

    async def _answer(self, asked: _Asked, begun: _Begun) -> dict[str, Any]:
        """Run until the agent has answered, or until the client has to call again with decisions."""
        given, said, steps = begun.given(), begun.said, itertools.count(1)
        seconds = self._config.timeout
        while True:
            before = anyio.current_time()
            result, text, finish = await self._run(asked, given, steps, seconds)
            seconds -= anyio.current_time() - before  # the time of a person does not count
            if not (result.interruptions or result.pending):
                whole = text if result.last_agent.output is not None else _joined(said, text)
                return asked.tool.answer(result, whole, finish)
            waiting = _Waiting(self._state(asked, result), _joined(said, text))
            if not asked.context.session.can_send_request:
                return self._keep(asked, waiting)
            given, said = waiting.decided(await self._answers(asked, waiting)), waiting.text

    async def _run(
        self, asked: _Asked, given: str | RunState, steps: Iterator[int], seconds: float
    ) -> tuple[RunResult[Any], str, str]:
        """Run for at most ``seconds``; return the result, the text of the agents, and the finish reason."""
        config, served = self._config, asked.tool.served
        settings = self._run_config
        if asked.about.scopes != settings.scopes:  # to check the settings anew takes long
            settings = replace(settings, scopes=asked.about.scopes)
        how = (config, asked.about, served.agent, given, settings)
        with anyio.move_on_after(seconds):
            if asked.wants_progress:
                async with await run_stream(*how) as stream:
                    async for event in stream:
                        if step := progress_text(event):  # most events have none
                            await asked.context.session.report_progress(next(steps), message=step)
                result = stream.result
            else:
                result = await run_result(*how)
            writer = served.writer()
            deltas = [delta for reply in writer.replies(result) for delta in reply]
            last, finish = writer.finish(result)
            return result, delta_text([*deltas, *last]), finish
        raise out_of_time(self._config.timeout)

    def _state(self, asked: _Asked, result: RunResult[Any]) -> RunState:
        """Return the state of a run that waits for decisions.

        Raises:
            Refusal: 403, the client cannot ask for them, or may not.
            MCPError: the same, as the newer form of the protocol says it.
        """
        if result.pending:
            raise needs_approval(result)
        if not self._settings.approvals:
            raise needs_approval(result, _NOT_MADE.format(_NOT_ALLOWED))
        if asked.can_ask:
            return result.state()
        refusal = needs_approval(result, _NOT_MADE.format(_NO_ELICITATION))
        if asked.context.session.can_send_request:
            raise refusal
        log_refusal(asked.about.request_id, refusal)
        raise _protocol_error(refusal.message, _CAPABILITY_MISSING, _ELICITATION)

    def _keep(self, asked: _Asked, waiting: _Waiting) -> dict[str, Any]:
        token = secrets.token_urlsafe(24)
        key = (asked.about.principal, asked.digest, token)
        self._waiting.put(key, waiting, state_size(waiting.state))
        return _input_required(waiting, token)

    async def _answers(self, asked: _Asked, waiting: _Waiting) -> Sequence[object]:
        """Ask the client about each waiting call; return the answers in order, None for a missing one."""
        from mcp import MCPError  # noqa: PLC0415 - an extra

        answers: list[object] = []
        context = asked.context
        for each in waiting.questions.values():
            said = each["params"]
            answer = None
            with anyio.move_on_after(self._config.pending_ttl):
                try:
                    answer = await context.session.elicit_form(
                        said["message"], said["requestedSchema"], related_request_id=context.request_id
                    )
                except (MCPError, pydantic.ValidationError) as error:
                    why = one_line(str(error))
                    _logger.warning("%s: the client cannot ask: %s", asked.about.request_id, why)
            answers.append(answer)
        return answers


def _input_required(waiting: _Waiting, token: str) -> dict[str, Any]:
    asked = {"inputRequests": waiting.questions, "requestState": token}
    return {"resultType": "input_required", **asked}


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _protocol_error(message: str, code: int = INVALID_PARAMS, data: object = None) -> Exception:
    """Return the error for a call that cannot be answered by a result."""
    from mcp import MCPError  # noqa: PLC0415 - an extra

    return MCPError(code, message, data)
