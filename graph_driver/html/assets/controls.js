// What the picture of the iteration space shows: statements, axes, sizes, colours, dependences.

const KIND = {
  RAW: ["flow", "reads what the source wrote"],
  WAR: ["anti", "overwrites what the source read"],
  WAW: ["output", "overwrites what the source wrote"],
  RED: ["reduction", "updates of one sum: may change places"],
};
const SIZE = { 1: [40, 120], 2: [12, 48], 3: [6, 14] }; // by dimensions: first value and last of the slider
const MOST_BLOCK = 128;
const stem = (iter) => iter.replace(/_\d+$/, "");              // `i_1` is a second loop that the program calls `i`
const edgeKind = (d) => (d.reduction ? "RED" : d.kind);

class SpaceControls {
  constructor(data, marks, links) {
    this.space = new Space(data);
    this.params = data.params;
    this.marks = marks;                                     // loop name -> kind
    this.links = links;
    const deepest = [...this.space.statements].sort((a, b) => b.iters.length - a.iters.length)[0];
    const alike = this.space.statements.filter((s) => s.iters.map(stem).join() === deepest.iters.map(stem).join());
    this.names = new Set((alike.length <= 3 ? alike : [deepest]).map((s) => s.name));
    this.loops = [
      ...new Set(this.space.statements.flatMap((s) => s.times.flatMap((t) => t.steps.map(([l]) => l)))),
    ].filter(Boolean);
    const outer = this.loops.filter((l) => l.endsWith(".out"));
    this.colour = outer.length ? `loop:${outer[outer.length - 1]}` : "order";
    this.kinds = new Set(["RAW", "RED"]);
    this.together = false;
    this.step = null;
    this.turn = [0.62, 0.42];
    this.sizes = {};
    this.fixed = {};
    this.element = el("div", { class: "view drawview" });
    this.chooseAxes();
    this.build();
  }

  chosen() { return this.space.statements.filter((s) => this.names.has(s.name)); }
  iters() { return [...new Set(this.chosen().flatMap((s) => s.iters.map(stem)))]; }
  chooseAxes() {
    const deepest = [...this.chosen()].sort((a, b) => b.iters.length - a.iters.length)[0];
    const iters = [...new Set(deepest.iters.map(stem))], axes = iters.slice(-3);
    this.axes = [...axes].reverse();
    this.fixed = {};
    this.size = SIZE[Math.max(1, this.axes.length)][0];
    for (const p of this.params) this.sizes[p] = this.size;
    this.showBlocks(deepest);
  }
  // Where a block is larger than what is drawn at first: as many values of each loop as two blocks have, or at
  // least the beginning of the second, within what is drawn.
  showBlocks(s) {
    this.windows = null;
    const outer = this.loops.filter((l) => l.endsWith(".out")), enough = Object.fromEntries(this.params.map((p) => [p, MOST_BLOCK * 2]));
    const blocks = s.iters.map((_, k) => this.space.block(s, k, outer, enough, MOST_BLOCK));
    if (!blocks.some((b) => b !== null && b >= this.size)) return;
    const points = (w) => w.reduce((a, n) => a * n, 1);
    const attempts = [[2, this.size], [2, 2], [1.25, 2], [1.1, 1]].map(([times, others]) => blocks.map(
      (b) => (b === null ? others : Math.max(b + 1, Math.ceil(b * times))),
    ));
    const chosen = attempts.find((w) => points(w) <= MOST_POINTS / this.chosen().length);
    if (!chosen) return;
    this.windows = Object.fromEntries(s.iters.map((i, k) => [stem(i), chosen[k]]));
    for (const p of this.params) this.sizes[p] = Math.max(...chosen);
  }
  window(iter) { return this.windows && this.windows[stem(iter)] ? this.windows[stem(iter)] : Math.max(2, this.size); }

  // ---- controls --------------------------------------------------------------------------------

  build() {
    this.controls = el("div", { class: "controls" });
    this.picture = el("div", { class: "picture" });
    this.status = el("p", { class: "status", "aria-live": "polite" });
    this.key = el("div", { class: "legend", id: "drawlegend" });
    this.element.replaceChildren(this.controls, this.picture, this.status, this.key);
    this.fillControls();
  }
  field(label, control) { return el("label", { class: "field" }, [el("span", {}, label), control]); }
  select(options, value, change) {
    const s = el(
      "select",
      { on: { change: () => change(s.value) } },
      options.map(([v, t]) => el("option", { value: v, selected: v === value }, t)),
    );
    return s;
  }

  fillControls() {
    const rows = [];
    const several = this.space.statements.length > 1;
    if (several) {
      rows.push(el("fieldset", {}, [el("legend", {}, "Statements"), ...this.space.statements.map((s, k) => el("label", { class: "check" }, [
        el("input", { type: "checkbox", checked: this.names.has(s.name), on: { change: (e) => {
          if (e.target.checked) this.names.add(s.name); else if (this.names.size > 1) this.names.delete(s.name);
          this.chooseAxes(); this.fillControls(); this.draw();
        } } }), el("i", { class: "dot", css: { background: PALETTE[k % PALETTE.length] } }), `${s.name}[${s.iters.join(", ")}]`]))]));
    }
    const iters = this.iters();
    const axes = ["x", "y", "z"].map((name, k) => this.field(name, this.select(
      [
        ...(k ? [["", "–"]] : []),
        ...iters.map((i) => [i, i]),
        ...this.loops.filter((l) => !iters.includes(l)).map((l) => [`loop:${l}`, `loop ${l}`]),
      ],
      this.axes[k] || "", (v) => { this.axes[k] = v; this.axes = this.axes.filter(Boolean); this.resize(); this.fillControls(); this.draw(); })));
    const others = iters.filter((i) => !this.axes.includes(i));
    const held = others.map((i) => {
      const input = el(
        "input",
        {
          type: "number",
          value: String(this.fixed[i] ?? this.start(i)),
          class: "num",
          "aria-label": `value of ${i}`,
          on: { input: () => { this.fixed[i] = Number.parseInt(input.value, 10) || 0; this.draw(); } },
        },
      );
      this.fixed[i] = this.fixed[i] ?? this.start(i);
      return this.field(`${i} =`, input);
    });
    rows.push(el(
      "fieldset",
      {},
      [el("legend", {}, held.length ? "Axes, and the slice through the others" : "Axes"), ...axes, ...held],
    ));

    const [, most] = SIZE[Math.max(1, Math.min(3, this.axes.length))];
    this.slider = el(
      "input",
      {
        type: "range",
        min: "1",
        max: String(most),
        value: String(this.size),
        id: "size",
        on: { input: () => this.setSize(Number(this.slider.value)) },
      },
    );
    this.sizeText = el("output", {}, "");
    const single = this.params.length > 1 ? this.params.map((p) => {
      const input = el(
        "input",
        {
          type: "number",
          min: "0",
          value: String(this.sizes[p]),
          class: "num",
          data: { param: p },
          on: { input: () => { this.sizes[p] = Number.parseInt(input.value, 10) || 0; this.draw(); } },
        },
      );
      return this.field(`${p} =`, input);
    }) : [];
    rows.push(el(
      "fieldset",
      {},
      [
        el("legend", {}, "Size"),
        this.field(this.params.length === 1 ? this.params[0] : "all", this.slider),
        this.sizeText,
        ...single,
      ],
    ));

    const colours = [["order", "execution order"], ["statement", "statement"]];
    for (const l of this.loops) colours.push([`loop:${l}`, `blocks of ${this.upTo(l)}`]);
    const together = el("label", { class: "check" }, [
      el("input", {
        type: "checkbox",
        checked: this.together,
        on: { change: (e) => { this.together = e.target.checked; this.draw(); } },
      }),
      "parallel and vector iterations at once",
    ]);
    rows.push(el("fieldset", {}, [
      el("legend", {}, "Colour"),
      this.select(colours, this.colour, (v) => { this.colour = v; this.draw(); }),
      this.loops.some((l) => this.apart(l)) ? together : null,
    ]));
    const known = new Set(this.space.dependences.map(edgeKind));
    if (known.size) {
      rows.push(el("fieldset", {}, [el("legend", {}, "Dependences"), ...Object.keys(KIND).filter((k) => known.has(k)).map((k) => el("label", { class: "check", title: KIND[k][1] }, [
        el(
          "input",
          {
            type: "checkbox",
            checked: this.kinds.has(k),
            data: { kind: k },
            on: { change: (e) => { if (e.target.checked) this.kinds.add(k); else this.kinds.delete(k); this.draw(); } },
          },
        ),
        el("i", { class: `stroke e-${k}` }), KIND[k][0]]))]));
    }
    this.player = el("button", { type: "button", on: { click: () => this.play() } }, "▶ Play");
    this.clock = el(
      "input",
      {
        type: "range",
        min: "0",
        max: "1",
        value: "1",
        "aria-label": "Time",
        on: { input: () => { this.stop(); this.step = Number(this.clock.value); this.paintTime(); } },
      },
    );
    rows.push(el("fieldset", {}, [el("legend", {}, "Order of execution"), this.player, this.clock,
      el("button", { type: "button", on: { click: () => { this.stop(); this.step = null; this.clock.value = this.clock.max; this.paintTime(); } } }, "All")]));
    this.controls.replaceChildren(...rows);
  }
  // A loop and the loops around it, outermost first.
  nest(loop) {
    const branches = this.space.statements.flatMap((s) => s.times.map((t) => t.steps.map(([l]) => l).filter(Boolean)));
    const branch = branches.find((b) => b.includes(loop)) || [];
    return branch.slice(0, branch.indexOf(loop) + 1);
  }
  upTo(loop) { return this.nest(loop).slice(-3).join(", "); }
  apart(loop) { return !["serial", "unroll", undefined].includes(this.marks[loop]); }
  start(iter) {
    const s = this.chosen().find((x) => x.iters.map(stem).includes(iter)), k = s.iters.map(stem).indexOf(iter);
    return s.low[k](this.sizes);
  }
  resize() {
    const [first, last] = SIZE[Math.max(1, Math.min(3, this.axes.length))];
    if (this.size > last) this.size = first;
    for (const p of this.params) this.sizes[p] = this.size;
  }
  setSize(n) {
    this.size = n;
    this.windows = null;
    for (const p of this.params) this.sizes[p] = n;
    for (const input of this.controls.querySelectorAll("[data-param]")) input.value = String(n);
    this.draw();
  }
}
