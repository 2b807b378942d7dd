// The view "Estimate": choose a model, a table and its columns, then see the mix of the classes in each bag.

import * as api from "./api.js";
import { clearAlert, el, field, place, select } from "./dom.js";
import { count, listed, many } from "./format.js";
import { follow, showEnd } from "./job.js";
import { modelCard, modelChoice } from "./models.js";
import { showResult } from "./result.js";
import { bagField, missingField, preview, step, tableField } from "./upload.js";

const PERIODS = [
  ["min", "Minutes"], ["h", "Hours"], ["D", "Days"], ["W", "Weeks"], ["M", "Months"], ["Q", "Quarters"], ["Y", "Years"],
];

export async function showEstimate(context) {
  if (!context.job) return drawForm(context);
  const subtitle = (job) => `${job.asked.table_name}, by the model ${job.asked.model}.`;
  const job = await follow(context, "Estimating", { subtitle });
  if (!job) return null;
  const again = `#/estimate?${new URLSearchParams({ model: job.asked.model, table: job.asked.table })}`;
  return job.state === "done" ? showResult(context, job, again) : showEnd(context, job, again);
}

async function drawForm(context) {
  const { query, report } = context;
  const { models, limits } = await api.models();
  const usable = models.filter((model) => !model.problem);
  const title = [
    el("h1", {}, "How common is each class?"),
    el("p", { class: "lead" }, "Drop a table of rows, and see the mix of the classes in each of its bags."),
    ...models.filter((model) => model.problem).map((model) => el("p", { class: "notice warn" }, model.problem)),
  ];
  if (!usable.length) return place(context, ...title, noModel());
  const named = usable.find((model) => model.name === query.get("model"));
  const chosen = { model: named ?? usable[0], table: null, columns: null };
  const about = el("div", { class: "about" });
  const columns = el("div");
  const third = step(3, "Columns", columns);
  const button = el("button", { class: "button big" }, "Estimate");
  const actions = el("div", { class: "actions" }, button);
  const file = tableField({
    title: "Choose a CSV or Parquet file", limits, report,
    hint: "One row per example, and a column that says which bag it belongs to.",
    arrived: (table) => {
      chosen.table = table;
      chosen.columns = table && columnFields(table, () => chosen.model);
      columns.replaceChildren(...(table ? chosen.columns.elements : []));
      update();
    },
  });
  const choose = modelChoice(usable, chosen.model.name, (model) => { chosen.model = model; update(); });
  const form = el("form", {}, step(1, "Model", choose, about), step(2, "Table", file.element), third, actions);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearAlert();
    button.disabled = true;
    try {
      const asked = { kind: "estimate", model: chosen.model.name, table: chosen.table.id, ...chosen.columns.asked() };
      location.hash = `#/estimate/${encodeURIComponent((await api.start(asked)).id)}`;
    } catch (error) {
      report(error);
    }
    button.disabled = false;
  });

  function update() {
    about.replaceChildren(modelCard(chosen.model));
    third.hidden = actions.hidden = !chosen.table;
    chosen.columns?.refresh();
    const kept = { model: chosen.model.name, ...(chosen.table ? { table: chosen.table.id } : {}) };
    history.replaceState(null, "", `#/estimate?${new URLSearchParams(kept)}`);
  }

  const known = query.get("table");
  update();
  place(context, ...title, form);
  return known && file.give(known);
}

const noModel = () => el("div", { class: "card empty" },
  el("h2", {}, "No model yet"),
  el("p", {}, "A model learns the classes from a table where they are known. Learn a model first, then come back "
    + "with a table where they are unknown."),
  el("p", {}, el("a", { class: "button", href: "#/learn" }, "Learn a model")));

/** Return fields for the columns of a table; `refresh` redraws the preview, but not the fields. */
function columnFields(table, modelOf) {
  const names = table.columns.map((column) => column.name);
  const below = el("div");
  const bag = bagField(table, "All rows are one bag", refresh);
  const time = select([["", "None"], ...names.map((name) => [name, name])], table.guess.time ?? "", refresh);
  const period = select(PERIODS, table.guess.period ?? "W", () => {});
  const reference = el("input", {
    type: "text", placeholder: "2026-01..2026-06", spellcheck: "false", autocomplete: "off",
  });
  const missing = missingField();
  const segment = select([["", "None"], ...names.map((name) => [name, name])], "", refresh);
  const timed = [
    field("Period", period, "The mix is estimated in each period."),
    field("Reference", reference, "Periods are compared with these times, from..to; empty for the first half."),
    field("Segment column", segment, "If chosen, each of its values is monitored separately."),
  ];
  const fields = el("div", { class: "fields" }, bag.element,
    field("Time column", time, "If chosen, the mix is also monitored over time."), timed, missing.element);

  function refresh() {
    const wanted = (modelOf().columns ?? []).map((column) => column.name);
    const lacking = wanted.filter((name) => !names.includes(name));
    for (const part of timed) part.hidden = !time.value;
    const roles = new Map(wanted.map((name) => [name, "used"]));
    if (time.value && segment.value) roles.set(segment.value, "segment");
    if (time.value) roles.set(time.value, "time");
    for (const name of bag.value()) roles.set(name, "bag");
    const note = lacking.length
      ? el("p", { class: "notice warn" }, `This table lacks ${many(lacking.length, "column")} that the model reads: `
        + `${listed(lacking)}. Choose another table or another model.`)
      : el("p", { class: "fine" }, `The model reads ${count(wanted.length)} of the ${count(names.length)} columns.`);
    below.replaceChildren(note, preview(table, roles));
  }

  const asked = () => ({
    bag: bag.value(), missing: missing.value(),
    ...(time.value ? {
      time: time.value, period: period.value, reference: reference.value.trim() || null,
      by: segment.value ? [segment.value] : [],
    } : {}),
  });
  return { elements: [fields, below], refresh, asked };
}
