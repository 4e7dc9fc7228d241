// Chart of a signal: lines over time on a small canvas, drawn once; a cursor above it shows the present time.

import { rangeOf } from "./signals.js";

/** Pixels above and below the line. */
const MARGIN_DOWN = 5;

/**
 * Draw the columns of a chart: each over its own times, all in one range, in the palette's colours of series.
 *
 * Where there are more values than pixels, the least and the greatest of each pixel are drawn.
 */
export function drawChart(canvas, series, duration, held, palette) {
  const fitted = fit(canvas);
  if (!fitted) return;
  const { context, width, height } = fitted;
  const [low, high] = rangeOf(series.map(({ values }) => values));
  // Halves: the difference of two finite numbers may be beyond every float.
  const half = high / 2 - low / 2;
  const across = (time) => (duration > 0 ? (time / duration) * width : 0);
  const down = (value) =>
    half > 0 ? height - MARGIN_DOWN - ((value / 2 - low / 2) / half) * (height - 2 * MARGIN_DOWN) : height / 2;
  if (low < 0 && high > 0) drawZero(context, down(0), width, palette);
  series.forEach(({ values, times }, number) => {
    context.strokeStyle = context.fillStyle = palette.series[number % palette.series.length];
    context.setLineDash(number === 0 ? [] : [4, 3]);
    drawLine(context, values, times, { across, down, held, width });
  });
  context.setLineDash([]);
}

/** Draw when a yes or no is a yes: a bar for each such time; one row for each column. */
export function drawBand(canvas, series, duration, palette) {
  const fitted = fit(canvas);
  if (!fitted) return;
  const { context, width, height } = fitted;
  const rowHeight = height / series.length;
  series.forEach(({ values, times }, number) => {
    const top = number * rowHeight + 1;
    const across = (time) => (duration > 0 ? (time / duration) * width : 0);
    context.fillStyle = palette.line;
    context.fillRect(0, top, width, rowHeight - 2);
    context.fillStyle = palette.series[number % palette.series.length];
    for (let start = 0; start < values.length; start += 1) {
      if (values[start] !== 1) continue;
      let stop = start;
      while (stop + 1 < values.length && values[stop + 1] === 1) stop += 1;
      const [left, right] = [across(times[start]), across(times[Math.min(stop + 1, values.length - 1)])];
      context.fillRect(left, top, Math.max(right - left, 2), rowHeight - 2);
      start = stop;
    }
  });
}

/** Fit a canvas to its place, and return its context in CSS pixels and its size; null if it has none. */
function fit(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  if (width === 0 || height === 0) return null;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

function drawZero(context, y, width, palette) {
  context.strokeStyle = palette.line;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
}

function drawLine(context, values, times, { across, down, held, width }) {
  context.lineWidth = 1.6;
  context.lineJoin = "round";
  context.beginPath();
  let points = 0;
  let isBroken = true;
  let last = 0;
  const point = (x, y) => {
    if (isBroken) context.moveTo(x, y);
    else {
      if (held) context.lineTo(x, last);
      context.lineTo(x, y);
    }
    isBroken = false;
    last = y;
    points += 1;
  };
  const stride = Math.max(1, Math.floor(values.length / Math.max(width * 2, 1)));
  for (let start = 0; start < values.length; start += stride) {
    const [least, greatest] = extremes(values, start, Math.min(start + stride, values.length));
    if (least < 0) {
      isBroken = true;
      continue;
    }
    for (const at of least < greatest ? [least, greatest] : [greatest, least]) point(across(times[at]), down(values[at]));
  }
  context.stroke();
  if (points > 0 && points <= 2) {
    context.beginPath();
    context.arc(Math.min(Math.max(across(times.at(-1)), 3), width - 3), last, 3, 0, 2 * Math.PI);
    context.fill();
  }
}

/** Return the places of the least and the greatest number in a part of a column, or -1 if it has none. */
function extremes(values, start, stop) {
  let least = -1;
  let greatest = -1;
  for (let at = start; at < stop; at += 1) {
    if (Number.isNaN(values[at])) continue;
    if (least < 0 || values[at] < values[least]) least = at;
    if (greatest < 0 || values[at] > values[greatest]) greatest = at;
  }
  return [least, greatest];
}
