// Transport of a replay: play and pause, steps, events, the slider over time with its marks, the speed, the keys.

import { SPEEDS } from "./clock.js";
import { changeButton, element, iconButton, setText } from "./dom.js";
import { seconds } from "./format.js";
import { distanceOf, frameAt } from "./timeline.js";

/** Seconds by which two times are the same moment. */
const SAME = 1e-3;
/** Share of the replay that Page Up and Page Down move. */
const PAGE = 0.1;
/** Pixels between two labels of a row, and from row to row. */
const LABELS_APART = 6;
const ROW_HEIGHT = 24;

export class Transport {
  /** `times`: of the frames to step through; `events`: of all replays on the clock; `cameras`: their stages. */
  constructor(clock, times, events, cameras) {
    this._clock = clock;
    this._times = times;
    this._events = events;
    this._labelled = events.filter((event) => event.label !== null);
    this._cameras = cameras;
    this._distance = distanceOf(times);
    this._play = iconButton("play", "Play", () => clock.toggle(), "Space");
    this._play.classList.add("replay-play");
    this._slider = element("input", {
      type: "range",
      class: "replay-slider",
      min: 0,
      max: clock.duration,
      step: "any",
      value: 0,
      "aria-label": "Time",
    });
    this._slider.addEventListener("input", () => this._seek(Number(this._slider.value)));
    this._time = element("span", { class: "replay-time" });
    this._speed = this._speedChoice();
    this.element = element(
      "div",
      { class: "replay-transport", role: "group", "aria-label": "Playback" },
      this._labels(),
      element("div", { class: "replay-track" }, this._slider, this._marks()),
      element(
        "div",
        { class: "replay-controls" },
        this._play,
        iconButton("stepBack", "One frame back", () => this.step(-1), "ArrowLeft"),
        iconButton("stepOn", "One frame on", () => this.step(1), "ArrowRight"),
        iconButton("eventBack", "Previous event", () => this.toEvent(-1), "Shift+ArrowLeft"),
        iconButton("eventOn", "Next event", () => this.toEvent(1), "Shift+ArrowRight"),
        this._time,
        element("label", { class: "replay-rate" }, element("span", {}, "Speed"), this._speed),
      ),
    );
    this.eventList = this._eventList();
  }

  /** Show the clock's state. */
  draw() {
    const { time, duration, playing } = this._clock;
    changeButton(this._play, playing ? "pause" : "play", playing ? "Pause" : "Play", "Space");
    this._slider.value = String(time);
    this._slider.style.setProperty("--replay-share", String(duration > 0 ? time / duration : 0));
    const frame = frameAt(this._times, time);
    const text = `${seconds(time, this._distance)} s`;
    const total = `${seconds(duration, this._distance)} s`;
    setText(this._time, `${text} / ${total}`);
    this._slider.setAttribute("aria-valuetext", `${text} of ${total}, frame ${frame} of ${this._times.length - 1}`);
    this._buttons.forEach((button, number) => {
      const isNext = (this._events[number + 1]?.time ?? Infinity) <= time + SAME;
      button.classList.toggle("replay-past", this._events[number].time <= time + SAME && !isNext);
    });
  }

  /** Go to the next or the previous frame, and pause there. */
  step(count) {
    const index = frameAt(this._times, this._clock.time);
    // Backwards from between two frames, the frame before is the previous one.
    const isBetween = this._clock.time - this._times[index] > SAME;
    const target = count < 0 && isBetween ? index + count + 1 : index + count;
    this._clock.pause();
    this._clock.seek(this._times[Math.min(Math.max(target, 0), this._times.length - 1)]);
  }

  /** Go to the next (1) or the previous (-1) event, or to the end or the start if there is none, and pause there. */
  toEvent(direction) {
    const { time, duration } = this._clock;
    const later = this._events.find((event) => event.time > time + SAME);
    const earlier = this._events.findLast((event) => event.time < time - SAME);
    this._clock.pause();
    this._clock.seek(direction > 0 ? (later?.time ?? duration) : (earlier?.time ?? 0));
  }

  /** Go to the next moment that explains the result, after the last one to the first, and pause there. */
  toReason() {
    const next = this._labelled.find((event) => event.time > this._clock.time + SAME) ?? this._labelled[0];
    if (next) this._seek(next.time);
  }

  stop() {
    this._observer.disconnect();
  }

  /** Handle a key that was pressed within the replay player; return whether it means something here. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const { clock, target } = { clock: this._clock, target: event.target };
    const isSlider = target === this._slider;
    if (target.matches("select, input:not([type=range])")) return false;
    if (event.key === " " && target.closest("button, summary, a")) return false;
    const jump = (time) => this._seek(time);
    const actions = {
      " ": () => clock.toggle(),
      ArrowLeft: () => (event.shiftKey ? this.toEvent(-1) : this.step(-1)),
      ArrowRight: () => (event.shiftKey ? this.toEvent(1) : this.step(1)),
      Home: () => jump(0),
      End: () => jump(clock.duration),
      "+": () => this._cameras().forEach((stage) => stage.closer()),
      "=": () => this._cameras().forEach((stage) => stage.closer()),
      "-": () => this._cameras().forEach((stage) => stage.farther()),
      0: () => this._cameras().forEach((stage) => stage.reset()),
      r: () => this.toReason(),
      f: () => this._cameras().forEach((stage) => stage.toggleFollowing()),
      ...(isSlider && {
        ArrowDown: () => this.step(-1),
        ArrowUp: () => this.step(1),
        PageDown: () => jump(clock.time - clock.duration * PAGE),
        PageUp: () => jump(clock.time + clock.duration * PAGE),
      }),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return false;
    action();
    return true;
  }

  _seek(time) {
    this._clock.pause();
    this._clock.seek(time);
  }

  _speedChoice() {
    const options = SPEEDS.map((speed) => element("option", { value: speed, selected: speed === 1 }, `${speed}×`));
    const select = element("select", { class: "replay-select" }, ...options);
    select.addEventListener("change", () => this._clock.setSpeed(Number(select.value)));
    return select;
  }

  _marks() {
    const marks = element("div", { class: "replay-marks", "aria-hidden": "true" });
    for (const event of this._events) {
      const mark = element("i", { class: `replay-mark replay-${event.kind}` });
      mark.classList.toggle("replay-bad", event.bad);
      mark.style.left = `${this._shareOf(event) * 100}%`;
      marks.append(mark);
    }
    return marks;
  }

  /** Return where on the slider an event is, from 0 to 1. */
  _shareOf(event) {
    return this._clock.duration > 0 ? event.time / this._clock.duration : 0;
  }

  /** Return the labels above the slider: a button for each event that explains the result. */
  _labels() {
    this._flags = this._labelled.map((event) => {
      const name = `${event.label}, at ${seconds(event.time, this._distance)} s: ${event.text}`;
      const attributes = { type: "button", class: `replay-flag replay-${event.kind}`, "aria-label": name };
      const flag = element("button", attributes, element("span", {}, event.label));
      flag.title = `${event.text} (r: the next such moment)`;
      flag.addEventListener("click", () => this._seek(event.time));
      return flag;
    });
    const box = element("div", { class: "replay-flags", role: "group", "aria-label": "What explains the result" });
    box.append(...this._flags);
    box.hidden = this._flags.length === 0;
    this._observer = new ResizeObserver(() => this._placeLabels(box));
    this._observer.observe(box);
    return box;
  }

  /** Place each label at its time and within the track, in the lowest row that has room for it. */
  _placeLabels(box) {
    const width = box.clientWidth;
    const ends = [];
    const places = this._flags.map((flag, number) => {
      const at = this._shareOf(this._labelled[number]) * width;
      const left = Math.max(0, Math.min(at - flag.offsetWidth / 2, width - flag.offsetWidth));
      const free = ends.findIndex((end) => end + LABELS_APART <= left);
      const row = free < 0 ? ends.length : free;
      ends[row] = left + flag.offsetWidth;
      return { flag, at, left, row };
    });
    box.style.height = `${ends.length * ROW_HEIGHT}px`;
    for (const { flag, at, left, row } of places) {
      flag.style.left = `${left}px`;
      flag.style.bottom = `${row * ROW_HEIGHT}px`;
      flag.style.zIndex = String(ends.length - row); // above the stems of the labels above
      flag.style.setProperty("--replay-stem", `${at - left}px`);
      flag.style.setProperty("--replay-stem-length", `${row * ROW_HEIGHT}px`);
    }
  }

  _eventList() {
    this._buttons = this._events.map((event) => {
      const time = element("span", { class: "replay-event-time" }, `${seconds(event.time, this._distance)} s`);
      const button = element("button", { type: "button", class: `replay-event replay-${event.kind}` }, time, event.text);
      button.classList.toggle("replay-bad", event.bad);
      button.addEventListener("click", () => this._seek(event.time));
      return button;
    });
    const items = this._buttons.map((button) => element("li", {}, button));
    return element("ol", { class: "replay-events", "aria-label": "Events" }, ...items);
  }
}
