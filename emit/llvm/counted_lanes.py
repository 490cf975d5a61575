"""Numbers side by side that a loop counts up, as a vector that one addition brings to the next iteration.

`(i, i + 1, ...)` made anew in each iteration is a number moved to a vector register, copied to all lanes and added to
the lanes' distances: three instructions, two of them across lanes. LLVM's own vectoriser keeps such vectors from
iteration to iteration, but it does not see vectors that are there already.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.emit.llvm.code import FunctionText
from polyc.emit.llvm.types import Value, constant
from polyc.emit.loop_ir.linear import Linear, linear
from polyc.emit.loop_ir.loops import For, Ramp, walk
from polyc.poly.dtypes import i32, i64
from polyc.poly.expr import Expr, Var


class CountedLanes:
    """The vectors of one loop. `lo`: its first number; `env`: what variables are before it, and, later, inside."""

    def __init__(self, f: FunctionText, loop: For, lo: Value, env: Mapping[str, Value]) -> None:
        self._f, self._loop, self._lo = f, loop, lo
        self._env, self._before = env, dict(env)
        self._innermost: bool | None = None
        self._made: dict[tuple[frozenset[tuple[Expr, int]], int, int], tuple[str, str, int]] = {}
        self.before: list[str] = []  # lines that make the first vectors
        self._starts: dict[str, str] = {}

    def ramp(self, e: Ramp) -> Value | None:
        """The numbers as a vector of i32; None where the loop does not count them or has loops inside, across which a
        register would be held. They have to fit in i32 in every iteration."""
        form = linear(e.base)
        step = form.coefficient(Var(self._loop.var, i64)) * self._loop.step
        if step == 0 or not -(1 << 31) <= step < 1 << 31 or not self._known(form):
            return None
        if self._innermost is None:
            self._innermost = not any(isinstance(s, For) for s in walk(self._loop.body))
        if not self._innermost:
            return None
        key = (frozenset(form.terms), e.stride, e.count)
        if key not in self._made:
            phi = "%" + self._f.fresh(f"{self._loop.var}.lanes")
            self._starts[phi] = self._start(form, e)
            self._made[key] = phi, "%" + self._f.fresh(f"{self._loop.var}.lanes.next"), form.const
        phi, _, const = self._made[key]
        found = Value(phi, i32, e.count)
        if form.const == const:
            return found
        apart = constant((form.const - const + (1 << 31)) % (1 << 32) - (1 << 31), i32, e.count)  # (modulo 2**32)
        return Value(self._f.compute(f"add {found.typed}, {apart.ref}"), i32, e.count)

    def _known(self, form: Linear) -> bool:
        """Whether all that the numbers depend on, other than the loop, stands before it."""
        others = [a for a, _ in form.terms if a != Var(self._loop.var, i64)]
        return all(
            isinstance(a, Var) and a.name in self._before and self._env.get(a.name) is self._before[a.name]
            for a in others
        )

    def _start(self, form: Linear, e: Ramp) -> str:
        """Writes the first vector; returns its name."""
        total = str(form.const)
        for atom, factor in form.terms:
            assert isinstance(atom, Var)
            value = self._lo if atom.name == self._loop.var else self._before[atom.name]
            total = self._line(f"add i64 {self._line(f'mul i64 {value.ref}, {factor}')}, {total}")
        first, vector = self._line(f"trunc i64 {total} to i32"), f"<{e.count} x i32>"
        one = self._line(f"insertelement {vector} poison, i32 {first}, i64 0")
        each = self._line(f"shufflevector {vector} {one}, {vector} poison, <{e.count} x i32> zeroinitializer")
        return self._line(f"add {vector} {each}, <{', '.join(f'i32 {k * e.stride}' for k in range(e.count))}>")

    def _line(self, text: str) -> str:
        name = "%" + self._f.fresh()
        self.before.append(f"  {name} = {text}{self._f.suffix}")
        return name

    def phis(self, before: str, after: str, suffix: str) -> list[str]:
        """The lines at the loop's head; `before`, `after`: the blocks that come to it."""
        made = [(Value(phi, i32, count), more) for (_, _, count), (phi, more, _) in self._made.items()]
        return [
            f"  {v.ref} = phi {v.type} [ {self._starts[v.ref]}, %{before} ], [ {more}, %{after} ]{suffix}"
            for v, more in made
        ]

    def advance(self) -> None:
        """Writes, at the end of an iteration, the next one's vectors. What is beyond the last one's may wrap."""
        for (terms, _, count), (phi, more, _) in self._made.items():
            step = dict(terms)[Var(self._loop.var, i64)] * self._loop.step
            self._f.do(f"{more} = add {Value(phi, i32, count).typed}, {constant(step, i32, count).ref}")
