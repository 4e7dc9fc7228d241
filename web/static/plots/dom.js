// What plots are made of: elements of SVG, numbers, axes, legends, and the colours of the style sheet.

import { projectHeaders } from "../project.js";
import { element } from "../replay/dom.js";

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

/** Format a share of 1 in percent; what is not quite nothing or all is not shown as nothing or all. */
export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  if (share > 0.999 && share < 1) return "> 99.9 %";
  return `${Number((100 * share).toPrecision(3))} %`;
}

/** Return the name of a quantity with its unit, as an axis and a head have it. */
export function withUnit(title, unit) {
  return unit ? `${title} (${unit})` : title;
}

/** Return an entry of a legend: a sign, drawn by the class of the style sheet or in a colour, and what it means. */
export function legendEntry(sign, text, colour) {
  const key = element("span", { class: `key ${sign}` });
  if (colour) key.style.background = colour;
  return element("li", {}, key, ` ${text}`);
}

/** Return a labelled axis of uPlot in the colours of the style sheet. */
export function axis(ink, label, options = {}) {
  const font = "12px system-ui";
  return { label, stroke: ink.muted, grid: { stroke: ink.line, width: 1 }, ticks: { stroke: ink.line, size: 4 }, font, labelFont: font, labelSize: 22, ...options };
}

/**
 * Return a hook of uPlot that draws a line across the plot at a value of a scale; `between`: colour of its gaps.
 *
 * A line of two colours is seen on bars and beside them; an edge around it would hide a narrow bar.
 */
export function rule(scale, value, colour, between) {
  return (plot) => {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const at = Math.round(plot.valToPos(value, scale, true));
    const path = new Path2D(scale === "x" ? `M${at} ${top}v${height}` : `M${left} ${at}h${width}`);
    const pixel = Math.max(1, Math.round(devicePixelRatio));
    ctx.save();
    ctx.lineWidth = 2 * pixel;
    for (const [stroke, dashes] of [[between, []], [colour, between ? [5, 3] : []]]) {
      if (!stroke) continue;
      ctx.strokeStyle = stroke;
      ctx.setLineDash(dashes.map((length) => length * pixel));
      ctx.stroke(path);
    }
    ctx.restore();
  };
}

/** Return the colours of the style sheet at an element; they are registered as colours, so a canvas understands them. */
export function colours(within) {
  const style = getComputedStyle(within);
  const names = ["fg", "muted", "line", "accent", "bad", "panel"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

/** Fetch a JSON document of the API; raise an Error with the problem's detail. */
export async function load(address, signal) {
  const answer = await fetch(address, { headers: { Accept: "application/json", ...projectHeaders }, signal });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.detail ?? `The server answered ${answer.status}.`);
  return document;
}
