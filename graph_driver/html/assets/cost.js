// Work and traffic: exact formulas in the sizes, and their values for sizes that one can choose.

const WHAT = {
  instances: ["Instances", "statement instances"],
  flops: ["Flops", "floating-point operations; a fused multiply-add is two"],
  loads: ["Loads", "array elements read, each time that they are"],
  stores: ["Stores", "array elements written"],
  bytes: ["Bytes, at least", "every element of an argument read and of a result written once: a perfect cache"],
  traffic: ["Bytes, at most", "all loads and stores: no cache"],
};

class Costs {
  constructor(cost, links, time) {
    this.cost = cost;
    this.time = time;
    this.links = links;
    this.values = {};
    this.cells = [];                         // [element, fn]: what depends on the sizes
    for (const name of cost.sizes) this.values[name] = 512;
    for (const l of cost.loops) for (const f of [
      l.flops,
      ...l.arrays.map((a) => a.elements),
    ]) for (const n of f.names || []) if (!(n in this.values)) this.values[n] = 0;
  }

  value(f) {
    if (!f || f.error) return null;
    f.run = f.run || compile(f.program);
    return f.run(this.values);
  }
  // A formula and below it its value; `unit` makes text of the number.
  formula(f, unit) {
    if (f.error) return el("span", { class: "dim", title: f.error }, "not counted");
    const number = el("span", { class: "dim" });
    if (/^\d+$/.test(f.text)) {
      const short = f.text.length > 4 ? el("span", { class: "dim" }, (unit || bigText)(Number(f.text))) : null;
      return el("span", { class: "formula" }, [el("code", {}, Number(f.text).toLocaleString("en")), short]);
    }
    if (f.names.length) this.cells.push([number, () => `${f.exact ? "" : "≤ "}${(unit || bigText)(this.value(f))}`]);
    return el("span", { class: "formula", title: f.why || "" }, [el("code", {}, coloured(f.text, "python")), number]);
  }
  refresh() { for (const [element, fn] of this.cells) element.textContent = fn(); }

  intensity() {
    const { flops, bytes } = this.cost.totals;
    return this.value(bytes) ? this.value(flops) / this.value(bytes) : 0;
  }

  // What is known of the time: label, text, explanation.
  times() {
    if (!this.time) return [];
    const { measured, predicted, threads } = this.time;
    const { flops, bytes } = this.cost.totals;
    const on = `with ${plural(threads, "thread")}`;
    const rows = [];
    if (measured !== null) rows.push(["Measured", timeText(measured), `the shortest call on random arguments, ${on}`]);
    if (predicted) rows.push(["Predicted", timeText(predicted.seconds), `by the cost model, ${on}; bound by ${predicted.bound}`]);
    if (measured === null) return rows;
    if (this.value(flops)) rows.push(["Flops per second", bigText(this.value(flops) / measured), "in the time measured"]);
    if (this.value(bytes)) rows.push(["Bytes per second", bigText(this.value(bytes) / measured), "in the time measured, of a perfect cache"]);
    return rows;
  }

  facts(place) {
    const { totals } = this.cost;
    for (const [label, value, title] of this.times().slice(0, 2)) {
      place.append(el("li", { title }, [el("b", {}, value), label.toLowerCase()]));
    }
    const at = this.cost.sizes.length ? ` for ${this.cost.sizes.join(" = ")} = 512` : "";
    const fact = (label, f, unit, title) => {
      if (!f || f.error) return;
      const long = f.text.length > 44 || /^\d+$/.test(f.text);
      place.append(el(
        "li",
        { title: long ? `${title}: ${f.text}` : title },
        [el("b", {}, long ? unit(this.value(f)) : f.text), long ? label + at : label],
      ));
    };
    fact("flops", totals.flops, bigText, WHAT.flops[1]);
    fact("bytes moved at least", totals.bytes, bytesText, WHAT.bytes[1]);
    const ratio = this.cost.sizes.length ? this.cost.intensity : this.intensity().toPrecision(3);
    if (this.cost.intensity && ratio.length < 44) place.append(el(
      "li",
      { title: "flops over the bytes of a perfect cache" },
      [el("b", {}, ratio), "flops per byte"],
    ));
  }

  inputs() {
    const loops = Object.keys(this.values).filter((n) => !this.cost.sizes.includes(n));
    const input = (name) => el(
      "label",
      { class: "field" },
      [
        el("span", {}, `${name} =`),
        el(
          "input",
          {
            type: "number",
            class: "num",
            value: String(this.values[name]),
            on: { input: (e) => { this.values[name] = Number.parseInt(e.target.value, 10) || 0; this.refresh(); } },
          },
        ),
      ],
    );
    return el("div", { class: "controls" }, [
      this.cost.sizes.length ? el("fieldset", {}, [el("legend", {}, "Sizes"), ...this.cost.sizes.map(input)]) : null,
      loops.length ? el("fieldset", {}, [el("legend", {}, "Iteration looked at"), ...loops.map(input)]) : null]);
  }

  element() {
    const { cost } = this;
    const rows = Object.entries(WHAT).map(([what, [label, title]]) => el(
      "tr",
      { title },
      [
        el("th", { scope: "row" }, label),
        el("td", {}, this.formula(cost.totals[what], what === "bytes" || what === "traffic" ? bytesText : bigText)),
      ],
    ));
    rows.push(...this.times().map(([label, value, title]) => el(
      "tr",
      { title },
      [el("th", { scope: "row" }, label), el("td", {}, value)],
    )));
    const intensity = el("span", { class: "dim" });
    this.cells.push([intensity, () => this.intensity().toPrecision(3)]);
    if (cost.intensity) rows.push(el(
      "tr",
      { title: "flops over the bytes of a perfect cache" },
      [
        el("th", { scope: "row" }, "Flops per byte"),
        el("td", {}, el("span", { class: "formula" }, [el("code", {}, coloured(cost.intensity, "python")), intensity])),
      ],
    ));
    const statements = cost.statements.map((s) => {
      const row = el(
        "tr",
        { tabindex: "0" },
        [
          el("th", { scope: "row" }, el("span", { class: "stmtname" }, s.name)),
          el("td", {}, this.formula(s.instances)),
          el("td", {}, this.formula(s.flops)),
        ],
      );
      this.links.addKey(`stmt:${s.name}`, row);
      this.links.connect(row, () => ({ keys: [`stmt:${s.name}`] }));
      return row;
    });
    const loops = cost.loops.flatMap((l) => this.loop(l));
    const view = el("div", { class: "view prose" }, [
      this.inputs(),
      el("div", { class: "beside" }, [
        el(
          "section",
          {},
          [el("h3", {}, "Whole operator"), el("div", { class: "tablebox" }, el("table", {}, el("tbody", {}, rows)))],
        ),
        el("section", {}, [el("h3", {}, "Statements"), table(["", "Instances", "Flops"], statements)])]),
      el("h3", {}, "In one iteration of a loop"),
      el("p", { class: "dim" }, "Elements of each array that it touches, and how often it touches each of them on average."),
      loops.length ? table(["Loop", "Flops", "Array", "Elements", "Bytes#", "Touched, each"], loops) : el("p", {}, "No loops."),
      cost.leftOut ? el(
        "p",
        { class: "note" },
        `${plural(cost.leftOut, "loop")} left out: too many, or formulas too long to read (Schedule.footprint and Schedule.reuse find them).`,
      ) : null,
    ]);
    this.refresh();
    return view;
  }

  loop(l) {
    return l.arrays.map((a, k) => {
      const bytes = el("span", {});
      if (!a.elements.error) this.cells.push([bytes, () => bytesText(this.value(a.elements) * this.cost.bytes[a.array])]);
      const first = k ? [] : [
        el(
          "th",
          { scope: "rowgroup", rowspan: String(l.arrays.length) },
          [el("b", {}, l.name), l.kind === "serial" ? null : [" ", badge(l.kind.split(".")[0], l.kind, "")]],
        ),
        el("td", { rowspan: String(l.arrays.length) }, this.formula(l.flops)),
      ];
      const row = el(
        "tr",
        { class: k ? "" : "group" },
        [
          ...first,
          el("td", {}, el("b", {}, a.array)),
          el("td", {}, this.formula(a.elements)),
          el("td", { class: "n" }, bytes),
          el(
            "td",
            {},
            a.reuse === null ? el("span", { class: "dim" }, "not counted") : el("code", {}, coloured(a.reuse, "python")),
          ),
        ],
      );
      this.links.connect(row, () => ({ keys: [`loop:${l.name}`] }));
      return row;
    });
  }
}
