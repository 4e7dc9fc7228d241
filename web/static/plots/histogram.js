// Distribution of one metric: a histogram by uPlot for numbers, a table of bars for texts and for 0 and 1.

import { element } from "../replay/dom.js";
import { axis, colours, number, percent, rule } from "./dom.js";

const HEIGHT = 150;

/** Draw the bins of a metric into a container; `label`: of its axis. Return the plot, which is destroyed with it. */
export function histogram(container, metric, label, width) {
  const ink = colours(container);
  const { edges, counts } = metric;
  const centres = counts.map((_, bin) => (edges[bin] + edges[bin + 1]) / 2);
  const small = { font: "11px system-ui", labelFont: "11px system-ui", labelSize: 15 };
  const hasBothSigns = metric.min < 0 && metric.max > 0;
  const options = {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [6, 10, 0, 0],
    scales: { x: { time: false, range: [edges[0], edges[edges.length - 1]] }, y: { range: (_, low, high) => [0, high || 1] } },
    axes: [
      axis(ink, label, { ...small, grid: { show: false }, size: 22, space: 45 }),
      axis(ink, "tasks", { ...small, size: 34, space: 28, values: (_, ticks) => ticks.map(whole) }),
    ],
    series: [
      {},
      { fill: ink.accent, stroke: ink.accent, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.92, 60] }) },
    ],
    hooks: { draw: [...(hasBothSigns ? [rule("x", 0, ink.muted, ink.panel)] : []), rule("x", metric.mean, ink.fg, ink.panel)] },
  };
  return new uPlot(options, [centres, counts], container);
}

function whole(value) {
  return Number.isInteger(value) ? value.toLocaleString("en", { notation: "compact" }) : "";
}

/** Tell whether all values of a metric are 0 or 1: the API then has a bin for each. */
export function isBinary({ edges }) {
  return edges?.length === 3 && edges[0] === -0.5 && edges[2] === 1.5;
}

/** Return a table of bars with the number of tasks, and its share, of each row: a text and a count. */
export function bars(rows, most = 12) {
  const total = rows.reduce((sum, [, count]) => sum + count, 0);
  const body = element("tbody");
  for (const [text, count] of rows.slice(0, most)) {
    body.append(
      element("tr", {},
        element("th", { scope: "row" }, text),
        element("td", {}, element("meter", { max: total || 1, value: count, "aria-hidden": "true" })),
        element("td", { class: "numeric" }, number(count)),
        element("td", { class: "numeric" }, percent(count / (total || 1)))),
    );
  }
  const heads = ["Value", "", "Tasks", "Share"].map((text) =>
    element(text ? "th" : "td", text ? { scope: "col", class: text === "Value" ? null : "numeric" } : {}, text));
  const table = element("table", { class: "bars" }, element("thead", {}, element("tr", {}, ...heads)), body);
  if (rows.length > most) table.prepend(element("caption", {}, `${most} of ${rows.length} values`));
  return table;
}

/** Describe a histogram in words, for those who do not see it. */
export function described(title, metric) {
  const fullest = metric.counts.indexOf(Math.max(...metric.counts));
  return (
    `Histogram of ${title}: ${number(metric.count)} tasks from ${number(metric.min)} to ${number(metric.max)}, ` +
    `mean ${number(metric.mean)}; most lie between ${number(metric.edges[fullest])} and ${number(metric.edges[fullest + 1])}.`
  );
}
