// The wheel zooms at the pointer, dragging moves, a click goes to a part, a double click or Escape back to the whole.
const svg = document.documentElement;
const whole = svg.viewBox.baseVal;
const home = [whole.x, whole.y, whole.width, whole.height];
let view = [...home];
let dragged = null;

function show(next) {
  view = next;
  svg.setAttribute("viewBox", view.join(" "));
}

function goTo(target, steps = 18) {
  const from = [...view];
  let k = 0;
  const step = () => {
    k += 1;
    const t = k / steps;
    const ease = t * t * (3 - 2 * t);
    const width = from[2] * Math.pow(target[2] / from[2], ease);
    const share = from[2] === target[2] ? ease : (from[2] - width) / (from[2] - target[2]);
    show([0, 1, 2, 3].map((i) => from[i] + (target[i] - from[i]) * share));
    if (k < steps) requestAnimationFrame(step);
  };
  step();
}

function place(event) {
  const box = svg.getBoundingClientRect();
  const scale = Math.max(view[2] / box.width, view[3] / box.height);
  const left = view[0] + view[2] / 2 - (box.width * scale) / 2;
  const top = view[1] + view[3] / 2 - (box.height * scale) / 2;
  return [left + (event.clientX - box.left) * scale, top + (event.clientY - box.top) * scale, scale];
}

svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  const by = Math.exp(event.deltaY * 0.0015);
  const [x, y] = place(event);
  show([x - (x - view[0]) * by, y - (y - view[1]) * by, view[2] * by, view[3] * by]);
}, { passive: false });

svg.addEventListener("pointerdown", (event) => { dragged = [event.clientX, event.clientY, [...view], false]; });
svg.addEventListener("pointermove", (event) => {
  if (dragged === null) return;
  const [, , scale] = place(event);
  const [dx, dy] = [event.clientX - dragged[0], event.clientY - dragged[1]];
  if (Math.abs(dx) + Math.abs(dy) > 4) dragged[3] = true;
  if (dragged[3]) show([dragged[2][0] - dx * scale, dragged[2][1] - dy * scale, dragged[2][2], dragged[2][3]]);
});
svg.addEventListener("pointerup", (event) => {
  const moved = dragged !== null && dragged[3];
  dragged = null;
  const group = event.target.closest("rect") || (event.target.parentNode.querySelector && event.target.previousElementSibling);
  if (moved || !group || group.tagName !== "rect") return;
  const [x, y, w, h] = ["x", "y", "width", "height"].map((name) => Number(group.getAttribute(name)));
  goTo([x - 0.02 * w, y - 0.02 * h, 1.04 * w, 1.04 * h]);
});
svg.addEventListener("dblclick", () => goTo(home));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") goTo(home); });
