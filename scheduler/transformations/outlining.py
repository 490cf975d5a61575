"""Outlining, the inverse of inlining: factors of a sum become elements of a local array; sums become several updates.

The factors of a summand that the same loops move are multiplied once for each of their iterations, into a local array,
before the loops that use them:

    k: C[i, j] += alpha * A[i, k] * B[k, j]   ->   i: k: t[i, k] = alpha * A[i, k]
                                                   k: C[i, j] += t[i, k] * B[k, j]

Factors that depend on sums of loops only, fewer than these are, become elements by those sums: of
`W[a] * (X[i + a - 1] if 0 < i + a else 0)` the padded row, not its windows.

That is the same value as long as nothing that the factors read is overwritten between the new statement and the use;
where something is, the refusal names the instance that did it. As factors change places, floats must be those of a
reduction that may be reassociated.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Load, Var, loads, substitutable, variables
from polyc.poly.forms.affine import to_pw_aff
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.ordering.order import in_order
from polyc.poly.products import Product, products
from polyc.poly.records import dataclass, replace
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim, promotions_below
from polyc.poly.tree import Sequence as SequenceNode
from polyc.poly.witnesses.violation import Violation
from polyc.scheduler.transformations.added import (
    beside,
    following,
    minus,
    named,
    new_name,
    program,
    put_with,
    taken,
    unique,
    value_range,
    with_statements,
)
from polyc.scheduler.transformations.tree_edit import (
    Path,
    band_of,
    flatten,
    fresh,
    locate,
    outer_members,
    reaching,
    sequence,
)


@dataclass(frozen=True)
class Outlined:
    """The Scop with the new statement and its tree; with a `violation` its values differ."""

    scop: Scop
    tree: Node
    violation: Violation | None = None


def outline(
    scop: Scop, tree: Node, statement: str, loops: Sequence[str], array: str | None, at: str | None
) -> Outlined:
    """`scop` with the factors of the statement's summand that no other loops than these move in a local array, which
    is computed before the nest of the statement, or in each iteration of loop `at` before the part with the statement.

    Raises:
        ScheduleError: no such statement or factor; one that depends on data whether or how often it runs.
    """
    update = _update(scop, statement)
    (product, *others) = products(update)
    if others:
        raise ScheduleError(f"cannot outline: {statement} adds a sum (split_sum first)")
    unknown = [name for name in loops if name not in update.iters]
    if unknown or len(set(loops)) < len(loops):
        raise ScheduleError(f"cannot outline: loops are some of {', '.join(update.iters)}, not {', '.join(loops)}")
    chosen = [f for f in product.factors if variables(f) & set(update.iters) <= set(loops)]
    moving = set().union(*(variables(f) for f in chosen)) & set(loops)
    if moving != set(loops) or not chosen:
        raise ScheduleError(
            f"cannot outline: no factors of {statement} are moved by {', '.join(loops) or 'no loop'} alone"
        )
    if any(not substitutable(f) for f in product.factors):
        raise ScheduleError(f"cannot outline: {statement} computes its value by a long run of assignments")
    read = {load.array for f in chosen for load in loads(f)}
    if any(n.array in read for n in promotions_below(tree)):
        raise ScheduleError(f"{' or '.join(sorted(read))} is promoted already: outline first")
    return _Outline(scop, tree, update, product, chosen, list(loops), array, at).made()


def _update(scop: Scop, name: str) -> Statement:
    """The statement, if factors of what it adds may change places."""
    if name not in scop.statements:
        raise ScheduleError(f"no statement '{name}': the statements are {', '.join(scop.statements)}")
    update = scop.statements[name]
    if not products(update):
        raise ScheduleError(f"{name} adds up nothing: only sums have factors")
    if update.predicate is not None or update.dynamic:
        raise ScheduleError(f"whether or how often {name} runs depends on data")
    if update.value.dtype.is_float and not scop.reassociate:
        raise ScheduleError(f"'{scop.name}' forbids reassociation: factors keep their places")
    return update


@dataclass(frozen=True)
class _Outline:
    scop: Scop
    tree: Node
    update: Statement
    product: Product
    chosen: Sequence[Expr]
    loops: list[str]
    wanted: str | None
    at: str | None

    def made(self) -> Outlined:
        """The new program, and what would be overwritten too early."""
        path, k, node = self.place()
        around = outer_members(path) if self.at is None else self.around(path)
        first, changed, array = self.statements(around)
        added = Filter({first.name: first.domain}, self.own_loops(first, len(around)))
        tree = self.put(path, k, node, added, first, len(around))
        statements = {**self.scop.statements, first.name: first, changed.name: changed}
        scop = replace(
            self.scop, arrays={**self.scop.arrays, array.name: array}, statements=statements, tree=program(tree)
        )
        return Outlined(scop, tree, self.violation(scop, first, changed, around))

    # ---- where ------------------------------------------------------------------------------

    def place(self) -> tuple[Path, int | None, Node]:
        """Where the new statement goes: path to a node, and the part of that sequence before which it stands (None:
        before the node itself)."""
        if self.at is None:
            path: Path = ()
            node = self.tree
        else:
            spot = locate(self.tree, self.at)
            if self.update.name not in spot.member.schedule:
                raise ScheduleError(f"loop '{self.at}' is not around {self.update.name}")
            path, tail = spot.path, spot.band.members[spot.index + 1 :]
            node = band_of(tail, spot.band.child, spot.band.permutable)
        if isinstance(node, SequenceNode):
            return path, next(k for k, f in enumerate(node.filters) if self.update.name in f.domain), node
        return path, None, node

    def around(self, path: Path) -> list[Member]:
        assert self.at is not None
        spot = locate(self.tree, self.at)
        return [*outer_members(path), *spot.band.members[: spot.index + 1]]

    def put(self, path: Path, k: int | None, node: Node, added: Filter, first: Statement, depth: int) -> Node:
        """The tree with the new loops."""
        if isinstance(node, SequenceNode) and k is not None:
            body = sequence([*node.filters[:k], added, *node.filters[k:]])
        else:
            body = sequence([added, Filter(dict(reaching(self.scop, path)), node)])
        if self.at is not None:
            head = (spot := locate(self.tree, self.at)).band.members[: spot.index + 1]
            depth -= len(head)
            body = band_of([with_statements(m, depth + j, (first,)) for j, m in enumerate(head)], body)
        return flatten(put_with(path, body, (first,), depth))

    def own_loops(self, first: Statement, outer: int) -> Node:
        """The loops of the new statement alone."""
        scratch, members = self.tree, list[Member]()
        for k in range(outer, len(first.iters)):
            members.append(Member(fresh(scratch, first.iters[k]), {first.name: loop_dim(first.domain, k)}))
            scratch = Band((members[-1],), scratch)
        return band_of(members, Leaf())

    # ---- what -------------------------------------------------------------------------------

    def statements(self, around: Sequence[Member]) -> tuple[Statement, Statement, Array]:
        """The new statement, the changed one, and the array between them."""
        from polyc.scheduler.transformations import elements

        scop, update = self.scop, self.update
        domain = update.domain.intersect_params(scop.context)
        points = isl.Map.from_domain(domain)  # of each instance: the loops around, the subscripts of the array
        for m in around:
            points = points.flat_range_product(isl.Map.from_pw_aff(m.schedule[update.name]))
        subscripts = self.subscripts(around)
        values = [to_pw_aff(e, domain.get_space()) for e in subscripts.values()]
        for value in values:
            points = points.flat_range_product(isl.Map.from_pw_aff(value))
        instances = points.range()
        used, count = taken(scop, self.tree), len(around)
        labels = unique([*(m.name for m in around), *subscripts], used)
        own: dict[str, Expr] = {}
        for d, name in reversed(list(enumerate(subscripts))):
            known = following(instances, count, count + d)
            own[name] = Var(labels[count + d])
            if known is not None and count:
                own[name] = function_expr(known, labels[:count], known.domain())
                instances = instances.project_out(isl.dim_type.set, count + d, 1)
                del labels[count + d]
        shape, lows = [], []
        for name, value in zip(subscripts, values, strict=True):
            reached = isl.Map.from_pw_aff(value).intersect_domain(domain).range()
            low, extent = value_range(
                scop, reached, f"subscript '{name}'" if name not in self.loops else f"loop '{name}'"
            )
            shape.append(extent)
            lows.append(low)
        array = Array(
            self.name_of_array(), update.value.dtype, tuple(shape), "local", span=scop.arrays[update.array].span
        )
        chosen = Product(self.product.negative, tuple(self.chosen))
        name = new_name(scop, self.tree, f"{update.name}_{array.name}")
        first = Statement(
            name, tuple(labels), named(instances, name, labels, scop), array.name,
            tuple(minus(own[i], low) for i, low in zip(subscripts, lows, strict=True)),
            elements.rewritten(chosen.value(), subscripts, own), None, None, (), update.span,
        )  # fmt: skip
        index = tuple(minus(e, low) for e, low in zip(subscripts.values(), lows, strict=True))
        return first, self.changed(Load(array.name, index, array.dtype, update.span)), array

    def subscripts(self, around: Sequence[Member]) -> dict[str, Expr]:
        """Those of the new array by the names of its loops: the sums that the factors depend on where these are fewer
        than the loops (a padded image rather than all of its windows), else the loops."""
        from polyc.scheduler.transformations import elements  # (a first product does without)

        sums = None if around else elements.sums(self.chosen, self.loops)
        return sums if sums is not None else {name: Var(name) for name in self.loops}

    def changed(self, outlined: Load) -> Statement:
        """The update with one factor instead of those that are outlined, in the place of the first."""
        factors: list[Expr] = []
        for f in self.product.factors:
            if f not in self.chosen:
                factors.append(f)
            elif outlined not in factors:
                factors.append(outlined)
        value = self.update.value
        assert isinstance(value, Binary)
        return replace(self.update, value=Binary("+", value.a, Product(False, tuple(factors)).value(), value.dtype))

    def name_of_array(self) -> str:
        if self.wanted is None:
            first = next((load.array for f in self.chosen for load in loads(f) if load.index), self.update.array)
            return new_name(self.scop, self.tree, f"{first}_part")
        if self.wanted in taken(self.scop, self.tree) or not self.wanted.isidentifier():
            raise ScheduleError(f"outline: '{self.wanted}' is no new name")
        return self.wanted

    # ---- the proof --------------------------------------------------------------------------

    def violation(self, scop: Scop, first: Statement, use: Statement, around: Sequence[Member]) -> Violation | None:
        """A write between the new statement and a use of what it computes, of an element that it reads."""
        found = accesses(scop)
        made = next(a for a in found if a.stmt == first.name and a.write)
        used = next(a for a in found if a.stmt == use.name and a.array == first.array)
        flow = made.map.apply_range(used.map.reverse())
        for k, m in enumerate(around):
            flow = flow.intersect(loop_dim(first.domain, k).eq_map(m.schedule[use.name]))
        for read in (a for a in found if a.stmt == first.name and not a.write):
            for write in (a for a in found if a.array == read.array and a.write):
                here, there = (first.name, write.stmt), (write.stmt, use.name)
                later = in_order(scop, {here: read.map.apply_range(write.map.reverse())}).get(here)
                if later is None:
                    continue
                before = in_order(scop, {there: later.reverse().apply_range(flow)}).get(there)
                if before is not None:
                    pairs = later.intersect(flow.apply_range(before.reverse()))
                    detail = f"computed ahead, the factors of {use.name} would miss that value"
                    sizes = pairs.params()
                    return Violation(scop, scop.tree, "delayed", pairs, sizes, None, detail, array=read.array)
        return None


# ---- sums as several updates --------------------------------------------------------------------


def split_sum(scop: Scop, tree: Node, statement: str) -> tuple[Scop, Node]:
    """`scop` with an update for each summand of `statement`, one after another in the same loops.

    Raises:
        ScheduleError: there is no such sum, or its operands may not change places.
    """
    update = _update(scop, statement)
    summands = products(update)
    if len(summands) < 2:
        raise ScheduleError(f"{statement} adds one product: nothing to split")
    value = update.value
    assert isinstance(value, Binary)
    parts: list[Statement] = []
    for k, summand in enumerate(summands):
        name = statement if not k else new_name(scop, tree, f"{statement}_{k}")
        op, positive = ("-" if summand.negative else "+"), Product(False, summand.factors)
        new = Binary(op, value.a, positive.value(), value.dtype)
        parts.append(replace(update, name=name, domain=update.domain.set_tuple_name(name), value=new))
    statements: dict[str, Statement] = {}
    for n, s in scop.statements.items():
        statements |= {p.name: p for p in parts} if n == statement else {n: s}
    active = reaching(scop, ())
    tree = flatten(beside(tree, statement, parts, active))
    return replace(scop, statements=statements, tree=program(tree)), tree
