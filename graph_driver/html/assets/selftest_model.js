// `page.html#selftest`: the page checks itself and writes what it found into the document.

function selftest() {
  const found = { checks: {} };
  const check = (name, ok) => { found.checks[name] = Boolean(ok); };
  try {
    const { graph, memory, open, show } = APP;
    check("a box for each step", document.querySelectorAll("svg.graph .box").length === DATA.boxes.length);
    const spots = DATA.boxes.map((b) => [b.x, b.layer]);
    check(
      "no two boxes overlap",
      spots.every(([x, l], k) => spots.slice(k + 1).every(([y, m]) => l !== m || Math.abs(x - y) >= 1)),
    );
    const scale = graph.scale;
    graph.zoom(1.3);
    check("zooms", graph.scale > scale);
    graph.fit(true);
    const last = DATA.steps.length - 1;
    show(last);
    check("a step shows its details", byId("h-step").textContent === `Step ${last} of ${DATA.steps.length}`);
    check("its box is marked", document.querySelectorAll(".box.chosen").length === 1);
    graph.svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp" }));
    check("keys walk", graph.data.boxes[graph.at].step !== last);
    open("memory");
    check("a rectangle for each tensor", document.querySelectorAll("svg.memory .tensor").length === DATA.memory.tensors.length);
    check(
      "the plan is not below its bound",
      DATA.memory.peak >= DATA.memory.bound && Math.max(0, ...DATA.memory.live) === DATA.memory.bound,
    );
    open("kernels");
    const timed = DATA.measured && DATA.roofs && document.querySelector("svg.roofline");
    check("roofs over the measured steps", !timed || document.querySelectorAll("svg.roofline .roof").length > 0);
    open("why");
    const headings = [...document.querySelectorAll("#view-why h3")].map((h) => h.textContent);
    check("casts and layouts have their place", headings.includes("Casts") && headings.some((h) => h.includes("layout")));
    open("graph");
  } catch (error) {
    found.error = String(error && error.stack);
  }
  document.body.append(el("pre", { id: "selftest" }, JSON.stringify(found)));
}

if (location.hash === "#selftest") selftest();
