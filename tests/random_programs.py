"""Random programs: operators as DSL source text, one a seed.

All accesses are inside their arrays for all sizes >= 1: every iterator carries its bounds, and subscripts are chosen
to fit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from program_tree import SIZES, Arr, Extent, Iterator_, Line, Program

from polyc.poly.dtypes import BY_NAME

FLOATS = ("f64", "f32", "f64", "f32", "f16")
INTS = ("i32", "i64", "i32", "i64", "i8", "u8", "i16", "u32")


@dataclass(frozen=True)
class Wanted:
    """What programs are drawn from: numbers of statements, sizes, and how often they have what."""

    statements: tuple[int, int] = (2, 7)
    sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 7, 9)
    mask: float = 0.15
    index_array: float = 0.2
    pointers: float = 0.12
    counts: float = 0.08
    scalar: float = 0.3
    more_scalars: int = 0
    run_time_bounds: bool = False  # loops end at scalar arguments named n and a size
    jumps: float = 0.0  # `while`, `break`, `continue`, `else` of loops; functions inside


class Generator:
    """Draws one program."""

    def __init__(self, seed: int, wanted: Wanted = Wanted()) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.wanted = wanted
        r = self.rng
        self.integral = r.random() < 0.5
        self.inexact = not self.integral and r.random() < 0.15
        self.sizes = {d: r.choice(wanted.sizes) for d in SIZES}
        self.dims = list(SIZES[: r.randint(1, 3)])
        self.loops: list[Iterator_] = []
        self.arrays: list[Arr] = []
        self.scalars: list[tuple[str, str]] = []
        self.locals: list[tuple[str, bool]] = []  # local scalars with a value here: (name, float)
        self.count = 0
        self.budget = r.randint(*wanted.statements)

    # ---- whole program -----------------------------------------------------------------------

    def program(self) -> Program:
        r, wanted = self.rng, self.wanted
        only_float, only_int = r.random() < 0.35, r.random() < 0.15
        for k in range(r.randint(2, 4)):
            floats = only_float or (not only_int and r.random() < 0.65)
            kind = "inout" if k == 0 or r.random() < 0.4 else "in"
            self.arrays.append(self.new_array(f"A{k}", floats, kind))
        # Only sizes that occur in an argument's shape are known to the operator.
        self.dims = sorted({e.dim for a in self.arrays for e in a.shape if e.dim})
        if not self.dims:
            self.arrays.append(Arr("A9", "f32", (Extent("N", 0),), "in"))
            self.dims = ["N"]
        if r.random() < wanted.mask:
            self.arrays.append(Arr("mask", "bool_", (Extent(self.dims[0], 1),), "in"))
        if r.random() < wanted.index_array:
            top = r.choice(self.dims)
            self.arrays.append(Arr("idx", r.choice(("i32", "i64")), (Extent(r.choice(self.dims), 1),), "in", top))
        if r.random() < wanted.pointers:
            top = r.choice(self.dims)
            self.arrays.append(Arr("ptr", r.choice(("i32", "i64")), (Extent(r.choice(self.dims), 1),), "in", top))
        if r.random() < wanted.counts:
            top = r.choice(self.dims)
            self.arrays.append(Arr("cnt", "i64", (Extent(r.choice(self.dims), 1),), "in", top))
        if r.random() < wanted.scalar:
            self.scalars.append(("alpha", r.choice(("f64", "f32", "i32"))))
        for k in range(wanted.more_scalars):
            self.scalars.append((f"beta{k}", r.choice((*FLOATS, *INTS))))
        if wanted.run_time_bounds:
            self.scalars += [(f"n{d}", r.choice(INTS)) for d in self.dims]
        body: list[Line] = []
        results = []
        for k in range(r.choice((0, 0, 1, 1, 2))):
            out = self.new_array(f"R{k}", r.random() < 0.7, "out")
            shape = ", ".join(map(str, out.shape))
            fill = r.choice(("zeros", "full"))
            value = f", {r.randint(0, 3)}" if fill == "full" else ""
            self.arrays.append(out)
            results.append(out.name)
            body.append(Line(f"{out.name} = {fill}(({shape},){value}, {out.dtype})"))
        if wanted.jumps:
            body += self.inner_functions()
        while self.budget > 0:
            body += self.statement(depth=0)
        params = [f"{a.name}: {self.annotation(a)}" for a in self.arrays if a.kind in ("in", "inout")]
        params += [f"{name}: {dtype}" for name, dtype in self.scalars]
        head = f"def kernel({', '.join(params)}):"
        tail = f"return {', '.join(results)}" if results else ""
        return Program(self.seed, head, body, tail, self.sizes, tuple(self.arrays), tuple(self.scalars),
                       self.integral, self.inexact)  # fmt: skip

    def annotation(self, a: Arr) -> str:
        inner = f"{a.dtype}[{', '.join(map(str, a.shape)) or '()'}]"
        return f"inout({inner})" if a.kind == "inout" else inner

    def new_array(self, name: str, floats: bool, kind: str) -> Arr:
        r = self.rng
        rank = r.choice((1, 1, 2, 2, 2, 3))
        shape = []
        for _ in range(rank):
            if r.random() < 0.15:
                shape.append(Extent(None, r.randint(3, 6)))
            else:
                shape.append(Extent(r.choice(self.dims), r.choice((0, 0, 1, 2, 3))))
        return Arr(name, r.choice(FLOATS if floats else INTS), tuple(shape), kind)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ---- statements --------------------------------------------------------------------------

    def statement(self, depth: int) -> list[Line]:
        r = self.rng
        if self.budget <= 0:
            return []
        roll = r.random()
        if depth < 4 and (depth == 0 or roll < 0.4) and roll < 0.97:
            if self.wanted.jumps and depth < 3 and r.random() < self.wanted.jumps:
                return self.while_loop(depth)
            return [self.loop(depth), *self.otherwise(depth)]
        self.budget -= 1
        if roll < 0.55:
            return self.condition(depth)
        if roll < 0.66 and depth < 4:
            return self.accumulate(depth)
        if roll < 0.72 and depth < 3:
            return self.local_array(depth)
        if roll < 0.80:
            return [self.local_scalar()]
        return [self.store()]

    def block(self, depth: int) -> list[Line]:
        """One to three statements; local scalars defined here are forgotten after it."""
        known, r = len(self.locals), self.rng
        lines: list[Line] = []
        for _ in range(r.choice((1, 1, 2, 3))):
            if self.wanted.jumps and self.loops and r.random() < self.wanted.jumps:
                lines.append(self.jump())
            lines += self.statement(depth)
        if not lines:
            lines.append(self.store())
        del self.locals[known:]
        return lines

    def loop(self, depth: int) -> Line:
        r = self.rng
        name = next(n for n in "ijklmnpq" if n not in [l.name for l in self.loops])
        if r.random() < 0.1 and depth < 3:
            second = next(n for n in "ijklmnpq" if n not in [name, *(l.name for l in self.loops)])
            d, e = r.choice(self.dims), r.choice(self.dims)
            self.loops += [Iterator_(name, 0, d, 0), Iterator_(second, 1, e, 0)]
            line = Line(f"for {name}, {second} in grid({d}, (1, {e})):", self.block(depth + 2))
            del self.loops[-2:]
            return line
        it, header = self.range(name)
        self.loops.append(it)
        line = Line(f"for {name} in {header}:", self.block(depth + 1))
        self.loops.pop()
        return line

    def while_loop(self, depth: int) -> list[Line]:
        """A counter, and a test of it and perhaps of data."""
        r = self.rng
        name = self.fresh("w")
        if r.random() < 0.4:
            end, it = str(k := r.randint(1, 4)), Iterator_(name, 1, None, k, True)
        else:
            end, it = (d := r.choice(self.dims)), Iterator_(name, 1, d, 1, True)
        test = f"{name} < {end}"
        if r.random() < 0.4:
            test = f"{test} and ({self.test(affine=False)})"
        self.loops.append(it)
        body = [Line(f"{name} += 1"), *self.block(depth + 1)]
        self.loops.pop()
        if r.random() < 0.15:
            body = [Line(f"if not ({test}):", [Line("break")]), *body]
            test = "True"
        return [Line(f"{name} = 0"), Line(f"while {test}:", body), *self.otherwise(depth)]

    def otherwise(self, depth: int) -> list[Line]:
        """The `else` of a loop, now and then."""
        wanted = self.wanted.jumps and self.rng.random() < 0.2
        return [Line("else:", self.block(depth + 1))] if wanted else []

    def jump(self) -> Line:
        """`break` or `continue` under a condition."""
        r = self.rng
        before = [self.store()] if r.random() < 0.3 else []
        test = self.test(affine=r.random() < 0.4)
        return Line(f"if {test}:", [*before, Line(r.choice(("break", "continue")))])

    def inner_functions(self) -> list[Line]:
        """Functions that values are passed through, one of which reads a name from outside."""
        r = self.rng
        again = [Line("while n > 0:", [Line("x = f64(x) - 1.0"), Line("n -= 1")]), Line("return x")]
        return [
            Line(f"shift = {r.randint(1, 3)}"),
            Line("def shifted(x, by=1):", [Line("y = x + shift"), Line("return y - by")]),
            Line("def lowered(x, n):", again),
        ]

    def range(self, name: str) -> tuple[Iterator_, str]:
        r = self.rng
        roll = r.random()
        ptr = next((a for a in self.arrays if a.name == "ptr"), None)
        cnt = next((a for a in self.arrays if a.name == "cnt"), None)
        if ptr and roll < 0.15:
            outer = [l for l in self.loops if l.dim == ptr.shape[0].dim and l.up <= 0]
            if outer:
                i = r.choice(outer).name
                return Iterator_(name, 0, ptr.values, 0), f"range(ptr[{i}], ptr[{i} + 1])"
        if cnt and roll < 0.15:
            outer = [l for l in self.loops if l.dim == cnt.shape[0].dim and l.up <= 1]
            if outer:
                return Iterator_(name, 0, cnt.values, 0), f"range(cnt[{r.choice(outer).name}])"
        ends = [n for n, _ in self.scalars if n[1:] in SIZES]
        if ends and roll < 0.3:
            end = r.choice(ends)
            lo, text = r.choice(((0, f"range({end})"), (1, f"range(1, {end})")))
            return Iterator_(name, lo, end[1:], 0), text
        same = [l for l in self.loops if l.dim is not None and not l.counted]
        if same and roll < 0.45:
            o = r.choice(same)
            i, d = o.name, o.dim
            forms = [
                (0, o.up - 1, f"range({i})"),
                (0, o.up, f"range({i} + 1)"),
                (o.lo, 0, f"range({i}, {d})"),
                (o.lo + 1, 0, f"range({i} + 1, {d})"),
                (0, 0, f"range(max({i} - 2, 0), min({i} + 3, {d}))"),
                (0, o.up, f"range({i}, -1, -1)"),
                (o.lo + 1, 0, f"range({d} - 1, {i}, -1)"),
                (o.lo, 0, f"range({i}, {d}, 2)"),
                (0, o.up, f"range({i} % 2, {i} + 1, 2)"),
                (0, o.up, f"range({i} // 2, {i} + 1)"),
            ]
            lo, up, text = r.choice(forms)
            return Iterator_(name, lo, d, up), text
        if roll < 0.57:
            k = r.randint(1, 5)
            text = r.choice((f"range({k})", f"range({k - 1}, -1, -1)"))
            return Iterator_(name, 0, None, k - 1), text
        d, lo, b = r.choice(self.dims), r.choice((0, 0, 0, 1, 2)), r.choice((0, 0, 0, 1, 2))
        high = d if not b else f"{d} - {b}"
        step = r.choice((1, 1, 1, 1, 2, 3))
        if r.random() < 0.2:
            text = f"range({d} - {1 + b}, {lo - 1}, -{step})"
        elif step > 1:
            text = f"range({lo}, {high}, {step})"
        else:
            text = f"range({lo}, {high})" if lo or r.random() < 0.2 else f"range({high})"
        return Iterator_(name, lo, d, -b), text

    def condition(self, depth: int) -> list[Line]:
        r = self.rng
        if self.loops and r.random() < 0.35:
            # A guard that the accesses below rely on.
            k = r.randrange(len(self.loops))
            old = self.loops[k]
            if old.dim is not None and r.random() < 0.5:
                text, self.loops[k] = f"{old.name} < {old.dim} - 1", replace(old, up=min(old.up, -1))
            else:
                text, self.loops[k] = f"{old.name} > {old.lo}", replace(old, lo=old.lo + 1)
            lines = [Line(f"if {text}:", self.block(depth + 1))]
            self.loops[k] = old
        else:
            text = self.test(affine=r.random() < 0.6)
            lines = [Line(f"if {text}:", self.block(depth + 1))]
        if r.random() < 0.3:
            lines.append(Line("else:", self.block(depth + 1)))
        return lines

    def store(self) -> Line:
        r = self.rng
        a = r.choice([a for a in self.arrays if a.kind != "in"])
        target = self.element(a)
        roll = r.random()
        value = self.value(a.is_float, 2)
        if not a.is_float:  # NumPy refuses to store an integer that does not fit; a cast wraps
            value = f"{a.dtype}({value})"
        if roll < 0.4:
            return Line(f"{target} = {value}")
        if roll < 0.75:
            op = r.choice("+++-" if a.is_float or r.random() < 0.7 else "&|^")
            return Line(f"{target} {op}= {value}")
        if roll < 0.83:
            return Line(f"{target} = {r.choice(('max', 'min'))}({target}, {self.like(a, value)})")
        if roll < 0.9 and not self.integral:
            factor = r.choice(("0.5", "-1.5", "2.0")) if a.is_float else r.choice("123")
            return Line(f"{target} *= {factor}")
        return Line(f"{target} = {target} + {value}")

    def like(self, a: Arr, value: str) -> str:
        """A value of exactly the array's dtype (`max` returns one of its arguments)."""
        return f"{a.dtype}({value})"

    def accumulate(self, depth: int) -> list[Line]:
        """s = start; for ...: s += ...; A[...] = s"""
        r = self.rng
        a = r.choice([a for a in self.arrays if a.kind != "in"])
        s = r.choice(("s", "t", self.fresh("s")))
        if any(s == n for n, _ in self.locals):
            s = self.fresh("s")
        floats = a.is_float
        wide = r.choice(("f64", "f32")) if floats else "i64"
        if r.random() < 0.5:
            wide = a.dtype
        start = f"{wide}({self.value(floats, 1)})" if r.random() < 0.6 else f"{wide}(0)"
        it, header = self.range(next(n for n in "ijklmnpq" if n not in [l.name for l in self.loops]))
        self.loops.append(it)
        op = r.choice(("+=", "+=", "-=", "max", "min"))
        value = f"{wide}({self.value(floats, 1)})"
        line = f"{s} {op} {value}" if op in ("+=", "-=") else f"{s} = {op}({s}, {value})"
        inner = [Line(line)]
        if r.random() < 0.3:
            inner = [Line(f"if {self.test(affine=r.random() < 0.5)}:", inner)]
        self.loops.pop()
        lines = [Line(f"{s} = {start}"), Line(f"for {it.name} in {header}:", inner)]
        value = s if a.is_float else f"{a.dtype}({s})"
        return [*lines, Line(f"{self.element(a)} {r.choice(('=', '=', '+='))} {value}")]

    def local_scalar(self) -> Line:
        floats = self.rng.random() < 0.6
        name = self.fresh("x")
        dtype = self.rng.choice(("f64", "f32") if floats else ("i32", "i64"))
        line = Line(f"{name} = {dtype}({self.value(floats, 2)})")
        self.locals.append((name, floats))
        return line

    def local_array(self, depth: int) -> list[Line]:
        """t = zeros(...), a loop that fills it, then statements that use it."""
        r = self.rng
        floats = r.random() < 0.7
        dim = r.choice(self.dims)
        extent = Extent(None, r.randint(2, 4)) if r.random() < 0.5 else Extent(dim, r.choice((0, 1)))
        a = Arr(self.fresh("T"), r.choice(("f64", "f32") if floats else ("i32", "i64")), (extent,), "local")
        name = next(n for n in "ijklmnpq" if n not in [l.name for l in self.loops])
        it = Iterator_(name, 0, extent.dim, extent.pad - (0 if extent.dim else 1))
        self.loops.append(it)
        fill = Line(f"for {name} in range({extent}):", [Line(f"{a.name}[{name}] = {a.dtype}({self.value(floats, 1)})")])
        self.loops.pop()
        self.arrays.append(a)
        lines = [Line(f"{a.name} = {r.choice(('zeros', 'empty'))}(({extent},), {a.dtype})"), fill, *self.block(depth)]
        self.arrays.remove(a)
        return lines

    # ---- expressions -------------------------------------------------------------------------

    def element(self, a: Arr) -> str:
        return f"{a.name}[{', '.join(self.subscript(e) for e in a.shape) or '()'}]"

    def subscript(self, e: Extent) -> str:
        """An index in [0, e) for all values of the loops and all sizes >= 1."""
        r = self.rng
        forms: list[str] = []
        for l in self.loops:
            if l.dim == e.dim:
                # l.up + o <= pad (for a constant extent: pad - 1), o >= -lo
                top = e.pad - l.up if e.dim else e.pad - 1 - l.up
                forms += [_plus(l.name, o) for o in range(-min(l.lo, 2), min(top, 3) + 1)] * 2
                if e.dim:
                    # D - 1 - i + o
                    low, high = l.up, e.pad + l.lo
                    forms += [_plus(f"{e.dim} - {l.name}", o - 1) for o in range(max(low, -1), min(high, 2) + 1)]
                    if l.up <= e.pad:
                        forms.append(f"{l.name} // 2")
            if e.dim is None and e.pad > 1:
                forms.append(f"{l.name} % {r.randint(2, e.pad)}")
            if e.dim and l.dim is None and l.up <= e.pad:
                forms.append(l.name)
            if e.dim and l.dim == e.dim:
                forms += [f"{l.name} + {o.name}" for o in self.loops if o.dim is None and l.up + o.up <= e.pad]
        for idx in (a for a in self.arrays if a.name == "idx" and a.values == e.dim):
            inner = [l for l in self.loops if l.dim == idx.shape[0].dim and l.up <= 1]
            forms += [f"idx[{l.name}]" for l in inner] * 3
        if not forms or r.random() < 0.1:
            forms.append(str(r.randint(0, max(0, e.pad - 1))))
        return r.choice(forms)

    def test(self, affine: bool) -> str:
        r = self.rng
        if affine and self.loops:
            text = self.affine_test()
            if r.random() < 0.2:
                text = f"{text} {r.choice(('and', 'or'))} {self.affine_test()}"
            return f"not ({text})" if r.random() < 0.08 else text
        if any(a.name == "mask" for a in self.arrays) and r.random() < 0.5:
            return self.element(next(a for a in self.arrays if a.name == "mask"))
        arrays = [a for a in self.arrays if a.name.startswith(("A", "R")) and (a.kind == "in" or not self.inexact)]
        if not arrays:
            return f"{self.dims[0]} > 2"
        a = r.choice(arrays)
        text = f"{self.element(a)} {r.choice(('<', '<=', '>', '>=', '==', '!='))} {r.choice((0, 1, 2))}"
        if r.random() < 0.2 and self.loops:
            text = f"{text} {r.choice(('and', 'or'))} {self.affine_test()}"
        return text

    def affine_test(self) -> str:
        r = self.rng
        l = r.choice(self.loops)
        o = r.choice(self.loops)
        d = r.choice(self.dims)
        return r.choice((
            f"{l.name} < {o.name} + 1", f"{l.name} == {r.randint(0, 3)}", f"{l.name} + {o.name} < {d}",
            f"({l.name} + {r.randint(0, 2)}) % {r.randint(2, 3)} == 0", f"{l.name} >= {d} - {r.randint(1, 3)}",
            f"0 < {l.name} < {d} - 1", f"{l.name} != {o.name}", f"2 * {l.name} > {o.name} + {d}", f"{d} > 3",
            f"{l.name} // 2 == {o.name}",
        ))  # fmt: skip

    def value(self, floats: bool, depth: int) -> str:
        """An expression; integral unless `floats`."""
        r = self.rng
        if depth == 0 or r.random() < 0.25:
            return self.leaf(floats)
        if self.wanted.jumps and r.random() < 0.1:
            inside = self.value(floats, depth - 1)
            return f"lowered({inside}, {r.randint(0, 2)})" if floats and r.random() < 0.5 else f"shifted({inside})"
        a, b = self.value(floats, depth - 1), self.value(floats, depth - 1)
        if r.random() < 0.12:
            return self.guarded(floats, b)
        if not floats:
            return self.integer_operation(a, b)
        if self.integral:
            return r.choice((
                f"{a} + {b}", f"({a}) - ({b})", f"({a}) * {r.choice((2, -1))}", f"max(f64({a}), f64({b}))",
                f"min(f64({a}), f64({b}))", f"-({a})", f"(f64({a}) if {self.test(r.random() < 0.5)} else f64({b}))",
                f"abs({a})", f"{a} + {b}",
            ))  # fmt: skip
        if self.inexact and r.random() < 0.3:
            fn = r.choice(("exp", "tanh", "sigmoid", "erf", "sin", "cos", "atan", "expm1"))
            return f"{fn}(f64(min(max(f64({a}), f64(-3.0)), f64(3.0))))"
        return r.choice((
            f"{a} + {b}", f"({a}) - ({b})", f"({a}) * ({b})", f"({a}) * {r.choice((0.5, 1.25, -2.0))}",
            f"({a}) / {r.choice((2.0, 3.0, -7.0))}", f"({a}) / (abs(f64({b})) + 1.0)", f"-({a})", f"abs({a})",
            f"max(f64({a}), f64({b}))", f"min(f32({a}), f32({b}))", f"sqrt(abs(f64({a})))", f"floor(f64({a}))",
            f"f32({a})", f"(f64({a}) if {self.test(r.random() < 0.5)} else f64({b}))",
            f"where({self.test(False)}, {a}, {b})", f"({a}) // 1.5", f"f64({a}) % 2.5",
            f"fma(f64({a}), f64({b}), f64(1.5))", f"round(f32({a}))",
        ))  # fmt: skip

    def integer_operation(self, a: str, b: str) -> str:
        r = self.rng
        return r.choice((
            f"{a} + {b}", f"({a}) - ({b})", f"({a}) * ({b})", f"({a}) // {r.choice((2, 3, 5))}",
            f"({a}) % {r.choice((2, 3, 7))}",
            f"i64({a}) // {r.choice((-2, -3))}", f"i64({a}) % {r.choice((-2, -5))}", f"({a}) & ({b})", f"({a}) | ({b})",
            f"({a}) ^ ({b})", f"i64({a}) >> {r.randint(0, 3)}", f"i32({a}) << {r.randint(0, 3)}", f"abs(i64({a}))",
            f"max(i64({a}), i64({b}))", f"min(i64({a}), i64({b}))", f"-i64({a})", f"~i64({a})",
            f"(i64({a}) if {self.test(r.random() < 0.5)} else i64({b}))", f"i32({a})", f"i8({a})", f"i64({a}) ** 2",
        ))  # fmt: skip

    def guarded(self, floats: bool, other: str) -> str:
        """A load that only the ternary around it keeps inside the array."""
        r = self.rng
        candidates = [k for k, l in enumerate(self.loops) if l.dim is not None]
        arrays = [a for a in self.arrays if a.is_float == floats and a.name[0] in "AR" and a.shape]
        if not candidates or not arrays:
            return self.leaf(floats)
        k = r.choice(candidates)
        old = self.loops[k]
        self.loops[k] = replace(old, lo=old.lo + 1)
        array = r.choice(arrays)
        load = self.element(array)
        self.loops[k] = old
        return f"({load} if {old.name} > {old.lo} else {self.like(array, other)})"

    def leaf(self, floats: bool) -> str:
        r = self.rng
        arrays = [a for a in self.arrays if a.name[0] in "ART" and a.is_float == floats]
        scalars = [n for n, f in self.locals if f == floats]
        scalars += [n for n, d in self.scalars if BY_NAME[d].is_float == floats and n[1:] not in SIZES]
        if scalars and r.random() < 0.3:
            return r.choice(scalars)
        if arrays and r.random() < 0.8:
            return self.element(r.choice(arrays))
        if self.loops and r.random() < 0.4:
            return f"{'f64' if floats else r.choice(('i32', 'i64'))}({r.choice(self.loops).name})"
        if floats:
            return r.choice(("1.0", "2.0", "3.0") if self.integral else ("0.5", "1.0", "-1.25", "3.0"))
        return f"i32({r.randint(0, 5)})"


def _plus(text: str, amount: int) -> str:
    return text if not amount else f"{text} {'+' if amount > 0 else '-'} {abs(amount)}"


def generate(seed: int, wanted: Wanted = Wanted()) -> Program:
    """The program of a seed: the same text and data on every machine."""
    return Generator(seed, wanted).program()
