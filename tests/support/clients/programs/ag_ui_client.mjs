// The client of AG-UI asks the served agents; each line it prints is what it saw in one scene.
//
// usage: node ag_ui_client.mjs MODULES URL KEY PACKAGE
//   MODULES  the node_modules folder to load from
//   PACKAGE  the name of the client there, which has one for each version
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, key, name] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const { HttpAgent } = require(name);

// the client says here what it has removed or converted; each event should be as it wants it
const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));
console.error = () => {};

const weather = {
  name: "get_weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

function conversation(agent, token = key) {
  const headers = { authorization: `Bearer ${token}` };
  return new HttpAgent({ url: `${url}/ag-ui/${agent}`, headers });
}

let count = 0;
const say = (asked, content) => asked.addMessage({ id: `u${count++}`, role: "user", content });

// What one run has shown, by the client's own reading of it.
async function run(asked, content, parameters = {}) {
  if (content) say(asked, content);
  const seen = { kinds: [], steps: [], handoffs: [], text: "", calls: [], results: [], subagents: [], usage: 0 };
  const subscriber = {
    onEvent({ event }) {
      if (seen.kinds.at(-1) !== event.type) seen.kinds.push(event.type);
      if (event.type === "SUBAGENT_STARTED") seen.subagents.push(event.name);
    },
    onStepStartedEvent: ({ event }) => void seen.steps.push(event.stepName),
    onCustomEvent: ({ event }) => void seen.handoffs.push([event.name, event.value]),
    onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => void seen.calls.push([toolCallName, toolCallArgs]),
    onToolCallResultEvent: ({ event }) => void seen.results.push(event.content),
    onRunErrorEvent: ({ event }) => void (seen.error = event.code),
    onRunFinishedEvent({ event, outcome }) {
      seen.outcome = outcome;
      seen.usage = (event.usage ?? []).reduce((sum, each) => sum + each.totalTokens, 0);
    },
  };
  const { result, newMessages } = await asked.runAgent(parameters, subscriber);
  const written = newMessages.filter((message) => message.role === "assistant" && message.content);
  seen.text = written.map((message) => message.content).join("\n\n");
  if (result !== undefined) seen.result = result;
  return seen;
}

function answer(asked, content) {
  const answered = new Set(asked.messages.map((message) => message.toolCallId));
  const calls = asked.messages.flatMap((message) => message.toolCalls ?? []);
  for (const call of calls.filter((each) => each.function.name === weather.name && !answered.has(each.id)))
    asked.addMessage({ id: `a${count++}`, role: "tool", toolCallId: call.id, content });
}

const entries = (asked, payload) =>
  asked.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload }));

async function raised(call) {
  try {
    await call();
    return "nothing";
  } catch (error) {
    return error.status ? `HTTP ${error.status}` : error.message;
  }
}

const scenes = {
  greeting: () => run(conversation("greeter"), "Hello?"),
  transfer: () => run(conversation("desk"), "Hello?"),
  unicode: () => run(conversation("polyglot"), "Hello?"),
  thinking: () => run(conversation("thinker"), "Hello?"),
  slow: () => run(conversation("slow"), "Hello?"),
  broken: () => run(conversation("broken"), "Hello?"),
  structured: () => run(conversation("clerk"), "Which order?"),
  subagent: () => run(conversation("outer"), "Hello?"),
  async own_tool() {
    const asked = conversation("forecaster");
    const first = await run(asked, "Weather, please?", { tools: [weather] });
    answer(asked, "21 degrees");
    const second = await run(asked, "", { tools: [weather] });
    return { first, second };
  },
  async conversation() {
    const asked = conversation("parrot");
    const texts = [];
    for (const word of ["one", "two"]) texts.push((await run(asked, word)).text);
    return { texts };
  },
  async state() {
    const asked = conversation("planner");
    asked.setState({ steps: ["wake up"] });
    await run(asked, "Plan.");
    return { state: asked.state };
  },
  async approved() {
    const asked = conversation("payer");
    const first = await run(asked, "Pay.");
    const [interrupt] = asked.pendingInterrupts;
    const blocked = await raised(() => run(asked, "Well?"));
    const second = await run(asked, "", { resume: entries(asked, { approved: true }) });
    return { first, interrupt, blocked: blocked !== "nothing", second, left: asked.pendingInterrupts.length };
  },
  async rejected() {
    const asked = conversation("payer");
    await run(asked, "Pay.");
    return run(asked, "", { resume: entries(asked, { approved: false, message: "Too much." }) });
  },
  async form() {
    const asked = conversation("librarian");
    await run(asked, "Lend it.");
    const [interrupt] = asked.pendingInterrupts;
    const wrong = await raised(() => run(asked, "", { resume: entries(asked, { branch: "west" }) }));
    const [still] = asked.pendingInterrupts;
    const after = await run(asked, "", { resume: entries(asked, { branch: "north" }) });
    return { interrupt, wrong, waits: still?.id === interrupt.id, text: after.text, left: asked.pendingInterrupts.length };
  },
  async declined() {
    const asked = conversation("librarian");
    await run(asked, "Lend it.");
    const resume = asked.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" }));
    return run(asked, "", { resume });
  },
  async edited() {
    const asked = conversation("payer");
    await run(asked, "Pay.");
    const [{ responseSchema }] = asked.pendingInterrupts;
    const after = await run(asked, "", { resume: entries(asked, { approved: true, editedArgs: { amount: 30 } }) });
    return { editable: "editedArgs" in responseSchema.properties, text: after.text };
  },
  async deltas() {
    const asked = conversation("counter");
    const { kinds } = await run(asked, "Count.");
    return { kinds: kinds.filter((kind) => kind.startsWith("STATE")), state: asked.state };
  },
  async leaving() {
    const asked = conversation("endless");
    say(asked, "leaving");
    let text = "";
    await asked.runAgent({}, {
      onTextMessageContentEvent({ event }) {
        text += event.delta;
        asked.abortRun();
      },
    });
    return { text };
  },
  async errors() {
    const unclear = conversation("payer");
    await run(unclear, "Pay.");
    return {
      key: await raised(() => run(conversation("greeter", "wrong"), "Hello?")),
      agent: await raised(() => run(conversation("unknown"), "Hello?")),
      answer: await raised(() => run(unclear, "", { resume: entries(unclear, { approved: "maybe" }) })),
    };
  },
};

for (const [scene, play] of Object.entries(scenes)) {
  warnings.length = 0;
  const facts = await play().catch((error) => ({ failed: `${error?.stack}` }));
  process.stdout.write(`${JSON.stringify([scene, { ...facts, warnings: [...warnings] }])}\n`);
}
process.exit();
