// Elements are made from names, attributes and texts. No text of the journal is ever parsed as markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

// Adds attributes (event listeners if they are functions) and children (texts or elements) to an element.
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== undefined && value !== false) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children);
  return element;
}

function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

// Returns a file to the user.
function download(name, type, parts) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const link = html("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
