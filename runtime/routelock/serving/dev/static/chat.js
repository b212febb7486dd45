// The conversation: who said what, as it arrives.

import { $, el, textOf } from "./dom.js";

const COLOURS = 6;

const EXAMPLES = ["Hello! What can you do for me?", "Who else can help me here, and with what?"];

export class Chat {
  /** `say(text)` is called when the user chooses an example. */
  constructor(say) {
    this.log = $("log");
    $("examples").append(...EXAMPLES.map((text) => el("button", { type: "button", onclick: () => say(text) }, text)));
    this.clear();
  }

  clear() {
    this.log.replaceChildren();
    $("start").hidden = false;
    this.colours = new Map();
    this.open = null;
    this.speaker = "";
  }

  user(text) {
    this.add(el("li", { class: "message user" }, el("p", { class: "speaker" }, "You"), el("p", { class: "text" }, text)));
  }

  note(text, kind = "note") {
    this.add(el("li", { class: kind }, text));
  }

  delta(event) {
    this.open ??= this.bubble(this.speaker);
    const place = event.text === undefined ? this.open.thoughts : this.open.text;
    place.textContent += event.text ?? event.reasoning;
    this.open.thoughts.hidden = !this.open.thoughts.textContent;
    this.scroll();
  }

  /** Show what a record says to a reader; `whole` shows the input, too, as for a run from a file. */
  take(run, record, whole = false) {
    if (run.depth) return;
    const takers = {
      model_start: () => this.begin(run, record),
      model_retry: () => this.void(),
      item: () => this.item(run, record, whole),
      took_over: () => this.handedOver(run.handoffs.get(record.handoff)),
      run_end: () => this.ended(record),
    };
    takers[record.type]?.();
  }

  begin(run, record) {
    const known = (run.start.agents ?? []).find((each) => each.name === record.agent)?.handlers?.[0];
    const other = known && known !== record.handler;
    this.speaker = other ? `${record.agent} · ${run.written(record.handler)}` : record.agent;
  }

  item(run, record, whole) {
    if (record.id < 0 || run.previous?.items.has(record.id)) return;
    const input = record.id < (run.start.input_count ?? 0);
    if (input && !whole) return;
    if (record.message.role === "user") {
      if (input) this.user(textOf(record.message));
      return;
    }
    if (record.message.role === "assistant") this.said(record, input);
  }

  said(record, input) {
    const text = textOf(record.message);
    if (text && !this.open) this.open = this.bubble(input ? (record.agent ?? "assistant") : this.speaker);
    if (this.open && text) this.open.text.textContent = text;
    if (this.open && !text && !this.open.thoughts.textContent) this.open.line.remove();
    this.open?.line.removeAttribute("aria-busy");
    this.open = null;
    this.scroll();
  }

  void() {
    this.open?.line.remove();
    this.open = null;
  }

  handedOver(handoff) {
    if (!handoff) return;
    this.note(`${handoff.source} → ${handoff.target}${handoff.reason ? `: ${handoff.reason}` : ""}`, "handover");
  }

  ended(record) {
    this.open?.line.removeAttribute("aria-busy");
    this.open = null;
    if (record.error) this.note(`${record.error.type ?? "Error"}: ${record.error.message ?? ""}`, "error");
    else if (["unfinished", "stopped"].includes(record.stop_reason ?? "unfinished")) this.note("Stopped.");
    else if (record.pending?.length) this.note("The run waits for tools that its caller runs; the page has none.");
    else if (record.stop_reason === "requires_action") this.note("The run waits for you.");
    else if (record.stop_reason === "limit") this.note("A limit ended the run.");
  }

  bubble(speaker) {
    if (!this.colours.has(speaker)) this.colours.set(speaker, this.colours.size % COLOURS);
    const thoughts = el("p", { class: "thoughts", hidden: true });
    const text = el("p", { class: "text" });
    const name = el("p", { class: "speaker" }, speaker);
    const line = el("li", { class: `message agent c${this.colours.get(speaker)}`, "aria-busy": "true" }, name, thoughts, text);
    this.add(line);
    return { line, thoughts, text };
  }

  add(line) {
    $("start").hidden = true;
    this.log.append(line);
    this.scroll();
  }

  scroll() {
    this.log.scrollTop = this.log.scrollHeight;
  }
}
