"use strict";
// The interactive parts of a sweep: filters, time against memory by uPlot, sorting, and two beside each other.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { seconds, bytes, color, element, sortable } = texts;
  const PALETTE = ["#4477aa", "#cc6677", "#117733", "#aa4499", "#8a7a2e"];

  function scatter(root, table) {
    const { points, names, kinds } = table, box = root.querySelector(".scatter"), under = root.querySelector(".under");
    const chosen = names.map(() => "");
    const tools = root.querySelector(".filters");
    names.forEach((name, n) => {
      const values = [...new Set(points.map((x) => x[3 + n]))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      if (values.length < 2) return;
      const label = element("label", `${name} `), select = element("select");
      select.append(element("option", "any", { value: "" }), ...values.map((value) => element("option", value, { value })));
      select.addEventListener("change", () => { chosen[n] = select.value; draw(); });
      label.append(select);
      tools.append(label);
    });
    const describe = (point) => `${kinds[point[2]]}: ${seconds(point[0])}, ${bytes(point[1])}; ` +
      names.map((name, n) => `${name} ${point[3 + n]}`).join(", ");
    function draw() {
      const found = points.filter((point) => names.every((_, n) => !chosen[n] || point[3 + n] === chosen[n])).sort((a, b) => a[0] - b[0]);
      root.querySelector(".shown").textContent = `${found.length} of ${points.length} points`;
      box.replaceChildren();
      if (!found.length) { box.textContent = "None."; return; }
      const text = color("text"), line = color("line");
      const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
      const rows = kinds.map((_, kind) => found.map((point) => point[2] === kind ? point[1] : null));
      new uPlot({
        width: Math.max(320, box.clientWidth), height: 340, cursor: { drag: { x: true, y: true } },
        scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
        axes: [{ ...axis, label: "a step", values: (_, list) => list.map((x) => x == null ? "" : seconds(x)) },
               { ...axis, size: 80, values: (_, list) => list.map((x) => x == null ? "" : bytes(x)) }],
        series: [{ label: "time", value: (_, x) => x == null ? "" : seconds(x) }, ...kinds.map((label, n) => ({
          label, stroke: label.startsWith("simulated") ? (label.includes("front") ? color("chosen") : text) : PALETTE[n % PALETTE.length], paths: () => null, value: (_, x) => x == null ? "" : bytes(x),
          points: { show: true, size: label.startsWith("simulated") ? 11 : 5, fill: label.startsWith("simulated") ? "transparent" : PALETTE[n % PALETTE.length], width: 2 } }))],
        hooks: { setCursor: [(plot) => { if (plot.cursor.idx != null) under.textContent = describe(found[plot.cursor.idx]); }] },
      }, [found.map((point) => point[0]), ...rows], box);
    }
    draw();
    return draw;
  }

  function listed(root, table) {
    const body = root.querySelector(".listed tbody"), rows = [...body.rows];
    sortable(root.querySelector(".listed"));
    const out = root.querySelector(".compared");
    body.addEventListener("change", () => {
      const two = rows.filter((row) => row.querySelector("input").checked).slice(0, 2);
      rows.forEach((row) => {
        row.classList.toggle("chosen", two.includes(row));
        row.querySelector("input").disabled = two.length === 2 && !two.includes(row);
      });
      out.replaceChildren();
      if (two.length < 2) return;
      const [a, b] = two.map((row) => table.rows[row.dataset.row]);
      const head = element("tr"), made = element("table"), inside = element("tbody");
      for (const name of ["", `number ${a[0]}`, `number ${b[0]}`]) head.append(element("th", name, { scope: "col" }));
      const top = element("thead");
      top.append(head);
      table.columns.forEach((name, n) => {
        if (!n || a[n] === b[n]) return;
        const row = element("tr");
        row.append(element("th", name, { scope: "row" }), element("td", a[n]), element("td", b[n]));
        inside.append(row);
      });
      made.append(top, inside);
      out.append(element("h3", "What differs"), made);
    });
  }

  const draws = data.tables.map((table, n) => {
    const root = document.getElementById(`s${n}`);
    for (const part of root.querySelectorAll(".interactive")) part.hidden = false;
    listed(root, table);
    return scatter(root, table);
  });
  let wait = 0;
  const redraw = () => { clearTimeout(wait); wait = setTimeout(() => draws.forEach((draw) => draw()), 150); };
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
})();
