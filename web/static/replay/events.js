// Events of a replay, which the slider marks: collisions, braking, rewards, the end.

import { figure, words } from "./format.js";

/** Seconds: shorter pauses between two brakings are part of one; shorter brakings are not marked. */
const PAUSE_IN_BRAKING = 1;
const SHORTEST_BRAKING = 0.3;
/** Share by which a speed is above the limit before it is marked, and seconds between two such marks. */
const TOLERANCE = 1.03;
/** The most rewards that are marked; where most steps have one, none is an event. */
const MOST_REWARDS = 20;

/** Return the events in order of time: seconds, kind (`collision`, `brake`, `speeding`, `reward`, `end`), text. */
export function eventsOf(replay, times) {
  const frames = replay.frames ?? [];
  if (frames.length === 0) return [];
  const events =
    replay.scene?.kind === "street" ? streetEvents(frames, times) : [...alarms(replay, times), ...rewards(frames, times)];
  const end = {
    time: times[times.length - 1],
    kind: "end",
    bad: Boolean(replay.failed),
    text: replay.outcome ? `End: ${words(replay.outcome).toLowerCase()}` : "End",
  };
  return [...events, end].sort((first, second) => first.time - second.time);
}

function streetEvents(frames, times) {
  const own = frames.map((frame) => frame.vehicles?.find((car) => car.id === frame.ego));
  const collisions = runs(frames.map((frame) => (frame.collisions ?? []).length > 0)).map(([start]) => ({
    time: times[start],
    kind: "collision",
    bad: true,
    text: `Collision with ${metBy(frames[start])}`,
  }));
  const brakings = joined(runs(own.map((car) => Boolean(car?.brake))), times, PAUSE_IN_BRAKING)
    .filter(([start, stop]) => times[stop] - times[start] >= SHORTEST_BRAKING)
    .map(([start]) => ({ time: times[start], kind: "brake", bad: false, text: "Brakes" }));
  const isFast = own.map((car, index) => car !== undefined && car.speed > frames[index].limit * TOLERANCE);
  const speedings = joined(runs(isFast), times, PAUSE_IN_BRAKING).map(([start]) => ({
    time: times[start],
    kind: "speeding",
    bad: true,
    text: "Above the limit",
  }));
  return [...collisions, ...brakings, ...speedings];
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
    runs(replay.frames.map((frame) => frame.drawing?.at?.[object.id] !== undefined)).map(([start]) => ({
      time: times[start],
      kind: "collision",
      bad: true,
      text: words(object.id.replaceAll("-", " ")),
    })),
  );
}

function rewards(frames, times) {
  const marked = frames.map((frame, index) => [frame.reward, times[index]]).filter(([reward]) => reward);
  if (marked.length > Math.min(MOST_REWARDS, frames.length / 3)) return [];
  return marked.map(([reward, time]) => ({
    time,
    kind: "reward",
    bad: reward < 0,
    text: `Reward ${reward > 0 ? "+" : ""}${figure(reward)}`,
  }));
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
