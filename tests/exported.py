"""Operators built as files, compiled and run: strict C by gcc and clang, objects of LLVM, here or for other machines.

`python -m tests.exported` goes through every operator of the library, PolyBench and random programs here;
`python -m tests.aarch64` does it for Arm. A batch of operators becomes one program whose `main` reads the arguments
of one of them and writes what it returned and left in memory; each operator runs in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[1] / f) for f in ("", "tests", "tests/gpu", "tests/library"))

import numpy as np
from built_operators import STRICT, wanted

import polyc  # noqa: F401  (wires the packages)
from polyc.emit.c.cc import compilers
from polyc.emit.interface import Interface, Parameter
from polyc.emit.standalone import Standalone
from polyc.graph_driver.artifacts.operator_files import code_of
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.scop import Scop

GUARD = 64  # bytes behind each array that nobody may write
POISON = 0xA5
BATCH = 16
SECONDS = 120  # for one run
PLAIN_TYPES = {"bool_": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double"}
FAR = {2: 2e-2, 4: 1e-5, 8: 1e-9}  # by the bytes of a float, relative to the largest value


@dataclass(frozen=True)
class Trial:
    """One operator and its arguments; `wanted` gives the updated arrays, then the results.

    `exact`: they must be equal bit by bit, else within `FAR`.
    """

    label: str
    scop: Scop
    args: Sequence[Any]
    wanted: Callable[[], Sequence[np.ndarray]]
    exact: bool = False


@dataclass(frozen=True)
class Machine:
    """Where files of operators are compiled for and run.

    `target`: what code is made for (`None`: this machine). `compilers`: of C; the first one links, too. `run`: what
    stands before a program on a command line (an emulator). `link`: options for programs.
    """

    name: str
    target: str | None
    compilers: tuple[tuple[str, ...], ...]
    run: tuple[str, ...] = ()
    link: tuple[str, ...] = ()


def here() -> Machine | None:
    """This machine with the C compilers on PATH; None where there is none."""
    found = compilers()
    return Machine("this machine", None, tuple((c,) for c in found)) if found else None


@dataclass(frozen=True)
class Way:
    """How one file of an operator becomes an object file: LLVM's own, or C by a compiler with these flags."""

    name: str
    compiler: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


LLVM = Way("LLVM")
FLAGS = (("-O2",), ("-O2", "-DPOLYC_PLAIN_C"))


def ways_of(machine: Machine, flags: Sequence[tuple[str, ...]] = FLAGS) -> list[Way]:
    """LLVM's code, and C by every compiler with each list of flags."""
    return [LLVM, *(Way(" ".join((c[0], *f)), c, f) for c in machine.compilers for f in flags)]


@dataclass
class Built:
    """A trial with its texts; `wrong` collects what went wrong, by way."""

    trial: Trial
    code: Standalone
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def interface(self) -> Interface:
        return self.code.interface

    @cached_property
    def given(self) -> dict[str, np.ndarray]:
        scop = self.trial.scop
        return {n: np.array(a, scop.arrays[n].dtype.np) for n, a in zip(scop.args, self.trial.args, strict=True)}

    @cached_property
    def sizes(self) -> dict[str, int]:
        return bind_sizes(self.trial.scop, {n: a.shape for n, a in self.given.items()})

    def shape(self, p: Parameter) -> tuple[int, ...]:
        return tuple(evaluate(e, self.sizes) for e in p.array.shape)

    def bytes(self, p: Parameter) -> int:
        return int(np.prod(self.shape(p), dtype=np.int64)) * p.dtype.bytes

    def input(self) -> bytes:
        """What the program reads: arguments that have a value, in order."""
        return b"".join(self.given[p.array.name].tobytes() for p in self.interface.parameters if p.role != "out")

    def read(self, data: bytes) -> tuple[str, list[np.ndarray]]:
        """What is wrong ("" when nothing is) and the updated arrays and results in what the program wrote."""
        status = int(np.frombuffer(data[:4], np.int32)[0]) if len(data) >= 4 else -1
        if status:
            return f"returned {status}", []
        arrays: dict[str, list[np.ndarray]] = {"inout": [], "out": []}
        at = 4
        for p in self.interface.parameters:
            if p.role in arrays:
                end = at + self.bytes(p)
                arrays[p.role].append(np.frombuffer(data[at:end], p.dtype.np).reshape(self.shape(p)))
                if any(b != POISON for b in data[end : end + GUARD]):
                    return f"wrote behind {p.name}", []
                at = end + GUARD
        return "" if at == len(data) else f"wrote {len(data)} bytes instead of {at}", [*arrays["inout"], *arrays["out"]]


def program(batch: Sequence[Built]) -> str:
    """A program that runs the operator of the number that is its argument."""
    lines = [
        "#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", "",
        "static void *array(size_t bytes, int filled)", "{",
        f"  char *a = (char *)aligned_alloc(64, (bytes + {GUARD} + 63) / 64 * 64);",
        f"  memset(a, {POISON}, bytes + {GUARD});",
        "  if (filled && fread(a, 1, bytes, stdin) != bytes) exit(9);", "  return a;", "}", "",
    ]  # fmt: skip
    for number, b in enumerate(batch):
        lines += [f"{b.code.prototype};", *_runner(number, b), ""]
    lines += ["int main(int argc, char **argv)", "{", "  switch (argc > 1 ? atoi(argv[1]) : -1) {"]
    lines += [f"  case {n}: return run{n}();" for n in range(len(batch))]
    return "\n".join([*lines, "  }", "  return 8;", "}", ""])


def _runner(number: int, b: Built) -> list[str]:
    """The function that runs one operator."""
    lines = [f"static int run{number}(void)", "{", "  int status;"]
    after = []
    for k, p in enumerate(b.interface.parameters):
        t = PLAIN_TYPES.get(p.dtype.name, f"{'u' if p.dtype.kind == 'uint' else ''}int{p.dtype.bits}_t")
        if p.role == "scalar":
            lines += [f"  {t} a{k};", f"  if (fread(&a{k}, sizeof a{k}, 1, stdin) != 1) return 9;"]
            continue
        lines.append(f"  {t} *a{k} = ({t} *)array({b.bytes(p)}, {int(p.role != 'out')});")
        if p.role != "in":
            after.append(f"  fwrite(a{k}, 1, {b.bytes(p) + GUARD}, stdout);")
    values = [f"a{k}" for k in range(len(b.interface.parameters))]
    values += [f"INT64_C({b.sizes[p]})" for p, _ in b.interface.sizes]
    return [*lines, f"  status = {b.interface.name}({', '.join(values)});", "  fwrite(&status, 4, 1, stdout);",
            *after, "  return fflush(stdout);", "}"]  # fmt: skip


def build(trials: Iterable[Trial], machine: Machine) -> tuple[list[Built], list[str]]:
    """The texts of the operators, each function with a name of its own, and what could not be built."""
    made, wrong = [], []
    for number, t in enumerate(trials):
        try:
            code = code_of(t.scop, target=machine.target, name=f"operator_{number}")
            made.append(Built(t, code))
        except Exception as error:  # a finding, with its type
            wrong.append(f"{t.label}: build: {type(error).__name__}: {error}")
    return made, wrong


def run(built: Sequence[Built], machine: Machine, ways: Sequence[Way], folder: Path) -> int:
    """Run operators in every way on one machine; what is wrong goes to their `wrong`. Gives the number of runs."""
    wanted = {}
    for k, b in enumerate(built):
        with np.errstate(all="ignore"):
            wanted[k] = [np.asarray(x) for x in b.trial.wanted()]
    runs = 0
    for w, way in enumerate(ways):
        for n in range(0, len(built), BATCH):
            batch = range(n, min(n + BATCH, len(built)))
            place = folder / f"{w}_{n}"
            place.mkdir()
            ready = [k for k in batch if _object(built[k], way, place)]
            linked = _linked([built[k] for k in ready], machine, place)
            for number, k in enumerate(ready):
                runs += 1
                text = linked if isinstance(linked, str) else _difference(built[k], linked, number, machine, wanted[k])
                if text:
                    built[k].wrong[way.name] = text
    return runs


def _object(b: Built, way: Way, place: Path) -> bool:
    out = place / f"{b.interface.name}.o"
    if not way.compiler:
        out.write_bytes(b.code.object())
        return True
    source = out.with_suffix(".c")
    source.write_text(b.code.c())
    error = _command([*way.compiler, *STRICT, *way.flags, "-c", source, "-o", out])
    if error:
        b.wrong[way.name] = error
    return not error


def _linked(batch: Sequence[Built], machine: Machine, place: Path) -> Path | str:
    """The program of a batch, or why there is none."""
    main, out = place / "main.c", place / "program"
    main.write_text(program(batch))
    objects = [place / f"{b.interface.name}.o" for b in batch]
    command = [*machine.compilers[0], "-std=c11", "-Wall", "-Werror", *machine.link, main, *objects, "-o", out, "-lm"]
    return _command(command) or out


def _command(command: Sequence[Any]) -> str:
    """What a failed command said first; "" when it did not fail."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    lines = [s for s in done.stderr.splitlines() if "error" in s or "warning" in s] or done.stderr.splitlines()
    return (lines or [f"exit code {done.returncode}"])[0]


def _difference(b: Built, program: Path, number: int, machine: Machine, want: Sequence[np.ndarray]) -> str:
    """Runs one operator of a program; "" when it gives what is wanted."""
    command = [*machine.run, str(program), str(number)]
    try:
        done = subprocess.run(command, input=b.input(), capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"runs for more than {SECONDS} s"
    if done.returncode:
        return f"ended with {done.returncode}: {done.stderr.decode(errors='replace')[:200]}"
    text, got = b.read(done.stdout)
    return text or compared(got, want, b.trial.exact)


def compared(got: Sequence[np.ndarray], want: Sequence[np.ndarray], exact: bool) -> str:
    """ "" when arrays are equal, bit by bit or within `FAR`."""
    from back_ends import difference

    if exact or len(got) != len(want):
        return difference(got, want)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"array {k}: {g.dtype}{g.shape} against {w.dtype}{w.shape}"
        if w.dtype.kind in "iub":
            if not np.array_equal(g, w):
                return f"array {k}: {int((g != w).sum())} of {w.size} integers differ"
            continue
        x, y = g.astype(np.float64), w.astype(np.float64)
        known = ~np.isnan(y)
        scale = max(float(np.abs(y[known & np.isfinite(y)]).max(initial=0)), 1e-30)
        with np.errstate(invalid="ignore"):
            off = np.where(x == y, 0.0, np.abs(x - y))[known]
        if not (off <= FAR[w.dtype.itemsize] * scale).all():
            return f"array {k} is off by {float(np.nanmax(off)) / scale:.1e} of its largest value"
    return ""


# ---- what is run ----------------------------------------------------------------------------------------------------


def library(names: Sequence[str] | None = None) -> Iterator[Trial]:
    """Every operator of the library: small, and at sizes that no vector divides; or the small ones of these names."""
    from library_cases import CASES as SIZED
    from test_library_python import CASES, drawn

    small = {f"library {name}": CASES[name] for name in names or CASES}
    sized = {} if names else {f"library {name} at 3, 19, 11": partial(make, 3, 19, 11) for name, make in SIZED.items()}
    for label, make in (small | sized).items():
        operator = make()
        scop = operator.scop()
        shapes = {a: tuple(evaluate(e, {}) for e in scop.arrays[a].shape) for a in scop.args}
        args = [drawn(scop.arrays[a].dtype, shape) for a, shape in shapes.items()]
        yield Trial(label, scop, args, _plain(operator, args))


def polybench() -> Iterator[Trial]:
    """Every kernel of PolyBench at extents that no vector divides, sizes symbolic."""
    from examples import polybench as kernels

    for name in kernels.MODULES:
        k = kernels.load(name)
        primes = iter((7, 5, 11, 3, 13))
        sizes = {p: 3 if p in ("TSTEPS", "TMAX") else next(primes) for p in k.sizes["MINI"]}
        values = k.inputs(sizes, np.random.default_rng(0))
        constants = {n: v for n, v in values.items() if isinstance(v, int)}
        args = [v for n, v in values.items() if n not in constants]

        def wanted(k: Any = k, args: Any = args, constants: Any = constants) -> Sequence[np.ndarray]:
            return kernels.run(k.exact.python, k.exact, args, **constants)

        yield Trial(f"polybench {name}", k.operator.scop(**constants), args, wanted)


def random_trials(count: int, seed: int) -> Iterator[Trial]:
    """Random programs with symbolic sizes; those that call exp and the like are compared with the interpreter."""
    from back_ends import interpret
    from random_programs import generate

    for number in range(seed, seed + count):
        drawn = generate(number)
        operator = drawn.operator()
        scop, args = operator.scop(), drawn.arguments()
        plain = _plain(operator, args)
        if drawn.inexact:
            plain = partial(interpret, scop, scop.tree, args)
        yield Trial(f"random program {number}", scop, args, plain, exact=True)


def _plain(operator: Any, args: Sequence[Any]) -> Callable[[], Sequence[np.ndarray]]:
    return lambda: wanted(operator, args)


FAMILIES: dict[str, Callable[[int, int], Iterator[Trial]]] = {
    "library": lambda count, seed: library(),
    "polybench": lambda count, seed: polybench(),
    "random": random_trials,
}


def go_through(
    machine: Machine, ways: Sequence[Way], families: Sequence[str], count: int, seed: int, jobs: int = 1
) -> int:
    """Run whole families; prints a line for each, and what is wrong. Gives the number of wrong operators."""
    bad = 0
    for family in families:
        start = time.monotonic()
        made, wrong = build(FAMILIES[family](count, seed), machine)
        with tempfile.TemporaryDirectory(prefix="polyc-exported-") as folder, ThreadPoolExecutor(jobs) as pool:
            parts = [made[k::jobs] for k in range(jobs)]
            places = [Path(folder, str(k)) for k in range(jobs)]
            for place in places:
                place.mkdir()
            runs = sum(pool.map(lambda part, place: run(part, machine, ways, place), parts, places))
        wrong += [f"{b.trial.label}: {way}: {text}" for b in made for way, text in b.wrong.items()]
        print(f"{family}: {len(made)} operators, {runs} runs ({', '.join(w.name for w in ways)}), "
              f"{len(wrong)} wrong, {time.monotonic() - start:.0f} s", flush=True)  # fmt: skip
        for line in wrong:
            print(f"  {line}")
        bad += len(wrong)
    return bad


def assert_right(trials: Sequence[Trial], machine: Machine, folder: Path, flags: Sequence[tuple[str, ...]]) -> None:
    """Fails unless each operator, by LLVM and as strict C of every compiler, gives what plain Python gives."""
    made, wrong = build(trials, machine)
    assert not wrong and len(made) == len(trials)
    ways = ways_of(machine, flags)
    assert run(made, machine, ways, folder) == len(ways) * len(made)
    assert {b.trial.label: b.wrong for b in made if b.wrong} == {}


def arguments(text: str | None) -> argparse.ArgumentParser:
    """The arguments of a command that goes through families."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=200, help="random programs (200)")
    parser.add_argument("seed", nargs="?", type=int, default=0, help="of the first one (0)")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this one")
    parser.add_argument("--jobs", type=int, default=1, help="at the same time (1)")
    return parser


def main() -> int:
    options = arguments(__doc__).parse_args()
    machine = here()
    if machine is None:
        print("no C compiler is on PATH: gcc or clang", file=sys.stderr)
        return 2
    families = options.family or list(FAMILIES)
    return int(go_through(machine, ways_of(machine), families, options.count, options.seed, options.jobs) > 0)


if __name__ == "__main__":
    sys.exit(main())
