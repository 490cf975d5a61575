"""One small random program a seed, run one way: what `python tests/fuzz.py campaign` checks.

The seed says which slice of the language the program is from, how it is scheduled and compiled. Plain Python is
the judge (the interpreter where exp and the like make Python's bits another's). Every tenth program goes through
LLVM's -O3 and the user's own path, the others through -O0: the loops and the LLVM text are polyc's, and they
are the same. Another tenth is C as well; those of a batch are compiled by one call of the compiler.
"""

from __future__ import annotations

import ctypes
import random
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import back_ends
import numpy as np
from differential import Failure, exact_when_reordered, oracle
from program_tree import Program
from random_programs import Wanted, generate
from random_reductions import generate_reduction
from random_schedules import random_schedule

from polyc.emit.c import cc
from polyc.emit.compile import compile_kernel, source_text
from polyc.emit.kernel import Kernel, Native, Report
from polyc.emit.llvm import jit
from polyc.emit.loop_ir.loops import Function
from polyc.emit.lowering.dynamic import UnknownEnd
from polyc.emit.lowering.lower import lower
from polyc.emit.mathlib import expand_function
from polyc.emit.targets import host
from polyc.poly.budgets import OverBudget
from polyc.poly.depth import nested
from polyc.poly.errors import ArgumentError
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

SMALL = Wanted(statements=(1, 2))
EVERY_C = 10
EVERY_O3 = 10


@dataclass(frozen=True)
class Slice:
    """A kind of program. `weight`: how many of a hundred; `schedules`: how they may be ordered."""

    name: str
    weight: int
    make: Callable[[int], Program]
    schedules: tuple[str, ...] = ("program", "random", "automatic")
    fixed: bool = False  # sizes are numbers when the program is compiled
    aliases: bool = False
    again: bool = False  # the kernel runs a second time, with other sizes


SLICES = (
    Slice("plain", 10, lambda seed: generate(seed, SMALL), ("program", "automatic")),
    Slice("schedules", 20, lambda seed: generate(seed, replace(SMALL, statements=(1, 3))), ("random",)),
    Slice("aliases", 10, lambda seed: generate(seed, SMALL), aliases=True),
    Slice("indices", 12, lambda seed: generate(seed, replace(SMALL, index_array=0.8, pointers=0.5, counts=0.4))),
    Slice("scalars", 12, lambda seed: generate(seed, replace(SMALL, scalar=0.6, more_scalars=2,
                                                             run_time_bounds=bool(seed % 2)))),
    Slice("sizes", 8, lambda seed: generate(seed, replace(SMALL, sizes=(1, 2, 3, 5, 8, 16, 17))), again=True),
    Slice("numbers", 5, lambda seed: generate(seed, replace(SMALL, sizes=(1, 2, 4, 8, 9, 16))), fixed=True),
    Slice("jumps", 10, lambda seed: generate(seed, replace(SMALL, statements=(2, 4), jumps=0.5)), again=True),
    Slice("reductions", 13, generate_reduction, ("automatic", "automatic", "random", "program"), again=True),
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Everything that the seed decides but the program."""

    slice: Slice
    order: str
    fixed: bool
    o3: bool
    c: bool
    threads: int


def plan_of(seed: int) -> Plan:
    r = random.Random(f"plan {seed}")
    kind = r.choices(SLICES, [s.weight for s in SLICES])[0]
    return Plan(kind, r.choice(kind.schedules), kind.fixed or r.random() < 0.15, seed % EVERY_O3 == 3,
                seed % EVERY_C == 7, r.choice((1, 1, 2)))  # fmt: skip


def program_of(seed: int) -> Program:
    return plan_of(seed).slice.make(seed)


@dataclass
class Prepared:
    """A program that ran as plain Python and has its loops; `runs` are arguments and what they must give."""

    seed: int
    plan: Plan
    program: Program
    operator: Any = None
    schedule: Schedule | None = None
    function: Function | None = None
    runs: list[tuple[list[Any], list[np.ndarray]]] = field(default_factory=list)
    stage: str = "python"

    def fails(self, stage: str, message: str) -> Failure:
        return Failure(f"{self.plan.slice.name} {self.plan.order} {stage}", message, _trace(self.schedule))

    def crashed(self, error: BaseException) -> Failure:
        return self.fails(f"{self.stage} crash", f"{type(error).__name__}: {error}")


def _trace(schedule: Schedule | None) -> str:
    try:
        return schedule.save() if schedule else ""
    except Exception as error:  # the trace only helps
        return f"no trace: {error}"


def check_llvm(seed: int, program: Program | None = None) -> tuple[Failure | None, Prepared | None]:
    """The first difference of the seed's program (or of a smaller one in its place), and what C needs of it."""
    plan = plan_of(seed)
    work = Prepared(seed, plan, program or plan.slice.make(seed))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _prepare(work)
            work.stage = "llvm"
            kernel = _kernel(work)
            failure = _compare(work, kernel, "llvm")
            if failure is None and plan.slice.aliases:
                work.stage = "aliases"
                failure = _compare_aliases(work, kernel)
    except (OverBudget, UnknownEnd) as error:  # a schedule of one's own may be refused so (docs/budgets.md)
        return None if plan.order == "random" else work.crashed(error), None
    except Exception as error:  # any crash is a finding
        return work.crashed(error), None
    return failure, work if plan.c and failure is None else None


def _prepare(work: Prepared) -> None:
    program, plan = work.program, work.plan
    operator = program.operator()
    args = program.arguments()
    work.runs = [(args, [] if program.inexact else oracle(operator, args))]
    if plan.slice.again:
        r = random.Random(work.seed)
        other = replace(program, sizes={d: r.choice((1, 2, 3, 6, 7, 12)) for d in program.sizes})
        if not plan.fixed:
            args = other.arguments()
            work.runs.append((args, [] if program.inexact else oracle(operator, args)))
    if all(exact_when_reordered(program, expected) for _, expected in work.runs):
        operator = program.operator(reassociate=True)
    work.operator, work.stage = operator, "front end"
    known = {d: n for d, n in program.sizes.items() if d in operator.signature.dims()} if plan.fixed else {}
    work.schedule = start = Schedule.start(operator.scop(**known))
    work.stage = "schedule"
    if plan.order == "random":
        work.schedule = random_schedule(start, work.seed, 4)
    elif plan.order == "automatic":
        work.schedule = automatic(start.scop, host(), threads=plan.threads)


def _kernel(work: Prepared) -> Kernel:
    """The compiled program: as users compile it, or quickly."""
    assert work.schedule is not None
    scop, tree, name = work.schedule.scop, work.schedule.tree, f"k{work.seed}"
    if work.plan.o3:
        kernel = compile_kernel(scop, tree, threads=work.plan.threads, name=name)
        work.function = kernel.function
        return kernel
    with nested(name):  # as compile_kernel
        fn = work.function = expand_function(lower(scop, tree, name, host()))
        image = jit.build_object(source_text(fn, host(), "llvm"), host(), level=0)
    library = jit.Library([image], [name])
    native = Native(library.address(name), library, image)
    return Kernel(scop, fn, host(), "llvm", work.plan.threads, native, Report())


def _compare(work: Prepared, kernel: Kernel, stage: str) -> Failure | None:
    assert work.schedule is not None
    for k, (args, expected) in enumerate(work.runs):
        if not expected:  # exp and the like: the interpreter is the judge
            expected = back_ends.interpret(work.schedule.scop, work.schedule.tree, args, fn=work.function)
            work.runs[k] = (args, expected)
        text = back_ends.difference(_called(kernel, args), expected, signs=not kernel.scop.reassociate)
        if text:
            return work.fails(stage, text + (" (second sizes)" if k else ""))
    return None


def _called(kernel: Kernel, args: Sequence[Any]) -> list[np.ndarray]:
    """The updated arrays after a call on copies, then the results, which are poisoned first."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    return _updated(kernel.scop, copies, kernel(*copies, out=_poisoned(kernel, copies)))


def _poisoned(kernel: Kernel, args: Sequence[Any]) -> Any:
    given, _ = back_ends.arrays_of(kernel.scop, args)
    return tuple(given[n] for n in kernel.scop.results) or None


def _updated(scop: Scop, args: Sequence[Any], results: Any) -> list[np.ndarray]:
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    return [*(a for n, a in zip(scop.args, args, strict=True) if scop.arrays[n].kind == "inout"), *results]


# ---- aliases ---------------------------------------------------------------------------------


def _compare_aliases(work: Prepared, kernel: Kernel) -> Failure | None:
    """Arguments in one memory: inputs count as they were before the call; two written arrays are refused."""
    r = random.Random(work.seed)
    args = [a.copy() if isinstance(a, np.ndarray) else a for a in work.runs[0][0]]
    arrays = [k for k, a in enumerate(args) if isinstance(a, np.ndarray) and a.ndim]
    pairs = [(a, b) for a in arrays for b in arrays if a < b and args[a].dtype == args[b].dtype]
    kinds = [kernel.scop.arrays[n].kind for n in kernel.scop.args]
    pairs = [p for p in pairs if kernel.scop.args[p[0]][0] == kernel.scop.args[p[1]][0] == "A"]
    if not pairs:
        return None
    _overlay(args, *r.choice(pairs), r)
    distinct = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    written = [k for k in arrays if kinds[k] == "inout"]
    clash = any(np.may_share_memory(args[a], args[b]) for a in written for b in written if a < b)
    try:
        got = _updated(kernel.scop, args, kernel(*args))
    except ArgumentError:
        return None if clash else work.fails("aliases", "refused, although only inputs overlap what is written")
    if clash:
        return work.fails("aliases", "two arrays that are written share memory, and nobody said so")
    if work.program.inexact:
        return None  # the values are new; Python's bits are others
    if not exact_when_reordered(work.program, want := oracle(work.operator, distinct)) and work.operator.reassociate:
        return None
    text = back_ends.difference(got, want, signs=not kernel.scop.reassociate)
    return work.fails("aliases", text) if text else None


def _overlay(args: list[Any], a: int, b: int, r: random.Random) -> None:
    """Put two arguments into one piece of memory: the same start, or some elements apart."""
    x, y = args[a], args[b]
    apart = 0 if r.random() < 0.4 else r.randint(0, max(x.size, y.size))
    memory = np.resize(np.concatenate([x.ravel(), y.ravel()]), max(x.size, apart + y.size))
    args[a], args[b] = memory[: x.size].reshape(x.shape), memory[apart : apart + y.size].reshape(y.shape)


# ---- C ---------------------------------------------------------------------------------------


def check_c(batch: Sequence[Prepared]) -> list[tuple[int, Failure]]:
    """What goes wrong with these programs as C."""
    optimise = ("-O3",) if batch[0].seed % 4 == 0 else ("-O0",)
    try:
        library: Any = _library(batch, optimise)
    except RuntimeError as error:
        if len(batch) == 1:
            return [(batch[0].seed, batch[0].fails("c crash", str(error)))]
        return [found for work in batch for found in check_c([work])]
    found = []
    for work in batch:
        assert work.schedule is not None and work.function is not None
        address = ctypes.cast(getattr(library, f"k{work.seed}"), ctypes.c_void_p).value or 0
        kernel = Kernel(work.schedule.scop, work.function, host(), "c", work.plan.threads,
                        Native(address, library, b""), Report())  # fmt: skip
        try:
            failure = _compare(work, kernel, "c")
        except Exception as error:
            failure = work.fails("c crash", f"{type(error).__name__}: {error}")
        if failure:
            found.append((work.seed, failure))
    return found


def _library(batch: Sequence[Prepared], optimise: tuple[str, ...]) -> ctypes.CDLL:
    """All programs in one shared object."""
    with tempfile.TemporaryDirectory(prefix="polyc-fuzz-") as folder:
        texts = [Path(folder, f"k{work.seed}.c") for work in batch]
        options: dict[str, None] = {}
        for work, path in zip(batch, texts, strict=True):
            assert work.function is not None
            text = source_text(work.function, host(), "c")
            path.write_text(text)
            options |= dict.fromkeys(cc.flags(text))
        flags = [f for f in options if f != "-O3"] + [*optimise]
        shared = Path(folder, "all.so")
        command = [cc.find_compiler() or "cc", *flags, *map(str, texts), "-o", str(shared), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode and "internal compiler error" in done.stderr:
            done = subprocess.run([*command, *cc.AFTER_INTERNAL_ERROR], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[:300])
        return ctypes.CDLL(str(shared))
