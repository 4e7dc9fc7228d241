// Times of the frames of a replay, and the frame at a time.

/** Return the seconds of each frame, ascending: those that frames have, or else multiples of the document's `dt`. */
export function timesOf(replay) {
  const frames = replay.frames ?? [];
  const dt = Number(replay.dt) > 0 ? Number(replay.dt) : 1;
  const times = Float64Array.from(frames, (frame) => Number(frame.time ?? NaN));
  const start = times[0];
  for (let index = 0; index < times.length; index += 1) {
    if (!Number.isFinite(times[index]) || (index > 0 && times[index] <= times[index - 1])) {
      return Float64Array.from(frames, (_, number) => number * dt);
    }
  }
  return times.map((time) => time - start);
}

/** Return the index of the last frame that is not after a time. Binary search. */
export function frameAt(times, time) {
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    // A slider's value is rounded: a frame counts from a microsecond before its time.
    if (times[middle] <= time + 1e-6) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Return the frame before a time, the one after it, and the share of the way between them, from 0 to 1. */
export function between(times, time) {
  const index = frameAt(times, time);
  const next = Math.min(index + 1, times.length - 1);
  const length = times[next] - times[index];
  return { index, next, share: length > 0 ? Math.min(Math.max((time - times[index]) / length, 0), 1) : 0 };
}

/** Return the median distance of frames in seconds. */
export function distanceOf(times) {
  return times.length > 1 ? times[times.length - 1] / (times.length - 1) : 1;
}
