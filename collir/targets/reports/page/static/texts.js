"use strict";
// The parts that the scripts of all pages share: numbers as text, colours, elements, and tables that sort.
const texts = (() => {
  const seconds = (x) => {
    if (!x) return "0 s";
    const units = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];
    const [size, unit] = units.find(([size]) => Math.abs(x) >= size) || [1e-9, "ns"];
    return `${Number((x / size).toPrecision(3))} ${unit}`;
  };
  const bytes = (x) => {
    if (!x) return "";
    const units = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [1, "B"]];
    const [size, unit] = units.find(([size]) => x >= size) || [1, "B"];
    return `${Number((x / size).toPrecision(3))} ${unit}`;
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const element = (tag, text, properties) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    return Object.assign(made, properties);
  };
  // Sort the rows of a table by buttons in the heads that have `data-sort`: cells with `data-value` as numbers,
  // before the others, which are texts; empty cells stay at the end.
  const sortable = (table) => {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.querySelectorAll("th[data-sort]")];
    const values = (column) => new Map(rows.map((row) => {
      const cell = row.cells[column];
      return [row, "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim()];
    }));
    const compare = (x, y) => typeof x === "number" && typeof y === "number" ? x - y :
      typeof x !== typeof y ? (typeof x === "number" ? -1 : 1) : x.localeCompare(y, "en", { numeric: true });
    for (const head of heads) {
      const button = element("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending", value = values(head.cellIndex);
        const full = rows.filter((row) => value.get(row) !== ""), empty = rows.filter((row) => value.get(row) === "");
        full.sort((a, b) => compare(value.get(a), value.get(b)) * (down ? -1 : 1));
        body.replaceChildren(...full, ...empty);
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
      });
    }
  };
  // Let a button copy the text of an element, or select it where a page may not copy.
  const copies = (button, source, said) => button.addEventListener("click", async () => {
    getSelection().selectAllChildren(source);
    try {
      await navigator.clipboard.writeText(source.textContent.trim());
      said.textContent = "Copied.";
    } catch {
      said.textContent = "Selected: copy it with Ctrl+C.";
    }
  });
  return { seconds, bytes, color, element, sortable, copies };
})();
