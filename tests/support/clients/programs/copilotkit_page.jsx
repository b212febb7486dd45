// CopilotKit's own chat, with the agent that the address names: ?agent=desk
import {
  CopilotChat, CopilotKitProvider, useDefaultRenderTool, useFrontendTool, useInterrupt,
} from "@copilotkit/react-core/v2";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const agent = new URLSearchParams(location.search).get("agent");

function Chat() {
  useFrontendTool({
    name: "get_weather",
    description: "The weather in a city.",
    parameters: z.object({ city: z.string() }),
    handler: async ({ city }) => `21 degrees in ${city}`,
  });
  useDefaultRenderTool({
    render: ({ name, parameters, result }) => (
      <p className="call">{`${name}(${JSON.stringify(parameters)}) -> ${result ?? "..."}`}</p>
    ),
  });
  useInterrupt({
    agentId: agent,
    render: ({ interrupt, resolve }) => (
      <fieldset>
        <legend>{interrupt.message}</legend>
        <button onClick={() => resolve({ approved: true })}>Approve</button>
        <button onClick={() => resolve({ approved: false })}>Decline</button>
      </fieldset>
    ),
  });
  return <CopilotChat agentId={agent} />;
}

function Page() {
  const [error, setError] = useState("");
  return (
    <CopilotKitProvider runtimeUrl="/api/copilotkit" onError={({ error }) => setError(error.message)}>
      <Chat />
      <p role="alert">{error}</p>
    </CopilotKitProvider>
  );
}

createRoot(document.querySelector("main")).render(<Page />);
