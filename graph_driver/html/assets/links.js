// Linked highlighting. Everything that can light up registers under a key (`loop:i`, `stmt:S0`,
// `copy:C_tile`) or under a line of the loops' text, through which all generated code is linked.

class Links {
  constructor(code) {
    this.hub = code.loops || [];          // [text, own keys, keys around]
    this.keys = code.keys || [];
    this.byKey = new Map();               // key -> elements (tree rows, source lines, table rows)
    this.byLine = new Map();              // line of loops -> elements (1-based)
    this.lit = [];
    this.pinned = null;
    this.listeners = [];
    this.own = new Map();                 // key -> lines of loops that are it
    this.around = new Map();              // key -> lines inside it
    this.hub.forEach(([, own, around], k) => {
      for (const key of own) this.collect(own.length > 1 ? this.around : this.own, this.keys[key], k + 1);
      for (const key of around) this.collect(this.around, this.keys[key], k + 1);
    });
  }
  collect(map, key, value) { if (map.has(key)) map.get(key).push(value); else map.set(key, [value]); }

  // An element that shows a key, or a line of generated code (0: it comes from nowhere).
  addKey(key, element) { this.collect(this.byKey, key, element); }
  addLine(line, element) { if (line) this.collect(this.byLine, line, element); }

  // What belongs to a subject: {keys} or {line}. Strong: the thing itself; weak: what is in or around it.
  facts(subject) {
    const strong = new Set(), weak = new Set(), keys = new Set(), outer = new Set();
    if (subject.line) {
      const [, own, around] = this.hub[subject.line - 1];
      strong.add(subject.line);
      own.forEach((k) => keys.add(this.keys[k]));
      around.forEach((k) => outer.add(this.keys[k]));
    } else {
      for (const key of subject.keys) {
        keys.add(key);
        (this.own.get(key) || []).forEach((n) => strong.add(n));
        (this.around.get(key) || []).forEach((n) => weak.add(n));
      }
    }
    return { strong, weak, keys, outer };
  }

  paint(subject) {
    for (const element of this.lit) element.classList.remove("strong", "weak", "pinned");
    this.lit = [];
    if (subject) {
      const { strong, weak, keys, outer } = this.facts(subject);
      const mark = (map, items, name) => {
        for (const item of items) for (const element of map.get(item) || []) {
          element.classList.add(name);
          this.lit.push(element);
        }
      };
      mark(this.byLine, weak, "weak");
      mark(this.byLine, strong, "strong");
      mark(this.byKey, outer, "weak");
      mark(this.byKey, keys, "strong");
    }
    for (const fn of this.listeners) fn(subject);
  }
  hover(subject) { if (!this.pinned) this.paint(subject); }
  leave() { if (!this.pinned) this.paint(null); }
  // Keep the highlight, and bring the first line of every pane into view except in `from`'s own pane.
  pin(subject, from) {
    this.pinned = subject;
    this.paint(subject);
    const seen = new Set();
    const home = from && from.closest(".scroll");
    if (home) seen.add(home);
    for (const wanted of ["strong", "weak"]) for (const element of this.lit) {
      const box = element.closest(".scroll");
      if (!box || seen.has(box) || !element.classList.contains(wanted)) continue;
      seen.add(box);
      const a = element.getBoundingClientRect(), b = box.getBoundingClientRect();
      if (a.top < b.top || a.bottom > b.bottom) box.scrollTop += a.top - b.top - b.height / 3;
    }
  }
  unpin() { this.pinned = null; this.paint(null); }
  toggle(subject, from) {
    const same = this.pinned && JSON.stringify(this.pinned) === JSON.stringify(subject);
    if (same) this.unpin(); else this.pin(subject, from);
  }

  // Let `element` speak for `subject()` on hover, click, Enter and focus.
  connect(element, subject) {
    element.addEventListener("mouseenter", () => { const s = subject(); if (s) this.hover(s); });
    element.addEventListener("mouseleave", () => this.leave());
    element.addEventListener("click", (e) => { const s = subject(); if (s) this.toggle(s, element); e.stopPropagation(); });
    element.addEventListener("focus", () => { const s = subject(); if (s) this.hover(s); });
    element.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      const s = subject();
      if (s) this.toggle(s, element);
      e.preventDefault();
    });
  }
}
