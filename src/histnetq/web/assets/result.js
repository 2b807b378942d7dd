// The view of a result: plots, a table of bags, details of one bag, and downloads.

import * as api from "./api.js";
import { bagTable, intervalBar, stateTag } from "./bags.js";
import { announce, el, field, place, select } from "./dom.js";
import { count, many, percent, range, share } from "./format.js";
import { bagsOf, isDoubted, periodsOf, segmentsOf } from "./found.js";
import { COLORS, classPlot, colorOf, mixPlot, spread } from "./plots.js";

const MOST_PANELS = 12;
const REASONS = {
  unusual: "No mix of the known classes explains these rows, so the estimate is doubtful.",
  small: "There are fewer rows than in the calibration bags, so the interval may be too narrow.",
  "one row": "There is a single row.",
  "unseen values": "Some texts did not occur in the training data.",
  unchecked: "The model is not calibrated, so it cannot check whether these rows are familiar.",
  moved: "The mix differs from the reference.",
  "rows look different": "No mix of the known classes explains these rows, so the estimate is doubtful.",
};
const FILES = {
  "estimates.csv": ["Estimates as CSV", "One row per bag and class, as written by histnetq predict."],
  "report.html": ["Report as a page", "One HTML file with plots, which works offline."],
  "monitor.csv": ["Periods as CSV", "One row per period and class, with thresholds and alerts."],
  "monitor.html": ["Mix over time as a page", "One HTML file, as written by histnetq monitor."],
};

export function showResult(context, job, again) {
  const { result } = job;
  const bags = bagsOf(result);
  const ranks = rank(bags);
  const followed = result.monitoring && !result.monitoring.error;
  const periods = followed ? overTime(result, ranks) : null;
  place(context,
    el("h1", {}, headline(result, followed)),
    el("p", { class: "lead" }, `${result.table}, estimated by the model ${result.model} (${result.method}).`),
    result.monitoring?.error ? el("p", { class: "notice warn" }, result.monitoring.error) : null,
    job.messages.map((sentence) => el("p", { class: "notice warn" }, sentence)),
    tiles(result, bags), periods, part(bags, ranks, "Bags", result, !followed), downloads(context, job, again));
  announce(`${many(result.n_bags, "bag")} estimated.`);
}

function headline({ monitoring, n_bags: n }, followed) {
  if (followed) {
    const { n_alerts: moved, chunks } = monitoring;
    return moved ? `The mix has moved in ${many(moved, "period")}` : `No alert in ${many(chunks.length, "period")}`;
  }
  return n === 1 ? "The mix of one bag" : `The mix of ${count(n)} bags`;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function tiles(result, bags) {
  const tile = (name, value, note, kind) =>
    el("div", { class: kind }, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)));
  const means = bags.classes.map((_, j) => mean(bags.estimate.map((p) => p[j])));
  const most = means.indexOf(Math.max(...means));
  const rows = Math.round(bags.n.reduce((sum, n) => sum + n, 0));
  const shown = bags.names.length < result.n_bags ? `${count(bags.names.length)} are shown` : many(rows, "row");
  return el("dl", { class: "tiles" },
    tile("Bags", count(result.n_bags), shown),
    tile("Most common class", bags.classes[most], `${percent(means[most])} on average over the bags`),
    tile("Intervals", ...intervalWidth(result, bags)),
    tile("Bags with a warning", ...warnings(result, bags)));
}

function intervalWidth(result, bags) {
  if (!bags.lower) return ["none", "The model is not calibrated."];
  const width = mean(bags.lower.map((row, i) => mean(row.map((low, j) => bags.upper[i][j] - low))));
  return [`± ${share(width / 2)}`, `percentage points on average, at ${Math.round(100 * result.coverage)}\u00a0%`];
}

function warnings({ n_doubted: n }, bags) {
  if (bags.words.every((word) => word === "unchecked")) return ["unchecked", "The model is not calibrated."];
  if (n === 0) return ["0", "All bags are familiar to the model."];
  return [count(n), `${n === 1 ? "It is" : "They are"} unfamiliar to the model.`, "warn"];
}

/** Return the rank of each class: its order in the model, or by mean share if there are more classes than colours. */
function rank(found) {
  const order = found.classes.map((_, j) => j);
  if (order.length <= COLORS + 1) return order;
  const means = order.map((j) => mean(found.estimate.map((p) => p[j])));
  order.sort((a, b) => means[b] - means[a] || a - b);
  return order.map((_, j) => order.indexOf(j));
}

/** Return the mix over time. If there are several segments, the one with the most alerts is shown first. */
function overTime(result, ranks) {
  const segments = segmentsOf(result.monitoring.chunks);
  const draw = ({ name, chunks }) =>
    part(periodsOf(chunks, result.classes), ranks, name ? `Over time: ${name}` : "Over time", result, true);
  const worst = segments.reduce((most, own, i) => (own.moved > segments[most].moved ? i : most), 0);
  if (!result.monitoring.segments?.length) return draw(segments[0]);
  const option = ({ name, moved }, i) => [String(i), moved ? `${name}: ${many(moved, "alert")}` : name];
  const shown = el("div", {}, draw(segments[worst]));
  const choose = select(segments.map(option), String(worst), (i) => {
    shown.replaceChildren(draw(segments[i]));
    announce(`${segments[i].name} is shown.`);
  });
  const head = `Segment (${result.monitoring.segments.join(" / ")})`;
  return el("div", {}, el("div", { class: "card" }, field(head, choose, "Counts are periods with an alert.")), shown);
}

/** Return the table and the details of bags or periods, with plots if `drawn`. */
function part(found, ranks, title, result, drawn) {
  const colors = ranks.map(colorOf);
  const detail = detailSheet(found, colors);
  const table = bagTable(found, colors, (i, opener) => detail.open(i, table.order(), opener));
  const pick = (i) => detail.open(i, found.names.map((_, k) => k), null);
  const [shown, all] = [count(found.names.length), count(result.n_bags)];
  const cut = !found.timed && found.names.length < result.n_bags
    ? el("p", { class: "notice warn" }, `The table has ${shown} of the ${all} bags; the CSV file below has all.`) : null;
  return el("section", {},
    el("h2", {}, title), cut, drawn ? plots(found, ranks, pick) : null, table.element, detail.element);
}

function plots(found, ranks, pick) {
  const all = found.names.map((_, i) => i);
  const bags = spread(all);
  const label = (i) => found.names[i];
  const order = ranks.map((_, j) => j).sort((a, b) => ranks[a] - ranks[b]);
  const coloured = order.slice(0, order.length > COLORS + 1 ? COLORS : COLORS + 1);
  const others = order.slice(coloured.length);
  const classes = coloured.map((j) => [found.classes[j], colorOf(ranks[j]), (i) => found.estimate[i][j]]);
  if (others.length) {
    const rest = (i) => others.reduce((sum, j) => sum + found.estimate[i][j], 0);
    classes.push([`${count(others.length)} others`, colorOf(COLORS), rest]);
  }
  const some = bags.length < all.length
    ? `${count(bags.length)} of the ${count(all.length)} ${found.what}s are drawn, evenly spaced.` : null;
  const tops = [...(found.upper ?? found.estimate), ...(found.high ?? [])];
  const highest = tops.reduce((most, row) => Math.max(most, ...row), 0.05);
  const top = Math.min(1, 1.05 * highest);
  const at = (rows, j) => rows && ((i) => rows[i][j]);
  const follows = (a, b) => bags.length < all.length || found.end[a] === found.start[b];
  const panel = (j) => classPlot({
    name: found.classes[j], color: colorOf(ranks[j]), bags, top, pick, label, what: found.what,
    estimate: at(found.estimate, j), lower: at(found.lower, j), upper: at(found.upper, j),
    time: found.timed ? {
      low: at(found.low, j), high: at(found.high, j), reference: at(found.reference, j), alert: at(found.alert, j),
      held: (i) => found.held[i], follows,
    } : null,
  });
  const grid = el("div", { class: "panels" }, order.slice(0, MOST_PANELS).map(panel));
  const rest = order.slice(MOST_PANELS);
  const more = rest.length
    ? el("button", { type: "button", class: "button quiet" }, `Show ${many(rest.length, "more class")}`) : null;
  more?.addEventListener("click", () => { grid.append(...rest.map(panel)); more.remove(); });
  const key = found.timed
    ? "The band is the interval, the shaded part the reference with its mean dashed, thresholds are dotted, and "
      + "diamonds are alerts."
    : `A dot is the estimate of a bag${found.lower ? ", a line its interval" : ""}. All classes have the same scale.`;
  const mix = mixPlot({ bags, classes, label, pick, what: found.what, caption: some });
  return el("div", { class: "card" }, mix, grid, more, el("p", { class: "fine key" }, key));
}

/** Return a dialog about one bag or period, with buttons to the previous and the next one. */
function detailSheet(found, colors) {
  const title = el("h2", { id: `detail-${found.what}`, tabindex: "-1" });
  const body = el("div");
  let order = [];
  let at = 0;
  let opener = null;
  const step = (by, words, sign) => {
    const onclick = () => {
      at += by;
      draw();
      announce(title.textContent);
    };
    return el("button", { type: "button", class: "button quiet", "aria-label": words, onclick }, sign);
  };
  const [back, forth] = [step(-1, `The previous ${found.what}`, "←"), step(1, `The next ${found.what}`, "→")];
  const close = el("button", { type: "button", class: "button quiet", onclick: () => dialog.close() }, "Close");
  const dialog = el("dialog", { class: "sheet", "aria-labelledby": title.id }, el("div", { class: "sheet-inner" },
    el("div", { class: "sheet-head" }, title, el("div", { class: "buttons" }, back, forth, close)), body));
  dialog.addEventListener("close", () => opener?.isConnected && opener.focus());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  function draw() {
    const i = order[at];
    title.textContent = found.names[i];
    back.disabled = at === 0;
    forth.disabled = at === order.length - 1;
    const reasons = Object.entries(REASONS).filter(([word]) => found.words[i].includes(word));
    body.replaceChildren(
      el("p", {}, many(found.n[i], "row"), " ", stateTag(found, i)),
      ...reasons.map(([, sentence]) => el("p", { class: isDoubted(found, i) ? "notice warn" : "fine" }, sentence)),
      detailTable(found, colors, i));
  }

  function open(i, shown, from) {
    [order, at, opener] = [shown, shown.indexOf(i), from];
    draw();
    dialog.showModal();
    title.focus();
  }

  return { element: dialog, open };
}

function detailTable(found, colors, i) {
  const heads = ["Class", "Share", found.lower && "Interval", found.reference && "Reference"].filter(Boolean);
  const classes = found.classes.map((_, j) => j).sort((a, b) => found.estimate[i][b] - found.estimate[i][a] || a - b);
  const row = (j) => {
    const ends = found.lower ? [found.lower[i][j], found.upper[i][j]] : [null, null];
    return el("tr", {},
      el("th", { scope: "row" },
        found.classes[j], found.alert?.[i][j] ? el("span", { class: "state bad" }, "alert") : null,
        intervalBar(found.estimate[i][j], ...ends, colors[j])),
      el("td", { class: "number" }, el("data", { value: found.estimate[i][j] }, share(found.estimate[i][j]))),
      found.lower ? el("td", { class: "number" }, range(...ends)) : null,
      found.reference ? el("td", { class: "number" }, share(found.reference[i][j])) : null);
  };
  return el("table", { class: "detail" },
    el("caption", {}, "Shares in percent."),
    el("thead", {}, el("tr", {}, heads.map((head, k) => el("th", { scope: "col", class: k ? "number" : null }, head)))),
    el("tbody", {}, classes.map(row)));
}

function downloads(context, job, again) {
  const commands = [job.result.command, job.result.monitoring?.command].filter(Boolean);
  const several = commands.length > 1;
  return el("section", {}, el("h2", {}, "Download"), el("div", { class: "card" },
    el("div", { class: "downloads" }, job.result.downloads.map((name) => download(context, job, name))),
    el("h3", {}, several ? "The same with commands" : "The same with a command"), commands.map(commandRow),
    el("p", { class: "actions" }, el("a", { class: "button quiet", href: again }, "Change model, table or columns"))));
}

function download(context, job, name) {
  const [words, note] = FILES[name] ?? [name, ""];
  const button = el("button", { type: "button", class: "download" }, el("b", {}, words), el("small", {}, note));
  button.addEventListener("click", async () => {
    button.disabled = true;
    announce(`${words} is being made.`);
    try {
      await api.save(job.id, name);
    } catch (error) {
      context.report(error);
    }
    button.disabled = false;
  });
  return button;
}

/** Return a command line with a button that copies it. */
export function commandRow(command) {
  const code = el("code", {}, command);
  const copy = el("button", { type: "button", class: "button quiet" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = "Copied";
      announce("The command is copied.");
    } catch { // pages without encryption may not use the clipboard
      getSelection().selectAllChildren(code);
      announce("The command is selected; copy it with the keyboard.");
    }
  });
  return el("div", { class: "command" }, el("pre", { tabindex: "0" }, code), copy);
}
