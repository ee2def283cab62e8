// Samples: columns per experiment, decoded on demand, and their CSV.

const loadedSamples = new Map();

// Returns the columns of an experiment, which are decompressed once.
function loadSamples(slug) {
  if (!loadedSamples.has(slug)) loadedSamples.set(slug, decode(`samples-${slug}`).then(withValues));
  return loadedSamples.get(slug);
}

// Replaces the steps of values by the values, in place.
function withValues(table) {
  for (const [metric, { exponents, steps }] of Object.entries(table.values)) {
    const previous = exponents.map(() => 0);
    table.values[metric] = steps.map((step, index) => {
      if (step === null) return null;
      const point = table.point[index];
      previous[point] += step;
      return Number(`${previous[point]}e${exponents[point]}`);
    });
  }
  return table;
}

// Returns the text of a column with repeating texts.
function textAt(column, index) {
  const at = column.index[index];
  return at === 0 ? "" : column.texts[at - 1];
}

// Returns the rounds of a point as objects of the value of a metric and the state of its sample.
function roundsOfPoint(table, point, metric) {
  const values = table.values[metric] ?? [];
  const rounds = [];
  for (let index = 0; index < table.point.length; index += 1) {
    if (table.point[index] !== point || table.twin[index] || typeof values[index] !== "number") continue;
    rounds.push({ round: table.round[index], value: values[index], state: textAt(table.state, index) });
  }
  return rounds;
}

// Returns the columns of a table as names with functions of the index.
function csvColumns(table) {
  const plain = ["twin", "round", "session", "position", "attempt", "at", "seconds", "core_mhz"];
  const texts = ["state", "environment", "void", "error", "why"];
  const columns = [
    ["run", () => table.run],
    ["experiment", () => table.experiment],
  ];
  table.factors.forEach((factor, at) => columns.push([factor, (index) => table.points[table.point[index]][at]]));
  for (const name of plain) columns.push([name, (index) => table[name][index]]);
  for (const [name, values] of Object.entries(table.values)) columns.push([name, (index) => values[index]]);
  for (const [name, column] of Object.entries(table.covariates)) {
    columns.push([`covariate.${name}`, (index) => textAt(column, index)]);
  }
  for (const name of texts) columns.push([name, (index) => textAt(table[name], index)]);
  return distinctNames(columns);
}

// Numbers the later of two columns of the same name, e.g. round.2.
function distinctNames(columns) {
  const seen = new Set();
  return columns.map(([name, cell]) => {
    let distinct = name;
    for (let number = 2; seen.has(distinct); number += 1) distinct = `${name}.${number}`;
    seen.add(distinct);
    return [distinct, cell];
  });
}

// Returns a text as a cell that no spreadsheet takes for a formula. The texts of samples are such cells already.
function csvName(name) {
  return csvField(/^[=+\-@\t\r']/.test(name) ? `'${name}` : name);
}

function csvField(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// Returns tables as lines of CSV, with the columns of all of them.
function samplesCsv(tables) {
  const ofTables = tables.map((table) => new Map(csvColumns(table)));
  const names = [...new Set(ofTables.flatMap((columns) => [...columns.keys()]))];
  const lines = [names.map(csvName).join(",")];
  tables.forEach((table, at) => {
    const cells = names.map((name) => ofTables[at].get(name) ?? (() => ""));
    for (let index = 0; index < table.point.length; index += 1) {
      lines.push(cells.map((cell) => csvField(cell(index))).join(","));
    }
  });
  return lines.map((line) => `${line}\r\n`);
}

// Saves the samples of an experiment, or all.
async function downloadSamples(which) {
  const samples = which === "all" ? page.samples : page.samples.filter((one) => one.slug === which);
  const tables = await Promise.all(samples.map((one) => loadSamples(one.slug)));
  const runs = [...new Set(samples.map((one) => one.run))];
  const name = which === "all" ? runs.join("-and-") : samples[0].file;
  download(`${name}.csv`, "text/csv", samplesCsv(tables));
}
