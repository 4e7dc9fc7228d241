// Scale of an axis that is drawn without uPlot: ends with few digits, and where a value is between them.

/** Part of the axis that is left free at each end, in percent of it: a mark at an end is whole. */
const MARGIN = 2;

/** Return the scale of numbers: its ends, `place` of a value in percent, and `labels` where there is little room. */
export function scaleOf(values) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) {
    const half = Math.abs(low) / 2 || 0.5;
    [low, high] = [low - half, low + half];
  }
  const step = roundStep((high - low) / 20);
  const end = (value, rounded) => Number((rounded(Number((value / step).toFixed(9))) * step).toPrecision(12));
  [low, high] = [end(low, Math.floor), end(high, Math.ceil)];
  const place = (value) => Number((MARGIN + ((100 - 2 * MARGIN) * (value - low)) / (high - low)).toFixed(2));
  const middle = place(0) > 20 && place(0) < 80 ? [0] : [];
  return { low, high, place, labels: [low, ...middle, high] };
}

/** Return the least number that is 1, 2, 5 or 10 times a power of ten and not below a width. */
function roundStep(width) {
  const power = 10 ** Math.floor(Math.log10(width));
  return [1, 2, 5, 10].find((factor) => factor * power >= width * (1 - 1e-9)) * power;
}
