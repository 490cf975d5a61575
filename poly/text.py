"""Scops, schedule trees and expressions as text for people."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from poly.canonical import map_text, set_text, value_text
from poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from poly.scop import Array, Scop, Statement
from poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence

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
    return repr(e)


def print_statement(s: Statement) -> str:
    """`C[i, j] = C[i, j] + A[i, k] * B[k, j]` with its guard."""
    guard = "" if s.predicate is None else f"if {print_expr(s.predicate)}: "
    mark = f"  (reduction {s.reduction})" if s.reduction else ""
    return f"{guard}{print_expr(s.target)} = {print_expr(s.value)}{mark}"


def print_array(a: Array) -> str:
    """`in A: f32[M, K]`."""
    shape = f"[{', '.join(print_expr(e) for e in a.shape)}]" if a.shape else ""
    return f"{a.kind} {a.name}: {a.dtype}{shape}"


def print_scop(scop: Scop) -> str:
    """Arrays, statements with domains and accesses, and the schedule tree."""
    from poly.access import accesses

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
    """The schedule tree with box-drawing lines: loop names, values, kinds, statements at the leaves."""
    statements: Mapping[str, Statement] = {} if scop is None else scop.statements
    lines: list[str] = []
    _draw(tree, "", "", lines, statements, tuple(statements))
    return "\n".join(lines)


def _draw(
    node: Node, first: str, rest: str, lines: list[str], statements: Mapping[str, Statement], active: tuple[str, ...]
) -> None:
    if isinstance(node, Band):
        tag = "band" + (" permutable" if node.permutable and len(node.members) > 1 else "")
        active = active or tuple(node.members[0].schedule)
        for k, m in enumerate(node.members):
            prefix = first if k == 0 else rest
            corner = _corner(k, len(node.members))
            lines.append(f"{prefix}{corner}{_member_text(m, active)}{'   ' + tag if k == 0 and tag != 'band' else ''}")
        _draw(node.child, rest + "└─ ", rest + "   ", lines, statements, active)
    elif isinstance(node, Sequence):
        lines.append(f"{first}sequence")
        for k, f in enumerate(node.filters):
            last = k == len(node.filters) - 1
            head, tail = ("└─ ", "   ") if last else ("├─ ", "│  ")
            _draw(f.child, rest + head, rest + tail, lines, statements, tuple(f.domain))
    elif isinstance(node, Filter):
        _draw(node.child, first, rest, lines, statements, tuple(node.domain))
    elif isinstance(node, Promote):
        moves = "contract" if not (node.copy_in or node.copy_out) else "promote"
        copies = [w for w, on in (("copy in", node.copy_in), ("copy out", node.copy_out)) if on]
        detail = f" ({', '.join(copies)})" if copies else ""
        lines.append(f"{first}{moves} {node.array} to {node.space} {node.buffer}{detail}")
        _draw(node.child, rest + "└─ ", rest + "   ", lines, statements, active)
    elif isinstance(node, Leaf):
        texts = [f"{s}: {print_statement(statements[s])}" if s in statements else s for s in active]
        lines.extend((first if k == 0 else rest) + t for k, t in enumerate(texts or ["(empty)"]))


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
            body = _without_params(value_text(m.schedule[s]))
            value = body.partition("-> [(")[2].rpartition(")]")[0] if body.count("->") == 1 else body
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
