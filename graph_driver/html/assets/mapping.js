// What each kernel of a GPU maps to: loops to blocks and threads, buffers to memories, what a block moves and takes.

function mappingView(kernels, links) {
  return el("div", { class: "view prose mapping" }, kernels.map((k) => el("section", {}, [
    el("h3", {}, k.name),
    k.given ? el("p", { class: "dim" }, ["Launched when ", el("code", {}, coloured(k.given, "python"))]) : null,
    mappedAxes(k, links),
    heldBuffers(k, links),
    movedBytes(k),
    taken(k),
  ])));
}

// A row of a table that lights what `keys` name.
function linkedRow(links, keys, cells) {
  const row = el("tr", keys.length ? { tabindex: "0", data: { key: keys[0] } } : {}, cells);
  if (keys.length) links.connect(row, () => ({ keys }));
  return row;
}

function mappedAxes(k, links) {
  const rows = k.axes.map((a) => linkedRow(links, a.loops.map((l) => `loop:${l}`), [
    el("td", {}, badge(a.axis.split(".")[0], a.axis, "")),
    el("td", {}, a.loops.length ? a.loops.map((l, i) => [i ? ", " : "", el("b", {}, l)]).flat() : el("span", { class: "dim" }, "no loop of the schedule")),
    el("td", {}, el("code", {}, a.variable)),
    el("td", {}, el("code", {}, coloured(a.extent, "python"))),
    el("td", { class: "n" }, a.count === null ? "" : a.count.toLocaleString("en")),
  ]));
  return table(["Dimension", "Loop", "Variable", "Extent", `${sizesText(k) || "Number"}#`], rows);
}

function sizesText(k) {
  const names = Object.entries(k.sizes).map(([n, v]) => `${n} = ${v}`);
  return names.length ? `at ${names.join(", ")}` : "";
}

function heldBuffers(k, links) {
  if (!k.held.length) return el("p", { class: "dim" }, "Nothing in shared memory or in registers of its own.");
  const where = { shared: "shared memory", register: "registers", local: "memory of a thread" };
  const rows = k.held.map((h) => linkedRow(links, h.array ? [`copy:${h.array}`] : [], [
    el("td", {}, badge("buffer", where[h.space] || h.space, "")),
    el("td", {}, el("b", {}, h.name)),
    el("td", {}, el("code", {}, h.type)),
    el("td", { class: "n" }, h.bytes.toLocaleString("en")),
    el("td", {}, h.space === "shared" ? "a block" : "a thread"),
  ]));
  return table(["Lies in", "Buffer", "Type", "Bytes#", "For"], rows);
}

function movedBytes(k) {
  if (k.moved === null) return el("p", { class: "dim" }, "What a block moves depends on sizes: give them (--dim NAME=NUMBER).");
  const found = new Map();
  for (const [memory, array, way, bytes] of k.moved.bytes) {
    const row = found.get(`${memory} ${array}`) || { memory, array, read: 0, written: 0 };
    row[way] += bytes;
    found.set(`${memory} ${array}`, row);
  }
  const number = (n) => el("td", { class: "n" }, n ? n.toLocaleString("en") : "");
  const all = [...found.values()];
  const rows = [];
  for (const memory of ["global", "shared"]) {
    const mine = all.filter((r) => r.memory === memory), sum = (way) => mine.reduce((n, r) => n + r[way], 0);
    for (const r of mine) rows.push(el("tr", {}, [
      el("td", {}, `${memory} memory`), el("td", {}, el("b", {}, r.array)), number(r.read), number(r.written)]));
    if (mine.length > 1) rows.push(el("tr", { class: "sum" }, [
      el("td", {}, `${memory} memory`), el("td", {}, "all arrays"), number(sum("read")), number(sum("written"))]));
  }
  return el("div", {}, [
    el("p", { class: "dim" }, `What the first block moves${k.moved.exact ? "" : " at most"} ${sizesText(k)}`.trim()),
    table(["Memory", "Array", "Bytes read#", "Bytes written#"], rows),
  ]);
}

function taken(k) {
  const facts = [
    ["threads a block", k.threads.toLocaleString("en")],
    ["shared memory a block", bytesText(k.shared)],
    ["barriers in the text", String(k.barriers)],
    [k.resources ? "registers a thread" : "registers a thread, estimated", String(k.registers)],
  ];
  if (k.resources) facts.push(["spilled", bytesText(k.resources.spill_loads + k.resources.spill_stores)]);
  if (k.blocks) facts.push(
    ["blocks on a multiprocessor", `${k.blocks}, limited by ${k.limit}`],
    ["occupancy", el("span", { class: "meter", title: "share of the warps that a multiprocessor can hold" }, [
      el("i", { css: { width: `${100 * k.occupancy}%` } }), el("span", {}, `${Math.round(100 * k.occupancy)} %`)])],
  );
  return el("dl", { class: "takes" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat());
}
