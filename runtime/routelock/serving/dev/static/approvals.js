// Calls that wait until the user has said a word on each.

import { $, el, pretty } from "./dom.js";

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
    const say = (approve) => () => {
      card.disabled = true;
      said({ approve, message: approve ? "" : reason.value });
    };
    card.append(
      el("legend", {}, `${call.agent} asks to call ${call.name}`),
      el("pre", {}, pretty(call.arguments)),
      ...(call.question ? [el("p", {}, call.question)] : []),
      el("div", { class: "words" },
        el("button", { type: "button", class: "primary", onclick: say(true) }, "Approve"),
        el("button", { type: "button", class: "danger", onclick: say(false) }, "Decline"), reason));
    return card;
  }
}
