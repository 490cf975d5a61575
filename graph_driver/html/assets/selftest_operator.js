// `page.html#selftest`: the page checks itself and writes what it found into the document.

function selftest() {
  const found = { checks: {}, spaces: [] };
  const check = (name, ok) => { found.checks[name] = Boolean(ok); };
  try {
    const { links, view, drawing, open } = APP;
    const parents = [...document.querySelectorAll("#tree .row.parent")];
    for (const row of parents.slice(0, 1)) {
      row.fold(true);
      check("nodes fold", row.closest("li").querySelector("ul").hidden && row.getAttribute("aria-expanded") === "false");
      row.fold(false);
      check("nodes unfold", !row.closest("li").querySelector("ul").hidden);
    }
    const count = (where, cls) => document.querySelectorAll(`${where} .${cls}`).length;
    const leaves = [...document.querySelectorAll('#tree .row[data-key^="stmt:"]')];
    if (!DATA.code.error) {
      const texts = DATA.code.panes.map(([id]) => id);
      for (const id of texts) {
        const button = document.querySelector(`.seg button[data-pane="${id}"]`);
        if (button.getAttribute("aria-pressed") !== "true") button.click();
      }
      const lit = {}; // the optimiser may leave nothing of a statement: some leaf lights each text
      for (const leaf of leaves) {
        leaf.dispatchEvent(new MouseEvent("mouseenter"));
        for (const id of texts) lit[id] = (lit[id] || 0) + count(`[data-pane="${id}"]`, "strong");
        check("hover lights the program", !DATA.sources.length || count("#source", "strong") > 0);
        leaf.dispatchEvent(new MouseEvent("mouseleave"));
      }
      for (const id of texts) check(`hover lights ${id}`, lit[id] > 0);
      check("leaving clears", document.querySelectorAll(".strong.ln, .strong.row").length === 0);
      const line = [...document.querySelectorAll(`[data-pane="${texts[1]}"] .ln.linked`)].pop();
      line.click();
      check("a line of the text lights the tree", count("#tree", "strong") > 0);
      document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
      check("escape clears", document.querySelectorAll(".strong.ln, .strong.row").length === 0);
      check("keys move in the tree", moves(view));
    }
    if (drawing) {
      open("space");
      for (const size of [3, 5, 8]) {
        drawing.slider.value = String(size);
        drawing.slider.dispatchEvent(new Event("input"));
        found.spaces.push(everything(drawing.space, size));
        check(`slider at ${size}`, document.querySelectorAll("svg.space .pt").length === drawing.instances.length);
      }
      drawing.play();
      check("plays", drawing.timer !== null);
      drawing.stop();
    }
    if (DATA.mapping.length) {
      open("mapping");
      const bound = [...document.querySelectorAll("#view-mapping tr[data-key]")];
      check("kernels have bound loops", bound.length > 0);
      bound[0].dispatchEvent(new MouseEvent("mouseenter"));
      check("a bound loop lights the tree", count("#tree", "strong") > 0);
      bound[0].dispatchEvent(new MouseEvent("mouseleave"));
    }
    open("cost");
    open("why");
    open("code");
  } catch (error) {
    found.error = String(error && error.stack);
  }
  document.body.append(el("pre", { id: "selftest" }, JSON.stringify(found)));
}

function moves(view) {
  const rows = view.rows();
  if (rows.length < 2) return true;
  rows[0].focus();
  rows[0].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
  return document.activeElement === rows[1];
}

// All statements at one size: what the tests compare with isl.
function everything(space, size) {
  const sizes = Object.fromEntries(space.data.params.map((p) => [p, size]));
  const names = space.statements.map((s) => s.name);
  if (!space.context(sizes)) return { size, legal: false };
  const { instances, clipped, full } = space.instances(names, sizes, {}, () => 8, 4000);
  if (full) return { size, full };
  space.rank(instances, new Set());
  const { edges } = space.edges(instances, sizes, () => true, 1e6, (d) => d.kind);
  return {
    size,
    legal: true,
    clipped,
    order: [...instances].sort((a, b) => a.rank - b.rank).map((x) => x.id),
    edges: edges.map(([a, b, d]) => `${d.kind} ${d.array} ${a.id} ${b.id}`).sort(),
  };
}

if (location.hash === "#selftest") selftest();
