"use strict";
// The interactive parts of a report: a timeline on a canvas, charts by uPlot, and sorted tables.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [NAME, KIND, OVER, ALGORITHM, BYTES, START, END, ALONE, LANE, LINE, PATH, BODY, NEEDS, AT] =
    ["name", "kind", "over", "algorithm", "bytes", "start", "end", "alone", "lane", "line", "critical", "body", "needs", "at"]
      .map((name) => data.columns.indexOf(name));
  const PAGE = 500, LANE_HEIGHT = 34, LEFT = 90, TOP = 22;

  const { seconds, bytes, color, element, copies } = texts;

  class Timeline {
    // Beside another one, it has its scale and moves with it.
    constructor(root, fn, choose, beside = null) {
      this.beside = beside;
      if (beside) beside.beside = this;
      this.canvas = root.querySelector(".timeline");
      this.context = this.canvas.getContext("2d");
      this.root = root;
      this.choose = choose;
      this.open = [fn];
      this.chosen = -1;
      this.pathAlone = false;
      this.needs = true;
      this.all();
      this.listen();
      new ResizeObserver(() => this.draw()).observe(this.canvas);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    }
    get now() { return this.open[this.open.length - 1]; }
    get width() { return this.canvas.clientWidth; }
    get whole() {
      const other = this.beside && this.open.length === 1 && this.beside.open ? this.beside.open[0].time : 0;
      return Math.max(this.now.time, other) || 1e-9;
    }
    all() { this.move(0, this.whole); }
    x(time) { return LEFT + (time - this.from) / (this.to - this.from) * (this.width - LEFT); }
    time(x) { return this.from + (x - LEFT) / (this.width - LEFT) * (this.to - this.from); }
    zoom(factor, around = (this.from + this.to) / 2) {
      const span = Math.min(this.whole, Math.max((this.to - this.from) * factor, this.whole * 1e-6));
      const share = (around - this.from) / (this.to - this.from);
      this.move(around - share * span, span);
    }
    move(from, span = this.to - this.from) {
      this.from = Math.max(0, Math.min(from, this.whole - span));
      this.to = this.from + span;
      this.draw();
      const other = this.beside;
      if (other && other.open && this.open.length === 1 && other.open.length === 1) {
        [other.from, other.to] = [this.from, this.to];
        other.draw();
      }
    }
    listen() {
      const canvas = this.canvas;
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && document.activeElement !== canvas) return;
        event.preventDefault();
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
          this.move(this.from + (event.deltaX || event.deltaY) / this.width * (this.to - this.from));
        else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.offsetX));
      }, { passive: false });
      let held = null;
      canvas.addEventListener("pointerdown", (event) => {
        held = { x: event.offsetX, from: this.from, moved: false };
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => {
        if (held) {
          held.moved ||= Math.abs(event.offsetX - held.x) > 3;
          this.move(held.from - (event.offsetX - held.x) / (this.width - LEFT) * (this.to - this.from));
        } else {
          const step = this.at(event.offsetX, event.offsetY);
          canvas.title = step < 0 ? "" : this.text(step);
          canvas.style.cursor = step < 0 ? "grab" : "pointer";
        }
      });
      canvas.addEventListener("pointerup", (event) => {
        if (held && !held.moved) this.select(this.at(event.offsetX, event.offsetY));
        held = null;
      });
      canvas.addEventListener("dblclick", (event) => {
        this.select(this.at(event.offsetX, event.offsetY));
        this.enter();
      });
      canvas.addEventListener("keydown", (event) => {
        const span = this.to - this.from;
        const act = {
          "+": () => this.zoom(0.8), "=": () => this.zoom(0.8), "-": () => this.zoom(1.25), "0": () => this.all(),
          ArrowLeft: () => this.move(this.from - span / 10), ArrowRight: () => this.move(this.from + span / 10),
          ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1),
          Enter: () => this.enter(), Escape: () => this.leave(),
        }[event.key];
        if (act) { event.preventDefault(); act(); }
      });
      const acts = { in: () => this.zoom(0.5), out: () => this.zoom(2), all: () => this.all(), open: () => this.enter(), close: () => this.leave() };
      for (const button of this.root.querySelectorAll("button[data-do]"))
        button.addEventListener("click", acts[button.dataset.do]);
      const toggle = (name, key) => this.root.querySelector(`input[data-do=${name}]`)
        .addEventListener("change", (event) => { this[key] = event.target.checked; this.draw(); });
      toggle("path", "pathAlone");
      toggle("needs", "needs");
    }
    step(by) {
      const count = this.now.steps.length;
      if (count) this.select((Math.max(this.chosen, by > 0 ? -1 : 0) + by + count) % count, true);
    }
    at(x, y) {
      const lane = Math.floor((y - TOP) / LANE_HEIGHT), time = this.time(x), near = this.time(x + 3) - time;
      let best = -1;
      this.now.steps.forEach((step, n) => {
        if (step[LANE] === lane && step[START] - near <= time && time <= step[END] + near &&
            (best < 0 || step[END] - step[START] < this.now.steps[best][END] - this.now.steps[best][START])) best = n;
      });
      return best;
    }
    select(number, show = false) {
      this.chosen = number;
      const step = this.now.steps[number];
      if (step && show && (step[END] < this.from || step[START] > this.to))
        this.move((step[START] + step[END]) / 2 - (this.to - this.from) / 2);
      this.root.querySelector(".chosen").textContent = step ? this.text(number) : "Choose a step.";
      this.root.querySelector("[data-do=open]").disabled = !step || step[BODY] < 0;
      if (this.open.length === 1) this.choose(number);
      this.draw();
    }
    text(number) {
      const step = this.now.steps[number];
      const over = step[OVER] ? ` over ${step[OVER]}` : "", at = step[AT] ? ` at ${step[AT]}` : "";
      const parts = [`${step[NAME]} = ${step[KIND]}${over}${at}`, `${seconds(step[END] - step[START])} from ${seconds(step[START])}`];
      if (step[ALONE] && Math.abs(step[ALONE] - (step[END] - step[START])) > 1e-3 * step[ALONE]) parts.push(`${seconds(step[ALONE])} alone`);
      if (step[BYTES]) parts.push(bytes(step[BYTES]));
      if (step[ALGORITHM]) parts.push(step[ALGORITHM]);
      if (step[PATH]) parts.push("on the critical path");
      if (step[LINE]) parts.push(`line ${step[LINE]}`);
      if (step[BODY] >= 0) parts.push("Enter opens it");
      return parts.join(", ");
    }
    enter() {
      const step = this.now.steps[this.chosen];
      if (!step || step[BODY] < 0) return;
      this.open.push(this.now.bodies[step[BODY]]);
      this.changed();
    }
    leave() {
      if (this.open.length < 2) return;
      this.open.pop();
      this.changed();
    }
    changed() {
      this.chosen = -1;
      this.root.querySelector("[data-do=close]").disabled = this.open.length < 2;
      this.root.querySelector("[data-do=open]").disabled = true;
      this.root.querySelector(".where").textContent = this.open.length < 2 ? "" :
        `One iteration of ${this.open.slice(1).map((x) => `${x.title} (${x.times} times)`).join(", in it ")}.`;
      this.root.querySelector(".chosen").textContent = "Choose a step.";
      this.all();
    }
    draw() {
      const { context, canvas, now } = this, ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth, height = TOP + LANE_HEIGHT * Math.max(1, now.lanes.length) + 6;
      canvas.style.height = `${height}px`;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      const shade = Object.fromEntries(["back", "text", "faint", "line", "soft", "computes", "sends", "loops", "exposed", "path", "chosen", "on-bar"].map((x) => [x, color(x)]));
      context.fillStyle = shade.back;
      context.fillRect(0, 0, width, height);
      context.save();
      context.beginPath();
      context.rect(LEFT, 0, width - LEFT, height);
      context.clip();
      context.fillStyle = shade.exposed;
      for (const [start, end] of now.exposed) context.fillRect(this.x(start), TOP, Math.max(1, this.x(end) - this.x(start)), height - TOP);
      this.axis(shade, height);
      context.font = "12px ui-monospace, monospace";
      context.textBaseline = "middle";
      const drawn = new Map();
      now.steps.forEach((step, n) => {
        if (step[END] < this.from || step[START] > this.to || (this.pathAlone && !step[PATH])) return;
        const left = this.x(step[START]), size = Math.max(1, this.x(step[END]) - left), top = TOP + 4 + step[LANE] * LANE_HEIGHT;
        if (size < 1.5 && n !== this.chosen) {  // many short steps of a pixel are one
          const pixel = step[LANE] * 1e6 + Math.round(left);
          if (drawn.has(pixel)) return;
          drawn.set(pixel, n);
        }
        context.fillStyle = step[BODY] >= 0 ? shade.loops : step[OVER] ? shade.sends : shade.computes;
        context.fillRect(left, top, size, LANE_HEIGHT - 8);
        if (step[PATH] && size > 3) { context.strokeStyle = shade.path; context.lineWidth = 1.5; context.strokeRect(left + 0.75, top + 0.75, size - 1.5, LANE_HEIGHT - 9.5); }
        if (n === this.chosen) { context.strokeStyle = shade.chosen; context.lineWidth = 3; context.strokeRect(left, top, size, LANE_HEIGHT - 8); }
        const shown = Math.min(left + size, width) - Math.max(left, LEFT), label = `${step[NAME]} ${step[KIND]}`;
        if (shown > 40) {
          context.fillStyle = shade["on-bar"];
          context.fillText(label.slice(0, Math.floor((shown - 6) / 7.3)), Math.max(left, LEFT) + 4, top + (LANE_HEIGHT - 8) / 2);
        }
      });
      if (this.needs && this.chosen >= 0) this.arrows(shade);
      context.restore();
      context.fillStyle = shade.text;
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      now.lanes.forEach((name, n) => context.fillText(name, 4, TOP + n * LANE_HEIGHT + LANE_HEIGHT / 2, LEFT - 8));
    }
    axis(shade, height) {
      const { context } = this, span = this.to - this.from, rough = span / Math.max(2, (this.width - LEFT) / 110);
      const power = 10 ** Math.floor(Math.log10(rough)), tick = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough);
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "top";
      for (let time = Math.ceil(this.from / tick) * tick; time <= this.to; time += tick) {
        context.fillStyle = shade.line;
        context.fillRect(Math.round(this.x(time)), 0, 1, height);
        context.fillStyle = shade.faint;
        context.fillText(seconds(Number(time.toPrecision(12))), this.x(time) + 3, 4);
      }
    }
    arrows(shade) {
      const { context, now } = this, to = now.steps[this.chosen];
      context.strokeStyle = context.fillStyle = shade.chosen;
      context.lineWidth = 1.5;
      for (const n of to[NEEDS]) {
        const from = now.steps[n], middle = (step) => TOP + step[LANE] * LANE_HEIGHT + LANE_HEIGHT / 2;
        const [x0, y0, x1, y1] = [this.x(from[END]), middle(from), this.x(to[START]), middle(to)];
        context.beginPath();
        context.moveTo(x0, y0);
        context.bezierCurveTo(x0 + 20, y0, x1 - 20, y1, x1, y1);
        context.stroke();
        context.beginPath();
        context.moveTo(x1, y1); context.lineTo(x1 - 7, y1 - 4); context.lineTo(x1 - 7, y1 + 4);
        context.fill();
      }
    }
  }

  class Table {
    constructor(root, fn, choose) {
      this.fn = fn;
      this.choose = choose;
      this.body = root.querySelector(".steps tbody");
      this.count = root.querySelector(".count");
      this.more = root.querySelector(".more");
      this.rows = fn.steps.map((_, n) => n);
      this.limit = PAGE;
      this.key = "start"; this.down = false;
      this.value = {
        step: (x) => x[NAME], kind: (x) => x[KIND], over: (x) => x[OVER], algorithm: (x) => x[ALGORITHM], bytes: (x) => x[BYTES],
        start: (x) => x[START], time: (x) => x[END] - x[START], share: (x) => x[END] - x[START], alone: (x) => x[ALONE],
        critical: (x) => x[PATH], line: (x) => x[LINE],
      };
      for (const head of root.querySelectorAll(".steps th[data-key]")) {
        const button = element("button", head.dataset.key, { type: "button" });
        head.replaceChildren(button);
        button.addEventListener("click", () => {
          this.down = this.key === head.dataset.key ? !this.down : ["bytes", "time", "share", "alone", "critical"].includes(head.dataset.key);
          this.key = head.dataset.key;
          this.limit = PAGE;
          this.show();
        });
      }
      this.heads = [...root.querySelectorAll(".steps th[data-key]")];
      this.search = root.querySelector(".search");
      this.search.addEventListener("input", () => { this.limit = PAGE; this.show(); });
      this.more.addEventListener("click", () => { this.limit += PAGE; this.show(); });
      this.show();
    }
    show() {
      const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean), of = this.value[this.key];
      const found = this.rows.filter((n) => {
        const step = this.fn.steps[n], text = [step[NAME], step[KIND], step[OVER], step[ALGORITHM], step[AT]].join(" ").toLowerCase();
        return words.every((word) => text.includes(word));
      });
      found.sort((a, b) => {
        const x = of(this.fn.steps[a]), y = of(this.fn.steps[b]);
        return (x < y ? -1 : x > y ? 1 : a - b) * (this.down ? -1 : 1);
      });
      this.body.replaceChildren(...found.slice(0, this.limit).map((n) => this.row(n)));
      this.count.textContent = `${found.length} of ${this.rows.length} steps`;
      this.more.hidden = found.length <= this.limit;
      for (const head of this.heads) {
        if (head.dataset.key === this.key) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      }
    }
    row(n) {
      const step = this.fn.steps[n], time = step[END] - step[START], share = this.fn.time ? `${(100 * time / this.fn.time).toFixed(1)}%` : "";
      const row = element("tr");
      row.dataset.step = n;
      row.append(element("th", step[NAME], { scope: "row" }));
      for (const text of [step[KIND], step[OVER], step[ALGORITHM]]) row.append(element("td", text));
      for (const text of [bytes(step[BYTES]), seconds(step[START]), seconds(time), share, seconds(step[ALONE])]) row.append(element("td", text, { className: "n" }));
      row.append(element("td", step[PATH] ? "yes" : ""));
      const line = element("td", undefined, { className: "n" });
      line.append(step[LINE] && data.source.length ? element("a", step[LINE], { href: `#line${step[LINE]}` }) : String(step[LINE] || ""));
      row.append(line);
      row.addEventListener("click", (event) => { if (event.target.tagName !== "A") this.choose(n); });
      return row;
    }
    mark(n) {
      for (const row of this.body.children) row.classList.toggle("chosen", Number(row.dataset.step) === n);
    }
  }

  const PALETTE = ["#4477aa", "#cc6677", "#8a7a2e", "#117733", "#88ccee", "#aa4499", "#44aa99", "#999933"];
  const charts = [];
  function chart(box, times, names, rows, format) {
    const draw = () => {
      box.replaceChildren();
      if (times.length < 2) { box.textContent = "Nothing changes."; return; }
      const text = color("text"), line = color("line");
      const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
      new uPlot({
        width: Math.max(320, box.clientWidth), height: 220, scales: { x: { time: false } }, cursor: { drag: { x: true, y: false } },
        axes: [{ ...axis, values: (_, list) => list.map(seconds) }, { ...axis, size: 70, values: (_, list) => list.map(format) }],
        series: [{ label: "time", value: (_, x) => x == null ? "" : seconds(x) }, ...names.map((label, n) => ({
          label, stroke: PALETTE[n % PALETTE.length], width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
          value: (_, x) => x == null ? "" : format(x) || "0" }))],
      }, [times, ...rows], box);
    };
    charts.push([box, draw]);
    draw();
  }

  function show(root, fn) {
    for (const part of root.querySelectorAll(".interactive")) part.hidden = false;
    let table = null;
    const beside = fn.beside && new Timeline(root.querySelector(".beside"), fn.beside, () => {});
    const timeline = new Timeline(root.querySelector(".own"), fn, (n) => table && table.mark(n), beside);
    table = new Table(root, fn, (n) => {
      while (timeline.open.length > 1) timeline.leave();
      timeline.select(n, true);
    });
    const said = root.querySelector(".copied");
    for (const command of root.querySelectorAll(".command")) {
      const button = element("button", "Copy", { type: "button" });
      button.setAttribute("aria-label", `Copy ${command.textContent.trim()}`);
      copies(button, command, said);
      command.before(button, " ");
    }
    const memory = fn.memory, end = [...memory.times, fn.time];
    const last = (row) => [...row, row[row.length - 1]];
    if (memory.times.length) {
      const names = memory.uses.map((x) => x.name), rows = memory.uses.map((x) => last(x.bytes));
      if (rows.length > 1) {
        names.unshift("all");
        rows.unshift(end.map((_, n) => rows.reduce((sum, row) => sum + row[n], 0)));
      }
      if (memory.limit && memory.peak > 0.4 * memory.limit) { names.push("of the device"); rows.push(end.map(() => memory.limit)); }
      chart(root.querySelector(".chart.memory"), end, names, rows, bytes);
    }
    const ports = fn.ports.filter((x) => x.times.length).slice(0, 4);
    const times = [...new Set(ports.flatMap((x) => x.times).concat(fn.time))].sort((a, b) => a - b);
    const rows = ports.map((port) => {
      let at = -1;
      return times.map((time) => {
        while (at + 1 < port.times.length && port.times[at + 1] <= time) at += 1;
        return at < 0 ? 0 : port.used[at];
      });
    });
    chart(root.querySelector(".chart.ports"), ports.length ? times : [], ports.map((x) => x.name), rows, (x) => `${Math.round(100 * x)}%`);
  }

  data.functions.forEach((fn, n) => show(document.getElementById(`f${n}`), fn));
  let wait = 0;
  const redraw = () => { clearTimeout(wait); wait = setTimeout(() => charts.forEach(([, draw]) => draw()), 150); };
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
})();
