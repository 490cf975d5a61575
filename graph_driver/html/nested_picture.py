"""A program as one picture to zoom into: from the nodes of its graph through the loops of its schedule tree to each
statement instance.

Every part of the tree is drawn inside the part above it: the parts of a sequence side by side, the iterations of a
band as a grid of cells, a leaf as the instances that run there, with their subscripts as numbers. Nothing is left out
and nothing drawn twice, so the picture holds each instance of the union of domains once. In a browser the wheel zooms,
a click goes to a part and a double click back to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from polyc.poly.access import accesses
from polyc.poly.binding import evaluate
from polyc.poly.enumeration import Instance, count_bound, instances, passes
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Const, Expr, Load, const_int, rewrite, substitute
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.text import print_expr
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote
from polyc.poly.tree import Sequence as SequenceNode

MOST = 20_000
"""Instances in one picture; more make a file that browsers do not open quickly."""
WIDTH, HEIGHT = 1600.0, 900.0
HEAD, MARGIN = 0.12, 0.03  # shares of a part for its heading, and around what is inside
HUES = (28, 205, 130, 285, 55, 340, 175, 95)


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture."""

    x: float
    y: float
    w: float
    h: float

    def inside(self) -> Box:
        """What is left below a heading."""
        m = MARGIN * min(self.w, self.h)
        head = HEAD * self.h
        return Box(self.x + m, self.y + head, self.w - 2 * m, self.h - head - m)

    def shared_out(self, weights: Sequence[float]) -> list[Box]:
        """Parts along the longer side, as large as their weights say."""
        wide, total, found, at = self.w >= self.h, sum(weights), [], 0.0
        for weight in weights:
            share, gap = weight / total, MARGIN * min(self.w, self.h) / len(weights)
            if wide:
                found.append(Box(self.x + at * self.w + gap / 2, self.y, share * self.w - gap, self.h))
            else:
                found.append(Box(self.x, self.y + at * self.h + gap / 2, self.w, share * self.h - gap))
            at += share
        return found

    def grid(self, rows: int, columns: int) -> list[Box]:
        """Equal cells, row by row."""
        w, h = self.w / columns, self.h / rows
        gap = MARGIN * min(w, h)
        return [
            Box(self.x + c * w + gap / 2, self.y + r * h + gap / 2, w - gap, h - gap)
            for r in range(rows) for c in range(columns)
        ]  # fmt: skip


def nested_picture(
    scop: Scop, tree: Node, title: str, nodes: Mapping[str, str] | None = None,
    tensors: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The picture as SVG.

    Args:
        scop: a program without parameters.
        tree: its schedule.
        title: the heading.
        nodes: for a model the node that each statement is of: these are the parts of the graph level.
        tensors: what the arrays between them are called.

    Raises:
        ArgumentError: there are more than `MOST` instances or none, or sizes are not numbers.
    """
    count = None if scop.params else count_bound(scop)
    if count is None:
        raise ArgumentError("a picture of all instances needs sizes that are numbers (--dim NAME=V)")
    if count > MOST:
        raise ArgumentError(
            f"up to {count:,} instances are too many for one picture (at most {MOST:,}): take small sizes"
        )
    writer = _Writer(scop, nodes or {}, tensors or {})
    if not writer.points:
        raise ArgumentError("at these sizes no statement has an instance: there is nothing to draw")
    whole = Box(0.0, 0.0, WIDTH, HEIGHT)
    body = list(writer.part(tree, list(writer.points), whole, title, 0))
    script = files("polyc.graph_driver.html").joinpath("assets", "nested.js").read_text(encoding="utf-8")
    style = (
        "text{font-family:sans-serif;fill:#222}rect{stroke:#555;vector-effect:non-scaling-stroke}"
        "path{fill:none;stroke:#a33;vector-effect:non-scaling-stroke}svg{background:white}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}">',
            f"<title>{escape(title)}</title><style>{style}</style>",
            *body,
            f"<script><![CDATA[\n{script}]]></script>",
            "</svg>",
        ]
    )


class _Writer:
    """One picture: `points` are all instances."""

    def __init__(self, scop: Scop, nodes: Mapping[str, str], tensors: Mapping[str, str]) -> None:
        self.scop, self.nodes, self.tensors = scop, nodes, tensors
        self.points = instances(scop)
        names = list(dict.fromkeys(nodes.get(s, s) for s in scop.statements))
        self._hue = {name: HUES[k % len(HUES)] for k, name in enumerate(names)}
        self._writes, self._reads = _arrays(scop)

    def part(self, node: Node, here: Sequence[Instance], box: Box, head: str, depth: int) -> Iterator[str]:
        """A part of the tree and all below it, for the instances that come to it (where there are any)."""
        if not here:
            return
        if isinstance(node, Leaf):
            yield from self._leaf(here, box)
            return
        yield self._frame(here, box, "part", depth)
        yield _text(head or self._head(node), box.x, box.y, box.w, HEAD * box.h * (1.0 if depth else 0.5))
        yield from self._below(node, here, box.inside(), depth)

    def _below(self, node: Node, here: Sequence[Instance], box: Box, depth: int) -> Iterator[str]:
        if isinstance(node, Band):
            yield from self._loops(node, node.members, here, box, depth)
        elif isinstance(node, SequenceNode):
            yield from self._sequence(node, here, box, depth)
        elif isinstance(node, Filter):
            kept = [x for x in here if passes(node, x, self.points[x])]
            yield from self.part(node.child, kept, box, "", depth + 1)
        else:
            yield from self.part(node.children()[0], here, box, "", depth + 1)

    def _head(self, node: Node) -> str:
        if isinstance(node, Band):
            return "for " + ", ".join(m.name if m.kind == "serial" else f"{m.name} ({m.kind})" for m in node.members)
        if isinstance(node, Promote):
            return f"{node.array} in {node.buffer}"
        return "in order"

    def _sequence(self, node: SequenceNode, here: Sequence[Instance], box: Box, depth: int) -> Iterator[str]:
        rows = [(f, [x for x in here if passes(f, x, self.points[x])]) for f in node.filters]
        rows = [(f, some) for f, some in rows if some]
        cells = box.shared_out([math.sqrt(len(some)) for _, some in rows])
        graph = depth == 0 and bool(self.nodes)
        for (f, some), cell in zip(rows, cells, strict=True):
            of = dict.fromkeys(self.nodes[s] for s, _ in some) if graph else {}
            yield from self.part(f.child, some, cell, ", ".join(of), depth + 1)
        if graph and box.w >= box.h:
            yield from self._passed_on([{s for s, _ in some} for _, some in rows], cells, box)

    def _passed_on(self, parts: Sequence[set[str]], cells: Sequence[Box], box: Box) -> Iterator[str]:
        """A bow for each array that one part of the graph writes and a later one reads."""
        for k, writers in enumerate(parts):
            for later in range(k + 1, len(parts)):
                passed = self._of(self._writes, writers) & self._of(self._reads, parts[later])
                for n, array in enumerate(sorted(passed)):
                    a, b = cells[k].x + cells[k].w * 0.75, cells[later].x + cells[later].w * (0.2 + 0.1 * n)
                    top, up = box.y, 0.5 * HEAD * HEIGHT
                    bow = f"M{a:.2f} {top:.2f}Q{(a + b) / 2:.2f} {top - up:.2f} {b:.2f} {top:.2f}"
                    yield f'<path class="tensor" d="{bow}"/>'
                    yield _text(self.tensors.get(array, array), (a + b) / 2, top - 0.8 * up, 160, 0.3 * up)

    @staticmethod
    def _of(arrays: Mapping[str, set[str]], statements: set[str]) -> set[str]:
        return set().union(*(arrays[s] for s in statements)) if statements else set()

    def _loops(
        self, node: Band, members: Sequence[Member], here: Sequence[Instance], box: Box, depth: int
    ) -> Iterator[str]:
        """The iterations of a band: two loops are a grid, more are grids in grids; one is a row that turns."""
        if not members:
            yield from self.part(node.child, here, box, "", depth + 1)
            return
        first, rest = (members[:2], members[2:]) if len(members) > 1 else (members, ())
        cells: dict[tuple[int, ...], list[Instance]] = {}
        for x in here:
            cells.setdefault(tuple(self._value(m, x) for m in first), []).append(x)
        values = [sorted({v[k] for v in cells}) for k in range(len(first))]
        if len(first) == 2:
            rows, columns = len(values[0]), len(values[1])
        else:
            columns = min(len(values[0]), max(1, round(math.sqrt(len(values[0]) * box.w / box.h))))
            rows = math.ceil(len(values[0]) / columns)
        grid = box.grid(rows, columns)
        for at in sorted(cells):
            places = [values[k].index(v) for k, v in enumerate(at)]
            cell = grid[places[0] * columns + places[1] if len(at) == 2 else places[0]]
            text = ", ".join(f"{m.name} = {v}" for m, v in zip(first, at, strict=True))
            yield self._frame(cells[at], cell, "iteration", depth)
            yield _text(text, cell.x, cell.y, cell.w, HEAD * cell.h)
            yield from self._loops(node, rest, cells[at], cell.inside(), depth)

    def _value(self, m: Member, x: Instance) -> int:
        return int(m.schedule[x[0]].eval(self.points[x]).to_python())

    def _leaf(self, here: Sequence[Instance], box: Box) -> Iterator[str]:
        columns = max(1, round(math.sqrt(len(here))))
        for x, cell in zip(sorted(here), box.grid(math.ceil(len(here) / columns), columns)):
            s = self.scop.statements[x[0]]
            name = f"{x[0]}[{', '.join(map(str, x[1]))}]"
            text = concrete(s, x[1])
            yield f'<g class="instance" data-at="{escape(name)}"><title>{escape(f"{name}: {text}")}</title>'
            yield self._frame([x], cell, "point", -1)
            yield _text(name, cell.x, cell.y + 0.1 * cell.h, cell.w, 0.3 * cell.h)
            yield _text(text, cell.x, cell.y + 0.5 * cell.h, cell.w, 0.3 * cell.h)
            yield "</g>"

    def _frame(self, here: Sequence[Instance], box: Box, kind: str, depth: int) -> str:
        owners = {self.nodes.get(s, s) for s, _ in here}
        light = 99 - 2 * min(depth, 6) if depth >= 0 else 80
        fill = f"hsl({self._hue[next(iter(owners))]},60%,{light}%)" if len(owners) == 1 else f"hsl(0,0%,{light}%)"
        return (
            f'<rect class="{kind}" x="{box.x:.6g}" y="{box.y:.6g}" width="{box.w:.6g}" height="{box.h:.6g}" '
            f'fill="{fill}"/>'
        )  # fmt: skip


def _arrays(scop: Scop) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """For each statement the arrays that it writes, and those that it reads."""
    writes: dict[str, set[str]] = {s: set() for s in scop.statements}
    reads: dict[str, set[str]] = {s: set() for s in scop.statements}
    for a in accesses(scop):
        (writes if a.write else reads)[a.stmt].add(a.array)
    return writes, reads


def concrete(s: Statement, at: Sequence[int]) -> str:
    """A statement of one instance, `C[0, 2] = C[0, 2] + A[0, 3] * B[3, 2]`: iterators are numbers, and subscripts that
    they decide are computed."""
    numbers = dict(zip(s.iters, at, strict=True))
    values: dict[str, Expr] = {name: const_int(v) for name, v in numbers.items()}

    def computed(e: Expr) -> Expr:
        return Load(e.array, tuple(_number(i) for i in e.index), e.dtype) if isinstance(e, Load) else e

    target, value = (rewrite(substitute(e, values), computed) for e in (s.target, s.value))
    guard = "" if s.predicate is None else f"if {print_expr(rewrite(substitute(s.predicate, values), computed))}: "
    return f"{guard}{print_expr(target)} = {print_expr(value)}"


def _number(e: Expr) -> Expr:
    if isinstance(e, Const):
        return e
    try:
        return const_int(evaluate(e, {}))
    except (KeyError, TypeError, ValueError, ArgumentError):
        return e  # data decide it


def _text(text: str, x: float, y: float, w: float, h: float) -> str:
    """A line in a box of the picture, as large as fits."""
    size = min(0.8 * h, w / (0.58 * max(len(text), 1)))
    return (
        f'<text x="{x + 0.02 * w:.6g}" y="{y + 0.5 * h + 0.35 * size:.6g}" font-size="{size:.4g}">{escape(text)}</text>'
    )
