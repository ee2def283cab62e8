// Tables of an experiment: its values, its factors and its list of points, made when a reader opens them.

function tableOf(columns, rows, labels, className) {
  const head = html("tr");
  for (const [title, isNumber] of columns)
    head.append(html("th", { scope: "col", class: isNumber ? "number" : undefined }, title));
  const body = html("tbody");
  for (const cells of rows) {
    const row = html("tr");
    cells.forEach((cell, at) => {
      const isBest = Array.isArray(cell);
      const classes = [columns[at][1] ? "number" : "", isBest ? "best" : ""].filter((name) => name !== "").join(" ");
      // A cell without text names nothing.
      const element =
        at < labels && cell !== ""
          ? html("th", { scope: "row", class: classes || undefined })
          : html("td", { class: classes || undefined });
      row.append(filled(element, {}, cellParts(isBest ? cell[0] : cell)));
    });
    body.append(row);
  }
  return html("table", { class: className }, html("thead", {}, head), body);
}

// Returns a number, and half its interval in small letters.
function cellParts(text) {
  const [, number, rest] = /^(\S+(?: [^±\s]+)*) (±.*)$/.exec(text) ?? [null, text, ""];
  return rest === "" ? [number] : [number, " ", html("small", {}, rest)];
}

function scrolling(label, table) {
  return html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

function valueTables(experiment) {
  const parts = [];
  experiment.tables.forEach((table, index) => {
    if (table.caption !== "") parts.push(html("p", { class: "caption" }, table.caption));
    if (table.part !== "") parts.push(html("p", { class: "part" }, table.part));
    const label = `${experiment.id}, table ${index + 1}: ${table.part || table.caption}`;
    parts.push(scrolling(label, tableOf(table.columns, table.rows, table.labels, "values")));
  });
  parts.push(html("ul", { class: "notes" }, ...experiment.marks.map((mark) => html("li", {}, mark))));
  return parts;
}

function factorTable(experiment) {
  const columns = [
    ["factor", false],
    ["levels", false],
    ["description", false],
  ];
  return [scrolling(`Factors of ${experiment.id}`, tableOf(columns, experiment.factors, 1, "factors"))];
}

// Adds the content of closed details when they open.
function watchTables() {
  const bySlug = new Map(page.experiments.map((one) => [one.slug, one]));
  for (const [name, content] of [
    ["tables", valueTables],
    ["factors", factorTable],
    ["list", listOf],
  ]) {
    for (const details of document.querySelectorAll(`details[data-${name}]`)) {
      const fill = () => {
        if (!details.open || details.dataset.filled) return;
        details.dataset.filled = "yes";
        details.append(...content(bySlug.get(details.dataset[name])));
      };
      details.addEventListener("toggle", fill);
    }
  }
}
