// Elements and icons of the page: made by script, without markup in strings and without inline styles.

const ICONS = {
  play: "M7 4.5v15l12.5-7.5z",
  pause: "M6 4.5h4v15H6zM14 4.5h4v15h-4z",
  stepBack: "M5 5h3v14H5zM19.5 5v14L9 12z",
  stepOn: "M16 5h3v14h-3zM4.5 5v14L15 12z",
  eventBack: "M4 5h2.5v14H4zM13.5 6v12L6.5 12zM21 6v12l-7-6z",
  eventOn: "M17.5 5H20v14h-2.5zM10.5 6v12l7-6zM3 6v12l7-6z",
  closer: "M10.5 5h3v5.5H19v3h-5.5V19h-3v-5.5H5v-3h5.5z",
  farther: "M5 10.5h14v3H5z",
  whole: "M4 4h6v2.5H6.5V10H4zM14 4h6v6h-2.5V6.5H14zM4 14h2.5v3.5H10V20H4zM17.5 14H20v6h-6v-2.5h3.5z",
  follow:
    "M10.7 2h2.6v3.1a7 7 0 0 1 5.6 5.6H22v2.6h-3.1a7 7 0 0 1-5.6 5.6V22h-2.6v-3.1a7 7 0 0 1-5.6-5.6H2v-2.6h3.1" +
    "a7 7 0 0 1 5.6-5.6zM12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM12 10a2 2 0 1 1 0 4 2 2 0 0 1 0-4z",
  screen: "M3 5h18v14H3zM5.5 7.5v9h13v-9z",
};
const SVG = "http://www.w3.org/2000/svg";

/** Return an element with attributes and children; texts are children, a false or null attribute is left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/** Return an icon; the button around it has the label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" })) {
    svg.setAttribute(key, value);
  }
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  path.setAttribute("fill-rule", "evenodd");
  svg.append(path);
  return svg;
}

/** Return a button with an icon; `keys` is the key that does the same. */
export function iconButton(name, label, onclick, keys = "") {
  const button = element(
    "button",
    { type: "button", class: "replay-button", "aria-label": label, "aria-keyshortcuts": keys || null },
    icon(name),
  );
  button.title = keys ? `${label} (${keyNames(keys)})` : label;
  button.addEventListener("click", onclick);
  return button;
}

/** Change icon and label of a button. */
export function changeButton(button, name, label, keys) {
  if (button.getAttribute("aria-label") === label) return;
  button.setAttribute("aria-label", label);
  button.title = `${label} (${keyNames(keys)})`;
  button.replaceChildren(icon(name));
}

/** Set a text only where it differs, so that an unchanged frame costs no layout. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function keyNames(keys) {
  return keys.replace("ArrowLeft", "←").replace("ArrowRight", "→").replace("Space", "space").replace("Plus", "+");
}
