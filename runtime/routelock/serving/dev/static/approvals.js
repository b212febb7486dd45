// Calls that wait until the user has said a word on each.

import { $, el, pretty } from "./dom.js";

/** The input of a field, and a function that gives its value; undefined if the user left it out. */
function fieldOf(name, schema, required) {
  const choices = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
  const about = schema.default === undefined ? (schema.description ?? "") : `${JSON.stringify(schema.default)} if you leave it out`;
  const input = choices
    ? el("select", { required }, el("option", {}, about), ...choices.map((choice) => el("option", {}, String(choice))))
    : el("input", { type: "text", required, placeholder: about });
  const value = () => {
    if (choices) return choices[input.selectedIndex - 1];
    return input.value === "" ? undefined : valueOf(schema.type, input.value);
  };
  return { name, required, input, value, label: el("label", {}, schema.title ?? name, input) };
}

/** A text as the JSON that it is, unless the field takes text; the server says what does not fit. */
function valueOf(type, text) {
  if (type === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export class Approvals {
  /** `decide(words)` is called once there is a word on every call. */
  constructor(decide) {
    this.place = $("approvals");
    this.decide = decide;
  }

  clear() {
    this.place.replaceChildren();
  }

  show(calls) {
    const words = new Map();
    const cards = (calls ?? []).map((call, at) => this.card(call, (word) => {
      words.set(at, word);
      if (words.size === calls.length) this.decide(calls.map((_, each) => words.get(each)));
    }));
    const title = cards.length === 1 ? "A call waits for you" : `${cards.length} calls wait for you`;
    const heading = el("h3", { tabindex: "-1" }, title);
    this.place.replaceChildren(...(cards.length ? [heading, ...cards] : []));
  }

  /** Go to the heading, where no key decides: the user has to read first. False if nothing waits. */
  focus() {
    const heading = this.place.querySelector("h3");
    heading?.focus();
    return Boolean(heading);
  }

  card(call, said) {
    const reason = el("input", { type: "text", placeholder: "Why not? (optional)", "aria-label": `Why ${call.name} is declined` });
    const card = el("fieldset", { class: "approval" });
    const form = Object.entries(call.fields ?? {}).map(([name, schema]) => fieldOf(name, schema, call.required.includes(name)));
    const approve = () => {
      const missing = form.find((field) => field.required && field.value() === undefined);
      if (missing) return missing.input.focus();
      card.disabled = true;
      const given = form.map((field) => [field.name, field.value()]).filter(([, value]) => value !== undefined);
      said({ approve: true, answer: Object.fromEntries(given) });
    };
    const decline = () => {
      card.disabled = true;
      said({ approve: false, message: reason.value });
    };
    card.append(
      el("legend", {}, `${call.agent} asks to call ${call.name}`),
      el("pre", {}, pretty(call.arguments)),
      ...(call.question ? [el("p", {}, call.question)] : []),
      ...form.map((field) => field.label),
      el("div", { class: "words" },
        el("button", { type: "button", class: "primary", onclick: approve }, form.length ? "Answer" : "Approve"),
        el("button", { type: "button", class: "danger", onclick: decline }, "Decline"), reason));
    return card;
  }
}
