// assistant-ui, a front end, asks the served agents in a simulated page; each line it prints is what the user saw in
// one scene.
//
// usage: node assistant_ui.mjs MODULES URL    MODULES is the node_modules folder to load from
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, url] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
// some of the packages have no CommonJS
const load = async (name) => import(pathToFileURL(join(modules, name)).href);

const { JSDOM } = require("jsdom");
const page = new JSDOM("<!doctype html>", { url: "http://localhost" }).window;
for (const name of ["window", "document", "navigator", "HTMLElement", "Node", "Event", "MutationObserver"])
  globalThis[name] ??= page[name];
console.error = () => {};

const { createElement, useEffect, useState } = require("react");
const { createRoot } = require("react-dom/client");
const { AssistantRuntimeProvider, makeAssistantTool } = await load("@assistant-ui/react/dist/index.js");
const { useAgUiRuntime } = await load("@assistant-ui/react-ag-ui/dist/index.js");
const { HttpAgent } = require("@ag-ui/client");

const Weather = makeAssistantTool({
  toolName: "get_weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  execute: async ({ city }) => `21 degrees in ${city}`,
});

let runtime;
const errors = [];

function Chat({ agent, ready }) {
  const [client] = useState(() => new HttpAgent({ url: `${url}/ag-ui/${agent}` }));
  const own = useAgUiRuntime({ agent: client, onError: (error) => errors.push(error.message) });
  useEffect(() => ready(own), [own, ready]); // after the effects of its children, so all of the page is there
  return createElement(AssistantRuntimeProvider, { runtime: own }, createElement(Weather));
}

const moment = () => new Promise((resolve) => setTimeout(resolve, 10));

// Wait until the user sees that all is done; a tool of the page begins another run.
async function settled(isDone) {
  const end = Date.now() + 60_000;
  while (Date.now() < end && !isDone(runtime.thread.getState())) await moment();
}

function shown(part) {
  if (part.type === "tool-call") return { tool: part.toolName, args: part.args, result: part.result };
  return part.type === "data" ? { data: part.name, value: part.data } : { [part.type]: part.text };
}

const seen = () =>
  runtime.thread.getState().messages.slice(1).flatMap((message) => message.content.map(shown));

const ends = ({ isRunning, messages }, text) =>
  !isRunning && messages.at(-1)?.content.some((part) => part.type === "text" && part.text === text);

async function chat(agent, isDone, more = async () => ({})) {
  const root = createRoot(page.document.body.appendChild(page.document.createElement("main")));
  runtime = await new Promise((ready) => root.render(createElement(Chat, { agent, ready })));
  runtime.thread.append("Weather, please?");
  await settled(isDone);
  const facts = { seen: seen(), ...(await more()) };
  root.unmount();
  return facts;
}

async function approved() {
  const open = runtime.unstable_getPendingInterrupts();
  const responses = open.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  await runtime.unstable_submitInterruptResponses(responses);
  await settled((state) => ends(state, "Then: paid"));
  return { asked: open.map(({ message }) => message), after: seen() };
}

const scenes = {
  transfer: () => chat("desk", (state) => ends(state, "Order 7 left on Monday.")),
  thinking: () => chat("thinker", (state) => ends(state, "Yes.")),
  own_tool: () => chat("forecaster", (state) => ends(state, "It is 21 degrees in Paris and in Rome.")),
  approval: () => chat("payer", ({ isRunning }) => !isRunning && runtime.unstable_getPendingInterrupts().length > 0, approved),
  broken: () => chat("broken", ({ isRunning }) => errors.length > 0 && !isRunning, async () => ({ errors })),
};

for (const [scene, play] of Object.entries(scenes)) {
  const facts = await play().catch((error) => ({ failed: `${error?.stack}` }));
  process.stdout.write(`${JSON.stringify([scene, facts])}\n`);
}
process.exit();
