// A chat made of assistant-ui's own parts, with the agent that the address names: ?agent=desk
import { HttpAgent } from "@ag-ui/client";
import {
  AssistantRuntimeProvider, ComposerPrimitive, ErrorPrimitive, MessagePrimitive, ThreadPrimitive, makeAssistantTool,
} from "@assistant-ui/react";
import { useAgUiInterrupts, useAgUiRuntime, useAgUiSubmitInterruptResponses } from "@assistant-ui/react-ag-ui";
import { createRoot } from "react-dom/client";

const agent = new HttpAgent({ url: `/ag-ui/${new URLSearchParams(location.search).get("agent")}` });

const Weather = makeAssistantTool({
  toolName: "get_weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  execute: async ({ city }) => `21 degrees in ${city}`,
});

const Call = ({ toolName, argsText, result }) => (
  <p className="call">{`${toolName}(${argsText}) -> ${result ?? "..."}`}</p>
);

const Message = () => (
  <MessagePrimitive.Root role="article">
    <MessagePrimitive.Parts components={{ Text: ({ text }) => <p>{text}</p>, tools: { Fallback: Call } }} />
    <MessagePrimitive.Error>
      <ErrorPrimitive.Root><ErrorPrimitive.Message /></ErrorPrimitive.Root>
    </MessagePrimitive.Error>
  </MessagePrimitive.Root>
);

function Approvals() {
  const submit = useAgUiSubmitInterruptResponses();
  return useAgUiInterrupts().map(({ id, message }) => {
    const decide = (approved) => submit([{ interruptId: id, status: "resolved", payload: { approved } }]);
    return (
      <fieldset key={id}>
        <legend>{message}</legend>
        <button onClick={() => decide(true)}>Approve</button>
        <button onClick={() => decide(false)}>Decline</button>
      </fieldset>
    );
  });
}

const Chat = () => (
  <AssistantRuntimeProvider runtime={useAgUiRuntime({ agent })}>
    <Weather />
    <ThreadPrimitive.Root>
      <ThreadPrimitive.Messages components={{ Message }} />
      <Approvals />
      <ComposerPrimitive.Root>
        <ComposerPrimitive.Input aria-label="Message" />
        <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        <ThreadPrimitive.If running><ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel></ThreadPrimitive.If>
      </ComposerPrimitive.Root>
    </ThreadPrimitive.Root>
  </AssistantRuntimeProvider>
);

createRoot(document.querySelector("main")).render(<Chat />);
