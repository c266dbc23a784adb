"use strict";
// Measured against predicted times: filters, a chart by uPlot whose points the keyboard reaches, and their table.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { seconds, color, element, sortable, copies } = texts;
  const { names, points } = data;
  const [MEASURED, PREDICTED, WORST, FIRST] = [0, 1, 2, 3];
  const COLORS = 8, OTHERS = "others";

  for (const part of document.querySelectorAll(".interactive")) part.hidden = false;
  const root = document.getElementById("points"), box = root.querySelector(".scatter"), told = root.querySelector(".chosen");
  const table = root.querySelector("table.points"), rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  const words = rows.map((row) => row.textContent.toLowerCase());
  const values = names.map((_, n) => [...new Set(points.map((point) => point[FIRST + n]))].sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
  const wanted = names.map(() => "");
  let search = "", colored = Math.max(0, values.findIndex((x) => x.length > 1)), order = [], chosen = -1, plot = null;

  function choice(label, options, change) {
    const made = element("label", `${label} `), select = element("select");
    select.append(...options.map(([text, value]) => element("option", text, { value })));
    select.addEventListener("change", () => { change(select.value); draw(); });
    made.append(select);
    return made;
  }

  function controls() {
    const tools = root.querySelector(".filters"), several = names.map((_, n) => n).filter((n) => values[n].length > 1);
    for (const n of several)
      tools.append(choice(names[n], [["any", ""], ...values[n].map((x) => [x, x])], (value) => { wanted[n] = value; }));
    if (several.length > 1) tools.append(choice("colours by", several.map((n) => [names[n], n]), (value) => { colored = Number(value); }));
    const label = element("label", "search "), field = element("input", undefined, { type: "search", autocomplete: "off" });
    field.addEventListener("input", () => { search = field.value; draw(); });
    label.append(field);
    tools.append(label);
  }

  const describe = (n) => [...rows[n].cells].map((cell, at) => [heads[at], cell.textContent])
    .filter(([, text]) => text).map((pair) => pair.join(" ")).join(", ");

  function choose(n) {
    if (chosen >= 0) rows[chosen].classList.remove("chosen");
    chosen = n;
    box.querySelector(".ring")?.remove();
    if (n < 0) { told.textContent = "Move over the chart, or choose a row below."; return; }
    rows[n].classList.add("chosen");
    told.textContent = describe(n);
    if (!plot || !order.includes(n)) return;
    const ring = element("div", undefined, { className: "ring" });
    ring.style.left = `${plot.valToPos(points[n][MEASURED], "x")}px`;
    ring.style.top = `${plot.valToPos(points[n][PREDICTED], "y")}px`;
    plot.over.append(ring);
  }

  function nearest(at) {
    let best = -1, least = 30;
    for (const n of order) {
      const distance = Math.hypot(plot.valToPos(points[n][MEASURED], "x") - at.left, plot.valToPos(points[n][PREDICTED], "y") - at.top);
      if (distance < least) [best, least] = [n, distance];
    }
    return best;
  }

  function groups() {
    const own = values[colored].filter((value) => order.some((n) => points[n][FIRST + colored] === value));
    const few = own.length > COLORS ? own.slice(0, COLORS - 1) : own;
    const of = (n) => few.includes(points[n][FIRST + colored]) ? points[n][FIRST + colored] : OTHERS;
    return [few.length < own.length ? [...few, OTHERS] : few, of];
  }

  function draw() {
    const parts = search.toLowerCase().split(/\s+/).filter(Boolean);
    order = points.map((_, n) => n).filter((n) => names.every((_, at) => !wanted[at] || points[n][FIRST + at] === wanted[at]) &&
      parts.every((part) => words[n].includes(part)));
    const shown = new Set(order);
    rows.forEach((row, n) => { row.hidden = !shown.has(n); });
    root.querySelector(".shown").textContent = `${order.length} of ${points.length} times`;
    order = order.filter((n) => points[n][MEASURED] > 0 && points[n][PREDICTED] > 0).sort((a, b) => points[a][MEASURED] - points[b][MEASURED]);
    plot?.destroy();
    plot = null;
    box.replaceChildren();
    if (!order.length) { box.textContent = "None."; choose(-1); return; }
    let least = Infinity, most = 0;
    for (const n of order) {
      least = Math.min(least, points[n][MEASURED], points[n][PREDICTED]);
      most = Math.max(most, points[n][MEASURED], points[n][PREDICTED]);
    }
    const range = [10 ** Math.floor(Math.log10(least * 0.999)), 10 ** Math.ceil(Math.log10(most * 1.001))];
    const text = color("text"), line = color("line");
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, values: (_, list) => list.map((x) => x == null ? "" : seconds(x)) };
    const [kinds, of] = groups();
    const series = (pick) => [null, ...order.map((n) => pick(n) ? points[n][PREDICTED] : null), null];
    const dots = (label, shade, more) => ({ label, stroke: shade, paths: () => null, points: { show: true, size: 7, width: 1, fill: shade, ...more } });
    const xs = [range[0], ...order.map((n) => points[n][MEASURED]), range[1]];
    plot = new uPlot({
      width: Math.max(320, box.clientWidth), height: 440, legend: { live: false },
      cursor: { drag: { x: false, y: false, setScale: false }, points: { show: false } },
      scales: { x: { time: false, distr: 3, range }, y: { distr: 3, range } },
      axes: [{ ...axis, label: "measured" }, { ...axis, label: "predicted", size: 70 }],
      series: [{ label: "measured" }, { label: "equal", stroke: color("faint"), dash: [6, 4], width: 2, points: { show: false } },
        ...kinds.map((kind, n) => dots(kind, color(`c${n}`), {})),
        dots("furthest off", text, { size: 13, fill: "transparent", width: 2 })],
      hooks: { setCursor: [(own) => {
        if (own !== plot || own.cursor.left < 0) return;
        const n = nearest(own.cursor);
        if (n >= 0 && n !== chosen) choose(n);
      }] },
    }, [xs, xs, ...kinds.map((kind) => series((n) => of(n) === kind)), series((n) => points[n][WORST])], box);
    choose(shown.has(chosen) ? chosen : -1);
  }

  box.addEventListener("keydown", (event) => {
    const at = order.indexOf(chosen), last = order.length - 1;
    const to = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
    if (to === undefined || !order.length) return;
    event.preventDefault();
    choose(order[to]);
  });
  rows.forEach((row, n) => row.addEventListener("click", () => choose(n)));
  controls();
  draw();
  for (const each of document.querySelectorAll("table.sorted")) sortable(each);

  for (const button of document.querySelectorAll("button[data-copies]"))
    copies(button, document.getElementById(button.dataset.copies), button.parentElement.querySelector(".copied"));

  let wait = 0;
  const redraw = () => { clearTimeout(wait); wait = setTimeout(draw, 150); };
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
})();
