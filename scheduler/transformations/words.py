"""`in_words`: a sum of products of narrow integers multiplies words of two or four of them.

    C[i, j] += i32(A[i, k]) * i32(B[k, j])
    ->  a[i, w] = i32(A[i, 4w]) | i32(A[i, 4w + 1]) << 8 | ..;  b[w, j] = ..;  C[i, j] += dot_bytes(a[i, w], b[w, j])

Machines multiply four pairs of bytes, or two of 16-bit integers, and add them up in one instruction (`vpdpbusd`,
`vpmaddwd`). All sums are exact in 32 bits that wrap, in any order. The words are made before the nest, once for each
iteration of the loops that an operand depends on; where terms are missing the last words have zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import islpy as isl

from polyc.poly.certificates import Range, may_leave
from polyc.poly.certificates import value_range as certain_range
from polyc.poly.dtypes import bool_, i32, i64
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Call, Const, Expr, Load, Select, Var, const_int, loads, substitute, variables
from polyc.poly.records import dataclass
from polyc.poly.rewriting.changed_loops import called, changed, points_of
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Sequence, loop_dim, loop_names, loops_around
from polyc.scheduler.transformations.added import minus, taken, unique, value_range

LIMITS = {2: ((-(2**15), 2**15 - 1),) * 2, 4: ((0, 255), (-128, 127))}
"""By numbers in a word what those of its two operands may be: 16-bit integers, or bytes, those of the first without
sign."""

NAMES = {2: "dot_pairs", 4: "dot_bytes"}


@dataclass(frozen=True)
class Product:
    """`a * b`, summed over iterator `k` among others."""

    a: Expr
    b: Expr
    k: str


def product_of(scop: Scop, s: Statement, count: int) -> Product | str:
    """The product that a statement adds up, with the iterator whose values lie side by side in words, or why there is
    none."""
    if s.reduction != "+" or scop.arrays[s.array].dtype != i32 or s.predicate is not None or s.dynamic:
        return "it is no sum of 32-bit integers that always runs"
    value = s.value
    parts = (value.a, value.b) if isinstance(value, Binary) and value.op == "+" else ()
    product = next((x for x in parts if x != s.target), None)
    if len(parts) != 2 or s.target not in parts or not (isinstance(product, Binary) and product.op == "*"):
        return "it adds up something else than products"
    summed = set(s.iters) - set().union(*map(variables, s.index))
    both = [i for i in s.iters if i in summed & variables(product.a) & variables(product.b)]
    if not both:
        return "no loop of the sum moves both factors"
    if may_leave(scop, s.name):
        return "an access of it may leave its array"
    for a, b in ((product.a, product.b), (product.b, product.a)):
        ranges = [_range(scop, x, s.domain) for x in (a, b)]
        if all(
            lo is not None and hi is not None and low <= lo and hi <= high
            for (lo, hi), (low, high) in zip(ranges, LIMITS[count], strict=True)
        ):
            return Product(a, b, both[-1])
    return f"its factors may be larger than {16 if count == 2 else 8} bits"


def _range(scop: Scop, e: Expr, where: isl.Set) -> Range:
    """Constant bounds of a factor: those of its type, of what it is made of, or of what a local array is given."""
    if not isinstance(e, Load) or scop.arrays[e.array].kind != "local":
        return certain_range(e, where)
    writers = [x for x in scop.statements.values() if x.array == e.array]
    if any(x.reduction is not None or any(y.array == e.array for y in loads(x.value)) for x in writers):
        return certain_range(e, where)
    least, most = zip(*(certain_range(x.value, x.domain) for x in writers), strict=True)
    return (None, None) if None in least or None in most else (min(least), max(most))


def in_words(scop: Scop, statement: str, count: int) -> Scop:
    """`scop`, whose tree is the program's order, with words of `count` numbers in the products of a statement.

    Raises:
        ScheduleError: it has no such product, or what it reads changes in its nest.
    """
    if statement not in scop.statements:
        raise ScheduleError(f"no statement '{statement}': the statements are {', '.join(scop.statements)}")
    if count not in NAMES:
        raise ScheduleError(f"a word holds 2 or 4 numbers, not {count}")
    s = scop.statements[statement]
    found = product_of(scop, s, count)
    if isinstance(found, str):
        raise ScheduleError(f"{statement} multiplies no words: {found}")
    terms = _terms(scop, s, found.k)
    loop = _loop(scop, s, found.k)
    _check_sources(scop, s, found)
    slim, back = _multiplied(s, found.k, count)
    arrays, packing, operands = dict(scop.arrays), dict[str, Statement](), []
    for e in (found.a, found.b):
        made = _packed(scop, s, e, found.k, terms, count, {*arrays, *packing})
        arrays[made.array.name] = made.array
        packing[made.statement.name] = made.statement
        operands.append(Load(made.array.name, made.index, i32))
    slim = replace(slim, value=Binary("+", s.target, Call(NAMES[count], tuple(operands), i32), i32))
    tree = _with_loop_of_words(changed(scop, {statement: (slim, back)}).tree, slim, loop)
    statements: dict[str, Statement] = {}
    for n, x in scop.statements.items():
        statements |= {**packing, n: slim} if n == statement else {n: x}
    new = replace(scop, arrays=arrays, statements=statements)
    return replace(new, tree=_with_nests(new, tree, statement, list(packing.values())))


def _terms(scop: Scop, s: Statement, k: str) -> Expr:
    """How many values iterator k has, from 0 on, whatever the others are."""
    at = s.iters.index(k)
    domain = s.domain.intersect_params(scop.context)
    every = isl.Map.from_pw_aff(loop_dim(domain, at))
    values = every.intersect_domain(domain).range()
    low, extent = value_range(scop, values, f"loop '{k}'")
    name = domain.get_tuple_name()
    rest = domain.project_out(isl.dim_type.set, at, 1).insert_dims(isl.dim_type.set, at, 1).set_tuple_name(name)
    if low != const_int(0) or not rest.intersect(every.intersect_range(values).domain()).is_equal(domain):
        raise ScheduleError(f"{s.name} multiplies no words: the bounds of '{k}' depend on other loops, or on an offset")
    return extent


def _loop(scop: Scop, s: Statement, k: str) -> str:
    """The loop that has iterator k of the statement as its values, and no other statement in it."""
    value = loop_dim(s.domain, s.iters.index(k))
    for m in loops_around(scop.tree, s.name):
        if m.schedule[s.name].plain_is_equal(value) and list(m.schedule) == [s.name]:
            return m.name
    raise ScheduleError(f"{s.name} multiplies no words: it has no loop over '{k}' of its own")


def _check_sources(scop: Scop, s: Statement, product: Product) -> None:
    """Nothing in the statement's nest may change what it multiplies."""
    sources = {x.array for e in (product.a, product.b) for x in loads(e)}
    nests = scop.tree.filters if isinstance(scop.tree, Sequence) else ()
    own = [set(nest.domain) for nest in nests if s.name in nest.domain] or [set(scop.statements)]
    if len(own) > 1:
        raise ScheduleError(f"{s.name} runs in several nests")
    for name in own[0]:
        if scop.statements[name].array in sources:
            raise ScheduleError(f"{s.name} multiplies no words: {name} in its nest changes what it reads")


def _multiplied(s: Statement, k: str, count: int) -> tuple[Statement, isl.PwMultiAff]:
    """The statement over words, its value as it was, and `{ new instance -> its first old instance }`."""
    at = s.iters.index(k)
    dims = [loop_dim(s.domain, x) for x in range(len(s.iters))]
    dims[at] = dims[at].scale_val(isl.Val(count))
    back = points_of(dims, s.domain)
    return replace(s, domain=called(s.domain.preimage_pw_multi_aff(back), s.iters)), back


@dataclass(frozen=True)
class Packed:
    """A factor in words: the array, the statement that fills it, and the subscripts of a word in the product."""

    array: Array
    statement: Statement
    index: tuple[Expr, ...]


def _packed(scop: Scop, s: Statement, e: Expr, k: str, terms: Expr, count: int, names: set[str]) -> Packed:
    """A factor in words, for each iteration of the loops that it depends on."""
    slim, _ = _multiplied(s, k, count)
    kept = sorted((i for i in s.iters if i in variables(e)), key=_places(e).__getitem__)
    dims = ", ".join(f"d{x}" for x in range(len(s.iters)))
    of = isl.Map(f"{{ [{dims}] -> [{', '.join(f'd{s.iters.index(i)}' for i in kept)}] }}")
    domain = slim.domain.intersect_params(scop.context).reset_tuple_id().apply(of).gist_params(scop.context)
    used = taken(scop, scop.tree) | {i for x in scop.statements.values() for i in x.iters} | names
    source = next((x.array for x in loads(e)), s.array)
    array, name, *iters = unique([f"{source}_words", f"{s.name}_{source}_words", *(f"{i}_w" for i in kept)], used)
    domain = called(domain.set_tuple_name(name), tuple(iters))
    lows, shape = [], []
    for x, i in enumerate(kept):
        values = isl.Map.from_pw_aff(loop_dim(domain, x)).intersect_domain(domain).range()
        low, extent = value_range(scop, values, f"loop '{i}'")
        lows.append(low)
        shape.append(extent)
    point = {i: Var(n) for i, n in zip(kept, iters, strict=True)}
    bits, signed = 32 // count, (_range(scop, e, s.domain)[0] or 0) < 0
    codes = []
    for t in range(count):
        at = fold(Binary("+", Binary("*", const_int(count), point[k], i64), const_int(t), i64))
        code = substitute(e, {**point, k: at})
        if t < count - 1 and signed:
            code = Binary("&", code, Const(2**bits - 1, i32), i32)
        if t:
            code = Binary("<<", code, Const(bits * t, i32), i32)
            whole = isinstance(terms, Const) and int(terms.value) % count == 0
            code = code if whole else Select(Binary("<", at, terms, bool_), code, Const(0, i32), i32)
        codes.append(code)
    value = reduce(lambda a, b: Binary("|", a, b, i32), codes)

    def index(of: Mapping[str, Expr]) -> tuple[Expr, ...]:
        return tuple(minus(of[i], low) for i, low in zip(kept, lows, strict=True))

    filled = Statement(name, tuple(iters), domain, array, index(point), value, None, None, (), s.span)
    made = Array(array, i32, tuple(shape), "local", span=scop.arrays[source].span)
    return Packed(made, filled, index({i: Var(i) for i in kept}))


def _places(e: Expr) -> dict[str, int]:
    """Variables in the order in which the first load that has them has its subscripts: words lie as what they hold."""
    found: dict[str, int] = {}
    for load in loads(e):
        for subscript in load.index:
            for name in sorted(variables(subscript)):
                found.setdefault(name, len(found))
    for name in sorted(variables(e)):
        found.setdefault(name, len(found))
    return found


def _with_loop_of_words(node: Node, s: Statement, loop: str) -> Node:
    """The tree in which a loop counts words."""
    kids = tuple(_with_loop_of_words(c, s, loop) for c in node.children())
    if isinstance(node, Band) and any(m.name == loop for m in node.members):
        return Band(tuple(_counting(m, s) if m.name == loop else m for m in node.members), kids[0], node.permutable)
    return node.with_children(kids) if kids else node


def _counting(m: Member, s: Statement) -> Member:
    """The loop with the words' iterator as its value."""
    old = m.schedule[s.name]
    at = next(x for x in range(len(s.iters)) if old.involves_dims(isl.dim_type.in_, x, 1))
    return replace(m, schedule={s.name: loop_dim(s.domain, at)})


def _with_nests(scop: Scop, tree: Node, statement: str, first: list[Statement]) -> Node:
    """The tree with a nest for each of the statements `first` before the nest of another one."""
    new = {s.name for s in first}
    others = {n: s.domain for n, s in scop.statements.items() if n not in new}
    nests = list(tree.filters) if isinstance(tree, Sequence) else [Filter(others, tree)]
    place = next(k for k, nest in enumerate(nests) if statement in nest.domain)
    used = taken(scop, tree) | set(loop_names(tree))
    for s in first:
        names = unique(list(s.iters), used)
        used |= set(names)
        members = tuple(Member(n, {s.name: loop_dim(s.domain, k)}) for k, n in enumerate(names))
        nests.insert(place, Filter({s.name: s.domain}, Band(members, Leaf())))
        place += 1
    return Sequence(tuple(nests))
