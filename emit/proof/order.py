"""Do the loops keep the order of every conflict, and do concurrent loops carry none?

The time of a store's run is its loop variables with the places in the text between them. The
conflicts of the Scop are pulled back to the loop variables and followed from loop to loop, as
`polyc.poly.legality` does with the members of a schedule tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.emit.loop_ir.loops import Block, For, Function
from polyc.emit.proof.read_back import Place, WrongLoops
from polyc.emit.proof.values import Executed
from polyc.poly.dependences import conflicts
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import is_bound

IN, OUT = isl.dim_type.in_, isl.dim_type.out


@dataclass(frozen=True, eq=False)
class Meeting:
    """How the runs of two stores are ordered: by the `loops` around both, then by the text.

    `text`: -1 when the first comes first, 1 when the second does, 0 for the same store, None
    when at most one of them runs (the arms of an `if`).
    """

    loops: tuple[For, ...]
    text: int | None


def meeting(a: Place, b: Place) -> Meeting:
    """Where the ways to the two stores part."""
    loops: list[For] = []
    for (s, i), (t, j) in zip(a.branches, b.branches):
        if i != j:
            order = (-1 if i < j else 1) if isinstance(s, Block) else None
            return Meeting(tuple(loops), order)
        assert s is t
        if isinstance(s, For):
            loops.append(s)
    return Meeting(tuple(loops), 0)


def concurrent(loop: For) -> bool:
    """Whether the order of the loop's iterations is open (GPU blocks and threads included)."""
    return loop.kind in ("parallel", "vector") or is_bound(loop.kind)


def surely_before(pairs: isl.Map, a: Place, b: Place, tied: int = 0) -> list[isl.Map]:
    """The parts of `pairs` `{ [vars of a] -> [vars of b] }` whose first run ends before the second
    begins; most likely part first. `tied`: so many outer loops are known to agree."""
    where = meeting(a, b)
    out: list[isl.Map] = []
    for d in range(tied, len(where.loops)):
        if not concurrent(where.loops[d]):
            out.append(pairs.order_lt(IN, d, OUT, d))
        pairs = pairs.equate(IN, d, OUT, d)
    return [pairs, *out] if where.text == -1 else out


def maybe_not_before(pairs: isl.Map, a: Place, b: Place, tied: int = 0) -> isl.Map | None:
    """Some of `pairs` whose first run may come after the second; None if there are none."""
    where = meeting(a, b)
    if where.text is None and len(where.loops) == tied:
        return None
    for d in range(tied, len(where.loops)):
        late = pairs.order_gt(IN, d, OUT, d)
        if concurrent(where.loops[d]):
            late = late.union(pairs.order_lt(IN, d, OUT, d))
        if not late.is_empty():
            return late
        pairs = pairs.equate(IN, d, OUT, d)
    return pairs if where.text in (0, 1) and not pairs.is_empty() else None


def prove_order(scop: Scop, fn: Function, places: Sequence[Executed]) -> None:
    """Check all pairs of stores against the conflicts of their statements.

    Raises:
        WrongLoops: two instances that conflict may run in the wrong order or at the same time.
    """
    known = conflicts(scop)
    runs: dict[str, list[Executed]] = {n: [] for n in scop.statements}
    for x in places:
        runs[x.stmt.name].append(x)
    for (source, sink), pairs in known.ordered.items():
        for a in runs[source]:
            for b in runs[sink]:
                late = maybe_not_before(_pulled(pairs, a, b), a.place, b.place)
                if late is not None:
                    raise _broken(fn, a, b, late, "may run before")
    for (source, sink), pairs in known.relaxed.items():
        for a in runs[source]:
            for b in runs[sink]:
                overlap = _overlapping(pairs, a, b)
                if overlap is not None:
                    raise _broken(fn, a, b, overlap, "may run at the same time as")


def _pulled(pairs: isl.Map, a: Executed, b: Executed) -> isl.Map:
    """`pairs` of instances as pairs of loop variables."""
    if a.instance.n_piece() > 1 or b.instance.n_piece() > 1:
        return pairs.apply_domain(a.relation.reverse()).apply_range(b.relation.reverse())
    pairs = pairs.preimage_domain_pw_multi_aff(a.instance).preimage_range_pw_multi_aff(b.instance)
    return pairs.intersect_domain(a.place.points).intersect_range(b.place.points)


def _overlapping(pairs: isl.Map, a: Executed, b: Executed) -> isl.Map | None:
    """Pairs, free to swap, that are different iterations of a loop in which they would overlap."""
    loops = meeting(a.place, b.place).loops
    copied = _copied(a, b)
    several = a.stmt.name != b.stmt.name  # (of one statement the lanes of a vector are added up)
    apart = [concurrent(loop) and (loop.kind != "vector" or d < copied or several) for d, loop in enumerate(loops)]
    if not any(apart):
        return None
    pairs = _pulled(pairs, a, b)
    for d, separate in enumerate(apart):
        if separate:
            overlap = pairs.order_lt(IN, d, OUT, d).union(pairs.order_gt(IN, d, OUT, d))
            if not overlap.is_empty():
                return overlap
        pairs = pairs.equate(IN, d, OUT, d)
    return None


def _copied(*runs: Executed) -> int:
    """How many loops are around the innermost buffer that a store goes to: in a vector loop
    among them each lane updates a copy of its own."""
    depths = [len(use.life.loops) for x in runs for use in x.uses if use.write and use.life is not None]
    return max(depths, default=0)


def _broken(fn: Function, a: Executed, b: Executed, pairs: isl.Map, what: str) -> WrongLoops:
    pairs = pairs.apply_domain(isl.Map.from_pw_multi_aff(a.instance))
    example = pairs.apply_range(isl.Map.from_pw_multi_aff(b.instance)).wrap().sample_point()
    return WrongLoops("order", f"{fn.name}: {b.stmt.name} {what} {a.stmt.name}, which it conflicts with: {example}")
