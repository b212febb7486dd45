// What happened, row by row: model calls, tools, also the vendor's own, handoffs, filters, summaries, repairs, resets, problems.

import { $, clip, dollars, el, fill, seconds } from "./dom.js";
import { citations, outcome, vendorCalls } from "./records.js";

const LONGEST = 120;

export class Timeline {
  /** `open(what, …)` is called when a row is chosen; `copy(run)` when a test is wanted. */
  constructor(open, copy) {
    this.rows = $("rows");
    this.open = open;
    this.copy = copy;
    this.clear();
  }

  clear() {
    this.rows.replaceChildren();
    this.running = new Map();
    this.last = null;
    this.count = 0;
  }

  take(run, record) {
    const takers = {
      run_start: () => this.runStart(run, record),
      model_start: () => this.modelStart(run, record),
      model_end: () => this.modelEnd(run, record),
      model_retry: () => this.add(run, record, "retry", `attempt ${record.attempt ?? 1} failed`, words(record.error)),
      item: () => this.vendor(run, record),
      tool_start: () => this.toolStart(run, record),
      tool_end: () => this.toolEnd(run, record),
      handoff: () => this.handoff(run, record),
      took_over: () => this.tookOver(run, record),
      compacted: () => this.compacted(run, record),
      problem: () => this.add(run, record, "problem", record.kind, record.message),
      run_end: () => this.runEnd(run, record),
    };
    takers[record.type]?.();
  }

  runStart(run, record) {
    if (run.depth) {
      const writes = /^t\d+\.summary\./.test(record.parent_call ?? "");
      this.add(run, record, "asked", record.agent, writes ? "writes a summary" : "answers as a tool");
      return;
    }
    const before = this.last?.end?.last_agent;
    this.count += run.previous ? 0 : 1;
    this.rows.append(el("li", { class: "run" }, `Run ${this.count}${run.previous ? " goes on" : ""}`));
    if (before && !run.previous && before !== record.agent) {
      this.add(run, record, "reset", `back to ${record.agent}`, `${before} answered last`);
    }
    this.last = run;
  }

  modelStart(run, record) {
    for (const repair of record.repairs ?? []) this.add(run, record, "repair", record.agent, repair);
    const hidden = count(record.removed) + count(record.summarised);
    const shown = `${count(record.shown)} shown${hidden ? `, ${hidden} hidden` : ""}`;
    const call = run.calls.get(record.call);
    const row = this.add(run, record, "model", record.agent, `${shown} · ${run.written(record.handler)}`, () => this.open("call", call));
    this.begin(`${run.id}/${record.call}`, row, record);
  }

  modelEnd(run, record) {
    const row = this.finish(`${run.id}/${record.call}`, record);
    if (!row) return;
    fill(row.numbers, seconds(row.began, record.time), ...usage(record.usage));
    if (record.error) this.fail(row, words(record.error));
    else if (record.item === undefined) this.fail(row, "cut off");
  }

  /** What the vendor's own tools did for a reply, and what it cites. */
  vendor(run, record) {
    if (record.id < (run.start.input_count ?? 0) || record.kind !== "model" || run.previous?.items.has(record.id)) return;
    for (const call of vendorCalls(record.message)) {
      const found = outcome(call);
      const asked = typeof call.input === "string" ? call.input : JSON.stringify(call.input ?? {});
      const row = this.add(run, record, "vendor", call.tool, found ? `${asked} → ${found}` : asked);
      if (call.error) this.fail(row, call.error);
    }
    for (const source of citations(record.message)) this.add(run, record, "cites", source.title || source.filename || source.file_id || source.url, source.url);
  }

  toolStart(run, record) {
    const pair = { run, start: record, end: null };
    const row = this.add(run, record, "tool", record.name, record.arguments ?? "", () => this.open("tool", pair));
    this.begin(`${run.id}/${record.call_id}`, row, record).pair = pair;
  }

  toolEnd(run, record) {
    const row = this.finish(`${run.id}/${record.call_id}`, record);
    if (!row) return;
    row.pair.end = record;
    fill(row.numbers, seconds(row.began, record.time), ...usage(record.usage));
    if (record.failure) this.fail(row, words(record.error) || record.failure);
    else row.text.textContent = clip(`${row.pair.start.arguments ?? ""} → ${record.output ?? ""}`, LONGEST);
  }

  handoff(run, record) {
    const key = `${run.id}/${record.id}`;
    const known = this.running.get(key);
    const status = [record.status, record.reason ?? record.error].filter(Boolean).join(": ");
    if (!known) {
      const open = () => this.open("handoff", run.handoffs.get(record.id));
      const row = this.add(run, record, "handoff", `${record.source} → ${record.target}`, status, open);
      this.running.set(key, row);
      row.began = record.time;
    } else known.text.textContent = clip(status, LONGEST);
    const row = this.running.get(key);
    if (record.ended && record.started) fill(row.numbers, seconds(record.started, record.ended), ...usage(record.usage));
    if (["failed", "rejected", "declined"].includes((record.status ?? "").toLowerCase())) this.fail(row, status);
  }

  tookOver(run, record) {
    if (!record.shaped_by) return;
    const kind = /nest|history|summar/i.test(record.shaped_by) ? "summary" : "filter";
    this.add(run, record, kind, record.shaped_by, `${record.before ?? 0} → ${record.after ?? 0} messages`);
  }

  compacted(run, record) {
    const replaced = record.replaced ?? 0;
    const what = record.how === "cut" ? `${replaced} tool results were cut` : `${replaced} messages became 1`;
    const row = this.add(run, record, record.how === "summarised" ? "summary" : "filter", "compacted", what);
    fill(row.numbers, `${record.tokens_before ?? 0} → ${record.tokens_after ?? 0} tokens`);
  }

  /** Nothing more will come: what still runs has no end in the trace. */
  settle() {
    for (const line of this.rows.querySelectorAll(".running")) {
      line.classList.remove("running");
      line.querySelector(".numbers").textContent = "no end in this trace";
    }
  }

  runEnd(run, record) {
    for (const [key, row] of this.running) if (key.startsWith(`${run.id}/`)) row.line.classList.remove("running");
    for (const one of record.guardrails ?? []) {
      const answered = typeof one.answer !== "string" ? "" : one.kind === "output" ? "had the model answer again" : "answered the call";
      const found = one.output_info === undefined || one.output_info === null ? "" : `: ${JSON.stringify(one.output_info)}`;
      const row = this.add(run, record, "guardrail", one.name, `${(one.tripwire_triggered ? "stopped the run" : answered) || "passed"}${found}`, () => this.open("record", one, `Guardrail ${one.name}`));
      if (one.tripwire_triggered || answered) row.line.classList.add("failed");
    }
    if (run.depth) return;
    const row = this.add(run, record, "end", record.stop_reason ?? "stopped", words(record.error) || record.output);
    fill(row.numbers, seconds(run.start.time, record.time), ...usage(record.usage));
    if (record.error) row.line.classList.add("failed");
    row.line.append(el("button", { type: "button", class: "copy", onclick: () => this.copy(run) }, "Copy as test"));
  }

  add(run, record, kind, title, text, open) {
    const parts = {
      kind: el("span", { class: "kind" }, kind),
      title: el("span", { class: "title" }, title ?? ""),
      text: el("span", { class: "what" }, clip(typeof text === "string" ? text : text ? JSON.stringify(text) : "", LONGEST)),
      numbers: el("span", { class: "numbers" }),
    };
    const show = open ?? (() => this.open("record", record, `${kind} ${title ?? ""}`));
    const when = new Date(record.time * 1000).toLocaleTimeString();
    const button = el("button", { type: "button", class: "row", title: when, onclick: show }, Object.values(parts));
    const line = el("li", { class: `event ${kind} d${Math.min(run.depth, 4)}` }, button);
    const stay = this.rows.scrollTop + this.rows.clientHeight < this.rows.scrollHeight - 40;
    this.rows.append(line);
    if (!stay) this.rows.scrollTop = this.rows.scrollHeight;
    return { line, ...parts };
  }

  begin(key, row, record) {
    row.line.classList.add("running");
    row.began = record.time;
    this.running.set(key, row);
    return row;
  }

  finish(key) {
    const row = this.running.get(key);
    row?.line.classList.remove("running");
    this.running.delete(key);
    return row;
  }

  fail(row, why) {
    row.line.classList.add("failed");
    row.text.textContent = clip(why, LONGEST);
  }
}

const count = (spans) => (spans ?? []).reduce((sum, [first, last]) => sum + last - first + 1, 0);

const words = (error) => (error ? `${error.type ?? "Error"}: ${error.message ?? ""}` : "");

/** Tokens and money, each in a word of its own. */
export function usage(used) {
  if (!used) return [];
  const cached = used.cached_tokens ? `, ${used.cached_tokens} cached` : "";
  const tokens = `${used.input_tokens ?? 0} → ${used.output_tokens ?? 0} tokens${cached}`;
  return [" · ", tokens, used.cost === undefined || used.cost === null ? null : ` · ${dollars(used.cost)}`];
}

