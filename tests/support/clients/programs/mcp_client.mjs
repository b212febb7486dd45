// An MCP client for JavaScript calls the served agents; each line it prints is what it saw in one scene.
//
// usage: node mcp_client.mjs MODULES URL KEY VERSION    MODULES is the node_modules folder to load from;
// VERSION is 1 for the SDK of that version, or 2 for its successor, in the newer form of the protocol
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, key, version] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const sdk =
  version === "1"
    ? {
        ...require("@modelcontextprotocol/sdk/client/index.js"),
        ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
        asks: require("@modelcontextprotocol/sdk/types.js").ElicitRequestSchema,
      }
    : { ...require("@modelcontextprotocol/client"), asks: "elicitation/create" };

async function connected(action, questions = [], token = key) {
  const options = {
    capabilities: action ? { elicitation: {} } : {},
    ...(version === "2" ? { versionNegotiation: { mode: "auto" } } : {}),
  };
  const client = new sdk.Client({ name: "scenes", version: "1" }, options);
  if (action) {
    client.setRequestHandler(sdk.asks, ({ params }) => {
      questions.push(params.message);
      return action === "accept" ? { action, content: {} } : { action };
    });
  }
  const requestInit = { headers: { authorization: `Bearer ${token}` } };
  await client.connect(new sdk.StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
}

const text = (result) => result.content.map((each) => each.text).join("");

function ask(client, name, options) {
  const params = { name, arguments: { input: "Hello?" } };
  return version === "1" ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

async function call(name, options, action, questions) {
  const client = await connected(action, questions);
  try {
    return await ask(client, name, options);
  } finally {
    await client.close();
  }
}

// What a refused call says: an error of the protocol, or a result that is one.
async function refused(call) {
  try {
    const result = await call();
    return result.isError ? text(result) : "nothing";
  } catch (error) {
    return error.message;
  }
}

const scenes = {
  async listed() {
    const client = await connected();
    const { tools } = await client.listTools();
    await client.close();
    return {
      names: tools.map((tool) => tool.name),
      takes: Object.keys(tools[0].inputSchema.properties),
      promised: tools.filter((tool) => tool.outputSchema).map((tool) => tool.name),
    };
  },
  greeting: async () => ({ text: text(await call("greeter")) }),
  async transfer() {
    const told = [];
    const result = await call("desk", { onprogress: ({ message }) => told.push(message) });
    return { text: text(result), told };
  },
  unicode: async () => ({ text: text(await call("polyglot")) }),
  async broken() {
    const result = await call("broken");
    return { error: result.isError, text: text(result) };
  },
  async structured() {
    const client = await connected();
    await client.listTools(); // then the client checks the output by its schema
    const result = await ask(client, "clerk");
    await client.close();
    return { data: result.structuredContent, text: JSON.parse(text(result)) };
  },
  async approval() {
    const asked = [];
    const accepted = await call("payer", undefined, "accept", asked);
    const declined = await call("payer", undefined, "decline", asked);
    return { asked, said: [text(accepted), text(declined)] };
  },
  silent: async () => ({ refused: await refused(() => call("payer")) }),
  unknown: async () => ({ refused: await refused(() => call("stranger")) }),
  async cancelled() {
    const client = await connected();
    const gone = new AbortController();
    const onprogress = () => gone.abort();
    await ask(client, "endless", { signal: gone.signal, onprogress }).catch(() => {});
    for (;;) {
      const told = JSON.parse(text(await ask(client, "teller")));
      if (told.cancelled.length) {
        await client.close();
        return { told };
      }
      await new Promise((done) => setTimeout(done, 20));
    }
  },
  key: async () => ({ refused: await refused(() => connected(undefined, [], "wrong")) }),
};

for (const [name, scene] of Object.entries(scenes)) {
  const facts = await scene().catch((error) => ({ failed: `${error?.stack}` }));
  process.stdout.write(`${JSON.stringify([name, facts])}\n`);
}
process.exit();
