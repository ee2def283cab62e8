// The tooltip: one element, which screen readers announce when it changes.

const tooltip = document.getElementById("tooltip");

// Shows a text of one or two lines next to a position in the window.
function showTooltip(title, text, x, y) {
  tooltip.replaceChildren(html("strong", {}, title), html("span", {}, text));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x - width / 2), document.documentElement.clientWidth - width - 8);
  const top = y - height - 14 < 8 ? y + 18 : y - height - 14;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${top}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}
