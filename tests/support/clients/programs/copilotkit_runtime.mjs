// CopilotKit's runtime, as the backend of a page: it serves the page, and passes on what the page asks.
//
// usage: node copilotkit_runtime.mjs MODULES URL PAGE AGENT...
//   MODULES  the node_modules folder to load from
//   URL      of the served agents
//   PAGE     the folder of the page
// Prints its own address, and ends when its standard input does.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, page, ...names] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const { HttpAgent } = require("@ag-ui/client");
const { map } = require("rxjs");
const { CopilotRuntime, createCopilotRuntimeHandler } = require("@copilotkit/runtime/v2");
const { createCopilotNodeHandler } = require("@copilotkit/runtime/v2/node");

// CopilotKit takes the user's answer to a "tool_call" for the result of the call, and drops the true result
const renamed = (one) => (one.reason === "tool_call" ? { ...one, reason: "routelock:tool_call" } : one);
const asked = (event) =>
  event.outcome?.type === "interrupt"
    ? { ...event, outcome: { ...event.outcome, interrupts: event.outcome.interrupts.map(renamed) } }
    : event;

const agents = {};
for (const name of names) {
  agents[name] = new HttpAgent({ url: `${url}/ag-ui/${name}` });
  agents[name].use((input, next) => next.run(input).pipe(map(asked)));
}
const handler = createCopilotRuntimeHandler({ runtime: new CopilotRuntime({ agents }), basePath: "/api/copilotkit" });
const passOn = createCopilotNodeHandler(handler);

const server = createServer((request, response) => {
  const path = request.url.split("?")[0];
  if (path.startsWith("/api/")) return passOn(request, response);
  const name = path.endsWith("/page.js") ? "page.js" : "index.html";
  response.setHeader("content-type", name.endsWith(".js") ? "text/javascript" : "text/html");
  response.end(readFileSync(join(page, name)));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/page/`));
process.stdin.resume().on("end", () => process.exit());
