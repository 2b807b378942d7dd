// Plots as SVG, drawn to the available width. The table below them has the same numbers.

import { el, svg } from "./dom.js";
import { many, percent, range } from "./format.js";

export const COLORS = 6; // number of coloured classes; further classes are grey
const MOST_BAGS = 200; // in one plot
const LONGEST_NAME = 14; // letters of a name under an axis
const LETTER = 6.5; // pixels
const MARGIN = { left: 40, right: 14, top: 8, bottom: 24 };

export const colorOf = (rank) => `var(--c${rank < COLORS ? rank : 6})`;

/** Return at most `most` of the indices, evenly spaced. */
export function spread(indices, most = MOST_BAGS) {
  if (indices.length <= most) return indices;
  return Array.from({ length: most }, (_, i) => indices[Math.round((i * (indices.length - 1)) / (most - 1))]);
}

/** Return the ticks of an axis from 0 to about the top. */
function ticks(top) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].find((size) => top / size <= 4.5) ?? 0.5;
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** Return a figure that is redrawn when its width changes. */
function figure(title, mark, height, draw, caption) {
  const readout = el("span", { class: "readout" });
  const place = el("div", { class: "plot" });
  const box = el("figure", {}, el("figcaption", {}, mark, el("span", { class: "plot-name" }, title), readout), place,
    caption ? el("p", { class: "fine" }, caption) : null);
  let last = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width && width !== last) {
      last = width;
      place.replaceChildren(draw(width, height, (text) => { readout.textContent = text; }));
    }
  }).observe(place);
  return box;
}

function frame(width, height, top, label) {
  const x = (part) => MARGIN.left + part * (width - MARGIN.left - MARGIN.right);
  const y = (p) => height - MARGIN.bottom - (p / top) * (height - MARGIN.top - MARGIN.bottom);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const at of ticks(top)) {
    root.append(
      svg("line", { class: at === 0 ? "axis" : "grid", x1: x(0), x2: x(1), y1: y(at), y2: y(at) }),
      svg("text", { class: "tick", x: MARGIN.left - 6, y: y(at) + 4, "text-anchor": "end" },
        `${Math.round(100 * at)} %`));
  }
  return { root, x, y };
}

/** Add names below an axis: all of them, or every second, third and so on, as many as fit. */
function names(root, labels, x, width, height) {
  const last = labels.length - 1;
  const texts = labels.map((label) => (label.length > LONGEST_NAME ? `${label.slice(0, LONGEST_NAME - 1)}…` : label));
  const wide = LETTER * (Math.max(...texts.map((text) => text.length)) + 2);
  const step = Math.ceil((wide * labels.length) / (width - MARGIN.left - MARGIN.right));
  let free = 0; // where the next name may begin
  for (let i = 0; i <= last; i += step) {
    const long = LETTER * texts[i].length;
    const left = Math.max(0, Math.min(x(last ? i / last : 0.5) - long / 2, width - long));
    const spot = { class: "tick", x: left + long / 2, y: height - 7, "text-anchor": "middle" };
    if (left >= free) root.append(svg("text", spot, texts[i]));
    free = Math.max(free, left + long + LETTER);
  }
}

/** Show the values of the bag nearest to the pointer, and its details on a click. */
function pointing(root, x, height, n, width, showText, words, pick) {
  const guide = svg("line", { class: "guide", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
  root.append(guide);
  const nearest = (event) => {
    const part = (event.offsetX - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
    return Math.max(0, Math.min(n - 1, n === 1 ? 0 : Math.round(part * (n - 1))));
  };
  root.addEventListener("pointermove", (event) => {
    const i = nearest(event);
    const at = x(n === 1 ? 0.5 : i / (n - 1));
    guide.setAttribute("x1", at);
    guide.setAttribute("x2", at);
    guide.setAttribute("visibility", "visible");
    showText(words(i));
  });
  root.addEventListener("pointerleave", () => { guide.setAttribute("visibility", "hidden"); showText(""); });
  root.addEventListener("click", (event) => pick(nearest(event)));
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/**
 * Draw the share of one class: with `time` as a line with a band of intervals, else as dots with intervals.
 *
 * `bags` are indices of bags; `estimate`, `lower` and so on are functions that return the value of a bag.
 */
export function classPlot({ name, color, bags, top, label, what, estimate, lower, upper, time, pick }) {
  const n = bags.length;
  const at = (i) => (n === 1 ? 0.5 : i / (n - 1));
  const shares = bags.map(estimate);
  const nAlerts = time ? bags.filter(time.alert).length : 0;
  const ends = `from ${percent(Math.min(...shares))} to ${percent(Math.max(...shares))}`;
  const alerts = time ? `, with ${many(nAlerts, "alert")}` : "";
  const said = `The share of ${name} in ${many(n, what)} is ${ends}${alerts}.`;
  const words = (bag) => `${label(bag)}: ${percent(estimate(bag))}`
    + (lower ? ` (${range(lower(bag), upper(bag))})` : "") + (time?.alert(bag) ? ", alert" : "");
  const draw = (width, height, showText) => {
    const { root, x, y } = frame(width, height, top, said);
    const height0 = height - MARGIN.top - MARGIN.bottom;
    const points = (run, value) => run.map((i) => [x(at(i)), y(Math.max(0, Math.min(top, value(bags[i]))))]);
    const runs = [];
    bags.forEach((bag, i) => {
      if (i && time?.follows(bags[i - 1], bag)) runs.at(-1).push(i);
      else runs.push([i]);
    });
    if (time) {
      const held = bags.map((bag, i) => (time.held(bag) ? i : -1)).filter((i) => i >= 0);
      const half = n === 1 ? 0.5 : 0.5 / (n - 1);
      if (held.length) {
        const [from, to] = [x(Math.max(0, at(held[0]) - half)), x(Math.min(1, at(held.at(-1)) + half))];
        root.prepend(svg("rect", { class: "reference", x: from, y: MARGIN.top, width: to - from, height: height0 }));
      }
      for (const run of runs) {
        if (lower) {
          const around = [...points(run, upper), ...points(run, lower).reverse()];
          root.append(svg("path", { class: "band", fill: color, d: `${path(around)}Z` }));
        }
        for (const limit of [time.low, time.high].filter(Boolean)) {
          root.append(svg("path", { class: "threshold", d: path(points(run, limit)) }));
        }
        if (time.reference) root.append(svg("path", { class: "mean", d: path(points(run, time.reference)) }));
        root.append(svg("path", { class: "line", stroke: color, d: path(points(run, estimate)) }));
      }
    }
    const radius = n > 80 ? 2 : 3;
    bags.forEach((bag, i) => {
      const [[cx, cy]] = points([i], estimate);
      if (lower && !time) {
        const [[, low]] = points([i], lower);
        const [[, high]] = points([i], upper);
        root.append(svg("line", { class: "whisker", stroke: color, x1: cx, x2: cx, y1: low, y2: high }));
      }
      root.append(time?.alert(bag)
        ? svg("path", { class: "alert-mark", d: `M${cx} ${cy - 6}l6 6l-6 6l-6 -6Z` })
        : svg("circle", { cx, cy, r: radius, fill: color }));
    });
    names(root, bags.map(label), x, width, height);
    pointing(root, x, height, n, width, showText, (i) => words(bags[i]), (i) => pick(bags[i]));
    return root;
  };
  return figure(name, el("i", { class: "swatch", "--color": color }), 176, draw);
}

/** Draw the mix of each bag as a stacked column. `classes` are triples of name, colour and a function for the share. */
export function mixPlot({ bags, classes, label, pick, what, caption }) {
  const all = classes.map(([name]) => name).join(", ");
  const said = `The mix of ${all} in ${many(bags.length, what)}, as stacked columns.`;
  const draw = (width, height, showText) => {
    const { root, x, y } = frame(width, height, 1, said);
    const slot = (x(1) - x(0)) / bags.length;
    const wide = Math.max(1, Math.min(slot - (slot > 6 ? 2 : slot > 3 ? 1 : 0), 72));
    bags.forEach((bag, i) => {
      let below = 0;
      for (const [, color, share] of classes) {
        const p = share(bag);
        const left = x(0) + (i + 0.5) * slot - wide / 2;
        const tall = Math.max(0, y(below) - y(below + p));
        root.append(svg("rect", { x: left, y: y(below + p), width: wide, height: tall, fill: color }));
        below += p;
      }
    });
    const middle = (part) => x(0) + slot / 2 + part * (x(1) - x(0) - slot);
    names(root, bags.map(label), middle, width, height);
    const words = (i) => {
      const parts = classes.slice(0, 4).map(([name, , share]) => `${name} ${percent(share(bags[i]))}`);
      return `${label(bags[i])}: ${parts.join(", ")}`;
    };
    pointing(root, middle, height, bags.length, width, showText, words, (i) => pick(bags[i]));
    return root;
  };
  const entry = ([name, color]) => el("li", {}, el("i", { class: "swatch", "--color": color }), name);
  const legend = el("ul", { class: "legend" }, classes.map(entry));
  const box = figure("The mix", null, 230, draw, caption);
  box.querySelector(".plot").before(legend);
  return box;
}
