"""`RunStream` reads the events of a run; `RunHandle` keeps the result of one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

from routelock._hints import hint_attributes
from routelock._peer_names import STREAM
from routelock._sendable import sendable
from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handlers.events import AttemptFailed, MessageDone, TextDelta, ToolCallDelta
from routelock.handlers.port import Request
from routelock.handlers.stream_assembler import join_surrogates
from routelock.handlers.structured_output import json_begun
from routelock.history.messages import Message
from routelock.run.events import RunDone, RunEvent
from routelock.run.frames import asking_caller
from routelock.run.loop import run_events
from routelock.run.result import RunResult
from routelock.run.run import Run

__all__ = ["RunHandle", "RunStream"]


Output = TypeVar("Output", default=Any, covariant=True)

_SHORT = 2000
"""Characters of a text that is read again with each piece."""

_PARTS = 16
"""Of a longer text, the part beyond `_SHORT` has to grow by a 16th before the text is read again. So the time
for all readings grows with the length of the text, and not with the square of it."""

_NOTHING = object()


class RunHandle:
    """Keeps the result of one run, even if the run is cancelled.

        handle = RunHandle()
        with anyio.move_on_after(30):
            await Runner.run(agent, "Hi", handle=handle)
        result = handle.result

    An error that ends a run has the result itself, but a cancellation, a timeout of the caller or a
    ``KeyboardInterrupt`` has not. Resume from ``handle.result.state()``: calls that were begun are not made
    again. An older state does not know of them. `stop` ends the run early. A `RunStream` needs no handle.
    """

    def __init__(self) -> None:
        self._run: Run | None = None
        self._stops_after_turn = False

    @property
    def result(self) -> RunResult[Any] | None:
        """The result so far, final once the run has ended (see ``stop_reason``); None before the run."""
        return None if self._run is None else self._run.result()

    def hold(self, run: Run) -> None:
        """Connect the handle with a run; `Runner.run` calls this.

        Raises:
            ConfigError: the handle was used before.
        """
        if self._run is not None:
            raise ConfigError("This RunHandle was used for another run: make a new RunHandle() for each run.")
        self._run = run
        if self._stops_after_turn:
            run.stop_after_turn()

    def stop(self, *, after: Literal["turn"] = "turn") -> None:
        """End the run after the turn that it is in; `Runner.run` returns its result.

        Call it from another task, from a thread, or from a tool or hook of the run. It does the same as
        `RunStream.stop`. A run that has not begun yet ends before its first turn. To end a run at once,
        cancel it.
        """
        _check_after(after)
        self._stops_after_turn = True
        if self._run is not None:
            self._run.stop_after_turn()


@hint_attributes(STREAM)
class RunStream(Generic[Output]):
    """A run as a stream of events.

        async with Runner.run_streamed(agent, "Hi") as stream:
            async for event in stream:
                ...
        result = stream.result

    Leaving the ``async with`` block early ends the run and closes the connection to the provider; ``result``
    then has everything that happened so far.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._events: AsyncGenerator[RunEvent] = run_events(run)

    @property
    def result(self) -> RunResult[Output]:
        """The result so far: complete after the last event, partial (see ``stop_reason``) before."""
        return self._run.result()

    @property
    def final_output(self) -> Output | None:
        """The final output; None until the run has one."""
        output: Output | None = self._run.ending.final_output
        return output

    @property
    def current_agent(self) -> Agent[Any]:
        """The active agent."""
        return self._run.frame.agent

    @property
    def last_agent(self) -> Agent[Any]:
        """Same as ``current_agent``; named like the field of the result."""
        return self._run.frame.agent

    def to_input_list(self) -> list[Message]:
        """Return the conversation so far as input for the next run, see `RunResult.to_input_list`."""
        return self._run.result().to_input_list()

    def stop(self, *, after: Literal["turn"] = "turn") -> None:
        """End the run after the turn that it is in, with every call of that turn answered.

        Read on: the rest of the turn comes, and then `RunDone` with a result whose ``stop_reason`` is
        ``"stopped"``; resume it from ``result.state()``. If the turn ends the run anyway, the stop has no
        effect. To end the run at once, use `aclose`.

        Args:
            after: what the run does before it ends; there is only ``"turn"``, one model call and the results
                of its calls. Agents that are called as tools in it work to their end.
        """
        _check_after(after)
        self._run.stop_after_turn()

    async def drain(self) -> RunResult[Output]:
        """Read the rest of the run and return its result."""
        async for _ in self:
            pass
        return self.result

    def partial_output(self) -> AsyncIterator[Output]:
        """Return the final output as it grows: valid values of the ``output_type``, and the output at last.

            async for draft in stream.partial_output():
                show(draft)

        Each value is validated as the final one is, and differs from the one before. A field without a
        default has to be there before there is a value, so give defaults to fields that are to be shown
        early; the last item of a list is left out until it is valid; the last text may be incomplete. If a
        reply turns out not to be the answer (it goes on with calls, or is not valid), the next one begins
        anew. Output guardrails see the final output only. An agent without ``output_type`` has one value,
        its text.

        This reads the events of the run, as `drain` does, so another reader of the stream does not get them.
        A text of up to 2,000 characters is read with each piece, and a longer one each time that it has grown
        by a 16th, so that the time for all readings grows with the length of the text.

        Raises:
            RoutelockError: an error ended the run, such as a refusal.
        """
        return _PartialOutputs(self._run, self._events)

    def stream_events(self) -> AsyncIterator[RunEvent]:
        """Return the events; the same as iterating over the stream itself."""
        return aiter(self)

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self._events

    async def __aenter__(self) -> RunStream[Output]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the run now if it still goes on. It is safe to call this twice.

        Raises:
            ConfigError: another task is reading the stream at this moment.
        """
        try:
            await self._events.aclose()
        except RuntimeError as error:
            if "already running" not in str(error):
                raise
            raise ConfigError(
                "Another task is reading this stream, so it cannot be closed here. Cancel that task instead: "
                "its `async with` block closes the stream."
            ) from error


def _check_after(after: object) -> None:
    if after != "turn":
        raise ConfigError(
            f"stop(after={after!r:.80}): a run stops after='turn'. To end it at once, close its stream with "
            "aclose(), or cancel the task that runs it."
        )


class _PartialOutputs:
    """Reads the events of a run, and gives the partial outputs.

    The text of the reply is in the run already, so it does not matter which event is the first. This is no
    generator, so that a reader may leave it and go on with the events.
    """

    __slots__ = ("_events", "_has_calls", "_last", "_length", "_next_length", "_request", "_run")

    def __init__(self, run: Run, events: AsyncIterator[RunEvent]) -> None:
        self._run = run
        self._events = events
        self._last: Any = _NOTHING
        self._request: Request | None = None
        self._begin(None)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while True:
            for output in self._take(await anext(self._events)):
                return output

    def _take(self, event: RunEvent) -> tuple[Any, ...]:
        """Return the output that there is after an event, if it differs from the one before; else nothing."""
        if isinstance(event, TextDelta):
            self._follow_reply()
            return self._take_text(event.text)
        if isinstance(event, ToolCallDelta):  # the text beside calls is not the final answer
            self._follow_reply()
            self._has_calls = True
        elif isinstance(event, AttemptFailed | MessageDone):
            self._begin(None)
        elif isinstance(event, RunDone):
            result = event.result
            if result.stop_reason == "done" or result.final_output is not None:
                return self._unless_known(result.final_output)
        return ()

    def _begin(self, request: Request | None) -> None:
        """Forget the text so far, because another reply begins."""
        self._request, self._has_calls = request, False
        self._length = self._next_length = 0

    def _follow_reply(self) -> None:
        if (request := self._run.model_call.request) is not self._request:
            self._begin(request)

    def _take_text(self, text: str) -> tuple[Any, ...]:
        output = self._run.frame.agent.output
        self._length += len(text)
        if output is None or self._has_calls or self._length < self._next_length:
            return ()
        if self._run.callers and asking_caller(self._run.callers) is not None:
            return ()
        self._next_length = self._length + max(0, self._length - _SHORT) // _PARTS
        so_far = json_begun(sendable(join_surrogates(self._run.model_call.text)))
        value = output.parse_partial(so_far) if so_far else None
        return () if value is None else self._unless_known(value)

    def _unless_known(self, value: Any) -> tuple[Any, ...]:
        with suppress(Exception):  # arrays have no truth value
            if value == self._last:
                return ()
        self._last = value
        return (value,)
