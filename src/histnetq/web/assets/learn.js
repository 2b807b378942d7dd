// The view "Learn": choose a table with known classes, its columns and a name, then learn a model.

import * as api from "./api.js";
import { announce, clearAlert, el, field, newId, place, select } from "./dom.js";
import { count, duration } from "./format.js";
import { follow, showEnd } from "./job.js";
import { modelCard } from "./models.js";
import { commandRow } from "./result.js";
import { bagField, missingField, preview, step, tableField } from "./upload.js";

const METHODS = [
  ["auto", "Default: quick with labels"], ["search", "The best of several, in some minutes"],
  ["emq", "EMQ: quick, learns from labels"],
  ["histnetq", "HistNetQ: a network, learns from proportions too"],
  ["emnetq", "EMNetQ: a network, learns from proportions too"],
];

export async function showLearn(context) {
  if (!context.job) return drawForm(context);
  const subtitle = (job) => `${job.asked.name}, from ${job.asked.table_name}.`;
  const job = await follow(context, "Learning", { subtitle, more: showMethods });
  if (!job) return null;
  const again = `#/learn?${new URLSearchParams({ table: job.asked.table })}`;
  return job.state === "done" ? showModel(context, job) : showEnd(context, job, again);
}

async function drawForm(context) {
  const { query, report } = context;
  const title = [
    el("h1", {}, "Learn a model"),
    el("p", { class: "lead" },
      "Drop a table where the classes are known. The server keeps the model that it learns from them."),
  ];
  const { can_learn: can, limits } = await api.models();
  if (!can) {
    return place(context, ...title, el("p", { class: "notice warn" },
      "This server serves a single model; start histnetq serve with a directory of models."));
  }
  let known = null; // fields of the table that has arrived
  const columns = el("div");
  const second = step(2, "Columns", columns);
  const name = el("input", {
    type: "text", required: true, maxlength: "64", pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]*",
    autocomplete: "off", spellcheck: "false",
    title: "Letters, digits, dots, hyphens and underscores; the first is a letter or digit.",
  });
  const method = select(METHODS, "auto", () => {});
  const size = el("input", { type: "number", min: "1", max: "1000000000", step: "1" });
  const third = step(3, "Model", el("div", { class: "fields wide" },
    field("Name of the model", name, "Letters, digits, dots, hyphens and underscores."),
    field("Method", method, "With proportions only, the default compares methods by their errors on held-out bags."),
    field("Rows per new bag", size, "Only for labelled rows without bags; empty for any size.")));
  const button = el("button", { class: "button big" }, "Learn");
  const actions = el("div", { class: "actions" }, button);
  const file = tableField({
    title: "Choose a CSV or Parquet file", limits, report,
    hint: "One row per example. A column has its class, or another table has the proportions of each bag.",
    arrived: (table) => {
      known = table && columnFields(table, limits, report);
      columns.replaceChildren(...(known ? known.elements : []));
      known?.refresh();
      second.hidden = third.hidden = actions.hidden = !table;
      if (table && !name.value) name.value = nameFrom(table.name);
      history.replaceState(null, "", table ? `#/learn?${new URLSearchParams({ table: table.id })}` : "#/learn");
    },
  });
  second.hidden = third.hidden = actions.hidden = true;
  const form = el("form", {}, step(1, "Table", file.element), second, third, actions);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearAlert();
    button.disabled = true;
    try {
      const asked = { kind: "learn", name: name.value.trim(), method: method.value, ...known.asked() };
      if (size.value) asked.bag_size = [Number(size.value)];
      location.hash = `#/learn/${encodeURIComponent((await api.start(asked)).id)}`;
    } catch (error) {
      report(error);
    }
    button.disabled = false;
  });
  const given = query.get("table");
  place(context, ...title, form);
  return given && file.give(given);
}

/** Return a name for a model that is learned from this file. */
function nameFrom(file) {
  const plain = file.replace(/\.[^.]*$/, "").replace(/[^A-Za-z0-9_.-]+/g, "-");
  return plain.replace(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, "").slice(0, 64);
}

/** Return fields for the columns of a table with known classes. */
function columnFields(table, limits, report) {
  const names = table.columns.map((column) => column.name);
  const below = el("div");
  const group = newId("known");
  const way = (value, words, note) => {
    const input = el("input", { type: "radio", name: group, value, checked: value === "label", onchange: refresh });
    const text = el("span", {}, el("b", {}, words), el("small", {}, note));
    return { input, element: el("label", { class: "choice" }, input, text) };
  };
  const byLabel = way("label", "A column of this table", "It has the class of each row.");
  const byTable = way("table", "Another table", "It has the proportions of each bag.");
  const label = select([["", "Choose"], ...names.map((name) => [name, name])], table.guess.label ?? "", refresh);
  const bag = bagField(table, "The rows have no bags", refresh);
  const missing = missingField();
  const labelField = field("Label column", label, "It has the class of each row.");
  let proportions = null;
  const counts = el("input", { type: "checkbox" });
  const other = tableField({
    title: "Choose the table of proportions", hint: "The bag column, and one column per class.", limits, report,
    arrived: (arrived) => { proportions = arrived; },
  });
  const otherField = el("div", { class: "proportions" }, other.element,
    el("label", { class: "check" }, counts, "It has counts or percentages."));
  const left = new Set();
  const boxes = el("fieldset", { class: "boxes" });
  const used = el("details", {}, el("summary", {}, "Columns to learn from"),
    el("p", { class: "fine" }, "Untick columns that reveal the class, or that new tables will not have."), boxes);

  function refresh() {
    const labelled = byLabel.input.checked;
    labelField.hidden = !labelled;
    label.required = labelled;
    otherField.hidden = labelled;
    const special = new Map(bag.value().map((name) => [name, "bag"]));
    if (labelled && label.value) special.set(label.value, "label");
    const learned = table.columns.filter(({ name, kind }) => !special.has(name) && ["number", "truth"].includes(kind));
    boxes.replaceChildren(el("legend", { class: "unseen" }, "Columns to learn from"), ...learned.map(({ name }) => {
      const box = el("input", { type: "checkbox", checked: !left.has(name), onchange: () => {
        if (box.checked) left.delete(name);
        else left.add(name);
        show();
      } });
      return el("label", { class: "check" }, box, name);
    }));
    const show = () => {
      const chosen = learned.filter(({ name }) => !left.has(name));
      const roles = new Map([...chosen.map(({ name }) => [name, "used"]), ...special]);
      used.firstChild.textContent = `Columns to learn from: ${count(chosen.length)} of ${count(names.length)}`;
      below.replaceChildren(preview(table, roles));
    };
    show();
  }

  const asked = () => {
    const labelled = byLabel.input.checked;
    if (!labelled && !proportions) {
      throw new Error("The proportions of the bags are not known yet; choose their table.");
    }
    return {
      table: table.id, bag: bag.value(), ignore: [...left], missing: missing.value(),
      label: labelled ? label.value : null,
      proportions_table: labelled ? null : proportions.id, counts: !labelled && counts.checked,
    };
  };
  const ways = el("fieldset", { class: "choices" },
    el("legend", {}, "Where are the classes known?"), byLabel.element, byTable.element);
  const fields = el("div", { class: "fields" }, labelField, bag.element, missing.element);
  return { elements: [ways, otherField, fields, used, below], refresh, asked };
}

const STATES = { waiting: ["idle", "waits"], running: ["busy", "is learning"], done: ["good", "done"] };

/** Show the progress of each compared method. */
function showMethods(root, job) {
  const said = job.messages.at(-1);
  const head = (words, kind) => el("th", { scope: "col", class: kind }, words);
  const table = () => el("table", { class: "methods" },
    el("caption", {}, "Mean error of a class's share in held-out bags, in percentage points."),
    el("thead", {}, el("tr", {}, head("Method"), head("State"), head("Error", "number"), head("Time", "number"))),
    el("tbody", {}, job.methods.map(methodRow)));
  const scroll = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Methods" };
  root.replaceChildren(
    job.methods.length ? el("div", scroll, table()) : "",
    said ? el("p", { class: "fine" }, said) : "");
}

function methodRow({ name, state, epoch, epochs, error, seconds }) {
  const [kind, words] = STATES[state];
  const far = state === "running" && epoch !== null ? `epoch ${epoch}${epochs ? ` of ${epochs}` : ""}` : "";
  return el("tr", { class: state },
    el("th", { scope: "row" }, name),
    el("td", {}, el("span", { class: `state ${kind}` }, words), " ", el("small", {}, far)),
    el("td", { class: "number" }, error === null ? "" : (100 * error).toFixed(2)),
    el("td", { class: "number" }, seconds === null ? "" : duration(seconds)));
}

function showModel(context, job) {
  const { model, command } = job.result;
  const estimating = `#/estimate?${new URLSearchParams({ model: model.name })}`;
  place(context,
    el("h1", {}, `${model.name} is learned`),
    el("p", { class: "lead" }, `It took ${duration(job.seconds)}. The model is kept on the server under this name.`),
    el("div", { class: "card" }, modelCard(model),
      el("p", { class: "actions" },
        el("a", { class: "button big", href: estimating }, "Estimate with it"),
        el("a", { class: "button quiet", href: "#/learn" }, "Learn another"))),
    el("section", {}, el("h2", {}, "The same with a command"), el("div", { class: "card" }, commandRow(command))));
  announce(`The model ${model.name} is learned.`);
}
