"""A Scop as exact text: all that `==` compares, and nothing that follows from it (accesses do)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from polyc.poly.dtypes import DType, bool_, i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, StraightLine, Temp, Unary, Var
from polyc.poly.forms.canonical import set_text, value_text
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.text import LEVEL, layout_text
from polyc.poly.texts.words import binary_type, call_type, identifier, word
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence

ATOM = 20


def exact_scop(scop: Scop) -> str:
    """The Scop as text that `polyc.poly.texts.parser.parse_scop` reads back; ends with a newline.

    Places in sources and the operator that it comes from are left out, as they are in `==`.

    Raises:
        ScopError: an expression that only loop IR has.
    """
    return "\n".join(_lines(scop)) + "\n"


def exact_tree(tree: Node) -> str:
    """A schedule tree as text, two spaces a level; ends with a newline."""
    return "\n".join(_node(tree, 0)) + "\n"


def _lines(scop: Scop) -> Iterator[str]:
    head = f"scop {word(scop.name)}({_words(scop.args)}) -> ({_words(scop.results)})"
    flags = {"reassociate": (scop.reassociate, True), "fast_math": (scop.fast_math, False)}
    yield head + "".join(f" {name}={value}" for name, (value, usual) in flags.items() if value != usual)
    yield f"  sizes ({_words(scop.params)}): {_isl(set_text(scop.context))}"
    types = {a.name: a.dtype for a in scop.arrays.values()}
    expressions = _Expressions(types)
    yield from (f"  {_array(a, expressions)}" for a in scop.arrays.values())
    yield from (f"  note {json.dumps(n)}" for n in scop.notes)
    for m in scop.marks:
        yield f"  mark {word(m.loop)} {m.kind}{'' if m.factor is None else f' {m.factor}'}"
    for s in scop.statements.values():
        yield from _statement(s, expressions)
    yield "  schedule"
    yield from _node(scop.tree, 2)


def _words(names: tuple[str, ...]) -> str:
    return ", ".join(map(word, names))


def _isl(text: str) -> str:
    return text.replace("\n", " ")


def _array(a: Array, expressions: _Expressions) -> str:
    shape = f"[{', '.join(map(expressions.text, a.shape))}]"
    given = "" if a.given is None else f" given as [{', '.join(map(expressions.text, a.given))}]"
    copies = f" copies {a.expanded}" if a.expanded else ""
    return f"{a.kind}{' scalar' if a.scalar else ''} {word(a.name)}: {a.dtype}{shape}{given}{copies}"


def _statement(s: Statement, expressions: _Expressions) -> Iterator[str]:
    yield f"  {word(s.name)}({_words(s.iters)}): {expressions.element(s.array, s.index)} = {expressions.text(s.value)}"
    yield f"    domain {_isl(set_text(s.domain))}"
    if s.predicate is not None:
        yield f"    if {expressions.text(s.predicate)}"
    if s.reduction is not None:
        yield f"    reduction {s.reduction}"
    for d in s.dynamic:
        yield f"    {word(d.iter)} in range({expressions.text(d.lo)}, {expressions.text(d.hi)})"


# ---- trees ---------------------------------------------------------------------------------


def _node(node: Node, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(node, Leaf):
        yield f"{pad}leaf"
    elif isinstance(node, Band):
        yield f"{pad}band{' permutable' if node.permutable else ''}"
        for m in node.members:
            yield from _member(m, pad + "  ")
        yield from _node(node.child, depth + 1)
    elif isinstance(node, Sequence):
        yield f"{pad}sequence"
        for f in node.filters:
            yield from _node(f, depth + 1)
    elif isinstance(node, Filter):
        yield f"{pad}only"
        yield from (f"{pad}  {word(s)}: {_isl(set_text(d))}" for s, d in node.domain.items())
        yield from _node(node.child, depth + 1)
    elif isinstance(node, Promote):
        copies = (" copy_in" if node.copy_in else "") + (" copy_out" if node.copy_out else "")
        layout = "" if node.layout is None else f" layout {layout_text(node.layout)}"
        yield f"{pad}promote {word(node.array)} to {node.space} {word(node.buffer)}{copies}{layout}"
        yield from _node(node.child, depth + 1)
    else:
        raise ScopError(f"{type(node).__name__} is no tree node")


def _member(m: Member, pad: str) -> Iterator[str]:
    kind = "" if m.kind == "serial" and m.factor is None else f" [{m.kind}{'' if m.factor is None else f' {m.factor}'}]"
    yield f"{pad}for {word(m.name)}{kind}{' coincident' if m.coincident else ''}"
    for s, value in m.schedule.items():
        yield f"{pad}  {word(s)}: {_isl(value_text(value))}"


# ---- expressions ---------------------------------------------------------------------------


class _Expressions:
    """Expressions in Python's grammar, with a type wherever it does not follow.

    `f32(2.0)` is a number, `f32(x)` a conversion, `typed(i32, x)` an `x` whose type does not follow from its operands,
    `let(a=x, b=y)(z)` a straight line in which `_.a` is the value named `a`.
    """

    def __init__(self, arrays: Mapping[str, DType]) -> None:
        self.arrays = arrays

    def text(self, e: Expr) -> str:
        """The whole expression."""
        return self.bound(e, {})[0]

    def element(self, array: str, index: tuple[Expr, ...], temps: Mapping[str, DType] | None = None) -> str:
        """`A[i, j]`, and `x[()]` of rank 0."""
        return f"{identifier(array)}[{', '.join(self.bound(e, temps or {})[0] for e in index) or '()'}]"

    def bound(self, e: Expr, temps: Mapping[str, DType]) -> tuple[str, int]:
        """Text and binding strength; `temps` are the types of the names of straight lines."""
        if isinstance(e, Const):
            return _const(e)
        text, level, dtype = self.untyped(e, temps)
        if dtype != e.dtype:
            return f"typed({e.dtype}, {text})", ATOM
        return text, level

    def untyped(self, e: Expr, temps: Mapping[str, DType]) -> tuple[str, int, DType | None]:
        """Text, binding strength and the type that a reader takes it to have."""

        def inner(x: Expr) -> str:
            return self.bound(x, temps)[0]

        if isinstance(e, Var) and e.count == 1:
            return identifier(e.name), ATOM, i64
        if isinstance(e, Load):
            return self.element(e.array, e.index, temps), ATOM, self.arrays.get(e.array)
        if isinstance(e, Call):
            return (
                f"{e.fn}({', '.join(map(inner, e.args))})",
                ATOM,
                call_type(e.fn, e.args[0].dtype if e.args else None),
            )
        if isinstance(e, Cast):
            operand = _typed_const(e.a) if isinstance(e.a, Const) else inner(e.a)
            return f"{e.dtype}({operand})", ATOM, e.dtype
        if isinstance(e, Select):
            return f"({inner(e.a)} if {inner(e.cond)} else {inner(e.b)})", ATOM, e.a.dtype
        if isinstance(e, Unary):
            return *self.unary(e, temps), e.a.dtype
        if isinstance(e, Binary):
            return *self.binary(e, temps), binary_type(e.op, e.a.dtype)
        if isinstance(e, Temp):
            return f"_.{e.name}", ATOM, temps.get(e.name)
        if isinstance(e, StraightLine):
            return self.straight(e, temps)
        raise ScopError(f"{type(e).__name__} is no expression of a Scop")

    def unary(self, e: Unary, temps: Mapping[str, DType]) -> tuple[str, int]:
        """`-x`; of a number `neg(1)`, since `-1` is the number."""
        if e.op == "neg" and isinstance(e.a, Const):
            return f"neg({_const(e.a)[0]})", ATOM
        sign = {"neg": "-", "not": "not ", "~": "~"}[e.op]
        return sign + self.inside(e.a, LEVEL[e.op], temps), LEVEL[e.op]

    def binary(self, e: Binary, temps: Mapping[str, DType]) -> tuple[str, int]:
        """With parentheses where Python would read another tree."""
        if e.op in ("min", "max"):
            return f"{e.op}({self.bound(e.a, temps)[0]}, {self.bound(e.b, temps)[0]})", ATOM
        level = LEVEL[e.op]
        tight = 1 if level == LEVEL["=="] or e.op == "**" else 0  # no chains of comparisons; powers go to the right
        return f"{self.inside(e.a, level + tight, temps)} {e.op} {self.inside(e.b, level + 1, temps)}", level

    def straight(self, e: StraightLine, temps: Mapping[str, DType]) -> tuple[str, int, DType]:
        """`let(a=x, b=y)(z)`."""
        known, parts = dict(temps), []
        for name, value in zip(e.names, e.values, strict=True):
            parts.append(f"{name}={self.bound(value, known)[0]}")
            known[name] = value.dtype
        return f"let({', '.join(parts)})({self.bound(e.result, known)[0]})", ATOM, e.result.dtype

    def inside(self, e: Expr, level: int, temps: Mapping[str, DType]) -> str:
        """In parentheses where it binds less than `level`."""
        text, own = self.bound(e, temps)
        return text if own >= level else f"({text})"


def _const(e: Const) -> tuple[str, int]:
    plain = (e.dtype == i64 and type(e.value) is int) or (e.dtype == bool_ and type(e.value) is bool)
    if not plain:
        return _typed_const(e), ATOM
    return str(e.value), ATOM if e.value >= 0 else LEVEL["neg"]


def _typed_const(e: Const) -> str:
    """`f32(2.0)`; what Python has no literal for is in quotes."""
    value = e.value
    if isinstance(value, float) and not math.isfinite(value):
        return f"{e.dtype}('{value!r}')"
    return f"{e.dtype}({value!r})"
