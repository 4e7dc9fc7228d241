// Paths of what does not move on a street: lanes with their edges, junctions, pavements, crossings, stop lines.

/** Return the paths of what does not move, in metres, by width where widths differ. */
export function staticPaths(scene) {
  const edges = new Path2D();
  const dividers = new Path2D();
  for (const lane of scene.lanes) {
    const half = lane.width / 2;
    if (lane.rank === 0) edges.addPath(line(beside(lane.shape, -half + 0.15)));
    (lane.rank + 1 < lane.count ? dividers : edges).addPath(line(beside(lane.shape, half)));
  }
  const junctions = new Path2D();
  for (const shape of scene.junctions) {
    const outline = line(shape);
    outline.closePath();
    junctions.addPath(outline);
  }
  return {
    edges,
    dividers,
    junctions,
    lanes: byWidth(scene.lanes),
    pavements: byWidth(scene.pavements ?? []),
    crossings: byWidth(scene.crossings ?? []),
    stops: (scene.stops ?? []).map(stopLine),
  };
}

/** Return a stop line across its lane, and the direction of traffic before it. */
function stopLine(stop) {
  const [[fromX, fromY], [x, y]] = stop.at;
  const length = Math.hypot(x - fromX, y - fromY) || 1;
  const [ux, uy] = [(x - fromX) / length, (y - fromY) / length];
  const half = stop.width / 2 - 0.2;
  const path = line([
    [x - uy * half - ux * 0.4, y + ux * half - uy * 0.4],
    [x + uy * half - ux * 0.4, y - ux * half - uy * 0.4],
  ]);
  return { lane: stop.lane, light: stop.light, x, y, ux, uy, path };
}

function byWidth(strips) {
  const paths = new Map();
  for (const strip of strips) {
    if (!paths.has(strip.width)) paths.set(strip.width, new Path2D());
    paths.get(strip.width).addPath(line(strip.shape));
  }
  return paths;
}

function line(points) {
  const path = new Path2D();
  points.forEach((point, index) => {
    const [x, y] = Array.isArray(point) ? point : [point.x, point.y];
    if (index === 0) path.moveTo(x, y);
    else path.lineTo(x, y);
  });
  return path;
}

/** Return a polyline at a distance in metres, to the left if positive. */
function beside(shape, offset) {
  return shape.map(([x, y], index) => {
    const before = shape[Math.max(0, index - 1)];
    const after = shape[Math.min(shape.length - 1, index + 1)];
    const [dx, dy] = [after[0] - before[0], after[1] - before[1]];
    const length = Math.hypot(dx, dy) || 1;
    return [x - (dy / length) * offset, y + (dx / length) * offset];
  });
}
