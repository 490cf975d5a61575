// Speed over flops per byte, both logarithmic (Williams, Waterman & Patterson 2009), under the roofs that this machine's
// arithmetic and its levels of memory were measured to have. Without them: lines of equal bytes per second.

const LEVELS = [["memory", "memory"], ["l3", "L3"], ["l2", "L2"]];

// Each level's roof is one line: up to where the arithmetic bounds it, then flat.
function roofLines(roofs, X, Y, x0, x1, y0) {
  return LEVELS.flatMap(([level, name], k) => {
    const rate = roofs.bytes[level], ridge = Math.log10(roofs.flops / rate);
    const from = Math.max(x0, y0 - Math.log10(rate)), to = Math.min(ridge, x1);
    if (from >= to) return [];
    const slope = svg("line", { x1: X(10 ** from), y1: Y(rate * 10 ** from), x2: X(10 ** to), y2: Y(rate * 10 ** to), class: "roof" });
    const at = from + (to - from) * (0.5 + 0.1 * k);
    const label = svg("text", { x: X(10 ** at) - 7, y: Y(rate * 10 ** at) - 4, class: "tick end" }, `${name} ${bigText(rate)}B/s`);
    const flat = k === 0 && ridge < x1 ? [svg("text", { x: X(10 ** x1) - 4, y: Y(roofs.flops) - 5, class: "tick end" },
      `${bigText(roofs.flops)}flops/s on ${plural(roofs.threads, "thread")}`)] : [];
    return [slope, svg("line", { x1: X(10 ** to), x2: X(10 ** x1), y1: Y(roofs.flops), y2: Y(roofs.flops), class: "roof" }), label, ...flat];
  });
}

// Lines below dots, dots below labels.
function layered(marks, dots) {
  const written = (m) => m.tagName === "text";
  return [...marks.filter((m) => !written(m)), ...dots, ...marks.filter(written)];
}

function roofline(data, choose) {
  const points = data.steps.map((s, k) => ({ s, k, kernel: s.kernel === null ? null : data.kernels[s.kernel] }))
    .filter((p) => p.kernel && p.kernel.flops && p.kernel.bytes && p.s.seconds)
    .map((p) => ({ ...p, x: p.kernel.flops / p.kernel.bytes, y: p.kernel.flops / p.s.seconds }));
  if (!points.length) return null;
  const log = Math.log10, most = Math.max(...data.steps.map((s) => s.seconds || 0));
  const range = (list) => [Math.floor(log(Math.min(...list))), Math.ceil(log(Math.max(...list)) + 1e-9)];
  const [x0, x1] = range([...points.map((p) => p.x), ...(data.roofs ? [data.roofs.flops / data.roofs.bytes.memory] : [])]);
  const [y0, y1] = range([...points.map((p) => p.y), ...(data.roofs ? [data.roofs.flops] : [])]);
  const left = 76, top = 22, width = 760, height = 330, wide = Math.max(1, x1 - x0), tall = Math.max(1, y1 - y0);
  const X = (v) => left + ((log(v) - x0) / wide) * width, Y = (v) => top + height - ((log(v) - y0) / tall) * height;
  const ticks = [];
  for (let e = x0; e <= x0 + wide; e += 1) ticks.push(
    svg("line", { x1: X(10 ** e), x2: X(10 ** e), y1: top, y2: top + height, class: "grid" }),
    svg("text", { x: X(10 ** e), y: top + height + 18, class: "tick" }, String(Number((10 ** e).toPrecision(1)))),
  );
  for (let e = y0; e <= y0 + tall; e += 1) ticks.push(
    svg("line", { x1: left, x2: left + width, y1: Y(10 ** e), y2: Y(10 ** e), class: "grid" }),
    svg("text", { x: left - 8, y: Y(10 ** e) + 4, class: "tick end" }, bigText(10 ** e)),
  );
  const diagonals = [];
  for (let e = 6; e <= 13 && !data.roofs; e += 1) {
    // the part of flops/s = 10^e bytes/s * flops/byte that is inside the frame
    const from = Math.max(x0, y0 - e), to = Math.min(x0 + wide, y0 + tall - e);
    if (from >= to) continue;
    diagonals.push(svg("line", { x1: X(10 ** from), y1: Y(10 ** (from + e)), x2: X(10 ** to), y2: Y(10 ** (to + e)), class: "diagonal" }),
      svg("text", { x: X(10 ** to) - 4, y: Y(10 ** (to + e)) + 14, class: "tick end" }, `${bigText(10 ** e)}B/s`));
  }
  const status = el("p", { class: "status", "aria-live": "polite" }, `Point at a step. The larger a dot, the more time it takes.${data.roofs ? " A step whose data lie in a cache can be above the roof of memory." : ""}`);
  const say = (p) => {
    const speed = `${bigText(p.y)}flops/s, ${bytesText(p.kernel.bytes / p.s.seconds)}/s`;
    const peak = data.roofs ? `, ${((100 * p.y) / data.roofs.flops).toFixed(0)} % of the peak` : "";
    status.textContent = `Step ${p.k}, ${p.s.label}: ${timeText(p.s.seconds)}, ${speed}, ${p.x.toPrecision(3)} flops per byte${peak}`;
  };
  const dots = points.sort((a, b) => b.s.seconds - a.s.seconds).map((p) => svg("circle", {
    cx: X(p.x),
    cy: Y(p.y),
    r: 3.5 + 12 * Math.sqrt(p.s.seconds / most),
    class: "spot",
    css: { fill: family(p.s.label)[2] },
    on: { mouseenter: () => say(p), click: () => choose(p.k) },
  }, svg("title", {}, p.s.label)));
  const middle = top + height / 2, sideways = `rotate(-90 14 ${middle})`;
  const names = [
    svg("text", { x: left + width / 2, y: top + height + 37, class: "tick" }, "flops per byte"),
    svg("text", { x: 14, y: middle, class: "tick", transform: sideways }, "flops per second"),
  ];
  const picture = svg("svg", {
    viewBox: `0 0 ${left + width + 16} ${top + height + 42}`,
    class: "memory roofline",
    role: "img",
    "aria-label": "Flops per second over flops per byte",
  }, layered([...ticks, ...diagonals, ...(data.roofs ? roofLines(data.roofs, X, Y, x0, x0 + wide, y0) : []), ...names], dots));
  return el("section", {}, [el("h3", {}, "Speed of the steps"), picture, status]);
}
