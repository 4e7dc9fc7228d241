// Element <replay-player src="/v1/simulations/ID/tasks/N/replay">: the replay of a task, with controls and charts.

import { Clock } from "./clock.js";
import { element } from "./dom.js";
import { eventsOf } from "./events.js";
import { pictureLabel, replayHead, ReplayElement } from "./replay_element.js";
import { resultCard } from "./result_card.js";
import { SignalPanel } from "./signal_panel.js";
import { isStaged, Stage } from "./stage.js";
import { timesOf } from "./timeline.js";
import { Transport } from "./transport.js";

export class ReplayPlayer extends ReplayElement {
  static observedAttributes = ["src"];

  /** The document that is shown, or null. It may be set in place of the attribute `src`. */
  get document() {
    return this._documents?.[0] ?? null;
  }

  set document(replay) {
    this.showDocuments([replay]);
  }

  addresses() {
    return [this.getAttribute("src")];
  }

  build([replay]) {
    const declared = this.metricsOf(replay);
    if (replay.scene.kind === "result") return { children: [replayHead(replay), resultCard(replay, declared)] };
    const times = timesOf(replay);
    const clock = new Clock(times[times.length - 1]);
    const stages = isStaged(replay) ? [new Stage(replay, times, clock, pictureLabel(replay))] : [];
    const transport = new Transport(clock, times, eventsOf(replay, times), () => stages);
    const panel = new SignalPanel([{ replay, times }], clock);
    const body = element("div", { class: `replay-body${stages.length > 0 ? "" : " replay-charts-only"}` });
    body.append(
      element(
        "div",
        { class: "replay-main" },
        ...stages.flatMap((stage) => stage.elements),
        transport.element,
        transport.eventList,
      ),
      panel.element,
    );
    const children = [replayHead(replay), body];
    if (replay.result) {
      const summary = element("summary", {}, "Result and metrics");
      children.push(element("details", { class: "replay-details" }, summary, resultCard(replay, declared)));
    }
    return { children, clock, transport, stages, panel };
  }
}
