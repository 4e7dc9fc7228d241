// Drawing of a world in lines, circles and polygons: what does not move, then the objects of each frame.

import { between } from "./timeline.js";
import { drawScaleBar } from "./camera.js";
import { roleColour } from "./palette.js";

/** The most lines of a floor or marks of the ground. */
const MOST_MARKS = 300;
/** Opacity of shapes that are not opaque; they have no outline. */
const OPACITY = { halo: 0.2, glass: 0.72, alarm: 0.6, clockwise: 0.7, counterclockwise: 0.7 };
/** Share of the view beyond which an object was put elsewhere: no position between two frames is true. */
const FARTHEST_STEP_SHARE = 0.5;

export class DrawingScene {
  constructor(replay, times) {
    const { view, unit, shapes, objects, backdrop } = replay.scene.drawing;
    const [left, bottom, width, height] = view;
    this._frames = replay.frames;
    this._times = times;
    this._unit = unit;
    this._shapes = shapes ?? [];
    this._objects = objects ?? [];
    this._backdrop = backdrop ?? "sky";
    this._middle = { x: left + width / 2, y: bottom + height / 2 };
    this._centres = this._centresOf();
    this._farthest = Math.max(width, height) * FARTHEST_STEP_SHARE;
    this.extent = { width, height };
    this.follows = this._centres !== null;
    this.legend = [];
    this.bounds = this._boundsOf(width / 2, height / 2);
  }

  /** Return the middle of the view, which moves with some drawings. */
  focus(time) {
    if (!this._centres) return this._middle;
    const { index, next, share } = between(this._times, time);
    const [x, y] = this._centres[index];
    const [nextX, nextY] = this._centres[next];
    return { x: x + (nextX - x) * share, y: y + (nextY - y) * share };
  }

  draw(context, view, time, palette, ratio) {
    view.applyPixels(context, ratio);
    context.fillStyle = palette.scene[this._backdrop] ?? palette.scene.sky;
    context.fillRect(0, 0, view.width, view.height);
    for (const shape of this._shapes) drawStatic(context, view, shape, palette);
    const { index, next, share } = between(this._times, time);
    const places = this._frames[index].drawing?.at ?? {};
    const following = this._frames[next].drawing?.at ?? {};
    for (const object of this._objects) {
      const points = places[object.id];
      if (!points) continue;
      drawShape(context, view, object, this._moved(points, following[object.id], share), palette, true);
    }
    drawScaleBar(context, view, this._unit, palette);
  }

  _moved(points, following, share) {
    if (!following || share === 0 || following.length !== points.length) return points;
    if (Math.hypot(following[0] - points[0], following[1] - points[1]) > this._farthest) return points;
    return points.map((value, place) => value + (following[place] - value) * share);
  }

  /** Return the centre of the view in each frame, or null if it stays where it is. */
  _centresOf() {
    if (!this._frames.some((frame) => frame.drawing?.centre)) return null;
    let last = [this._middle.x, this._middle.y];
    return this._frames.map((frame) => (last = frame.drawing?.centre ?? last));
  }

  _boundsOf(across, up) {
    const box = { left: Infinity, bottom: Infinity, right: -Infinity, top: -Infinity };
    for (const [x, y] of this._centres ?? [[this._middle.x, this._middle.y]]) {
      box.left = Math.min(box.left, x - across);
      box.right = Math.max(box.right, x + across);
      box.bottom = Math.min(box.bottom, y - up);
      box.top = Math.max(box.top, y + up);
    }
    return box;
  }
}

function drawStatic(context, view, shape, palette) {
  if (shape.shape === "ground") drawGround(context, view, shape, palette);
  else if (shape.shape === "floor") drawFloor(context, view, shape, palette);
  else drawShape(context, view, shape, shape.points, palette, false);
}

/** Draw a line, a polygon or a circle in pixels; what moves has an outline. */
function drawShape(context, view, shape, points, palette, isMoving) {
  const colour = roleColour(palette, shape.role);
  context.globalAlpha = OPACITY[shape.role] ?? 1;
  context.beginPath();
  if (shape.shape === "circle") {
    context.arc(view.px(points[0]), view.py(points[1]), Math.max(shape.radius * view.scale, 0.5), 0, 2 * Math.PI);
  } else {
    for (let place = 0; place < points.length; place += 2) {
      // A road may be kilometres long; canvases draw no coordinates that are far outside well.
      context.lineTo(near(view.px(points[place]), view.width), near(view.py(points[place + 1]), view.height));
    }
  }
  if (shape.shape === "line") {
    context.strokeStyle = colour;
    context.lineWidth = Math.max(1.2, (shape.width ?? 0) * view.scale);
    context.lineJoin = "round";
    context.lineCap = (shape.dashes ?? []).length > 0 || shape.flat ? "butt" : "round";
    context.setLineDash((shape.dashes ?? []).map((length) => length * view.scale));
    if ((shape.dashes ?? []).length > 0) context.lineDashOffset = dashOffset(view, shape, points);
    context.stroke();
    context.setLineDash([]);
    context.lineDashOffset = 0;
  } else {
    if (shape.shape === "polygon") context.closePath();
    context.fillStyle = colour;
    context.fill();
    if (isMoving && OPACITY[shape.role] === undefined) {
      context.strokeStyle = palette.scene.outline;
      context.lineJoin = "round";
      context.lineWidth = 0.8;
      context.stroke();
    }
  }
  context.globalAlpha = 1;
}

/** Return the pixels by which dashes are moved where the start of a line was drawn nearer than it is. */
function dashOffset(view, shape, points) {
  const start = view.px(points[0]);
  return Math.abs(start - near(start, view.width));
}

function near(pixel, size) {
  return Math.min(Math.max(pixel, -4 * size), 5 * size);
}

function drawGround(context, view, shape, palette) {
  const y = view.py(shape.height ?? 0);
  context.fillStyle = palette.scene.earth;
  context.fillRect(0, y, view.width, Math.max(0, view.height - y));
  context.strokeStyle = context.fillStyle = palette.scene.ink;
  context.lineWidth = 1;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.globalAlpha = 0.6;
  for (const value of multiples(view.left, view.right, shape.every, 30)) {
    const x = view.px(value);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x, y + 7);
    context.stroke();
    context.fillText(String(Number(value.toPrecision(6))), x, y + 20);
  }
  context.globalAlpha = 1;
}

/** Draw a grid: the lines of constant coordinates that come into view. */
function drawFloor(context, view, shape, palette) {
  const [ax, ay] = shape.across ?? [1, 0];
  const [bx, by] = shape.along ?? [0, 1];
  const determinant = ax * by - ay * bx;
  const corners = [view.left, view.right].flatMap((x) => [view.bottom, view.top].map((y) => [x, y]));
  const first = corners.map(([x, y]) => (x * by - y * bx) / determinant);
  const second = corners.map(([x, y]) => (y * ax - x * ay) / determinant);
  const [low, high] = [Math.min(...first), Math.max(...first)];
  const [nearest, far] = [Math.min(...second), Math.max(...second)];
  context.strokeStyle = palette.scene.grid;
  context.lineWidth = 1.2;
  context.beginPath();
  const draw = (fromX, fromY, toX, toY) => {
    context.moveTo(view.px(fromX), view.py(fromY));
    context.lineTo(view.px(toX), view.py(toY));
  };
  for (const at of multiples(low, high, shape.every)) {
    draw(at * ax + nearest * bx, at * ay + nearest * by, at * ax + far * bx, at * ay + far * by);
  }
  for (const at of multiples(nearest, far, shape.every)) {
    draw(at * bx + low * ax, at * by + low * ay, at * bx + high * ax, at * by + high * ay);
  }
  context.stroke();
}

/** Return the multiples of a distance in a range, or of 5, 25, ... times as much if they were too many. */
function multiples(low, high, every, most = MOST_MARKS) {
  let distance = every > 0 ? every : 1;
  while ((high - low) / distance > most) distance *= 5;
  const values = [];
  for (let number = Math.ceil(low / distance); number * distance <= high; number += 1) values.push(number * distance);
  return values;
}
