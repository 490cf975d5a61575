"""`python -m benchmarks.cold_compile [PROGRAM...]`: what a cold compile is made of, in milliseconds of CPU time.

PROGRAM is `matmul`, `conv`, `norm` or `attention` (as in `benchmarks.schedule_time`), default all. Each runs in a fresh
Python with an empty cache of kernels and with byte code on disk (a run before makes it); the least of some runs counts,
row by row. Imports are those of the parts of polyc that a compile on a CPU needs, one after another: what an earlier
part has imported costs a later one nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.schedule_time import programs

NAMES = {"matmul": "matmul/512", "conv": "conv/64x56", "norm": "layer_norm/512x768", "attention": "attention/12x197x64"}
RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_compile", description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(NAMES))
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    chosen = given.programs or list(NAMES)
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"no program {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}")
    columns = [parts(dict(programs(f"^{NAMES[name]}$"))[NAMES[name]], given.runs) for name in chosen]
    print(f"{'milliseconds of CPU':<28}{''.join(f'{n:>11}' for n in chosen)}")
    for row in columns[0]:
        print(f"{row:<28}{''.join(f'{c[row]:11.1f}' for c in columns)}")
    print(f"{'all':<28}{''.join(f'{sum(c.values()):11.1f}' for c in columns)}")


def parts(scop: str, runs: int) -> dict[str, float]:
    """The least milliseconds of each part of compiling a Scop, given as JSON."""
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scop.json"
        path.write_text(scop, encoding="utf-8")
        for run in range(runs + 1):
            environment = {**os.environ, "POLYC_CACHE": f"{folder}/cache{run}", "PYTHONPYCACHEPREFIX": f"{folder}/code"}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            command = [sys.executable, "-c", CHILD, str(path)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found.append(json.loads(done.stdout))
    return {row: 1000 * min(f[row] for f in found[1:]) for row in found[0]}


CHILD = """
import json, sys, time
spent, last = {}, 0.0

def mark(part):
    global last
    now = time.process_time()
    spent[part] = now - last
    last = now

mark("Python")
import numpy; mark("numpy")
import islpy; mark("islpy")
import llvmlite.binding; mark("llvmlite")
import polyc.frontend_dsl.library.matrix; mark("modules: poly, frontend_dsl")
import polyc.scheduler.strategies.auto; mark("modules: scheduler")
import polyc.emit.compile; mark("modules: emit")
import polyc.graph_driver.worker.compile_operator; mark("modules: graph_driver")

from polyc.emit import compile as stages, targets
from polyc.emit.kernel import Report
from polyc.emit.llvm import jit
from polyc.emit.lowering import lower
from polyc.emit.lowering.checks import wanted
from polyc.poly import json_io
from polyc.scheduler.strategies.auto import automatic

inside = {}

def timed(module, name):
    plain = getattr(module, name)
    def run(*args, **kwargs):
        start = time.process_time()
        result = plain(*args, **kwargs)
        inside[name] = inside.get(name, 0.0) + time.process_time() - start
        return result
    setattr(module, name, run)

for name in ("build_loops", "proven", "run_passes"):
    timed(lower, name)
machine = targets.get(None)
scop = json_io.loads(open(sys.argv[1], encoding="utf-8").read())
last = time.process_time()
schedule = automatic(scop, machine); mark("schedule")
loops = stages.optimised_function(schedule.scop, schedule.tree, "f", machine, "llvm", Report(notes=[]), wanted(None))
mark("lowering: the rest")
text = stages.source_text(loops, machine, "llvm"); mark("LLVM's text")
image = jit.build_object(text, machine); mark("LLVM")
stages.load(image, loops.name, "llvm"); mark("loading")
rest = spent.pop("lowering: the rest")
after = {k: spent.pop(k) for k in ("LLVM's text", "LLVM", "loading")}
names = {"build_loops": "lowering: isl's AST", "proven": "lowering: proof", "run_passes": "lowering: passes"}
spent |= {label: inside.get(name, 0.0) for name, label in names.items()}
spent["lowering: the rest"] = rest - sum(inside.values())
print(json.dumps(spent | after))
"""


if __name__ == "__main__":
    main()
