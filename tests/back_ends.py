"""Running one Scop on every back end, for differential tests."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.emit.compile import build
from polyc.emit.interpreter.interp import poisoned, run
from polyc.emit.kernel import Kernel, Report
from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.verify import verify
from polyc.emit.lowering.lower import lower
from polyc.emit.mathlib import expand_function
from polyc.emit.targets import host
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.scop import Scop
from polyc.poly.tree import Node
from polyc.poly.violations import violation

C_COMPILER = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
NATIVE = ["llvm", *(["c"] if C_COMPILER else [])]
ALL = ["interp", *NATIVE]


def arrays_of(scop: Scop, args: Sequence[Any]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Copies of the arguments by name with poisoned result arrays, and the sizes."""
    given = {n: np.array(a, scop.arrays[n].dtype.np) for n, a in zip(scop.args, args, strict=True)}
    sizes = bind_sizes(scop, {n: a.shape for n, a in given.items()})
    for name in scop.results:
        if name not in given:
            array = scop.arrays[name]
            given[name] = poisoned(tuple(evaluate(e, sizes) for e in array.outside), array.dtype)
    return given, sizes


def updated(scop: Scop) -> list[str]:
    """The arrays that a run is compared by: those updated in place, then the results."""
    return [n for n in scop.args if scop.arrays[n].kind == "inout"] + list(scop.results)


def finished(scop: Scop, tree: Node) -> Function:
    """The loops that every back end gets, ready to be printed."""
    fn = expand_function(lower(scop, tree, scop.name, host()))
    verify(fn)
    return fn


def interpret(
    scop: Scop, tree: Node, args: Sequence[Any], shuffle: int | None = None, fn: Function | None = None
) -> list[np.ndarray]:
    """The updated arrays after the interpreter ran the optimised loops (`fn`, if they are there already)."""
    fn = fn or finished(scop, tree)
    arrays, sizes = arrays_of(scop, args)
    record = np.zeros(len(fn.checks), np.uint64)  # of violated accesses, where the loops have checks
    run(fn, {b.name: arrays.get(b.name, record) for b in fn.buffers}, sizes, shuffle=shuffle)
    if record.any():
        raise violation(fn.checks, record.tolist(), sizes)
    return [arrays[n] for n in updated(scop)]


def native(
    scop: Scop, tree: Node, args: Sequence[Any], backend: str, threads: int = 1, fn: Function | None = None
) -> list[np.ndarray]:
    """The same through machine code: `llvm` or `c`."""
    fn, report = fn or finished(scop, tree), Report()
    kernel = Kernel(scop, fn, host(), backend, threads, build(fn, host(), backend, report), report)
    copies = [np.array(a, scop.arrays[n].dtype.np) for n, a in zip(scop.args, args, strict=True)]
    results = kernel(*copies)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    inout = [c for n, c in zip(scop.args, copies, strict=True) if scop.arrays[n].kind == "inout"]
    return [*inout, *results]


def execute(scop: Scop, tree: Node, args: Sequence[Any], backend: str) -> list[np.ndarray]:
    """The updated arrays after a run on `interp`, `llvm` or `c`."""
    return interpret(scop, tree, args) if backend == "interp" else native(scop, tree, args, backend)


def difference(a: Sequence[np.ndarray], b: Sequence[np.ndarray], signs: bool = True) -> str:
    """ "" when all arrays are equal bit by bit (any NaN equals any NaN), else where they differ first.

    `signs=False`: 0.0 equals -0.0, as in reductions that may be reordered: `max` keeps one of two zeros.
    """
    if len(a) != len(b):
        return f"{len(a)} against {len(b)} arrays"
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"array {k}: {x.dtype}{x.shape} against {y.dtype}{y.shape}"
        if x.dtype.kind in "iub":
            same = x == y
        else:
            same = (_bits(x) == _bits(y)) | (np.isnan(x) & np.isnan(y))
            if not signs:
                same |= (x == 0) & (y == 0)
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0]) if x.ndim else ()
            return f"array {k} at {at}: {x[at]!r} against {y[at]!r} ({int((~same).sum())} of {same.size} differ)"
    return ""


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)
