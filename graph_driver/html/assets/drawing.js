// The picture of the iteration space: instances, dependence arrows, tiles, execution order.

const MOST_POINTS = 3000, MOST_ARROWS = 1500;

// Statements drawn together differ in shape: circle, square, diamond.
function shape(k, x, y, r, attributes) {
  if (k % 3 === 0) return svg("circle", { cx: x, cy: y, r, ...attributes });
  if (k % 3 === 1) return svg("rect", { x: x - r * 0.9, y: y - r * 0.9, width: r * 1.8, height: r * 1.8, rx: 1.5, ...attributes });
  return svg("path", { d: `M${x - r * 1.25} ${y}L${x} ${y - r * 1.25}L${x + r * 1.25} ${y}L${x} ${y + r * 1.25}Z`, ...attributes });
}

class Drawing extends SpaceControls {
  // ---- picture ---------------------------------------------------------------------------------

  draw() {
    this.stop();
    this.step = null;
    const legal = this.space.context(this.sizes);
    const held = new Set(Object.keys(this.fixed).filter((i) => !this.axes.includes(i)));
    const fixed = Object.fromEntries(
      this.chosen().flatMap((s) => s.iters.filter((i) => held.has(stem(i))).map((i) => [i, this.fixed[stem(i)]])),
    );
    const found = legal ? this.space.instances(
      [...this.names],
      this.sizes,
      fixed,
      (i) => this.window(i),
      MOST_POINTS,
    ) : { instances: [], clipped: [], full: false };
    this.instances = found.instances;
    const together = new Set(this.together ? this.loops.filter((l) => this.apart(l)) : []);
    this.last = this.space.rank(this.instances, together);
    this.clock.max = String(Math.max(1, this.last));
    this.clock.value = this.clock.max;
    const wanted = (d) => this.kinds.has(edgeKind(d)) && this.names.has(d.from) && this.names.has(d.to);
    this.edges = this.space.edges(this.instances, this.sizes, wanted, MOST_ARROWS, edgeKind);
    this.sizeText.textContent = this.params.length ? this.params.map(
      (p) => `${p} = ${this.sizes[p]}`,
    ).join(", ") : this.windows ? "two blocks of each loop" : `the first ${this.size} values`;
    this.place();
    this.paint();
    this.say(found, legal);
    this.legend();
  }

  say(found, legal) {
    if (!legal) { this.status.textContent = `No such sizes: they must satisfy ${this.space.data.contextText}.`; return; }
    const held = Object.entries(this.fixed).filter(
      ([i]) => this.iters().includes(i) && !this.axes.includes(i),
    ).map(([i, v]) => `${i} = ${v}`);
    const parts = [plural(this.instances.length, "instance"), plural(this.last, "step"), plural(this.edges.total, "dependence")];
    if (held.length) parts.push(`slice at ${held.join(", ")}`);
    if (this.edges.leaving) parts.push(`${plural(this.edges.leaving, "more dependence")} to or from instances outside the picture`);
    if (this.edges.total > this.edges.edges.length) parts.push(`${MOST_ARROWS} arrows drawn`);
    if (found.clipped.length) parts.push(`only the first ${found.clipped.join(", ")}`);
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
      const known = this.instances.map(
        (x) => (axis.startsWith("loop:") ? x.loops[axis.slice(5)] : x.at[x.statement.iters.map(stem).indexOf(axis)]),
      ).filter((v) => v !== undefined);
      lows[axis] = known.reduce((a, b) => Math.min(a, b), Infinity);
      highs[axis] = known.reduce((a, b) => Math.max(a, b), -Infinity);
      if (!known.length) { lows[axis] = 0; highs[axis] = 0; }
    }
    const order = this.chosen().map((s) => s.name), shift = order.length > 1 ? 0.3 : 0;
    const [yaw, pitch] = this.turn, three = this.axes.length === 3;
    this.project = (v) => {
      if (!three) return [v[0], -(v[1] || 0), 0];
      const [x, y, z] = [
        v[0] - (lows[this.axes[0]] + highs[this.axes[0]]) / 2,
        v[1] - (lows[this.axes[1]] + highs[this.axes[1]]) / 2,
        v[2] - (lows[this.axes[2]] + highs[this.axes[2]]) / 2,
      ];
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
    const min = (list) => list.reduce((a, b) => Math.min(a, b), Infinity), max = (list) => list.reduce(
      (a, b) => Math.max(a, b),
      -Infinity,
    );
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
      x.dot = shape(
        order.indexOf(x.statement.name),
        X(x.px),
        Y(x.py),
        radius,
        { class: "pt", fill: colour(x), on: { mouseenter: () => this.point(x), mouseleave: () => this.unpoint() } },
      );
      return x.dot;
    });
    const heads = Object.keys(KIND).map((k) => svg(
      "marker",
      {
        id: `head-${k}`,
        viewBox: "0 0 8 8",
        refX: "6",
        refY: "4",
        markerWidth: "7",
        markerHeight: "7",
        orient: "auto-start-reverse",
        markerUnits: "userSpaceOnUse",
      },
      svg("path", { d: "M0 0L8 4L0 8z", class: `tip e-${k}` }),
    ));
    this.svg = svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        class: `space${this.axes.length === 3 ? " turns" : ""}${arrows.length > 250 ? " crowded" : ""}`,
        role: "img",
        "aria-label": "Iteration space",
        preserveAspectRatio: "xMidYMid meet",
        css: { "max-width": `${Math.max(320, (width / unit) * 64)}px` },
      },
      [svg("defs", {}, heads), ...tiles, ...axes, ...arrows, ...points],
    );
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
    this.picture.addEventListener(
      "pointerdown",
      (e) => { if (active()) { from = [e.clientX, e.clientY, ...this.turn]; this.picture.setPointerCapture(e.pointerId); } },
    );
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
    else if (this.colour === "statement") this.space.statements.forEach((s, k) => {
      if (this.names.has(s.name)) items.push(el(
        "span",
        {},
        [el("i", { class: "dot", css: { background: PALETTE[k % PALETTE.length] } }), s.name],
      ));
    });
    else items.push(el("span", {}, `one colour for each block of ${this.upTo(this.colour.slice(5))} (colours repeat)`));
    if (this.names.size > 1) this.chosen().forEach(
      (s, k) => items.push(el(
        "span",
        {},
        [
          svg(
            "svg",
            { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" },
            shape(k, 8, 8, 6, { class: "pt plainshape" }),
          ),
          s.name,
        ],
      )),
    );
    const drawn = new Set(this.edges.edges.map(([, , d]) => edgeKind(d)));
    for (const k of Object.keys(KIND)) {
      if (drawn.has(k)) items.push(el("span", {}, [el("i", { class: `stroke e-${k}` }), `${KIND[k][0]}: ${KIND[k][1]}`]));
    }
    if (this.axes.length === 3) items.push(el("span", { class: "dim" }, "drag to turn"));
    this.key.replaceChildren(...items);
  }
}
