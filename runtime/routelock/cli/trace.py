"""``routelock trace FILE``: step through a recorded run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE
from routelock.cli.screen import (
    MARKS,
    bounded,
    call_arguments,
    compaction_line,
    usage_line,
    vendor_notes,
)
from routelock.errors import ConfigError
from routelock.history.messages import text_of
from routelock.tracing.reader import TracedCall, TracedRun, read_trace
from routelock.tracing.records import (
    CompactedTraced,
    ErrorTraced,
    HandoffTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    ProblemTraced,
    RunEnded,
    RunStarted,
    TookOver,
    ToolEnded,
    ToolStarted,
    TraceRecord,
)

__all__ = ["trace_command"]


_ROOM = 300


def _declare(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("file", metavar="FILE", help="a file that --trace or RunConfig(trace=...) has written")
    add(
        "--run",
        metavar="N",
        type=int,
        dest="number",
        help="only the Nth run of the file, from 1; -1 is the last",
    )
    add("--seen", action="store_true", help="show the messages and the reply of each model call")
    add("--all", action="store_true", help="print all steps at once, also in a terminal")


def _run(given: argparse.Namespace) -> int:
    log = read_trace(given.file)
    runs = _chosen(log.runs, given.number, given.file)
    if log.unreadable:
        numbers = bounded(", ".join(map(str, log.unreadable)), 80)
        sys.stderr.write(f"routelock: skipped lines that cannot be read: {numbers}\n")
    stepping = sys.stdin.isatty() and sys.stdout.isatty() and not given.all
    seen = given.seen
    for text, call in (step for number, run in runs for step in _steps(run, f"run {number}")):
        sys.stdout.write(f"{text}\n")
        if call is not None and seen:
            _write_seen(call)
        if stepping and not _continue_after(call):
            break
    return DONE


def _chosen(runs: Sequence[TracedRun], number: int | None, file: str) -> list[tuple[int, TracedRun]]:
    numbered = list(enumerate(runs, 1))
    if not numbered:
        raise ConfigError(f"{file} has no run. Give a file that RunConfig(trace=...) has written.")
    if number is None:
        return numbered
    if number == 0 or abs(number) > len(numbered):
        raise ConfigError(f"--run {number}: {file} has {len(numbered)} runs.")
    return [numbered[number - 1 if number > 0 else number]]


def _continue_after(call: TracedCall | None) -> bool:
    """Ask whether to show the next step, and show the messages of a call on request."""
    more = ", s what the model saw" if call else ""
    while True:
        try:
            answer = input(f"[Enter next{more}, q end] ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            return False
        if answer == "s" and call is not None:
            _write_seen(call)
            continue
        return answer != "q"


def _write_seen(call: TracedCall) -> None:
    offered = ", ".join(str(_named(tool)) for tool in call.tools) or "nothing"
    sys.stdout.write(f"      offered: {bounded(offered, _ROOM)}\n")
    for message in call.messages:
        sys.stdout.write(f"      {message.get('role', '?')}: {_message_text(message)}\n")
    if call.reply is not None:
        sys.stdout.write(f"      replied: {_message_text(call.reply)}\n")


def _named(tool: Mapping[str, Any]) -> object:
    return tool.get("function", {}).get("name") or tool.get("type") or next(iter(tool), "?")


def _message_text(message: Mapping[str, Any]) -> str:
    known: Any = message
    calls = [_call_in(each["function"]) for each in known.get("tool_calls") or ()]
    text = bounded(text_of(known) or str(known.get("refusal") or ""), 10 * _ROOM)
    return " ".join(filter(None, (text, ", ".join(calls)))) or "(nothing)"


def _call_in(function: Mapping[str, Any]) -> str:
    """Return a call as text; a trace may have no arguments, see `routelock.tracing.file`."""
    arguments = call_arguments(str(function.get("arguments") or ""), _ROOM)
    return f"{bounded(str(function.get('name', '?')), 80)}({arguments})"


def _steps(run: TracedRun, title: str) -> Iterator[tuple[str, TracedCall | None]]:
    """Yield each step of a run and of its sub-runs, with the model call if it is one."""
    calls = {call.start.call: call for call in run.calls}
    begun = run.start.time
    for record in _without_repetitions(run.records):
        if (text := _text_of(record, title)) is not None:
            call = calls.get(record.call) if isinstance(record, ModelEnded) else None
            yield f"{record.time - begun:7.2f} s  {text}{_vendor_lines(call)}", call
        if isinstance(record, ToolStarted) and (inner := run.nested.get(record.call_id)) is not None:
            yield from _steps(inner, f"{title}, in {bounded(record.name, 80)}")
    if run.end is None:
        yield f"{title} has no end: the process was killed, or it is still running", None


def _without_repetitions(records: Iterable[TraceRecord]) -> Iterator[TraceRecord]:
    """Yield the records without repetitions: a handoff is recorded again when its target ends."""
    seen: dict[str, str | None] = {}
    for record in records:
        if isinstance(record, HandoffTraced):
            if seen.get(record.id) == (text := _of_handoff(record)):
                continue
            seen[record.id] = text
        yield record


def _text_of(record: TraceRecord, title: str) -> str | None:
    text = _of_run(record, title) or _of_model(record) or _of_tool(record) or _of_handoff(record)
    text = text or _of_compaction(record)
    if isinstance(record, ProblemTraced):
        why = bounded(record.message, _ROOM) or _error_text(record.error) or record.kind
        return f"! {bounded(record.agent, 80)}: {why}"
    return text


def _error_text(error: ErrorTraced | None) -> str:
    """Return the text of an error, or its type if the trace has no texts."""
    return "" if error is None else bounded(error.message, _ROOM) or bounded(error.type, 80)


def _of_run(record: TraceRecord, title: str) -> str | None:
    if isinstance(record, RunStarted):
        resumed = ", resumed" if record.resumed else ""
        return f"{title} begins with {bounded(record.agent, 80)}{resumed}"
    if isinstance(record, RunEnded):
        why = f": {_error_text(record.error)}" if record.error else ""
        output = [] if record.output is None else [bounded(_text(record.output), 10 * _ROOM)]
        more = "".join(f"\n           {line}" for line in (*_found(record), *_waits(record), *output))
        return f"{title} ends, {record.stop_reason}{why} ({usage_line(record.usage)}){more}"
    return None


def _vendor_lines(call: TracedCall | None) -> str:
    """Return lines for the calls of the vendor's own tools in the reply of a model call."""
    notes = vendor_notes({} if call is None or call.reply is None else call.reply)
    return "".join(f"\n           {MARKS[note.kind]} {note.text}" for note in notes)


def _found(end: RunEnded) -> Iterator[str]:
    for each in end.guardrails:
        stopped, answered = each.get("tripwire_triggered"), each.get("answer") is not None
        name = f"{bounded(str(each.get('name', '?')), 80)} of {bounded(str(each.get('agent', '?')), 80)}"
        info = each.get("output_info")
        more = "" if info is None else f": {bounded(_text(info), _ROOM)}"
        reply = "had the model answer again" if each.get("kind") == "output" else "answered the call"
        word = "stopped the run" if stopped else reply if answered else "passed"
        yield f"{'!' if stopped or answered else '-'} guardrail {name} {word}{more}"


def _waits(end: RunEnded) -> Iterator[str]:
    for each in end.interruptions:
        yield f"waits for approval: {_call_in(each)}, asked for by {bounded(str(each.get('agent', '?')), 80)}"
    for each in end.pending:
        yield f"waits for the caller: {_call_in(each.get('function', {}))}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _of_model(record: TraceRecord) -> str | None:
    if isinstance(record, ModelStarted):
        shown = sum(last - first + 1 for first, last in record.shown)
        shaped = [word for word in ("removed", "summarised", "told") if getattr(record, word)]
        note = f", some {' and '.join(shaped)}" if shaped else ""
        who = f"{bounded(record.agent, 80)} asks {bounded(record.model or record.handler, 80)}"
        return f"{who}: {shown} messages{note}"
    if isinstance(record, ModelRetried):
        return f"! {_error_text(record.error)} Tried again after {record.delay:.1f} s"
    if isinstance(record, ModelEnded):
        if record.error is not None:
            return f"! {_error_text(record.error)}"
        return f"answered{f' ({usage_line(record.usage)})' if record.usage else ''}"
    return None


def _of_tool(record: TraceRecord) -> str | None:
    if isinstance(record, ToolStarted):
        return f"> {bounded(record.name, 80)}({call_arguments(record.arguments, _ROOM)})"
    if isinstance(record, ToolEnded):
        mark = "!" if record.error or record.failure else "<"
        output = bounded(record.output, _ROOM) or _error_text(record.error) or record.failure
        return f"{mark} {bounded(record.name, 80)}{f': {output}' if output else ''}"
    return None


def _of_handoff(record: TraceRecord) -> str | None:
    if isinstance(record, HandoffTraced):
        way = bounded(f"{record.source} -> {record.target}", 200)
        why = (
            f": {bounded(record.error or record.reason or '', _ROOM)}"
            if record.error or record.reason
            else ""
        )
        return f"=> {way}, {record.status}{why}"
    if isinstance(record, TookOver) and record.shaped_by:
        shaped = bounded(record.shaped_by, 80)
        return f"- its view was shaped by {shaped}: {record.before} messages became {record.after}"
    return None


def _of_compaction(record: TraceRecord) -> str | None:
    if not isinstance(record, CompactedTraced):
        return None
    return f"- {bounded(record.agent, 80)} compacted: {compaction_line(record.how, record.replaced)}"


trace_command: Command = Command(
    name="trace",
    help="Step through a recorded run: model calls, tool calls, handoffs, time and cost.",
    declare=_declare,
    run=_run,
    more="""examples:
  routelock run app:agent "Hi" --trace runs.jsonl
  routelock trace runs.jsonl                    step by step; s shows what the model saw
  routelock trace runs.jsonl --run -1 --seen | less""",
)
