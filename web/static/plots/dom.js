// Elements of SVG, numbers and colours of plots.

/** Return an element of SVG. */
export function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Format a number with up to four significant digits. */
export function number(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

/** Return the colours of the style sheet at an element; they are registered as colours, so a canvas understands them. */
export function colours(within) {
  const style = getComputedStyle(within);
  const names = ["fg", "muted", "line", "accent", "bad", "panel"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

/** Fetch a JSON document of the API; raise an Error with the problem's detail. */
export async function load(address, signal) {
  const answer = await fetch(address, { headers: { Accept: "application/json" }, signal });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.detail ?? `The server answered ${answer.status}.`);
  return document;
}
