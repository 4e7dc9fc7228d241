// A histogram of one metric: bars by uPlot for numbers, a table of bars for texts.

import { element } from "../replay/dom.js";
import { colours, number } from "./dom.js";

const HEIGHT = 120;

/** Draw the bins of a metric into a container; return the plot, which is to be destroyed with it. */
export function histogram(container, metric, width) {
  const ink = colours(container);
  const { edges, counts } = metric;
  const centres = counts.map((_, bin) => (edges[bin] + edges[bin + 1]) / 2);
  const axis = { stroke: ink.muted, grid: { show: false }, ticks: { stroke: ink.line, size: 4 }, font: "11px system-ui" };
  const options = {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [6, 10, 0, 4],
    scales: { x: { time: false, range: [edges[0], edges[edges.length - 1]] }, y: { range: (_, low, high) => [0, high || 1] } },
    axes: [
      { ...axis, size: 24, space: 45 },
      { ...axis, size: 38, space: 28, grid: { stroke: ink.line, width: 1 }, values: (_, ticks) => ticks.map(whole) },
    ],
    series: [
      {},
      { fill: ink.accent, stroke: ink.accent, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.92, 60] }) },
    ],
  };
  return new uPlot(options, [centres, counts], container);
}

function whole(value) {
  return Number.isInteger(value) ? value.toLocaleString("en", { notation: "compact" }) : "";
}

/** Return a table of bars: the number of tasks by text. */
export function valueBars(values, most = 12) {
  const rows = Object.entries(values).sort((a, b) => b[1] - a[1]);
  const total = rows.reduce((sum, [, count]) => sum + count, 0);
  const body = element("tbody");
  for (const [value, count] of rows.slice(0, most)) {
    body.append(
      element("tr", {},
        element("th", { scope: "row" }, value),
        element("td", {}, element("meter", { max: total, value: count, "aria-hidden": "true" })),
        element("td", { class: "numeric" }, number(count))),
    );
  }
  const table = element("table", { class: "bars" }, body);
  if (rows.length > most) table.append(element("caption", {}, `and ${rows.length - most} more`));
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
