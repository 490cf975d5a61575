"""What reverse mode writes down for every program, and this program does not need.

    adj_Y[x] = d_Y[x]; ... adj_Y[i] ...             ->   ... d_Y[i] ...          (nothing else writes adj_Y)
    grad_X[x] = 0; ... grad_X[i] += e(i)            ->   ... grad_X[i] = e(i)    (once for each element, first of all)
    adj_P[i] = 0, which nobody reads                ->

All three are decided by exact flow: which writes a read may see. They save as many passes over memory as the gradient
of a pointwise operator has in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from polyc.poly.access import accesses
from polyc.poly.adjoint.copies import Flow, copies, flow_of, past_copies, rewritten
from polyc.poly.adjoint.liveness import without_idle
from polyc.poly.adjoint.openings import fills_in_front, is_fill, opened_inside
from polyc.poly.adjoint.reuse import stored_values_read
from polyc.poly.adjoint.trees import in_place
from polyc.poly.adjoint.unread import read_only
from polyc.poly.adjoint.windows import windows
from polyc.poly.budgets import TIDYING_ALL, scaled
from polyc.poly.expr import Binary, Expr, Load, Var, loads
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.reduction import updates_once
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Leaf


def tidied(scop: Scop) -> Scop:
    """The adjoint without copies, first values and last stores that nothing needs: as far as a budget of isl
    operations goes, as each of these steps gives the same program."""
    steps = _tidier(scop)
    try:
        with quota(scaled(TIDYING_ALL)):
            while (made := next(steps, None)) is not None:
                scop = made
    except QuotaExceeded:
        note = f"not tidied any further: that takes more than {TIDYING_ALL} isl operations"
        return replace(scop, notes=(*scop.notes, note))
    return scop


def _tidier(scop: Scop) -> Iterator[Scop]:
    """The program after each step."""
    for name in [s.name for s in scop.statements.values() if _is_copy(scop, s)]:
        scop = _without_copy(scop, scop.statements[name])
        yield scop
    for array in list(scop.arrays):
        scop = _array(scop, array)
        yield scop
    copied = copies(scop)
    if copied:
        scop = without_idle(past_copies(scop))
        yield scop
        for array in copied:
            scop = _array(scop, array)
            yield scop
    for step in (without_idle, stored_values_read, read_only, windows, opened_inside, fills_in_front):
        scop = step(scop)
        yield scop


def _is_copy(scop: Scop, s: Statement) -> bool:
    """Whether a statement gives a whole local array, which nothing else writes, the elements of an argument."""
    value = s.value
    if not isinstance(value, Load) or s.predicate is not None or s.dynamic or scop.arrays[s.array].kind != "local":
        return False
    source = scop.arrays[value.array]
    plain = s.index == value.index == tuple(map(Var, s.iters)) and source.shape == scop.arrays[s.array].shape
    alone = all(t is s or t.array != s.array for t in scop.statements.values())
    return plain and alone and source.kind == "in" and not source.scalar


def _without_copy(scop: Scop, s: Statement) -> Scop:
    value = s.value
    assert isinstance(value, Load)

    def moved(e: Expr) -> Expr:
        return replace(e, array=value.array) if isinstance(e, Load) and e.array == s.array else e

    return _with(scop, {n: rewritten(t, moved) for n, t in scop.statements.items() if t is not s})


def _with(scop: Scop, statements: dict[str, Statement]) -> Scop:
    """The Scop with fewer statements, or changed ones."""
    tree = in_place(scop.tree, {n: [s] for n, s in statements.items()}, str)
    used = {*scop.args, *scop.results}
    used |= {a.array for a in accesses(replace(scop, statements=statements))}
    arrays = {n: a for n, a in scop.arrays.items() if n in used}
    return replace(scop, arrays=arrays, statements=statements, tree=Leaf() if tree is None else tree)


def _array(scop: Scop, array: str) -> Scop:
    """The Scop without idle stores to an array, and its first value as part of the first update."""
    chosen = [a for a in accesses(scop) if a.array == array]
    if not any(a.write for a in chosen):
        return scop
    flow = flow_of(scop, array)
    if flow is None:
        return scop
    statements = dict(scop.statements)
    if scop.arrays[array].kind == "local":
        for s in scop.statements.values():
            if s.array == array and not any(writer == s.name for writer, _ in flow):
                del statements[s.name]
    fill = next((s for s in statements.values() if s.array == array and is_fill(s)), None)
    if fill is not None and scop.reassociate:
        first = _first_update(scop, fill, flow)
        if first is not None and first.name in statements:
            update = statements[first.name]
            assert isinstance(update.value, Binary)
            statements[first.name] = replace(update, value=update.value.b, reduction=None)
            del statements[fill.name]
    return scop if len(statements) == len(scop.statements) else _with(scop, statements)


def _first_update(scop: Scop, fill: Statement, flow: Flow) -> Statement | None:
    """The update that is the only reader of a fill's values, reads every one of them once, and no other's."""
    readers = {reader for writer, reader in flow if writer == fill.name}
    if len(readers) != 1:
        return None
    update = scop.statements[readers.pop()]
    if update.array != fill.array or update.reduction != "+" or update.predicate is not None or update.dynamic:
        return None
    if not isinstance(update.value, Binary) or update.value.op != "+":
        return None
    if any(load.array == fill.array for load in loads(update.value.b)):
        return None
    domain = update.domain.intersect_params(scop.context)
    pairs = flow[fill.name, update.name]
    whole = fill.domain.intersect_params(scop.context).is_subset(pairs.domain()) and domain.is_subset(pairs.range())
    alone = all(writer == fill.name for writer, reader in flow if reader == update.name)
    return update if whole and alone and updates_once(update.target, domain) else None
