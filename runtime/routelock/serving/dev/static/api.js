// Requests of the page to its own server. The page makes no other requests.

export const settings = JSON.parse(document.querySelector('meta[name="routelock-settings"]').content);

async function failed(response) {
  let why = `The server answered ${response.status}.`;
  try {
    why = (await response.json()).error ?? why;
  } catch {
    // no JSON: the status has to do
  }
  return new Error(why);
}

function ask(path, body, options = {}) {
  const headers = { "content-type": "application/json", "x-routelock-token": settings.token };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), ...options });
}

export async function post(path, body = {}) {
  const response = await ask(path, body);
  if (!response.ok) throw await failed(response);
  return response.json();
}

export async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw await failed(response);
  return response.json();
}

/** Post, and call `take` with each line of the answer as it arrives. */
export async function stream(path, body, take) {
  const response = await ask(path, body);
  if (!response.ok) throw await failed(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
  }
}
