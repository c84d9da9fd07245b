// Elements out of values. Text is only ever set as text, so nothing that a user wrote becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with attributes, and children that are nodes or text; null and undefined are left out. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A table of columns `[title, cell(item), class]`; on a phone each row is a card, with the titles in it. */
export function table(caption, columns, items) {
  const head = element("tr", {}, ...columns.map(([title]) => element("th", { scope: "col" }, title)));
  const rows = items.map((item) => element("tr", {}, ...columns.map(([title, cell, style]) =>
    element("td", { "data-label": title, class: style }, element("span", {}, cell(item))))));
  return element("table", { "aria-label": caption }, element("thead", {}, head), element("tbody", {}, ...rows));
}

/** Names and values side by side; values that are null are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", {}, ...known.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
