// Runs as their records tell them, live or from a file. Nothing in here touches the page.

/** The numbers that spans stand for: [[-1, -1], [0, 3]] is -1, 0, 1, 2, 3. */
export function numbers(spans) {
  const found = [];
  for (const [first, last] of spans ?? []) for (let at = first; at <= last; at += 1) found.push(at);
  return found;
}

export class Run {
  constructor(start, parent, previous) {
    this.start = start;
    this.previous = previous; // the same run, before it went on
    this.id = start.run;
    this.parent = parent;
    this.depth = parent ? parent.depth + 1 : 0;
    this.records = [];
    this.items = new Map();
    this.tools = new Map();
    this.calls = new Map();
    this.handoffs = new Map();
    this.end = null;
  }

  take(record) {
    this.records.push(record);
    const takers = {
      item: () => this.items.set(record.id, record),
      tools: () => this.tools.set(record.id, record.tools ?? []),
      model_start: () => this.calls.set(record.call, { start: record, end: null, run: this }),
      model_end: () => {
        const call = this.calls.get(record.call);
        if (call) call.end = record;
      },
      handoff: () => this.handoffs.set(record.id, record),
      run_end: () => (this.end = record),
    };
    takers[record.type]?.();
  }

  /** The messages of the transcript that were there when a call began. */
  transcriptAt(call) {
    const there = [...numbers(call.shown), ...numbers(call.removed), ...numbers(call.summarised), ...numbers(call.told)];
    const forms = there.map((id) => this.items.get(id)?.stands_for ?? id);
    const last = Math.max(-1, ...forms);
    return [...this.items.values()].filter((item) => item.id >= 0 && item.id <= last).sort((a, b) => a.id - b.id);
  }

  /** What became of each message of the transcript in a call: shown, edited, told, summarised or removed. */
  fates(call) {
    const fates = new Map();
    const mark = (spans, word) => numbers(spans).forEach((id) => fates.set(id, word));
    mark(call.removed, "removed");
    mark(call.summarised, "summarised");
    mark(call.told, "retold");
    for (const id of numbers(call.shown)) {
      const item = this.items.get(id);
      if (id >= 0) fates.set(id, "shown");
      else if (item?.stands_for !== undefined && item?.stands_for !== null) fates.set(item.stands_for, "edited");
    }
    return fates;
  }

  /** A handler as the user wrote it: one that is named after its model is shown as the model. */
  written(handler) {
    const names = (this.start.agents ?? []).map((agent) => agent.models ?? {}).find((models) => Object.hasOwn(models, handler));
    return names ? names[handler] : handler;
  }

  /** What the handler was given, as it would go to a provider. */
  request(call) {
    const request = { messages: numbers(call.shown).map((id) => this.items.get(id)?.message ?? { missing: id }) };
    if (call.tools !== undefined && call.tools !== null) request.tools = this.tools.get(call.tools);
    if (call.tool_choice) request.tool_choice = call.tool_choice;
    if (call.output_schema) request.output_schema = call.output_schema;
    return { handler: this.written(call.handler), ...request, settings: call.settings ?? {} };
  }
}

const list = (value) => (Array.isArray(value) ? value.filter((each) => each && typeof each === "object") : []);

const GROQS = { search: "web_search", python: "code_execution", visit: "web_fetch" };

/** What the vendor's own tools did for a message; Groq has keys of its own, and each call twice. */
export function vendorCalls(message) {
  const given = list(message.vendor_calls);
  if (given.length) return given.map((call) => ({ ...call, sources: list(call.sources) }));
  const ran = new Map(list(message.executed_tools).map((each, at) => [each.index ?? at, each]));
  return [...ran.values()].map((each) => {
    const sources = list(each.search_results?.results);
    return { tool: GROQS[each.type] ?? each.type, input: each.arguments, output: sources.length ? "" : each.output, sources };
  });
}

/** What a call of a vendor's tool gave: its error, its output, or the number of its sources. */
export function outcome({ error, output, sources }) {
  return error || output || (sources.length ? `${sources.length} source${sources.length > 1 ? "s" : ""}` : "");
}

/** The sources that a message cites, each once. */
export function citations(message) {
  const cited = list(message.annotations).map((each) => list([each[each.type]])[0] ?? each);
  return [...new Map(cited.map((each) => [each.url || each.file_id, each])).values()];
}

/** Sorts records to their runs. `onRecord(run, record)` hears of each. */
export class Runs {
  constructor(onRecord) {
    this.all = [];
    this.byId = new Map();
    this.onRecord = onRecord;
  }

  take(record) {
    if (record.type === "run_start") this.begin(record);
    const run = this.byId.get(record.run);
    if (!run) return;
    run.take(record);
    this.onRecord(run, record);
  }

  begin(record) {
    const run = new Run(record, this.byId.get(record.parent), this.byId.get(record.run));
    this.byId.set(record.run, run);
    this.all.push(run);
  }

  /** The records of a run, also from before it went on, and of those within it, in order. */
  allRecords(run) {
    const parts = [];
    for (let part = run; part; part = part.previous) parts.push(part);
    const within = this.all.filter((each) => parts.some((part) => each === part || isWithin(each, part)));
    return within.flatMap((each) => each.records).sort((a, b) => a.time - b.time);
  }
}

function isWithin(run, outer) {
  for (let at = run.parent; at; at = at.parent) if (at === outer) return true;
  return false;
}

/** The records of a file, and how many of its lines are none. */
export function parse(text) {
  const records = [];
  let unreadable = 0;
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    try {
      const record = JSON.parse(line);
      if (typeof record.type !== "string" || typeof record.run !== "string") throw new Error("no record");
      records.push(record);
    } catch {
      unreadable += 1;
    }
  }
  return { records, unreadable };
}
