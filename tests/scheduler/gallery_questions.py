"""The sections of docs/schedules.md on questions and on schedules as files, with what is really printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

QUESTIONS = """\
## Questions

Counts are formulas in the sizes, exact for all of them. They print, add, multiply, and are called
with sizes. For `s = matmul.scop().schedule().tile(["i", "j", "k"], [64, 32, 16])`:

```python
{counts}
```

* `what` is `instances`, `flops` (`+ - * / // % ** min max` and intrinsics on floats, `fma` is two), `loads`,
  `stores`, `bytes` (every element of an argument read and of a result written once: what a perfect
  cache moves) or `traffic` (all loads and stores). `at="loop"` counts inside one iteration of that loop; its
  value and those of the loops around it join the sizes (`k.out` is written `k_out` as a keyword).
* `s.footprint("A", at="k.out")` is the number of distinct elements of A that one iteration of `k.out`
  touches, and `.largest(M=..., ...)` its maximum over the loops; `s.reuse("A", at=...)` is how often each is
  touched, `s.intensity()` flops per byte.
* `s.misses(32 << 10, 64, M=..., ...)` predicts how many lines of 64 bytes each array's accesses bring into a cache
  of 32 KiB, from footprints alone; a simulated cache (LRU) agrees within 25 % where tiles leave it some room
  (`tests/scheduler/test_misses.py`).
* `s.miss_formulas(64)` has them as formulas in the sizes, for this schedule's order: a case for each loop, with the
  lines that one of its iterations touches and, if a cache keeps these, the lines that each array fetches. Of a product
  in the order i, j, k, B fetches `K*((N + 15)//16)` lines where a cache keeps one iteration of i, and
  `K*M*((N + 15)//16)` where it keeps one of j; in tiles of 32 x 64 x 16 it is `K*((M + 31)//32)*((N + 15)//16)` where
  one of `j.out` stays. Where loops part, each part has its own cases, which add up. `always=512` leaves out the cases
  that a cache of 512 lines or more never meets. `polyc explain` prints those of both orders. A simulated cache that is
  a quarter larger than needed agrees within 10 %; of every cache, the lines are at most those of the case whose
  iteration fits twice and at least those of a cache of twice the size, within 10 % (products and stencils, plain, in
  tiles, in skewed tiles and as scheduled: `tests/scheduler/test_miss_formulas.py`).
* What is too hard to count, or depends on data, is an upper bound: it prints "at most ..." and has
  `exact == False` and `why`. An unbounded or data-dependent loop raises `CountingError`.

What may run at the same time or in any order:

```python
{loops}
```

Dependences are in the program's own order. Value-based ones join a read to the write whose value it
sees; `value_based=False` gives all pairs that touch one element. They have `kind`, `source`, `sink`, `array`,
`relation` (an isl map), `distance`, the lines, and `instances(M=..., ...)`:

```text
{dependences}
```

On PolyBench all of this equals what a recorded plain-Python run does, instance by instance
(`tests/exactness/`).

`polyc explain FILE.py:OP` says what the automatic schedule decided, what it declined and why, and what each
loop touches; `--json` gives the same as data, and `schedule.decisions` holds the records. For a model it
lists kernels, what was joined or kept apart, layouts, and what runs on the host.
"""

FILES = """\
## Trees as files

`s.to_yaml()` is the schedule as a text to edit: loops by name, values and conditions in Python's
syntax. For the tiled `s` above with `.parallel("i.out")`:

```yaml
{yaml}
```

`polyc.Schedule.from_yaml(matmul.scop(), text)` reads it back for any sizes, and checks it as any other
step; an error names line and key (`line 8: for S0: 'i / 64' is not affine ...`). A mapping is a node: `loops`
with `permutable: true`, `promote` with `to`, `space`, `copy`, `layout`, and a `body`; a list runs one part
after another; `of` and `where` pick the statements and instances of a part. A loop has `run: parallel`,
`vector 8`, `unroll 4`, `block.x`, ... Steps that changed the program (`inline`, `rfactor`) are kept under `first`.
`statements` is for the reader only.

`s.diff(t)` says what is different between two schedules of one algorithm; each change is a record
with `what`, `subject`, `before`, `after`:

```text
{diff}
```

On the command line: `polyc inspect FILE.py:OP --stage schedule --yaml`, `--schedule FILE` for a file instead of the
automatic schedule, `polyc diff FILE.py:OP A.yaml [B.yaml]`, and `polyc bisect FILE.py:OP TRACE` for the first step of a
saved trace that is refused, or with `--slower 1.5` the first after which the kernel takes that much longer.
"""


def questions(matmul: Any) -> Iterator[str]:
    """The section on questions."""
    s = matmul.scop().schedule().tile(["i", "j", "k"], [64, 32, 16])
    asked = ['s.count("flops")', 's.count("bytes")', 's.count("flops")(M=3, N=4, K=5)', "s.intensity()",
             's.footprint("A", at="k.out")', 's.footprint("A", at="k.out").largest(M=100, N=100, K=100)',
             's.reuse("A", at="k.out")', "s.misses(32 << 10, M=256, N=256, K=256)"]  # fmt: skip
    free = ["s.parallel_loops()", "s.parallel_loops(reductions=True)", "s.permutable_bands()"]
    found = "\n".join(str(d) for d in s.dependences("RAW"))
    text = QUESTIONS.format(counts=_answers(asked, s), loops=_answers(free, s), dependences=found)
    yield from text.splitlines()


def files(matmul: Any) -> Iterator[str]:
    """The section on schedules as files."""
    start = matmul.scop().schedule()
    s = start.tile(["i", "j", "k"], [64, 32, 16]).parallel("i.out")
    t = start.tile(["i", "j", "k"], [32, 32, 16]).permute("j.out", "k.out", "i.out").promote("A", "k.out")
    yield from FILES.format(yaml=s.to_yaml().rstrip("\n"), diff=s.diff(t)).splitlines()


def _answers(asked: list[str], s: Any) -> str:
    width = max(map(len, asked))
    return "\n".join(f"{a:<{width}}  # {eval(a, {'s': s})}" for a in asked)
