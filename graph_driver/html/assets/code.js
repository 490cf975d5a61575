// The generated texts side by side, and the program that they come from.

// A scrolling text. `rows` are [number, text, subject or null]; `register(element, k)` links a row.
function listing(rows, language, label, links, register) {
  const digits = String(rows.length ? rows[rows.length - 1][0] : 1).length;
  const lines = rows.map(([number, text, subject], k) => {
    const line = el(
      "div",
      { class: `ln${subject ? " linked" : ""}` },
      [el("span", { class: "no" }, String(number).padStart(digits)), el("span", { class: "tx" }, coloured(text, language))],
    );
    line.subject = subject;
    register(line, k);
    return line;
  });
  const box = el(
    "div",
    { class: "lines scroll", tabindex: "0", role: "region", "aria-label": label },
    el("div", { class: "width" }, lines),
  );
  const find = (e) => { const line = e.target.closest && e.target.closest(".ln"); return line && line.subject ? line : null; };
  box.addEventListener("mouseover", (e) => { const line = find(e); if (line) links.hover(line.subject); else links.leave(); });
  box.addEventListener("mouseleave", () => links.leave());
  box.addEventListener("click", (e) => { const line = find(e); if (line) links.toggle(line.subject, line); });
  let at = -1;
  const go = (k) => {
    if (k < 0 || k >= lines.length) return;
    if (lines[at]) lines[at].classList.remove("cursor");
    at = k;
    lines[at].classList.add("cursor");
    lines[at].scrollIntoView({ block: "nearest" });
    if (lines[at].subject) links.hover(lines[at].subject); else links.leave();
  };
  box.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[e.key];
    if (step) go(Math.max(0, Math.min(lines.length - 1, at + step)));
    else if (e.key === "Enter" && lines[at] && lines[at].subject) links.toggle(lines[at].subject, lines[at]);
    else return;
    e.preventDefault();
  });
  return box;
}

// The first time that a pane is seen it starts where its linked code starts.
function begin(pane) {
  const box = pane.querySelector(".lines"), first = pane.querySelector(".ln.linked");
  if (box.dataset.begun || !first || !box.clientHeight) return;
  box.dataset.begun = "1";
  box.scrollTop = Math.max(0, first.offsetTop - box.offsetTop - 60);
}

const STAGE = 0.7, PANE = 500; // share of the window that has the code, and pixels in which most of its lines fit

function codeView(code, links) {
  if (code.error) return el(
    "div",
    { class: "view" },
    el("p", { class: "note" }, `There is no code for this schedule: ${code.error}`),
  );
  const PANES = code.panes, panes = {}, made = {};
  const grid = el("div", { class: "panes" });
  const build = (id, name, language) => {
    const rows = code[id].map(([text, origin], k) => [
      k + 1,
      text,
      id === "loops" ? { line: k + 1 } : origin ? { line: origin } : null,
    ]);
    if (id === "loops") code.loops.forEach(([, own], k) => { if (!own.length) rows[k][2] = null; });
    const register = (line, k) => links.addLine(id === "loops" ? k + 1 : code[id][k][1], line);
    const linked = rows.filter((r) => r[2]).length;
    const head = el(
      "div",
      { class: "bar" },
      [
        el("h3", {}, name),
        el(
          "span",
          { class: "dim" },
          `${plural(rows.length, "line")}, ${plural(linked, "line")} linked${code.cut.includes(id) ? ", cut here" : ""}`,
        ),
      ],
    );
    return el("section", { class: "pane", data: { pane: id } }, [head, listing(rows, language, name, links, register)]);
  };
  const fit = Math.max(1, Math.floor((innerWidth * STAGE) / PANE)); // at first as many as there is room for
  const shown = new Set(PANES.filter((_, k) => k !== 2).slice(0, fit).map(([id]) => id));
  const draw = () => {
    for (const [id, name, language] of PANES) {
      if (shown.has(id) && !made[id]) made[id] = build(id, name, language);
    }
    const boxes = Object.values(made).map((pane) => pane.querySelector(".lines")), places = boxes.map((box) => [
      box.scrollTop,
      box.scrollLeft,
    ]);
    grid.replaceChildren(...PANES.filter(([id]) => shown.has(id)).map(([id]) => made[id]));
    boxes.forEach((box, k) => { [box.scrollTop, box.scrollLeft] = places[k]; }); // moving an element loses them
    grid.style.setProperty("--panes", String(shown.size));
    for (const [id] of PANES) if (shown.has(id)) begin(made[id]);
    links.paint(links.pinned);
  };
  const buttons = PANES.map(([id, name]) => {
    panes[id] = el("button", { type: "button", "aria-pressed": String(shown.has(id)), data: { pane: id }, on: { click: () => {
      if (shown.has(id) && shown.size > 1) shown.delete(id); else shown.add(id);
      panes[id].setAttribute("aria-pressed", String(shown.has(id)));
      draw();
    } } }, name);
    return panes[id];
  });
  const bar = el("div", { class: "bar" }, [el("div", { class: "seg", role: "group", "aria-label": "Texts shown" }, buttons),
    el("span", { class: "legend" }, [el("span", {}, [el("i", { class: "swatch strong" }), "comes from it"]), el("span", {}, [el("i", { class: "swatch weak" }), "inside it"])])]);
  draw();
  const view = el("div", { class: "view codeview" }, [bar, grid]);
  view.redraw = draw;
  return view;
}

function sourceView(place, sources, links) {
  for (const part of sources) {
    const byLine = (number) => {
      const last = part.blocks[number] || number;
      const inside = Object.entries(part.statements).filter(
        ([, [a, b]]) => (a <= number && number <= b) || (part.blocks[number] && a >= number && b <= last),
      );
      return inside.map(([name]) => `stmt:${name}`);
    };
    const rows = part.lines.map((text, k) => {
      const keys = byLine(part.first + k);
      return [part.first + k, text, keys.length ? { keys } : null];
    });
    const register = (line, k) => {
      if (!part.blocks[part.first + k]) for (const key of byLine(part.first + k)) links.addKey(key, line);
    };
    if (sources.length > 1) place.append(el("h3", { class: "file" }, part.file));
    place.append(listing(rows, "python", part.file, links, register));
  }
  if (!sources.length) place.append(el("p", { class: "note" }, "The statements were not written in a file."));
}
