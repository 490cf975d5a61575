// The schedule tree: bands with their members in one bracket, foldable, walked with the arrow keys.

const MARKS = {
  parallel: ["parallel", "iterations run on all threads"],
  vector: ["vector", "iterations run in vector lanes"],
  unroll: ["unroll", "iterations are written out"],
};

function badge(kind, text, title) { return el("span", { class: `badge b-${kind}`, title }, text); }

class TreeView {
  constructor(place, links, language) {
    this.place = place;
    this.links = links;
    this.language = language;
  }

  // `free`: loops that carry no dependence (`parallel`), only a reduction's own (`sums`), permutable groups (`bands`).
  show(root, free) {
    this.free = free;
    const list = el("ul", { role: "tree", class: "tree", "aria-label": "Schedule tree" }, this.nodes(root, 1));
    this.place.replaceChildren(list);
    const rows = this.rows();
    if (rows.length) rows[0].tabIndex = 0;
    list.addEventListener("keydown", (e) => this.key(e));
  }
  rows() { return [...this.place.querySelectorAll(".row")].filter((r) => r.offsetParent !== null || !r.closest("[hidden]")); }

  // A filter shows only what it cuts; a leaf's statements are rows of their own.
  nodes(node, level) {
    if (node.type === "filter") {
      const parts = Object.entries(node.parts);
      const inner = node.children.flatMap((c) => this.nodes(c, parts.length ? level + 1 : level));
      if (!parts.length) return inner;
      return [this.item(
        parts.map(([s, text]) => this.row(
          null,
          [
            el("span", { class: "kw" }, "only "),
            el("code", {}, coloured(text, "python")),
            el("span", { class: "dim" }, ` for ${s}`),
          ],
        )),
        inner,
        level,
      )];
    }
    if (node.type === "leaf") {
      return node.statements.map((s) => this.item([this.row(s.key, [
        el("span", { class: "stmtname" }, s.name), " ", el("code", {}, coloured(s.text, "python"))])], [], level));
    }
    const below = node.children.flatMap((c) => this.nodes(c, level + 1));
    if (node.type === "sequence") return [this.item(
      [this.row(null, [el("span", { class: "kw" }, "sequence"), el("span", { class: "dim" }, " one after another")])],
      below,
      level,
    )];
    if (node.type === "promote") return [this.item([this.promotion(node)], below, level)];
    const item = this.item(node.members.map((m) => this.member(m)), below, level);
    if (node.members.length > 1) {
      item.classList.add("several");
      const permutable = this.free.bands.some((b) => node.members.every((m) => b.includes(m.name)));
      if (permutable) item.classList.add("permutable");
      item.firstChild.title = permutable ? "permutable band: any order and any tiling of these loops is legal" : "band: the order of these loops matters";
    }
    return [item];
  }

  item(rows, below, level) {
    const list = below.length ? el("ul", { role: "group" }, below) : null;
    const body = el("div", { class: "rows" }, rows);
    const item = el("li", { role: "none" }, [body, list]);
    rows.forEach((r, k) => { r.setAttribute("aria-level", level); if (k === 0 && list) this.foldable(item, r, list); });
    return item;
  }
  foldable(item, row, list) {
    const button = el("button", { type: "button", class: "fold", tabindex: "-1", "aria-label": "Fold or unfold" }, "▾");
    row.prepend(button);
    row.classList.add("parent");
    row.setAttribute("aria-expanded", "true");
    row.fold = (closed) => {
      list.hidden = closed;
      item.classList.toggle("folded", closed);
      row.setAttribute("aria-expanded", String(!closed));
      button.textContent = closed ? "▸" : "▾";
    };
    button.addEventListener("click", (e) => { row.fold(!list.hidden); e.stopPropagation(); });
  }
  foldAll(closed) { for (const row of this.place.querySelectorAll(".row.parent")) row.fold(closed); }

  row(key, content) {
    const row = el("div", { class: "row", role: "treeitem", tabindex: "-1" }, el("span", { class: "text" }, content));
    if (key) {
      row.dataset.key = key;
      this.links.addKey(key, row);
      this.links.connect(row, () => ({ keys: [key] }));
    }
    row.addEventListener("focus", () => { for (const r of this.place.querySelectorAll(".row")) r.tabIndex = r === row ? 0 : -1; });
    return row;
  }
  member(m) {
    const shown = (v) => el("code", {}, coloured(v, "python"));
    const values = m.values.length === 1 && m.values[0][0] === m.name ? [] :
      m.values.length === 1 ? [" = ", shown(m.values[0][0])] :
      [
        " = ",
        ...m.values.flatMap(([v, names], k) => [k ? ", " : "", shown(v), el("span", { class: "dim" }, ` for ${names.join("/")}`)]),
      ];
    const marks = [];
    if (m.kind !== "serial") marks.push(badge(
      m.kind.split(".")[0],
      `${m.kind}${m.factor ? ` ${m.factor}` : ""}`,
      (MARKS[m.kind] || ["", "bound to this axis of the device"])[1],
    ));
    else if (this.free.parallel.includes(m.name)) marks.push(badge(
      "free",
      "free",
      "carries no dependence: its iterations may run in any order or at once",
    ));
    if (this.free.sums.includes(m.name)) marks.push(badge(
      "free",
      "sum",
      "carries only the updates of a reduction, which may change places",
    ));
    const most = m.most ? el("span", { class: "most", title: `takes at most ${m.most} values` }, ` (≤ ${m.most})`) : null;
    return this.row(
      m.key,
      [el("span", { class: "kw" }, "for "), el("b", {}, m.name), ...values, most, ...marks.flatMap((b) => [" ", b])],
    );
  }
  promotion(n) {
    const copies = [n.in ? "copy in" : null, n.out ? "copy out" : null].filter(Boolean).join(", ");
    return this.row(n.key, [el("span", { class: "kw" }, n.in || n.out ? "promote " : "contract "), el("b", {}, n.array),
      n.box ? el("code", {}, coloured(`[${n.box}]`, "python")) : null, el("span", { class: "dim" }, " to "), badge(
        "buffer",
        `${n.space} ${n.buffer}`,
        "a small buffer that stands for a part of the array",
      ),
      n.layout ? [" ", badge("buffer", "packed", `stored in this order: ${n.layout}`)] : null, copies ? el("span", { class: "dim" }, ` ${copies}`) : null]);
  }

  key(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    const rows = this.rows(), at = rows.indexOf(row);
    const to = { ArrowDown: rows[at + 1], ArrowUp: rows[at - 1], Home: rows[0], End: rows[rows.length - 1] }[event.key];
    if (to) to.focus();
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const closed = event.key === "ArrowLeft";
      if (row.fold && (row.getAttribute("aria-expanded") === "true") === closed) row.fold(closed);
      else if (closed) {
        const parent = row.closest("li").parentElement.closest("li");
        if (parent) parent.querySelector(".row").focus();
      }
    } else return;
    event.preventDefault();
  }
}

function treeLegend(place) {
  place.append(
    el("span", {}, [el("i", { class: "bracket permutable" }), "permutable band"]),
    el("span", {}, [el("i", { class: "bracket" }), "band in this order"]),
    ...["parallel", "vector", "unroll"].map((k) => badge(k, MARKS[k][0], MARKS[k][1])),
    badge("buffer", "buffer", "promotion of a part of an array"),
    badge("free", "free", "carries no dependence"),
    badge("free", "sum", "carries only a reduction's updates"),
  );
}
