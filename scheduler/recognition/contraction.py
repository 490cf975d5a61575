"""Finding tensor contractions in a Scop, from access expressions alone.

A contraction is a reduction `C[out] += A[...] * B[...]` (Gareev, Grosser, Kruse,
"High-Performance Generalized Tensor Operations", TACO 2018, widened to convolutions:
an operand's subscripts may be affine in several iterators). Its iterators are sorted by
the operands that they move:

    batch   in C, A and B          rows/cols   in C and exactly one of A, B
    inner   in A and B, not in C (the reduction)
    single  in C, with one value only (one image, one head): they shape nothing
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Unary, Var, loads, variables
from polyc.poly.forms.ranges import largest
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.text import print_expr

FAR = 1 << 20  # elements of a dimension whose size is not known
PAIR_PRODUCTS = ("dot_pairs", "dot_bf16", "dot_bytes")  # two or four products and their sum


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor: its load and the output iterators that move it alone."""

    load: Load
    own: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contraction:
    """`update` is the statement; `outputs` the iterators of C in subscript order."""

    update: Statement
    outputs: tuple[str, ...]
    single: tuple[str, ...]
    batch: tuple[str, ...]
    inner: tuple[str, ...]
    operands: tuple[Operand, Operand]

    @property
    def sweep(self) -> bool:
        """Whether there is one real operand (`recognise_sweep`)."""
        return not self.operands[1].load.index and not self.operands[1].own

    @property
    def intrinsic(self) -> str:
        """What multiplies words of several numbers, one of `PAIR_PRODUCTS`; "" for products of two numbers."""
        value = self.update.value
        product = value.b if isinstance(value, Binary) else value
        return product.fn if isinstance(product, Call) and product.fn in PAIR_PRODUCTS else ""


@dataclass(frozen=True, slots=True)
class NoContraction:
    """Why a statement is no contraction: the rule that it breaks, with `{}` for what breaks it."""

    rule: str
    at: tuple[Expr | str, ...] = ()

    def __str__(self) -> str:
        return self.rule.format(*(x if isinstance(x, str) else print_expr(x) for x in self.at))


def extent(stmt: Statement, name: str) -> int | None:
    """Number of values of an iterator that starts at 0 (max + 1), None when not constant."""
    top = largest(stmt.domain, stmt.iters.index(name))
    return None if top is None else top + 1


def bytes_apart(scop: Scop, load: Load, name: str) -> int:
    """How far apart in memory neighbouring values of a loop are; far where sizes are not known."""
    below, apart = load.dtype.bytes, 0
    for e, size in zip(reversed(load.index), reversed(scop.arrays[load.array].shape), strict=True):
        apart += abs(slope(e, name, 1) or 0) * below
        below *= int(size.value) if isinstance(size, Const) else FAR
    return apart


def moves(stmt: Statement, name: str) -> bool:
    """Whether the bounds of a loop depend on other loops."""
    k = stmt.iters.index(name)
    others = [d for d in range(len(stmt.iters)) if d != k]
    constraints = [c for part in stmt.domain.get_basic_sets() for c in part.get_constraints()]
    bounds = [c for c in constraints if c.involves_dims(isl.dim_type.set, k, 1)]
    return any(c.involves_dims(isl.dim_type.set, d, 1) for c in bounds for d in others)


def recognise(stmt: Statement) -> Contraction | None:
    """The contraction that `stmt` performs, or None when it is something else."""
    found = examine(stmt)
    return found if isinstance(found, Contraction) else None


def examine(stmt: Statement) -> Contraction | NoContraction:
    """The contraction that `stmt` performs, or why it performs none."""
    why = _no_reduction(stmt)
    if why is not None:
        return why
    if stmt.reduction != "+":
        return NoContraction("it reduces with {}, not a sum of products", (stmt.reduction or "",))
    product = _added_product(stmt)
    return product if isinstance(product, NoContraction) else _sorted(stmt, product)


def recognise_sweep(stmt: Statement) -> Contraction | None:
    """A reduction of one operand (pooling, a sum over rows) in the same form: its second operand moves nothing.

    Any associative reduction will do; `recognise` is for sums of products.
    """
    found = examine_sweep(stmt)
    return found if isinstance(found, Contraction) else None


def examine_sweep(stmt: Statement) -> Contraction | NoContraction:
    """What `recognise_sweep` finds, or why it finds nothing."""
    why = _no_reduction(stmt)
    if why is not None:
        return why
    value = stmt.value
    operands = value.args if isinstance(value, Call) else (value.a, value.b) if isinstance(value, Binary) else ()
    if len(operands) != 2:
        return NoContraction("{} is no operation of two operands", (value,))
    load = stripped(operands[1])
    if not isinstance(load, Load):
        return NoContraction("it reduces {}, which is computed: neither an element nor a product of two", (load,))
    if any(x.array == stmt.array for x in loads(load)):
        return NoContraction("{} reads {}, the array of the result", (load, stmt.array))
    return _sorted(stmt, (load, Load(load.array, (), load.dtype)))


def why_no_contraction(stmt: Statement) -> NoContraction | None:
    """Why `stmt` is neither a sum of products nor a reduction of one operand; None where it is one of them."""
    product, sweep = examine(stmt), examine_sweep(stmt)
    if isinstance(product, Contraction) or isinstance(sweep, Contraction):
        return None
    subtracts = isinstance(stmt.value, Binary) and stmt.value.op == "-"
    return product if subtracts or _factors(stmt.value) is not None else sweep


def _no_reduction(stmt: Statement) -> NoContraction | None:
    if stmt.reduction is None:
        return NoContraction("it is not recognised as a reduction")
    if stmt.predicate is not None:
        return NoContraction("it depends on the condition {}", (stmt.predicate,))
    if stmt.dynamic:
        return NoContraction("the bounds of loop {} depend on data", (stmt.dynamic[0].iter,))
    return None


def _sorted(stmt: Statement, product: tuple[Load, Load]) -> Contraction | NoContraction:
    """The iterators by what they move, if the result is one element for each set of outputs."""
    for e in stmt.index:
        if not isinstance(e, Var) or e.name not in stmt.iters:
            return NoContraction("the subscript {} of the result is no single loop", (e,))
    outputs = tuple(e.name for e in stmt.index if isinstance(e, Var))
    if len(set(outputs)) != len(outputs):
        return NoContraction("two subscripts of {} are one loop", (stmt.target,))
    moved = [set().union(*(variables(e) for e in op.index)) & set(stmt.iters) for op in product]
    single = tuple(i for i in outputs if extent(stmt, i) == 1)
    many = [i for i in outputs if i not in single]
    batch = tuple(i for i in many if i in moved[0] and i in moved[1])
    own = [tuple(i for i in many if i in moved[k] and i not in moved[1 - k]) for k in (0, 1)]
    inner = tuple(i for i in stmt.iters if i not in outputs)
    if not inner:
        return NoContraction("every loop moves the result {}: nothing is added up", (stmt.target,))
    still = [i for i in outputs if i not in moved[0] | moved[1]]
    if still:
        return NoContraction("loop {} moves the result {}, but no operand", (still[0], stmt.target))
    return Contraction(stmt, outputs, single, batch, inner, (Operand(product[0], own[0]), Operand(product[1], own[1])))


def _factors(value: Expr) -> tuple[Expr, Expr] | None:
    """The factors of `target + a * b`, or of products of pairs."""
    if isinstance(value, Call) and value.fn == "fma":
        return value.args[0], value.args[1]
    if not isinstance(value, Binary) or value.op != "+":
        return None
    if isinstance(value.b, Binary) and value.b.op == "*":
        return value.b.a, value.b.b
    if isinstance(value.b, Call) and value.b.fn in PAIR_PRODUCTS:
        return value.b.args[0], value.b.args[1]
    return None


def _added_product(stmt: Statement) -> tuple[Load, Load] | NoContraction:
    """The two loads of `target + a * b`, or of products of pairs (both through widening casts)."""
    factors = _factors(stmt.value)
    if factors is None:
        subtracts = isinstance(stmt.value, Binary) and stmt.value.op == "-"
        rule = "it subtracts: only sums of products are contractions" if subtracts else "it adds no product"
        return NoContraction(rule)
    pair: list[Load] = []
    for factor in map(stripped, factors):
        if not isinstance(factor, Load):
            return NoContraction("the factor {} is no element of an array", (factor,))
        if any(load.array == stmt.array for load in loads(factor)):
            return NoContraction("the factor {} reads {}, the array of the result", (factor, stmt.array))
        pair.append(factor)
    if pair[0].array == pair[1].array:
        return NoContraction("both factors are elements of {}", (pair[0].array,))
    return pair[0], pair[1]


def stripped(expr: Expr) -> Expr:
    """The expression without the widening conversions around it."""
    while isinstance(expr, Cast) or (isinstance(expr, Call) and expr.fn == "widen_pairs"):
        expr = expr.a if isinstance(expr, Cast) else expr.args[0]
    return expr


def slope(expr: Expr, name: str, tile: int) -> int | None:
    """d expr / d name inside an aligned tile of `tile` values of `name`; None if not constant.

    Inside such a tile `name // tile` is constant and `name % tile` has slope 1, which is how
    a packed layout looks in a subscript.
    """
    if isinstance(expr, Const):
        return 0
    if isinstance(expr, Var):
        return 1 if expr.name == name else 0
    if name not in variables(expr):
        return 0
    if isinstance(expr, Unary) and expr.op == "neg":
        inside = slope(expr.a, name, tile)
        return None if inside is None else -inside
    if not isinstance(expr, Binary):
        return None
    if expr.op in ("//", "%") and expr.a == Var(name) and isinstance(expr.b, Const) and expr.b.value % tile == 0:
        return 0 if expr.op == "//" else 1
    a, b = slope(expr.a, name, tile), slope(expr.b, name, tile)
    if a is None or b is None:
        return None
    if expr.op == "+":
        return a + b
    if expr.op == "-":
        return a - b
    if expr.op == "*" and isinstance(expr.b, Const):
        return a * int(expr.b.value)
    if expr.op == "*" and isinstance(expr.a, Const):
        return b * int(expr.a.value)
    return None


def stride(load: Load, name: str, tile: int) -> int | None:
    """How many elements apart neighbouring values of `name` in a tile are, where only the last
    subscript moves; else None."""
    if not load.index:
        return None
    slopes = [slope(e, name, tile) for e in load.index]
    return slopes[-1] if all(s == 0 for s in slopes[:-1]) else None
