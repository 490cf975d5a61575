"""The pass pipeline: from the loops of isl's AST to loops that emitters print as they stand."""

from __future__ import annotations

from collections.abc import Callable

from polyc.emit.loop_ir.loops import Alloc, For, Function, Store, walk
from polyc.emit.loop_ir.rewrite import unique_names, without_instances
from polyc.emit.loop_ir.verify import Known, verify
from polyc.emit.passes.copies import copies
from polyc.emit.passes.fma import contract
from polyc.emit.passes.forward_masked import forward_masked
from polyc.emit.passes.recurrences import recurrences_last
from polyc.emit.passes.registers import check_registers
from polyc.emit.passes.share import share_loads
from polyc.emit.passes.simplify import simplify
from polyc.emit.passes.tiles import separate_tiles
from polyc.emit.passes.turned_copies import turned_copies
from polyc.emit.passes.unroll import unroll
from polyc.emit.passes.vectorise import serialise
from polyc.emit.passes.vectorise import vectorise as vectorise_pass
from polyc.emit.passes.whole_lanes import whole_lanes
from polyc.poly.budgets import check_time
from polyc.poly.dtypes import i64
from polyc.poly.target import Target

Pass = Callable[[Function, Target], Function]


def passes(vectorise: bool = True) -> tuple[tuple[str, Pass], ...]:
    """Name and function of every pass, in order."""

    def clean(fn: Function, target: Target) -> Function:
        return simplify(fn)

    return (
        ("factors", _factors),
        ("recurrences", lambda fn, target: recurrences_last(fn)),
        ("fma", lambda fn, target: contract(fn)),
        ("tiles", lambda fn, target: separate_tiles(fn, again=target if vectorise else None)),
        ("turned copies", turned_copies if vectorise else lambda fn, target: fn),
        ("matrices", _matrices if vectorise else lambda fn, target: fn),
        ("unroll", lambda fn, target: unroll(fn, waiting=True)),
        ("simplify", clean),
        ("vectorise", vectorise_pass if vectorise else lambda fn, target: serialise(fn)),
        ("searches", _searches if vectorise else lambda fn, target: fn),
        ("simplify", clean),
        ("copies", lambda fn, target: copies(fn)),
        ("lane conditions", _lane_conditions),
        ("share", lambda fn, target: share_loads(fn)),
        ("masked stores", lambda fn, target: forward_masked(fn)),
        ("whole lanes", lambda fn, target: whole_lanes(fn)),
        ("narrow locals", _narrow_locals),
        ("registers", lambda fn, target: check_registers(fn)),
    )


def _factors(fn: Function, target: Target) -> Function:
    """Sums of products in nested form, where rounding may change; others do not load the pass."""
    if not fn.fast_math:
        return fn
    from polyc.emit.passes.factors import factors

    return factors(fn)


def _narrow_locals(fn: Function, target: Target) -> Function:
    """Local integers in 32 bits; functions without any do not load the pass."""
    if not any(isinstance(s, Alloc) and s.buffer.dtype == i64 and not s.buffer.shape for s in walk(fn.body)):
        return fn
    from polyc.emit.passes.narrow_locals import narrow_locals

    return narrow_locals(fn)


def _matrices(fn: Function, target: Target) -> Function:
    """Products of whole matrices, on machines that have them; others do not load the pass."""
    if not target.matrix:
        return fn
    from polyc.emit.passes.matrices import matrix_products

    return matrix_products(fn, target)


def _searches(fn: Function, target: Target) -> Function:
    """Loops that data end; functions without any do not load the pass."""
    if not any(isinstance(s, For) and s.until is not None for s in walk(fn.body)):
        return fn
    from polyc.emit.passes.searches import searches

    return searches(fn, target)


def _lane_conditions(fn: Function, target: Target) -> Function:
    """Stores in some lanes of vectors; functions without any do not load the pass."""
    if not any(isinstance(s, Store) and s.mask is not None for s in walk(fn.body)):
        return fn
    from polyc.emit.passes.lane_conditions import skip_idle, whole_stores

    return whole_stores(skip_idle(fn), target)


def run_passes(fn: Function, target: Target, vectorise: bool = True, known: Known | None = None) -> Function:
    """Run all passes, with the verifier after each that changes anything. `known` is what it remembers.

    Raises:
        BuildError: a pass broke a rule of the loop IR (the message names the pass).
    """
    fn = unique_names(without_instances(fn))  # isl may copy a subtree, and with it the buffers inside
    known = known or Known()
    verify(fn, "loop generation", known)
    for name, step in passes(vectorise):
        check_time(f"the pass '{name}'")
        new = step(fn, target)
        if new.body is fn.body and (new.buffers, new.params) == (fn.buffers, fn.params):
            fn = new  # other notes, perhaps
        else:
            fn = unique_names(new)
            verify(fn, name, known)
    return fn
