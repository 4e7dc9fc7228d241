// Panel of signals: a chart and the present value of each that is chosen, one cursor, a list to choose from.

import { drawBand, drawChart } from "./chart.js";
import { element, setText } from "./dom.js";
import { figure, seconds, unitText } from "./format.js";
import { paletteOf } from "./palette.js";
import { isBinary, rangeOf, signalsOf } from "./signals.js";
import { frameAt } from "./timeline.js";

/** The most signals that are shown at first where they have no groups. */
const SHOWN_FIRST = 12;

export class SignalPanel {
  /** `replays`: documents with their times, one or two; the lines of two are in the same charts. */
  constructor(replays, clock) {
    this._clock = clock;
    this._times = replays.map(({ times }) => times);
    const signals = mergedSignals(replays);
    const first = shownFirst(signals);
    this._rows = signals.map((signal) => new SignalRow(signal, first.has(signal)));
    this._folded = new Set(signals.filter((signal) => signal.folded).map((signal) => signal.group));
    this._cursor = element("div", { class: "replay-cursor" });
    this._list = element("ul", { class: "replay-signals" });
    this._charts = element("div", { class: "replay-charts" }, this._list, this._cursor);
    const scroller = element("div", { class: "replay-scroller" }, this._charts);
    this._axis = element("div", { class: "replay-axis", "aria-hidden": "true" });
    this._count = element("span");
    this.element = element(
      "section",
      { class: "replay-panel", "aria-label": "Signals" },
      element("div", { class: "replay-panel-head" }, element("h3", {}, "Signals"), this._chooser()),
      scroller,
      this._axis,
    );
    this.element.hidden = this._rows.length === 0;
    const end = clock.duration;
    this._axis.append(...[0, end / 2, end].map((time) => element("span", {}, `${seconds(time)} s`)));
    this._observer = new ResizeObserver(() => this.recolour());
    this._observer.observe(this._list);
    this._seekByPointer();
    this._show();
  }

  /** Draw all charts again: their size or the page's colours have changed. */
  recolour() {
    const palette = paletteOf(this.element);
    for (const row of this._shown()) row.draw(this._clock.duration, this._times, palette);
    this._placeCursor();
  }

  /** Show the clock's time: the cursor, and the value of each chart. */
  draw() {
    const indexes = this._times.map((times) => frameAt(times, this._clock.time));
    for (const row of this._shown()) row.show(indexes);
    this._placeCursor();
  }

  stop() {
    this._observer.disconnect();
    for (const type of ["pointerdown", "focusin"]) document.removeEventListener(type, this._closeChooser);
  }

  /** Return the rows that can be seen: those that are chosen, of groups that are not folded. */
  _shown() {
    return this._rows.filter((row) => row.isChosen && !this._folded.has(row.group));
  }

  _show() {
    const chosen = this._rows.filter((row) => row.isChosen);
    const items = chosen.flatMap((row, number) =>
      row.group === chosen[number - 1]?.group ? [row.element] : [this._heading(row.group, chosen), row.element],
    );
    this._list.replaceChildren(...items);
    setText(this._count, `${chosen.length} of ${this._rows.length}`);
    this._fold();
  }

  /** Return the heading of a group: a button that folds and unfolds it, with how many of its signals are chosen. */
  _heading(group, chosen) {
    const [some, all] = [chosen, this._rows].map((rows) => rows.filter((row) => row.group === group).length);
    const count = element("small", {}, some < all ? `${some} of ${all}` : String(all));
    const button = element("button", { type: "button" }, group, count);
    button.addEventListener("click", () => {
      if (!this._folded.delete(group)) this._folded.add(group);
      this._fold();
    });
    button.dataset.group = group;
    return element("li", { class: "replay-group" }, button);
  }

  /** Hide the rows of the groups that are folded. */
  _fold() {
    for (const row of this._rows) row.element.hidden = this._folded.has(row.group);
    for (const button of this._list.querySelectorAll(".replay-group button")) {
      button.setAttribute("aria-expanded", String(!this._folded.has(button.dataset.group)));
    }
    this.recolour();
    this._clock.refresh();
  }

  _placeCursor() {
    const box = this._chartBox();
    this._cursor.hidden = box === null;
    if (box === null) return;
    const share = this._clock.duration > 0 ? this._clock.time / this._clock.duration : 0;
    this._cursor.style.transform = `translateX(${box.left + share * box.width}px)`;
  }

  /** Return where charts begin in the list, and their width, in pixels; null if none is shown. */
  _chartBox() {
    const canvas = this._shown()[0]?.canvas;
    return canvas ? { left: canvas.offsetLeft, width: canvas.offsetWidth } : null;
  }

  _chooser() {
    if (this._rows.length <= 1) return "";
    const filter = element("input", { type: "search", class: "replay-filter", "aria-label": "Filter signals" });
    filter.placeholder = "Filter by name";
    const choices = element("ul", { class: "replay-choices" }, ...this._rows.map((row) => row.choice));
    const choose = (isShown) => () => {
      for (const row of this._rows) if (!row.choice.hidden) row.choose(isShown);
      this._show();
    };
    filter.addEventListener("input", () => {
      const text = filter.value.trim().toLowerCase();
      for (const row of this._rows) row.choice.hidden = !row.title.toLowerCase().includes(text);
    });
    choices.addEventListener("change", () => this._show());
    const button = (label, onclick) => {
      const made = element("button", { type: "button", class: "replay-small" }, label);
      made.addEventListener("click", onclick);
      return made;
    };
    const summary = element("summary", {}, "Choose, ", this._count);
    const details = element(
      "details",
      { class: "replay-chooser" },
      summary,
      element(
        "div",
        { class: "replay-chooser-body" },
        element("div", { class: "replay-row" }, filter, button("All", choose(true)), button("None", choose(false))),
        choices,
      ),
    );
    details.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !details.open) return;
      details.open = false;
      summary.focus();
    });
    // It lies above the charts: it closes as soon as the user works elsewhere.
    this._closeChooser = (event) => {
      if (!details.contains(event.target)) details.open = false;
    };
    for (const type of ["pointerdown", "focusin"]) document.addEventListener(type, this._closeChooser);
    return details;
  }

  /** Go to the time of a chart at which a pointer is. */
  _seekByPointer() {
    const seek = (event) => {
      if (event.target.closest("button")) return false;
      const box = this._chartBox();
      const left = event.clientX - this._charts.getBoundingClientRect().left;
      if (box === null || left < box.left - 8) return false;
      this._clock.seek(((left - box.left) / box.width) * this._clock.duration);
      return true;
    };
    this._charts.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && seek(event)) this._charts.setPointerCapture(event.pointerId);
    });
    this._charts.addEventListener("pointermove", (event) => {
      if (this._charts.hasPointerCapture(event.pointerId)) seek(event);
    });
  }
}

/** A signal in the panel: its chart, its values, its entry in the list to choose from. */
class SignalRow {
  constructor(signal, isShown) {
    this._signal = signal;
    this._isBinary = isBinary(signal);
    this.group = signal.group;
    this.title = `${signal.group} ${signal.name}`;
    this.canvas = element("canvas", { class: "replay-chart", "aria-hidden": "true" });
    this._values = signal.columns.map((_, number) => element("span", { class: `replay-value replay-series-${number}` }));
    this.element = element(
      "li",
      { class: `replay-signal${this._isBinary ? " replay-binary" : ""}` },
      element(
        "div",
        { class: "replay-signal-text" },
        element("span", { class: "replay-signal-name", title: this.title }, signal.name),
        element("span", { class: "replay-values" }, ...this._values, element("small", {}, unitText(signal.unit))),
        element("span", { class: "replay-range" }, this._rangeText()),
      ),
      this.canvas,
    );
    this._box = element("input", { type: "checkbox" });
    this._box.checked = isShown;
    this.choice = element(
      "li",
      {},
      element("label", {}, this._box, element("span", {}, signal.name), element("small", {}, signal.group)),
    );
  }

  get isChosen() {
    return this._box.checked;
  }

  choose(isShown) {
    this._box.checked = isShown;
  }

  _rangeText() {
    const [low, high] = rangeOf(this._signal.columns);
    if (low === high) return "constant";
    return this._isBinary ? "no or yes" : `${figure(low, 3)} … ${figure(high, 3)}`;
  }

  draw(duration, times, palette) {
    const series = this._signal.columns.map((values, number) => ({ values, times: times[number] }));
    if (this._isBinary) drawBand(this.canvas, series, duration, palette);
    else drawChart(this.canvas, series, duration, this._signal.held, palette);
  }

  show(indexes) {
    this._values.forEach((node, number) => {
      const value = this._signal.columns[number][indexes[number]];
      setText(node, value === undefined || Number.isNaN(value) ? "–" : figure(value));
    });
  }
}

/** Return the first signals that change, or all that do if they have groups; if none does, the first of all. */
function shownFirst(signals) {
  const changing = signals.filter(({ columns }) => {
    const [low, high] = rangeOf(columns);
    return low < high;
  });
  const hasGroups = signals.some((signal) => signal.folded !== undefined);
  return new Set((changing.length > 0 ? changing : signals).slice(0, hasGroups ? undefined : SHOWN_FIRST));
}

/** Return the signals of all replays by group and name, each with a column for each replay. */
function mergedSignals(replays) {
  const merged = new Map();
  replays.forEach(({ replay }, number) => {
    for (const signal of signalsOf(replay)) {
      const key = `${signal.group} ${signal.name}`;
      if (!merged.has(key)) merged.set(key, { ...signal, columns: replays.map(() => new Float64Array(0)) });
      merged.get(key).columns[number] = signal.values;
    }
  });
  return [...merged.values()];
}
