// Element <replay-compare left="…" right="…">: two replays of a scenario on one clock, with their differences below.

import { Clock } from "./clock.js";
import { element } from "./dom.js";
import { eventsOf } from "./events.js";
import { pictureLabel, replayHead, ReplayElement } from "./replay_element.js";
import { differenceTable } from "./result_card.js";
import { SignalPanel } from "./signal_panel.js";
import { isStaged, Stage } from "./stage.js";
import { timesOf } from "./timeline.js";
import { Transport } from "./transport.js";

export class ReplayCompare extends ReplayElement {
  static observedAttributes = ["left", "right"];

  /** The two documents that are shown, or null. They may be set in place of the attributes. */
  get documents() {
    return this._documents ?? null;
  }

  set documents(replays) {
    this.showDocuments([...replays]);
  }

  addresses() {
    return [this.getAttribute("left"), this.getAttribute("right")];
  }

  build(replays) {
    const labels = [this.getAttribute("left-label") || "A", this.getAttribute("right-label") || "B"];
    const declared = this.metricsOf(replays[0]);
    const times = replays.map((replay) => timesOf(replay));
    const ends = times.map((column) => column.at(-1) ?? 0);
    const clock = new Clock(Math.max(...ends));
    const stages = replays.map((replay, side) =>
      isStaged(replay) ? new Stage(replay, times[side], clock, `${labels[side]}: ${pictureLabel(replay)}`) : null,
    );
    const sides = replays.map((replay, side) => {
      const head = replayHead(replay, labels[side]);
      const parts = stages[side] ? [head, ...stages[side].elements] : [head];
      return element("section", { class: `replay-side replay-series-${side}`, "aria-label": labels[side] }, ...parts);
    });
    const children = [element("div", { class: "replay-sides" }, ...sides)];
    if (differentScenarios(replays)) {
      const note = "These tasks are of different scenarios: their times and places do not correspond.";
      children.unshift(element("p", { class: "replay-note" }, note));
    }
    const table = [
      element("h3", {}, "Differences"),
      differenceTable(replays, labels, declared),
    ];
    if (clock.duration === 0) return { children: [...children, ...table] };
    const events = replays.flatMap((replay, side) =>
      eventsOf(replay, times[side]).map((event) => ({
        ...event,
        text: `${labels[side]}: ${event.text}`,
        label: event.label && `${labels[side]}: ${event.label}`,
      })),
    );
    events.sort((first, second) => first.time - second.time);
    const shown = stages.filter((stage) => stage !== null);
    const transport = new Transport(clock, mergedTimes(times), events, () => shown);
    const panel = new SignalPanel(replays.map((replay, side) => ({ replay, times: times[side] })), clock);
    panel.element.classList.add("replay-wide");
    children.push(transport.element, transport.eventList, legend(labels), panel.element, ...table);
    return { children, clock, transport, stages: shown, panel };
  }
}

/** Return the times of all frames, each once. */
function mergedTimes(columns) {
  const merged = [...new Set(columns.flatMap((column) => [...column]))].sort((first, second) => first - second);
  return Float64Array.from(merged);
}

function differentScenarios([first, second]) {
  const keys = ["index", "repeat", "seed", "name"];
  return keys.some((key) => first.result?.scenario?.[key] !== second.result?.scenario?.[key]);
}

function legend(labels) {
  const entries = labels.map((label, side) => element("span", { class: `replay-key replay-series-${side}` }, label));
  return element("p", { class: "replay-legend" }, "Charts: ", ...entries);
}
