// Curves: one chart for each figure, all on one axis, with one cursor, and a table for those who cannot see them.
"use strict";

const CHART_HEIGHT = 190, MOST_TABLE_ROWS = 500;
const DENSE = 600; // points, from which on strokes are thin, and dashes cannot be seen
const FEW = 60; // points, of which each is drawn
const TIME_STEPS = [1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 14400, 28800, 86400, 172800, 432800];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2]];

function shortNumber(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  return value !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(1) : String(+value.toPrecision(4));
}

function shortTime(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${+(seconds / 60).toPrecision(3)} min`;
  return `${+(seconds / 3600).toPrecision(3)} h`;
}

// The colors of the page's theme, as a canvas needs them.
function themeColors(element) {
  const probe = element.appendChild(document.createElement("i"));
  const read = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const found = {
    text: read("--text"), quiet: read("--quiet"), line: read("--line"), ground: read("--ground"),
    curves: [1, 2, 3, 4, 5, 6, 7].map((number) => read(`--curve-${number}`)),
  };
  probe.remove();
  return found;
}

function faded(color, share) {
  return color.replace(/^rgba?\(([^)]+)\)$/, (_, parts) => `rgba(${parts.split(",").slice(0, 3).join(",")}, ${share})`);
}

// `tables` by name: {step, time, columns}. `specs`: charts, whose lines name a table and a column of it.
// `pick(step)`: somebody chose a point; without it, points cannot be chosen.
class ChartBoard {
  constructor(element, pick) {
    this.element = element;
    this.pick = pick;
    this.axis = "step";
    this.tables = {};
    this.specs = [];
    this.marks = [];
    this.views = new Map();
    this.said = element.appendChild(document.createElement("p"));
    this.said.className = "away";
    this.said.setAttribute("role", "status");
    new ResizeObserver(() => this.resize()).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  get hasTimes() {
    const times = Object.values(this.tables).flatMap(({ time }) => time);
    return times.length > 0 && times.every((each) => each !== null);
  }

  show(axis) {
    this.axis = axis;
    this.rebuild();
  }

  rebuild() {
    for (const view of this.views.values()) view.destroy();
    this.views.clear();
    this.draw();
  }

  // After tables, specs or marks have changed.
  draw() {
    this.measure();
    this.colors = themeColors(this.element);
    for (const spec of this.specs) {
      const view = this.views.get(spec.name), form = this.formOf(spec);
      if (view && view.form === form) view.update();
      else this.renew(spec, form);
    }
    const wanted = this.specs.map(({ name }) => this.views.get(name)?.figure).filter(Boolean);
    const found = [...this.element.querySelectorAll(":scope > figure")];
    if (wanted.some((figure, at) => figure !== found[at])) this.element.append(...wanted); // else what has the focus keeps it
  }

  renew(spec, form) {
    const open = this.views.get(spec.name)?.details.open;
    this.views.get(spec.name)?.destroy();
    this.views.delete(spec.name);
    if (!this.lines(spec).length) return;
    this.views.set(spec.name, new ChartView(this, spec, form));
    if (open) this.views.get(spec.name).details.open = true;
  }

  // What a chart is made for: it is made again when a line gets its first value, or many points.
  formOf(spec) {
    const sizes = this.lines(spec).map((line) => this.tables[line.table].step.length);
    return JSON.stringify([this.lines(spec), sizes.map((size) => [size < FEW, size < DENSE])]);
  }

  // Names of charts without a value.
  get empty() {
    return this.specs.filter((spec) => !this.lines(spec).length).map((spec) => spec.title);
  }

  // Those that have values, with their bands if these have some, too.
  lines(spec) {
    const known = (line, column) => (this.columnOf(line, column) ?? []).some((value) => value !== null);
    const found = spec.lines.filter((line) => known(line, line.column));
    return found.map((line) => (known(line, line.low) && known(line, line.high) ? line : { ...line, low: "", high: "" }));
  }

  columnOf(line, column) {
    return this.tables[line.table]?.columns[column];
  }

  measure() {
    const times = Object.values(this.tables).flatMap(({ time }) => time.slice(0, 1)).filter((each) => each !== null);
    this.start = Math.min(...times);
    const ends = Object.keys(this.tables).flatMap((name) => { const x = this.xOf(name); return [x[0], x[x.length - 1]]; });
    const known = ends.filter((each) => Number.isFinite(each));
    this.extent = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    if (this.extent[0] === this.extent[1]) this.extent[1] += 1;
  }

  // Seconds are since the first point; of several runs, since that of each.
  xOf(name) {
    const table = this.tables[name];
    if (this.axis === "step") return table.step;
    const start = table.start ?? this.start;
    return table.time.map((each) => each - start);
  }

  // Where a mark is on the axis; null: nowhere, as a deadline that is to come.
  place(mark) {
    const steps = this.tables.steps;
    if (!steps || !steps.step.length) return null;
    if (this.axis === "step" && mark.step !== null) return mark.step;
    const known = this.axis === "step" ? mark.time : mark.time ?? this.timeOf(mark.step);
    if (known === null || steps.time[0] === null) return null;
    if (this.axis === "time") return known - this.start > this.extent[1] && mark.sign === "D" ? null : known - this.start;
    const at = steps.time.findLastIndex((time) => time <= known);
    if (at === steps.time.length - 1 && mark.sign === "D") return null;
    return at < 0 ? this.extent[0] : steps.step[at];
  }

  inOrder() {
    return [...this.marks].sort((one, other) => this.place(one) - this.place(other));
  }

  timeOf(step) {
    const { step: steps, time } = this.tables.steps;
    const at = steps.findLastIndex((each) => each <= step);
    return at < 0 ? null : time[at];
  }

  resize() {
    for (const view of this.views.values()) view.resize();
  }
}

class ChartView {
  constructor(board, spec, form) {
    this.form = form;
    this.board = board;
    this.spec = spec;
    this.lines = board.lines(spec);
    this.figure = document.createElement("figure");
    const caption = this.figure.appendChild(document.createElement("figcaption"));
    const title = caption.appendChild(document.createElement("h3"));
    title.textContent = spec.title;
    title.id = `chart-${spec.name}`;
    caption.append(` ${spec.unit}`);
    this.area = this.figure.appendChild(document.createElement("div"));
    this.area.className = "area";
    if (spec.meaning) this.figure.appendChild(document.createElement("p")).append(spec.meaning);
    this.figure.append(this.table());
    board.element.append(this.figure);
    this.plot = new uPlot(this.options(), this.data(), this.area);
    this.showNewest(this.plot);
    this.listen();
  }

  destroy() {
    this.plot.destroy();
    this.figure.remove();
  }

  update() {
    const { min, max } = this.plot.scales.x, [begin, end] = this.shown ?? this.board.extent;
    const zoomed = min > begin || max < end;
    this.plot.setData(this.data(), !zoomed);
    this.showNewest(this.plot);
    if (this.details.open) this.fillTable();
  }

  resize() {
    const width = this.area.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: CHART_HEIGHT });
  }

  // x, then for each line its values and the ends of its band; stacked ones are summed up from the bottom.
  data() {
    this.shown = this.board.extent;
    const names = [...new Set(this.lines.map((line) => line.table))];
    const columns = (line) => [line.column, line.low, line.high].filter(Boolean).map((each) => this.board.columnOf(line, each));
    const tables = names.map((name) => [
      this.board.xOf(name), ...this.lines.filter((line) => line.table === name).flatMap(columns),
    ]);
    this.raw = tables.length === 1 ? tables[0] : uPlot.join(tables);
    return this.spec.stacked ? this.sums() : this.raw;
  }

  sums() {
    const sum = new Array(this.raw[0].length).fill(0);
    return [this.raw[0], ...this.raw.slice(1).map((values) => values.map((value, at) => (sum[at] += value ?? 0)))];
  }

  options() {
    const { colors, axis } = this.board;
    const font = "12px system-ui, sans-serif";
    const line = { stroke: colors.quiet, font, grid: { stroke: colors.line, width: 1 }, ticks: { stroke: colors.line, width: 1 } };
    const series = [{ label: axis, value: (_, x) => this.xText(x) }], bands = [];
    this.lines.forEach((each, number) => this.addLine(each, number, series, bands));
    return {
      width: this.area.clientWidth || 300, height: CHART_HEIGHT, series, bands,
      scales: {
        x: { time: false, range: (_, low, high) => this.xRange(low, high) },
        y: { range: (_, low, high) => this.yRange(low, high) },
      },
      axes: [
        { ...line, size: 32, ...(axis === "time" ? { incrs: TIME_STEPS } : {}), values: (_, at) => at.map((x) => (axis === "time" ? shortTime(x) : Number.isInteger(x) ? x : "")) },
        { ...line, size: 58, values: (_, at) => at.map(shortNumber) },
      ],
      cursor: { sync: { key: "curves", scales: ["x", null] }, drag: { x: true, y: false }, points: { size: 7 }, y: false },
      legend: { markers: { width: 3, fill: () => "transparent", dash: (_, at) => ["solid", "dashed", "dotted", "dashed", "dotted"][this.numberOf(at) % 5] } },
      hooks: {
        draw: [(plot) => this.drawMarks(plot), (plot) => this.drawNames(plot)],
        setLegend: [(plot) => this.showNewest(plot)],
      },
    };
  }

  addLine(each, number, series, bands) {
    const { colors } = this.board, at = series.length;
    const color = colors.curves[number % colors.curves.length];
    const points = this.board.tables[each.table].step.length, dashed = each.dash.length && points < DENSE;
    series.push({
      label: each.label, stroke: color, width: points < DENSE ? 1.75 : 1, dash: dashed ? each.dash : undefined, spanGaps: true,
      points: { show: points < FEW && !this.spec.stacked && each.column !== "baseline", size: 5, fill: color },
      value: (_, __, seriesAt, index) => this.valueText(seriesAt, index),
    });
    if (each.low) {
      const hidden = { class: "band", stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      series.push({ ...hidden, label: "low" }, { ...hidden, label: "high" });
      bands.push({ series: [at + 2, at + 1], fill: faded(color, 0.18) });
    }
    if (this.spec.stacked && number > 0) bands.push({ series: [at, at - 1], fill: faded(color, 0.35) });
    if (this.spec.stacked && number === 0) series[at].fill = faded(color, 0.35);
  }

  // Which line a series belongs to: bands have two of their own.
  numberOf(seriesAt) {
    let at = 1;
    for (let number = 0; number < this.lines.length; number += 1) {
      const next = at + (this.lines[number].low ? 3 : 1);
      if (seriesAt < next) return number;
      at = next;
    }
    return 0;
  }

  // Without a cursor, the legend shows the newest values.
  showNewest(plot) {
    const last = (this.raw?.[0].length ?? 0) - 1;
    if (!(plot.cursor.left >= 0) && last >= 0) plot.setLegend({ idx: last }, false);
  }

  valueText(seriesAt, index) {
    if (index == null) return "–";
    const text = shortNumber(this.raw[seriesAt][index]);
    if (!this.lines[this.numberOf(seriesAt)].low || this.raw[seriesAt + 1][index] == null) return text;
    return `${text} [${shortNumber(this.raw[seriesAt + 1][index])}, ${shortNumber(this.raw[seriesAt + 2][index])}]`;
  }

  xText(x) {
    if (x == null) return "–";
    return this.board.axis === "time" ? shortTime(x) : String(x);
  }

  // Of all charts alike, unless somebody zooms.
  xRange(low, high) {
    const x = this.raw[0];
    return low == null || (low === x[0] && high === x[x.length - 1]) ? this.board.extent : [low, high];
  }

  yRange(low, high) {
    if (low == null) return [0, 1];
    if (this.spec.stacked) return [0, high || 1];
    if (high - low < 1e-12) return low === 0 ? [0, 1] : [low - Math.abs(low) / 2, low + Math.abs(low) / 2];
    return uPlot.rangeNum(low, high, 0.08, true);
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot, ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = this.board.colors.quiet;
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    let free = 0;
    for (const mark of this.board.inOrder()) {
      const x = this.board.place(mark);
      if (x === null || x < plot.scales.x.min || x > plot.scales.x.max) continue;
      const left = plot.valToPos(x, "x", true);
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
      const at = Math.max(left, free);
      ctx.fillText(mark.sign, at, bbox.top - 3 * ratio);
      free = at + ctx.measureText(`${mark.sign} `).width;
    }
    ctx.restore();
  }

  // At the end of each line, or within its part of a stack where there is room: which one it is.
  drawNames(plot) {
    if (this.lines.length < 2) return;
    const { ctx, bbox } = plot, { colors } = this.board, ratio = devicePixelRatio, height = 13 * ratio;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.lineWidth = 4 * ratio;
    ctx.lineJoin = "round";
    ctx.strokeStyle = faded(colors.ground, 0.85);
    const taken = [];
    const places = this.lines.map((line, number) => ({ line, number, ...this.placeOfName(plot, number, height) }));
    const found = places.filter((each) => each.top !== undefined).sort((one, other) => one.top - other.top);
    found.forEach(({ line, number, left, top }) => { // from the top: names stand in the order of their lines
      const width = ctx.measureText(line.label).width;
      left = Math.max(left, bbox.left + width + height);
      while (taken.some((each) => Math.abs(each.top - top) < height && Math.abs(each.left - left) < width)) top += height;
      taken.push({ left, top });
      ctx.fillStyle = colors.curves[number % colors.curves.length];
      ctx.strokeText(line.label, left, top);
      ctx.fillText(line.label, left, top);
    });
    ctx.restore();
  }

  placeOfName(plot, number, height) {
    const at = this.seriesOf(number), { bbox } = plot, values = plot.data[at];
    const [from, to] = plot.series[0].idxs ?? [0, values.length - 1];
    let last = Math.max(from, to);
    while (last > from && values[last] == null) last -= 1;
    if (values[last] == null) return null;
    const pixel = (value) => plot.valToPos(value, "y", true), left = plot.valToPos(plot.data[0][last], "x", true) - height / 2;
    if (!this.spec.stacked) {
      const near = values.slice(Math.max(from, last - 20), last + 1).filter((each) => each != null);
      const top = pixel(near.reduce((sum, each) => sum + each, 0) / near.length) - height / 2;
      return { left, top: Math.max(bbox.top + height, Math.min(bbox.top + bbox.height - height, top)) };
    }
    const top = pixel(values[last]), bottom = pixel(number > 0 ? plot.data[at - 1][last] : 0);
    return bottom - top > height ? { left, top: (top + bottom) / 2 } : null;
  }

  // --- the mouse and the keyboard --------------------------------------------------------------------------------
  listen() {
    const { over } = this.plot;
    let pressed = 0;
    over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - pressed) < 4) this.choose(this.plot.cursor.idx);
    });
    over.classList.toggle("chooses", Boolean(this.board.pick));
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "group");
    const enter = this.board.pick ? ", Enter shows the rollouts of a step" : "";
    this.area.setAttribute("aria-label", `${this.spec.title}: arrow keys go from point to point${enter}`);
    this.area.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    const last = this.raw[0].length - 1, at = this.plot.cursor.idx ?? last;
    const far = event.shiftKey ? 10 : 1;
    const next = { ArrowLeft: at - far, ArrowRight: at + far, Home: 0, End: last }[event.key];
    if (event.key === "Enter") this.choose(at);
    if (next === undefined) return;
    event.preventDefault();
    this.go(Math.max(0, Math.min(last, next)));
  }

  go(index) {
    const left = this.plot.valToPos(this.raw[0][index], "x");
    this.plot.setCursor({ left, top: CHART_HEIGHT / 3 }, true, true);
    const values = this.lines.map((line, number) => `${line.label} ${this.valueText(this.seriesOf(number), index)}`);
    this.board.said.textContent = `${this.board.axis} ${this.xText(this.raw[0][index])}: ${values.join(", ")}`;
  }

  seriesOf(number) {
    return 1 + this.lines.slice(0, number).reduce((sum, line) => sum + (line.low ? 3 : 1), 0);
  }

  choose(index) {
    if (index == null || !this.board.pick) return;
    this.board.pick(this.board.tables[this.lines[0].table].step[index]);
  }

  // --- the table -------------------------------------------------------------------------------------------------
  table() {
    this.details = document.createElement("details");
    this.details.appendChild(document.createElement("summary")).textContent = `${this.spec.title} as a table`;
    this.rows = this.details.appendChild(document.createElement("div"));
    this.rows.className = "scroll rows";
    this.rows.tabIndex = 0;
    this.rows.setAttribute("role", "region");
    this.rows.setAttribute("aria-label", `${this.spec.title}, table`);
    this.details.addEventListener("toggle", () => this.details.open && this.fillTable());
    return this.details;
  }

  fillTable() {
    const table = document.createElement("table"), x = this.raw[0];
    const stride = Math.ceil(x.length / MOST_TABLE_ROWS) || 1;
    const row = (parent, cells, tag) => {
      const line = parent.appendChild(document.createElement("tr"));
      cells.forEach((cell, at) => {
        const made = line.appendChild(document.createElement(at === 0 || tag === "th" ? "th" : "td"));
        made.textContent = cell;
        made.className = "number";
        if (made.tagName === "TH") made.scope = tag === "th" ? "col" : "row";
      });
    };
    row(table.createTHead(), [this.board.axis, ...this.lines.map((line) => line.label)], "th");
    const body = table.createTBody();
    for (let index = 0; index < x.length; index += stride) {
      const at = Math.min(index, x.length - 1);
      row(body, [this.xText(x[at]), ...this.lines.map((_, number) => this.valueText(this.seriesOf(number), at))], "td");
    }
    if (stride > 1) table.createCaption().textContent = `Every ${stride}th point`;
    this.rows.replaceChildren(table);
  }
}
