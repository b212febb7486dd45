// The unmodified `openai` client for JavaScript asks for responses; each line it prints is what it saw in one
// scene. openai_responses.py plays the same scenes and says more about them.
//
// usage: node openai_responses.mjs MODULES URL BUSY_URL KEY    MODULES is the node_modules folder to load from
import assert from "node:assert";
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, , key] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const OpenAI = require("openai").default;

const PATIENCE = 30_000; // milliseconds after which a scene has failed: far more than any takes
const WEATHER = {
  type: "function",
  name: "get_weather",
  description: "Tell the weather.",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
};

const connected = (apiKey = key) => new OpenAI({ baseURL: url, apiKey, maxRetries: 0, timeout: PATIENCE });
const asked = (model, text = "Hello?", more = {}) => ({ model, input: text, ...more });
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const items = (response, type) => response.output.filter((item) => item.type === type);

const summedUp = (response) => ({
  text: response.output_text,
  status: response.status,
  reasoning: items(response, "reasoning").flatMap((item) => item.content.map((part) => part.text)),
  calls: items(response, "function_call").map((call) => [call.call_id, call.name, call.arguments]),
  usage: [response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens],
});

const plain = (client, request) => client.responses.create(request);

async function raw(client, request, deltas = []) {
  const events = [];
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    events.push(event);
    if (event.type === "response.output_text.delta") deltas.push(event.delta);
  }
  const { response } = events.at(-1);
  const parts = items(response, "message").flatMap((item) => item.content);
  response.output_text = parts.map((part) => part.text ?? "").join(""); // the helpers add it, an event has none
  assert.equal(deltas.join(""), response.output_text);
  return response;
}

async function helped(client, request) {
  const stream = client.responses.stream(request);
  for await (const event of stream) assert.ok(event.type);
  return stream.finalResponse();
}

const ways = { plain, raw, helper: helped };

async function inEveryWay(client, request) {
  const found = {};
  for (const [name, way] of Object.entries(ways)) found[name] = summedUp(await way(client, request));
  return found;
}

async function raised(work) {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    return { class: error.constructor.name, param: error.param ?? null, code: error.code ?? null };
  }
  return { class: null };
}

const scenes = {
  greeting: (client) => inEveryWay(client, asked("greeter", "Hello?", { instructions: "Be short.", store: false })),
  transfer: (client) => inEveryWay(client, asked("desk")),
  reasoning: (client) => inEveryWay(client, asked("thinker")),
  async citations(client) {
    const found = {};
    for (const [name, way] of Object.entries(ways)) {
      const parts = items(await way(client, asked("reporter")), "message").flatMap((item) => item.content);
      found[name] = parts.flatMap(({ annotations, text }) =>
        annotations.map((note) => [note.type, note.url, text.slice(note.start_index, note.end_index)]),
      );
    }
    found.events = [];
    for await (const event of await client.responses.create({ ...asked("reporter"), stream: true }))
      if (event.type === "response.output_text.annotation.added") found.events.push(event.annotation.url);
    return found;
  },
  unicode: (client) => inEveryWay(client, asked("polyglot")),
  async own_tool(client) {
    const found = {};
    for (const [name, way] of Object.entries(ways)) {
      for (const place of ["stateless", "by id"]) {
        const text = `Weather, ${name}, ${place}?`;
        const first = await way(client, asked("forecaster", text, { tools: [WEATHER] }));
        const results = items(first, "function_call").map((call) => ({
          type: "function_call_output",
          call_id: call.call_id,
          output: "21",
        }));
        const request = { model: "forecaster", tools: [WEATHER] };
        const said = first.output.map(({ parsed_arguments, ...item }) => item);
        if (place === "by id") Object.assign(request, { previous_response_id: first.id, input: results });
        else request.input = [{ role: "user", content: text }, ...said, ...results];
        found[`${name}, ${place}`] = { first: summedUp(first), then: summedUp(await way(client, request)) };
      }
    }
    return found;
  },
  async broken(client) {
    const deltas = [];
    return {
      raw: await raised(raw(client, asked("broken"), deltas)),
      "text before": deltas.join(""),
      helper: await raised(helped(client, asked("broken"))),
      plain: await raised(plain(client, asked("broken"))),
    };
  },
};

const client = connected();
for (const [name, scene] of Object.entries(scenes)) {
  const late = pause(PATIENCE).then(() => ({ failed: "took too long" }));
  const facts = await Promise.race([late, scene(client).catch((error) => ({ failed: `${error?.stack}` }))]);
  process.stdout.write(`${JSON.stringify([name, facts])}\n`);
}
process.stdout.write(`${JSON.stringify(["version", require("openai/version").VERSION])}\n`);
process.exit();
