// The arena over time: a rectangle for each tensor, from its first step to its last and from its offset on.

class MemoryView {
  constructor(data, choose) {
    this.data = data;
    this.memory = data.memory;
    this.element = el("div", { class: "view prose" });
    const m = this.memory;
    const facts = el("ul", { class: "facts wide" }, [["arena, as planned", m.peak], ["lower bound", m.bound], ["weights", m.weights], ["inputs", m.inputs], ["outputs", m.outputs]]
      .map(([label, n]) => el("li", {}, [el("b", {}, bytesText(n)), label])));
    this.status = el("p", { class: "status", "aria-live": "polite" }, "Point at a rectangle to see its tensor.");
    if (!m.tensors.length) {
      this.element.append(
        facts,
        el("p", { class: "note" }, "No tensor needs the arena: all live in the inputs, the weights and the outputs."),
      );
      return;
    }
    this.element.append(facts, this.picture(choose), this.status, el("div", { class: "legend" }, [
      el("span", {}, [el("i", { class: "stroke peakline" }), "peak of the plan"]), el(
        "span",
        {},
        [el("i", { class: "stroke boundline" }), "lower bound: most bytes alive at one step"],
      ),
      el("span", {}, [el("i", { class: "swatch liveswatch" }), "bytes alive at each step"]), el("span", {}, [el("i", { class: "swatch atpeak" }), "alive at the fullest step"])]));
    this.element.append(el("h3", {}, "Tensors, largest first"), this.list(choose));
  }

  picture(choose) {
    const m = this.memory, steps = m.live.length, left = 78, top = 12, bottom = 34, width = 1000, height = 420, liveTop = top + height + 26, liveHeight = 90;
    const X = (k) => left + (k / steps) * width, Y = (b) => top + height - (b / m.peak) * height;
    const full = m.live.indexOf(Math.max(...m.live));
    const rects = m.tensors.map(([name, offset, size, first, last], k) => {
      const rect = svg("rect", { x: X(first) + 0.4, y: Y(offset + size), width: Math.max(1, X(last + 1) - X(first) - 0.8), height: Math.max(1.2, (size / m.peak) * height - 0.6), rx: 1.5,
        class: `tensor${first <= full && full <= last ? " atpeak" : ""}`, fill: PALETTE[k % PALETTE.length],
        on: { mouseenter: () => this.say(name, offset, size, first, last), click: () => choose(first) } }, svg("title", {}, name));
      return rect;
    });
    const marks = [0, 0.25, 0.5, 0.75, 1].map((t) => svg("g", {}, [svg("line", { x1: left, x2: left + width, y1: Y(t * m.peak), y2: Y(t * m.peak), class: "grid" }),
      svg("text", { x: left - 8, y: Y(t * m.peak) + 4, class: "tick end" }, bytesText(t * m.peak))]));
    const every = Math.max(1, Math.ceil(steps / 12));
    const ticks = m.live.map((_, k) => k).filter((k) => k % every === 0).map((k) => svg(
      "text",
      { x: X(k + 0.5), y: liveTop + liveHeight + 18, class: "tick" },
      String(k),
    ));
    const most = Math.max(m.peak, ...m.live);
    const ground = liveTop + liveHeight, L = (b) => ground - (b / most) * liveHeight;
    const stairs = m.live.map((b, k) => `L${X(k)} ${L(b)}L${X(k + 1)} ${L(b)}`).join("");
    const area = `M${left} ${ground}${stairs}L${X(steps)} ${ground}Z`;
    const line = (b, cls) => svg("line", { x1: left, x2: left + width, y1: Y(b), y2: Y(b), class: cls });
    return svg("svg", { viewBox: `0 0 ${left + width + 16} ${liveTop + liveHeight + bottom}`, class: "memory", role: "img", "aria-label": "Memory of the arena over the steps" }, [
      ...marks, svg(
        "rect",
        { x: X(full), y: top, width: X(full + 1) - X(full), height: height, class: "fullstep" },
      ), ...rects, line(m.bound, "boundline"), line(m.peak, "peakline"),
      svg("path", { d: area, class: "livearea" }), svg(
        "text",
        { x: left - 8, y: liveTop + 12, class: "tick end" },
        "alive",
      ), ...ticks,
      svg("text", { x: left + width / 2, y: liveTop + liveHeight + 33, class: "tick" }, "step")]);
  }
  say(name, offset, size, first, last) {
    const type = (this.data.tensors[name] || {}).type || "";
    const label = (k) => `step ${k} (${this.data.steps[k].label})`;
    this.status.textContent =
      `${name}: ${type}, ${bytesText(size)} at ${offset.toLocaleString("en")}, alive from ${label(first)} to ${label(last)}`;
  }

  list(choose) {
    const largest = [...this.memory.tensors].sort((a, b) => b[2] - a[2]).slice(0, 200);
    const rows = largest.map(([name, offset, size, first, last]) => el("tr", { tabindex: "0", on: { click: () => choose(first) } }, [
      el("td", {}, name),
      el("td", {}, (this.data.tensors[name] || {}).type || ""),
      el("td", { class: "n" }, bytesText(size)),
      el("td", { class: "n" }, offset.toLocaleString("en")),
      el("td", { class: "n" }, `${first} – ${last}`),
    ]));
    return table(["Tensor", "Type", "Bytes#", "Offset#", "Steps#"], rows);
  }
}
