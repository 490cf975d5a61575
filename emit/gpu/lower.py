"""Schedule tree to the loop IR of a GPU: host code around launches."""

from __future__ import annotations

from emit.gpu.banks import conflict_free_rows
from emit.gpu.barriers import place_barriers
from emit.gpu.budget import check_budget
from emit.gpu.composed import composed
from emit.gpu.double import double_buffer
from emit.gpu.even import even_loops
from emit.gpu.guards import hoist_guards
from emit.gpu.lanes import widen
from emit.gpu.mapping import launches
from emit.gpu.narrow import narrow
from emit.gpu.peel import peel
from emit.gpu.private import private_rows
from emit.gpu.tensor import tensor_cores
from emit.gpu.trees import shuffled_sums
from emit.gpu.whole import whole_tiles
from emit.loop_ir.loops import Function
from emit.loop_ir.rewrite import unique_names
from emit.loop_ir.verify import verify
from emit.lowering.lower import proven_loops
from emit.passes.fma import contract
from emit.passes.registers import check_registers
from emit.passes.share import share_loads
from emit.passes.simplify import simplify
from emit.passes.tiles import separate_tiles
from emit.passes.unroll import unroll
from poly.scop import Scop
from poly.target import GpuTarget
from poly.tree import Node


def lower_gpu(scop: Scop, tree: Node, name: str, target: GpuTarget) -> Function:
    """The kernels that run `scop` in the order of `tree`, and the host code that launches them.

    The loops are proved against the Scop while bound loops are still loops (`emit.proof`); then they
    become launches, barriers are placed from the dependences of what is there, and the passes follow.

    Raises:
        BuildError: the loops do not execute exactly the Scop's domain, a conflict crosses blocks or
            lies where no barrier can stand, or a launch exceeds the target.
    """
    fn = unique_names(proven_loops(scop, tree, name, gpu=True))
    verify(fn, "loop generation")
    steps = (
        ("mapping", lambda f: simplify(even_loops(launches(contract(f), target)))),
        ("trees", lambda f: shuffled_sums(f, target)),
        ("private rows", lambda f: simplify(private_rows(f, scop))),
        ("whole tiles", lambda f: simplify(whole_tiles(f))),
        ("double buffers", lambda f: check_budget(simplify(double_buffer(f, target)), target)),
        ("partial panels", lambda f: simplify(peel(f))),
        ("barriers", lambda f: hoist_guards(place_barriers(f, scop))),
        ("origins", lambda f: simplify(composed(f, scop))),
        ("tensor cores", lambda f: simplify(tensor_cores(f, target))),
        ("tiles", lambda f: simplify(separate_tiles(f, rests=False))),
        ("lanes", lambda f: simplify(widen(f))),
        ("unroll", lambda f: simplify(unroll(f))),
        ("share", share_loads),
        ("banks", lambda f: conflict_free_rows(f, target)),
        ("registers", lambda f: narrow(check_registers(f))),
    )
    for step, run in steps:
        fn = unique_names(run(fn))
        verify(fn, step)
    return fn
