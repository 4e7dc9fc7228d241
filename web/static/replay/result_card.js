// Card of a result: its metrics with units and ranges, its scenario, its error; and the differences of two results.

import { element } from "./dom.js";
import { figure, quantity, unitText, words } from "./format.js";

/** Fields of a scenario that say nothing to a reader. */
const HIDDEN_FIELDS = ["index", "repeat", "name"];

/** Return the card of a task's result. `declared`: the dataset's metrics, with titles, units and ranges. */
export function resultCard(replay, declared) {
  const { result } = replay;
  const rows = metricNames([result]).map((name) => {
    const metric = metricOf(declared, name);
    const value = result.metrics[name];
    return element(
      "tr",
      {},
      titleCell(metric),
      element("td", { class: "replay-number" }, valueText(value, metric)),
      element("td", {}, rangeBar(value, metric)),
    );
  });
  const card = element("div", { class: "replay-result" });
  if (result.error) card.append(element("p", { class: "replay-error" }, String(result.error)));
  card.append(rows.length > 0 ? tableOf(["Metric", "Value", "Range"], rows) : element("p", {}, "No metrics."));
  card.append(scenarioLine(result));
  return card;
}

/** Return a table of the metrics of two results and the first less the second, good or bad where that is known. */
export function differenceTable(replays, labels, declared) {
  const results = replays.map((replay) => replay.result);
  const rows = metricNames(results).map((name) => {
    const metric = metricOf(declared, name);
    const values = results.map((result) => result.metrics[name]);
    const cells = values.map((value) => element("td", { class: "replay-number" }, valueText(value, metric)));
    return element("tr", {}, titleCell(metric), ...cells, differenceCell(values, metric));
  });
  return tableOf(["Metric", ...labels, `${labels[0]} less ${labels[1]}`], rows);
}

function tableOf(headings, rows) {
  const head = headings.map((heading, number) =>
    element("th", { scope: "col", class: number > 0 && heading !== "Range" ? "replay-number" : null }, heading),
  );
  return element(
    "div",
    { class: "replay-table", role: "region", "aria-label": "Metrics", tabindex: 0 },
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)),
  );
}

function metricNames(results) {
  const names = results.flatMap((result) => Object.keys(result?.metrics ?? {}));
  return [...new Set(names)].filter((name) => results.some((result) => (result.metrics[name] ?? null) !== null));
}

function metricOf(declared, name) {
  const metric = (declared ?? []).find((candidate) => candidate.name === name) ?? {};
  return { ...metric, name, title: metric.title || words(name), unit: unitText(metric.unit) };
}

function titleCell(metric) {
  return element("th", { scope: "row", title: metric.formula || null }, metric.title);
}

function valueText(value, metric) {
  if (isNever(value, metric)) return "never";
  if (typeof value === "number") return quantity(value, metric.unit);
  return value === null || value === undefined ? "–" : String(value);
}

/** Tell whether a value stands for "never", which is not a number of the metric. */
function isNever(value, metric) {
  return typeof value === "number" && value === metric.never;
}

/** Return a bar for a number between the ends of its metric's range, with these ends. */
function rangeBar(value, metric) {
  const { low, high } = metric;
  if (typeof value !== "number" || isNever(value, metric) || typeof low !== "number" || typeof high !== "number" || high <= low) return "";
  const fill = element("span", { class: "replay-fill" });
  fill.style.width = `${(Math.min(Math.max((value - low) / (high - low), 0), 1) * 100).toFixed(1)}%`;
  const ends = element("small", {}, `${figure(low)} to ${figure(high)}`);
  return element("div", { class: "replay-bar-cell" }, element("span", { class: "replay-bar" }, fill), ends);
}

function differenceCell([first, second], metric) {
  const cell = element("td", { class: "replay-number" });
  const areNumbers = [first, second].every((value) => typeof value === "number" && !isNever(value, metric));
  if (areNumbers) {
    const difference = first - second;
    const unit = metric.unit === "%" ? "points" : metric.unit; // a difference of percentages is not relative to either
    cell.textContent = difference === 0 ? "equal" : `${difference > 0 ? "+" : "−"}${quantity(Math.abs(difference), unit)}`;
    const direction = { higher: 1, lower: -1 }[metric.better] ?? 0;
    if (difference * direction !== 0) cell.classList.add(difference * direction > 0 ? "replay-better" : "replay-worse");
  } else {
    cell.textContent = first === second ? "equal" : "differs";
  }
  return cell;
}

function scenarioLine(result) {
  const fields = Object.entries(result.scenario ?? {})
    .filter(([name, value]) => !HIDDEN_FIELDS.includes(name) && isReadable(value))
    .map(([name, value]) => `${words(name).toLowerCase()} ${value}`);
  const duration = result.timing?.seconds;
  if (typeof duration === "number") fields.push(`computed in ${figure(duration)} s`);
  return element("p", { class: "replay-scenario" }, fields.join(" · "));
}

/** Tell whether a value can be shown as it is; an integer beyond 2^53, such as a seed, has lost its last digits. */
function isReadable(value) {
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value);
  return typeof value === "string" || typeof value === "boolean";
}
