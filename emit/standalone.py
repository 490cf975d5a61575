"""An operator outside of polyc: C source, header, a program that runs it, LLVM IR, MLIR, assembly, an object file.

All of them have one interface (`polyc.emit.interface`) and come from the same loops; the C source also has
loops without vectors, for compilers that know neither GCC's nor clang's.
"""

from __future__ import annotations

import re
from dataclasses import replace

import islpy as isl

from polyc.emit.c import driver, operator_file
from polyc.emit.c.c99 import serial_loops
from polyc.emit.c.operator_file import Described, Version
from polyc.emit.compile import optimised_function
from polyc.emit.interface import Interface, interface_of
from polyc.emit.kernel import Report
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import STACK_BYTES, STACK_TOTAL, to_llvm
from polyc.emit.llvm.plain_entry import PlainEntry
from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.rewrite import without_hints
from polyc.emit.loop_ir.work import Work, context_of, operations_of, work_of
from polyc.emit.lowering.isl_expr import to_expr
from polyc.emit.lowering.lower import proven_loops
from polyc.emit.mathlib import expand_function
from polyc.emit.mlir.source import to_mlir
from polyc.emit.passes.unread import drop_unread
from polyc.emit.passes.workspace import hoist
from polyc.emit.pipeline import run_passes
from polyc.poly.expr import Expr, Var
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Node

SUFFIXES = {"c": ".c", "h": ".h", "main": "_main.c", "ll": ".ll", "asm": ".s", "obj": ".o", "so": ".so",
            "mlir": ".mlir"}  # fmt: skip
"""What each kind of file is called after the operator's name."""


@dataclass(frozen=True)
class Standalone:
    """The texts of one operator; `notes` say what its schedule and the passes noted."""

    scop: Scop
    described: Described
    machine: Target
    native: Version
    vectors: Version | None
    plain: Version
    loops: Function
    notes: tuple[str, ...]

    @property
    def interface(self) -> Interface:
        """The function's name, parameters and sizes in C."""
        return self.described.interface

    @property
    def prototype(self) -> str:
        """The function in C, without a semicolon."""
        return operator_file.prototypes(self.described)[0]

    def c(self) -> str:
        """C99 source."""
        return operator_file.source_file(self.described, self.vectors, self.plain)

    def header(self) -> str:
        """The header, for C and C++."""
        return operator_file.header_file(self.described)

    def main(self) -> str:
        """A program that runs the operator on made-up arguments; prints a checksum of each result and the time."""
        return driver.program(self.scop, self.described)

    def llvm(self) -> str:
        """LLVM IR, as it is before LLVM's own passes."""
        what = self.described
        entry = PlainEntry(what.interface, what.guard, self.native.scratch, what.has_scratch, what.threads,
                           self.machine.triple, self.native.record)  # fmt: skip
        return to_llvm(self.native.fn, self.machine, entry=entry)

    def mlir(self) -> str:
        """A module of the dialects affine, arith, math, memref, scf and vector: `func.func` of memrefs and sizes."""
        return to_mlir(self.loops)

    def assembly(self) -> str:
        """The machine code as assembly language."""
        return jit.assembly(self.llvm(), self.machine)

    def object(self) -> bytes:
        """A relocatable object file."""
        return jit.build_object(self.llvm(), self.machine)


def standalone(
    schedule: tuple[Scop, Node], plain: tuple[Scop, Node], machine: Target, portable: Target, threads: int = 1,
    name: str | None = None, usage: str = "", vectors: bool = True, notes: tuple[str, ...] = (),
    checks: bool = True, program: Scop | None = None,
) -> Standalone:  # fmt: skip
    """The texts of an operator.

    Args:
        schedule: its Scop and the tree for `machine`.
        plain: the same for compilers without vectors, whose machine is `portable`.
        threads: of parallel loops; 1 makes them serial.
        name: of the function (None: the operator's).
        usage: the operator as its author calls it, for comments.
        vectors: whether the C source has the version for GCC and clang.
        checks: whether accesses that are not proven are checked; a violation is what the function returns.
        program: the operator before its schedule, whose operations are counted (None: as scheduled).

    Raises:
        BuildError: no code for one of the trees.
    """
    scop, tree = schedule
    interface = interface_of(scop, name)
    report = Report()
    made = optimised_function(scop, tree, interface.name, machine, "llvm", report, checks)
    if threads == 1:
        made = replace(made, body=serial_loops(made.body))
    native = _version(interface, made)
    loops = interface.named(made)
    for_c = _version(interface, _for_c(made)) if vectors else None
    simple = run_passes(
        replace(proven_loops(*plain, interface.name, checks=checks), fma=False), portable, vectorise=False
    )
    for_all = _version(interface, _for_c(replace(simple, body=serial_loops(simple.body))))
    has_scratch = any(v.scratch for v in (native, for_c, for_all) if v is not None)
    work = _work(scop if program is None else program, interface, for_c, for_all)
    described = Described(
        interface, guard_of(scop, interface), f"{machine.name} ({machine.cpu})" if machine.cpu else machine.name,
        usage or scop.name, has_scratch, threads, work,
    )  # fmt: skip
    return Standalone(scop, described, machine, native, for_c, for_all, loops, (*notes, *report.notes))


def _work(program: Scop, interface: Interface, vectors: Version | None, plain: Version) -> tuple[str, ...]:
    """How much a call does at most, as formulas in the sizes: lines for the header."""
    context, operations = context_of(program), operations_of(program)
    for p, c in interface.sizes:
        at = context.find_dim_by_name(isl.dim_type.param, p)
        context = context.set_dim_name(isl.dim_type.param, at, c) if at >= 0 else context
    many = "data decide how many" if operations is None else str(operations)
    for p, c in interface.sizes:
        many = re.sub(rf"\b{re.escape(p)}\b", c, many)
    lines = [f"Operations of floats in a call: {many}."]
    for version, kind in ((vectors, "with vectors"), (plain, "without")):
        if version is not None:
            work = work_of(version.fn, context)
            lines += _iterations(work, kind)
            lines.append(f"  {work.stack} bytes of local arrays on the stack.")
    return tuple(lines)


def _iterations(work: Work, kind: str) -> list[str]:
    """How often the loops of a version run, in lines."""
    if work.iterations is None:
        return [f"Iterations of all loops, {kind}: no bound; {work.why}."]
    parts = work.iterations.lines()
    if_inside = " if all subscripts are inside of arrays" if work.inside else ""
    if len(parts) == 1:
        return [f"Iterations of all loops, {kind}{if_inside}: {parts[0]}."]
    about = "the sum of" if work.iterations.exact else "at most the sum of"
    return [f"Iterations of all loops, {kind}{if_inside}, {about}", *(f"  {p}" for p in parts)]


def guard_of(scop: Scop, interface: Interface) -> Expr | None:
    """The condition that the sizes must satisfy; None when all do."""
    context = scop.context.params() if scop.context.dim(isl.dim_type.set) else scop.context
    if not interface.sizes or context.plain_is_universe():
        return None
    build = isl.AstBuild.from_context(isl.Set.universe(context.get_space()))
    return to_expr(build.expr_from_set(context.coalesce()), {p: Var(c) for p, c in interface.sizes})


def _for_c(fn: Function) -> Function:
    """Without what C has no word for, and without what its compilers would warn of."""
    fn = expand_function(fn)
    return drop_unread(replace(fn, body=without_hints(fn.body)))


def _version(interface: Interface, fn: Function) -> Version:
    """The loops with the interface's names; large local arrays are its last buffers."""
    fn, scratch = hoist(fn, STACK_BYTES, STACK_TOTAL, symbolic=True)
    named = interface.named(fn)
    return Version(named, named.buffers[len(named.buffers) - len(scratch) :] if scratch else ())
