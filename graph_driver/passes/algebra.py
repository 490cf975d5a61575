"""Algebraic rules on single nodes and pairs of nodes.

`RULES` has each with a name. Exact rules hold for every operand: with NaN, infinities and both
zeros, the result has the same bits (a NaN stays some NaN). The others belong to `fast-math`.
A result that would lose a broadcast is never replaced by its operand (`rewriting`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.passes import moved_codes
from polyc.graph_driver.passes.rewriting import Answer, New, Rule, Sight, rewrite
from polyc.poly.dtypes import DType

COMMUTATIVE = ("Add", "Mul", "Max", "Min", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
ROUNDINGS = ("Floor", "Ceil", "Round")
INTEGER_INVERSES = {"Less": "GreaterOrEqual", "Greater": "LessOrEqual", "LessOrEqual": "Greater",
                    "GreaterOrEqual": "Less"}  # fmt: skip


def simplify(graph: Graph) -> dict[str, int]:
    """The exact rules."""
    return rewrite(graph, [*(r for r in RULES if r.exact), *moved_codes.RULES])


def simplify_fast(graph: Graph) -> dict[str, int]:
    """The rules that change rounding, or results for NaN, infinities and -0."""
    return rewrite(graph, [r for r in RULES if not r.exact])


# ---- one operand is a constant -----------------------------------------------------------------


def _neutral(test: Callable[[Any], bool]) -> Callable[[Sight, Node], Answer | None]:
    """`x OP c` is `x` when all elements of `c` pass the test (and `c OP x` where OP commutes)."""

    def answer(sight: Sight, node: Node) -> Answer | None:
        sides = [(0, 1), (1, 0)] if node.op_type in COMMUTATIVE else [(0, 1)]
        for x, c in sides if len(node.inputs) == 2 else ():
            value = sight.uniform(node.inputs[c])
            if value is not None and test(value):
                return node.inputs[x]
        return None

    return answer


def _absorbing(test: Callable[[Any], bool], result: float) -> Callable[[Sight, Node], Answer | None]:
    """`x OP c` (or `c OP x`) is `result` whatever `x` is."""

    def answer(sight: Sight, node: Node) -> Answer | None:
        for name in node.inputs:
            value = sight.uniform(name)
            if value is not None and test(value):
                return np.asarray(result)
        return None

    return answer


def _is_int(v: Any) -> bool:
    return bool(np.issubdtype(type(v), np.integer))


def _positive_zero(v: Any) -> bool:
    return bool(v == 0 and not np.signbit(v)) if not _is_int(v) else bool(v == 0)


def _negative_zero(v: Any) -> bool:
    return not _is_int(v) and bool(v == 0 and np.signbit(v))


def _by_minus_one(sight: Sight, node: Node) -> Answer | None:
    for x, c in [(0, 1), (1, 0)] if node.op_type == "Mul" else [(0, 1)]:
        value = sight.uniform(node.inputs[c])
        fits = sight.tensor(node.inputs[x]).shape == sight.tensor(node.outputs[0]).shape
        if value is not None and value == -1 and not np.issubdtype(type(value), np.unsignedinteger) and fits:
            return New("Neg", (node.inputs[x],))
    return None


def _power_of_two(sight: Sight, node: Node) -> Answer | None:
    """A division by 2^k is a product with 2^-k: both are rounded once, from the same real number."""
    value = sight.uniform(node.inputs[1])
    if value is None or value.dtype.type not in (np.float32, np.float64) or not np.isfinite(value) or value == 0:
        return None
    mantissa, exponent = np.frexp(value)
    info = np.finfo(value.dtype)
    if abs(mantissa) != 0.5 or not info.minexp < 1 - exponent < info.maxexp or exponent == 1 and mantissa > 0:
        return None
    shape = sight.tensor(node.inputs[1]).shape or ()
    return New("Mul", (node.inputs[0], np.full(shape, 1 / value, value.dtype)))


def _reciprocal_factor(sight: Sight, node: Node) -> Answer | None:
    value = sight.graph.constant(node.inputs[1])
    if value is None or value.dtype.kind != "f" or value.size > 1 << 16 or not value.all():
        return None
    return New("Mul", (node.inputs[0], (1 / value).astype(value.dtype)))


def _folded_constants(integers: bool) -> Callable[[Sight, Node], Answer | None]:
    """`(x OP a) OP b` is `x OP (a OP b)` for sums and products."""

    def answer(sight: Sight, node: Node) -> Answer | None:
        for k in (0, 1):
            outer, inner = sight.uniform(node.inputs[1 - k]), sight.by(node.inputs[k], node.op_type)
            if outer is None or inner is None or _is_int(outer) != integers:
                continue
            for j in (0, 1):
                value = sight.uniform(inner.inputs[j])
                shapes = (sight.tensor(inner.inputs[1 - j]).shape, sight.tensor(node.outputs[0]).shape)
                if value is not None and shapes[0] == shapes[1]:
                    with np.errstate(all="ignore"):
                        both = outer + value if node.op_type == "Add" else outer * value
                    return New(node.op_type, (inner.inputs[1 - j], np.asarray(both, outer.dtype)))
        return None

    return answer


# ---- equal operands, nested operators ----------------------------------------------------------


def _same(sight: Sight, node: Node) -> Answer | None:
    return node.inputs[0] if len(node.inputs) == 2 and node.inputs[0] == node.inputs[1] else None


def _same_gives(result: float, integers: bool) -> Callable[[Sight, Node], Answer | None]:
    def answer(sight: Sight, node: Node) -> Answer | None:
        equal = node.inputs[0] == node.inputs[1]
        dtype = sight.tensor(node.inputs[0]).dtype
        return np.asarray(result) if equal and dtype is not None and dtype.is_float != integers else None

    return answer


def _inverse(inner: str) -> Callable[[Sight, Node], Answer | None]:
    """`f(g(x))` is `x`."""

    def answer(sight: Sight, node: Node) -> Answer | None:
        found = sight.by(node.inputs[0], inner)
        return None if found is None else found.inputs[0]

    return answer


def _unchanged(*inner: str) -> Callable[[Sight, Node], Answer | None]:
    """`f(g(x))` is `g(x)`."""
    return lambda sight, node: node.inputs[0] if sight.by(node.inputs[0], *inner) else None


def _through(inner: str) -> Callable[[Sight, Node], Answer | None]:
    """`f(g(x))` is `f(x)`."""

    def answer(sight: Sight, node: Node) -> Answer | None:
        found = sight.by(node.inputs[0], inner)
        return None if found is None else New(node.op_type, (found.inputs[0],), node.attrs)

    return answer


def _both_negated(sight: Sight, node: Node) -> Answer | None:
    a, b = sight.by(node.inputs[0], "Neg"), sight.by(node.inputs[1], "Neg")
    floats = not sight.is_int(node.inputs[0]) or node.op_type == "Mul"
    return None if a is None or b is None or not floats else New(node.op_type, (a.inputs[0], b.inputs[0]))


def _add_negated(sight: Sight, node: Node) -> Answer | None:
    for k in (0, 1):
        found = sight.by(node.inputs[k], "Neg")
        if found is not None:
            return New("Sub", (node.inputs[1 - k], found.inputs[0]))
    return None


def _subtract_negated(sight: Sight, node: Node) -> Answer | None:
    found = sight.by(node.inputs[1], "Neg")
    return None if found is None else New("Add", (node.inputs[0], found.inputs[0]))


def _negated_difference(sight: Sight, node: Node) -> Answer | None:
    found = sight.by(node.inputs[0], "Sub")
    return None if found is None else New("Sub", (found.inputs[1], found.inputs[0]))


def _negated_comparison(sight: Sight, node: Node) -> Answer | None:
    found = sight.by(node.inputs[0], *INTEGER_INVERSES)
    if found is None or not sight.is_int(found.inputs[0]):
        return None  # with a NaN both comparisons are false
    return New(INTEGER_INVERSES[found.op_type], tuple(found.inputs))


# ---- selection ---------------------------------------------------------------------------------


def _where_constant(sight: Sight, node: Node) -> Answer | None:
    value = sight.uniform(node.inputs[0])
    return None if value is None else node.inputs[1 if value else 2]


def _where_same(sight: Sight, node: Node) -> Answer | None:
    return node.inputs[1] if node.inputs[1] == node.inputs[2] else None


def _where_not(sight: Sight, node: Node) -> Answer | None:
    found = sight.by(node.inputs[0], "Not")
    return None if found is None else New("Where", (found.inputs[0], node.inputs[2], node.inputs[1]))


# ---- casts and moves ---------------------------------------------------------------------------


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if narrow.kind == "bool":
        return True
    if wide.is_float and narrow.is_float:
        halves = {"f16", "bf16"}
        return wide.bits > narrow.bits and not {wide.name, narrow.name} <= halves
    if wide.is_int and narrow.is_int:
        signed = wide.kind == "int"
        return wide.bits > narrow.bits and (signed or narrow.kind == "uint")
    digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
    return wide.is_float and narrow.is_int and narrow.bits - (narrow.kind == "int") <= digits[wide.name]


def _cast_cast(sight: Sight, node: Node) -> Answer | None:
    found = sight.by(node.inputs[0], "Cast")
    if found is None:
        return None
    first, middle = sight.tensor(found.inputs[0]).dtype, sight.tensor(node.inputs[0]).dtype
    last = sight.tensor(node.outputs[0]).dtype
    if first is None or middle is None or not _holds(middle, first):
        return None
    if first == last:
        return found.inputs[0]
    return New("Cast", (found.inputs[0],), node.attrs)


def _permutation(sight: Sight, node: Node) -> list[int]:
    rank = len(sight.tensor(node.inputs[0]).shape or ())
    return list(node.attrs.get("perm") or range(rank)[::-1])


def _transpose(sight: Sight, node: Node) -> Answer | None:
    perm = _permutation(sight, node)
    if perm == list(range(len(perm))):
        return node.inputs[0]
    found = sight.by(node.inputs[0], "Transpose")
    if found is None:
        return None
    inner = _permutation(sight, found)
    return New("Transpose", (found.inputs[0],), {"perm": [inner[p] for p in perm]})


def _reshape_reshape(sight: Sight, node: Node) -> Answer | None:
    found = sight.by(node.inputs[0], "Reshape", "Flatten", "Squeeze", "Unsqueeze")
    shape = sight.shape(node.outputs[0])
    if found is None or shape is None or 0 in shape:
        return None
    return New("Reshape", (found.inputs[0], np.asarray(shape, np.int64)))


def _same_shape(sight: Sight, node: Node) -> Answer | None:
    """The operator copies: its result has the operand's shape, so that nothing was added or repeated."""
    return node.inputs[0] if sight.shape(node.outputs[0]) is not None else None


def _slice(sight: Sight, node: Node) -> Answer | None:
    if len(node.inputs) > 4 and node.inputs[4]:
        steps = sight.graph.constant(node.inputs[4])
        if steps is None or any(s < 0 for s in steps.ravel().tolist()):
            return None
    return _same_shape(sight, node)


def _pad(sight: Sight, node: Node) -> Answer | None:
    pads = sight.graph.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return node.inputs[0] if pads is not None and not pads.any() else None


def _window_of_one(sight: Sight, node: Node) -> Answer | None:
    attrs = node.attrs
    plain = all(v == 1 for name in ("kernel_shape", "strides", "dilations") for v in attrs.get(name, ()))
    return node.inputs[0] if plain and not any(attrs.get("pads", ())) else None


def _joined_split(sight: Sight, node: Node) -> Answer | None:
    split = sight.made.get(node.inputs[0])
    if split is None or split.domain or split.op_type != "Split" or split.outputs != node.inputs:
        return None
    rank = len(sight.tensor(split.inputs[0]).shape or ())
    axes = [int(n.attrs.get("axis", 0)) % max(1, rank) for n in (split, node)]
    return split.inputs[0] if axes[0] == axes[1] else None


def _no_bounds(sight: Sight, node: Node) -> Answer | None:
    return node.inputs[0] if not any(node.inputs[1:]) and not {"min", "max"} & set(node.attrs) else None


# ---- fast-math ---------------------------------------------------------------------------------


def _power(exponent: float, make: Callable[[str], New]) -> Callable[[Sight, Node], Answer | None]:
    def answer(sight: Sight, node: Node) -> Answer | None:
        value = sight.uniform(node.inputs[1])
        same = sight.tensor(node.inputs[0]).shape == sight.tensor(node.outputs[0]).shape
        float_base = not sight.is_int(node.inputs[0])
        return make(node.inputs[0]) if value is not None and value == exponent and same and float_base else None

    return answer


def _root_of_square(sight: Sight, node: Node) -> Answer | None:
    found = sight.by(node.inputs[0], "Mul")
    return New("Abs", (found.inputs[0],)) if found is not None and found.inputs[0] == found.inputs[1] else None


RULES: tuple[Rule, ...] = (
    Rule("x*1", ("Mul",), _neutral(lambda v: v == 1)),
    Rule("x/1", ("Div",), _neutral(lambda v: v == 1)),
    Rule("x-0", ("Sub",), _neutral(_positive_zero)),
    Rule("x+(-0)", ("Add",), _neutral(lambda v: _negative_zero(v) or _is_int(v) and v == 0)),
    Rule("x**1", ("Pow",), _neutral(lambda v: v == 1)),
    Rule("x and true", ("And",), _neutral(bool)),
    Rule("x or false", ("Or",), _neutral(lambda v: not v)),
    Rule("x xor false", ("Xor",), _neutral(lambda v: not v)),
    Rule("x & ~0", ("BitwiseAnd",), _neutral(lambda v: ~v == 0)),
    Rule("x | 0", ("BitwiseOr", "BitwiseXor"), _neutral(lambda v: v == 0)),
    Rule("x shifted by 0", ("BitShift",), _neutral(lambda v: v == 0)),
    Rule("x and false", ("And",), _absorbing(lambda v: not v, 0)),
    Rule("x or true", ("Or",), _absorbing(bool, 1)),
    Rule("x*0, integers", ("Mul",), _absorbing(lambda v: _is_int(v) and v == 0, 0)),
    Rule("x & 0", ("BitwiseAnd",), _absorbing(lambda v: v == 0, 0)),
    Rule("x | ~0", ("BitwiseOr",), _absorbing(lambda v: ~v == 0, -1)),
    Rule("x*-1", ("Mul", "Div"), _by_minus_one),
    Rule("x/2^k", ("Div",), _power_of_two),
    Rule("(x+a)+b, integers", ("Add", "Mul"), _folded_constants(True)),
    Rule("x op x", ("Max", "Min", "And", "Or", "BitwiseAnd", "BitwiseOr"), _same),
    Rule("x-x, integers", ("Sub", "BitwiseXor"), _same_gives(0, True)),
    Rule("x xor x", ("Xor",), _same_gives(0, True)),
    Rule("x==x, integers", ("Equal", "LessOrEqual", "GreaterOrEqual"), _same_gives(1, True)),
    Rule("x<x", ("Less", "Greater"), lambda s, n: np.asarray(0) if n.inputs[0] == n.inputs[1] else None),
    Rule("-(-x)", ("Neg",), _inverse("Neg")),
    Rule("not not x", ("Not",), _inverse("Not")),
    Rule("~~x", ("BitwiseNot",), _inverse("BitwiseNot")),
    Rule("|f(x)|, f not negative", ("Abs",), _unchanged("Abs", "Exp", "Sigmoid")),
    Rule("|-x|", ("Abs",), _through("Neg")),
    Rule("relu(f(x)), f not negative", ("Relu",), _unchanged("Relu", "Exp", "Sigmoid")),
    Rule("rounding twice", ROUNDINGS, _unchanged(*ROUNDINGS)),
    Rule("sign twice", ("Sign",), _unchanged("Sign")),
    Rule("(-a)*(-b)", ("Mul", "Div"), _both_negated),
    Rule("a+(-b)", ("Add",), _add_negated),
    Rule("a-(-b)", ("Sub",), _subtract_negated),
    Rule("not a<b, integers", ("Not",), _negated_comparison),
    Rule("where(constant)", ("Where",), _where_constant),
    Rule("where(c, a, a)", ("Where",), _where_same),
    Rule("where(not c)", ("Where",), _where_not),
    Rule("cast of a wider cast", ("Cast",), _cast_cast),
    Rule("transpose of transpose", ("Transpose",), _transpose),
    Rule("reshape of reshape", ("Reshape",), _reshape_reshape),
    Rule("nothing repeated", ("Expand", "Tile", "Reshape"), _same_shape),
    Rule("slice of all", ("Slice",), _slice),
    Rule("nothing padded", ("Pad",), _pad),
    Rule("window of one", ("MaxPool",), _window_of_one),
    Rule("concat of split", ("Concat",), _joined_split),
    Rule("split in one", ("Split",), _same_shape),
    Rule("clip without bounds", ("Clip",), _no_bounds),
    Rule("x+0", ("Add",), _neutral(lambda v: v == 0), False),
    Rule("x-(-0)", ("Sub",), _neutral(lambda v: v == 0), False),
    Rule("x*0", ("Mul",), _absorbing(lambda v: v == 0, 0), False),
    Rule("x-x", ("Sub",), _same_gives(0, False), False),
    Rule("x/x", ("Div",), _same_gives(1, False), False),
    Rule("-(a-b)", ("Neg",), _negated_difference, False),
    Rule("x/c", ("Div",), _reciprocal_factor, False),
    Rule("(x+a)+b", ("Add", "Mul"), _folded_constants(False), False),
    Rule("x**2", ("Pow",), _power(2, lambda x: New("Mul", (x, x))), False),
    Rule("x**0.5", ("Pow",), _power(0.5, lambda x: New("Sqrt", (x,))), False),
    Rule("x**-1", ("Pow",), _power(-1, lambda x: New("Reciprocal", (x,))), False),
    Rule("sqrt(x*x)", ("Sqrt",), _root_of_square, False),
    Rule("log(exp(x))", ("Log",), _inverse("Exp"), False),
    Rule("exp(log(x))", ("Exp",), _inverse("Log"), False),
    Rule("1/(1/x)", ("Reciprocal",), _inverse("Reciprocal"), False),
)
