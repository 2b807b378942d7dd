// The table of bags, which can be sorted by any column. Pages keep it fast with ten thousand bags.

import { announce, el, field } from "./dom.js";
import { isDoubted, nDoubted } from "./found.js";
import { count, many, range, share } from "./format.js";

const PER_PAGE = 50;
const FEW = 10; // up to this number of bags, there is no search field

/** Return the bar of an interval on a scale from 0 to 1, with a tick at the estimate. */
export function intervalBar(estimate, lower, upper, color) {
  const at = (p) => `${(100 * p).toFixed(2)}%`;
  const ends = lower === null ? {} : { "--from": at(lower), "--width": at(Math.max(upper - lower, 0.004)) };
  const kind = lower === null ? "bar alone" : "bar";
  return el("span", { class: kind, "aria-hidden": "true", "--at": at(estimate), "--color": color, ...ends });
}

/** Create the table; `found` holds the columns of the result, and `pick(i)` shows the details of a bag. */
export function bagTable(found, colors, pick) {
  const all = found.names.map((_, i) => i);
  let order = all;
  let page = 0;
  let sorted = { key: "bag", down: false };
  let wanted = "";
  let doubted = false;
  const columns = [
    { key: "bag", words: found.head, value: (i) => i },
    { key: "n", words: "rows", number: true, value: (i) => found.n[i] },
    ...found.classes.map((name, j) => (
      { key: `class-${j}`, words: name, number: true, value: (i) => found.estimate[i][j] })),
    { key: "says", words: found.says, value: (i) => (isDoubted(found, i) ? 0 : 1) },
  ];
  const body = el("tbody");
  const heads = columns.map((column) => el("th", { scope: "col", class: column.number ? "number" : null },
    el("button", { type: "button", onclick: () => sort(column) }, column.words)));
  const caption = el("caption", { class: "unseen" },
    `Estimated shares in ${many(found.names.length, found.what)}, in percent. Buttons in the head sort the table.`);
  const table = el("table", { class: "bags" }, caption, el("thead", {}, el("tr", {}, heads)), body);
  const position = el("span", { class: "fine" });
  const turn = (by, words, sign) => {
    const onclick = () => {
      page += by;
      draw();
      announce(position.textContent);
    };
    return el("button", { type: "button", class: "button quiet", "aria-label": words, onclick }, sign);
  };
  const [back, forth] = [turn(-1, `Earlier ${found.what}s`, "←"), turn(1, `Later ${found.what}s`, "→")];
  const pager = el("nav", { class: "pager", "aria-label": "Pages of the table" }, position, back, forth);
  const search = el("input", { type: "search", oninput: () => { wanted = search.value.toLowerCase(); arrange(); } });
  const only = el("input", { type: "checkbox", onchange: () => { doubted = only.checked; arrange(); } });
  const warned = nDoubted(found);
  const tools = el("div", { class: "tools" }, found.names.length > FEW ? field(`Find a ${found.what}`, search) : null,
    warned ? el("label", { class: "check" }, only, `Only those with a warning (${count(warned)})`) : null, pager);

  function sort(column) {
    sorted = { key: column.key, down: sorted.key === column.key ? !sorted.down : Boolean(column.number) };
    arrange();
    announce(`Sorted by ${column.words}, ${sorted.down ? "descending" : "ascending"}.`);
  }

  function arrange() {
    const column = columns.find(({ key }) => key === sorted.key);
    const sign = sorted.down ? -1 : 1;
    order = all.filter((i) => found.names[i].toLowerCase().includes(wanted) && (!doubted || isDoubted(found, i)));
    order.sort((a, b) => sign * (column.value(a) - column.value(b)) || a - b);
    page = 0;
    draw();
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(order.length / PER_PAGE));
    page = Math.max(0, Math.min(page, pages - 1));
    const first = page * PER_PAGE;
    const shown = order.slice(first, first + PER_PAGE);
    body.replaceChildren(...shown.map(row));
    heads.forEach((head, k) => {
      if (columns[k].key === sorted.key) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    position.textContent = order.length
      ? `${count(first + 1)}–${count(first + shown.length)} of ${many(order.length, found.what)}`
      : `No ${found.what} has this name.`;
    back.disabled = page === 0;
    forth.disabled = page === pages - 1;
    back.hidden = forth.hidden = pages === 1;
  }

  function row(i) {
    const cells = found.classes.map((name, j) => {
      const ends = found.lower && [found.lower[i][j], found.upper[i][j]];
      return el("td", { class: found.alert?.[i][j] ? "number alerted" : "number" },
        el("data", { value: found.estimate[i][j] }, share(found.estimate[i][j])),
        ends ? el("small", {}, range(...ends)) : null,
        found.alert?.[i][j] ? el("span", { class: "unseen" }, " alert") : null,
        intervalBar(found.estimate[i][j], ...(ends ?? [null, null]), colors[j]));
    });
    const button = el("button", { type: "button", class: "bag-name", "aria-haspopup": "dialog" }, found.names[i]);
    return el("tr", { class: isDoubted(found, i) ? "doubted" : null, onclick: () => pick(i, button) },
      el("th", { scope: "row" }, button), el("td", { class: "number" }, count(found.n[i])), cells,
      el("td", {}, stateTag(found, i)));
  }

  arrange();
  const label = `Table of ${found.what}s`;
  const scroll = el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label }, table);
  return { element: el("div", { class: "card flush" }, tools, scroll), order: () => order };
}

/** Return the trust of a bag or the verdict of a period as a coloured tag. */
export function stateTag(found, i) {
  const words = found.words[i];
  const idle = words === "unchecked" || words === "no reference";
  const kind = words === "moved" ? "bad" : isDoubted(found, i) ? "warn" : idle ? "idle" : "good";
  return el("span", { class: `state ${kind}` }, words);
}
