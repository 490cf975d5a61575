// Making elements. All text goes through textContent: nothing from the data is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, fn] of Object.entries(value)) element.addEventListener(event, fn);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "css") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of [children].flat(2)) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}
const el = (tag, attributes, children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, children) => put(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

function bytesText(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let k = 0;
  while (n >= 1024 && k < 3) { n /= 1024; k += 1; }
  return `${n < 10 && k ? n.toFixed(2) : n < 100 && k ? n.toFixed(1) : Math.round(n)} ${units[k]}`;
}

function bigText(n) {
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, name] of units) if (n >= size) return `${(n / size).toPrecision(3)} ${name}`;
  return String(Math.round(n * 100) / 100);
}

function timeText(s) {
  return s < 1e-3 ? `${(s * 1e6).toPrecision(3)} µs` : s < 1 ? `${(s * 1e3).toPrecision(3)} ms` : `${s.toPrecision(3)} s`;
}

// Colours that people with any colour vision can tell apart (Okabe and Ito 2008).
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8300", "#6a51a3"];

// Dark blue to yellow with even steps of lightness (after cividis, Nunez et al. 2018); t in 0..1.
function ramp(t) {
  const stops = [[0, 46, 96], [66, 78, 107], [113, 112, 115], [161, 149, 110], [211, 190, 91], [253, 231, 55]];
  const x = Math.max(0, Math.min(1, t)) * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(x));
  const mix = stops[k].map((a, c) => Math.round(a + (stops[k + 1][c] - a) * (x - k)));
  return `rgb(${mix.join(",")})`;
}

function connectTheme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (theme) => { root.dataset.theme = theme; };
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => set(dark.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => set(root.dataset.theme === "dark" ? "light" : "dark"));
}

// Tabs: `views` is a list of [id, label, element, shown]. `shown` is called whenever the view opens.
function tabs(bar, place, views) {
  const buttons = views.map(([id, label], k) => el("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `view-${id}`,
    on: { click: () => open(k), keydown: (e) => move(e, k) },
  }, label));
  const panels = views.map(([id, , element]) =>
    put(element, { id: `view-${id}`, role: "tabpanel", "aria-labelledby": `tab-${id}` }));
  const move = (event, k) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const to = (k + step + views.length) % views.length;
    open(to);
    buttons[to].focus();
    event.preventDefault();
  };
  const open = (k) => {
    buttons.forEach((b, i) => put(b, { "aria-selected": String(i === k), tabindex: i === k ? "0" : "-1" }));
    panels.forEach((p, i) => { p.hidden = i !== k; });
    if (views[k][3]) views[k][3]();
  };
  bar.append(...buttons);
  place.append(...panels);
  open(0);
  return (id) => open(views.findIndex((v) => v[0] === id));
}

// One of several choices as a row of buttons; returns the row.
function choices(label, options, chosen, change) {
  const buttons = options.map(([value, text]) => el("button", {
    type: "button", "aria-pressed": String(value === chosen),
    on: { click: () => {
      buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(options[i][0] === value)));
      change(value);
    } },
  }, text));
  return el("div", { class: "seg", role: "group", "aria-label": label }, buttons);
}

// `head`: titles; a title that ends in "#" heads a column of numbers.
function table(head, rows, cls) {
  return el("div", { class: "tablebox" }, el("table", { class: cls || "" }, [
    el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col", class: h.endsWith("#") ? "n" : null }, h.replace(/#$/, ""))))),
    el("tbody", {}, rows)]));
}

// What follows "#" in the address: a view, and perhaps something in it. What the page does not have is said.
function address(open, known) {
  const [name, inside] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (byId(`view-${name}`)) open(name);
  const missing = name && name !== "selftest" && !byId(`view-${name}`) ? name : inside && !known(inside) ? `${name}/${inside}` : null;
  const views = [...document.querySelectorAll("[id^='view-']")].map((v) => `#${v.id.slice(5)}`).join(", ");
  if (missing) document.querySelector(".hint").prepend(
    el("strong", { role: "status" }, `This page has no part #${missing}: there are ${views}. `),
  );
  return missing ? null : inside || null;
}
