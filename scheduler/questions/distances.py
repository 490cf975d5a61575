"""Dependence distances of nested loops, and the smallest skew factors and shifts that make all of
them non-negative: an integer linear program over Farkas multipliers.

For each pair of statements the distances of their conflicts form a set D; by Farkas' lemma the
affine forms c0 + c.d that are non-negative on D form a set again, which isl computes
(`coefficients`). Adding one loop's unknown factors and the statements' unknown shifts to it leaves
a small linear system, minimised by its lexicographic minimum. Feautrier, "Some efficient solutions
to the affine scheduling problem I" (IJPP 1992); the cost and the order of loops follow Bondhugula
et al., "A practical automatic polyhedral parallelizer" (PLDI 2008).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.poly.dependences import conflicts
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Member

LARGEST = 64  # factors and shifts beyond this are no repair


@dataclass(frozen=True)
class Adjustment:
    """What one loop needs: its sign (-1: reversed), its skew factor by each earlier loop, and the
    shift of each statement (zero ones left out)."""

    sign: int
    factors: Mapping[str, int]
    shifts: Mapping[str, int]

    @property
    def cost(self) -> int:
        """How much it changes the loop."""
        amounts = [*self.factors.values(), *self.shifts.values()]
        return sum(abs(v) for v in amounts) + (self.sign < 0)


Pairs = dict[tuple[str, str], isl.Map]


def pairs_below(scop: Scop, above: Sequence[Member], statements: Sequence[str], reductions: bool = False) -> Pairs:
    """The conflicts among statements within one iteration of the loops `above`."""
    known = conflicts(scop)
    found: Pairs = {}
    for source in (known.ordered, known.relaxed) if reductions else (known.ordered,):
        for (s, t), m in source.items():
            if s in statements and t in statements:
                for outer in above:
                    m = m.intersect(outer.schedule[s].eq_map(outer.schedule[t]))
                if not m.is_empty():
                    found[s, t] = found[s, t].union(m) if (s, t) in found else m
    return found


def distances(pairs: Pairs, loops: Sequence[Mapping[str, isl.PwAff]]) -> dict[tuple[str, str], isl.Set]:
    """`{ [d1, ..., dn] }` without parameters: sink time minus source time in each loop."""
    out = {}
    for (s, t), m in pairs.items():
        deltas = m.apply_domain(_times(loops, s)).apply_range(_times(loops, t)).deltas()
        out[s, t] = deltas.project_out(isl.dim_type.param, 0, deltas.dim(isl.dim_type.param))
    return out


def _times(loops: Sequence[Mapping[str, isl.PwAff]], stmt: str) -> isl.Map:
    total = isl.Map.from_pw_aff(loops[0][stmt])
    for loop in loops[1:]:
        total = total.flat_range_product(isl.Map.from_pw_aff(loop[stmt]))
    return total


Row = tuple[bool, int, dict[str, int]]
"""`constant + sum(coefficient * variable)`, an equality or >= 0."""


def smallest_adjustment(
    between: Mapping[tuple[str, str], isl.Set], outer: Sequence[str], statements: Sequence[str],
    at_least: int = 0, exactly: bool = False, signs: Sequence[int] = (1, -1),
) -> Adjustment | None:  # fmt: skip
    """The cheapest way to make the last distance non-negative (`at_least`) on all of `between`.

    `between` are distances in the loops `outer` and, last, the loop itself. `exactly`: the
    distance must equal `at_least` everywhere. None when no constants do it. A reversal costs 1,
    a factor or shift its size; at equal cost shifts come before reversals before skews.
    """
    best: tuple[tuple[int, int], Adjustment] | None = None
    for sign in signs:
        rows: list[Row] = []
        for (s, t), d in between.items():
            for part in d.get_basic_sets():
                for direction in (1, -1) if exactly else (1,):
                    found = _farkas(part, s, t, outer, sign, at_least, direction)
                    if found is None:
                        return None
                    rows += found
        answer = _minimum(rows, [f"c{k}" for k in range(len(outer))], [f"s_{n}" for n in statements])
        if answer is None:
            continue
        factors = {n: answer[f"c{k}"] for k, n in enumerate(outer) if answer[f"c{k}"]}
        shifts = {n: answer[f"s_{n}"] for n in statements if answer[f"s_{n}"]}
        found_now = Adjustment(sign, factors, shifts)
        rank = (found_now.cost, 2 if factors else 1 if sign < 0 else 0)
        if best is None or rank < best[0]:
            best = rank, found_now
    return None if best is None else best[1]


def _farkas(
    part: isl.BasicSet, s: str, t: str, outer: Sequence[str], sign: int, at_least: int, direction: int
) -> list[Row] | None:
    """Rows that say: direction * (sign*d_last + c.d_outer + s_t - s_s - at_least) >= 0 on the part."""
    valid = part.remove_divs().coefficients()
    n = len(outer)
    # dimensions of `valid`: the constant c0, then one coefficient a distance
    flat = isl.Set.from_basic_set(valid)
    if flat.is_wrapping():
        flat = flat.flatten()
    unknown: list[tuple[int, dict[str, int]]] = []
    shift = {} if s == t else {f"s_{t}": direction, f"s_{s}": -direction}
    unknown.append((-direction * at_least, shift))
    unknown += [(0, {f"c{k}": direction}) for k in range(n)]
    unknown.append((direction * sign, {}))
    if flat.dim(isl.dim_type.set) != n + 2:
        return None
    rows: list[Row] = []
    for b in flat.get_basic_sets():
        if b.dim(isl.dim_type.div):
            return None
        for c in b.get_constraints():
            constant = int(c.get_constant_val().to_python())
            terms: dict[str, int] = {}
            for k, (value, variables) in enumerate(unknown):
                a = int(c.get_coefficient_val(isl.dim_type.set, k).to_python())
                constant += a * value
                for name, factor in variables.items():
                    terms[name] = terms.get(name, 0) + a * factor
            rows.append((bool(c.is_equality()), constant, terms))
    return rows


def _minimum(rows: Sequence[Row], factors: Sequence[str], shifts: Sequence[str]) -> dict[str, int] | None:
    """Values with the least sum of sizes, then the least factors, then the least shifts."""
    names = [*factors, *shifts]
    if not names:
        return {} if all(c == 0 if equal else c >= 0 for equal, c, _ in rows) else None
    sizes = [f"m{k}" for k in range(len(names))]
    dims = ["total", *sizes, *names]
    conditions = [f"total = {' + '.join(sizes)}"]
    for name, size in zip(names, sizes, strict=True):
        conditions.append(f"-{size} <= {name} <= {size} <= {LARGEST}")
    for equal, constant, terms in rows:
        total = " + ".join([f"{v}*{n}" for n, v in terms.items() if v] + [str(constant)])
        conditions.append(f"{total} {'=' if equal else '>='} 0")
    least = isl.Set(f"{{ [{', '.join(dims)}] : {' and '.join(conditions)} }}").lexmin()
    if least.is_empty():
        return None
    # lexmin prefers negative values among equal sizes: of a factor and its mirror image take the positive
    point = least.sample_point()
    values = [int(point.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(len(dims))]
    return dict(zip(names, values[1 + len(names) :], strict=True))
