"""The C99 that `polyc build` writes beside LLVM's code for the same operator: `python -m benchmarks.c99`.

Operators of the library, arguments from memory, one thread. The C source is compiled with `-std=c99 -O3 -march=native`
by every compiler that is here (and once with `-DPOLYC_PLAIN_C`, its loops without vectors); the shared objects are
called in turn. `--results FOLDER` writes a dated page, `--only NAME` restricts it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dated_page import add_outputs, publish
from benchmarks.report import geometric_mean, machine_line
from polyc.emit.c.cc import compilers
from polyc.emit.interface import Interface
from polyc.emit.kernel import address
from polyc.frontend_dsl import sigmoid, tanh
from polyc.frontend_dsl.library import (
    convolution,
    elementwise,
    matrix,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    scalar,
)
from polyc.graph_driver.artifacts.operator_files import code_of, write_operator
from polyc.graph_driver.bench.timing import interleave, pin_to_one_core
from polyc.poly.binding import evaluate
from polyc.poly.dtypes import f32, i8, u8

one, two, none = (1, 1), (2, 2), (0, 0)
FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O3", "-shared", "-fPIC")

OPERATORS: Mapping[str, Callable[[], Any]] = {
    "matmul 256x256x256": lambda: matrix.make_matmul(f32, 256, 256, 256),
    "conv 3x3, 64 to 64, 28x28": lambda: convolution.make_conv2d(
        f32, 1, (64, 64), (28, 28), (3, 3), one, one, one, one, True
    ),
    "pointwise 64 to 128, 784": lambda: convolution.make_pointwise(f32, 1, (64, 128), 784, True),
    "depthwise 3x3, 64, 56x56": lambda: convolution.make_depthwise(
        f32, 1, 64, (56, 56), (3, 3), one, one, one, one, True
    ),
    "softmax 256x512": lambda: normalization.make_softmax_rows(f32, (256,), 512),
    "layer norm 256x768": lambda: normalization.make_layer_norm(f32, 256, 768, 1e-5, True),
    "gelu 200000": lambda: elementwise.make_unary(scalar.gelu, f32, f32, (200_000,)),
    "add 512x512 + 512": lambda: elementwise.make_binary(scalar.add, (f32, f32), f32, ((512, 512), (512,)), (512, 512)),
    "max pool 3x3, 64, 56x56": lambda: pooling.make_max_pool(f32, 64, (56, 56), (28, 28), (3, 3), two, one, one),
    "mean 64x512x16 over 512": lambda: reduction.make_reduce("mean", f32, (64, 512, 16), (1,), False),
    "transpose 512x384": lambda: movement.make_transpose(f32, (512, 384), (1, 0)),
    "lstm 16 steps, 1, 64 to 128": lambda: recurrent.make_lstm(
        f32, 16, 1, 64, 128, recurrent.Form((sigmoid, tanh, tanh))
    ),
    "matmul u8 x i8 128x256x128": lambda: quantization.make_matmul_integer(u8, i8, 128, 256, 128, 1),
}


def rows(only: str, rounds: int, target: str = "native") -> Iterator[dict[str, Any]]:
    """One row for each operator: milliseconds (minimum, median) by who made the code, and the share of LLVM's speed."""
    # All files stay until the end: a library in the place of a deleted one may be taken for that one.
    with tempfile.TemporaryDirectory(prefix="polyc-c99-") as folder:
        for number, (name, make) in enumerate(OPERATORS.items()):
            if only in name:
                yield _row(name, make, Path(folder, str(number)), rounds, target)


def _row(name: str, make: Callable[[], Any], folder: Path, rounds: int, target: str) -> dict[str, Any]:
    code = code_of(make().scop(), target, name="operator_")
    files = write_operator(code, folder, ("c", "so")).files
    made = {"LLVM": files["so"]}
    for compiler in compilers():
        for label, more in ((compiler, ()), (f"{compiler} plain", ("-DPOLYC_PLAIN_C",))):
            made[label] = folder / f"{label}.so".replace(" ", "_")
            subprocess.run(
                [compiler, *FLAGS, f"-march={target}", *more, files["c"], "-o", made[label], "-lm"], check=True
            )
    arrays = _arguments(code.interface)
    calls = {who: _call(file, code.interface, arrays) for who, file in made.items()}
    _agree(name, calls, code.interface, arrays)
    repeats = _repeats(calls["LLVM"])
    loops = {who: partial(_times, call, repeats) for who, call in calls.items()}
    times = interleave(loops, rounds, clock=time.thread_time)
    return {
        "operator": name, "load": round(os.getloadavg()[0], 2),
        "ms": {who: [round(t.minimum / repeats, 5), round(t.median / repeats, 5)] for who, t in times.items()},
        "speed": {who: round(times["LLVM"].minimum / t.minimum, 3) for who, t in times.items()},
    }  # fmt: skip


def _arguments(interface: Interface) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    out = []
    for p in interface.parameters:
        shape = tuple(evaluate(e, {}) for e in p.array.shape)
        value = rng.random(shape) - 0.5 if p.dtype.is_float else rng.integers(0, 50, shape)
        out.append(np.asarray(value, p.dtype.np))
    return out


def _call(file: Path, interface: Interface, arrays: Sequence[np.ndarray]) -> Callable[[], None]:
    function = getattr(ctypes.CDLL(str(file)), interface.name)
    pointers = [ctypes.c_void_p(address(a)) for a in arrays]

    def call() -> None:
        if function(*pointers):
            raise RuntimeError(f"{interface.name} of {file} failed")

    return call


def _times(call: Callable[[], None], repeats: int) -> None:
    for _ in range(repeats):
        call()


def _repeats(call: Callable[[], None]) -> int:
    """How many calls take about 2 ms, of which calling through ctypes is little."""
    call()
    start = time.perf_counter()
    call()
    return max(1, int(2e-3 / max(time.perf_counter() - start, 1e-6)))


def _agree(name: str, calls: Mapping[str, Callable[[], None]], interface: Interface, arrays: Sequence[Any]) -> None:
    """Raise unless all give the same."""
    first: list[np.ndarray] | None = None
    for who, call in calls.items():
        for a, p in zip(arrays, interface.parameters):
            if p.role == "out":
                a.view(np.uint8)[...] = 0xA5
        call()
        got = [a.astype(np.float64) for a, p in zip(arrays, interface.parameters) if p.role == "out"]
        first = got if first is None else first
        for x, y in zip(got, first, strict=True):
            if not np.allclose(x, y, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(y).max()))):
                raise RuntimeError(f"{name}: {who} differs from LLVM's code")


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    who = list(rows[0]["ms"])
    lines = [
        "# C99 beside LLVM's code", "", machine_line(), "",
        "Made by `python -m benchmarks.c99`. Milliseconds of CPU time: minimum (median) of interleaved rounds, one",
        "thread; behind it the share of LLVM's speed, by the minima. `plain`: `-DPOLYC_PLAIN_C`, no vectors.",
        "`load` is the machine's load average while it ran.", "",
        f"| operator | {' | '.join(who)} | load |", f"| --- |{' ---: |' * (len(who) + 1)}",
    ]  # fmt: skip
    for r in rows:
        cells = [f"{r['ms'][w][0]:.4f} ({r['ms'][w][1]:.4f})" for w in who]
        cells = [c if w == "LLVM" else f"{c} {r['speed'][w]:.2f}" for c, w in zip(cells, who)]
        lines.append(f"| {r['operator']} | {' | '.join(cells)} | {r['load']} |")
    means = " | ".join(f"{geometric_mean(r['speed'][w] for r in rows):.2f}" if w != "LLVM" else "" for w in who)
    return "\n".join([*lines, f"| geometric mean | {means} | |"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.c99", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default="", metavar="NAME", help="operators whose name has this in it")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--target", default="native", help="of both: x86-64-v3, znver3, ... (native)")
    add_outputs(parser)
    options = parser.parse_args()
    if not compilers():
        print("no gcc or clang is on PATH", file=sys.stderr)
        return 2
    pin_to_one_core()
    made = []
    for row in rows(options.only, options.rounds, options.target):
        made.append(row)
        print(row["operator"], row["speed"], file=sys.stderr)
    if not made:
        parser.error(f"no operator's name has '{options.only}' in it")
    publish(options, "c99", page(made), made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
