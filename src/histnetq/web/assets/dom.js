// Creation of all elements. Text is added as text nodes, so no string is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

const isThere = (child) => child !== null && child !== undefined && child !== false;
const present = (children) => children.flat(Infinity).filter(isThere);

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

let serial = 0;
export const newId = (name) => `${name}-${++serial}`;

/** Announce a text to screen readers, without moving the focus. */
export function announce(text) {
  document.getElementById("live").textContent = text;
}

/** Show a sentence as an alert until it is dismissed, or until `clearAlert`. */
export function showAlert(sentence) {
  const close = el("button", { type: "button", class: "plain", onclick: clearAlert }, "Dismiss");
  document.getElementById("alert").replaceChildren(el("div", { class: "notice bad" }, el("p", {}, sentence), close));
}

export function clearAlert() {
  document.getElementById("alert").replaceChildren();
}

/** Show a view. The focus moves to its heading, unless the page has just been opened. */
export function place(context, ...children) {
  context.root.replaceChildren(...present(children));
  if (context.moveFocus) {
    const heading = context.root.querySelector("h1");
    heading.tabIndex = -1;
    heading.focus();
  }
  context.moveFocus = true;
}

/** Return an input with its label and a hint. */
export function field(label, input, hint = null) {
  input.id ||= newId("field");
  const note = hint && el("small", { id: `${input.id}-hint` }, hint);
  if (note) input.setAttribute("aria-describedby", note.id);
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input, note);
}

/** Return a drop-down list from pairs of a value and its text. */
export function select(pairs, chosen, onchange) {
  const input = el("select", { onchange: () => onchange(input.value) },
    pairs.map(([value, words]) => el("option", { value, selected: value === chosen }, words)));
  return input;
}
