// The page of a model: graph, kernels, memory, decisions, and the details of one step beside them.

const DATA = JSON.parse(byId("data").textContent);

function share(n, total) {
  return el("span", { class: "share" }, el("i", { css: { width: `${total ? (100 * n) / total : 0}%` } }));
}

function kernelsView(data, choose) {
  const total = { flops: 0, bytes: 0, seconds: 0 };
  for (const k of data.kernels) for (const what of ["flops", "bytes"]) total[what] += (k[what] || 0) * k.uses;
  const spent = data.kernels.map((_, i) => data.steps.reduce((a, s) => a + (s.kernel === i ? s.seconds || 0 : 0), 0));
  const predicted = data.kernels.map((_, i) => data.steps.reduce((a, s) => (
    s.kernel === i && s.predicted ? (a || 0) + s.predicted.seconds : a), null));
  total.seconds = data.steps.reduce((a, s) => a + (s.seconds || 0), 0);
  const first = data.measured ? (k, i) => spent[i] : (k) => (k.flops || 0) * k.uses;
  const number = (n, unit) => (n === null ? el(
    "span",
    { class: "dim", title: "depends on the data, or too hard to count" },
    "–",
  ) : unit(n));
  const rows = data.kernels.map((k, i) => [k, i]).sort((a, b) => first(...b) - first(...a)).map(([k, i]) => {
    const step = data.steps.findIndex((s) => s.kernel === i);
    const row = el("tr", { tabindex: "0", data: { step: String(step) }, on: { click: () => choose(step), keydown: (e) => { if (e.key === "Enter") choose(step); } } }, [
      el("td", { class: "n" }, String(i)), el(
        "th",
        { scope: "row" },
        [el("i", { class: "dot", css: { background: family(k.label)[2] } }), "\u00a0", k.label.replaceAll("polyc::", "")],
      ), el("td", { class: "n" }, String(k.uses)),
      ...(data.measured ? [
        el("td", { class: "n" }, timeText(spent[i])),
        el("td", {}, share(spent[i], total.seconds)),
        el("td", { class: "n" }, spent[i] && k.flops ? `${bigText((k.flops * k.uses) / spent[i])}` : "–"),
        ...(data.roofs ? [el("td", { class: "n" }, spent[i] && k.flops ? `${((100 * k.flops * k.uses) / spent[i] / data.roofs.flops).toFixed(0)} %` : "–")] : []),
        el("td", { class: "n" }, spent[i] && k.bytes ? bigText((k.bytes * k.uses) / spent[i]) : "–"),
      ] : []),
      el("td", { class: "n" }, number(predicted[i], timeText)),
      el("td", { class: "n" }, number(k.flops, bigText)),
      ...(data.measured ? [] : [el("td", {}, share((k.flops || 0) * k.uses, total.flops))]),
      el("td", { class: "n" }, number(k.bytes, bytesText)),
      ...(data.measured ? [] : [el("td", {}, share((k.bytes || 0) * k.uses, total.bytes))]),
      el("td", { class: "n" }, k.bytes ? ((k.flops || 0) / k.bytes).toPrecision(3) : "–"), el("td", {}, k.first)]);
    return row;
  });
  const host = data.steps.map((s, i) => [s, i]).filter(([s]) => s.kind === "host").map(([s, i]) => el(
    "tr",
    { tabindex: "0", on: { click: () => choose(i) } },
    [
      el("td", { class: "n" }, String(i)),
      el("th", { scope: "row" }, s.label),
      el("td", {}, s.nodes.map(([n]) => n).join(", ")),
      el("td", {}, s.reason),
    ],
  ));
  return el("div", { class: "view prose" }, [
    data.measured ? roofline(data, choose) : null,
    el("h3", {}, "Kernels"), el(
      "p",
      { class: "dim" },
      [
        `Distinct kernels, most ${data.measured ? "time" : "work"} first. `,
        "Bytes: every element of an argument read and of a result written once. ",
        `${data.measured ? "Time and speed" : "Shares"} count all uses.`,
      ],
    ),
    data.kernels.length ? table(
      [
        "No.#",
        "Operators",
        "Uses#",
        ...(data.measured ? ["Time#", "of all", "Flops/s#", ...(data.roofs ? ["of peak#"] : []), "Bytes/s#"] : []),
        "Predicted#",
        "Flops#",
        ...(data.measured ? [] : ["of all"]),
        "Bytes#",
        ...(data.measured ? [] : ["of all"]),
        "Flops/byte#",
        "First node",
      ],
      rows,
      "kernels",
    ) : el("p", {}, "A compiled directory keeps no Scops: nothing to count."),
    el("h3", {}, "Host operators"), host.length ? table(["Step#", "Operator", "Node", "Why"], host) : el(
      "p",
      {},
      "None: everything runs in compiled code.",
    ),
  ]);
}

function decisionsView(data, choose) {
  const decided = (kind, yes, no) => data.decisions.filter((d) => d.kind === kind).map((d) => el(
    "tr",
    {},
    [
      el("td", {}, el("span", { class: `verdict ${d.joined ? "yes" : "no"}` }, d.joined ? yes : no)),
      el("td", {}, kind === "fusion" ? `${d.from} → ${d.to}` : d.from),
      el("td", {}, kind === "fusion" ? d.tensor : `'${d.tensor}', ${d.to}`),
      el("td", {}, kind === "fusion" ? d.reason : d.text),
    ],
  ));
  const section = (title, heads, rows, none) => [el("h3", {}, title), rows.length ? table(heads, rows) : el("p", {}, none)];
  const list = (items) => el("ul", { class: "steps" }, items.map((t) => el("li", {}, t)));
  const cost = (c) => (c.cost === null ? c.refusal : `${Math.round(c.cost).toLocaleString("en")} cycles`);
  const chosen = data.selections.filter((s) => s.candidates.some((c) => c.name !== s.chosen && c.device !== "host" && c.cost !== null))
    .map((s) => el("tr", {}, [
      el("td", {}, `${s.operator} '${s.node}'`),
      el("td", {}, el("span", { class: "verdict yes" }, s.chosen)),
      el("td", { class: "n" }, cost(s.candidates.find((c) => c.name === s.chosen))),
      el("td", {}, s.candidates.filter((c) => c.name !== s.chosen).map((c) => `${c.name}: ${cost(c)}`).join("; ")),
    ]));
  const casts = data.casts.map((c) => el("tr", { tabindex: "0", on: { click: () => { if (c.step !== null) choose(c.step); } } }, [
    el("td", {}, c.tensor), el("td", {}, `${c.from} → ${c.to}`), el("td", {}, c.added ? "put in by --precision" : "of the model"),
    el("td", { class: "n" }, c.step === null ? "–" : String(c.step)),
  ]));
  return el("div", { class: "view prose" }, [
    ...section("Fusion", ["", "Nodes", "Tensor", "Why"], decided("fusion", "joined", "apart"), "No decisions recorded."),
    ...section("Results written over an operand", ["", "Kernel", "Result and operand", "Why"], decided("in place", "in place", "not"), "No operand ends where a result of its size begins."),
    ...section("Implementations with a choice", ["Node", "Chosen", "Cost#", "Others"], chosen, "No node has two that fit."),
    ...section("Casts", ["Tensor", "Types", "Why", "Step#"], casts, "None: every tensor has the type that the model gives it."),
    el("h3", {}, "Graph passes"), data.passes.length ? list(data.passes) : el("p", {}, "None recorded."),
    el("h3", {}, "Constants stored in another layout"), data.layouts.length ? list(data.layouts) : el("p", {}, "None."),
    el("h3", {}, "Notes"), data.notes.length ? list(data.notes) : el("p", {}, "None."),
  ]);
}

function details(data, number, box) {
  const place = byId("details");
  const tensors = (names) => el("ul", { class: "plain" }, names.map((n) => {
    const t = data.tensors[n];
    return el(
      "li",
      {},
      [
        el("b", {}, n),
        t ? el(
          "div",
          { class: "dim" },
          `${t.type}${t.bytes ? `, ${bytesText(t.bytes)}` : ""}, ${t.where}${t.where === "arena" || t.where === "weight" ? ` at ${t.offset.toLocaleString("en")}` : ""}`,
        ) : null,
      ],
    );
  }));
  if (number === null) {
    byId("h-step").textContent = box.kind === "input" ? "Input" : "Output";
    place.replaceChildren(tensors([box.tensor]));
    return;
  }
  const s = data.steps[number], k = s.kernel === null ? null : data.kernels[s.kernel];
  byId("h-step").textContent = `Step ${number} of ${data.steps.length}`;
  const reads = s.args.filter((a) => !s.results.includes(a));
  const isOneOf = (text) => s.nodes.some(([n]) => text === n || text.includes(`'${n}'`));
  const touching = data.decisions.filter((d) => isOneOf(d.from) || isOneOf(d.to));
  const work = k && [
    ...(data.measured ? [
      ["Time, measured", timeText(s.seconds)],
      ["Flops per second", k.flops ? bigText(k.flops / s.seconds) : "–"],
      ...(data.roofs && k.flops ? [["Of the peak", `${((100 * k.flops) / s.seconds / data.roofs.flops).toFixed(1)} %`]] : []),
      ["Bytes per second", k.bytes ? bigText(k.bytes / s.seconds) : "–"],
    ] : []),
    ...(s.predicted ? [
      ["Time, predicted", timeText(s.predicted.seconds)],
      ["Bound by", s.predicted.bound],
    ] : []),
    ["Flops", k.flops === null ? "–" : bigText(k.flops)],
    ["Bytes, at least", k.bytes === null ? "–" : bytesText(k.bytes)],
    ["Bytes, at most", k.traffic === null ? "–" : bytesText(k.traffic)],
    ["Flops per byte", k.bytes ? ((k.flops || 0) / k.bytes).toPrecision(3) : "–"],
    ["Kernel", `${s.kernel}, used ${k.uses} time${k.uses === 1 ? "" : "s"}`],
  ];
  place.replaceChildren(...[
    el("p", { class: "steplabel" }, (s.label || s.kind).replaceAll("polyc::", "")),
    s.reason ? el("p", { class: "note" }, `On the host: ${s.reason}`) : null,
    work ? el(
      "table",
      { class: "facts-table" },
      el("tbody", {}, work.map(([a, b]) => el("tr", {}, [el("th", { scope: "row" }, a), el("td", { class: "n" }, b)]))),
    ) : null,
    el("h3", {}, `${plural(s.nodes.length, "node")}`), el(
      "ul",
      { class: "plain" },
      s.nodes.map(([n, kind]) => el("li", {}, [el("b", {}, kind || ""), ` ${n}`])),
    ),
    el("h3", {}, "Reads"), reads.length ? tensors(reads) : el("p", {}, "Nothing."),
    el("h3", {}, "Makes"), tensors(s.results),
    touching.length ? el("h3", {}, "Decisions") : null, touching.length ? el(
      "ul",
      { class: "steps" },
      touching.map((d) => el("li", {}, d.text)),
    ) : null,
  ].filter(Boolean));
}

function start() {
  connectTheme();
  const kernels = DATA.steps.filter((s) => s.kind === "kernel").length, host = DATA.steps.filter((s) => s.kind === "host").length;
  byId("title").textContent = DATA.name;
  byId("subtitle").textContent = [
    `for ${DATA.target}`,
    DATA.nodes === null ? "a compiled directory" : plural(DATA.nodes, "node"),
  ].join(" · ");
  const total = (what) => DATA.kernels.reduce((a, k) => a + (k[what] || 0) * k.uses, 0);
  const facts = [
    ["kernel calls", `${kernels}`, `${DATA.distinct} distinct`],
    ["host operators", String(host)],
    ["arena", bytesText(DATA.memory.peak), `lower bound ${bytesText(DATA.memory.bound)}`],
    ["weights", bytesText(DATA.memory.weights)],
  ];
  if (DATA.measured) facts.unshift(["added up over the steps", timeText(DATA.steps.reduce((a, s) => a + s.seconds, 0))]);
  if (DATA.kernels.length) facts.unshift([
    "flops",
    bigText(total("flops")),
    DATA.kernels.some((k) => k.flops === null) ? "of the kernels that can be counted" : "",
  ]);
  byId("facts").append(
    ...facts.map(([label, value, more]) => el("li", {}, [el("b", {}, value), more ? `${label}, ${more}` : label])),
  );

  let current = 0, open = null;
  const choose = (step, box) => { if (step !== null) current = step; details(DATA, step, box); };
  const graph = new GraphView(DATA, choose);
  const show = (step) => { graph.selectStep(step, true); };
  const memory = new MemoryView(DATA, show);
  open = tabs(byId("tabs"), byId("views"), [
    ["graph", "Graph", graph.element, () => { if (graph.scale === undefined) graph.fit(false); }],
    ["kernels", "Kernels", kernelsView(DATA, show)],
    ["memory", "Memory", memory.element],
    ["why", "Decisions", decisionsView(DATA, show)],
  ]);
  if (graph.scale === undefined) graph.fit(false);
  byId("before").addEventListener("click", () => show(Math.max(0, current - 1)));
  byId("after").addEventListener("click", () => show(Math.min(DATA.steps.length - 1, current + 1)));
  if (DATA.steps.length) graph.selectStep(0, false);
  const number = address(open, (n) => DATA.steps[Number(n)]); // page.html#memory/12
  if (number) show(Number(number));
  return { graph, memory, open, show };
}

const APP = start();
