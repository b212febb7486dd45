// Vercel's AI SDK asks the served agents through its provider for OpenAI-compatible servers; each line it
// prints is what it saw in one scene.
//
// usage: node ai_sdk.mjs MODULES URL BUSY_URL KEY    MODULES is the node_modules folder to load from
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, , key] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");

const connected = (apiKey = key) =>
  createOpenAICompatible({ name: "routelock", baseURL: url, apiKey, includeUsage: true });
const asked = (model, prompt = "Hello?", more = {}) => ({
  model: connected()(model),
  prompt,
  maxRetries: 0,
  ...more,
});
const consumed = (usage) => [usage.inputTokens, usage.outputTokens, usage.totalTokens];

async function plain(request) {
  const { text, finishReason: finish, usage, steps } = await generateText(request);
  const calls = steps.flatMap((step) => step.toolCalls).map((call) => [call.toolName, call.input]);
  return { text, finish, calls, usage: consumed(usage) };
}

async function streamed(request) {
  const errors = [];
  const result = streamText({ ...request, onError: ({ error }) => errors.push(error) });
  let text = "";
  for await (const part of result.fullStream) if (part.type === "text-delta") text += part.text;
  if (errors.length) return { text, raised: errors.map((error) => `${error?.message ?? JSON.stringify(error)}`) };
  const calls = (await result.steps).flatMap((step) => step.toolCalls);
  return {
    text,
    finish: await result.finishReason,
    calls: calls.map((call) => [call.toolName, call.input]),
    usage: consumed(await result.usage),
  };
}

async function raised(request) {
  try {
    return { class: null, answer: await plain(request) };
  } catch (error) {
    return {
      class: APICallError.isInstance(error) ? "APICallError" : `${error}`,
      status: error.statusCode,
      message: error.message,
    };
  }
}

const bothWays = async (request) => ({ plain: await plain(request), streamed: await streamed(request) });

const scenes = {
  greeting: () => bothWays(asked("greeter")),
  transfer: () => bothWays(asked("desk")),
  unicode: () => bothWays(asked("polyglot")),
  slow: () => bothWays(asked("slow")),
  own_tool: () => {
    const get_weather = tool({
      description: "Tell the weather.",
      inputSchema: jsonSchema({
        type: "object",
        properties: { city: { type: "string" } },
        required: ["city"],
      }),
      execute: async () => "21 degrees",
    });
    const more = { tools: { get_weather }, stopWhen: stepCountIs(3) };
    return bothWays(asked("forecaster", "Weather, please?", more));
  },
  errors: async () => ({
    "no key": await raised({ ...asked("greeter"), model: connected("not-a-key")("greeter") }),
    "unknown model": await raised(asked("nobody")),
  }),
  broken: async () => ({ streamed: await streamed(asked("broken")) }),
  async leaving() {
    const controller = new AbortController();
    const result = streamText({ ...asked("endless", "leaving"), abortSignal: controller.signal });
    for await (const text of result.textStream) {
      controller.abort();
      return { text };
    }
  },
};

for (const [name, scene] of Object.entries(scenes)) {
  const facts = await scene().catch((error) => ({ failed: `${error?.stack}` }));
  process.stdout.write(`${JSON.stringify([name, facts])}\n`);
}
process.stdout.write(`${JSON.stringify(["version", require("ai/package.json").version])}\n`);
process.exit();
