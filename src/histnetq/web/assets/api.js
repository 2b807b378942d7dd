// Requests to the server. The page sends all requests from this file, and only to its own address.

/** A refused request, with the error message of the server. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

const TOKEN = "histnetq-token"; // kept in this tab until it is closed
const GONE = "The server does not answer; check that histnetq serve is still running, then try again.";

function sentenceOf(status, text) {
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string") return error;
  } catch { /* A proxy may have written the response. */ }
  return `The server answered with the code ${status}; look at its log, then try again.`;
}

function signed(headers = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
}

/** Store the token that the server asks for. */
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

/** Download a file of a job. A plain link would send no token and would not show an error message. */
export async function save(id, name) {
  const url = URL.createObjectURL(await (await ask("GET", jobPath(id, `/${name}`))).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Upload a file; `onProgress` gets the part that was sent. Return the promise, and a function that stops it. */
export function upload(file, onProgress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open("POST", `/v1/tables?name=${encodeURIComponent(file.name)}`);
    for (const [name, value] of Object.entries(signed())) request.setRequestHeader(name, value);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.total ? event.loaded / event.total : 1);
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
