"""Scops, schedule trees and expressions as text for people."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, StraightLine, Temp, Unary, Var
from polyc.poly.forms.affine_text import condition_source, value_source
from polyc.poly.forms.canonical import map_text, set_text
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Layout, Leaf, Member, Node, Promote, Sequence, promotions_below

LEVEL = {
    "or": 1, "and": 2, "not": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6, "&": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10, "neg": 11, "~": 11, "**": 12,
}  # fmt: skip


def print_expr(e: Expr, level: int = 0) -> str:
    """An expression in the DSL's own syntax."""
    if isinstance(e, Const):
        return repr(e.value)
    if isinstance(e, Var):
        return e.name
    if isinstance(e, Load):
        return f"{e.array}[{', '.join(print_expr(i) for i in e.index)}]" if e.index else e.array
    if isinstance(e, Call):
        return f"{e.fn}({', '.join(print_expr(a) for a in e.args)})"
    if isinstance(e, Cast):
        return f"{e.dtype}({print_expr(e.a)})"
    if isinstance(e, Select):
        text = f"{print_expr(e.a, 1)} if {print_expr(e.cond, 1)} else {print_expr(e.b, 1)}"
        return f"({text})" if level > 0 else text
    if isinstance(e, Unary):
        text = {"neg": "-", "not": "not ", "~": "~"}[e.op] + print_expr(e.a, LEVEL[e.op])
        return f"({text})" if level > LEVEL[e.op] else text
    if isinstance(e, Binary):
        if e.op in ("min", "max"):
            return f"{e.op}({print_expr(e.a)}, {print_expr(e.b)})"
        own = LEVEL[e.op]
        text = f"{print_expr(e.a, own)} {e.op} {print_expr(e.b, own + 1)}"
        return f"({text})" if level > own else text
    if isinstance(e, Temp):
        return e.name
    if isinstance(e, StraightLine):
        steps = (f"{name} = {print_expr(value)}; " for name, value in zip(e.names, e.values, strict=True))
        return f"({''.join(steps)}{print_expr(e.result)})"
    return repr(e)


def print_statement(s: Statement) -> str:
    """`C[i, j] = C[i, j] + A[i, k] * B[k, j]` with its guard."""
    guard = "" if s.predicate is None else f"if {print_expr(s.predicate)}: "
    mark = f"  (reduction {s.reduction})" if s.reduction else ""
    return f"{guard}{print_expr(s.target)} = {print_expr(s.value)}{mark}"


def print_array(a: Array) -> str:
    """`in A: f32[M, K]`."""
    shape = f"[{', '.join(print_expr(e) for e in a.shape)}]" if a.shape else ""
    given = "" if a.given is None else f" given as [{', '.join(print_expr(e) for e in a.given)}]"
    return f"{a.kind} {a.name}: {a.dtype}{shape}{given}"


def print_scop(scop: Scop) -> str:
    """Arrays, statements with domains and accesses, and the schedule tree."""
    from polyc.poly.access import accesses

    lines = [f"scop {scop.name}({', '.join(scop.args)}) -> ({', '.join(scop.results)})"]
    if scop.params:
        lines.append(f"  sizes {', '.join(scop.params)}: {_set_text(scop.context)}")
    lines += [f"  {print_array(a)}" for a in scop.arrays.values()]
    for s in scop.statements.values():
        lines.append(f"  {s.name}[{', '.join(s.iters)}]: {print_statement(s)}")
        lines.append(f"    domain {_set_text(s.domain)}")
        for d in s.dynamic:
            lines.append(f"    {d.iter} in range({print_expr(d.lo)}, {print_expr(d.hi)})")
        for a in accesses(scop):
            if a.stmt == s.name:
                sure = "" if a.must else "may "
                lines.append(f"    {sure}{'write' if a.write else 'read'} {_map_text(a.map)}")
    lines += ["  schedule", *("    " + t for t in print_tree(scop.tree, scop).splitlines())]
    return "\n".join(lines)


def relation_text(x: isl.Set | isl.Map) -> str:
    """A set, or a relation without the constraints that only bound its parameters."""
    return _map_text(x) if isinstance(x, isl.Map) else _set_text(x)


def _set_text(s: isl.Set) -> str:
    return _without_params(set_text(s.coalesce()))


def _map_text(m: isl.Map) -> str:
    free = m.drop_constraints_involving_dims(isl.dim_type.param, 0, m.dim(isl.dim_type.param))
    return _without_params(map_text(free.gist_domain(m.domain()).coalesce()))


def _without_params(text: str) -> str:
    return text.split(" -> ", 1)[1] if text.startswith("[") and "] -> {" in text else text


def print_tree(tree: Node, scop: Scop | None = None) -> str:
    """The schedule tree with box-drawing lines: loop names, values, kinds, statements at the leaves.

    Without `scop` the statements are those that the leaves know (a Schedule's do), else their names.
    """
    whole = scop is not None
    if scop is None:
        leaf, depth = _first_leaf(tree)
        scop, whole = leaf.source, leaf.depth == depth
    # In a part of a tree the loops around are not known, and with them not what a buffer holds.
    boxes = _boxes(scop, tree) if scop is not None and whole else {}
    drawing = _Drawing({} if scop is None else scop.statements, boxes)
    drawing.draw(tree, "", "", tuple(drawing.statements))
    return "\n".join(drawing.lines)


def _first_leaf(tree: Node) -> tuple[Leaf, int]:
    """The first leaf, and the number of nodes above it."""
    depth = 0
    while tree.children():
        tree, depth = tree.children()[0], depth + 1
    return tree if isinstance(tree, Leaf) else Leaf(), depth


def _boxes(scop: Scop, tree: Node) -> dict[str, str]:
    """Buffer -> the part of the array that it holds: offset and extent in each dimension."""
    from polyc.poly.forms.boxes import box_of
    from polyc.poly.ordering.regions import regions

    if not promotions_below(tree):
        return {}
    found = ((r.node.buffer, box_of(scop, r)) for r in regions(scop, tree))
    return {buffer: box.text() for buffer, box in found if box is not None}


class _Drawing:
    def __init__(self, statements: Mapping[str, Statement], boxes: Mapping[str, str]) -> None:
        self.statements, self.boxes = statements, boxes
        self.lines: list[str] = []

    def draw(self, node: Node, first: str, rest: str, active: tuple[str, ...]) -> None:
        """Add the lines of a subtree: `first` goes before the first of them, `rest` before the others."""
        if isinstance(node, Band):
            self.band(node, first, rest, active or tuple(node.members[0].schedule))
        elif isinstance(node, Sequence):
            self.lines.append(f"{first}sequence")
            for k, f in enumerate(node.filters):
                head, tail = ("└─ ", "   ") if k == len(node.filters) - 1 else ("├─ ", "│  ")
                start = len(self.lines)
                self.draw(f.child, rest + head, rest + tail, tuple(f.domain))
                self.lines[start] += _condition(f, node)
        elif isinstance(node, Filter):
            self.draw(node.child, first, rest, tuple(node.domain))
        elif isinstance(node, Promote):
            self.lines.append(first + self.promote(node))
            self.draw(node.child, rest + "└─ ", rest + "   ", active)
        elif isinstance(node, Leaf):
            known = self.statements
            texts = [f"{s}: {print_statement(known[s])}" if s in known else s for s in active]
            self.lines.extend((first if k == 0 else rest) + t for k, t in enumerate(texts or ["(empty)"]))

    def band(self, node: Band, first: str, rest: str, active: tuple[str, ...]) -> None:
        tag = "   band permutable" if node.permutable and len(node.members) > 1 else ""
        for k, m in enumerate(node.members):
            corner = _corner(k, len(node.members))
            self.lines.append(f"{first if k == 0 else rest}{corner}{_member_text(m, active)}{tag if k == 0 else ''}")
        self.draw(node.child, rest + "└─ ", rest + "   ", active)

    def promote(self, node: Promote) -> str:
        """`promote A[32i.out : 32, 0 : K] to local A_buf, layout (1, 0) (copy in)`."""
        moves = "contract" if not (node.copy_in or node.copy_out) else "promote"
        copies = [w for w, on in (("copy in", node.copy_in), ("copy out", node.copy_out)) if on]
        box = self.boxes.get(node.buffer)
        text = f"{moves} {node.array}{f'[{box}]' if box else ''} to {node.space} {node.buffer}"
        if node.layout is not None:
            text += f", layout {layout_text(node.layout)}"
        return text + (f" ({', '.join(copies)})" if copies else "")


def layout_text(layout: Layout) -> str:
    """`(d0 // 8, d1, d0 % 8)` for `((0, 8, 0), (1, 1, 0), (0, 1, 8))`."""
    terms = (f"d{d}{f' // {div}' if div > 1 else ''}{f' % {mod}' if mod else ''}" for d, div, mod in layout)
    return f"({', '.join(terms)})"


def _condition(part: Filter, sequence: Sequence) -> str:
    """Which instances go this way, for statements that are in several parts of the sequence."""
    texts: dict[str, list[str]] = {}
    for s, domain in part.domain.items():
        others = [f.domain[s] for f in sequence.filters if f is not part and s in f.domain]
        if others:
            every = domain
            for d in others:
                every = every.union(d)
            texts.setdefault(condition_source(domain.gist(every.coalesce())), []).append(s)
    if not texts:
        return ""
    if list(texts.values()) == [list(part.domain)]:
        return f"   if {next(iter(texts))}"
    return "   if " + "; ".join(f"{t} for {'/'.join(names)}" for t, names in texts.items())


def _corner(position: int, count: int) -> str:
    """Brackets the members of one band."""
    if count == 1:
        return ""
    return "┌ " if position == 0 else "└ " if position == count - 1 else "│ "


def member_values(m: Member, active: tuple[str, ...]) -> dict[str, list[str]]:
    """What the loop runs over: time value as text -> the statements that have it."""
    values: dict[str, list[str]] = {}
    for s in active:
        if s in m.schedule:
            value = value_source(m.schedule[s])
            values.setdefault(value, []).append(s)
    return values


def _member_text(m: Member, active: tuple[str, ...]) -> str:
    values = member_values(m, active)
    if len(values) == 1:
        value = next(iter(values))
        shown = "" if value == m.name else f" = {value}"
    else:
        shown = " = " + ", ".join(f"{v} for {'/'.join(names)}" for v, names in values.items())
    kind = "" if m.kind == "serial" else f" [{m.kind}{' ' + str(m.factor) if m.factor else ''}]"
    return f"for {m.name}{shown}{kind}{' coincident' if m.coincident else ''}"
