// Groups of a street's observations: those that explain a drive first, those that seldom do folded at first.

/** Title, names of car_street's observations, and whether the group is folded until it is asked for. */
const STREET_GROUPS = [
  ["Light and stop line", ["stop_line", "light_red", "light_yellow"], false],
  ["Conflict", ["conflict", "conflict_ego_dist", "conflict_foe_dist", "conflict_foe_speed"], false],
  ["Ahead", ["lead_present", "lead_gap", "lead_rel_speed", "lead_accel"], false],
  ["Behind", ["rear_gap", "rear_rel_speed"], false],
  ["Left lane", ["left_open", "left_lead_gap", "left_lead_rel_speed", "left_rear_gap", "left_rear_rel_speed"], false],
  [
    "Right lane",
    ["right_open", "right_lead_gap", "right_lead_rel_speed", "right_rear_gap", "right_rear_rel_speed"],
    false,
  ],
  ["Own motion", ["speed", "speed_limit", "accel"], false],
  [
    "Lane and route",
    ["lane_offset", "lane_index", "lane_count", "route_lane_shift", "route_lane_left", "route_left"],
    true,
  ],
];

/** Return the observations of a street by group, in the groups' order; those that are in no group come last. */
export function grouped(signals) {
  const known = new Map(signals.map((signal) => [signal.name, signal]));
  const placed = STREET_GROUPS.flatMap(([group, names, folded]) =>
    names.flatMap((name) => (known.has(name) ? [{ ...known.get(name), group, folded }] : [])),
  );
  const names = new Set(placed.map((signal) => signal.name));
  return [...placed, ...signals.filter((signal) => !names.has(signal.name))];
}
