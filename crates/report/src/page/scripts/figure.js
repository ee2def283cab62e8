// Figures: state, controls, legend, values under the pointer or chosen by keys.

const HOVER_DISTANCE = 40; // pixels

const views = new Map(); // by element

// Hides the values of all figures but the one that contains an element.
function hideOtherValues(element) {
  for (const view of views.values()) {
    if (!view.canvas.contains(element)) view.choose(null);
  }
}

class FigureView {
  constructor(container, figure) {
    this.container = container;
    this.figure = figure;
    this.isDistribution = figure.x.levels.length === 0;
    this.state = {
      x: figure.x.scale,
      y: figure.y.scale,
      base: null,
      hidden: new Set(),
      hasDots: false,
      hasPublished: true,
    };
    this.samples = new Map(); // by index in the data of the page
    this.chosen = null;
    this.canvas = this.makeCanvas();
    this.legend = html("div", { class: "legend", role: "group", "aria-label": figure.series || "Curves" });
    this.keys = html("div", { class: "legend keys" });
    container.replaceChildren(this.makeControls(), this.canvas, this.legend, this.keys, this.makeTable());
    this.fillLegend();
  }

  // Draws the figure for the present width.
  draw() {
    const width = Math.floor(this.canvas.clientWidth);
    if (width === 0) return;
    this.width = width;
    this.values = valuesOf(this.figure, this.state, this.samples);
    const drawn = drawChart(this.figure, this.values, this.state, width);
    if (drawn === null) return;
    this.positions = drawn.positions;
    this.canvas.replaceChildren(drawn.picture);
    this.keys.replaceChildren(...keysOf(this.figure, this.values));
    this.container.dataset.drawn = "yes";
  }

  makeCanvas() {
    const label = `${this.figure.title}. Arrow keys move between values.`;
    return html("div", {
      class: "canvas",
      tabindex: "0",
      role: "group",
      "aria-roledescription": "chart",
      "aria-label": label,
      pointermove: (event) => this.hover(event),
      pointerdown: (event) => this.hover(event),
      pointerleave: (event) => {
        // A lifted finger leaves, too: its value stays until a tap elsewhere.
        if (event.pointerType !== "touch") this.choose(null);
      },
      pointercancel: () => this.choose(null),
      keydown: (event) => this.key(event),
      blur: () => this.choose(null),
    });
  }

  makeControls() {
    const controls = html("div", { class: "controls" });
    const { figure, state } = this;
    const toggle = (name, isOn, change) => {
      const box = html("input", { type: "checkbox", "data-control": name, change: () => change(box.checked) });
      box.checked = isOn;
      controls.append(html("label", {}, box, ` ${name}`));
      return box;
    };
    const change = (axis, kind) => (isOn) => {
      state[axis] = isOn ? kind : "linear";
      this.draw();
    };
    const xs = figure.curves.flatMap((curve) => curve.marks.map((mark) => mark[0]));
    if (state.x !== "category" && xs.every((x) => x > 0)) {
      const kind = isLogarithmic(state.x) ? state.x : figure.x.bytes ? "log2" : "log10";
      toggle("logarithmic x", isLogarithmic(state.x), change("x", kind));
    }
    const ys = figure.curves.flatMap((curve) => curve.marks.map((mark) => mark[1]));
    if (ys.every((y) => y > 0)) {
      const kind = isLogarithmic(state.y) ? state.y : "log10";
      toggle("logarithmic y", isLogarithmic(state.y), change("y", kind));
    }
    // A figure of published values only has nothing else to show.
    if (figure.curves.length === 0) return controls;
    if (!this.isDistribution && figure.has_samples)
      this.dots = toggle("rounds as dots", false, (isOn) => this.setDots(isOn));
    const { published } = figure;
    if (published.curves.length + published.lines.length + published.ratios.length > 0) {
      toggle("published values", true, (isOn) => {
        state.hasPublished = isOn;
        this.draw();
      });
    }
    const bases = baseChoices(figure);
    if (bases.length > 0) controls.append(this.makeBases(bases));
    return controls;
  }

  makeBases(bases) {
    const choice = html("select", {
      "data-control": "values",
      change: () => {
        this.state.base = bases.find(({ value }) => value === choice.value) ?? null;
        this.allowDots(this.state.base === null);
        this.draw();
      },
    });
    choice.append(html("option", { value: "" }, "absolute"));
    for (const { value, name } of bases) choice.append(html("option", { value }, `relative to ${name}`));
    return html("label", {}, "values ", choice);
  }

  // A round has a value, and no ratio: ratios are medians over rounds.
  allowDots(isAllowed) {
    if (!this.dots) return;
    this.dots.disabled = !isAllowed;
    this.dots.parentElement.classList.toggle("disabled", !isAllowed);
    this.dots.parentElement.title = isAllowed ? "" : "rounds have absolute values only";
  }

  async setDots(isOn) {
    this.state.hasDots = isOn;
    if (isOn) {
      for (const { samples } of this.figure.curves)
        this.samples.set(samples, await loadSamples(page.samples[samples].slug));
    }
    this.draw();
  }

  fillLegend() {
    const { figure, state } = this;
    if (figure.curves.length < 2 && !figure.curves[0]?.name) return;
    if (figure.series) this.legend.append(html("span", { class: "title" }, figure.series));
    figure.curves.forEach((curve, index) => {
      const style = curveStyle(curve, hasSides(figure));
      const sample = svg(
        "svg",
        { class: style.className, width: 26, height: 12, "aria-hidden": "true" },
        svg("path", { class: "line", d: "M1 6H25", "stroke-dasharray": style.dash || undefined }),
        svg("path", { class: "mark", d: markPath(style.shape, 13, 6, MARK_RADIUS) }),
      );
      const entry = html(
        "button",
        {
          type: "button",
          "aria-pressed": "true",
          "data-series": curve.name,
          click: () => {
            const isHidden = state.hidden.has(index);
            if (isHidden) state.hidden.delete(index);
            else state.hidden.add(index);
            entry.setAttribute("aria-pressed", String(isHidden));
            this.draw();
          },
        },
        sample,
        ` ${curve.name || figure.y.label}`,
      );
      this.legend.append(entry);
    });
  }

  // Makes the table of values, which is filled when it is opened.
  makeTable() {
    const table = html("div", {
      class: "scroll",
      tabindex: "0",
      role: "region",
      "aria-label": `Values of ${this.figure.title}`,
    });
    const details = html(
      "details",
      {
        class: "values",
        toggle: () => {
          const content = this.isDistribution ? percentileTable : valueTable;
          if (details.open) table.replaceChildren(content(this.figure));
        },
      },
      html("summary", {}, "Values of the figure"),
      table,
    );
    return details;
  }

  // Shows the value nearest to the pointer.
  hover(event) {
    if (!this.positions) return;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const distance = (one) => Math.hypot(one.x - x, one.y - y);
    const nearest = this.positions.reduce(
      (best, one) => (best === null || distance(one) < distance(best) ? one : best),
      null,
    );
    this.choose(nearest !== null && distance(nearest) <= HOVER_DISTANCE ? nearest : null);
  }

  key(event) {
    if (!this.positions || this.positions.length === 0) return;
    if (event.key === "Escape") return this.choose(null);
    const next = neighbour(this.positions, this.chosen, event.key);
    if (next === null) return undefined;
    event.preventDefault();
    return this.choose(next);
  }

  // Marks a value and shows it in the tooltip; hides both without one.
  choose(position) {
    // A scrolled page has hidden the tooltip.
    if (position === this.chosen && (position === null || !tooltip.hidden)) return;
    this.chosen = position;
    this.canvas.querySelector(".chosen")?.remove();
    if (position === null) return hideTooltip();
    const ring = svg("circle", { class: "chosen", cx: position.x, cy: position.y, r: 7 });
    this.canvas.firstElementChild.append(ring);
    const box = this.canvas.getBoundingClientRect();
    showTooltip(markTitle(this.figure, position), position.mark.text, box.left + position.x, box.top + position.y);
  }
}

// Returns the entries of the legend that are not curves of ours: reference lines, levels with published values only, and
// the sources of published values.
function keysOf(figure, values) {
  const key = (className, content, name) => {
    const sample = svg("svg", { class: className, width: 26, height: 12, "aria-hidden": "true" }, content);
    return html("span", { class: "key" }, sample, ` ${name}`);
  };
  const lines = values.lines.filter((line) => line.name !== "").map(({ name, value, side, isPublished }) => {
    const line = svg("line", { class: lineClass(side, isPublished), x1: 1, x2: 25, y1: 6, y2: 6 });
    return key("", line, `${isPublished ? "published: " : ""}${name}: ${significant(value)} ${figure.y.unit}`.trimEnd());
  });
  const hollow = (shape) => svg("path", { class: "mark", d: markPath(shape, 13, 6, PUBLISHED_RADIUS) });
  const levels = values.published.filter((curve) => !curve.measured && curve.name !== "").map((curve) => {
    const style = curveStyle({ colour: curve.colour, side: 0 }, hasSides(figure));
    return key(`${style.className} published`, hollow(style.shape), `${curve.name} (published only)`);
  });
  const used = new Set(values.published.flatMap((curve) => curve.marks.map((mark) => mark.source)));
  const sources = figure.published.sources
    .filter((_, index) => used.has(index))
    .map((source) => key("series published source", hollow("circle"), `published: ${source}`));
  return [...lines, ...levels, ...sources];
}

// Names a value by its curve and its x.
function markTitle(figure, { curve, mark }) {
  if (figure.x.levels.length === 0) return curve.name || figure.title;
  return [curve.name, levelOf(figure, mark.x)].filter((part) => part !== "").join(", ");
}

// Returns the text of a level along x.
function levelOf(figure, x) {
  const index =
    figure.x.scale === "category"
      ? x
      : figure.x.numbers.findIndex((number) => Math.abs(number - x) <= 1e-5 * Math.abs(x));
  return figure.x.levels[index] ?? significant(x);
}

// Returns the value to which an arrow key moves: along the curve, or to the next curve at the nearest x.
function neighbour(positions, chosen, key) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[key];
  if (step === undefined) return null;
  if (chosen === null || !positions.includes(chosen)) return positions[0];
  if (key === "ArrowRight" || key === "ArrowLeft") {
    const ofCurve = positions.filter((one) => one.curve === chosen.curve);
    return ofCurve[Math.min(Math.max(ofCurve.indexOf(chosen) + step, 0), ofCurve.length - 1)];
  }
  const curves = [...new Set(positions.map((one) => one.curve))];
  const curve = curves[(curves.indexOf(chosen.curve) + step + curves.length) % curves.length];
  const ofCurve = positions.filter((one) => one.curve === curve);
  return ofCurve.reduce((best, one) => (Math.abs(one.x - chosen.x) < Math.abs(best.x - chosen.x) ? one : best));
}

// Returns the table of a figure: a row per level of x, a column per curve.
function valueTable(figure) {
  const all = [...figure.curves, ...figure.published.curves];
  const xs = [...new Set(all.flatMap((curve) => curve.marks.map((mark) => mark[0])))].sort((a, b) => a - b);
  const head = html("tr", {}, html("th", { scope: "col" }, figure.x.label));
  for (const curve of figure.curves) head.append(html("th", { scope: "col" }, curve.name || figure.y.label));
  const { sources, curves: published } = figure.published;
  for (const curve of published)
    head.append(html("th", { scope: "col" }, [curve.name, "published"].filter((part) => part !== "").join(", ")));
  const body = html("tbody");
  for (const x of xs) {
    const row = html("tr", {}, html("th", { scope: "row" }, levelOf(figure, x)));
    for (const curve of figure.curves)
      row.append(html("td", {}, curve.marks.find((mark) => mark[0] === x)?.[5] ?? "—"));
    for (const { marks } of published) {
      const mark = marks.find(([at]) => at === x);
      row.append(html("td", {}, mark === undefined ? "—" : `${mark[2]} (${sources[mark[3]]})`));
    }
    body.append(row);
  }
  return html("table", { class: "values" }, html("thead", {}, head), body);
}

// Returns a table of percentiles of a distribution: at the share of values above p, the first value of the curve.
function percentileTable(figure) {
  const percentiles = [50, 90, 99, 99.9];
  const titles = percentiles.map((percentile) => `p${percentile}`);
  const head = html("tr", {}, html("th", { scope: "col" }, figure.series || figure.x.label));
  for (const title of titles) head.append(html("th", { scope: "col" }, `${title}, ${figure.x.label}`));
  const body = html("tbody");
  for (const curve of figure.curves) {
    const row = html("tr", {}, html("th", { scope: "row" }, curve.name || figure.title));
    for (const percentile of percentiles) {
      // Shares are rounded in the data.
      const mark = curve.marks.find(([, y]) => y <= (1 - percentile / 100) * 1.001);
      row.append(html("td", {}, mark === undefined ? "—" : significant(mark[0], 4)));
    }
    body.append(row);
  }
  return html("table", { class: "values" }, html("thead", {}, head), body);
}

// Returns the choices of a base for relative values: levels of the series, or of x if there is a single one.
function baseChoices(figure) {
  if (figure.ratios.length === 0) return [];
  const levels = [...new Set(figure.curves.map((curve) => curve.level))];
  if (levels.length > 1) return levels.map((level) => ({ value: `level ${level}`, name: level }));
  const xs = [...new Set(figure.curves.flatMap((curve) => curve.marks.map((mark) => mark[0])))].sort((a, b) => a - b);
  return xs.map((x) => ({ value: `x ${x}`, name: levelOf(figure, x) }));
}

// Returns the values of a figure in the mode of its state: label of y, reference lines, and curves with marks and dots.
function valuesOf(figure, state, samples) {
  const marksOf = (curve) =>
    curve.marks.map(([x, y, low, high, point, text]) => ({
      x,
      y,
      low,
      high,
      point,
      text: text || `${significant(y, 4)} at ${significant(x, 4)}`,
    }));
  const curves = figure.curves.map((curve, index) => ({ ...curve, index, marks: marksOf(curve) }));
  if (state.base !== null) {
    const relative = relativeValues(figure, curves, state.base);
    return { ...relative, published: state.hasPublished ? relativePublished(figure.published, state.base) : [] };
  }
  if (state.hasDots) {
    for (const curve of curves.filter((one) => samples.has(one.samples))) {
      curve.dots = curve.marks
        .filter((mark) => mark.point !== null)
        .flatMap((mark) =>
          roundsOfPoint(samples.get(curve.samples), mark.point, curve.metric).map(
            ({ round, value, state: used }) => ({
              x: mark.x,
              y: value * figure.factor,
              round,
              isUsed: used === "used",
            }),
          ),
        );
    }
  }
  const lines = figure.lines.map(([name, value, side]) => ({ name, value, side, isPublished: false }));
  const published = state.hasPublished ? figure.published : { curves: [], lines: [] };
  lines.push(...published.lines.map(([name, value]) => ({ name, value, side: 0, isPublished: true })));
  return { label: figure.y.label, lines, curves, published: absolutePublished(published) };
}

function absolutePublished({ sources, curves }) {
  return curves.map((curve) => ({
    ...curve,
    marks: curve.marks.map(([x, y, text, source, claim]) => ({
      x,
      y,
      source,
      text: `published: ${text}; ${sources[source]}; ${claim}`,
    })),
  }));
}

// Returns the published values as ratios to a base: those whose source states the base, too, and published ratios to it.
function relativePublished({ sources, curves, ratios }, { name, value }) {
  const isLevel = value.startsWith("level ");
  const found = new Map();
  const add = ({ name: curve, level, metric, colour, measured }, x, ratio, source, claims) => {
    if (!found.has(curve)) found.set(curve, { name: curve, level, metric, colour, measured, marks: [] });
    const text = `published: ${significant(ratio)} times ${name}; ${sources[source]}; ${claims}`;
    found.get(curve).marks.push({ x, y: ratio, source, text });
  };
  for (const curve of curves) {
    for (const [x, y, , source, claim] of curve.marks) {
      const isBase = (of, at) =>
        of.metric === curve.metric && (isLevel ? of.level === name && at === x : of === curve && `x ${at}` === value);
      const bases = curves.flatMap((of) => of.marks.filter((one) => isBase(of, one[0]) && one[3] === source));
      if (bases.length === 1 && bases[0][4] !== claim) add(curve, x, y / bases[0][1], source, `${claim}, ${bases[0][4]}`);
    }
  }
  for (const one of ratios) {
    const isTo = isLevel
      ? one.base_level === name && one.base_x === one.x
      : one.base_level === one.level && `x ${one.base_x}` === value;
    if (isTo) add(one, one.x, one.ratio, one.source, one.claim);
  }
  return [...found.values()];
}

// Replaces values by their ratios to a base of the same side: a level of the series at the same x, or an x of the same
// curve. Ratios are those within rounds.
function relativeValues(figure, curves, base) {
  const ratios = new Map();
  for (const [a, b, ratio, low, high, isResolved, rounds, kind] of figure.ratios) {
    const inverse = (end) => (end === null ? null : 1 / end);
    ratios.set(`${a}/${b}`, { ratio, low, high, isResolved, rounds, kind });
    ratios.set(`${b}/${a}`, { ratio: 1 / ratio, low: inverse(high), high: inverse(low), isResolved, rounds, kind });
  }
  const all = [];
  for (const curve of curves) for (const mark of curve.marks) all.push({ curve, mark });
  const { name, value } = base;
  const isBase = (one, curve, mark) =>
    one.curve.side === curve.side &&
    one.curve.metric === curve.metric &&
    (value.startsWith("level ")
      ? one.curve.level === name && one.mark.x === mark.x
      : one.curve === curve && value === `x ${one.mark.x}`);
  all.forEach(({ curve, mark }, index) => {
    const of = all.findIndex((one) => isBase(one, curve, mark));
    const found = of === index ? { ratio: 1, low: null, high: null, isBase: true } : ratios.get(`${index}/${of}`);
    mark.y = found?.ratio ?? null;
    mark.low = found?.kind === "single" ? null : (found?.low ?? null);
    mark.high = found?.kind === "single" ? null : (found?.high ?? null);
    mark.isUnresolved = found !== undefined && !found.isBase && !found.isResolved;
    mark.text = found === undefined ? "" : ratioText(found, name);
  });
  for (const curve of curves) curve.marks = curve.marks.filter((mark) => mark.y !== null);
  return { label: `ratio to ${name}, within rounds`, lines: [{ name: "", value: 1, side: 0, isPublished: false }], curves };
}

function ratioText({ ratio, low, high, isBase, isResolved, rounds, kind }, name) {
  if (isBase) return `base of the ratios: ${name}`;
  const unresolved = isResolved ? "" : "; unresolved";
  const interval = {
    confidence: ` (${ends(low, high, significant)})`,
    range: ` (range ${ends(low, high, significant)})`,
  };
  return `${significant(ratio)} times ${name}${interval[kind] ?? ""}, ${count(rounds, "round")}${unresolved}`;
}
