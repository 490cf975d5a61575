// Work and traffic: formulas from Python, shown as tables.

function costView(cost) {
  return el("div", { class: "view" }, el("p", { class: "note" }, "Costs come here."));
}
