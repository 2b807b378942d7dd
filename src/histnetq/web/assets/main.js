// The start of the page. The address after "#" contains the view and the job, so that a reload shows the same view.

import * as api from "./api.js";
import { clearAlert, el, field, place, showAlert } from "./dom.js";
import { showEstimate } from "./estimate.js";
import { showLearn } from "./learn.js";

const VIEWS = { estimate: [showEstimate, "Estimate"], learn: [showLearn, "Learn"] };
let root = null;
let leave = () => {};

function parseAddress() {
  const [path, query = ""] = location.hash.replace(/^#\//, "").split("?");
  const [view, job = ""] = path.split("/");
  const name = view in VIEWS ? view : "estimate";
  return { name, job: decodeURIComponent(job), query: new URLSearchParams(query) };
}

async function show(moveFocus) {
  const { name, job, query } = parseAddress();
  const [draw, title] = VIEWS[name];
  leave();
  clearAlert();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} · histnetq`;
  const gone = new AbortController();
  leave = () => gone.abort();
  root = el("div");
  document.getElementById("view").replaceChildren(root);
  const { signal } = gone;
  const context = { root, job, query, moveFocus, signal, report: (error) => signal.aborted || report(error) };
  try {
    await draw(context);
  } catch (error) {
    context.report(error);
    if (!signal.aborted && !root.hasChildNodes()) place(context, nothingHere(name));
  }
}

/** Show an error; ask for the token if the server needs one. */
function report(error) {
  if (error.status === 401) askToken(error.message);
  else showAlert(error.message);
}

const nothingHere = (name) => el("section", { class: "card narrow" },
  el("h1", {}, "There is nothing here"),
  el("p", {}, "The server does not have this, or no longer has it."),
  el("p", {}, el("a", { class: "button", href: `#/${name}` }, "Start again")));

function askToken(sentence) {
  const input = el("input", { type: "password", autocomplete: "current-password", required: true });
  const enter = (event) => {
    event.preventDefault();
    api.signIn(input.value.trim());
    show(true);
  };
  root.replaceChildren(el("form", { class: "card narrow", onsubmit: enter },
    el("h1", {}, "A token, please"), el("p", {}, sentence),
    field("Token", input, "It is in the token file of the server."),
    el("button", { class: "button" }, "Go on")));
  input.focus();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
// A file that is dropped outside of the field would replace the page.
for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault());
window.addEventListener("hashchange", () => show(true));
show(false);
