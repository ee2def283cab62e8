// The filter of claims.

// Fields of the filter that compare with data of a claim; pages of one run have no sides.
const filterNames = ["suite", "verdict", "kind", "sides"].filter((name) => filterField(name) !== null);

function filterField(name) {
  return document.getElementById(`filter-${name}`);
}

// Shows the claims that pass the filter, and their number.
function filterClaims() {
  const text = filterField("text").value.trim().toLowerCase();
  const wanted = filterNames.map((name) => [name, filterField(name).value]);
  let shown = 0;
  const claims = document.querySelectorAll("ul.claims > li");
  for (const claim of claims) {
    const passes =
      wanted.every(([name, value]) => value === "" || claim.dataset[name].split(" ").includes(value)) &&
      (text === "" || claim.textContent.toLowerCase().includes(text));
    claim.hidden = !passes;
    shown += passes ? 1 : 0;
  }
  const isFiltered = text !== "" || wanted.some(([, value]) => value !== "");
  for (const cause of document.querySelectorAll("details.cause")) showCause(cause, isFiltered);
  filterField("count").textContent = `${shown} of ${count(claims.length, "claim")}`;
}

// Shows the claims of a cause that pass the filter: a filter opens them, and closes what it opened when it is cleared.
function showCause(cause, isFiltered) {
  const [all, passing] = ["", ":not([hidden])"].map((state) => cause.querySelectorAll(`ul.claims > li${state}`).length);
  cause.hidden = passing === 0;
  const total = count(all, "claim");
  cause.querySelector(".total").textContent = passing === all ? total : `${passing} of ${total}`;
  if (isFiltered && !cause.open) {
    cause.open = true;
    cause.dataset.filtered = "yes";
  } else if (!isFiltered && cause.dataset.filtered) {
    cause.open = false;
    delete cause.dataset.filtered;
  }
}

// Sets the fields that are named and clears the others.
function setFilter(values) {
  for (const name of [...filterNames, "text"]) filterField(name).value = values[name] ?? "";
  filterClaims();
}

function watchClaims() {
  const form = document.querySelector("form.filter");
  if (form === null) return;
  form.hidden = false;
  form.addEventListener("input", filterClaims);
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const link of document.querySelectorAll("a[data-verdict]")) {
    link.addEventListener("click", () => setFilter({ verdict: link.dataset.verdict, kind: link.dataset.kind }));
  }
}
