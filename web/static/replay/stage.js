// Stage of a replay: a canvas with its scene, the camera's buttons, and the panel of the model's car on a street.

import { Camera } from "./camera.js";
import { DrawingScene } from "./drawing_scene.js";
import { element, iconButton, setText } from "./dom.js";
import { paletteOf } from "./palette.js";
import { StreetScene } from "./street_scene.js";

const SCENES = { street: StreetScene, drawing: DrawingScene };
const LIGHT_NAMES = { r: "red", u: "red and yellow", y: "yellow", g: "green", s: "stop" };
/** Metres per second in kilometres per hour. */
const KMH = 3.6;
/** Least and greatest height of a stage as shares of its width. */
const LOWEST = 0.42;
const HIGHEST = 0.66;

/** Tell whether a replay has a scene that is drawn on a stage. */
export function isStaged(replay) {
  return replay.scene?.kind in SCENES && (replay.frames ?? []).length > 0;
}

export class Stage {
  /** `label`: what the canvas shows, for readers that do not see it; `clock`: asks for pictures. */
  constructor(replay, times, clock, label) {
    this._scene = new SCENES[replay.scene.kind](replay, times);
    this._clock = clock;
    this._times = times;
    this._camera = new Camera(this._scene);
    this._palette = null;
    this._last = { time: null };
    this._pointers = new Map();
    this.canvas = element("canvas", { class: "replay-canvas", role: "img", "aria-label": label, tabindex: -1 });
    this._hud = replay.scene.kind === "street" ? new CarPanel() : null;
    this._legend = new Legend(this._scene.legend);
    this.element = element("div", { class: "replay-stage" }, this.canvas, this._buttons());
    if (this._hud) this.element.append(this._hud.element);
    this.elements = this._scene.legend.length > 0 ? [this.element, this._legend.element] : [this.element];
    const { width, height } = this._scene.extent;
    this.element.style.aspectRatio = String(1 / Math.min(Math.max(height / width, LOWEST), HIGHEST));
    this._observer = new ResizeObserver(() => this._clock.refresh());
    this._observer.observe(this.canvas);
    this._listen();
  }

  /** Forget the colours: the page has changed its theme. */
  recolour() {
    this._palette = null;
    this._clock.refresh();
  }

  /** Draw the clock's time, or the end if this replay is over before. */
  draw() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (width === 0 || height === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const [pixelsAcross, pixelsDown] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixelsAcross || this.canvas.height !== pixelsDown) {
      this.canvas.width = pixelsAcross;
      this.canvas.height = pixelsDown;
    }
    if (!this._palette) {
      this._palette = paletteOf(this.element);
      this._legend.recolour(this._palette);
    }
    const time = Math.min(this._clock.time, this._times[this._times.length - 1]);
    this._view = this._camera.view(time, width, height);
    this._scene.draw(this.canvas.getContext("2d"), this._view, time, this._palette, ratio);
    this._hud?.show(this._scene.readings(time));
  }

  closer() {
    this._change(() => this._camera.closer());
  }

  farther() {
    this._change(() => this._camera.farther());
  }

  toggleFollowing() {
    this._change(() => (this._scene.follows ? this._camera.toggle() : this._camera.reset()));
  }

  stop() {
    this._observer.disconnect();
  }

  _change(change) {
    change();
    this._followButton?.setAttribute("aria-pressed", String(this._camera.following));
    this._clock.refresh();
  }

  _buttons() {
    const buttons = element("div", { class: "replay-camera", role: "group", "aria-label": "Camera" });
    if (this._scene.follows) {
      this._followButton = iconButton("follow", "Follow", () => this.toggleFollowing(), "f");
      this._followButton.setAttribute("aria-pressed", "true");
      buttons.append(this._followButton);
    }
    buttons.append(
      iconButton("closer", "Zoom in", () => this.closer(), "Plus"),
      iconButton("farther", "Zoom out", () => this.farther(), "-"),
      iconButton("whole", "Reset zoom", () => this._change(() => this._camera.reset()), "0"),
    );
    return buttons;
  }

  /** Undo zoom and motion. */
  reset() {
    this._change(() => this._camera.reset());
  }

  _listen() {
    this.canvas.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.focus({ preventScroll: true }); // keys and the wheel are the replay's from now on
      this.canvas.setPointerCapture(event.pointerId);
      this._pointers.set(event.pointerId, event);
    });
    this.canvas.addEventListener("pointermove", (event) => this._drag(event));
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, (event) => this._pointers.delete(event.pointerId));
    }
    this.canvas.addEventListener("dblclick", () => this.reset());
  }

  /** Zoom about the pointer. Only where the replay has the focus, or with Ctrl: else a wheel scrolls the page. */
  _wheel(event) {
    const owner = this.element.closest("replay-player, replay-compare");
    if (!event.ctrlKey && !event.metaKey && !owner?.contains(document.activeElement)) return;
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const factor = Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015));
    this._magnifyAt(factor, event.clientX, event.clientY);
  }

  /** Move with one pointer, zoom with two. */
  _drag(event) {
    const before = this._pointers.get(event.pointerId);
    if (!before || !this._view) return;
    const others = [...this._pointers.values()].filter((pointer) => pointer.pointerId !== event.pointerId);
    this._pointers.set(event.pointerId, event);
    if (others.length === 0) {
      const [x, y] = [event.clientX - before.clientX, event.clientY - before.clientY];
      this._change(() => this._camera.move(x, y, this._view.scale));
    } else {
      const [other] = others;
      const apart = (pointer) => Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY) || 1;
      const middle = [(event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2];
      this._magnifyAt(apart(event) / apart(before), ...middle);
    }
  }

  _magnifyAt(factor, clientX, clientY) {
    const box = this.canvas.getBoundingClientRect();
    const at = { x: clientX - box.left - box.width / 2, y: clientY - box.top - box.height / 2 };
    this._change(() => this._camera.magnify(factor, at, this._view?.scale ?? 1));
  }
}

/** Legend of a scene: what each colour is. */
class Legend {
  /** `entries`: text, form (`car`, `person` or `line`) and `colour(palette)` of each. */
  constructor(entries) {
    this._entries = entries;
    const swatch = ({ form }) => element("i", { class: `replay-swatch replay-${form}`, "aria-hidden": "true" });
    this._swatches = entries.map(swatch);
    const items = entries.map(({ text }, number) => element("li", {}, this._swatches[number], text));
    this.element = element("ul", { class: "replay-scene-legend", "aria-label": "Legend" }, ...items);
  }

  recolour(palette) {
    this._swatches.forEach((swatch, number) => {
      swatch.style.backgroundColor = this._entries[number].colour(palette);
    });
  }
}

/** Panel of the model's car: speed, limit, brake, the light ahead, the conflict ahead. */
class CarPanel {
  constructor() {
    this._speed = element("span", { class: "replay-speed" });
    this._limit = element("span", { class: "replay-limit", role: "img" });
    this._brake = element("span", { class: "replay-chip replay-brake" }, "Brake");
    this._light = element("span", { class: "replay-chip replay-light" });
    this._conflict = element("span", { class: "replay-chip replay-conflict" });
    this.element = element(
      "div",
      { class: "replay-hud" },
      element("span", { class: "replay-speed-line" }, this._speed, element("small", {}, "km/h")),
      this._limit,
      element("span", { class: "replay-chips" }, this._brake, this._light, this._conflict),
    );
  }

  show({ speed, limit, brake, light, conflict }) {
    setText(this._speed, speed === null ? "–" : String(Math.round(speed * KMH)));
    const posted = limit === null ? "" : String(Math.round(limit * KMH));
    setText(this._limit, posted);
    this._limit.setAttribute("aria-label", `limit ${posted} km/h`);
    this._limit.classList.toggle("replay-exceeded", speed !== null && limit !== null && speed > limit * 1.03);
    this._brake.classList.toggle("replay-on", brake);
    this._conflict.hidden = conflict === null;
    if (conflict) {
      const [own, other] = [conflict.own, conflict.other].map(Math.round);
      setText(this._conflict, `Conflict in ${own} m, other ${other} m away at ${Math.round(conflict.speed * KMH)} km/h`);
    }
    const name = light ? LIGHT_NAMES[light.state] : undefined;
    this._light.hidden = name === undefined;
    if (name === undefined) return;
    this._light.dataset.state = light.state;
    setText(this._light, `Light ${name}, ${Math.round(light.distance)} m`);
  }
}
