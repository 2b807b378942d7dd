// A field to upload a table, with its progress, and fields for the columns.

import * as api from "./api.js";
import { announce, clearAlert, el, field, newId, select } from "./dom.js";
import { bytes, count } from "./format.js";

const MOST_COLUMNS = 40;
const ENDINGS = [".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx", ".jsonl", ".ndjson"];

/** Return an error message for a file that the server would refuse, or "". This avoids a useless upload. */
function refusal(file, limits) {
  if (!ENDINGS.some((ending) => file.name.toLowerCase().endsWith(ending))) {
    return `${file.name}: expected a file that ends in ${ENDINGS.join(", ")}; save the table as one of them.`;
  }
  if (file.size > limits.upload_bytes) {
    return `${file.name} has ${bytes(file.size)}, and this server accepts at most ${bytes(limits.upload_bytes)}; `
      + "send a part of it, or use the command line.";
  }
  return "";
}

/**
 * Create the field.
 *
 * `arrived` is called with a received table, or with null if the field is empty again. `report` is called with errors.
 * The returned function `give(id)` shows a table that was uploaded before.
 */
export function tableField({ title, hint, limits, arrived, report }) {
  const place = el("div", { class: "table-field" });

  function empty() {
    const input = el("input", {
      type: "file", class: "unseen", id: newId("file"), accept: ENDINGS.join(","),
      onchange: () => input.files.length && send(input.files[0]),
    });
    const zone = el("div", { class: "drop" },
      el("span", { class: "drop-icon", "aria-hidden": "true" }, "↓"),
      el("p", {}, input, el("label", { for: input.id }, title), el("span", { class: "fine" }, " or drop it here")),
      el("small", {}, hint));
    zone.addEventListener("click", (event) => event.target.closest("label, input") || input.click());
    zone.addEventListener("dragover", () => zone.classList.add("over"));
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      zone.classList.remove("over");
      if (event.dataTransfer.files.length) send(event.dataTransfer.files[0]);
    });
    place.replaceChildren(zone);
  }

  async function send(file) {
    clearAlert();
    const wrong = refusal(file, limits);
    if (wrong) {
      report(new Error(wrong));
      return reset();
    }
    const bar = el("progress", { max: 1, value: 0, "aria-label": `Sending ${file.name}` });
    const words = el("small", {}, `${bytes(file.size)}, 0 % sent`);
    const showPart = (part) => {
      bar.value = part;
      words.textContent = part < 1
        ? `${bytes(file.size)}, ${Math.floor(100 * part)} % sent` : "The server is reading the first rows.";
    };
    const sending = api.upload(file, showPart);
    const cancel = el("button", { type: "button", class: "button quiet", onclick: sending.stop }, "Cancel");
    place.replaceChildren(el("div", { class: "file" },
      el("div", { class: "grow" }, el("b", {}, file.name), bar, words), cancel));
    cancel.focus();
    try {
      const table = await sending.done;
      if (table) {
        return show(table).focus({ preventScroll: true });
      }
      announce("Nothing was sent.");
    } catch (error) {
      report(error);
    }
    return reset();
  }

  function show(table) {
    const rows = table.rows && `${table.rows_exact ? "" : "about "}${count(table.rows)} rows`;
    const about = [bytes(table.bytes), rows, `${count(table.columns.length)} columns`];
    const other = el("button", { type: "button", class: "button quiet", onclick: reset }, "Choose another");
    const facts = el("small", {}, about.filter(Boolean).join(" · "));
    const text = el("div", { class: "grow" }, el("b", {}, table.name), facts);
    place.replaceChildren(el("div", { class: "file done" }, text, other));
    announce(`${table.name} has arrived.`);
    arrived(table);
    return other;
  }

  function reset() {
    empty();
    arrived(null);
    place.querySelector("input").focus();
  }

  empty();
  return { element: place, give: async (id) => { show(await api.table(id)); } };
}

/** Return the first rows of a table; `roles` maps names of columns to their roles. */
export function preview(table, roles) {
  const order = table.columns.map((_, i) => i);
  const rank = (i) => ({ bag: 0, label: 0, time: 0, segment: 0, used: 1 })[roles.get(table.columns[i].name)] ?? 2;
  order.sort((a, b) => rank(a) - rank(b) || a - b);
  const shown = order.slice(0, MOST_COLUMNS);
  const more = order.length - shown.length;
  const heads = shown.map((i) => {
    const { name } = table.columns[i];
    const role = roles.get(name);
    return el("th", { scope: "col", class: role ?? "idle" },
      el("span", { class: "tag" }, role ?? "not used"), el("span", { class: "name" }, name));
  });
  const rows = table.preview.map((cells) => el("tr", {}, shown.map((i) =>
    el("td", { class: roles.has(table.columns[i].name) ? null : "idle" }, cells[i] ?? ""))));
  const caption = `The first rows of ${table.name}${more ? `, without ${count(more)} more columns` : ""}.`;
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "First rows of the table" },
    el("table", { class: "preview" },
      el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)));
}

/** Return a field to choose the bag column, or several bag columns if the server guessed several. */
export function bagField(table, none, onchange) {
  const guess = table.guess.bag;
  const choices = [[], ...table.columns.map((column) => [column.name]), ...(guess.length > 1 ? [guess] : [])];
  const pairs = choices.map((names) => [JSON.stringify(names), names.join(" and ") || none]);
  const input = select(pairs, JSON.stringify(guess), onchange);
  const element = field("Bag column", input, "Rows with the same value belong to one bag.");
  return { element, value: () => JSON.parse(input.value) };
}

/** Return a field to choose how missing values are handled. */
export function missingField() {
  const pairs = [
    ["refuse", "Refuse the table"], ["drop", "Drop their rows"], ["mean", "Fill with the training mean"],
  ];
  const input = select(pairs, "refuse", () => {});
  return { element: field("Empty cells", input, "In columns that the model reads."), value: () => input.value };
}

/** Return a numbered part of a form. */
export function step(number, title, ...children) {
  return el("section", { class: "step card" },
    el("h2", {}, el("span", { class: "badge", "aria-hidden": "true" }, String(number)), title), ...children);
}
