// The A2A client for JavaScript asks the served agents; each line it prints is what it saw in one scene.
//
// usage: node a2a_client.mjs MODULES URL KEY    MODULES is the node_modules folder to load from
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, key] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const { Role, TaskState } = require("@a2a-js/sdk");
const { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory } = require("@a2a-js/sdk/client");

const stateOf = (task) => TaskState[task.status.state];
const parts = (list, kind) => list.filter((part) => part.content?.$case === kind).map((part) => part.content.value);
const textOf = (task) => task.artifacts.flatMap((artifact) => parts(artifact.parts, "text"));

async function client(agent, token = key) {
  const fetchImpl = (input, init = {}) => {
    const headers = new Headers(init.headers);
    headers.set("authorization", `Bearer ${token}`);
    return fetch(input, { ...init, headers });
  };
  const factory = new ClientFactory(
    ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
      transports: [new JsonRpcTransportFactory({ fetchImpl })],
    }),
  );
  return factory.createFromUrl(url, `/a2a/${agent}/.well-known/agent-card.json`);
}

function said(text, { taskId = "", contextId = "", data, atOnce = false } = {}) {
  const content = data ? { $case: "data", value: data } : { $case: "text", value: text };
  const message = {
    messageId: "m",
    role: Role.ROLE_USER,
    taskId,
    contextId,
    parts: [{ content, metadata: undefined, filename: "", mediaType: "" }],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  };
  const configuration = { acceptedOutputModes: [], returnImmediately: atOnce };
  return { tenant: "", message, configuration, metadata: undefined };
}

const named = (id) => ({ tenant: "", id });
const send = async (agent, request) => {
  const result = await (await client(agent)).sendMessage(request);
  return result.task ?? result.payload?.value ?? result;
};

// What a stream has shown so far, put together as the protocol says.
class Seen {
  kinds = [];
  states = [];
  speakers = [];
  parts = [];
  why = "";
  task = "";

  take({ payload }) {
    const kind = { task: "task", statusUpdate: "status_update", artifactUpdate: "artifact_update" }[payload.$case];
    if (this.kinds.at(-1) !== kind) this.kinds.push(kind);
    if (kind === "task") {
      this.task = payload.value.id;
      this.states.push(stateOf(payload.value));
    } else if (kind === "status_update") {
      this.states.push(stateOf(payload.value));
      this.why = parts(payload.value.status.message?.parts ?? [], "text").join(" ");
      this.speakers.push(payload.value.metadata?.agent ?? "");
    } else {
      const fresh = payload.value.artifact.parts;
      this.parts = payload.value.append ? [...this.parts, ...fresh] : fresh;
    }
  }

  get text() {
    return parts(this.parts, "text").join("");
  }
}

async function bothWays(agent) {
  const asked = await client(agent);
  const task = await send(agent, said("Hello?"));
  const seen = new Seen();
  for await (const event of asked.sendMessageStream(said("Hello?"))) seen.take(event);
  const kept = await asked.getTask(named(seen.task));
  return {
    whole: { state: stateOf(task), text: textOf(task) },
    streamed: { kinds: seen.kinds, states: [seen.states[0], seen.states.at(-1)], text: seen.text },
    speakers: [...new Set(seen.speakers)].filter(Boolean),
    why: [parts(task.status.message?.parts ?? [], "text").join(" "), seen.why],
    kept: { state: stateOf(kept), text: textOf(kept) },
  };
}

async function raised(call) {
  try {
    await call();
    return "nothing";
  } catch (error) {
    return error.constructor.name === "JsonRpcTransportError" ? error.name : error.constructor.name;
  }
}

const scenes = {
  greeting: () => bothWays("greeter"),
  transfer: () => bothWays("desk"),
  unicode: () => bothWays("polyglot"),
  broken: () => bothWays("broken"),
  async structured() {
    const task = await send("clerk", said("Which order?"));
    return { data: parts(task.artifacts[0].parts, "data"), text: textOf(task) };
  },
  async conversation() {
    const first = await send("parrot", said("one"));
    const second = await send("parrot", said("two", { contextId: first.contextId }));
    const other = await send("parrot", said("two"));
    return {
      texts: [first, second, other].map(textOf),
      "tasks differ": first.id !== second.id,
      contexts: [first.contextId === second.contextId, first.contextId === other.contextId],
    };
  },
  async together() {
    const { contextId } = await send("parrot", said("zero"));
    const tasks = await Promise.all(["left", "right"].map((word) => send("parrot", said(word, { contextId }))));
    const listed = await (await client("parrot")).listTasks({ tenant: "", contextId, status: 0, pageToken: "" });
    const texts = tasks.map((task) => textOf(task)[0]).sort((one, other) => one.length - other.length);
    return { texts, listed: listed.tasks.length };
  },
  async unknown() {
    const asked = await client("greeter");
    return {
      get: await raised(() => asked.getTask(named("nobody"))),
      cancel: await raised(() => asked.cancelTask(named("nobody"))),
      continue: await raised(() => send("greeter", said("Hi", { taskId: "nobody" }))),
    };
  },
  async cancelled() {
    const asked = await client("endless");
    const seen = new Seen();
    let answer;
    for await (const event of asked.sendMessageStream(said("cancelled"))) {
      seen.take(event);
      if (seen.text && !answer) answer = await asked.cancelTask(named(seen.task));
    }
    const kept = await asked.getTask(named(seen.task));
    const again = await raised(() => asked.cancelTask(named(seen.task)));
    return { states: [stateOf(answer), seen.states.at(-1), stateOf(kept)], text: seen.text, again };
  },
  async leaving() {
    const asked = await client("endless");
    const seen = new Seen();
    const later = new Seen();
    const gone = new AbortController();
    for await (const event of asked.sendMessageStream(said("leaving"), { signal: gone.signal })) {
      seen.take(event);
      if (seen.text) break;
    }
    gone.abort();
    const kept = await asked.getTask(named(seen.task));
    for await (const event of asked.resubscribeTask(named(seen.task))) {
      later.take(event);
      if (later.kinds.length === 1) await asked.cancelTask(named(seen.task));
    }
    return { text: [seen.text, ...textOf(kept)], states: [stateOf(kept), later.states[0], later.states.at(-1)] };
  },
  async at_once() {
    const task = await send("endless", said("at once", { atOnce: true }));
    const done = await (await client("endless")).cancelTask(named(task.id));
    return { states: [stateOf(task), stateOf(done)] };
  },
  async approval() {
    const first = await send("payer", said("Pay."));
    const one = { taskId: first.id, contextId: first.contextId };
    const unclear = await send("payer", said("Maybe.", one));
    const second = await send("payer", said("", { ...one, data: { approve: true } }));
    const other = await send("payer", said("Pay."));
    const declined = await send("payer", said("No.", { taskId: other.id, contextId: other.contextId }));
    const tasks = [first, unclear, second, declined];
    return {
      states: tasks.map(stateOf),
      asked: parts(first.status.message.parts, "data"),
      said: tasks.map(textOf),
    };
  },
  async form() {
    const first = await send("librarian", said("Lend it."));
    const one = { taskId: first.id, contextId: first.contextId };
    const wrong = await send("librarian", said("", { ...one, data: { branch: "west" } }));
    const done = await send("librarian", said("", { ...one, data: { branch: "north", days: 3 } }));
    const [asked] = parts(first.status.message.parts, "data");
    const [problem] = parts(wrong.status.message.parts, "text");
    return { states: [first, wrong, done].map(stateOf), asked, problem, said: textOf(done) };
  },
  async key() {
    return { refused: await raised(async () => (await client("greeter", "wrong")).sendMessage(said("Hi"))) };
  },
};

for (const [name, scene] of Object.entries(scenes)) {
  const facts = await scene().catch((error) => ({ failed: `${error?.stack}` }));
  process.stdout.write(`${JSON.stringify([name, facts])}\n`);
}
process.exit();
