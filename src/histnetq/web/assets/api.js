// The server: every request of the page is made here, and only to the address that the page came from.

/** What the server refused, in its own sentence. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

const TOKEN = "histnetq-token"; // kept in this tab until it is closed
const GONE = "The server does not answer; look whether histnetq serve still runs, then try again.";

function sentenceOf(status, text) {
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string") return error;
  } catch { /* An answer that is not ours: a proxy between may have written it. */ }
  return `The server answered with the code ${status}; look at what it printed, then try again.`;
}

function signed(headers = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
}

/** Keep the token that the server asks for. */
export const signIn = (token) => sessionStorage.setItem(TOKEN, token);

async function ask(method, path, { body, signal } = {}) {
  const headers = signed(body === undefined ? {} : { "Content-Type": "application/json" });
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
    if (answer.ok) return answer;
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refused(0, GONE);
  }
  throw new Refused(answer.status, sentenceOf(answer.status, await answer.text()));
}

const read = async (...asked) => (await ask(...asked)).json();
const jobPath = (id, file = "") => `/v1/jobs/${encodeURIComponent(id)}${file}`;

export const models = () => read("GET", "/v1/models");
export const table = (id) => read("GET", `/v1/tables/${encodeURIComponent(id)}`);
export const start = (body) => read("POST", "/v1/jobs", { body });
export const job = (id, signal) => read("GET", jobPath(id), { signal });
export const cancel = (id) => read("DELETE", jobPath(id));

/** Fetch a file of a job and let the browser save it: a plain link would carry no token and hide a refusal. */
export async function save(id, name) {
  const url = URL.createObjectURL(await (await ask("GET", jobPath(id, `/${name}`))).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Send a file as it is; `told` hears the part that has arrived. Give the promise, and what stops it. */
export function upload(file, told) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open("POST", `/v1/tables?name=${encodeURIComponent(file.name)}`);
    for (const [name, value] of Object.entries(signed())) request.setRequestHeader(name, value);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => told(event.total ? event.loaded / event.total : 1);
    request.onload = () => {
      if (request.status < 300) resolve(JSON.parse(request.responseText));
      else reject(new Refused(request.status, sentenceOf(request.status, request.responseText)));
    };
    request.onerror = () => reject(new Refused(0, GONE));
    request.onabort = () => resolve(null);
    request.send(file);
  });
  return { done, stop: () => request.abort() };
}
