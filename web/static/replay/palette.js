// Colours of canvases: of scenes for a light and for a dark page, and those that the page's custom properties set.

const LIGHT_SCENE = {
  ground: "#e4e9df",
  sky: "#f4f6f7",
  grass: "#e4e9df",
  earth: "#d5dacd",
  grid: "#d3d9d6",
  asphalt: "#5a616a",
  junction: "#626972",
  pavement: "#c9cbc6",
  paint: "#f4f4ef",
  outline: "#12181f",
  glass: "#12181f",
  ink: "#12181f",
  halo: "#00a6a6",
  person: "#c2187f",
  personRing: "#ffffff",
};
const DARK_SCENE = {
  ground: "#1b2124",
  sky: "#161c22",
  grass: "#1b2320",
  earth: "#2a322f",
  grid: "#2b343b",
  asphalt: "#3b424b",
  junction: "#424a54",
  pavement: "#4d5356",
  paint: "#c3c7c4",
  outline: "#0c1014",
  glass: "#12181f",
  ink: "#dfe6ec",
  halo: "#2fd0d0",
  person: "#ff7ac8",
  personRing: "#0c1014",
};
/** Colours that are equal on light and dark pages. */
const FIXED = {
  ego: "#00a6a6",
  trace: "#00bcbc",
  alarm: "#e5383b",
  brake: "#ff4d4f",
  good: "#2a9d5c",
  white: "#ffffff",
  spark: "#ffd166",
  vehicles: { calm: "#dfe4ea", normal: "#bcc6d2", aggressive: "#f0a830", truck: "#8796a8", actor: "#ef6c3a" },
  lights: { r: "#e5383b", u: "#f08c2e", y: "#f6c945", g: "#38b26c", s: "#e5383b" },
};
/** Colours of drawings by the role of a shape; roles that are not here are grey. */
const ROLES = {
  body: "#3d5a80",
  limb_1: "#e07a5f",
  limb_2: "#00a6a6",
  limb_3: "#f0a830",
  limb_4: "#7b6cc4",
  limb_5: "#81b29a",
  joint: "#ffffff",
  vehicle: "#bcc6d2",
  track: "#8796a8",
  mark: "#8796a8",
  object: "#f0a830",
  other: "#8a5cc9",
  board: "#3d5a80",
  first: "#e5383b",
  second: "#f6c945",
  clockwise: "#2a78c2",
  counterclockwise: "#d1495b",
};

/** Return the colours at an element: its computed custom properties, and the scene's for a light or a dark page. */
export function paletteOf(host) {
  const style = getComputedStyle(host);
  const property = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  const isDark = luminance(style.backgroundColor) < 0.4;
  const scene = { ...FIXED, ...(isDark ? DARK_SCENE : LIGHT_SCENE) };
  return {
    isDark,
    scene,
    roles: {
      ...ROLES,
      body: isDark ? "#6f94c4" : ROLES.body,
      ego: scene.ego,
      halo: scene.halo,
      glass: scene.glass,
      road: scene.asphalt,
      paint: scene.paint,
      limit: scene.alarm,
      alarm: scene.alarm,
      goal: scene.good,
      ground: scene.earth,
      floor: scene.grid,
      hole: scene.sky,
    },
    text: property("--replay-fg", "#16202a"),
    muted: property("--replay-muted", "#5b6672"),
    line: property("--replay-line", "#d5dbe1"),
    series: [property("--replay-accent", "#007c7c"), property("--replay-second", "#a34a06")],
  };
}

/** Return the colour of a role of a drawing. */
export function roleColour(palette, role) {
  return palette.roles[role] ?? "#6c757d";
}

/** Call a function whenever the page may have changed its colours: its attributes, the system's setting. */
export function watchTheme(changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(changed);
  const attributes = { attributes: true, attributeFilter: ["class", "data-theme", "style"] };
  dark.addEventListener("change", changed);
  for (const node of [document.documentElement, document.body]) observer.observe(node, attributes);
  return () => {
    dark.removeEventListener("change", changed);
    observer.disconnect();
  };
}

/** Return the relative brightness of a computed colour; transparent counts as white. */
function luminance(colour) {
  const numbers = (colour.match(/[\d.]+/g) ?? []).map(Number);
  if (numbers.length < 3 || numbers[3] === 0) return 1;
  const [red, green, blue] = colour.startsWith("color(") ? numbers : numbers.map((value) => value / 255);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
