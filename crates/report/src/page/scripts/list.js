// Lists: the points of an experiment with many, which the reader searches, filters and sorts.

const FIRST_ROWS = 200; // rows until the reader requests all

// Returns the text of a cell, which is alone or with its number.
function listText(cell) {
  return Array.isArray(cell) ? cell[0] : cell;
}

// Compares cells in a direction of 1 or -1; cells without a number are last.
function compareCells(one, other, isValue, direction) {
  if (!isValue) return direction * listText(one).localeCompare(listText(other), "en", { numeric: true });
  const [a, b] = [one, other].map((cell) => (Array.isArray(cell) ? cell[1] : null));
  if (a === null || b === null) return (a === null) - (b === null);
  return direction * (a - b);
}

class ListView {
  constructor(experiment) {
    this.slug = experiment.slug;
    this.columns = experiment.list.columns.map(([title, kind]) => ({ title, kind }));
    this.rows = experiment.list.rows;
    // What is searched: the texts that name a row.
    const named = this.columns.flatMap(({ kind }, at) => (kind === "value" ? [] : [at]));
    this.texts = this.rows.map((row) => named.map((at) => row[at]).join(" ").toLowerCase());
    this.sorted = null; // index of a column, and 1 or -1
    this.isWhole = false;
    this.body = html("tbody");
    this.more = html("button", { type: "button", class: "more", click: () => this.showAll() });
    this.form = this.makeForm();
    const table = html("table", { class: "values" }, html("thead", {}, this.makeHead()), this.body);
    this.parts = [this.form, scrolling(`${experiment.id}: list of points`, table), this.more];
    this.fill();
  }

  makeForm() {
    const id = (name) => `list-${this.slug}-${name}`;
    this.search = html("input", { id: id("search"), type: "search", autocomplete: "off" });
    this.count = html("output", { for: id("search") });
    this.choices = [];
    const fields = [html("div", { class: "text" }, html("label", { for: id("search") }, "Search"), this.search)];
    this.columns.forEach(({ title, kind }, at) => {
      if (kind !== "choice") return;
      const levels = [...new Set(this.rows.map((row) => row[at]))];
      const select = html("select", { id: id(title) }, html("option", { value: "" }, "all"));
      // The empty text is the value of 'all'.
      levels.forEach((level, number) => select.append(html("option", { value: `${number}` }, level || "none")));
      this.choices.push({ at, select, levels });
      fields.push(html("div", {}, html("label", { for: id(title) }, title), select));
    });
    const form = html("form", { class: "filter", role: "search", "aria-label": "Points" }, ...fields, this.count);
    form.addEventListener("input", () => this.fill());
    form.addEventListener("submit", (event) => event.preventDefault());
    return form;
  }

  makeHead() {
    const row = html("tr");
    this.heads = this.columns.map(({ title, kind }, at) => {
      const button = html("button", { type: "button", click: () => this.sort(at) }, title);
      const head = html("th", { scope: "col", class: kind === "value" ? "number" : undefined }, button);
      row.append(head);
      return head;
    });
    return row;
  }

  // Sorts by a column: ascending, then descending, then in the order of the declaration.
  sort(at) {
    const direction = this.sorted?.at === at ? -this.sorted.direction : 1;
    this.sorted = this.sorted?.at === at && this.sorted.direction === -1 ? null : { at, direction };
    this.heads.forEach((head, index) => {
      const isSorted = this.sorted?.at === index;
      if (isSorted) head.setAttribute("aria-sort", this.sorted.direction === 1 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.fill();
  }

  showAll() {
    this.isWhole = true;
    const first = this.body.rows.length;
    this.fill();
    // The button is gone; the keyboard continues in the rows that it added.
    const row = this.body.rows[Math.min(first, this.body.rows.length - 1)];
    row?.setAttribute("tabindex", "-1");
    row?.focus();
  }

  // Returns the rows that contain every word and have the chosen levels, in order.
  matching() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const chosen = this.choices.filter(({ select }) => select.value !== "");
    const rows = this.rows.filter(
      (row, index) =>
        words.every((word) => this.texts[index].includes(word)) &&
        chosen.every(({ at, select, levels }) => row[at] === levels[Number(select.value)]),
    );
    if (this.sorted === null) return rows;
    const { at, direction } = this.sorted;
    return rows.sort((one, other) => compareCells(one[at], other[at], this.columns[at].kind === "value", direction));
  }

  fill() {
    const rows = this.matching();
    const shown = this.isWhole ? rows : rows.slice(0, FIRST_ROWS);
    this.body.replaceChildren(...shown.map((row) => this.makeRow(row)));
    this.count.textContent = `${rows.length} of ${count(this.rows.length, "point")}`;
    this.more.hidden = shown.length === rows.length;
    this.more.textContent = `Show all ${rows.length}`;
  }

  makeRow(cells) {
    const row = html("tr");
    this.columns.forEach(({ kind }, at) => {
      // The first text after the group names the row.
      const isName = at === 1 && listText(cells[at]) !== "";
      const name = isName ? html("th", { scope: "row" }) : html("td", { class: kind === "value" ? "number" : undefined });
      row.append(filled(name, {}, cellParts(listText(cells[at]))));
    });
    return row;
  }
}

// Makes a list when its details open.
function listOf(experiment) {
  return new ListView(experiment).parts;
}
