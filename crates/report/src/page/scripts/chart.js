// Drawing of a figure of curves as SVG, for a state of its controls.

const SHAPES = ["circle", "square", "up", "diamond", "down", "cross"];
const COLOURS = 10;
const DASHES = ["", "6 3", "2 2.5", "8 3 2 3"];
const LINE_STYLES = 4; // of the reference lines of the sides of a comparison
const MARK_RADIUS = 3.6;
const PUBLISHED_RADIUS = 4.8; // visible around a mark of ours
const BEYOND = 14; // distance from the end of the axis of a published value beyond it
const MOST_MARKS = 40; // values up to which a curve has marks
const MARKED_SHARES = [0.9, 0.5, 0.2, 0.05, 0.01]; // of values above the mark, in a distribution

// Returns the outline of a mark.
function markPath(shape, x, y, r) {
  const closed = (points) =>
    `M${points.map(([dx, dy]) => `${(x + dx * r).toFixed(2)} ${(y + dy * r).toFixed(2)}`).join("L")}Z`;
  switch (shape) {
    case "square":
      return closed([
        [-0.9, -0.9],
        [0.9, -0.9],
        [0.9, 0.9],
        [-0.9, 0.9],
      ]);
    case "up":
      return closed([
        [0, -1.2],
        [1.1, 0.8],
        [-1.1, 0.8],
      ]);
    case "diamond":
      return closed([
        [0, -1.3],
        [1.3, 0],
        [0, 1.3],
        [-1.3, 0],
      ]);
    case "down":
      return closed([
        [0, 1.2],
        [1.1, -0.8],
        [-1.1, -0.8],
      ]);
    case "cross":
      return closed([
        [-0.35, -1.1],
        [0.35, -1.1],
        [0.35, -0.35],
        [1.1, -0.35],
        [1.1, 0.35],
        [0.35, 0.35],
        [0.35, 1.1],
        [-0.35, 1.1],
        [-0.35, 0.35],
        [-1.1, 0.35],
        [-1.1, -0.35],
        [-0.35, -0.35],
      ]);
    default:
      return `M${x - r} ${y}A${r} ${r} 0 1 0 ${x + r} ${y}A${r} ${r} 0 1 0 ${x - r} ${y}Z`;
  }
}

// Returns whether a figure has curves of several sides.
function hasSides(figure) {
  return figure.curves.some(({ side }) => side > 0);
}

// Returns the style of a curve. Dashes tell the sides of a comparison apart; in other figures, they differ beyond six
// colours, whose marks differ.
function curveStyle({ colour, side }, isComparison) {
  const dash = isComparison ? side : Math.floor(colour / SHAPES.length);
  return {
    className: `series colour-${colour % COLOURS} side-${side}`,
    shape: SHAPES[(colour + 3 * side) % SHAPES.length],
    dash: DASHES[dash % DASHES.length],
  };
}

// Returns the class of a reference line: of a side, or of a published value.
function lineClass(side, isPublished) {
  return isPublished ? "reference published" : `reference line-${side % LINE_STYLES}`;
}

// Draws a figure. `values` are its curves in the mode of the state, see `valuesOf`. Returns the element and the positions
// of all values, or null if a value has no position.
function drawChart(figure, values, state, width) {
  const layout = layOut(figure, values, state, width);
  if (layout === null) return null;
  const { height, left, right, top, bottom } = layout;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  picture.append(svg("text", { class: "label", x: 4, y: 14 }, values.label));
  picture.append(
    svg("text", { class: "label", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, figure.x.label),
  );
  drawGrid(picture, layout);
  for (const { name, value, side, isPublished } of values.lines) {
    if (!layout.isWithin(value)) continue;
    const y = layout.y(value);
    const className = lineClass(side, isPublished);
    picture.append(svg("line", { class: className, x1: left, x2: right, y1: y, y2: y }, svg("title", {}, name)));
  }
  const positions = [];
  for (const curve of values.curves) {
    if (!state.hidden.has(curve.index)) picture.append(drawCurve(figure, curve, layout, state, positions));
  }
  for (const curve of values.published) picture.append(drawPublished(figure, curve, layout, positions));
  picture.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  picture.append(svg("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom }));
  return { picture, positions, layout };
}

// Returns the axes and the positions of the parts of a figure.
function layOut(figure, values, state, width) {
  const shown = values.curves.filter((curve) => !state.hidden.has(curve.index));
  const marks = shown.flatMap((curve) => curve.marks);
  const published = values.published.flatMap((curve) => curve.marks);
  const ofX = marks.length > 0 ? marks : values.curves.flatMap((curve) => curve.marks);
  const xs = [...ofX, ...published].map((mark) => mark.x);
  let ys = marks.flatMap((mark) => [mark.y, mark.low ?? mark.y, mark.high ?? mark.y]);
  ys.push(...values.lines.filter((line) => !line.isPublished).map((line) => line.value));
  ys.push(...shown.flatMap((curve) => curve.dots ?? []).map((dot) => dot.y));
  if (isLogarithmic(state.y)) ys = ys.filter((y) => y > 0);
  const publishedLines = values.lines.filter((line) => line.isPublished).map((line) => line.value);
  ys.push(...readable(state.y, ys, [...published.map((mark) => mark.y), ...publishedLines]));
  const ranks = new Map(shown.map((curve, rank) => [curve, rank]));
  for (const curve of values.published) {
    const ours = shown.find((one) => one.level === curve.level && one.metric === curve.metric);
    ranks.set(curve, ours === undefined ? ranks.size : ranks.get(ours));
  }
  const places = new Set(ranks.values()).size;
  const xAxis = makeAxis(state.x, xs, { levels: figure.x.levels, isBytes: figure.x.bytes });
  const yAxis = makeAxis(state.y, ys.length > 0 ? ys : [1]);
  if (xAxis === null || yAxis === null) return null;
  const top = 26;
  const plotHeight = Math.min(340, Math.max(220, width * 0.42));
  const yTicks = yAxis.ticks(plotHeight, false);
  const left = 14 + CHARACTER * Math.max(2, ...yTicks.map((tick) => (tick.label ?? "").length));
  const right = width - 12;
  const xTicks = xAxis.ticks(right - left, true);
  const longest = Math.max(0, ...xTicks.map((tick) => (tick.label ?? "").length)) * CHARACTER;
  const isSlanted = state.x === "category" && longest > ((right - left) / Math.max(1, xTicks.length)) * 0.95;
  const bottom = top + plotHeight;
  const height = bottom + (isSlanted ? Math.min(longest * 0.6, 110) + 18 : 24) + 22;
  return {
    width,
    height,
    left,
    right,
    top,
    bottom,
    xTicks,
    yTicks,
    isSlanted,
    yAxis,
    isJoined:
      state.x !== "category" || (figure.x.numbers.length > 1 && figure.x.numbers.length === figure.x.levels.length),
    // The offset of the marks of a curve to the right of their position.
    shift: (curve) => {
      const slot = (right - left) / Math.max(1, figure.x.levels.length);
      return (ranks.get(curve) - (places - 1) / 2) * Math.min((slot * 0.7) / places, 11);
    },
    isWithin: (value) => {
      const at = yAxis.position(value);
      return at >= 0 && at <= 1;
    },
    x: (value) => left + xAxis.position(value) * (right - left),
    y: (value) => bottom - yAxis.position(value) * plotHeight,
  };
}

function drawGrid(picture, layout) {
  const { left, right, top, bottom } = layout;
  for (const tick of layout.yTicks) {
    const y = bottom - tick.at * (bottom - top);
    picture.append(
      svg("line", { class: tick.label === null ? "minor" : "major", x1: left, x2: right, y1: y, y2: y }),
    );
    if (tick.label !== null)
      picture.append(svg("text", { class: "tick", x: left - 6, y: y + 4, "text-anchor": "end" }, tick.label));
  }
  for (const tick of layout.xTicks) {
    const x = left + tick.at * (right - left);
    if (tick.label === null) {
      picture.append(svg("line", { class: "minor", x1: x, x2: x, y1: top, y2: bottom }));
      continue;
    }
    picture.append(svg("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
    const place = layout.isSlanted
      ? { x: x + 4, y: bottom + 14, "text-anchor": "end", transform: `rotate(-40 ${x + 4} ${bottom + 14})` }
      : { x, y: bottom + 18, "text-anchor": "middle" };
    picture.append(svg("text", { class: "tick", ...place }, tick.label));
  }
}

// Draws a curve and adds the positions of its values. Between names there is nothing to show, so marks of curves are drawn
// side by side.
function drawCurve(figure, curve, layout, state, positions) {
  const style = curveStyle(curve, hasSides(figure));
  const group = svg("g", { class: style.className, "data-series": curve.name });
  const shift = layout.isJoined ? 0 : layout.shift(curve);
  const place = (mark) => [
    layout.x(mark.x) + shift,
    isLogarithmic(state.y) && mark.y <= 0 ? layout.bottom : layout.y(mark.y),
  ];
  for (const mark of curve.marks) {
    if (mark.low === null || mark.high === null) continue;
    const [x] = place(mark);
    const [low, high] = [mark.low, mark.high].map((y) =>
      isLogarithmic(state.y) && y <= 0 ? layout.bottom : layout.y(y),
    );
    group.append(svg("path", { class: "interval", d: `M${x} ${low}V${high}M${x - 3} ${low}h6M${x - 3} ${high}h6` }));
  }
  const places = curve.marks.map(place);
  if (layout.isJoined && places.length > 1) {
    const d = `M${places.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L")}`;
    group.append(svg("path", { class: "line", d, "stroke-dasharray": style.dash || undefined }));
  }
  for (const dot of curve.dots ?? []) {
    if (isLogarithmic(state.y) && dot.y <= 0) continue;
    const jitter = (((dot.round * 0.618) % 1) - 0.5) * 9;
    group.append(
      svg("circle", {
        class: dot.isUsed ? "dot" : "dot unused",
        cx: layout.x(dot.x) + shift + jitter,
        cy: layout.y(dot.y),
        r: 1.8,
      }),
    );
  }
  const marked = markedIndices(figure, curve);
  curve.marks.forEach((mark, index) => {
    const [x, y] = places[index];
    positions.push({ x, y, curve, mark });
    if (marked.has(index)) {
      const className = mark.isUnresolved ? "mark unresolved" : "mark";
      group.append(svg("path", { class: className, d: markPath(style.shape, x, y, MARK_RADIUS) }));
    }
  });
  return group;
}

// Draws published values: hollow marks without a line, at the end of the axis those beyond it, with an arrow.
function drawPublished(figure, curve, layout, positions) {
  const style = curveStyle({ colour: curve.colour, side: 0 }, hasSides(figure));
  const group = svg("g", { class: `${style.className} published`, "data-published": curve.name });
  const shift = layout.isJoined ? 0 : layout.shift(curve);
  for (const mark of curve.marks) {
    const x = layout.x(mark.x) + shift;
    let y = layout.y(mark.y);
    if (!layout.isWithin(mark.y)) {
      const to = y < layout.top ? -1 : 1;
      y = to < 0 ? layout.top + BEYOND : layout.bottom - BEYOND;
      const [foot, tip] = [y + to * (BEYOND - 6), y + to * (BEYOND - 2)];
      group.append(svg("path", { class: "arrow", d: `M${x - 3.5} ${foot}L${x} ${tip}L${x + 3.5} ${foot}` }));
    }
    positions.push({ x, y, curve, mark });
    group.append(svg("path", { class: "mark", d: markPath(style.shape, x, y, PUBLISHED_RADIUS) }));
  }
  return group;
}

// Returns the indices of the values of a curve that have marks.
function markedIndices(figure, curve) {
  if (figure.x.levels.length === 0) {
    const at = MARKED_SHARES.map((share) => curve.marks.findIndex((mark) => mark.y <= share));
    return new Set(at);
  }
  return new Set(curve.marks.length <= MOST_MARKS ? curve.marks.keys() : []);
}
