// How a metric depends on parameters: means with intervals by value, a scatter of tasks, or a heat map of two parameters.

import { element } from "../replay/dom.js";
import { axis, colours, drawn, legendEntry, number, rule, withUnit } from "./dom.js";
import { scaleOf } from "./scale.js";

const SCATTER = 320; // pixels

/** Return a table with a row for each group: count, mean, and its 95 % interval on the scale that the head says. */
export function intervals(groups, name, unit) {
  const known = groups.filter((group) => group.mean != null);
  const scale = scaleOf(known.length ? known.flatMap((group) => [group.low ?? group.mean, group.high ?? group.mean]) : [0, 1]);
  const body = element("tbody");
  for (const group of groups) {
    const row = element("tr", {}, element("th", { scope: "row" }, label(group)), element("td", { class: "numeric" }, number(group.count)));
    if (group.mean == null) {
      row.append(element("td", { class: "numeric" }, "–"), element("td"), element("td"));
    } else {
      row.append(
        element("td", { class: "numeric" }, number(group.mean)),
        element("td", { class: "numeric muted" }, group.low == null ? "–" : `${number(group.low)} to ${number(group.high)}`),
        element("td", { class: "plot" }, interval(group, scale)));
    }
    body.append(row);
  }
  const texts = labelled(scale);
  const heads = [name, "Tasks", withUnit("Mean", unit), "95 % interval"].map((text, column) =>
    element("th", { scope: "col", class: column ? "numeric" : null }, text));
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads, element("td", { class: "plot" }, texts))), body);
}

/** Return the ends of a scale, and 0 between them, at their places. */
function labelled({ labels, place }) {
  const anchor = (at) => (at === 0 ? "start" : at === labels.length - 1 ? "end" : "middle");
  const texts = labels.map((value, at) => drawn("text", { x: `${place(value)}%`, y: "75%", "text-anchor": anchor(at) }, number(value)));
  return drawn("svg", { class: "scale", "aria-hidden": "true" }, ...texts);
}

/** Return a picture of an interval and its mean, with a line at 0 if the scale has both sides of it. */
function interval({ low, mean, high }, { place, ...scale }) {
  const upright = (value, top, bottom, name) =>
    drawn("line", { x1: `${place(value)}%`, x2: `${place(value)}%`, y1: top, y2: bottom, class: name });
  return drawn("svg", { class: "interval", "aria-hidden": "true" },
    ...(scale.low < 0 && scale.high > 0 ? [upright(0, "0", "100%", "zero")] : []),
    ...(low == null ? [] : [drawn("line", { x1: `${place(low)}%`, x2: `${place(high)}%`, y1: "50%", y2: "50%" })]),
    upright(mean, "10%", "90%", "mean"));
}

/** Return the text of a group: its value, or the bounds of its bin. */
export function label(group) {
  if (group.from != null || group.to != null) return `${number(group.from)} to ${number(group.to)}`;
  return group.value == null ? "(none)" : typeof group.value === "number" ? number(group.value) : String(group.value);
}

/** Return a table with the number of tasks by text for each group. */
export function counts(groups, name) {
  const values = [...new Set(groups.flatMap((group) => Object.keys(group.values)))];
  const body = element("tbody");
  for (const group of groups) {
    const cells = values.map((value) => {
      const share = (group.values[value] ?? 0) / (group.count || 1);
      const cell = element("td", { class: "numeric" }, number(group.values[value] ?? 0));
      cell.style.background = shade(share);
      return cell;
    });
    body.append(element("tr", {}, element("th", { scope: "row" }, label(group)), ...cells));
  }
  const heads = [name, ...values].map((text, column) => element("th", { scope: "col", class: column ? "numeric" : null }, text));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  table.prepend(element("caption", { class: "small" }, "Number of tasks; the stronger the shade, the larger its share of the row"));
  return table;
}

/** Draw tasks as points, those that are not ok in another colour; `open` is called with the task that is clicked. */
export function scatter(container, points, title, parameter, open) {
  const ink = colours(container);
  const sorted = [...points].sort((a, b) => a.x - b.x);
  const dots = (colour) => ({ stroke: colour, paths: () => null, points: { show: true, size: 6, fill: colour, width: 0 } });
  const zero = (name) => {
    const values = sorted.map((point) => point[name]);
    return Math.min(...values) < 0 && Math.max(...values) > 0 ? [rule(name, 0, ink.muted)] : [];
  };
  const plot = new uPlot(
    {
      width: container.clientWidth || 600,
      height: SCATTER,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, focus: { prox: 12 } },
      scales: { x: { time: false, range: padded }, y: { range: padded } },
      axes: [axis(ink, parameter, { size: 30 }), axis(ink, title, { size: 60 })],
      series: [{}, dots(ink.accent), dots(ink.bad)],
      hooks: { drawAxes: [...zero("x"), ...zero("y")] },
    },
    [sorted.map((point) => point.x), ...[true, false].map((ok) => sorted.map((point) => (point.isOk === ok ? point.y : null)))],
    container,
  );
  plot.over.addEventListener("click", () => {
    const index = nearest(plot, sorted);
    if (index != null) open(sorted[index].task);
  });
  plot.over.addEventListener("mousemove", () => plot.over.classList.toggle("over-point", nearest(plot, sorted) != null));
  return plot;
}

/** Return the legend of a scatter: what the colours are, and how many points have each. */
export function scatterLegend(points) {
  const notOk = points.filter(({ isOk }) => !isOk).length;
  return element("ul", { class: "legend small muted" },
    legendEntry("dot", `${number(points.length - notOk)} tasks that are ok`, "var(--accent)"),
    ...(notOk ? [legendEntry("dot", `${number(notOk)} that are not ok, at the worst value`, "var(--bad)")] : []),
    element("li", {}, "A point leads to its task."));
}

function padded(_, low, high) {
  if (low == null) return [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.04;
  return [low - margin, high + margin];
}

/** Return the point within ten pixels of the cursor, or null. */
function nearest(plot, points) {
  const { left, top } = plot.cursor;
  let best = null;
  let least = 10;
  points.forEach((point, index) => {
    const distance = Math.hypot(plot.valToPos(point.x, "x") - left, plot.valToPos(point.y, "y") - top);
    if (distance < least) [best, least] = [index, distance];
  });
  return best;
}

/** Return a table of two parameters: the mean of `title` in each cell, with a colour from the least to the largest. */
export function heatMap(answer, title) {
  const [down, across] = answer.parameters;
  const labels = (parameter) =>
    parameter.values ?? parameter.edges.slice(1).map((edge, bin) => `${number(parameter.edges[bin])} to ${number(edge)}`);
  const means = answer.means.flat().filter((mean) => mean != null);
  const low = Math.min(...means);
  const high = Math.max(...means);
  const head = element("tr", {}, element("th", { scope: "col" }, `${down.name} \\ ${across.name}`),
    ...labels(across).map((text) => element("th", { scope: "col", class: "numeric" }, String(text))));
  const body = element("tbody");
  labels(down).forEach((text, row) => {
    const cells = answer.means[row].map((mean, column) => {
      const count = answer.counts[row][column];
      const cell = element("td", { class: "numeric cell", title: `${number(count)} tasks` }, number(mean));
      if (mean != null) cell.style.background = shade((mean - low) / (high - low || 1));
      return cell;
    });
    body.append(element("tr", {}, element("th", { scope: "row" }, String(text)), ...cells));
  });
  const legend = element("ul", { class: "legend" }, element("li", {}, `Mean of ${title}, ${number(answer.counts.flat().reduce((sum, count) => sum + count, 0))} tasks`),
    ...(means.length ? [legendEntry("cell", `least: ${number(low)}`, shade(0)), legendEntry("cell", `most: ${number(high)}`, shade(1))] : []));
  return element("table", { class: "heat" }, element("caption", { class: "small" }, legend), element("thead", {}, head), body);
}

/** Return a background for a share of 1 on which the text stays legible in both schemes. */
function shade(share) {
  return `color-mix(in srgb, var(--accent) ${Math.round(4 + 30 * share)}%, var(--panel))`;
}
