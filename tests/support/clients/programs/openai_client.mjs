// The unmodified `openai` client for JavaScript asks the served agents; each line it prints is what it saw
// in one scene. openai_client.py plays the same scenes and says more about them.
//
// usage: node openai_client.mjs MODULES URL BUSY_URL KEY    MODULES is the node_modules folder to load from
import assert from "node:assert";
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, busyUrl, key] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const OpenAI = require("openai").default;

const PATIENCE = 30_000; // milliseconds after which a scene has failed: far more than any takes
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Tell the weather.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

const connected = (baseURL = url, apiKey = key) =>
  new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: PATIENCE });
const asked = (model, text = "Hello?", more = {}) => ({
  model,
  messages: [{ role: "user", content: text }],
  ...more,
});
const consumed = (usage) =>
  usage ? [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens] : null;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function summedUp(completion) {
  assert.equal(completion.choices.length, 1);
  const { message, finish_reason: finish } = completion.choices[0];
  const calls = (message.tool_calls ?? []).map((call) => [call.id, call.function.name, call.function.arguments]);
  return { text: message.content, finish, calls, usage: consumed(completion.usage) };
}

async function plain(client, request) {
  const completion = await client.chat.completions.create(request);
  assert.equal(completion.object, "chat.completion");
  return summedUp(completion);
}

// Iterate the chunks and put them together as the API reference says.
async function raw(client, request, chunks = []) {
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    chunks.push(chunk);
  }
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const calls = [];
  for (const piece of choices.flatMap((choice) => choice.delta.tool_calls ?? [])) {
    const call = (calls[piece.index] ??= ["", "", ""]);
    call[0] += piece.id ?? "";
    call[1] += piece.function?.name ?? "";
    call[2] += piece.function?.arguments ?? "";
  }
  assert.deepEqual([...new Set(chunks.map((chunk) => chunk.object))], ["chat.completion.chunk"]);
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1, "one answer has one id");
  return {
    text: choices.map((choice) => choice.delta.content ?? "").join("") || null,
    finish: choices.map((choice) => choice.finish_reason).filter(Boolean).join("+"),
    calls,
    usage: consumed(chunks.find((chunk) => chunk.usage)?.usage),
    "chunks without choices": chunks.filter((chunk) => chunk.choices.length === 0).length,
  };
}

// Let the client's own helper put the chunks together.
async function helped(client, request) {
  const stream = client.chat.completions.stream(request);
  const deltas = [];
  stream.on("content.delta", ({ delta }) => deltas.push(delta));
  const facts = summedUp(await stream.finalChatCompletion());
  assert.equal(deltas.join(""), facts.text ?? "");
  return facts;
}

async function raised(work) {
  try {
    return { class: null, answer: await work };
  } catch (error) {
    assert.ok(error instanceof OpenAI.APIError, `${error?.constructor?.name}: ${error}`);
    return {
      class: error.constructor.name,
      status: error.status ?? null,
      message: error.message,
      "has body": typeof error.error === "object",
    };
  }
}

async function threeWays(client, request) {
  const counted = { ...request, stream_options: { include_usage: true } };
  return {
    plain: await plain(client, request),
    raw: await raw(client, request),
    "raw with usage": await raw(client, counted),
    helper: await helped(client, request),
    "helper with usage": await helped(client, counted),
  };
}

async function firstText(stream) {
  for await (const chunk of stream) {
    const text = chunk.choices[0]?.delta.content;
    if (text) return text; // leaving the loop closes the stream
  }
}

const scenes = {
  async models(client) {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    const one = await client.models.retrieve("greeter");
    return { ids: ids.sort(), one: one.id };
  },
  greeting: (client) => threeWays(client, asked("greeter")),
  transfer: (client) => threeWays(client, asked("desk")),
  unicode: (client) => threeWays(client, asked("polyglot")),
  async own_tool(client) {
    const found = {};
    for (const [name, way] of Object.entries({ plain, raw, helper: helped })) {
      const request = asked("forecaster", `Weather, ${name}?`, { tools: [WEATHER] });
      const first = await way(client, request);
      const calls = first.calls.map(([id, called, written]) => ({
        id,
        type: "function",
        function: { name: called, arguments: written },
      }));
      request.messages.push({ role: "assistant", content: first.text, tool_calls: calls });
      for (const call of calls) {
        request.messages.push({ role: "tool", tool_call_id: call.id, content: "21 degrees" });
      }
      found[name] = { first, then: await way(client, request) };
    }
    return found;
  },
  async errors(client) {
    const stranger = connected(url, "not-a-key");
    return {
      "no key": await raised(plain(stranger, asked("greeter"))),
      "no key, models": await raised(stranger.models.list()),
      "no key, streamed": await raised(raw(stranger, asked("greeter"))),
      "unknown model": await raised(plain(client, asked("nobody"))),
      "unknown model, streamed": await raised(raw(client, asked("nobody"))),
      "bad request": await raised(client.chat.completions.create({ model: "greeter", messages: [] })),
      "too large": await raised(plain(client, asked("greeter", "x".repeat(2_000_000)))),
    };
  },
  async busy() {
    const small = connected(busyUrl);
    const stream = await small.chat.completions.create({ ...asked("endless", "busy"), stream: true });
    let refused;
    for await (const chunk of stream) {
      if (!chunk.choices[0]?.delta.content) continue;
      refused = await raised(plain(small, asked("greeter")));
      break;
    }
    let again;
    for (let i = 0; i < 200; i++) {
      again = await raised(plain(small, asked("greeter")));
      if (again.class === null) break;
      await pause(50);
    }
    return { refused, again: again.class };
  },
  async broken(client) {
    const chunks = [];
    const streamed = await raised(raw(client, asked("broken"), chunks));
    const choices = chunks.flatMap((chunk) => chunk.choices);
    return {
      raw: {
        ...streamed,
        "text before": choices.map((choice) => choice.delta.content ?? "").join(""),
        finishes: choices.map((choice) => choice.finish_reason).filter(Boolean),
      },
      helper: await raised(helped(client, asked("broken"))),
      plain: await raised(plain(client, asked("broken"))),
    };
  },
  async leaving(client) {
    const request = { ...asked("endless", "leaving"), stream: true };
    return { text: await firstText(await client.chat.completions.create(request)) };
  },
  slow: async (client) => ({
    plain: await plain(client, asked("slow")),
    raw: await raw(client, asked("slow")),
    helper: await helped(client, asked("slow")),
  }),
  async together(client) {
    const [left, right] = await Promise.all(
      ["left", "right"].map((part) => raw(client, asked("duet", part))),
    );
    return { left: left.text, right: right.text };
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
