// Street from above: lanes, crossings and lights, vehicles, pedestrians, the path of the model's car, collisions.

import { between } from "./timeline.js";
import { drawScaleBar } from "./camera.js";
import { ACTOR, isOfEvent, legendOf } from "./street_legend.js";
import { staticPaths } from "./street_paths.js";

/** Metres around the car that the camera shows when it follows it. */
const FOLLOWED = { width: 110, height: 62 };
/** Metres of ground around a street that is shown whole. */
const MARGIN = 12;
/** Pixels: the least length of a car and radius of a person, so that they can be seen in a whole town. */
const LEAST_CAR = 12;
const LEAST_PERSON = 6;
/** Metres: radius of a person. */
const PERSON = 0.5;
/** Metres ahead of the car up to which a light is named, and from the middle of its lane. */
const LIGHT_AHEAD = 80;
const LIGHT_BESIDE = 2;
/** Metres between two frames beyond which a vehicle was put elsewhere: no position between them is true. */
const FARTHEST_STEP = 25;
/** Pixels between two points of the path that are drawn, and the most points before and after the present. */
const LEAST_STEP = 3;
const MOST_POINTS = 1000;
/** Frames whose vehicles and pedestrians are kept by id. */
const KEPT_FRAMES = 4;

export class StreetScene {
  constructor(replay, times) {
    this._frames = replay.frames;
    this._times = times;
    this._scene = replay.scene;
    this._known = [];
    this._paths = staticPaths(replay.scene);
    this._trace = this._traceOf();
    this.follows = this._trace.length > 0;
    this.extent = FOLLOWED;
    this.bounds = this._boundsOf();
    this._crash = this._crashOf();
    this.legend = legendOf(this._frames);
    this._entries = new Map((replay.scene.observation ?? []).map(({ name }, number) => [name, number]));
  }

  /** Return the centre of the model's car, or its last one if it has left the street. */
  focus(time) {
    const { index, next, share } = between(this._times, time);
    const from = this._trace[index];
    const to = this._trace[next];
    return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
  }

  /** Return what the panel of the car shows at a time: speeds in m/s, distances in metres. */
  readings(time) {
    const { index, next, share } = between(this._times, time);
    const frame = this._frames[index];
    const car = this._actor(frame, "vehicles", frame.ego);
    const following = this._actor(this._frames[next], "vehicles", frame.ego) ?? car;
    return {
      speed: car ? car.speed + (following.speed - car.speed) * share : null,
      limit: frame.limit ?? null,
      brake: Boolean(car?.brake),
      light: car ? this._lightAhead(frame, car) : null,
      conflict: this._conflictAhead(frame),
    };
  }

  /** Return the conflict that the model observes: metres of the car and of the other to it, the other's speed. */
  _conflictAhead(frame) {
    const names = ["conflict", "conflict_ego_dist", "conflict_foe_dist", "conflict_foe_speed"];
    const [isThere, own, other, speed] = names.map((name) => frame.observation?.[this._entries.get(name)]);
    return isThere === 1 ? { own, other, speed } : null;
  }

  draw(context, view, time, palette, ratio) {
    view.applyPixels(context, ratio);
    context.fillStyle = palette.scene.ground;
    context.fillRect(0, 0, view.width, view.height);
    view.applyWorld(context, ratio);
    this._drawRoads(context, view, palette);
    const { index, next, share } = between(this._times, time);
    this._drawTrace(context, view, time, index, palette);
    this._drawStops(context, view, this._frames[index], palette);
    this._drawCars(context, view, index, next, share, palette);
    this._drawPeople(context, view, index, next, share, palette);
    view.applyPixels(context, ratio);
    if (this._crash && time >= this._crash.time - 1e-6) drawBurst(context, view, this._crash, palette);
    drawScaleBar(context, view, "m", palette);
  }

  _drawRoads(context, view, palette) {
    const { pavements, junctions, lanes, edges, dividers, crossings } = this._paths;
    const colours = palette.scene;
    const thin = Math.max(0.13, 0.8 / view.scale);
    context.lineCap = "butt";
    context.lineJoin = "round";
    for (const [width, path] of pavements) stroke(context, path, colours.pavement, width + 0.6);
    context.fillStyle = colours.junction;
    context.fill(junctions);
    for (const [width, path] of lanes) stroke(context, path, colours.asphalt, width + 0.1);
    if (view.scale > 0.8) {
      stroke(context, edges, colours.paint, thin);
      context.setLineDash([3, 4.5]);
      stroke(context, dividers, colours.paint, thin);
    }
    context.setLineDash([0.55, 0.55]);
    for (const [width, path] of crossings) stroke(context, path, colours.paint, width);
    context.setLineDash([]);
  }

  /** Draw the path of the model's car: faintly what it is still to drive, strongly what it has driven. */
  _drawTrace(context, view, time, index, palette) {
    if (this._trace.length === 0) return;
    const here = this.focus(time);
    context.lineCap = context.lineJoin = "round";
    context.strokeStyle = palette.scene.trace;
    context.globalAlpha = 0.3;
    this._strokePart(context, view, index + 1, 1, here, 2 / view.scale);
    context.globalAlpha = 0.85;
    this._strokePart(context, view, index, -1, here, Math.max(0.4, 2.5 / view.scale));
    context.globalAlpha = 1;
  }

  /** Stroke the path from a place over the frames from `first` on, later (1) or earlier ones (-1), where it is in view. */
  _strokePart(context, view, first, direction, here, width) {
    const apart = LEAST_STEP / view.scale;
    const reach = width + FARTHEST_STEP;
    let [x, y] = [here.x, here.y];
    context.beginPath();
    context.moveTo(x, y);
    let points = 0;
    for (let at = first; at in this._trace && points < MOST_POINTS; at += direction) {
      const place = this._trace[at];
      if (Math.abs(place.x - x) + Math.abs(place.y - y) < apart) continue;
      [x, y] = [place.x, place.y];
      const isNear = x > view.left - reach && x < view.right + reach && y > view.bottom - reach && y < view.top + reach;
      if (isNear) context.lineTo(x, y);
      else context.moveTo(x, y);
      if (isNear) points += 1;
    }
    context.lineWidth = width;
    context.stroke();
  }

  /** Draw the stop lines; a line with a traffic light has the colour of the light. */
  _drawStops(context, view, frame, palette) {
    context.lineCap = "butt";
    for (const stop of this._paths.stops) {
      if (stop.x < view.left - 5 || stop.x > view.right + 5 || stop.y < view.bottom - 5 || stop.y > view.top + 5) continue;
      const state = stop.light === null ? null : frame.lights?.[stop.lane];
      const colour = palette.scene.lights[state] ?? palette.scene.paint;
      if (state === null) context.setLineDash([0.5, 0.4]);
      stroke(context, stop.path, colour, Math.max(state === null ? 0.35 : 0.6, state === null ? 0 : 3 / view.scale));
      context.setLineDash([]);
    }
  }

  /** Draw the pedestrians above all else: discs in a ring, one of which differs from every ground. */
  _drawPeople(context, view, index, next, share, palette) {
    const radius = Math.max(PERSON, LEAST_PERSON / view.scale);
    const disc = (x, y, size, colour) => {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(x, y, size, 0, 2 * Math.PI);
      context.fill();
    };
    for (const person of this._frames[index].pedestrians ?? []) {
      const { x, y } = moved(person, this._actor(this._frames[next], "pedestrians", person.id), share);
      if (isOfEvent(person)) disc(x, y, radius + 4.5 / view.scale, palette.scene.vehicles[ACTOR]);
      disc(x, y, radius + 2 / view.scale, palette.scene.personRing);
      disc(x, y, radius, palette.scene.person);
    }
  }

  _drawCars(context, view, index, next, share, palette) {
    const frame = this._frames[index];
    let own = null;
    for (const car of frame.vehicles ?? []) {
      const place = moved(car, this._actor(this._frames[next], "vehicles", car.id), share);
      if (car.id === frame.ego) own = [car, place];
      else drawCar(context, view, car, place, palette, false);
    }
    if (own) drawCar(context, view, own[0], own[1], palette, true);
  }

  /** Return a vehicle or a pedestrian of a frame. The frames that were asked for last are kept by id. */
  _actor(frame, kind, id) {
    let known = this._known.find((candidate) => candidate.frame === frame);
    if (!known) {
      known = { frame, vehicles: byId(frame.vehicles), pedestrians: byId(frame.pedestrians) };
      this._known = [known, ...this._known.slice(0, KEPT_FRAMES - 1)];
    }
    return known[kind].get(id);
  }

  _lightAhead(frame, car) {
    const [forwardX, forwardY] = heading(car.angle);
    let nearest = null;
    for (const stop of this._paths.stops) {
      const state = stop.light === null ? undefined : frame.lights?.[stop.lane];
      if (state === undefined) continue;
      const ahead = (stop.x - car.x) * forwardX + (stop.y - car.y) * forwardY;
      const beside = Math.abs((stop.x - car.x) * forwardY - (stop.y - car.y) * forwardX);
      const isSameWay = stop.ux * forwardX + stop.uy * forwardY > 0.8;
      if (!isSameWay || beside > LIGHT_BESIDE || ahead < 0 || ahead > LIGHT_AHEAD) continue;
      if (nearest === null || ahead < nearest.distance) nearest = { state, distance: ahead };
    }
    return nearest;
  }

  /** Return the centre of the model's car in each frame; of frames without it, that of the frame before. */
  _traceOf() {
    const known = this._frames.map((frame) => {
      const car = (frame.vehicles ?? []).find((vehicle) => vehicle.id === frame.ego);
      return car ? centre(car, car) : null;
    });
    let last = known.find((place) => place !== null);
    if (!last) return [];
    return known.map((place) => (last = place ?? last));
  }

  _boundsOf() {
    const points = [...this._scene.lanes.flatMap((lane) => lane.shape), ...this._scene.junctions.flat()];
    const box = { left: Infinity, bottom: Infinity, right: -Infinity, top: -Infinity };
    for (const [x, y] of points.length > 0 ? points : [[0, 0]]) {
      box.left = Math.min(box.left, x - MARGIN);
      box.right = Math.max(box.right, x + MARGIN);
      box.bottom = Math.min(box.bottom, y - MARGIN);
      box.top = Math.max(box.top, y + MARGIN);
    }
    return box;
  }

  /** Return place and time of the first collision: half way between the car and what it met. */
  _crashOf() {
    const index = this._frames.findIndex((frame) => (frame.collisions ?? []).length > 0);
    if (index < 0 || this._trace.length === 0) return null;
    const frame = this._frames[index];
    const other = frame.collisions[0].with;
    const vehicle = this._actor(frame, "vehicles", other);
    const person = this._actor(frame, "pedestrians", other);
    const own = this._trace[index];
    const met = vehicle ? centre(vehicle, vehicle) : (person ?? own);
    return { time: this._times[index], x: (own.x + met.x) / 2, y: (own.y + met.y) / 2 };
  }
}

function byId(actors) {
  return new Map((actors ?? []).map((actor) => [actor.id, actor]));
}

function stroke(context, path, colour, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke(path);
}

/** Return the unit vector of a compass angle in degrees. */
function heading(angle) {
  const turn = (angle * Math.PI) / 180;
  return [Math.sin(turn), Math.cos(turn)];
}

/** Return the centre of a vehicle whose front bumper is at a place; SUMO's position is that of the bumper. */
function centre(car, place) {
  const [forwardX, forwardY] = heading(place.angle);
  return { x: place.x - (forwardX * car.length) / 2, y: place.y - (forwardY * car.length) / 2 };
}

/** Return position and angle between two frames; those of the first if the actor is not in the second. */
function moved(actor, following, share) {
  if (!following || share === 0) return actor;
  const [dx, dy] = [following.x - actor.x, following.y - actor.y];
  if (Math.hypot(dx, dy) > FARTHEST_STEP) return actor;
  const turn = ((((following.angle ?? 0) - (actor.angle ?? 0) + 540) % 360) - 180) * share;
  return { x: actor.x + dx * share, y: actor.y + dy * share, angle: (actor.angle ?? 0) + turn };
}

function drawCar(context, view, car, place, palette, isOwn) {
  const middle = centre(car, place);
  const reach = car.length + 20 / view.scale;
  if (middle.x < view.left - reach || middle.x > view.right + reach) return;
  if (middle.y < view.bottom - reach || middle.y > view.top + reach) return;
  const colours = palette.scene;
  const grown = Math.max(1, LEAST_CAR / (car.length * view.scale));
  const [length, width] = [car.length * grown, car.width * grown];
  context.save();
  context.translate(middle.x, middle.y);
  if (isOwn) drawHalo(context, view, length, colours);
  context.rotate((-place.angle * Math.PI) / 180);
  context.fillStyle = isOwn ? colours.ego : (colours.vehicles[car.kind] ?? colours.vehicles.normal);
  context.strokeStyle = isOwn ? colours.white : colours.outline;
  context.lineWidth = (isOwn ? 1.8 : 0.8) / view.scale;
  context.beginPath();
  context.roundRect(-width / 2, -length / 2, width, length, width * 0.28);
  context.fill();
  context.stroke();
  context.fillStyle = colours.glass;
  context.globalAlpha = 0.72;
  context.fillRect(-width * 0.37, length * 0.14, width * 0.74, Math.min(length * 0.16, 1 * grown));
  context.globalAlpha = 1;
  if (car.brake) {
    context.fillStyle = colours.brake;
    for (const side of [-width / 2, width / 2 - width * 0.34]) {
      context.fillRect(side, -length / 2 - 0.1 * grown, width * 0.34, 0.55 * grown);
    }
  }
  context.restore();
}

function drawHalo(context, view, length, colours) {
  const radius = Math.max(length * 0.8, 13 / view.scale);
  context.beginPath();
  context.arc(0, 0, radius, 0, 2 * Math.PI);
  context.fillStyle = context.strokeStyle = colours.halo;
  context.globalAlpha = 0.18;
  context.fill();
  context.globalAlpha = 0.8;
  context.lineWidth = 1.5 / view.scale;
  context.stroke();
  context.globalAlpha = 1;
}

/** Draw the mark of a collision, in pixels. */
function drawBurst(context, view, place, palette) {
  const [x, y] = [view.px(place.x), view.py(place.y)];
  context.beginPath();
  for (let corner = 0; corner < 16; corner += 1) {
    const radius = corner % 2 === 0 ? 20 : 9;
    const turn = (corner * Math.PI) / 8;
    context.lineTo(x + radius * Math.cos(turn), y + radius * Math.sin(turn));
  }
  context.closePath();
  context.fillStyle = palette.scene.alarm;
  context.strokeStyle = palette.scene.spark;
  context.lineWidth = 2;
  context.lineJoin = "round";
  context.globalAlpha = 0.75;
  context.fill();
  context.globalAlpha = 1;
  context.stroke();
}
