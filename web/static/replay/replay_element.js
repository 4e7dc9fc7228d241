// Base of the elements that show replays: loads the documents, shows progress and problems, owns clock, keys and theme.

import { element } from "./dom.js";
import { watchTheme } from "./palette.js";
import { loadReplay, ReplayProblem } from "./source.js";
import { isStaged } from "./stage.js";

const KINDS = ["street", "drawing", "signals", "result"];
/** Seconds after which the message of a replay that is computed names the time. */
const LONG = 3;
/** Share of an element that has to be in view before it plays by itself. */
const VISIBLE = 0.3;

/**
 * A subclass has `addresses()`, those of its documents, and `build(replays)`, which returns the parts of the element:
 * `children`, and for a replay with frames `clock`, `transport`, `stages` and `panel`.
 */
export class ReplayElement extends HTMLElement {
  connectedCallback() {
    if (this._isConnected) return;
    this._isConnected = true;
    this._keydown = (event) => {
      if (!event.defaultPrevented && this._parts?.transport?.key(event)) event.preventDefault();
    };
    this.addEventListener("keydown", this._keydown);
    this._start();
  }

  disconnectedCallback() {
    this._isConnected = false;
    this.removeEventListener("keydown", this._keydown);
    this._stop();
  }

  attributeChangedCallback(name, before, after) {
    if (this._isConnected && before !== after) {
      this._documents = null;
      this._start();
    }
  }

  /** The metrics that the dataset declares (titles, units, ranges); they may be set before or after the document. */
  get metrics() {
    return this._metrics ?? null;
  }

  set metrics(metrics) {
    this._metrics = metrics;
    if (this._isConnected && this._documents) this._start();
  }

  /** Return the metrics that a replay's document declares, or else those that the page has set. */
  metricsOf(replay) {
    return replay.scene.metrics ?? replay.metrics ?? this.metrics;
  }

  /** Show these documents in place of those at the addresses. */
  showDocuments(documents) {
    this._documents = documents;
    if (this._isConnected) this._start();
  }

  /** The clock: `time`, `duration`, `playing`, `play()`, `pause()`, `seek(time)`; null without frames. */
  get clock() {
    return this._parts?.clock ?? null;
  }

  /** A child `<script type="application/json">` for each document takes the place of addresses. */
  _readInline() {
    const scripts = [...this.querySelectorAll(':scope > script[type="application/json"]')];
    if (scripts.length > 0 && !this._documents) this._documents = scripts.map((script) => JSON.parse(script.textContent));
  }

  async _start() {
    this._stop();
    this._abort = new AbortController();
    const { signal } = this._abort;
    try {
      this._readInline();
      if (!this._documents) {
        const addresses = this.addresses();
        if (addresses.some((address) => !address)) return;
        this._message("Loading the replay …", { busy: true });
        const waiting = (passed) => this._wait(passed);
        const loaded = await Promise.all(addresses.map((address) => loadReplay(address, { signal, waiting })));
        if (signal.aborted) return;
        this._documents = loaded;
      }
      this._show(this._documents);
    } catch (error) {
      if (!signal.aborted) this._fail(error);
    }
  }

  _show(replays) {
    for (const replay of replays) checkReplay(replay);
    const parts = this._partsOf(replays);
    this._parts = parts;
    this.replaceChildren(element("div", { class: "replay" }, ...parts.children));
    this._tellApart();
    if (parts.clock) {
      const draw = () => {
        parts.stages.forEach((stage) => stage.draw());
        parts.transport.draw();
        parts.panel.draw();
      };
      parts.clock.listen(draw);
      this._unwatch = watchTheme(() => {
        parts.stages.forEach((stage) => stage.recolour());
        parts.panel.recolour();
      });
      if (this.hasAttribute("at")) parts.clock.seek(Number(this.getAttribute("at")) || 0);
      draw();
      parts.panel.recolour();
      this._playWhenVisible(parts.clock);
    }
    this.dispatchEvent(new CustomEvent("replay-ready", { bubbles: true }));
  }

  /** Add the number of the replay to the names of its landmarks where a page, such as a report, has several replays. */
  _tellApart() {
    const all = [...document.querySelectorAll("replay-player, replay-compare")];
    if (all.length < 2) return;
    for (const landmark of this.querySelectorAll("section[aria-label], [role=region][aria-label]")) {
      landmark.setAttribute("aria-label", `${landmark.getAttribute("aria-label")}, replay ${all.indexOf(this) + 1}`);
    }
  }

  _partsOf(replays) {
    try {
      return this.build(replays);
    } catch (error) {
      console.warn("replay:", error);
      throw new ReplayProblem(
        "This replay cannot be drawn",
        "Its scene is not what a simulator of its kind writes. Download it as JSON to see what it has.",
      );
    }
  }

  /** Play as soon as the element is in view, unless a moment or no motion is asked for. */
  _playWhenVisible(clock) {
    if (this.hasAttribute("at") || this.hasAttribute("paused") || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    this._visibility = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        this._visibility.disconnect();
        if (clock.time === 0) clock.play();
      },
      { threshold: VISIBLE },
    );
    this._visibility.observe(this);
  }

  _stop() {
    this._abort?.abort();
    this._visibility?.disconnect();
    this._unwatch?.();
    this._unwatch = null;
    if (this._parts?.clock) {
      this._parts.clock.stop();
      this._parts.stages.forEach((stage) => stage.stop());
      this._parts.transport.stop();
      this._parts.panel.stop();
    }
    this._parts = null;
  }

  _wait(passed) {
    const time = passed > LONG ? ` ${Math.round(passed)} s so far.` : "";
    this._message(`The scenario is simulated again from the recorded actions.${time}`, { busy: true });
  }

  _message(text, { busy = false } = {}) {
    const known = this.querySelector(".replay-message.replay-busy p");
    if (busy && known) {
      if (known.textContent !== text) known.textContent = text;
      return;
    }
    const spinner = element("span", { class: "replay-spinner", "aria-hidden": "true" });
    this.replaceChildren(
      element("div", { class: `replay-message${busy ? " replay-busy" : ""}`, role: "status" }, spinner, element("p", {}, text)),
    );
  }

  _fail(error) {
    const isProblem = error instanceof ReplayProblem;
    if (!isProblem) console.warn("replay:", error);
    const again = element("button", { type: "button", class: "replay-small" }, "Try again");
    again.addEventListener("click", () => this._start());
    const title = isProblem ? error.title : "The replay cannot be shown";
    const detail = isProblem ? error.message : "Reload the page; if that does not help, download the replay as JSON.";
    this.replaceChildren(
      element("div", { class: "replay-message replay-problem", role: "alert" }, element("strong", {}, title), element("p", {}, detail), again),
    );
  }
}

/** Raise a ReplayProblem if a document has no scene that is known here, or no frames to draw. */
function checkReplay(replay) {
  const kind = replay?.scene?.kind;
  if (!KINDS.includes(kind)) {
    const detail = `This page draws ${KINDS.join(", ")}. Download the replay as JSON, or reload the page after an update.`;
    throw new ReplayProblem(kind ? `Its scene is of the unknown kind ${kind}` : "The document is not a replay", detail);
  }
  if (kind !== "result" && (replay.frames ?? []).length === 0) {
    throw new ReplayProblem("The replay has no frames", "The scenario ended before its first step; its result says why.");
  }
}

/** Return the head of a replay: a title, and the outcome, good or bad. */
export function replayHead(replay, label = "") {
  const outcome = element("span", { class: `replay-outcome ${replay.failed ? "replay-bad" : "replay-good"}` });
  outcome.textContent = String(replay.outcome ?? "");
  const head = element("header", { class: "replay-head" });
  if (label) head.append(element("span", { class: "replay-label" }, label));
  head.append(element("h2", { class: "replay-title" }, String(replay.title ?? "task")));
  if (replay.outcome) head.append(outcome);
  return head;
}

/** Return what a picture of a replay shows, for readers that do not see it. */
export function pictureLabel(replay) {
  const kind = isStaged(replay) && replay.scene.kind === "street" ? "Street from above" : "Drawing of the world";
  return `${kind}: ${replay.title ?? "task"}, outcome ${replay.outcome ?? "unknown"}`;
}
