// Elements are made here and nowhere else, and text reaches them as text nodes: no string is ever read as HTML.

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

/** Say something to readers of the screen, without moving the focus. */
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

/** Put a view in its place. The focus goes to its heading, unless the page has just been opened. */
export function place(context, ...children) {
  context.root.replaceChildren(...present(children));
  if (context.moveFocus) {
    const heading = context.root.querySelector("h1");
    heading.tabIndex = -1;
    heading.focus();
  }
  context.moveFocus = true;
}

/** A field with its label, and a sentence about it. */
export function field(label, input, hint = null) {
  input.id ||= newId("field");
  const note = hint && el("small", { id: `${input.id}-hint` }, hint);
  if (note) input.setAttribute("aria-describedby", note.id);
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input, note);
}

/** A list to choose from: pairs of a value and its words. */
export function select(pairs, chosen, onchange) {
  const input = el("select", { onchange: () => onchange(input.value) },
    pairs.map(([value, words]) => el("option", { value, selected: value === chosen }, words)));
  return input;
}
