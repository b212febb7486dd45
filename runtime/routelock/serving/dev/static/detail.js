// What stands behind a row: for a model call, the transcript against what the model was shown of it.

import { $, el, fill, json, pretty, textOf } from "./dom.js";
import { numbers, vendorCalls } from "./records.js";

const KINDS = {
  system: "system prompt",
  summary: "summary",
  note: "note about others' calls",
  filter: "written by a filter",
  nudge: "nudge of the runtime",
  view: "repaired for this provider",
  model: "edited by a filter",
  input: "edited by a filter",
  tool: "edited by a filter",
  handoff: "edited by a filter",
};

export class Detail {
  constructor() {
    this.dialog = $("detail");
    this.tabs = $("detail-tabs");
    this.body = $("detail-body");
    $("detail-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.tabs.addEventListener("keydown", (event) => this.arrows(event));
  }

  open(what, given, title) {
    const openers = { call: () => this.call(given), tool: () => this.tool(given), handoff: () => this.record(given, "Handoff") };
    (openers[what] ?? (() => this.record(given, title)))();
  }

  call({ run, start, end }) {
    const reply = end?.item === undefined ? null : run.items.get(end.item)?.message;
    this.show(`${start.agent}, turn ${start.turn ?? "?"}: ${run.written(start.handler)}`, {
      "What the model saw": () => seen(run, start),
      Request: () => [code(json(run.request(start)))],
      Reply: () => [code(reply ? json(reply) : "There is no complete reply."), end ? code(json(end)) : null],
    });
  }

  tool({ start, end }) {
    this.show(`Tool ${start.name}`, {
      Call: () => [
        start.origin ? el("p", {}, `This tool comes from ${start.origin}.`) : null,
        el("h3", {}, "Arguments"), code(pretty(start.arguments ?? "{}")),
        el("h3", {}, end?.failure ? `Failed: ${end.failure}` : "Result"), code(end ? pretty(end.output ?? "") : "It still runs."),
      ],
      Record: () => [code(json(start)), end ? code(json(end)) : null],
    });
  }

  record(record, title) {
    this.show(title, { Record: () => [code(json(record))] });
  }

  text(title, text, status) {
    this.show(title, { Code: () => [el("p", { role: "status" }, status), code(text)] });
  }

  show(title, views) {
    $("detail-title").textContent = title;
    const names = Object.keys(views);
    const choose = (name) => {
      for (const tab of this.tabs.children) {
        const chosen = tab.textContent === name;
        tab.setAttribute("aria-selected", chosen);
        tab.tabIndex = chosen ? 0 : -1;
      }
      fill(this.body, ...views[name]());
      this.body.scrollTop = 0;
    };
    const tab = (name) => el("button", { type: "button", role: "tab", "aria-controls": "detail-body", onclick: () => choose(name) }, name);
    this.tabs.replaceChildren(...names.map(tab));
    this.tabs.hidden = names.length < 2;
    choose(names[0]);
    if (!this.dialog.open) this.dialog.showModal();
    $("detail-close").focus();
  }

  arrows(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...this.tabs.children];
    const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
  }
}

const code = (text) => el("pre", { tabindex: "0" }, text);

function seen(run, call) {
  const fates = run.fates(call);
  const transcript = run.transcriptAt(call);
  const tally = {};
  for (const item of transcript) tally[fates.get(item.id) ?? "removed"] = (tally[fates.get(item.id) ?? "removed"] ?? 0) + 1;
  const told = Object.entries(tally).map(([fate, count]) => `${count} ${fate}`).join(", ");
  const left = transcript.map((item) => message(item, `#${item.id}`, fates.get(item.id) ?? "removed"));
  const right = numbers(call.shown).map((id) => shown(run, id));
  return [
    el("p", { class: "tally" }, `Of ${transcript.length} messages in the transcript: ${told || "none"}.`),
    el("div", { class: "columns" },
      el("section", { "aria-label": "Transcript" }, el("h3", {}, "Transcript: all that happened"), el("ol", {}, left)),
      el("section", { "aria-label": "Shown" }, el("h3", {}, `Shown to the model (${right.length})`), el("ol", {}, right))),
  ];
}

function shown(run, id) {
  const item = run.items.get(id);
  if (!item) return el("li", { class: "item" }, `message ${id} is not in this trace`);
  if (id >= 0) return message(item, `#${id}`, "as it is");
  const covers = numbers(item.covers);
  const of = covers.length ? ` of ${covers.map((each) => `#${each}`).join(", ")}` : "";
  const instead = item.stands_for === undefined ? "" : `, instead of #${item.stands_for}`;
  return message(item, "", `${KINDS[item.kind] ?? item.kind}${of}${instead}`, "made");
}

function message(item, number, fate, kind = fate.replace(/\W+/g, "-")) {
  const role = item.message.role ?? "?";
  const calls = (item.message.tool_calls ?? []).map((call) =>
    el("p", { class: "call" }, `${call.function?.name ?? "?"}(${call.function?.arguments ?? ""})`));
  calls.push(...vendorCalls(item.message).map((call) =>
    el("p", { class: "call" }, `${call.tool ?? "?"}(${json(call.input ?? {})}), run by the vendor`)));
  const text = textOf(item.message);
  return el("li", { class: `item ${kind}` },
    el("p", { class: "head" }, number ? el("span", { class: "number" }, number) : null, el("span", { class: "role" }, role),
      item.agent ? el("span", { class: "by" }, item.agent) : null, el("span", { class: "fate" }, fate)),
    text ? el("p", { class: "text" }, text) : null, calls);
}
