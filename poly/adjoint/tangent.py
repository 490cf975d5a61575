"""The tangent of a Scop: forward mode. Each statement is preceded by the one that moves its element.

For a statement `W[g] = e` that is `tW[g] = sum of de/dA[f] * tA[f]` over the elements that `e` reads; the values are
those that the program has at that time, so nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.poly.adjoint.activity import varied
from polyc.poly.adjoint.algebra import add, cast, mul, number, total
from polyc.poly.adjoint.ends import arguments_of, results_of
from polyc.poly.adjoint.fills import Fills, Part
from polyc.poly.adjoint.liveness import without_idle
from polyc.poly.adjoint.names import Names, renamed
from polyc.poly.adjoint.partials import guarded, terms_of
from polyc.poly.adjoint.trees import in_place, in_sequence
from polyc.poly.expr import Binary, Expr, Load
from polyc.poly.records import dataclass
from polyc.poly.reduction import reads_updated
from polyc.poly.rewriting.compose import rename
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Leaf
from polyc.poly.verify import verify


@dataclass(frozen=True)
class Tangent:
    """`scop` takes the arguments of the program, then the tangents of those derived by (`directions`, by argument);
    it returns the tangents of the floating-point results (`tangents`, by result)."""

    scop: Scop
    directions: Mapping[str, str]
    tangents: Mapping[str, str]


def tangent(scop: Scop, wrt: Sequence[str] | None = None) -> Tangent:
    """The tangent of `scop`; `wrt` are the arguments that move (None: all floating-point ones).

    Raises:
        NotDifferentiable: a name is no floating-point argument, or the program has a part without a derivative.
    """
    return _Maker(scop, arguments_of(scop, wrt)).made()


class _Maker:
    def __init__(self, scop: Scop, wrt: tuple[str, ...]) -> None:
        self.source = scop
        self.results = results_of(scop)
        names = self.names = Names(scop)
        self.working = {n: names.fresh(f"{n}_now") for n, a in scop.arrays.items() if a.kind == "inout"}
        self.directions = {n: names.fresh(f"d_{n}") for n in wrt}
        self.moving = varied(scop, wrt)
        self.tangents = {n: names.fresh(f"tangent_{n}") for n in self.results}
        self.dots = {
            n: self.directions[n] if n in self.directions and scop.arrays[n].kind == "in"
            else self.tangents.get(n) or names.fresh(f"tan_{n}")
            for n in scop.arrays if n in self.moving
        }  # fmt: skip
        self.fill = Fills(scop, names)

    def made(self) -> Tangent:
        scop = self.source
        moved = rename(scop, self.working)
        parts = self.first_values()
        lists = {
            n: [*([self.moved(s)] if s.array in self.moving else []), now]
            for (n, s), now in zip(scop.statements.items(), moved.statements.values(), strict=True)
        }
        tree = in_place(moved.tree, lists, str)
        if tree is not None:
            parts.append(([s for some in lists.values() for s in some], tree))
        statements = {s.name: s for some, _ in parts for s in some}
        whole = Scop(
            f"{scop.name}_jvp", scop.params, scop.context, self.arrays(), statements,
            in_sequence(parts) if parts else Leaf(), (*scop.args, *self.directions.values()),
            tuple(self.tangents.values()), scop.reassociate, scop.fast_math, scop.notes,
        )  # fmt: skip
        whole = without_idle(whole)
        verify(whole)
        return Tangent(whole, self.directions, self.tangents)

    def first_values(self) -> list[Part]:
        """Arrays updated in place are copied, and so are their tangents; tangents of what does not move are 0."""
        arrays, parts = self.source.arrays, []
        for n, now in self.working.items():
            parts.append(self.fill.copied(replace(arrays[n], name=now), n))
        for n, dot in self.tangents.items():
            array = replace(arrays[n], name=dot, scalar=False)
            if n in self.directions:
                parts.append(self.fill.copied(array, self.directions[n]))
            elif n in self.working or n not in self.moving:
                parts.append(self.fill.filled(array, number(0.0, array.dtype)))
        return parts

    def arrays(self) -> dict[str, Array]:
        scop = self.source
        out = {n: replace(scop.arrays[n], kind="in") for n in scop.args}
        out |= {d: replace(scop.arrays[n], name=d, kind="in", scalar=False) for n, d in self.directions.items()}
        out |= {t: replace(scop.arrays[n], name=t, kind="out", scalar=False) for n, t in self.tangents.items()}
        for n, a in scop.arrays.items():
            if n in self.working:
                out[self.working[n]] = replace(a, name=self.working[n], kind="local")
            elif a.kind in ("out", "local"):
                out[n] = replace(a, kind="local")
        for n, dot in self.dots.items():
            if dot not in out:
                out[dot] = replace(scop.arrays[n], name=dot, kind="local", scalar=False)
        return out

    def moved(self, s: Statement) -> Statement:
        """The statement that moves the element which `s` writes."""
        one = number(1.0, s.value.dtype)
        target = Load(self.dots[s.array], tuple(renamed(e, self.working) for e in s.index), s.value.dtype, s.span)
        own: Expr | None = None
        rest: list[Expr] = []
        for t in terms_of(s.value, one, self.moving, s.span):
            index = tuple(renamed(e, self.working) for e in t.load.index)
            dot: Expr = Load(self.dots[t.load.array], index, t.load.dtype, t.load.span)
            if dot == target and t.value == one and not t.guards and own is None:
                own = dot
                continue
            rest.append(guarded(tuple(renamed(g, self.working) for g in t.guards), self.times(t.value, dot, s)))
        added = total(rest) if rest else number(0.0, s.value.dtype)
        value = added if own is None else add(own, added)
        predicate = None if s.predicate is None else renamed(s.predicate, self.working)
        bounds = tuple(replace(b, lo=renamed(b.lo, self.working), hi=renamed(b.hi, self.working)) for b in s.dynamic)
        others = [*s.index, *([] if predicate is None else [predicate])]
        reduction = None
        if s.reduction == "+" and isinstance(value, Binary) and value.a == target:
            reduction = "+" if reads_updated(target, [value.b, *others], s.domain) is None else None
        name = self.names.fresh(f"{s.name}_dot")
        return replace(s, name=name, domain=s.domain.set_tuple_name(name), array=target.array, index=target.index,
                       value=value, predicate=predicate, reduction=reduction, dynamic=bounds)  # fmt: skip

    def times(self, partial: Expr, dot: Expr, s: Statement) -> Expr:
        """The movement that one element brings: its tangent may be narrower than the value."""
        partial = renamed(partial, self.working)
        return cast(mul(partial, dot), s.value.dtype)
