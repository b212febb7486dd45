// Puts the parts together: what is typed goes to the server, what comes back goes to the views.

import { get, post, settings, stream } from "./api.js";
import { Approvals } from "./approvals.js";
import { Chat } from "./chat.js";
import { Detail } from "./detail.js";
import { $, dollars, el, fill } from "./dom.js";
import { Graph } from "./graph.js";
import { parse, Runs } from "./records.js";
import { Timeline } from "./timeline.js";

const chat = new Chat(say);
const graph = new Graph();
const detail = new Detail();
const approvals = new Approvals((words) => answer({ words }));
const timeline = new Timeline((...given) => detail.open(...given), copyAsTest);
let runs;
let conversation = null;
let whole = false;

function clear() {
  runs = new Runs(take);
  for (const view of [chat, timeline, approvals]) view.clear();
  $("totals").textContent = "";
  alertOf("");
}

function take(run, record) {
  for (const view of [timeline, graph]) view.take(run, record);
  chat.take(run, record, whole);
  if (record.type === "run_end" || record.type === "model_end") totals();
}

function totals() {
  const ends = runs.all.flatMap((run) => [...run.calls.values()]).map((call) => call.end?.usage);
  const used = ends.filter(Boolean);
  const sum = (key) => used.reduce((total, each) => total + (each[key] ?? 0), 0);
  const known = used.filter((each) => each.cost !== undefined && each.cost !== null);
  const money = known.length ? ` · ${dollars(sum("cost"))}${known.length < used.length ? " and more" : ""}` : "";
  $("totals").textContent = `${used.length} ${used.length === 1 ? "call" : "calls"} · ${sum("input_tokens")} → ${sum("output_tokens")} tokens${money}`;
}

function alertOf(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

async function guarded(work) {
  try {
    alertOf("");
    await work();
  } catch (error) {
    alertOf(error instanceof TypeError ? "The server does not answer. Is it still running?" : error.message);
  }
}

/** Leave what goes on: its lines are no longer wanted. */
async function leave() {
  const left = conversation;
  conversation = null;
  if ($("stop").hidden) return;
  busy(false);
  await post(`/talks/${left}/stop`).catch(() => {}); // it may have ended meanwhile
}

async function begin() {
  await leave();
  const given = await post("/talks", { agent: $("agents").value });
  conversation = given.id;
  whole = false;
  clear();
  $("composer").hidden = false;
  $("chat-title").textContent = "Conversation";
  $("start-agent").textContent = given.agent;
  fill($("start-session"), given.session);
  graph.show(given.graph);
  graph.activate(given.agent);
  $("text").focus();
}

async function send() {
  const text = $("text").value;
  if (!text.trim()) return;
  if ($("send").disabled) return fill($("composer-status"), "Not sent: a run goes on. Send it when the run has ended, or stop the run.");
  if (approvals.focus()) return fill($("composer-status"), "Not sent: calls wait for you. Approve or decline each of them first.");
  if (conversation) $("text").value = "";
  await say(text);
}

async function say(text) {
  if (!conversation) return alertOf("There is no conversation. Begin a new one.");
  chat.user(text);
  await answer({ text });
}

async function answer(said) {
  const mine = conversation;
  approvals.clear();
  busy(true);
  await guarded(() => stream(`/talks/${mine}/messages`, said, (given) => mine === conversation && line(given)));
  if (mine !== conversation) return;
  const waits = isWaiting(); // if not, keep the focus where the user reads or types
  busy(false);
  if (waits && !approvals.focus()) $("text").focus();
}

function line(given) {
  if (given.type === "delta") chat.delta(given);
  else if (given.type === "end") ended(given);
  else runs.take(given);
}

function ended(given) {
  const last = runs.all.filter((run) => !run.depth).at(-1);
  approvals.show(given.approvals);
  if (given.error && !last?.end?.error) chat.note(given.error, "error"); // it failed before there was a run
}

/** Whether the focus is where it is left while a run goes on: on Stop, in the empty input, or nowhere. */
function isWaiting() {
  const here = document.activeElement;
  return here === $("stop") || here === document.body || (here === $("text") && !here.value);
}

function busy(on) {
  const lost = [$("send"), document.body].includes(document.activeElement);
  fill($("composer-status"));
  $("send").disabled = on;
  $("send").hidden = on;
  $("stop").hidden = !on;
  $("log").setAttribute("aria-busy", on);
  if (on && lost) $("text").focus(); // and not Stop, which a second Enter would press
}

async function load(name, text) {
  const { records, unreadable } = parse(text);
  if (!records.length) throw new Error(`${name} has no records of a trace.`);
  await leave();
  whole = true;
  clear();
  $("start").hidden = $("composer").hidden = true;
  $("chat-title").textContent = `Trace ${name}`;
  const start = records.find((record) => record.type === "run_start" && !record.parent);
  if (start) graph.show((await post("/graph", start)).graph);
  for (const record of records) runs.take(record);
  timeline.settle();
  if (unreadable) alertOf(`Lines of ${name} that are no records and were left out: ${unreadable}.`);
}

async function copyAsTest(run) {
  await guarded(async () => {
    const { code } = await post("/test", { records: runs.allRecords(run) });
    let status = "Copied.";
    try {
      await navigator.clipboard.writeText(code);
    } catch {
      status = "The browser did not let it be copied: select it here.";
    }
    detail.text("This run as a test", code, status);
  });
}

function choose(view) {
  document.body.dataset.view = view;
  for (const button of document.querySelectorAll("nav button")) {
    button.setAttribute("aria-pressed", button.dataset.view === view);
  }
  graph.reveal();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
$("stop").addEventListener("click", () => guarded(() => post(`/talks/${conversation}/stop`)));
$("new").addEventListener("click", () => guarded(begin));
$("agents").addEventListener("change", () => guarded(begin));
$("trace-file").addEventListener("change", (event) =>
  guarded(async () => {
    const [file] = event.target.files;
    if (file) await load(file.name, await file.text());
    event.target.value = "";
  }));
for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => choose(button.dataset.view));

$("agents").append(...settings.agents.map((name) => el("option", { value: name }, name)));
$("who").hidden = settings.agents.length < 2;
clear();
await guarded(async () => {
  const name = new URLSearchParams(location.search).get("trace");
  if (name === null) return begin();
  const given = await get(`/traces/${encodeURIComponent(name)}`);
  return load(given.name, given.text);
});
