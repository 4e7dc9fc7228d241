// Text of numbers, times and names, as all parts of a replay show them.

/** Return a number with so many significant digits, without trailing zeros. */
export function figure(value, digits = 4) {
  if (typeof value !== "number" || !Number.isFinite(value)) return String(value ?? "–");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

/** Return a number with its unit; a unit may be empty. */
export function quantity(value, unit) {
  return unit ? `${figure(value)} ${unitText(unit)}` : figure(value);
}

/** Return a unit as readers know it: with raised powers (`m/s2`), and nothing for counts. */
export function unitText(unit) {
  if (!unit || unit === "count") return "";
  return String(unit).replace(/(?<=[a-z])2\b/g, "²").replace(/(?<=[a-z])3\b/g, "³");
}

/** Return seconds with as many decimals as frames of this distance need: one, or two below 0.1 s. */
export function seconds(value, distance = 0.1) {
  return value.toFixed(distance < 0.0999 ? 2 : 1);
}

/** Return the words of an identifier: `route_completion` as "Route completion". */
export function words(name) {
  const text = String(name).replaceAll("_", " ").trim();
  return text.charAt(0).toUpperCase() + text.slice(1);
}
