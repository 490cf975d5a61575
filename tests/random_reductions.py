"""Random reductions in many spellings: sums, extrema, products and bit operations over one or two loops, in
elements or in local scalars, of products of up to three arrays, with initialisations and what follows."""

from __future__ import annotations

import random

from program_tree import Arr, Extent, Line, Program

DTYPES = ("f32", "f64", "f32", "f64", "i32", "i64", "f16")
SIZES = (1, 2, 3, 4, 5, 8, 9, 13, 17)


class ReductionWriter:
    """Draws one program. `loops` maps every iterator to its extent; those in `out` index the result."""

    def __init__(self, seed: int) -> None:
        self.r = r = random.Random(f"reduction {seed}")
        self.seed = seed
        self.integral = r.random() < 0.7
        self.sizes = {d: r.choice(SIZES) for d in ("N", "M", "K")}
        self.loops = {"i": Extent("N", 0), "j": Extent("M", 0), "k": Extent("K", 0), "l": Extent(None, r.randint(1, 4))}
        self.out = list(r.choice(("i", "j", "ij", "ij", "ji", "")))
        self.reduced = list(r.choice(("k", "k", "kl", "lk", "l")))
        self.dtype = r.choice(DTYPES)
        self.is_float = self.dtype[0] == "f"
        self.arrays: list[Arr] = []

    # ---- operands ----------------------------------------------------------------------------

    def factor(self) -> str:
        """An element of a new input (or of one that is there)."""
        r = self.r
        if self.arrays and r.random() < 0.15:
            return self.texts[r.randrange(len(self.arrays))]
        its = r.sample([*self.out, *self.reduced], r.randint(1, len(self.out) + len(self.reduced)))
        shape, index = [], []
        for it in its:
            if it != "l" and "l" in self.reduced and "l" not in its and r.random() < 0.3:
                shape.append(Extent(self.loops[it].dim, self.loops["l"].pad - 1))  # a window
                index.append(f"{it} + l")
            else:
                shape.append(self.loops[it])
                index.append(it)
        dtype = self.dtype if r.random() < 0.9 else r.choice(("f64", "f32") if self.is_float else ("i32", "i64"))
        self.arrays.append(Arr(f"A{len(self.arrays)}", dtype, tuple(shape), "in"))
        text = f"{self.arrays[-1].name}[{', '.join(index)}]"
        self.texts.append(text)
        return text

    def term(self) -> str:
        """What is added up."""
        r = self.r
        self.texts: list[str] = []
        a, b = self.factor(), self.factor()
        one = "1.0" if self.is_float else "1"
        return r.choice((
            a, f"{a} * {b}", f"{a} * {b}", f"{a} * {b}", f"{b} * {a} * {r.choice((2, 3))}", f"({a} - {one}) * {b}",
            f"{a} * {b} * {self.factor()}", f"{a} * {a}", f"({a} - {b}) * ({a} - {b})", f"{a} * {b} + {a}",
            f"{self.cast(a)} if {b} > 0 else {self.cast(one)}", f"where({b} > 0, {self.cast(a)}, {self.cast(b)})",
            f"{a} + {b}", f"abs({a} - {b})", f"-({a} * {b})", f"max({self.cast(a)}, {self.cast(b)})",
            f"{a} * ({b} + {self.factor()})",
        ))  # fmt: skip

    def cast(self, text: str) -> str:
        return f"{self.dtype}({text})"

    # ---- updates -----------------------------------------------------------------------------

    def update(self, target: str, term: str) -> list[Line]:
        """One step of the reduction, in one of its spellings."""
        t = self.cast(term)
        sums = [f"{target} += {t}", f"{target} = {target} + {t}", f"{target} = {t} + {target}", f"{target} -= {t}"]
        extrema = [f"{target} = {w}({p})" for w in ("max", "min") for p in (f"{target}, {t}", f"{t}, {target}")]
        extrema += [
            f"{target} = {t} if {t} > {target} else {target}",
            f"{target} = where({t} < {target}, {t}, {target})",
        ]
        kind = self.r.random()
        if not self.is_float and kind < 0.15:
            return [Line(f"{target} {self.r.choice('&|^')}= {t}")]
        if kind < 0.65:
            return [Line(self.r.choice(sums))]
        if kind < 0.7:
            return [Line(f"{target} *= {t}")]
        if kind < 0.8:
            return [Line(f"if {t} {self.r.choice('<>')} {target}:", [Line(f"{target} = {t}")])]
        return [Line(self.r.choice(extrema))]

    def around(self, its: list[str], body: list[Line]) -> list[Line]:
        """The loops `its` around `body`, some of them triangular, reversed or guarded."""
        for n, it in reversed(list(enumerate(its))):
            end, r = self.loops[it], self.r
            header = r.choice((f"range({end})",) * 8 + (f"range({end} - 1, -1, -1)", f"range(0, {end}, 2)"))
            if n and r.random() < 0.08 and end.dim and "i" in its[:n]:
                header = f"range(min(i + 1, {end}))"
            if r.random() < 0.06:
                body = [Line(f"if {it} {r.choice(('> 0', '< 2', '!= 1', '% 2 == 0'))}:", body)]
            body = [Line(f"for {it} in {header}:", body)]
        return body

    def program(self) -> Program:
        r = self.r
        term = self.term()
        shape = tuple(self.loops[it] for it in self.out) or (Extent(None, 1),)
        kind = r.choice(("inout", "out"))
        result = Arr("R0", self.dtype, shape, kind)
        element = f"R0[{', '.join(self.out) or '0'}]"
        start = self.cast(r.choice(("0", "0", "1", "-3") if self.dtype[0] != "u" else ("0", "1")))
        body: list[Line] = []
        if kind == "out":
            size = ", ".join(map(str, shape))
            body.append(Line(f"R0 = {r.choice((f'zeros(({size},), ', f'full(({size},), 2, '))}{self.dtype})"))
        used = [d for d in ("N", "M", "K") if any(e.dim == d for a in [*self.arrays, *[result] * (kind == "inout")]
                                                   for e in a.shape)]  # fmt: skip
        its = [*self.out, *self.reduced]
        missing = [d for d in ("N", "M", "K") if d not in used and any(self.loops[it].dim == d for it in its)]
        arrays = [*self.arrays, *(Arr(f"A{7 + k}", "f32", (Extent(d, 0),), "in") for k, d in enumerate(missing))]
        if r.random() < 0.45:  # a local scalar
            after = r.choice((f"{element} = s", f"{element} = s", f"{element} += s", f"{element} = max({element}, s)"))
            inner = [Line(f"s = {start}"), *self.around(self.reduced, self.update("s", term)), Line(after)]
            body += self.around(self.out, inner)
        else:
            if r.random() < 0.4:
                body += self.around(self.out, [Line(f"{element} = {start}")])
            order = r.sample(its, len(its)) if r.random() < 0.5 else its
            body += self.around(order, self.update(element, term))
        if r.random() < 0.35:
            zero = self.cast("0")
            after = r.choice((f"{element} = max({element}, {zero})", f"{element} = {element} + {self.cast('1')}"))
            body += self.around(self.out, [Line(after)])
        params = [f"{a.name}: {a.dtype}[{', '.join(map(str, a.shape))}]" for a in arrays]
        if kind == "inout":
            params.append(f"R0: inout({self.dtype}[{', '.join(map(str, shape))}])")
        head = f"def kernel({', '.join(params)}):"
        tail = "return R0" if kind == "out" else ""
        return Program(self.seed, head, body, tail, self.sizes, (*arrays, result), (), self.integral, False)


def generate_reduction(seed: int) -> Program:
    """The reduction of a seed: the same text and data on every machine."""
    return ReductionWriter(seed).program()
