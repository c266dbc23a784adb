"use strict";
// What the scripts of all pages share: numbers as text, colours, and elements.
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
  return { seconds, bytes, color, element };
})();
