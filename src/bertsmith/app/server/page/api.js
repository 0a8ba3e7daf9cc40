// Calls of the server, and what it says when it refuses.

const KEY = "key";

/** A request that failed; its message is a sentence for the reader. */
export class Refused extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** The JSON that the server answers: to a GET, or to a POST of `body`. */
export async function ask(path, body, signal) {
  return replyOf(await send(path, body, signal));
}

/** Shows the text of a completion each time that it grows. */
export async function follow(body, signal, show) {
  const response = await send("v1/completions", { ...body, stream: true }, signal);
  if (!response.ok) await replyOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let [text, rest] = ["", ""];
  for (let part; !(part = await reached(reader.read())).done; text && show(text)) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events.filter((lines) => lines.startsWith("data: {"))) {
      const sent = JSON.parse(event.slice("data:".length));
      if (sent.error) throw new Refused(sentence(response, sent));
      text += sent.choices[0].text;
    }
  }
}

function send(path, body, signal) {
  const post = body && { method: "POST", body: JSON.stringify(body) };
  const headers = { ...(body && { "content-type": "application/json" }), ...authorization() };
  return reached(fetch(path, { ...post, headers, signal }));
}

async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is it still running?");
  }
}

async function replyOf(response) {
  const reply = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (!response.ok || reply === null) throw new Refused(sentence(response, reply), response.status);
  return reply;
}

/** Keeps the key of this server until the tab is closed. */
export function unlock(key) {
  sessionStorage.setItem(KEY, key);
}

/** The same request on a command line. */
export function asCommand(path, body) {
  const quoted = JSON.stringify(body, null, 1).replace(/\n\s*/g, " ").replaceAll("'", "'\\''");
  const key = authorization().authorization ? " -H 'authorization: Bearer KEY'" : "";
  return `curl -s ${new URL(path, document.baseURI)}${key} \\\n  -H 'content-type: application/json' \\\n  -d '${quoted}'`;
}

function authorization() {
  const key = sessionStorage.getItem(KEY);
  return key ? { authorization: `Bearer ${key}` } : {};
}

function sentence(response, reply) {
  const said = reply?.error?.message ?? (typeof reply?.detail === "string" ? reply.detail : null);
  const wait = response.headers.get("retry-after");
  const text = said ?? `The server answered ${response.status} ${response.statusText}`.trim();
  const whole = /[.!?]$/.test(text) ? text : `${text}.`;
  return wait ? `${whole} Try again in ${wait} s.` : whole;
}
