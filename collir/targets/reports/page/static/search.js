"use strict";
// The profile of a search: counts by depth, and the times of tasks, by uPlot; and tables that sort.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { seconds, color, sortable } = texts;

  for (const part of document.querySelectorAll(".interactive")) part.hidden = false;

  const axis = () => {
    const line = { stroke: color("line"), width: 1 };
    return { stroke: color("text"), grid: line, ticks: line };
  };
  const whole = (list) => list.map((x) => x == null || !Number.isInteger(x) ? "" : x.toLocaleString("en"));

  function depths(box) {
    const logarithmic = document.querySelector(".logarithmic").checked, counts = data.depths;
    const most = Math.max(...counts.map((each) => Math.max(...each.counts)));
    // On a logarithmic scale 0 has a place, too: the place of a count is that of one more.
    const place = logarithmic ? (x) => Math.log10(1 + x) : (x) => x, back = (x) => logarithmic ? Math.round(10 ** x - 1) : x;
    const decades = [0, ...[...Array(1 + Math.ceil(Math.log10(most + 1))).keys()].map((x) => 10 ** x)];
    const splits = logarithmic ? { splits: () => decades.map(place) } : {};
    new uPlot({
      width: Math.max(320, box.clientWidth), height: 300, cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: () => [0, logarithmic ? place(decades[decades.length - 1]) : 1.05 * most] } },
      axes: [{ ...axis(), label: "depth", values: (_, list) => whole(list) }, { ...axis(), ...splits, size: 90, values: (_, list) => whole(list.map(back)) }],
      series: [{ label: "depth" }, ...counts.map(({ name }, n) => ({
        label: name, stroke: color(`c${n}`), width: 2, dash: name === "backtracks" ? [4, 6] : [], points: { show: true, size: 5 },
        value: (_, x) => x == null ? "" : back(x).toLocaleString("en") }))],
    }, [counts[0].counts.map((_, depth) => depth), ...counts.map((each) => each.counts.map(place))], box);
  }

  function tasks(box) {
    const order = [...data.tasks].sort((a, b) => a[0] - b[0]), least = 1e-7, times = order.map(([, time]) => Math.max(time, least));
    let [low, high] = [Infinity, least];
    for (const time of times) { low = Math.min(low, time); high = Math.max(high, time); }
    const range = [10 ** Math.floor(Math.log10(low * 0.999)), 10 ** Math.ceil(Math.log10(high * 1.001))];
    const last = order[order.length - 1][0];
    new uPlot({
      width: Math.max(320, box.clientWidth), height: 260, legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, range: () => [order[0][0] - 0.5, last + 0.5] }, y: { distr: 3, range } },
      axes: [{ ...axis(), label: "depth of the root", values: (_, list) => whole(list) },
             { ...axis(), size: 90, values: (_, list) => list.map((x) => x == null ? "" : seconds(x)) }],
      series: [{}, { stroke: color("c0"), paths: () => null, points: { show: true, size: 5, fill: color("c0") } }],
    }, [order.map(([depth]) => depth), times], box);
  }

  function draw() {
    for (const [kind, make] of [["depths", depths], ["tasks", tasks]]) {
      const box = document.querySelector(`.chart.${kind}`);
      if (!box) continue;
      box.replaceChildren();
      make(box);
    }
  }

  draw();
  document.querySelector(".logarithmic")?.addEventListener("change", draw);
  for (const table of document.querySelectorAll("table.sorted")) sortable(table);
  let wait = 0;
  const redraw = () => { clearTimeout(wait); wait = setTimeout(draw, 150); };
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
})();
