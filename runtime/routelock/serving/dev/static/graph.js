// The picture of the agents, drawn by the server; here it is only lit.

import { $ } from "./dom.js";

// The only markup that is ever made of text: our own server's picture, in which all names are escaped.
const policy = window.trustedTypes?.createPolicy("routelock-graph", { createHTML: (svg) => svg });

// How much a picture may shrink: its names are 13 px high, and have to stay readable.
const SMALLEST = 0.9;

export class Graph {
  constructor() {
    this.place = $("picture");
    this.name = $("active");
    this.svg = null;
  }

  show(text) {
    const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "image/svg+xml");
    this.svg = document.importNode(parsed.documentElement, true);
    this.svg.style.minWidth = `${SMALLEST * this.svg.getAttribute("width")}px`; // below it, scroll
    this.place.replaceChildren(this.svg);
  }

  take(run, record) {
    const takers = {
      run_start: () => this.begins(run, record),
      model_start: () => this.speaks(run, record),
      took_over: () => this.handedOver(run.handoffs.get(record.handoff)),
    };
    takers[record.type]?.();
  }

  begins(run, record) {
    if (run.depth) {
      this.use(run.parent.speaker ?? run.parent.start.agent, record.agent);
      return;
    }
    if (!run.previous) for (const edge of this.all(".edge.used")) edge.classList.remove("used");
    this.activate(record.agent);
  }

  speaks(run, record) {
    run.speaker = record.agent;
    if (run.depth) return;
    const handler = this.all(".node.handler").some((node) => node.dataset.node === record.handler);
    this.activate(handler ? record.handler : record.agent);
  }

  handedOver(handoff) {
    if (!handoff) return;
    this.use(handoff.source, handoff.target);
    this.activate(handoff.target);
  }

  use(source, target) {
    const found = this.all(".edge").filter((edge) => edge.dataset.source === source && edge.dataset.target === target);
    for (const edge of found) edge.classList.add("used");
  }

  activate(name) {
    for (const node of this.all(".node")) node.classList.toggle("active", node.dataset.node === name);
    this.name.textContent = name;
    this.reveal();
  }

  /** Let who speaks be seen, where the picture is wider than its place. */
  reveal() {
    this.all(".node.active")[0]?.scrollIntoView({ block: "nearest", inline: "center" });
  }

  all(selector) {
    return this.svg ? [...this.svg.querySelectorAll(selector)] : [];
  }
}
