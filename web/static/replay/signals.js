// Signals of a replay: a column of numbers over its frames for each action, reward and observation.

import { grouped } from "./signal_groups.js";

/** The most signals that are read: all of what a server keeps; other documents may have more than a page can list. */
const MOST_SIGNALS = 600;
/** Metres per second squared beyond which a vehicle was stopped by the simulator, not driven. */
const MOST_ACCELERATION = 30;

/**
 * Return the signals of a replay: group, name, unit, values (NaN where a frame has none), declared range; in a street
 * also whether the group is `folded` at first.
 *
 * A value of `held` signals counts until the next frame; others are lines between frames.
 */
export function signalsOf(replay) {
  const frames = replay.frames ?? [];
  const scene = replay.scene ?? {};
  const isPlainStreet = scene.kind === "street" && !scene.observation;
  const observations = entries("Observation", scene.observation, frames, "observation", false);
  const street = isPlainStreet ? streetSignals(frames, Number(replay.dt) || 0.1) : [];
  const rewards = frames.some((frame) => typeof frame.reward === "number")
    ? [signal("Reward", { name: "reward" }, frames, (frame) => frame.reward, true)]
    : [];
  return [
    ...entries("Action", scene.action, frames, "action", true),
    ...rewards,
    ...street,
    ...(scene.kind === "street" ? grouped(observations) : observations),
  ].slice(0, MOST_SIGNALS);
}

/** Return the least and the greatest number of columns, or [0, 0]. */
export function rangeOf(columns) {
  let low = Infinity;
  let high = -Infinity;
  for (const column of columns) {
    for (const value of column) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : [0, 0];
}

/** Tell whether a signal is a yes or a no: all its values are 0 or 1, and its range is declared as these. */
export function isBinary(signal) {
  if (signal.low !== 0 || signal.high !== 1 || signal.unit) return false;
  return signal.columns.every((column) => column.every((value) => value === 0 || value === 1 || Number.isNaN(value)));
}

function entries(group, described, frames, member, held) {
  return (described ?? []).map((description, number) =>
    signal(group, description, frames, (frame) => frame[member]?.[number], held),
  );
}

function signal(group, description, frames, read, held) {
  return {
    group,
    name: String(description.name),
    unit: description.unit ? String(description.unit) : "",
    low: description.low ?? null,
    high: description.high ?? null,
    held,
    values: Float64Array.from(frames, (frame) => finiteOr(read(frame), NaN)),
  };
}

/** Return what the frames of a street without observations say of the model's car: speed, limit, acceleration. */
function streetSignals(frames, dt) {
  const speeds = frames.map((frame) => frame.vehicles?.find((car) => car.id === frame.ego)?.speed);
  const accelerations = speeds.map((speed, index) => {
    const change = index === 0 ? NaN : (speed - speeds[index - 1]) / dt;
    return Math.abs(change) <= MOST_ACCELERATION ? change : NaN;
  });
  const named = (name, unit, values, held = false) => ({
    group: "Car",
    name,
    unit,
    low: null,
    high: null,
    held,
    values: Float64Array.from(values, (value) => finiteOr(value, NaN)),
  });
  return [
    named("speed", "m/s", speeds),
    named("speed limit", "m/s", frames.map((frame) => frame.limit), true),
    named("acceleration", "m/s²", accelerations),
  ];
}

function finiteOr(value, otherwise) {
  return typeof value === "number" && Number.isFinite(value) ? value : otherwise;
}
