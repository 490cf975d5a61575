// The page of one operator: puts the views together.

const DATA = JSON.parse(byId("data").textContent);

function decisionsView(data, links) {
  const { schedule, space } = data;
  const figure = (v) => {
    if (typeof v === "number" && !Number.isInteger(v)) return v.toPrecision(3);
    return typeof v === "object" && v !== null ? JSON.stringify(v) : String(v);
  };
  const decisions = schedule.decisions.map((d) => el("tr", {}, [
    el("td", {}, el("span", { class: `verdict ${d.outcome === "done" ? "yes" : "no"}` }, d.outcome)),
    el("td", {}, d.stage),
    el("td", {}, d.subject),
    el("td", {}, [d.what, d.reason ? el("div", { class: "dim" }, d.reason) : null]),
    el("td", {}, el("code", {}, Object.entries(d.figures).map(([k, v]) => `${k}=${figure(v)}`).join(", "))),
  ]));
  const dependences = space.dependences.map((d) => {
    const kind = edgeKind(d);
    const row = el("tr", { tabindex: "0" }, [el("td", {}, [el("i", { class: `stroke e-${kind}` }), KIND[kind][0]]), el("td", {}, el("b", {}, d.array)),
      el("td", {}, `${d.from} → ${d.to}`), el("td", {}, d.distance || ""), el("td", {}, el("code", {}, d.text))]);
    links.connect(row, () => ({ keys: [`stmt:${d.from}`, `stmt:${d.to}`] }));
    return row;
  });
  return el("div", { class: "view prose" }, [
    el("h3", {}, "The schedule as a program"),
    el("p", { class: "dim" }, `Schedule: ${schedule.origin}. Every step was checked before it was accepted; edit the program and give s to compile(schedule=s).`),
    el("pre", { class: "program" }, schedule.program),
    el("h3", {}, "Decisions"),
    decisions.length ? table(["", "Stage", "Of", "What", "Figures"], decisions) : el("p", {}, "None recorded."),
    schedule.codeNotes.length ? el("ul", { class: "steps" }, schedule.codeNotes.map((n) => el("li", {}, n))) : null,
    el("h3", {}, "What the dependences leave free"),
    el("ul", { class: "steps" }, [
      el(
        "li",
        {},
        [
          data.free.parallel.length ? "Loops that carry none: " : "Every loop carries a dependence.",
          el("code", {}, data.free.parallel.join(", ")),
        ],
      ),
      data.free.sums.length ? el(
        "li",
        {},
        ["Loops that carry only a reduction's own updates: ", el("code", {}, data.free.sums.join(", "))],
      ) : null,
      ...data.free.bands.map((b) => el("li", {}, ["May be put in any order and tiled: ", el("code", {}, b.join(", "))]))]),
    el("h3", {}, "Dependences"),
    space.complete ? null : el("p", { class: "note" }, "isl's quota ended before all dependences were found."),
    dependences.length ? table(
      ["Kind", "Array", "Statements", "Distance", "Pairs of instances"],
      dependences,
      "deps",
    ) : el("p", {}, "None."),
    el("h3", {}, "Arrays"),
    el("ul", { class: "plain" }, data.arrays.map((a) => el("li", {}, el("code", {}, a.text)))),
    el("h3", {}, "Domains"),
    el("ul", { class: "plain" }, space.statements.map((s) => el("li", {}, el("code", {}, s.text)))),
  ]);
}

function markTable(node, out) {
  for (const m of node.members || []) out[m.name] = m.kind;
  for (const child of node.children) markTable(child, out);
  return out;
}

function start() {
  connectTheme();
  byId("title").textContent = DATA.name;
  const sizes = Object.entries(DATA.sizes).map(([k, v]) => `${k} = ${v}`);
  byId("subtitle").textContent = [`${DATA.schedule.origin} schedule`, `for ${DATA.target.name}`, ...sizes].join(" · ");
  const links = new Links(DATA.code);
  const view = new TreeView(byId("tree"), links);
  view.show(DATA.tree, DATA.free);
  byId("whichtree").replaceWith(choices(
    "Which tree",
    [["tree", "schedule"], ["programTree", "program"]],
    "tree",
    (which) => view.show(DATA[which], which === "tree" ? DATA.free : DATA.programFree),
  ));
  let folded = false;
  byId("foldall").addEventListener("click", () => {
    folded = !folded;
    view.foldAll(folded);
    byId("foldall").textContent = folded ? "Unfold all" : "Fold all";
  });
  treeLegend(byId("treelegend"));
  sourceView(byId("source"), DATA.sources, links);
  const drawing = DATA.space.statements.length ? new Drawing(DATA.space, markTable(DATA.tree, {}), links) : null;
  const costs = new Costs(DATA.cost, links, DATA.time);
  costs.facts(byId("facts"));
  const code = codeView(DATA.code, links);
  const open = tabs(byId("tabs"), byId("views"), [
    ["code", "Code", code, () => code.redraw && code.redraw()],
    [
      "space",
      "Iteration space",
      drawing ? drawing.element : el("div", { class: "view" }, "No statements."),
      () => { if (drawing && !drawing.instances) drawing.draw(); },
    ],
    ...(DATA.mapping.length ? [["mapping", "Mapping", mappingView(DATA.mapping, links)]] : []),
    ["cost", "Work and traffic", costs.element()],
    ["why", "Decisions", decisionsView(DATA, links)],
  ]);
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") links.unpin(); });
  document.addEventListener(
    "click",
    (e) => { if (!e.target.closest(".ln, .row, button, select, input, label, tr")) links.unpin(); },
  );
  const key = address(open, (k) => links.byKey.has(k)); // page.html#code/stmt:S0
  if (key) links.pin({ keys: [key] });
  return { links, view, drawing, open };
}

const APP = start();
