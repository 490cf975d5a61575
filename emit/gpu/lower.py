"""Schedule tree to the loop IR of a GPU: host code around launches."""

from __future__ import annotations

from collections.abc import Callable

from polyc.emit.gpu.budget import check_budget
from polyc.emit.gpu.passes.bank_conflicts import conflict_free_rows
from polyc.emit.gpu.passes.barriers import place_barriers
from polyc.emit.gpu.passes.copy_propagation import propagate_copies
from polyc.emit.gpu.passes.double_buffering import double_buffer
from polyc.emit.gpu.passes.full_vector_loops import full_vector_loops
from polyc.emit.gpu.passes.guards import hoist_guards
from polyc.emit.gpu.passes.mapping import launches
from polyc.emit.gpu.passes.narrow_indices import narrow
from polyc.emit.gpu.passes.peel import peel
from polyc.emit.gpu.passes.private_registers import private_registers
from polyc.emit.gpu.passes.shuffle_trees import shuffled_sums
from polyc.emit.gpu.passes.tensor_cores import tensor_cores
from polyc.emit.gpu.passes.unguard_registers import unguard_registers
from polyc.emit.gpu.passes.wide_accesses import widen
from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.rewrite import unique_names
from polyc.emit.loop_ir.verify import Known, verify
from polyc.emit.lowering.lower import proven_loops
from polyc.emit.names import symbol
from polyc.emit.passes.fma import contract
from polyc.emit.passes.registers import check_registers
from polyc.emit.passes.share import share_loads
from polyc.emit.passes.simplify import simplify
from polyc.emit.passes.tiles import separate_tiles
from polyc.emit.passes.unroll import unroll
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.poly.tree import Node

Pass = Callable[[Function], Function]


def lower_gpu(scop: Scop, tree: Node, name: str, target: GpuTarget, checks: bool = False) -> Function:
    """The kernels that run `scop` in the order of `tree`, and the host code that launches them.

    The loops are proved against the Scop while bound loops are still loops (`polyc.emit.proof`); then they
    become launches, barriers are placed from the dependences of what is there, and the passes follow. With
    `checks`, accesses that may leave their arrays are checked where they are, and there is one more
    argument if there are any (`Function.checks`).

    Raises:
        BuildError: the loops do not execute exactly the Scop's domain, a conflict crosses blocks or
            lies where no barrier can stand, or a launch exceeds the target.
    """
    fn = unique_names(proven_loops(scop, tree, symbol(name), gpu=True, checks=checks))
    known = Known()
    verify(fn, "loop generation", known)
    for step, run in passes(scop, target):
        fn = unique_names(run(fn))
        verify(fn, step, known)
    return fn


def passes(scop: Scop, target: GpuTarget) -> tuple[tuple[str, Pass], ...]:
    """Name and function of every pass, in order."""
    return (
        ("mapping", lambda f: simplify(full_vector_loops(launches(contract(f), target)))),
        ("trees", lambda f: shuffled_sums(f, target)),
        ("private rows", lambda f: simplify(private_registers(f, scop))),
        ("whole tiles", lambda f: simplify(unguard_registers(f))),
        ("double buffers", lambda f: check_budget(simplify(double_buffer(f, target)), target)),
        ("partial panels", lambda f: simplify(peel(f))),
        ("barriers", lambda f: hoist_guards(place_barriers(f, scop))),
        ("origins", lambda f: simplify(propagate_copies(f, scop))),
        ("tensor cores", lambda f: simplify(tensor_cores(f, target))),
        ("tiles", lambda f: simplify(separate_tiles(f, rests=False))),
        ("lanes", lambda f: simplify(widen(f))),
        ("unroll", lambda f: simplify(unroll(f))),
        ("share", share_loads),
        ("banks", lambda f: conflict_free_rows(f, target)),
        ("registers", lambda f: narrow(check_registers(f))),
    )
