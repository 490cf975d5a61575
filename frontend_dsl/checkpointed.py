"""Gradients of programs with a loop over time, within a limit of memory: `polyc.checkpointed_grad`.

The derivative of a loop over time needs the values of each step, from the last step to the first. All of them on a tape
take memory for as many steps as there are. Here some states are kept, and the steps between them run again: which, says
Revolve (`polyc.poly.adjoint.revolve`), whose number of repeated steps is the least that is possible.

The program is cut into kernels (`polyc.poly.adjoint.sections`): what is before the loop, steps of it from any to any,
and what is after it; each of them, and one step, has its adjoint. What comes after the loop is one more step of the
chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from polyc.poly.adjoint.joint import Adjoint, adjoint
from polyc.poly.adjoint.revolve import forward_steps, revolve
from polyc.poly.adjoint.sections import BEGIN, END, TimeLoop, private, section, step_of, steps_of, time_loops
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.dtypes import i64
from polyc.poly.errors import ArgumentError, PolycError
from polyc.poly.expr import Const
from polyc.poly.hooks import resolve
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Array, Origin, Scop
from polyc.poly.words import counted

from .derived import Derived, grad
from .operator import Operator

Arrays = dict[str, np.ndarray[Any, Any]]


class CheckpointedGradient:
    """The gradient of an operator within a limit of memory; made by `checkpointed_grad`.

    A call takes and gives what one of `op.grad(wrt)` does. `ran` counts what the last call ran: steps forwards
    (`forward`) and backwards (`reverse`), and the most snapshots at once (`snapshots`).
    """

    def __init__(
        self, operator: Operator, wrt: tuple[str, ...] | None, memory_limit: int | None, snapshots: int | None,
        threads: int | None,
    ) -> None:  # fmt: skip
        whole = grad(operator, wrt)
        assert isinstance(whole, Derived)
        self.whole, self.threads = whole, threads
        self.memory_limit, self.snapshots = memory_limit, snapshots
        self.ran: Counter[str] = Counter()
        self._plans: dict[Any, _Plan] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The gradients. Raises `ArgumentError`: arguments do not fit, or the limit is below the least that these sizes
        need (the line has the numbers)."""
        values, plan = self._planned(args, kwargs)
        found, self.ran = plan.run(values)
        given = [g if g.ndim else g[()] for g in found]
        return given[0] if len(given) == 1 else tuple(given)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What is kept and what runs again for such arguments, a line each. Raises as a call."""
        return "\n".join(self._planned(args, kwargs)[1].notes)

    def _planned(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[np.ndarray[Any, Any]], _Plan]:
        values, _, constants = self.whole._bind(args, kwargs)
        shapes = tuple((p.name, v.shape) for p, v in zip(self.whole.signature.params, values) if p.shape is not None)
        key = (shapes, tuple(sorted((k, repr(v)) for k, v in constants.items())))
        if key not in self._plans:
            known = {p.name for p in self.whole.original.signature.params}
            numbers = {n: tuple(Const(int(e), i64) for e in shape) for n, shape in shapes if n in known}
            scop = self.whole.original.translated(Origin(constants, {}, numbers))
            scop = specialise(scop, bind_sizes(scop, {n: np.shape(v) for n, v in zip(scop.args, values)}))
            wrt = self.whole._named(scop)
            self._plans[key] = _plan(scop, wrt, self.memory_limit, self.snapshots, self.threads)
        return [np.asarray(v) for v in values], self._plans[key]


def checkpointed_grad(
    operator: Operator, wrt: str | Sequence[str] | None = None, *, memory_limit: int | None = None,
    snapshots: int | None = None, threads: int | None = None,
) -> CheckpointedGradient:  # fmt: skip
    """The gradient of an operator with a loop over time, of which only some states are kept; the steps between them
    run again, by the binomial schedule (Revolve, Griewank and Walther 2000).

    Args:
        operator: its longest tape is that of one of its outermost loops; more of them run as they are.
        wrt: as for `polyc.grad`.
        memory_limit: bytes for snapshots and tapes; as many snapshots are taken as there is room for, and none where
            the plain gradient keeps it.
        snapshots: how many, instead of a limit.
        threads: of the kernels; None: those of the machine.

    Raises:
        ArgumentError: neither a limit nor a number of snapshots is given, or both, or it is no such number.
        NotDifferentiable: as `polyc.grad`.
        PolycError: `operator` is no operator.
    """
    if not isinstance(operator, Operator):
        raise PolycError(f"polyc.checkpointed_grad takes an operator made by @op, not {type(operator).__name__}")
    if (memory_limit is None) == (snapshots is None):
        raise ArgumentError("checkpointed_grad takes memory_limit, in bytes, or snapshots, a number")
    given, what = (memory_limit, "memory_limit") if snapshots is None else (snapshots, "snapshots")
    if type(given) is not int or given < 1:
        raise ArgumentError(f"{what} is a number of at least 1, not {given!r}")
    names = (wrt,) if isinstance(wrt, str) else None if wrt is None else tuple(wrt)
    return CheckpointedGradient(operator, names, memory_limit, snapshots, threads)


# ---- plans --------------------------------------------------------------------------------------


class _Plan:
    """What a call runs; `notes` say why."""

    notes: tuple[str, ...]

    def run(self, values: list[np.ndarray[Any, Any]]) -> tuple[list[np.ndarray[Any, Any]], Counter[str]]:
        """The gradients, and what was run."""
        raise NotImplementedError


def _plan(
    scop: Scop, wrt: tuple[str, ...] | None, limit: int | None, snapshots: int | None, threads: int | None
) -> _Plan:
    """The plan for a program whose sizes are numbers. Raises `ArgumentError`: there is none within the limit."""
    whole = adjoint(scop, wrt)
    taped = _tape_bytes(whole)
    if limit is not None and taped <= limit:
        return _Plain(whole, threads, f"all values are kept: tapes of {taped:,} bytes, of {limit:,} that are allowed")
    tapes = {}
    for loop in time_loops(scop):
        if loop.steps > 1 and (made := _adjoint_of(section(scop, loop.within, f"{scop.name}_loop"), set())) is not None:
            tapes[_tape_bytes(made)] = loop
    if not tapes or not max(tapes):
        if limit is not None:
            raise ArgumentError(
                f"{scop.name}: its gradient keeps {taped:,} bytes, more than the memory limit of {limit:,}, and none "
                "of its outermost loops has a tape that snapshots could take the place of"
            )
        return _Plain(whole, threads, f"no outermost loop has a tape: all values are kept ({taped:,} bytes)")
    return _Chain(scop, tapes[max(tapes)], whole, limit, snapshots, threads)


def _adjoint_of(scop: Scop, unasked: set[str]) -> Adjoint | None:
    """The adjoint of a section by all that it touches, but for what it only reads and nobody asks for; None where
    nothing of it carries a derivative."""
    floats = [n for n in scop.args if scop.arrays[n].dtype.is_float]
    names = tuple(n for n in floats if n not in unasked or scop.arrays[n].kind == "inout")
    if not any(scop.arrays[n].kind == "inout" for n in floats):
        return None
    return adjoint(scop, names)


def _tape_bytes(made: Adjoint, begins: Sequence[int] = (0,)) -> int:
    """Bytes of all tapes of an adjoint, at the largest for these steps; its other sizes are numbers."""
    tapes = [a for n, a in made.scop.arrays.items() if n in made.tapes]
    fixed = BEGIN not in made.scop.params
    return max(sum(_bytes(a, {BEGIN: b}) for a in tapes) for b in (begins[:1] if fixed else begins))


def _bytes(array: Array, sizes: Mapping[str, int] = {}) -> int:
    return prod(evaluate(e, sizes) for e in array.shape) * array.dtype.bytes


class _Plain(_Plan):
    """The plain gradient."""

    def __init__(self, whole: Adjoint, threads: int | None, note: str) -> None:
        self.notes = (note, *whole.notes)
        self.whole, self.threads = whole, threads

    @cached_property
    def kernel(self) -> Any:
        """Compiled at the first run: to explain a plan takes no code."""
        return _compiled(self.whole.scop, self.threads)

    def run(self, values: list[np.ndarray[Any, Any]]) -> tuple[list[np.ndarray[Any, Any]], Counter[str]]:
        found = self.kernel(*values)
        return [np.asarray(g) for g in (found if isinstance(found, tuple) else (found,))], Counter()


class _Chain(_Plan):
    """Sections, their adjoints, and the number of snapshots."""

    def __init__(
        self, scop: Scop, loop: TimeLoop, whole: Adjoint, limit: int | None, snapshots: int | None, threads: int | None
    ) -> None:
        self.scop, self.loop, self.whole = scop, loop, whole
        unasked = {*scop.args} - {*whole.gradients}
        after = section(scop, loop.after, f"{scop.name}_after")
        elsewhere = {*after.arrays, *scop.results, *(n for n in scop.args if scop.arrays[n].kind == "inout")}
        step = step_of(scop, loop)
        own = private(step, elsewhere)
        before = _Section(section(scop, loop.before, f"{scop.name}_before"), unasked, threads)
        self.before, self.after = before, _Section(after, unasked, threads)
        every = range(loop.first, loop.first + loop.steps)
        self.step = _Section(_without(step, own), unasked, threads, _without(steps_of(scop, loop), own), every)
        self.state = tuple(n for n in self.step.forward.args if self.step.forward.arrays[n].kind == "inout")
        self.length = loop.steps + bool(loop.after)
        state = sum(_bytes(scop.arrays[n]) for n in self.state)
        tape = max(s.tape for s in (before, self.after, self.step))
        self.snapshots = snapshots if limit is None else min((limit - tape) // max(state, 1), self.length)
        if self.snapshots is None or self.snapshots < 1:
            raise ArgumentError(
                f"{scop.name}: the memory limit of {limit:,} bytes has no room for one state of the loop {loop.name} "
                f"({state:,} bytes: {', '.join(self.state)}) and the largest tape of one step ({tape:,} bytes)"
            )
        again = forward_steps(self.length, self.snapshots)
        self.notes = (
            f"loop {loop.name}: {counted(loop.steps, 'step')}; its state is {', '.join(self.state)}, {state:,} bytes",
            f"all values on tapes would be {_tape_bytes(whole):,} bytes"
            + ("" if limit is None else f", more than the memory limit of {limit:,}"),
            f"{counted(self.snapshots, 'snapshot')} of {state:,} bytes and a tape of {tape:,} bytes for one step: "
            f"{again:,} steps run forwards, {again / loop.steps:.2f} times as many as there are (Revolve)",
            *self.step.notes,
        )  # fmt: skip

    def run(self, values: list[np.ndarray[Any, Any]]) -> tuple[list[np.ndarray[Any, Any]], Counter[str]]:
        scop, ran = self.scop, Counter[str]()
        given = dict(zip((*scop.args, *self.whole.seeds.values()), values, strict=True))
        now: Arrays = {}
        for n, a in scop.arrays.items():
            shape = tuple(evaluate(e, {}) for e in a.shape)
            written = a.kind != "in"
            x = np.ascontiguousarray(given[n]).reshape(shape) if n in given else np.zeros(shape, a.dtype.np)
            now[n] = x.copy() if written and n in given else x
        bars = {n: np.zeros_like(x) for n, x in now.items() if scop.arrays[n].dtype.is_float}
        for n, seed in self.whole.seeds.items():
            bars[n] = np.array(given[seed])
        first = {n: now[n].copy() for n in self.before.changed}
        self.before.forwards(now, {})
        kept: dict[int, Arrays] = {}
        begin = self.loop.first
        for action in revolve(self.length, self.snapshots or 1):
            if action.kind == "store":
                kept[action.step] = {n: now[n].copy() for n in self.state}
                ran["snapshots"] = max(ran["snapshots"], len(kept))
            elif action.kind == "restore":
                for n, x in kept[action.step].items():
                    now[n][...] = x
            elif action.kind == "drop":
                del kept[action.step]
            elif action.kind == "advance":
                self.step.forwards(now, {BEGIN: begin + action.step, END: begin + action.until})
                ran["forward"] += action.until - action.step
            elif action.step == self.loop.steps:
                self.after.backwards(now, bars, {})
            else:
                self.step.backwards(now, bars, {BEGIN: begin + action.step})
                ran["reverse"] += 1
        now |= first
        self.before.backwards(now, bars, {})
        return [bars[n] for n in self.whole.gradients], ran


class _Section:
    """A section's kernel and its adjoint's; `forward` is what runs forwards where that is another program."""

    def __init__(
        self, scop: Scop, unasked: set[str], threads: int | None, forward: Scop | None = None,
        begins: Sequence[int] = (0,),
    ) -> None:  # fmt: skip
        self.forward = forward or scop
        self.changed = tuple(n for n in scop.args if scop.arrays[n].kind == "inout")
        self.made = _adjoint_of(scop, unasked) if scop.statements else None
        self.threads = threads
        self.tape = 0 if self.made is None else _tape_bytes(self.made, begins)
        self.notes = () if self.made is None else self.made.notes

    @cached_property
    def kernel(self) -> Any:
        """What runs forwards; None where that is nothing."""
        return _compiled(self.forward, self.threads) if self.forward.statements else None

    @cached_property
    def adjoint(self) -> Any:
        """What runs backwards; None where nothing carries a derivative."""
        return None if self.made is None else _compiled(self.made.scop, self.threads)

    def forwards(self, now: Arrays, sizes: Mapping[str, int]) -> None:
        """Run it on the arrays of now."""
        if self.kernel is not None:
            _run(self.kernel, [now[n] for n in self.forward.args], sizes)

    def backwards(self, now: Arrays, bars: Arrays, sizes: Mapping[str, int]) -> None:
        """From the adjoints of what it has made to those of what it has read, which are now before it ran."""
        if self.made is None or self.adjoint is None:
            return
        scop, made = self.made.scop, self.made
        arguments = [now[n] for n in self.forward.args] + [bars[n] for n in made.seeds]
        results = [np.empty(np.shape(bars[n]), bars[n].dtype) for n in made.gradients]
        _run(self.adjoint, [*arguments, *results], sizes)
        for n, found in zip(made.gradients, results, strict=True):
            if n in self.changed:
                bars[n] = found
            else:
                bars[n] += found
        assert scop.args == (*self.forward.args, *made.seeds.values())


def _run(kernel: Any, arrays: list[np.ndarray[Any, Any]], sizes: Mapping[str, int]) -> None:
    """A kernel on arrays that fit."""
    arguments = arrays[: len(kernel.scop.args)]
    kernel.run(arrays, kernel.bind(tuple(np.shape(x) for x in arguments), dict(sizes)))


def _without(scop: Scop, own: set[str]) -> Scop:
    """The section with arrays that nobody else sees as its own."""
    arrays = {n: replace(a, kind="local") if n in own else a for n, a in scop.arrays.items()}
    return replace(scop, arrays=arrays, args=tuple(n for n in scop.args if n not in own))


def _compiled(scop: Scop, threads: int | None) -> Any:
    return resolve("compile_operator")(scop, target="cpu", schedule=None, threads=threads, sizes={})
