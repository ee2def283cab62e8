// Start: figures are drawn when they come near the window, or all at once for print.

const page = await decode("data");

function viewOf(container) {
  if (!views.has(container))
    views.set(container, new FigureView(container, page.figures[Number(container.dataset.figure)]));
  return views.get(container);
}

function watchFigures() {
  const containers = document.querySelectorAll("[data-figure]");
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const view = views.get(target);
      if (view && view.width !== Math.floor(view.canvas.clientWidth)) view.draw();
    }
  });
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting || views.has(target)) continue;
        viewOf(target).draw();
        sizes.observe(target);
      }
    },
    { rootMargin: "800px 0px" },
  );
  for (const container of containers) near.observe(container);
  window.addEventListener("beforeprint", () => {
    for (const container of containers) viewOf(container).draw();
    for (const details of document.querySelectorAll("main details:not([open], .values, .list)")) {
      details.dataset.printed = "yes";
      details.open = true;
      // The browser would report the change after the print.
      details.dispatchEvent(new Event("toggle"));
    }
  });
  window.addEventListener("afterprint", () => {
    for (const details of document.querySelectorAll("details[data-printed]")) {
      details.open = false;
      delete details.dataset.printed;
    }
  });
}

// Returns the element that the fragment of an address names, or null. A fragment may be any text.
function targetOf(fragment) {
  try {
    return document.getElementById(decodeURIComponent(fragment));
  } catch {
    return null;
  }
}

// Makes the target of the address visible: a claim that the filter hides, a part of closed details.
function showTarget() {
  const target = targetOf(location.hash.slice(1));
  if (target === null) return;
  if (target.hidden) setFilter({});
  if (target.tagName === "DETAILS") target.open = true;
  for (let parent = target.parentElement; parent !== null; parent = parent.parentElement) {
    if (parent.tagName === "DETAILS") parent.open = true;
  }
  const container = target.querySelector("[data-figure]");
  if (container !== null) viewOf(container).draw();
  target.scrollIntoView();
}

function watchButtons() {
  for (const button of document.querySelectorAll("button[data-download]")) {
    button.hidden = false;
    button.addEventListener("click", () => downloadSamples(button.dataset.download));
  }
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = navigator.clipboard === undefined;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }
}

// On narrow windows the contents would hide the results.
if (window.matchMedia("(max-width: 899px)").matches) document.querySelector("#contents details").open = false;
// Before the figure or grid under the pointer shows its own value.
function watchTaps() {
  const hide = ({ target }) => {
    hideOtherValues(target);
    if (target.closest(".canvas, table.grid") === null) hideTooltip();
  };
  document.addEventListener("pointerdown", hide, { capture: true });
}

watchTaps();
watchClaims();
watchTables();
watchGrids();
watchButtons();
watchFigures();
window.addEventListener("hashchange", showTarget);
window.addEventListener("scroll", hideTooltip, { passive: true });
showTarget();
document.documentElement.dataset.ready = "yes";
