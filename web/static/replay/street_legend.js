// Legend of a street: the colours of those who are in a replay.

/** Kind of the vehicles of an event. */
export const ACTOR = "actor";
/** Words for the kinds of vehicles, besides the model's car. */
const DRIVERS = {
  calm: "calm driver",
  normal: "normal driver",
  aggressive: "aggressive driver",
  truck: "truck",
  [ACTOR]: "actor of the event",
};

/** Tell whether a pedestrian is the one of the event `late_pedestrian`. */
export function isOfEvent(person) {
  return person.id === "late";
}

/** Return the entries for what the frames of a street have: text, form (`car`, `person`, `line`), `colour(palette)`. */
export function legendOf(frames) {
  const kinds = new Set();
  let [hasOwn, hasPeople] = [false, false];
  for (const { ego, vehicles, pedestrians } of frames) {
    for (const car of vehicles ?? []) {
      if (car.id === ego) hasOwn = true;
      else kinds.add(car.kind in DRIVERS ? car.kind : "normal");
    }
    for (const person of pedestrians ?? []) {
      hasPeople = true;
      if (isOfEvent(person)) kinds.add(ACTOR);
    }
  }
  const entry = (text, form, colour) => ({ text, form, colour: ({ scene }) => colour(scene) });
  const own = [entry("model's car", "car", (scene) => scene.ego), entry("its path", "line", (scene) => scene.trace)];
  const others = Object.keys(DRIVERS).filter((kind) => kinds.has(kind));
  return [
    ...(hasOwn ? own : []),
    ...(hasPeople ? [entry("pedestrian", "person", (scene) => scene.person)] : []),
    ...others.map((kind) => entry(DRIVERS[kind], "car", (scene) => scene.vehicles[kind])),
  ];
}
