// Requests to the API. The token lives in this module's memory only: a reload forgets it.

let token = null;

export function setToken(value) {
  token = value;
}

/** An answer that is not a success: the API's Status. */
export class ApiError extends Error {
  constructor(status) {
    super(status.message);
    this.code = status.code;
  }
}

export const jobsPath = (namespace) => `/v1/namespaces/${encodeURIComponent(namespace)}/extractionjobs`;
export const jobPath = (namespace, name) => `${jobsPath(namespace)}/${encodeURIComponent(name)}`;

export async function read(path, signal) {
  return (await request(path, signal)).json();
}

/** Calls `listen(kind, data)` for each server-sent event until the stream ends.
 *  EventSource cannot send a header, so the stream is read by fetch. */
export async function stream(path, listen, signal) {
  const response = await request(path, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (text + value).split("\n\n");
    text = messages.pop();
    for (const message of messages) deliver(message, listen);
  }
}

function deliver(message, listen) {
  const fields = { event: "message", data: "" };
  for (const line of message.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
  }
  if (fields.data) listen(fields.event, JSON.parse(fields.data));
}

async function request(path, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (response.ok) return response;
  const status = await response.json().catch(() => ({ message: response.statusText, code: response.status }));
  throw new ApiError(status);
}
