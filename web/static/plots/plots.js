// The elements <metric-plots> and <dependence-plot>: live plots of a simulation, from /distributions and /dependence.

import { inProject } from "../project.js";
import { element } from "../replay/dom.js";
import { load, number, withUnit } from "./dom.js";
import { counts, heatMap, intervals, scatter, scatterLegend } from "./dependence.js";
import { bars, described, histogram, isBinary } from "./histogram.js";

/** Metrics that are drawn until the reader asks for all. */
const SHOWN = 8;

/** An element that loads a document again when the page refreshes, until it is complete. */
class LiveElement extends HTMLElement {
  connectedCallback() {
    if (this.listening) return;
    this.listening = new AbortController();
    const again = () => this.complete || this.update();
    document.body.addEventListener("refresh", again, { signal: this.listening.signal });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.redraw(), { signal: this.listening.signal });
    this.begin();
  }

  disconnectedCallback() {
    this.listening?.abort();
    this.listening = null;
  }

  get address() {
    return `/v1/simulations/${this.getAttribute("simulation")}`;
  }

  /** Titles and units of metrics, by name. */
  get declared() {
    return JSON.parse(this.getAttribute("metrics"));
  }

  /** Load what is shown; what is asked for meanwhile is loaded afterwards, so that the last choice is shown. */
  async update() {
    this.asked = true;
    if (this.busy) return;
    this.busy = true;
    while (this.asked) {
      this.asked = false;
      try {
        await this.refresh();
        this.message("");
      } catch (error) {
        this.message(error.message);
      }
    }
    this.busy = false;
  }

  message(text) {
    if (this.note.textContent !== text) this.note.textContent = text;
  }
}

class MetricPlots extends LiveElement {
  begin() {
    this.note = element("p", { class: "small muted", role: "status" });
    this.cards = element("div", { class: "plots" });
    this.sample = element("p", { class: "small muted" });
    this.all = element("button", { type: "button", hidden: "" });
    this.all.addEventListener("click", () => {
      this.shown = Infinity;
      this.redraw();
    });
    this.plots = new Map();
    this.shown = SHOWN;
    this.replaceChildren(this.note, this.cards, this.all, this.sample);
    new ResizeObserver(() => this.redraw()).observe(this);
    this.update();
  }

  async refresh() {
    const answer = await load(`${this.address}/distributions`);
    this.complete = answer.complete;
    if (this.answer?.read === answer.read && this.answer.complete === answer.complete) return;
    this.answer = answer;
    this.redraw();
  }

  redraw() {
    if (!this.answer || !this.clientWidth) return;
    const declared = this.declared;
    const names = Object.keys(this.answer.metrics).sort((a, b) => rank(declared, a) - rank(declared, b));
    for (const name of names.slice(0, this.shown)) this.draw(name, this.answer.metrics[name], declared[name] ?? {});
    this.all.hidden = names.length <= this.shown;
    this.all.textContent = `All ${names.length} metrics`;
    const { sampled, read } = this.answer;
    this.sample.textContent = sampled < read ? `Drawn from ${number(sampled)} of ${number(read)} results.` : "";
  }

  draw(name, metric, { title = name === "failed" ? "Share of failures" : name, unit = "", ends = [] }) {
    let card = this.plots.get(name);
    if (!card) {
      card = element("figure", { class: "plot-card" });
      this.plots.set(name, card);
      this.cards.append(card);
    }
    card.plot?.destroy();
    card.plot = null;
    const heading = element("figcaption", {}, element("b", {}, title));
    if (metric.count) heading.append(element("span", { class: "muted" }, ` ${tasks(metric.count)}`));
    const surface = element("div", { class: "surface" });
    card.replaceChildren(heading, surface);
    if (metric.kind === "category" && Object.keys(metric.values).length) {
      surface.append(bars(Object.entries(metric.values).sort((one, other) => other[1] - one[1]), 5));
    } else if (isBinary(metric)) {
      const isFailed = name === "failed";
      const rows = [[isFailed ? "failed" : "1", metric.counts[1]], [isFailed ? "did not fail" : "0", metric.counts[0]]];
      // A number that counts, and was 0 in all tasks so far, is not one of two values.
      const hasBoth = isFailed || (ends[0] === 0 && ends[1] === 1);
      surface.append(bars(rows.filter(([, count]) => hasBoth || count)));
    } else if (metric.counts?.length) {
      heading.append(element("span", { class: "muted" }, element("span", { class: "key mean" }), `mean ${number(metric.mean)}${unit && ` ${unit}`}`));
      surface.setAttribute("role", "img");
      surface.setAttribute("aria-label", described(title, metric));
      card.plot = histogram(surface, metric, withUnit(title, unit), Math.max(120, card.clientWidth - 18));
    } else {
      surface.append(this.complete ? "no values" : "no values yet");
    }
    const notOk = Object.values(metric.not_ok?.statuses ?? {}).reduce((sum, count) => sum + count, 0);
    if (metric.never) card.append(element("p", { class: "small muted" }, `without ${number(metric.never)} tasks in which it never happened`));
    if (notOk) card.append(element("p", { class: "small bad-text" }, `without ${number(notOk)} tasks that are not ok`));
  }
}

function tasks(count) {
  return `${number(count)} task${count === 1 ? "" : "s"}`;
}

/** Order of metrics: as the dataset declares them, the score first. */
function rank(declared, name) {
  return declared[name]?.order ?? 1000;
}

class DependencePlot extends LiveElement {
  begin() {
    this.note = element("p", { class: "small muted", role: "status" });
    this.form = element("div", { class: "filters" });
    this.surface = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dependence" });
    this.replaceChildren(this.form, this.note, this.surface);
    this.update();
  }

  async refresh() {
    if (!this.choices) {
      const [{ parameters }, { metrics }] = await Promise.all([load(`${this.address}/parameters`), load(`${this.address}/distributions`)]);
      if (!parameters.length) {
        this.complete = true;
        throw new Error("The scenarios of this dataset have no parameters.");
      }
      if (!Object.keys(metrics).length) return;
      this.offer(parameters, metrics);
    }
    const { metric, first, second } = this.choices;
    const query = new URLSearchParams([["metric", metric.value], ["parameter", first.value]]);
    if (second.value && second.value !== first.value) query.append("parameter", second.value);
    const answer = await load(`${this.address}/dependence?${query}`);
    const key = `${query} ${answer.read}`;
    this.complete = answer.complete;
    if (this.shown === key) return;
    this.shown = key;
    this.answer = answer;
    this.redraw();
  }

  /** Show what can be chosen: the score, or the first metric, against the first parameter. */
  offer(parameters, metrics) {
    const declared = this.declared;
    const names = Object.keys(metrics).sort((a, b) => rank(declared, a) - rank(declared, b));
    const select = (text, options) => {
      const made = element("select", {}, ...options.map(([value, title]) => element("option", { value }, title)));
      made.addEventListener("change", () => {
        this.complete = false;
        this.update();
      });
      this.form.append(element("label", {}, text, made));
      return made;
    };
    const metricOptions = [...names.filter((name) => name !== "failed").map((name) => [name, declared[name]?.title ?? name]), ["failed", "Share of failures"]];
    const parameterOptions = parameters.map(({ name }) => [name, name]);
    this.choices = {
      metric: select("Metric", metricOptions),
      first: select("against", parameterOptions),
      second: select("and", [["", "nothing else"], ...parameterOptions]),
    };
  }

  redraw() {
    if (!this.answer) return;
    this.plot?.destroy();
    this.plot = null;
    const { metric, parameters, groups, points, means } = this.answer;
    const { title = metric, unit = "" } = this.declared[metric] ?? {};
    this.surface.replaceChildren();
    if (means) {
      this.surface.append(heatMap(this.answer, withUnit(title, unit)));
    } else if (groups.some((group) => group.values)) {
      this.surface.append(counts(groups, parameters[0].name));
    } else {
      this.surface.append(intervals(groups, parameters[0].name, unit));
      if (points?.tasks.length) this.draw(points, title, unit, parameters[0].name);
    }
    this.surface.setAttribute("aria-label", `${title} by ${parameters.map(({ name }) => name).join(" and ")}`);
  }

  draw({ tasks: numbers, x, y, statuses }, title, unit, parameter) {
    const points = numbers.map((task, at) => ({ task, x: x[at], y: y[at], isOk: statuses[at] === "ok" }));
    const container = element("div", { role: "img", "aria-label": `${title} of single tasks by ${parameter}` });
    this.surface.append(container, scatterLegend(points));
    const open = (task) => location.assign(inProject(`/simulations/${this.getAttribute("simulation")}/tasks/${task}`));
    this.plot = scatter(container, points, withUnit(title, unit), parameter, open);
  }
}

customElements.define("metric-plots", MetricPlots);
customElements.define("dependence-plot", DependencePlot);
