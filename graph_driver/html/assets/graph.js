// The model as boxes and lines. Places come from Python (graph_driver/html/layers.py); here only zoom and pan.

const BOX = { width: 206, height: 50, across: 232, down: 86 };

// Kinds of work by colour (and by name in the legend). First match wins.
const FAMILIES = [
  ["contraction", /Conv|MatMul|Gemm|Einsum|Attention|LSTM|GRU|RNN|WinogradProducts/, "#0072b2"],
  ["pooling and reductions", /Pool|Reduce|ArgM|Softmax|Norm|TopK|CumSum/, "#e69f00"],
  ["casts", /^Cast$/, "#d55e00"],
  ["data movement", /Transpose|Concat|Split|Slice|Gather|Scatter|Pad|Resize|Expand|Tile|Shape|Copy|Depth|Space|Winograd/, "#cc79a7"],
  ["pointwise", /.*/, "#009e73"],
];
const family = (label) => FAMILIES.find(([, pattern]) => pattern.test(label));

class GraphView {
  constructor(data, choose) {
    this.data = data;
    this.choose = choose;
    this.element = el("div", { class: "view graphview" });
    this.scene = svg("g", {});
    this.svg = svg(
      "svg",
      { class: "graph", tabindex: "0", role: "application", "aria-label": "Graph of the model's steps" },
      this.scene,
    );
    this.marks = [];
    this.draw();
    const button = (text, title, click) => el("button", { type: "button", title, on: { click } }, text);
    const tools = el("div", { class: "zoom" }, [
      button("+", "Zoom in", () => this.zoom(1.3)),
      button("−", "Zoom out", () => this.zoom(1 / 1.3)),
      button("All", "Show everything", () => this.fit(true)),
    ]);
    const used = FAMILIES.filter((f) => data.steps.some((s) => s.kind === "kernel" && family(s.label) === f));
    const legend = el("div", { class: "legend" }, [...used.map(([name, , colour]) => el("span", {}, [el("i", { class: "dot", css: { background: colour } }), name])),
      data.steps.some((s) => s.kind === "host") ? el("span", {}, [el("i", { class: "swatch hostswatch" }), "on the host"]) : null,
      el("span", { class: "dim" }, "one box is one kernel call; several operators in it are fused")]);
    this.element.append(legend, this.svg, tools);
    this.connect();
  }

  x(v) { return 30 + v * BOX.across; }
  y(layer) { return 20 + layer * BOX.down; }

  draw() {
    const { boxes, lines, drawing } = this.data;
    this.size = [this.x(drawing.width) + BOX.width + 30, this.y(drawing.layers - 1) + BOX.height + 30];
    this.lineElements = lines.map((l) => {
      const points = l.path.map(([x, layer]) => [this.x(x) + BOX.width / 2, this.y(layer)]);
      let d = "";
      points.forEach(([x, y], k) => {
        const [top, bottom] = [y, y + BOX.height];
        if (k === 0) { d = `M${x} ${bottom}`; return; }
        const py = points[k - 1][1] + BOX.height, px = points[k - 1][0];
        d += `C${px} ${(py + top) / 2} ${x} ${(py + top) / 2} ${x} ${top - (k === points.length - 1 ? 5 : 0)}`;
        if (k < points.length - 1) d += `L${x} ${bottom}`;
      });
      const element = svg(
        "path",
        { d, class: "wire", "marker-end": "url(#wire-head)" },
        svg("title", {}, l.tensors.map((t) => `${t}: ${(this.data.tensors[t] || {}).type || "?"}`).join("\n")),
      );
      element.line = l;
      return element;
    });
    this.boxElements = boxes.map((b, k) => this.box(b, k));
    const head = svg(
      "marker",
      {
        id: "wire-head",
        viewBox: "0 0 8 8",
        refX: "6",
        refY: "4",
        markerWidth: "8",
        markerHeight: "8",
        orient: "auto",
        markerUnits: "userSpaceOnUse",
      },
      svg("path", { d: "M0 0L8 4L0 8z", class: "wiretip" }),
    );
    this.scene.append(svg("defs", {}, head), ...this.lineElements, ...this.boxElements);
  }

  box(b, k) {
    const at = `translate(${this.x(b.x)} ${this.y(b.layer)})`;
    let title, sub, kind = b.kind, colour = "var(--dim)";
    if (b.kind === "step") {
      const s = this.data.steps[b.step];
      kind = s.kind;
      title = (s.label || s.kind).replaceAll("polyc::", "");
      const out = this.data.tensors[s.results[0]];
      sub = `${s.kind === "host" ? "host · " : ""}${out ? out.type : ""}`;
      if (s.kind === "kernel") colour = family(s.label)[2];
    } else {
      title = `${b.kind} ${b.tensor}`;
      sub = (this.data.tensors[b.tensor] || {}).type || "";
    }
    const cut = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);
    const group = svg("g", { class: `box k-${kind}`, transform: at, on: { click: () => this.select(k, false) } }, [
      svg("title", {}, `${title}\n${sub}`),
      svg("rect", { width: BOX.width, height: BOX.height, rx: 7 }),
      svg("rect", { width: 6, height: BOX.height, rx: 3, class: "stripe", css: { fill: colour } }),
      svg("svg", { width: BOX.width - 6, height: BOX.height }, [ // clips what a wider font would let out
        svg("text", { x: 16, y: 21, class: "boxname" }, cut(title, 20)),
        svg("text", { x: 16, y: 39, class: "boxsub" }, cut(sub, 29))]),
    ]);
    return group;
  }

  // ---- selection ---------------------------------------------------------------------------------

  select(k, center) {
    this.at = k;
    for (const m of this.marks) m.classList.remove("chosen", "near");
    this.marks = [this.boxElements[k]];
    this.boxElements[k].classList.add("chosen");
    for (const w of this.lineElements) {
      if (w.line.from !== k && w.line.to !== k) continue;
      const other = this.boxElements[w.line.from === k ? w.line.to : w.line.from];
      for (const e of [w, other]) { e.classList.add("near"); this.marks.push(e); }
    }
    if (center) this.center(k);
    const b = this.data.boxes[k];
    this.choose(b.kind === "step" ? b.step : null, b);
  }
  selectStep(step, center) { this.select(this.data.boxes.findIndex((b) => b.step === step), center); }

  // ---- zoom and pan ------------------------------------------------------------------------------

  apply() { this.scene.setAttribute("transform", `translate(${this.tx} ${this.ty}) scale(${this.scale})`); }
  // Everything, or (at first) as much from the top as can still be read.
  fit(all) {
    const { clientWidth: w, clientHeight: h } = this.svg;
    if (!w || !h) return;
    const whole = Math.min(w / this.size[0], h / this.size[1]);
    this.scale = Math.min(1.1, all ? whole : Math.max(whole, Math.min(1, w / this.size[0], 0.9)));
    this.scale = all ? this.scale : Math.max(this.scale, 0.45);
    this.tx = (w - this.size[0] * this.scale) / 2;
    this.ty = all ? Math.max(0, (h - this.size[1] * this.scale) / 2) : 0;
    if (!all && this.size[0] * this.scale > w) this.tx = w / 2 - (this.x(this.data.boxes[0].x) + BOX.width / 2) * this.scale;
    this.apply();
  }
  zoom(by, cx, cy) {
    const x = cx ?? this.svg.clientWidth / 2, y = cy ?? this.svg.clientHeight / 2;
    const to = Math.max(0.03, Math.min(3, this.scale * by)), ratio = to / this.scale;
    this.tx = x - (x - this.tx) * ratio;
    this.ty = y - (y - this.ty) * ratio;
    this.scale = to;
    this.apply();
  }
  center(k) {
    const b = this.data.boxes[k];
    if (this.scale < 0.4) this.scale = 0.8;
    this.tx = this.svg.clientWidth / 2 - (this.x(b.x) + BOX.width / 2) * this.scale;
    this.ty = this.svg.clientHeight / 2 - (this.y(b.layer) + BOX.height / 2) * this.scale;
    this.apply();
  }
  connect() {
    let from = null;
    this.svg.addEventListener(
      "wheel",
      (e) => {
        const r = this.svg.getBoundingClientRect();
        this.zoom(e.deltaY < 0 ? 1.15 : 1 / 1.15, e.clientX - r.left, e.clientY - r.top);
        e.preventDefault();
      },
      { passive: false },
    );
    this.svg.addEventListener("pointerdown", (e) => { from = [e.clientX - this.tx, e.clientY - this.ty]; });
    this.svg.addEventListener(
      "pointermove",
      (e) => { if (from && e.buttons) { this.tx = e.clientX - from[0]; this.ty = e.clientY - from[1]; this.apply(); } },
    );
    addEventListener("pointerup", () => { from = null; });
    this.svg.addEventListener("keydown", (e) => {
      const next = { ArrowDown: () => this.walk("from", "to"), ArrowUp: () => this.walk("to", "from"), ArrowRight: () => this.beside(1), ArrowLeft: () => this.beside(-1),
        "+": () => this.zoom(1.3), "-": () => this.zoom(1 / 1.3), 0: () => this.fit(true) }[e.key];
      if (!next) return;
      next();
      e.preventDefault();
    });
  }
  walk(end, other) {
    const line = this.data.lines.find((l) => l[end] === (this.at ?? 0));
    if (line) this.select(line[other], true);
  }
  beside(step) {
    const here = this.data.boxes[this.at ?? 0];
    const row = this.data.boxes.map((b, k) => [b, k]).filter(([b]) => b.layer === here.layer).sort((a, b) => a[0].x - b[0].x);
    const to = row[row.findIndex(([, k]) => k === (this.at ?? 0)) + step];
    if (to) this.select(to[1], true);
  }
}
