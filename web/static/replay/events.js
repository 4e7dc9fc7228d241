// Events of a replay, which the slider marks: what explains a result, then braking, speeding, rewards, the end.

import { figure, words } from "./format.js";

/** Seconds: shorter pauses between two brakings are part of one; shorter brakings are not marked. */
const PAUSE_IN_BRAKING = 1;
const SHORTEST_BRAKING = 0.3;
/** Share by which a speed is above the limit before it is marked, and seconds between two such marks. */
const TOLERANCE = 1.03;
/** The most rewards that are marked; where most steps have one, none is an event. */
const MOST_REWARDS = 20;
/** Label and words of how a model broke off, by the status of its task. */
const FAULTS = {
  crashed: ["Model crashed", "the model's process ended"],
  timed_out: ["Deadline", "the model did not answer within its deadline"],
  invalid: ["Invalid action", "the model's answer is not an action"],
  failed: ["Error", "the model or the simulator raised an error"],
};
/** Label and words of the outcomes of a street that are failures, besides a collision. */
const STREET_FAILURES = {
  stranded: ["Off the route", "the car is at the end of a lane that does not follow its route"],
  timeout: ["Time limit", "the car has not arrived within the scenario's time"],
};

/**
 * Return the events in order of time: seconds, kind (`failure`, `red_light`, `collision`, `brake`, `speeding`,
 * `reward`, `end`), whether it is bad, text, and `label`, a few words at its mark: null where it explains no result.
 *
 * A task that failed has one `failure`, at the moment of its reason, in place of the end.
 */
export function eventsOf(replay, times) {
  const frames = replay.frames ?? [];
  if (frames.length === 0) return [];
  const last = times[times.length - 1];
  const isStreet = replay.scene?.kind === "street";
  const events = isStreet ? streetEvents(replay, times) : [...alarms(replay, times), ...rewards(frames, times)];
  const cause = replay.failed ? causeOf(replay, events, last) : null;
  const end = cause ?? event(last, "end", replay.outcome ? `End: ${words(replay.outcome).toLowerCase()}` : "End");
  return [...events.filter((known) => known !== cause?.instead), end].sort((first, second) => first.time - second.time);
}

function event(time, kind, text, { bad = false, label = null } = {}) {
  return { time, kind, bad, text, label };
}

/** Return the failure of a task: at its collision, `instead` of which it stands, or else at the end. */
function causeOf(replay, events, last) {
  const outcome = words(replay.outcome ?? "failed");
  const isStreet = replay.scene?.kind === "street";
  const known = FAULTS[replay.result?.status] ?? (isStreet ? STREET_FAILURES[replay.outcome] : null);
  const collision = known ? null : events.find(({ kind }) => kind === "collision");
  if (collision) {
    const blame = { 0: ", not at fault", 1: ", at fault" }[replay.result?.metrics?.at_fault] ?? "";
    const text = `Failed: ${collision.text.charAt(0).toLowerCase()}${collision.text.slice(1)}${blame}`;
    return { ...event(collision.time, "failure", text, { bad: true, label: outcome }), instead: collision };
  }
  const [label, text] = known ?? [outcome, outcome.toLowerCase()];
  return event(last, "failure", `Failed: ${text}`, { bad: true, label });
}

function streetEvents(replay, times) {
  const { frames } = replay;
  const own = frames.map((frame) => frame.vehicles?.find((car) => car.id === frame.ego));
  const explains = (label) => ({ bad: true, label });
  const collisions = runs(frames.map((frame) => (frame.collisions ?? []).length > 0)).map(([start]) =>
    event(times[start], "collision", `Collision with ${metBy(frames[start])}`, explains("Collision")),
  );
  const redLights = frames.flatMap((frame, index) =>
    index > 0 && frame.red_lights > frames[index - 1].red_lights
      ? [event(times[index], "red_light", "Ran a red light", explains("Red light"))]
      : [],
  );
  const brakings = joined(runs(own.map((car) => Boolean(car?.brake))), times, PAUSE_IN_BRAKING)
    .filter(([start, stop]) => times[stop] - times[start] >= SHORTEST_BRAKING)
    .map(([start]) => event(times[start], "brake", "Brakes"));
  const isFast = own.map((car, index) => car !== undefined && car.speed > frames[index].limit * TOLERANCE);
  const speedings = joined(runs(isFast), times, PAUSE_IN_BRAKING).map(([start]) =>
    event(times[start], "speeding", "Above the limit", { bad: true }),
  );
  return [...collisions, ...redLights, ...brakings, ...speedings];
}

/** Return what the model's car has met: a pedestrian or a vehicle, with its id. */
function metBy(frame) {
  const other = frame.collisions[0].with;
  const isPerson = (frame.pedestrians ?? []).some((person) => person.id === other);
  return `${isPerson ? "pedestrian" : "vehicle"} ${other}`;
}

/** Return when objects that are alarms appear, such as the crash of a vehicle. */
function alarms(replay, times) {
  const objects = (replay.scene?.drawing?.objects ?? []).filter((object) => object.role === "alarm");
  return objects.flatMap((object) =>
    runs(replay.frames.map((frame) => frame.drawing?.at?.[object.id] !== undefined)).map(([start]) =>
      event(times[start], "collision", words(object.id.replaceAll("-", " ")), { bad: true }),
    ),
  );
}

function rewards(frames, times) {
  const marked = frames.map((frame, index) => [frame.reward, times[index]]).filter(([reward]) => reward);
  if (marked.length > Math.min(MOST_REWARDS, frames.length / 3)) return [];
  return marked.map(([reward, time]) =>
    event(time, "reward", `Reward ${reward > 0 ? "+" : ""}${figure(reward)}`, { bad: reward < 0 }),
  );
}

/** Return the first and the last index of each run of true values. */
function runs(values) {
  const ranges = [];
  values.forEach((value, index) => {
    if (!value) return;
    const last = ranges.at(-1);
    if (last && last[1] === index - 1) last[1] = index;
    else ranges.push([index, index]);
  });
  return ranges;
}

function joined(ranges, times, pause) {
  const merged = [];
  for (const [start, stop] of ranges) {
    const last = merged.at(-1);
    if (last && times[start] - times[last[1]] < pause) last[1] = stop;
    else merged.push([start, stop]);
  }
  return merged;
}
