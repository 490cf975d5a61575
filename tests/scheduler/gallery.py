"""The examples of docs/schedules.md: every transformation with its tree before and after.

python tests/scheduler/gallery.py > docs/schedules.md
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gallery_questions

import polyc
from polyc import dims, empty, f32, f64, grid, i8, i32, inout, op, programs, u8, zeros

M, N, K, T = dims("M N K T")


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def stencil(A: inout(f32[N]), *, steps: int = 20):
    for t in range(steps):
        for i in range(1, N - 1):
            A[i] = A[i - 1] + A[i] + A[i + 1]


@op
def jacobi(A: inout(f32[N]), B: inout(f32[N]), *, steps: int = 20):
    for t in range(steps):
        for i in range(1, N - 1):
            B[i] = A[i - 1] + A[i] + A[i + 1]
        for j in range(1, N - 1):
            A[j] = B[j - 1] + B[j] + B[j + 1]


@op
def smooth(A: f32[N], B: inout(f32[N])):
    t = empty((N,), f32)
    for i in range(N):
        t[i] = A[i] * A[i]
    for j in range(1, N):
        B[j] = t[j - 1] + t[j]


@op
def norms(A: f32[M, N]) -> f32[M]:
    y = empty((M,), f32)
    for i in range(M):
        s = 0.0
        for j in range(N):
            s += A[i, j] * A[i, j]
        y[i] = s
    return y


@op
def products(u: f32, A: f32[M, K], B: f32[K, N], C: inout(f32[M, N])):
    for i, k, j in grid(M, K, N):
        C[i, j] += u * A[i, k] * B[k, j]
        C[i, j] += A[i, k] + B[k, j]


@op
def strips(A: f32[N], B: f32[N]) -> f32[N]:
    C = empty((N,), f32)
    for b in range(0, N, 32):
        for i in range(b + 1, min(b + 32, N) + 1):
            t = A[i - 1] * B[i - 1]
            C[i - 1] = t if t > 0.0 else 0.0
    return C


@op
def codes(A: u8[M, K], x: i8[K]) -> i32[M]:
    C = zeros((M,), i32)
    for i, k in grid(M, K):
        C[i] += i32(A[i, k]) * i32(x[k])
    return C


@op
def upsampled(g: f32[N], w: f32[5], X: inout(f32[2 * N + 3])):
    for o, k in grid(N, 5):
        X[2 * o + k] += g[o] * w[k]


@op
def flipped(A: inout(f32[M, N])):
    t = empty((N,), f32)
    for i in range(M):
        for j in range(N):
            t[j] = A[i, N - 1 - j]
        for j in range(N):
            A[i, j] = t[j]


@op
def orthogonal(A: inout(f64[M, N]), R: inout(f64[N, N])):
    for k in range(N):
        for i in range(M):
            R[k, k] += A[i, k] * A[i, k]
        for j in range(k + 1, N):
            for i in range(M):
                R[k, j] += A[i, k] * A[i, j]
            for i in range(M):
                A[i, j] -= A[i, k] * R[k, j] / R[k, k]


@op
def solved(L: f32[N, N], X: inout(f32[N])):
    for i in range(N):
        w = X[i]
        for j in range(i):
            w -= L[i, j] * X[j]
        X[i] = w / L[i, i]


@op
def halves(A: inout(f32[N, N])):
    for i in range(N):
        for j in range(i):
            A[i, j] = A[i, j] * 2.0
        for j in range(i, N):
            A[i, j] = A[i, j] * 2.0


@op
def lu(A: inout(f64[N, N])):
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] /= A[k, k]
        for i, j in grid((k + 1, N), (k + 1, N)):
            A[i, j] -= A[i, k] * A[k, j]


@op
def scale(A: inout(f32[M, N]), B: inout(f32[M, N])):
    for i, j in grid(M, N):
        A[i, j] = 2.0 * A[i, j]
        B[i, j] = 3.0 * B[i, j]


@op
def shifted(A: inout(f32[N]), B: inout(f32[N])):
    for i in range(N - 1):
        A[i] = 2.0 * B[i]
        B[i] = A[i] * A[i + 1]


@op
def between(A: f32[M, N], B: inout(f32[M, N])):
    t = empty((M, N), f32)
    for i, j in grid(M, N):
        t[i, j] = A[i, j] * A[i, j]
    for i, j in grid(M, N):
        B[i, j] = t[i, j] + t[i, N - 1 - j]


@op
def shares(A: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        s = 0.0
        for j in range(N):
            s += A[i, j]
        for j in range(N):
            Y[i, j] = A[i, j] / s
    return Y


@op
def column_sums(A: f32[M, N], W: inout(f32[N])):
    for r, k in grid(M, N):
        W[k] += A[r, k]


@op
def running_sums(X: inout(f32[M, N])):
    for i in range(M):
        for j in range(1, N):
            X[i, j] = X[i, j - 1] + X[i, j]


@op
def borders(A: f32[N]) -> f32[2]:
    r = zeros((N,), f32)
    t = zeros((N,), f32)
    Y = empty((2,), f32)
    for i in range(N):
        r[i] = A[i] * A[i]
    for j in range(N):
        t[j] = A[j] * A[j]
    Y[0] = r[0] + t[1]
    Y[1] = r[2]
    return Y


PROGRAMS = {
    "borders": borders,
    "between": between,
    "shares": shares,
    "column_sums": column_sums,
    "running_sums": running_sums,
    "matmul": matmul,
    "stencil": stencil,
    "jacobi": jacobi,
    "smooth": smooth,
    "norms": norms,
    "products": products,
    "flipped": flipped,
    "shifted": shifted,
    "halves": halves,
    "upsampled": upsampled,
    "strips": strips,
    "codes": codes,
    "lu": lu,
    "solved": solved,
    "orthogonal": orthogonal,
    "scale": scale,
}


@dataclass(frozen=True)
class Example:
    """`call` on the schedule `s` of a program, after `first` if that is given; `refused` is one that is not legal."""

    name: str
    program: str
    call: str
    first: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Group:
    title: str
    examples: tuple[Example, ...]


GROUPS = (
    Group("Blocks", (
        Example("split", "stencil", 's.split("i", 8)'),
        Example("strip_mine", "stencil", 's.strip_mine("i", 8)'),
        Example("unsplit", "stencil", 's.unsplit("i.out")', first='s.strip_mine("i", 8)', refused='s.unsplit("t")'),
        Example("tile", "matmul", 's.tile(["i", "j", "k"], [64, 64, 16])',
                refused='polyc_stencil.tile(["t", "i"], [4, 8])'),
        Example("unroll_and_jam", "matmul", 's.unroll_and_jam("i", 4)'),
    )),
    Group("Parts of a loop", (
        Example("index_split", "stencil", 's.index_split("i", "N // 2")'),
        Example("peel", "norms", 's.peel("j", first=1, last=1)'),
        Example("version", "norms", 's.version("i", "N <= 4096").promote("A", "i", copy_in=True)'),
    )),
    Group("Order", (
        Example("interchange", "matmul", 's.interchange("j", "k")', refused='polyc_stencil.interchange("t", "i")'),
        Example("permute", "scale", 's.permute("j", "i")'),
        Example("reverse", "scale", 's.reverse("i")', refused='polyc_stencil.reverse("i")'),
        Example("skew", "stencil", 's.skew("i", "t", 1)'),
        Example("shift", "scale", 's.shift("j", 1, ["S1"])'),
        Example("reorder_statements", "scale", 's.reorder_statements(["S1", "S0"])'),
        Example("set_order", "scale", "s.set_order(s.interchange('i', 'j').tree)"),
    )),
    Group("Joining and separating", (
        Example("fuse", "jacobi", 's.fuse("i", "j", shift=1)', refused='s.fuse("i", "j")'),
        Example("distribute", "scale", 's.distribute("i")', refused='polyc_jacobi.distribute("t")'),
    )),
    Group("How a loop runs", (
        Example("parallel", "matmul", 's.parallel("i")', refused='s.parallel("k")'),
        Example("vectorize", "matmul", 's.vectorize("j", 8)', first='s.interchange("j", "k")'),
        Example("unroll", "norms", 's.unroll("j", 4)'),
        Example("bind", "scale", 's.bind("i", "block.x").bind("j", "thread.x")'),
        Example("serial", "scale", 's.serial("j").vectorize("i", 8)', first='s.vectorize("j", 8)'),
    )),
    Group("Storage", (
        Example("promote", "matmul", 's.promote("B", "k.out", layout=[1, 0])', first='s.tile("*", [32, 32, 16])',
                refused='s.promote("C", "k.out", copy_in=False)'),
        Example("contract", "norms", 's.contract("s")'),
    )),
    Group("Other programs that compute the same", (
        Example("inline", "smooth", 's.inline("t")'),
        Example("outline", "products", 's.outline("S0", ["i", "k"])'),
        Example("split_sum", "products", 's.split_sum("S1")'),
        Example("expand", "flipped", 's.expand("t", "i")'),
        Example("coalesce", "solved", 's.coalesce("w", "X")', refused='s.coalesce("w", "L")'),
        Example("split_statement", "norms", 's.split_statement("S1", "j_1")', first='s.index_split("j", 8)'),
        Example("unite_statements", "halves", 's.unite_statements("S0", "S1")', first='s.fuse("j", "j_1")'),
        Example("gather", "upsampled", 's.gather("S0").parallel("X_0")'),
        Example("read_first", "shifted", 's.read_first("S1", "A[i + 1]").reorder_statements(["S1_A_read", "S0"])'),
        Example("rfactor", "norms", 's.rfactor("j.in").vectorize("j.in", 8)', first='s.split("j", 8)'),
        Example("eliminate", "borders", "s.eliminate()"),
        Example("normalise", "strips", "s.normalise()"),
        Example("in_words", "codes", 's.in_words("S1", 4)'),
        Example("recompute", "smooth", 's.recompute("t", "j").fuse("j_1", "j").contract("t")',
                refused='s.recompute("A", "j")'),
        Example("relayout", "between", 's.relayout("t", [1, 0])', refused='s.relayout("A", [1, 0])'),
    )),
)  # fmt: skip

PROGRAM_GROUP = Group("Schedule programs", (
    Example("tile_product", "matmul", 'tile_product(s, rows=6, columns=16, pack="B")',
            refused='tile_product(s.split("k", 8))'),
    Example("distribute_all", "norms", 'distribute_all(s, "i")', refused='distribute_all(polyc_jacobi, "t")'),
    Example("block_factorization", "lu", "block_factorization(s, block=96, rows=8, columns=24)",
            refused="block_factorization(s, rows=7)"),
    Example("block_columns", "orthogonal", 'block_columns(s, "k", "j", size=16)',
            refused='block_columns(s, "k", "j", size=1)'),
    Example("share_blocks", "between", 'share_blocks(s, "i", "i_1", size=32, keep="t")',
            refused='share_blocks(s, ["i", "j"], ["i_1", "j_1"])'),
    Example("row_lanes", "running_sums", 'row_lanes(s, "i", rows=16, lanes=8, keep="X")',
            refused='row_lanes(s.interchange("i", "j"), "j", rows=16)'),
    Example("time_tiles", "jacobi", 'time_tiles(s, "t", sweeps=4, rows=16)', refused='time_tiles(s, "t", skew=0)'),
    Example("interleave_sweeps", "stencil", 'interleave_sweeps(s, "t", sweeps=4)',
            refused='interleave_sweeps(s, "t", skew=1)'),
    Example("gather_sums", "upsampled", 'gather_sums(s, "o")'),
    Example("partial_sums", "column_sums", 'partial_sums(s, "r", rows=64)',
            refused='partial_sums(polyc_running_sums, "i", rows=4)'),
    Example("rows_per_block", "norms", 'rows_per_block(s, "i", threads=128)',
            refused='rows_per_block(polyc_stencil, "t")'),
    Example("keep_rows", "shares", 'keep_rows(s, "i", "A", where="N <= 4096")', first='s.bind("i", "block.x")',
            refused='keep_rows(polyc_running_sums, "i", "X")'),
    Example("scan_panels", "running_sums", 'scan_panels(s, "i", "j", rows=32, panel=16)',
            refused='scan_panels(s.interchange("i", "j"), "j", "i")'),
))  # fmt: skip
PROGRAMS_TEXT = """\
A schedule program is a function from a schedule to a schedule that takes several of the steps above, on any operator:
it finds what it needs by access relations and takes the rest as names and numbers. The automatic schedules are made of
the same programs. Their steps are in the trace as if they had been written one by one, so `s.program()` shows them, and
one can go on from there by hand or with the next program; `s.in_one_check(lambda s: ...)` checks the result of several
only. `from polyc.scheduler.programs import tile_product, ...`, or `polyc.programs.tile_product`.
[gemm-by-hand.md](gemm-by-hand.md) uses them on a matrix product.
"""

INTRO = """\
# Schedules

A schedule says when the statements of an operator run, and where its arrays live. It is a tree:
loops (several in one bracket are directly nested), sequences, buffers, and the statements at the
leaves. `op.scop().schedule()` is the program order; every transformation returns a new schedule,
is checked exactly before it is accepted, and is recorded in a trace.

```python
s = matmul.scop().schedule()
s = s.tile(["i", "j"], [32, 32]).vectorize("j.in", 8).parallel("i.out")
print(s)  # the tree
print(s.program())  # the steps as Python, to edit and run
print(matmul.schedule().program())  # the automatic schedule is made of such steps, too
text = s.save()  # one step a line
polyc.Schedule.replay(matmul.scop(), text)  # the same schedule
kernel = matmul.compile(schedule=s)
```

**Loops are addressed by name.** A pattern may stand where a loop or a list of loops is taken:
`"i*"` is every loop whose name begins with i, `"S0.*"` every loop around the statement S0,
`"S0.*.in"` those that end in `.in`. A transformation of one loop is applied to each match in turn;
where exactly one loop is needed, one must match.

**A refusal has a reason.** `IllegalSchedule` names the smallest sizes, the two statement instances
and the array element that clash; `error.witness.script()` is a NumPy script that shows the two
different values. `ScheduleError` is for what makes no sense (no such loop, loops not nested).

Below, every transformation with the tree before and after. The page is made by
`tests/scheduler/gallery.py` and checked by the tests.
"""


def schedule(program: str) -> Any:
    return PROGRAMS[program].scop().schedule()


def evaluate(call: str, s: Any) -> Any:
    """The value of an example's text; `polyc_<program>` is the schedule of another program."""
    names = {f"polyc_{p}": schedule(p) for p in PROGRAMS if f"polyc_{p}" in call}
    return eval(call, {"s": s, **{n: getattr(programs, n) for n in programs.__all__}, **names})


def before(e: Example) -> Any:
    s = schedule(e.program)
    return evaluate(e.first, s) if e.first else s


def after(e: Example) -> Any:
    return evaluate(e.call, before(e))


def refusal(e: Example) -> str:
    """The message of the refused call."""
    try:
        evaluate(e.refused, before(e))
    except polyc.IllegalSchedule as error:
        error.terse = True
        return str(error)
    except polyc.ScheduleError as error:
        return str(error)
    raise AssertionError(f"{e.refused} is legal")


def lines(e: Example) -> Iterator[str]:
    doc = inspect.getdoc(getattr(programs if e.name in programs.__all__ else polyc.Schedule, e.name))
    assert doc is not None
    yield f"### `{e.name}`"
    yield ""
    yield "```text"
    yield doc
    yield "```"
    yield ""
    start = f"the schedule of `{e.program}`" + (f" after `{e.first}`" if e.first else "")
    yield f"From {start}, `{e.call}` makes"
    yield ""
    yield "```text"
    yield from side_by_side(tree(before(e)), tree(after(e)))
    yield "```"
    if e.refused:
        yield ""
        yield f"`{e.refused.replace('polyc_', '')}` is refused:"
        yield ""
        yield "```text"
        yield from textwrap.wrap(refusal(e), 100)
        yield "```"
    yield ""


def tree(s: Any) -> list[str]:
    return [line.rstrip() for line in str(s).splitlines()]


def side_by_side(a: list[str], b: list[str]) -> list[str]:
    """Before above after: the trees can be wide."""
    return [*a, "", "    becomes", "", *b]


def refusals() -> Iterator[str]:
    """The section on refusals, with what the examples really print."""
    start = schedule("stencil")
    try:
        start.tile(["t", "i"], [4, 8])
    except polyc.IllegalSchedule as error:
        text = error.detailed().replace(str(Path(__file__).parent) + "/", "")
        repaired = tree(error.repair.apply(start))
    guarded = start.interchange("t", "i", guarded=True)
    yield from REFUSALS.format(
        detailed=text, repaired="\n".join(repaired), guarded="\n".join(tree(guarded))
    ).splitlines()


REFUSALS = """\
## Refusals

`str(error)` is one line; `error.detailed()` is for people. For `stencil.tile(["t", "i"], [4, 8])`:

```text
{detailed}
```

Everything in it is also there as data, and is worked out only when asked for:

* `error.witness`: the smallest sizes with a conflict, the two instances, the element, the kind (RAW,
  WAR, WAW), `witness.values`. `witness.script()` is a stand-alone NumPy script: the program as
  functions, both orders as lists of instances, random data, and the two values; its exit status is 0 only
  if they differ. Where the program's own arithmetic hides the difference (it stores the same value twice,
  or overwrites it later) the script looks in the moment of the conflict, or stores symbolic tags, and says so.
  A refused parallel loop is shown by an order that it allows, a refused buffer by its uninitialised elements.
* `error.legal_if`: the exact sizes for which the step would be legal, over all conflicts that it
  breaks; `str` prints it, `.set` is the isl set, `.holds(N=4)` asks, and it is false when there are none.
* `error.repair`: the smallest change that makes the step legal: shifts, reversals and skews from the
  dependence distances, after nests of one time loop have been fused. It is a list of steps that ends with
  the wanted one; `error.repair.apply(s)` does them:

```text
{repaired}
```

**`guarded=True`** on a step that changes the order emits both versions: the new one for the sizes
for which it is legal, the old one, its loops named `else.<loop>`, for all others. It is refused only if there are
no such sizes. `stencil.interchange("t", "i", guarded=True)` makes

```text
{guarded}
```

Searches that are refused a thousand times set `terse` on the schedule (`dataclasses.replace(s, terse=True)`):
the message then names the conflict only. `tests/gauntlet/` is the suite that checks verdicts, witnesses and
conditions against brute force.
"""


def page() -> str:
    out = [INTRO, "## The programs", ""]
    out += ["```python", *(inspect.getsource(p.fn).rstrip() + "\n" for p in PROGRAMS.values())]
    out[-1] = out[-1].rstrip()
    out += ["```", ""]
    for group in GROUPS:
        out += [f"## {group.title}", ""]
        for e in group.examples:
            out += lines(e)
    out += [f"## {PROGRAM_GROUP.title}", "", *PROGRAMS_TEXT.splitlines(), ""]
    for e in PROGRAM_GROUP.examples:
        out += lines(e)
    for section in (gallery_questions.questions(matmul), gallery_questions.files(matmul), refusals()):
        out += [*section, ""]
    return "\n".join(out).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
