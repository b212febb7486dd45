"""The one loop. Plain runs drain it, streamed runs hand it out; there is no other.

view, handler, agent = start of the run          # in RunState: the reset is structural
for each turn:
reply = the MessageDone among handler.stream(request)
no tool calls -> final output
answer every call exactly once, in call order
a transfer was made -> the view, the agent or the handler changes
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from interlock.answers import answer_calls
from interlock.attempts import attempts
from interlock.callables import resolve
from interlock.errors import HandlerError, InterlockError, LimitExceeded, ModelBehaviorError
from interlock.events import AgentUpdated, AttemptFailed, HandlerEvent, MessageDone, Repaired, TextDelta
from interlock.executor import Call
from interlock.guardrails import check_input, check_output
from interlock.messages import Message, calls_of, text_of
from interlock.port import OutputSchema, Request, family_of
from interlock.prompts import system_message
from interlock.results import RunDone, RunEvent, attach
from interlock.routing import Offer, offer
from interlock.run_state import RunState, users_code, wrong_with
from interlock.tell import tell

__all__ = ["run_loop"]


async def run_loop(run: RunState) -> AsyncGenerator[RunEvent]:
    """Carry out a run and yield what happens, ending with `RunDone`.

    Raises:
        InterlockError: with the partial result in ``error.result``.
    """
    try:
        await _check_run_input(run)
        while run.stop_reason == "unfinished":
            if run.speaker_changed():
                yield AgentUpdated(run.agent.name)
            turn = await _begin_turn(run)
            for repair in turn.repairs:
                yield Repaired(agent=run.agent.name, repair=repair)
            async with aclosing(_model_step(run, turn.request)) as events:
                async for event in events:
                    _note(run, event)
                    if not isinstance(event, MessageDone):
                        yield event
            reply = _accept(run)
            yield reply
            async with aclosing(_after(run, turn.offered, reply)) as rest:
                async for happened in rest:
                    yield happened
    except Exception as error:
        await _end_badly(run, error)
    finally:
        run.keep_partial()
    yield RunDone(run.result())


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a turn begins with."""

    request: Request
    offered: Offer
    repairs: list[str]


async def _begin_turn(run: RunState) -> _Turn:
    if not run.started:
        await _start_agent(run)
    run.begin_turn()
    offered = await _offer(run)
    request, repairs = await _request(run, offered)
    return _Turn(request, offered, repairs)


async def _after(run: RunState, offered: Offer, reply: MessageDone) -> AsyncGenerator[RunEvent]:
    """Do what a reply asks for: answer its calls, or take it as the final output."""
    await tell(run, "on_llm_end", run.agent, reply)
    if calls := calls_of(reply.message):
        async with aclosing(answer_calls(run, offered, calls)) as answers:
            async for answer in answers:
                yield answer
    else:
        await _conclude(run, reply)


async def _check_run_input(run: RunState) -> None:
    if run.config.input_guardrails:
        messages = [item.message for item in run.view.items]
        with users_code("An input guardrail of the run"):
            await check_input(run.config.input_guardrails, run.now(), run.agent, messages)


async def _start_agent(run: RunState) -> None:
    """Run what belongs to the moment an agent becomes the active one."""
    run.started = True
    await tell(run, "on_agent_start", run.agent)
    await tell(run, None, agent_hook="on_start")
    if run.agent.input_guardrails:
        messages = [item.message for item in run.view.items]
        with users_code(f"An input guardrail of agent {run.agent.name!r}"):
            await check_input(run.agent.input_guardrails, run.now(), run.agent, messages)


async def _offer(run: RunState) -> Offer:
    known = run.offers.get(run.agent)
    if known is not None:
        return known
    with users_code(f"An is_enabled function of agent {run.agent.name!r}"):
        offered = await offer(run.agent, run.now())
    if offered.fixed:
        run.offers[run.agent] = offered
    return offered


async def _request(run: RunState, offered: Offer) -> tuple[Request, list[str]]:
    """Put together what the handler is given, and say what had to be repaired in it."""
    system = await system_message(run, offered)
    messages, repairs = run.view.messages(family_of(run.handler))
    run.repairs += repairs
    settings: dict[str, Any] = {**run.config.model_settings, **run.agent.model_settings}
    forced = settings.pop("tool_choice", None)
    output = run.agent.output
    request = Request(
        messages=[system, *messages] if system else [*messages],
        tools=offered.specs,
        tool_choice=forced if run.agent_turns == 1 else None,
        settings={key: value for key, value in settings.items() if value is not None},
        output_schema=None if output is None else OutputSchema("final_output", output.schema, output.strict),
        stream=run.stream,
        agent=run.agent.name,
        turn=run.turn,
        context=run.now(),
    )
    await tell(run, "on_llm_start", run.agent, request)
    return request, repairs


def _model_step(run: RunState, request: Request) -> AsyncGenerator[HandlerEvent]:
    """Make the model call through the executor."""
    run.begin_call(request)
    args: dict[str, Any] = {
        "agent": request.agent,
        "handler": run.handler.name,
        "messages": request.messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "settings": request.settings,
    }
    call = Call(run.run_id, f"t{run.turn}.model.{run.agent.name}", "model", args)
    return run.executor.stream(call, lambda _: attempts(run.handler, request, run.config.retry))


def _note(run: RunState, event: HandlerEvent) -> None:
    """Remember what arrives, so that nothing is lost however the call ends."""
    if isinstance(event, MessageDone):
        if run.arrived is not None:
            raise HandlerError(f"Handler {run.handler.name!r} yielded two MessageDone in turn {run.turn}.")
        run.arrived = event
    elif isinstance(event, TextDelta):
        run.partial.append(event.text)
    elif isinstance(event, AttemptFailed):
        run.problem("provider", f"attempt {event.attempt} failed: {event.error}", error=event.error)
        run.void_attempt(event.error)
    elif not run.partial:
        run.partial.append("")  # nothing to keep, but something was shown


def _accept(run: RunState) -> MessageDone:
    reply = run.arrived
    if reply is None:
        raise HandlerError(
            f"Handler {run.handler.name!r} ended in turn {run.turn} without a MessageDone. "
            "Every handler must yield exactly one, with the complete message."
        )
    if wrong := wrong_with(reply.message):
        raise HandlerError(f"Handler {run.handler.name!r} gave a reply in turn {run.turn} with {wrong}.")
    if reply.finish_reason in ("length", "content_filter"):
        run.warnings.append(f"turn {run.turn}: the reply was cut short ({reply.finish_reason})")
    return run.accept(reply)


async def _conclude(run: RunState, reply: MessageDone) -> None:
    """Turn a reply without calls into the final output, or tell the model what is wrong with it."""
    text = text_of(reply.message) or str(reply.message.get("refusal") or "")
    if not text:
        run.warnings.append(f"turn {run.turn}: the reply is empty")
    output: Any = text
    if run.agent.output is not None:
        try:
            output = run.agent.output.parse(text)
        except ModelBehaviorError as error:
            _ask_again(run, str(error))
            return
    for who, guardrails in (
        (run.agent.name, run.agent.output_guardrails),
        ("run", run.config.output_guardrails),
    ):
        if guardrails:
            with users_code(f"An output guardrail of {who!r}"):
                await check_output(guardrails, run.now(), run.agent, output)
    run.final_output = output
    run.stop_reason = "done"
    await tell(run, "on_agent_end", run.agent, output)
    await tell(run, None, output, agent_hook="on_end")


def _ask_again(run: RunState, wrong: str) -> None:
    run.mistakes += 1
    run.problem("output", wrong)
    if run.mistakes >= run.config.max_mistakes:
        raise ModelBehaviorError(
            f"Agent {run.agent.name!r} gave no valid final output in {run.mistakes} turns in a row: {wrong}"
        )
    text = f"Your answer is not valid: {wrong} Answer again with nothing but the corrected JSON."
    nudge: Message = {"role": "user", "content": text}
    run.add("nudge", nudge)


async def _end_badly(run: RunState, error: Exception) -> None:
    """Hang the partial result on the error and raise it, unless the run wants its limits as results."""
    run.keep_partial()
    if isinstance(error, LimitExceeded) and run.config.on_limit != "raise":
        run.stop_reason = "limit"
        if callable(run.config.on_limit):
            run.final_output = await _on_limit(run, run.config.on_limit, error)
        return
    run.stop_reason = "error"
    if isinstance(error, InterlockError):
        raise _with_result(run, error)
    wrapped = HandlerError(
        f"Handler {run.handler.name!r} of agent {run.agent.name!r} raised {type(error).__name__} "
        f"in turn {run.turn}: {error}"
    )
    raise _with_result(run, wrapped) from error


async def _on_limit(run: RunState, function: Callable[[LimitExceeded], Any], error: LimitExceeded) -> Any:
    """Ask the app for the final output of a run that a limit ended."""
    try:
        with users_code("The on_limit function of the run"):
            return await resolve(function(_with_result(run, error)))
    except InterlockError as failed:
        run.stop_reason = "error"
        attach(failed, run.result())
        raise


def _with_result(run: RunState, error: InterlockError) -> Any:
    attach(error, run.result())
    return error
