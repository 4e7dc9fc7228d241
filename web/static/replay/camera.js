// Camera over a world in its own units, y up: it follows a point or shows everything; users zoom and move it.

/** Factor of a step of the zoom, and its limits. */
const ZOOM_STEP = 1.25;
const LEAST_ZOOM = 0.2;
const MOST_ZOOM = 40;

/**
 * What a scene lets a camera show: `follows`, whether it has a point to follow; `focus(time)`, that point;
 * `extent`, width and height around it; `bounds`, left, bottom, right and top of everything.
 */
export class Camera {
  constructor(scene) {
    this._scene = scene;
    this.following = scene.follows;
    this.reset();
  }

  /** Undo zoom and motion of the user. */
  reset() {
    this.zoom = 1;
    this.offset = { x: 0, y: 0 };
  }

  /** Change between following and showing everything. */
  toggle() {
    if (!this._scene.follows) return;
    this.following = !this.following;
    this.reset();
  }

  closer() {
    this.magnify(ZOOM_STEP);
  }

  farther() {
    this.magnify(1 / ZOOM_STEP);
  }

  /** Zoom; what is `at` these pixels from the middle of the picture, of `scale` pixels a unit, stays there. */
  magnify(factor, at = { x: 0, y: 0 }, scale = 1) {
    const zoom = Math.min(Math.max(this.zoom * factor, LEAST_ZOOM), MOST_ZOOM);
    const kept = (1 - this.zoom / zoom) / scale;
    this.offset.x += at.x * kept;
    this.offset.y -= at.y * kept;
    this.zoom = zoom;
  }

  /** Move the picture by pixels. */
  move(x, y, scale) {
    this.offset.x -= x / scale;
    this.offset.y += y / scale;
  }

  /** Return the view at a time for a canvas of so many CSS pixels. */
  view(time, width, height) {
    const { left, bottom, right, top } = this._scene.bounds;
    const extent = this.following
      ? this._scene.extent
      : { width: Math.max(right - left, 1e-6), height: Math.max(top - bottom, 1e-6) };
    const focus = this.following ? this._scene.focus(time) : { x: (left + right) / 2, y: (bottom + top) / 2 };
    const scale = Math.min(width / extent.width, height / extent.height) * this.zoom;
    return new View(focus.x + this.offset.x, focus.y + this.offset.y, scale, width, height);
  }
}

/** A centre in the world, pixels per unit, and the size of the canvas in CSS pixels. */
class View {
  constructor(x, y, scale, width, height) {
    Object.assign(this, { x, y, scale, width, height });
    this.left = x - width / 2 / scale;
    this.right = x + width / 2 / scale;
    this.bottom = y - height / 2 / scale;
    this.top = y + height / 2 / scale;
  }

  /** Return the horizontal pixel of a coordinate. */
  px(x) {
    return (x - this.x) * this.scale + this.width / 2;
  }

  /** Return the vertical pixel of a coordinate. */
  py(y) {
    return (this.y - y) * this.scale + this.height / 2;
  }

  /** Let a context draw in the world's units, y up. */
  applyWorld(context, ratio) {
    const scale = this.scale * ratio;
    context.setTransform(scale, 0, 0, -scale, this.px(0) * ratio, this.py(0) * ratio);
  }

  /** Let a context draw in CSS pixels, y down. */
  applyPixels(context, ratio) {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
}

/** Draw a bar in the upper right corner whose length is a round number of units. */
export function drawScaleBar(context, view, unit, palette) {
  if (!unit) return;
  const wanted = Math.min(view.width / 6, 140) / view.scale;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const length = Math.max(...[1, 2, 5].map((step) => step * power).filter((value) => value <= wanted * 1.0001));
  const right = view.width - 14;
  const left = right - length * view.scale;
  context.strokeStyle = context.fillStyle = palette.scene.ink;
  context.globalAlpha = 0.75;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(left, 22);
  context.lineTo(left, 27);
  context.lineTo(right, 27);
  context.lineTo(right, 22);
  context.stroke();
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText(`${Number(length.toPrecision(2))} ${unit}`, (left + right) / 2, 18);
  context.globalAlpha = 1;
}
