"""An illegal schedule: what is wrong, for which sizes it would be right, how to see it, and its repair.

python examples/repair.py --picture repair.svg     who reads what from whom, before and after
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import polyc
from examples.pictures import Panel, executed, panels, picture
from polyc import dims, f64, inout, op

N = dims("N")
SMALL = 8


@op(reassociate=False)
def smooth(A: inout(f64[N]), B: inout(f64[N])):
    for i in range(1, N - 1):
        B[i] = (A[i - 1] + A[i] + A[i + 1]) / 3
    for j in range(1, N - 1):
        A[j] = (B[j - 1] + B[j] + B[j + 1]) / 3


def refused() -> polyc.IllegalSchedule:
    """Both loops as one: the second statement would read elements of B that are not there yet."""
    try:
        smooth.scop().schedule().fuse("i", "j")
    except polyc.IllegalSchedule as refusal:
        return refusal
    raise AssertionError("was accepted")


def panel(title: str, order: list[tuple[str, int]], at: Callable[[str, int], int]) -> Panel:
    """The instances of both statements, one above the other, at the iterations in which they run; an arrow from each
    element of B that is written to where it is read, red where that comes first."""

    def place(instance: tuple[str, int]) -> tuple[float, float]:
        return at(*instance), 3.0 if instance[0] == "S0" else 0.0

    rank = {instance: k for k, instance in enumerate(order)}
    arrows = [
        (place(("S0", k)), place(("S1", j)), rank["S0", k] > rank["S1", j])
        for _, j in (x for x in order if x[0] == "S1")
        for k in (j - 1, j, j + 1)
        if ("S0", k) in rank
    ]
    labels = {place(x): f"{'B' if x[0] == 'S0' else 'A'}{x[1]}" for x in order}
    return Panel(title, [place(x) for x in order], labels=labels, arrows=arrows, path=False)


def drawn() -> str:
    """As written, as refused, as repaired."""
    small = smooth.scop(N=SMALL).schedule()
    refusal, count = refused(), SMALL - 2
    repaired = refusal.repair.apply(small)
    orders = [[(name, p[0]) for name, p in executed(s)] for s in (small, repaired)]
    one_by_one = [(name, i) for i in range(1, SMALL - 1) for name in ("S0", "S1")]
    moved = refusal.repair.steps[-1].args["shift"]
    return panels(
        [
            panel("as written: two loops", orders[0], lambda name, i: i - 1 + (count if name == "S1" else 0)),
            panel("fused: refused", one_by_one, lambda name, i: i - 1),
            panel("fused and shifted: legal", orders[1], lambda name, i: i - 1 + (moved if name == "S1" else 0)),
        ],
        "iterations",
        "",
    )


def main() -> None:
    refusal = refused()
    print(refusal)
    print("legal for the sizes:", refusal.legal_if)
    print("seen by this script:", *refusal.witness.script().splitlines(), sep="\n  ")
    repaired = refusal.repair.apply(smooth.scop().schedule())
    print(repaired.tree)

    rng = np.random.default_rng()
    a, b = rng.standard_normal(100), rng.standard_normal(100)
    x, y = a.copy(), b.copy()
    smooth.python(a, b)
    smooth.compile(schedule=repaired)(x, y)
    print("bit-equal to plain Python:", np.array_equal(a, x) and np.array_equal(b, y))
    assert np.array_equal(a, x) and np.array_equal(b, y)
    picture(drawn, __doc__)


if __name__ == "__main__":
    main()
