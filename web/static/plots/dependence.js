// How a metric depends on parameters: means with intervals by value, a scatter of tasks, or a heat map of two parameters.

import { element } from "../replay/dom.js";
import { colours, drawn, number } from "./dom.js";

const ROW = 26; // pixels of a row of the interval plot
const SCATTER = 320; // pixels

/** Return a table with a row for each group: count, mean, and its 95 % interval drawn on a common axis. */
export function intervals(groups, name, unit) {
  const known = groups.filter((group) => group.mean != null);
  const ends = known.flatMap((group) => [group.low ?? group.mean, group.high ?? group.mean]);
  const low = Math.min(...ends);
  const high = Math.max(...ends);
  const span = high - low || 1;
  const place = (value) => 2 + (96 * (value - low)) / span;
  const body = element("tbody");
  for (const group of groups) {
    const row = element("tr", {}, element("th", { scope: "row" }, label(group)), element("td", { class: "numeric" }, number(group.count)));
    if (group.mean == null) {
      row.append(element("td", { class: "numeric" }, "–"), element("td"), element("td"));
    } else {
      const picture = drawn("svg", { viewBox: `0 0 100 ${ROW / 2}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "interval" },
        ...(group.low == null ? [] : [drawn("line", { x1: place(group.low), x2: place(group.high), y1: ROW / 4, y2: ROW / 4, "vector-effect": "non-scaling-stroke" })]),
        drawn("line", { x1: place(group.mean), x2: place(group.mean), y1: 1, y2: ROW / 2 - 1, class: "mean", "vector-effect": "non-scaling-stroke" }));
      row.append(
        element("td", { class: "numeric" }, number(group.mean)),
        element("td", { class: "numeric muted" }, group.low == null ? "–" : `${number(group.low)} to ${number(group.high)}`),
        element("td", { class: "plot" }, picture));
    }
    body.append(row);
  }
  const heads = [name, "Tasks", `Mean${unit ? ` (${unit})` : ""}`, "95 % interval", ""];
  const head = heads.map((text, column) => element(text ? "th" : "td", text ? { scope: "col", class: column ? "numeric" : null } : {}, text));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), body);
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
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
}

/** Draw tasks as points; `open` is called with the task that is clicked. */
export function scatter(container, points, title, parameter, open) {
  const ink = colours(container);
  const sorted = [...points].sort((a, b) => a.x - b.x);
  const axis = { stroke: ink.muted, grid: { stroke: ink.line, width: 1 }, ticks: { stroke: ink.line }, font: "12px system-ui", labelFont: "12px system-ui" };
  const plot = new uPlot(
    {
      width: container.clientWidth || 600,
      height: SCATTER,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, focus: { prox: 12 } },
      scales: { x: { time: false, range: padded }, y: { range: padded } },
      axes: [{ ...axis, label: parameter, labelSize: 22 }, { ...axis, label: title, size: 60, labelSize: 22 }],
      series: [{}, { stroke: ink.accent, paths: () => null, points: { show: true, size: 6, fill: ink.accent, width: 0 } }],
    },
    [sorted.map((point) => point.x), sorted.map((point) => point.y)],
    container,
  );
  plot.over.addEventListener("click", () => {
    const index = nearest(plot, sorted);
    if (index != null) open(sorted[index].task);
  });
  plot.over.addEventListener("mousemove", () => plot.over.classList.toggle("over-point", nearest(plot, sorted) != null));
  return plot;
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

/** Return a table of two parameters: the mean of each cell, with a colour from the least to the largest. */
export function heatMap(answer) {
  const [down, across] = answer.parameters;
  const labels = (parameter) =>
    parameter.values ?? parameter.edges.slice(1).map((edge, bin) => `${number(parameter.edges[bin])} to ${number(edge)}`);
  const means = answer.means.flat().filter((mean) => mean != null);
  const low = Math.min(...means);
  const span = Math.max(...means) - low || 1;
  const head = element("tr", {}, element("th", { scope: "col" }, `${down.name} \\ ${across.name}`),
    ...labels(across).map((text) => element("th", { scope: "col", class: "numeric" }, String(text))));
  const body = element("tbody");
  labels(down).forEach((text, row) => {
    const cells = answer.means[row].map((mean, column) => {
      const count = answer.counts[row][column];
      const cell = element("td", { class: "numeric cell", title: `${number(count)} tasks` }, number(mean));
      if (mean != null) cell.style.background = shade((mean - low) / span);
      return cell;
    });
    body.append(element("tr", {}, element("th", { scope: "row" }, String(text)), ...cells));
  });
  return element("table", { class: "heat" }, element("thead", {}, head), body);
}

/** Return a background for a share of 1 on which the text stays legible in both schemes. */
function shade(share) {
  return `color-mix(in srgb, var(--accent) ${Math.round(4 + 30 * share)}%, var(--panel))`;
}
