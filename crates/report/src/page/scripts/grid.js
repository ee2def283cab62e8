// Grids are tables; the pointer or a tap shows the value of a cell with its interval.

function watchGrids() {
  for (const table of document.querySelectorAll("table.grid")) {
    const titles = columnTitles(table);
    const show = (event) => {
      const cell = event.target.closest("td[data-detail]");
      if (cell === null) return hideTooltip();
      const box = cell.getBoundingClientRect();
      const row = cell.parentElement.cells[0].textContent;
      const title = [row, titles[cell.cellIndex - 1] ?? ""].filter((part) => part !== "").join(", ");
      return showTooltip(title, cell.dataset.detail, box.left + box.width / 2, box.top + 6);
    };
    table.addEventListener("pointerover", show);
    table.addEventListener("pointerdown", show);
    table.addEventListener("pointerleave", (event) => {
      // A lifted finger leaves, too: its value stays until a tap elsewhere.
      if (event.pointerType !== "touch") hideTooltip();
    });
  }
}

// Returns the title of each column of values: its panel, and its level if the panel has several columns.
function columnTitles(table) {
  const [panels, columns] = table.tHead.rows;
  const levels = [...(columns?.cells ?? [])];
  return [...panels.cells].slice(1).flatMap((panel) => {
    if (columns === undefined || panel.rowSpan > 1) return Array(panel.colSpan).fill(panel.textContent);
    return levels.splice(0, panel.colSpan).map((level) => `${level.textContent}: ${panel.textContent}`);
  });
}
