// The picture of the iteration space: instances, dependence arrows, tiles, execution order.

const KIND = {
  RAW: ["flow", "reads what the source wrote"],
  WAR: ["anti", "overwrites what the source read"],
  WAW: ["output", "overwrites what the source wrote"],
  RED: ["reduction", "updates of one sum: may change places"],
};
const MOST_POINTS = 3000, MOST_ARROWS = 1500;
const SIZE = { 1: [40, 120], 2: [12, 48], 3: [6, 14] }; // by dimensions: first value and last of the slider
const stem = (iter) => iter.replace(/_\d+$/, "");              // `i_1` is a second loop that the program calls `i`
const edgeKind = (d) => (d.reduction ? "RED" : d.kind);

// Statements drawn together differ in shape: circle, square, diamond.
function shape(k, x, y, r, attributes) {
  if (k % 3 === 0) return svg("circle", { cx: x, cy: y, r, ...attributes });
  if (k % 3 === 1) return svg("rect", { x: x - r * 0.9, y: y - r * 0.9, width: r * 1.8, height: r * 1.8, rx: 1.5, ...attributes });
  return svg("path", { d: `M${x - r * 1.25} ${y}L${x} ${y - r * 1.25}L${x + r * 1.25} ${y}L${x} ${y + r * 1.25}Z`, ...attributes });
}

class Drawing {
  constructor(data, marks, links) {
    this.space = new Space(data);
    this.params = data.params;
    this.marks = marks;                                     // loop name -> kind
    this.links = links;
    const deepest = [...this.space.statements].sort((a, b) => b.iters.length - a.iters.length)[0];
    const alike = this.space.statements.filter((s) => s.iters.map(stem).join() === deepest.iters.map(stem).join());
    this.names = new Set((alike.length <= 3 ? alike : [deepest]).map((s) => s.name));
    this.loops = [...new Set(this.space.statements.flatMap((s) => s.times.flatMap((t) => t.steps.map(([l]) => l))))].filter(Boolean);
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
  }

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
    const s = el("select", { on: { change: () => change(s.value) } }, options.map(([v, t]) => el("option", { value: v, selected: v === value }, t)));
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
      [...(k ? [["", "–"]] : []), ...iters.map((i) => [i, i]), ...this.loops.filter((l) => !iters.includes(l)).map((l) => [`loop:${l}`, `loop ${l}`])],
      this.axes[k] || "", (v) => { this.axes[k] = v; this.axes = this.axes.filter(Boolean); this.resize(); this.fillControls(); this.draw(); })));
    const others = iters.filter((i) => !this.axes.includes(i));
    const held = others.map((i) => {
      const input = el("input", { type: "number", value: String(this.fixed[i] ?? this.start(i)), class: "num", "aria-label": `value of ${i}`, on: { input: () => { this.fixed[i] = Number.parseInt(input.value, 10) || 0; this.draw(); } } });
      this.fixed[i] = this.fixed[i] ?? this.start(i);
      return this.field(`${i} =`, input);
    });
    rows.push(el("fieldset", {}, [el("legend", {}, held.length ? "Axes, and the slice through the others" : "Axes"), ...axes, ...held]));

    const [, most] = SIZE[Math.max(1, Math.min(3, this.axes.length))];
    this.slider = el("input", { type: "range", min: "1", max: String(most), value: String(this.size), id: "size", on: { input: () => this.setSize(Number(this.slider.value)) } });
    this.sizeText = el("output", {}, "");
    const single = this.params.length > 1 ? this.params.map((p) => {
      const input = el("input", { type: "number", min: "0", value: String(this.sizes[p]), class: "num", data: { param: p }, on: { input: () => { this.sizes[p] = Number.parseInt(input.value, 10) || 0; this.draw(); } } });
      return this.field(`${p} =`, input);
    }) : [];
    rows.push(el("fieldset", {}, [el("legend", {}, "Size"), this.field(this.params.length === 1 ? this.params[0] : "all", this.slider), this.sizeText, ...single]));

    rows.push(el("fieldset", {}, [el("legend", {}, "Colour"), this.select([["order", "execution order"], ["statement", "statement"],
      ...this.loops.map((l) => [`loop:${l}`, `blocks of ${this.upTo(l)}`])], this.colour, (v) => { this.colour = v; this.draw(); }),
      this.loops.some((l) => this.apart(l)) ? el("label", { class: "check" }, [el("input", { type: "checkbox", checked: this.together, on: { change: (e) => { this.together = e.target.checked; this.draw(); } } }), "parallel and vector iterations at once"]) : null]));
    const known = new Set(this.space.dependences.map(edgeKind));
    if (known.size) {
      rows.push(el("fieldset", {}, [el("legend", {}, "Dependences"), ...Object.keys(KIND).filter((k) => known.has(k)).map((k) => el("label", { class: "check", title: KIND[k][1] }, [
        el("input", { type: "checkbox", checked: this.kinds.has(k), data: { kind: k }, on: { change: (e) => { if (e.target.checked) this.kinds.add(k); else this.kinds.delete(k); this.draw(); } } }),
        el("i", { class: `stroke e-${k}` }), KIND[k][0]]))]));
    }
    this.player = el("button", { type: "button", on: { click: () => this.play() } }, "▶ Play");
    this.clock = el("input", { type: "range", min: "0", max: "1", value: "1", "aria-label": "Time", on: { input: () => { this.stop(); this.step = Number(this.clock.value); this.paintTime(); } } });
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
    for (const p of this.params) this.sizes[p] = n;
    for (const input of this.controls.querySelectorAll("[data-param]")) input.value = String(n);
    this.draw();
  }

  // ---- picture ---------------------------------------------------------------------------------

  draw() {
    this.stop();
    this.step = null;
    const legal = this.space.context(this.sizes);
    const held = new Set(Object.keys(this.fixed).filter((i) => !this.axes.includes(i)));
    const fixed = Object.fromEntries(this.chosen().flatMap((s) => s.iters.filter((i) => held.has(stem(i))).map((i) => [i, this.fixed[stem(i)]])));
    const found = legal ? this.space.instances([...this.names], this.sizes, fixed, Math.max(2, this.size), MOST_POINTS) : { instances: [], clipped: [], full: false };
    this.instances = found.instances;
    const together = new Set(this.together ? this.loops.filter((l) => this.apart(l)) : []);
    this.last = this.space.rank(this.instances, together);
    this.clock.max = String(Math.max(1, this.last));
    this.clock.value = this.clock.max;
    const wanted = (d) => this.kinds.has(edgeKind(d)) && this.names.has(d.from) && this.names.has(d.to);
    this.edges = this.space.edges(this.instances, this.sizes, wanted, MOST_ARROWS, edgeKind);
    this.sizeText.textContent = this.params.length ? this.params.map((p) => `${p} = ${this.sizes[p]}`).join(", ") : `the first ${this.size} values`;
    this.place();
    this.paint();
    this.say(found, legal);
    this.legend();
  }

  say(found, legal) {
    if (!legal) { this.status.textContent = `No such sizes: they must satisfy ${this.space.data.contextText}.`; return; }
    const held = Object.entries(this.fixed).filter(([i]) => this.iters().includes(i) && !this.axes.includes(i)).map(([i, v]) => `${i} = ${v}`);
    const parts = [plural(this.instances.length, "instance"), plural(this.last, "step"), plural(this.edges.total, "dependence")];
    if (held.length) parts.push(`slice at ${held.join(", ")}`);
    if (this.edges.leaving) parts.push(`${plural(this.edges.leaving, "more dependence")} to or from instances outside the picture`);
    if (this.edges.total > this.edges.edges.length) parts.push(`${MOST_ARROWS} arrows drawn`);
    if (found.clipped.length) parts.push(`only the first ${Math.max(2, this.size)} values of ${found.clipped.join(", ")}`);
    if (found.full) parts.push(`only ${MOST_POINTS} instances drawn`);
    this.summary = `${parts.join(" · ")}.`;
    this.status.textContent = this.summary;
  }

  coordinate(x, axis, lows) {
    if (axis.startsWith("loop:")) return x.loops[axis.slice(5)] ?? lows[axis] - 1;
    const k = x.statement.iters.map(stem).indexOf(axis);
    return k < 0 ? lows[axis] - 1 : x.at[k];
  }

  // Positions in the picture: plain in one and two dimensions, turned (orthographic) in three.
  place() {
    const lows = {}, highs = {};
    for (const axis of this.axes) {
      const known = this.instances.map((x) => (axis.startsWith("loop:") ? x.loops[axis.slice(5)] : x.at[x.statement.iters.map(stem).indexOf(axis)])).filter((v) => v !== undefined);
      lows[axis] = known.reduce((a, b) => Math.min(a, b), Infinity);
      highs[axis] = known.reduce((a, b) => Math.max(a, b), -Infinity);
      if (!known.length) { lows[axis] = 0; highs[axis] = 0; }
    }
    const order = this.chosen().map((s) => s.name), shift = order.length > 1 ? 0.3 : 0;
    const [yaw, pitch] = this.turn, three = this.axes.length === 3;
    this.project = (v) => {
      if (!three) return [v[0], -(v[1] || 0), 0];
      const [x, y, z] = [v[0] - (lows[this.axes[0]] + highs[this.axes[0]]) / 2, v[1] - (lows[this.axes[1]] + highs[this.axes[1]]) / 2, v[2] - (lows[this.axes[2]] + highs[this.axes[2]]) / 2];
      const a = x * Math.cos(yaw) - z * Math.sin(yaw), b = x * Math.sin(yaw) + z * Math.cos(yaw);
      return [a, -(y * Math.cos(pitch) - b * Math.sin(pitch)), b * Math.cos(pitch) + y * Math.sin(pitch)];
    };
    for (const x of this.instances) {
      const s = order.indexOf(x.statement.name) * shift;
      const v = this.axes.map((axis) => this.coordinate(x, axis, lows) + s);
      [x.px, x.py, x.depth] = this.project(v);
    }
    this.lows = lows;
    this.highs = highs;
  }

  group(x) {
    return this.blocks.filter((l) => x.loops[l] !== undefined).map((l) => x.loops[l]).join(",");
  }
  colours() {
    if (this.colour === "statement") {
      const all = this.space.statements.map((s) => s.name);
      return (x) => PALETTE[all.indexOf(x.statement.name) % PALETTE.length];
    }
    if (this.colour === "order") return (x) => ramp(this.last > 1 ? x.rank / (this.last - 1) : 0);
    const groups = [...new Set([...this.instances].sort((a, b) => a.rank - b.rank).map((x) => this.group(x)))];
    return (x) => PALETTE[groups.indexOf(this.group(x)) % PALETTE.length];
  }

  paint() {
    this.blocks = this.colour.startsWith("loop:") ? this.nest(this.colour.slice(5)) : [];
    const unit = 40, xs = this.instances.map((x) => x.px), ys = this.instances.map((x) => x.py);
    const min = (list) => list.reduce((a, b) => Math.min(a, b), Infinity), max = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
    const [x0, x1, y0, y1] = xs.length ? [min(xs), max(xs), min(ys), max(ys)] : [0, 1, 0, 1];
    const pad = this.axes.length === 3 ? 2 : 1.5, width = (x1 - x0 + 2 * pad) * unit, height = (y1 - y0 + 2 * pad) * unit;
    const X = (x) => (x - x0 + pad) * unit, Y = (y) => (y - y0 + pad) * unit;
    const colour = this.colours(), radius = this.axes.length === 3 || this.names.size > 1 ? 7 : 10;
    const order = this.chosen().map((s) => s.name);
    const tiles = this.colour.startsWith("loop:") ? this.tiles(X, Y, colour) : [];
    const axes = this.axisMarks(X, Y);
    const arrows = this.edges.edges.map(([a, b, d]) => {
      const [ax, ay, bx, by] = [X(a.px), Y(a.py), X(b.px), Y(b.py)], length = Math.hypot(bx - ax, by - ay) || 1;
      const [ux, uy] = [(bx - ax) / length, (by - ay) / length], bend = length > unit * 1.9 ? length * 0.09 : 0;
      const [sx, sy, tx, ty] = [ax + ux * (radius + 1), ay + uy * (radius + 1), bx - ux * (radius + 4), by - uy * (radius + 4)];
      const path = bend ? `M${sx} ${sy}Q${(sx + tx) / 2 - uy * bend} ${(sy + ty) / 2 + ux * bend} ${tx} ${ty}` : `M${sx} ${sy}L${tx} ${ty}`;
      const line = svg("path", { d: path, class: `edge e-${edgeKind(d)}`, "marker-end": `url(#head-${edgeKind(d)})` });
      line.ends = [a, b];
      return line;
    });
    const points = [...this.instances].sort((a, b) => a.depth - b.depth).map((x) => {
      x.dot = shape(order.indexOf(x.statement.name), X(x.px), Y(x.py), radius, { class: "pt", fill: colour(x), on: { mouseenter: () => this.point(x), mouseleave: () => this.unpoint() } });
      return x.dot;
    });
    const heads = Object.keys(KIND).map((k) => svg("marker", { id: `head-${k}`, viewBox: "0 0 8 8", refX: "6", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto-start-reverse", markerUnits: "userSpaceOnUse" }, svg("path", { d: "M0 0L8 4L0 8z", class: `tip e-${k}` })));
    this.svg = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: `space${this.axes.length === 3 ? " turns" : ""}${arrows.length > 250 ? " crowded" : ""}`, role: "img", "aria-label": "Iteration space", preserveAspectRatio: "xMidYMid meet", css: { "max-width": `${Math.max(320, (width / unit) * 64)}px` } }, [svg("defs", {}, heads), ...tiles, ...axes, ...arrows, ...points]);
    this.arrows = arrows;
    if (this.axes.length === 3) this.connectTurning();
    this.picture.replaceChildren(this.svg);
  }

  tiles(X, Y, colour) {
    const groups = new Map();
    for (const x of this.instances) {
      const key = this.group(x);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(x);
    }
    return [...groups.values()].filter((g) => g.length > 1).map((g) => {
      const d = `M${hull(g.map((x) => [X(x.px), Y(x.py)])).map((p) => p.map((v) => Math.round(v * 10) / 10).join(" ")).join("L")}Z`;
      return svg("path", { d, class: "tile", stroke: colour(g[0]), fill: colour(g[0]) });
    });
  }

  axisMarks(X, Y) {
    const out = [], name = (axis) => (axis.startsWith("loop:") ? axis.slice(5) : axis);
    if (!this.instances.length || !this.axes.length) return out;
    // In three dimensions along the edges of the box that are in front.
    const near = this.axes.map((a, i) => (this.axes.length === 3 && i === 2 ? this.highs[a] + 0.9 : this.lows[a] - 0.9));
    this.axes.forEach((axis, k) => {
      const [lo, hi] = [this.lows[axis], this.highs[axis]];
      const at = (v) => {
        const p = near.map((n, i) => (i === k ? v : k === 2 && i === 0 ? this.highs[this.axes[0]] + 0.9 : n));
        const [x, y] = this.project(this.axes.length === 1 ? [p[0], -0.9] : p);
        return [X(x), Y(y)];
      };
      const [ax, ay] = at(lo - 0.4), [bx, by] = at(hi + 0.7);
      out.push(svg("line", { x1: ax, y1: ay, x2: bx, y2: by, class: "axis" }));
      const every = Math.max(1, Math.ceil((hi - lo + 1) / 8));
      for (let v = lo; v <= hi; v += every) {
        const [tx, ty] = at(v);
        const up = k === 1;
        out.push(svg("text", { x: tx + (up ? -14 : k === 2 ? 12 : 0), y: ty + (up ? 5 : 20), class: "tick" }, String(v)));
      }
      const beside = this.axes.length === 3 && k !== 1; // two axes meet in a corner: their names stand in the middle
      const [nx, ny] = at(beside ? (lo + hi) / 2 : hi + 1.15);
      out.push(svg("text", { x: nx + (beside ? (k ? 34 : -14) : 0), y: ny + (beside ? 44 : 5), class: "axisname" }, name(axis)));
    });
    return out;
  }

  // Listeners sit on the frame, which stays while the picture in it is drawn anew.
  connectTurning() {
    if (this.turns) return;
    this.turns = true;
    let from = null;
    const active = () => this.axes.length === 3;
    this.picture.addEventListener("pointerdown", (e) => { if (active()) { from = [e.clientX, e.clientY, ...this.turn]; this.picture.setPointerCapture(e.pointerId); } });
    this.picture.addEventListener("pointerup", () => { from = null; });
    this.picture.addEventListener("pointermove", (e) => {
      if (!from || !active()) return;
      this.turn = [from[2] + (e.clientX - from[0]) / 150, Math.max(-1.5, Math.min(1.5, from[3] + (e.clientY - from[1]) / 150))];
      this.place();
      this.paint();
      this.paintTime();
    });
  }

  // ---- pointing and time -------------------------------------------------------------------------

  point(x) {
    const values = x.statement.iters.map((i, k) => `${i}=${x.at[k]}`).join(", ");
    const near = this.edges.edges.filter(([a, b]) => a === x || b === x);
    const into = near.filter(([, b]) => b === x).map(([a, , d]) => `${KIND[edgeKind(d)][0]} ${d.array} from ${a.id}`);
    const onto = near.filter(([a]) => a === x).map(([, b, d]) => `${KIND[edgeKind(d)][0]} ${d.array} to ${b.id}`);
    this.status.textContent = `${x.statement.name}[${values}] runs in step ${x.rank + 1} of ${this.last}${[...into, ...onto].length ? `: ${[...into, ...onto].slice(0, 6).join("; ")}` : ""}`;
    this.svg.classList.add("pointing");
    for (const line of this.arrows) line.classList.toggle("on", line.ends.includes(x));
    x.dot.classList.add("on");
    this.links.hover({ keys: [`stmt:${x.statement.name}`] });
  }
  unpoint() {
    this.svg.classList.remove("pointing");
    for (const on of this.svg.querySelectorAll(".on")) on.classList.remove("on");
    this.status.textContent = this.summary || "";
    this.links.leave();
  }

  play() {
    if (this.timer) { this.stop(); return; }
    if (this.step === null || this.step >= this.last) this.step = 0;
    this.player.textContent = "❚❚ Pause";
    this.timer = setInterval(() => {
      this.step += Math.max(1, Math.round(this.last / 150));
      if (this.step >= this.last) { this.step = this.last; this.stop(); }
      this.clock.value = String(this.step);
      this.paintTime();
    }, Math.max(40, Math.min(300, 6000 / Math.max(1, this.last))));
  }
  stop() {
    if (this.timer) clearInterval(this.timer);
    this.timer = null;
    if (this.player) this.player.textContent = "▶ Play";
  }
  // Instances before the clock's step are done, those of the last step are marked, later ones wait.
  paintTime() {
    for (const x of this.instances) {
      x.dot.classList.toggle("later", this.step !== null && x.rank >= this.step);
      x.dot.classList.toggle("now", this.step !== null && x.rank === this.step - 1);
    }
    for (const line of this.arrows) line.classList.toggle("later", this.step !== null && line.ends[1].rank >= this.step);
    this.status.textContent = this.step === null ? this.summary : `Step ${this.step} of ${this.last}`;
  }

  legend() {
    const items = [];
    if (this.colour === "order") items.push(el("span", {}, ["first", el("i", { class: "gradient" }), "last"]));
    else if (this.colour === "statement") this.space.statements.forEach((s, k) => { if (this.names.has(s.name)) items.push(el("span", {}, [el("i", { class: "dot", css: { background: PALETTE[k % PALETTE.length] } }), s.name])); });
    else items.push(el("span", {}, `one colour for each block of ${this.upTo(this.colour.slice(5))} (colours repeat)`));
    if (this.names.size > 1) this.chosen().forEach((s, k) => items.push(el("span", {}, [svg("svg", { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" }, shape(k, 8, 8, 6, { class: "pt plainshape" })), s.name])));
    for (const k of Object.keys(KIND)) if (this.kinds.has(k) && this.edges.edges.some(([, , d]) => edgeKind(d) === k)) items.push(el("span", {}, [el("i", { class: `stroke e-${k}` }), `${KIND[k][0]}: ${KIND[k][1]}`]));
    if (this.axes.length === 3) items.push(el("span", { class: "dim" }, "drag to turn"));
    this.key.replaceChildren(...items);
  }
}
