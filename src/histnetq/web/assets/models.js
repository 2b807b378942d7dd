// Models: cards to choose from, and the details of one model.

import { el, newId } from "./dom.js";
import { count, listed, many, percent } from "./format.js";

const MOST_CLASSES = 12;

/** Return cards to choose one model. */
export function modelChoice(models, chosen, onchange) {
  const name = newId("model");
  const cards = models.map((model) => {
    const input = el("input", {
      type: "radio", name, value: model.name, checked: model.name === chosen, onchange: () => onchange(model),
    });
    const error = model.errors && `error ${(100 * model.errors.ae).toFixed(1)} points`;
    const facts = [model.method, many(model.classes.length, "class"), error];
    return el("label", { class: "choice" }, input,
      el("span", {}, el("b", {}, model.name), el("small", {}, facts.filter(Boolean).join(" · "))));
  });
  return el("fieldset", { class: "choices" }, el("legend", { class: "unseen" }, "Model"), cards);
}

/** Return the details of a model: its training data, expected columns and errors. */
export function modelCard(model) {
  const rows = [];
  const add = (term, ...what) => rows.push(el("dt", {}, term), el("dd", {}, what));
  add("Learned from", sourceOf(model.learned_from));
  add("Classes", classBars(model));
  const names = (model.columns ?? []).map((column) => column.name);
  add("Expected columns", names.length ? listed(names, 10) : "The model has no column names.");
  add("Intervals", model.intervals.calibrated
    ? `Calibrated ${model.intervals.words || `by ${many(model.intervals.bags, "bag")}`}.`
    : "The model is not calibrated: Pretrained has intervals of its posterior, further methods with a classifier have Bayesian ones, networks have none, and trust is unchecked.");
  const left = Object.entries(model.left_out ?? {}).map(([name, why]) => `${name} (${why})`);
  if (left.length) add("Left out", `${listed(left, 10)}.`);
  if (model.why) add("Why this method", model.why);
  if (model.warning) add("Warning", el("p", { class: "notice warn" }, model.warning));
  return el("div", { class: "model-card" },
    el("h3", {}, model.name, " ", el("span", { class: "method" }, model.method)),
    el("div", { class: "model-facts" },
      el("dl", { class: "facts" }, rows), model.errors ? errorTable(model.errors) : null));
}

function sourceOf(known) {
  const { sources, bags, rows, date } = known ?? {};
  const amount = [bags > 1 && many(bags, "bag"), rows && many(rows, "row")].filter(Boolean).join(" of ");
  const parts = [amount, sources?.length && `from ${listed(sources, 3)}`, date && `on ${date}`];
  const text = parts.filter(Boolean).join(" ");
  return text ? `${text}.` : "Unknown: the model does not say.";
}

function classBars(model) {
  const shown = model.classes.slice(0, MOST_CLASSES);
  const more = model.classes.length - shown.length;
  return [
    el("ul", { class: "classes" }, shown.map((name, j) => el("li", {},
      el("span", {}, String(name)), el("span", { class: "fine" }, percent(model.train_prevalences[j])),
      el("i", { "--share": `${100 * model.train_prevalences[j]}%`, "aria-hidden": "true" })))),
    el("small", {}, `${more > 0 ? `And ${count(more)} more. ` : ""}Shares are from the training data.`),
  ];
}

/** Return a table of the mean errors of the compared methods, the best first. */
function errorTable({ bags, methods }) {
  const pairs = Object.entries(methods).sort((a, b) => a[1] - b[1]);
  return el("table", { class: "errors" },
    el("caption", {}, `Mean error of a share in ${many(bags, "held-out bag")}, in percentage points.`),
    el("thead", {}, el("tr", {},
      el("th", { scope: "col" }, "Method"), el("th", { scope: "col", class: "number" }, "Error"))),
    el("tbody", {}, pairs.map(([name, error]) => el("tr", {},
      el("th", { scope: "row" }, name),
      el("td", { class: "number" }, el("data", { value: error }, (100 * error).toFixed(2)))))));
}
