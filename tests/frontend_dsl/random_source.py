"""Random hybrid-script programs as source text: locals, conditions, loops of all kinds, indirection.

Arrays are f64, so that a local's dtype never depends on which assignment ran.
"""

import linecache
import random
from typing import Any

FLOATS, INTS = ("s", "t", "u"), ("k", "l")
HEADER = """
N, M = dims("N M")

def helper(x, y):
    if x > y:
        return x - y
    z = y * 0.5
    return z

@op
def program(A: inout(f64[N]), B: f64[N, M], I: i64[N]) -> f64[N, M]:
    D = full((N, M), 0.25, f64)
"""


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.names = 0

    def index(self, loops: list[str], size: str) -> str:
        """A subscript that is always in bounds of an axis of extent `size`."""
        base = [*loops, *loops, "0", *INTS] if self.r.random() < 0.5 else [*loops, "0"]
        text = self.r.choice(base)
        if self.r.random() < 0.4:
            text += self.r.choice([" + 1", " + 2", " * 2", f" + {self.r.choice(loops)}" if loops else " + 1"])
        if size == "N" and self.r.random() < 0.15:
            text = f"I[{self.index(loops, 'N')}]"
        return f"({text}) % {size}"

    def real(self, loops: list[str], depth: int = 2) -> str:
        """A floating-point expression."""
        kind = self.r.randrange(9 if depth else 4)
        if kind == 0:
            return self.r.choice(FLOATS)
        if kind == 1:
            return f"A[{self.index(loops, 'N')}]"
        if kind == 2:
            return f"{self.r.choice('BD')}[{self.index(loops, 'N')}, {self.index(loops, 'M')}]"
        if kind == 3:
            return self.r.choice(["0.5", "1", "-2.0", *loops, "N", *(f"f64({i})" for i in INTS)])
        a, b = self.real(loops, depth - 1), self.real(loops, depth - 1)
        if kind == 7:
            return f"(f64({a}) if {self.condition(loops, 1)} else f64({b}))"
        if kind == 8:
            pair = f"f64({a}), f64({b})"  # one of two values has one dtype
            return self.r.choice([f"helper({pair})", f"abs({a})", f"min({pair})", f"max({pair})"])
        return f"({a} {self.r.choice('+-*')} {b})"

    def whole(self, loops: list[str]) -> str:
        """A small integer expression."""
        a = self.r.choice([*loops, *INTS, "1", "2", "N", "M"])
        b = self.r.choice([*loops, "1", "3"])
        return f"({a} {self.r.choice(['+', '-', '*', '//', '%'][: 5 if b in '13' else 2])} {b}) % 5"

    def condition(self, loops: list[str], depth: int = 1) -> str:
        if depth and self.r.random() < 0.3:
            word = self.r.choice(["and", "or"])
            return f"({self.condition(loops, 0)} {word} {self.condition(loops, 0)})"
        if self.r.random() < 0.5 and loops:
            left, op = self.r.choice(loops), self.r.choice(["<", ">=", "==", "!="])
            return f"{left} {op} {self.r.choice([*loops, '1', '2', 'N - 2'])}"
        if self.r.random() < 0.2:
            return f"{self.r.choice(INTS)} % 2 == 0"
        return f"{self.real(loops, 0)} {self.r.choice(['<', '>'])} {self.real(loops, 0)}"

    def write(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, loops: list[str], depth: int) -> None:
        for _ in range(self.r.randint(1, 4)):
            self.statement(indent, loops, depth)

    def statement(self, indent: int, loops: list[str], depth: int) -> None:
        kind = self.r.randrange(15 if depth else 9)
        if kind == 8:
            return self.kept_values(indent, loops)
        kind -= kind > 8
        if kind < 2:
            self.write(indent, f"{self.r.choice(FLOATS)} = {self.real(loops)}")
        elif kind == 2:
            name = self.r.choice(FLOATS)
            larger = f"{name} = max(f64({name}), f64({self.real(loops, 1)}))"
            self.write(indent, self.r.choice([f"{name} += {self.real(loops)}", larger]))
        elif kind == 3:
            a, b = self.r.sample(FLOATS, 2)
            self.write(indent, f"{a}, {b} = {self.real(loops, 1)}, {self.real(loops, 1)}")
        elif kind == 4:
            self.write(indent, f"{self.r.choice(INTS)} = {self.whole(loops)}")
        elif kind == 5:
            self.write(
                indent, f"A[{self.index(loops, 'N')}] {self.r.choice(['=', '+=', '='])} {self.real(loops)} * 0.5"
            )
        elif kind < 8:
            at = f"D[{self.index(loops, 'N')}, {self.index(loops, 'M')}]"
            self.write(indent, f"{at} {self.r.choice(['=', '+=', '-='])} {self.real(loops)} * 0.25")
        elif kind < 11:
            self.branch(indent, loops, depth)
        else:
            self.loop(indent, loops, depth)

    def kept_values(self, indent: int, loops: list[str]) -> None:
        """A tuple or a loop over one, whose elements a store changes before they are read."""
        first, second = self.real(loops, 1), self.real(loops, 1)
        at = f"A[{self.index(loops, 'N')}]"
        if self.r.random() < 0.5:
            self.write(indent, f"p = ({first}, {second})")
            self.write(indent, f"{at} = {self.real(loops, 1)} * 0.5")
            self.write(indent, f"D[{self.index(loops, 'N')}, 0] += p[0] - p[1]")
        else:
            name = self.r.choice([*FLOATS, "x"])
            self.write(indent, f"for {name} in ({first}, {second}):")
            self.write(indent + 1, f"{at} = {name} * 0.5")

    def branch(self, indent: int, loops: list[str], depth: int) -> None:
        self.write(indent, f"if {self.condition(loops)}:")
        self.block(indent + 1, loops, depth - 1)
        if self.r.random() < 0.5:
            self.write(indent, "else:")
            self.block(indent + 1, loops, depth - 1)

    def loop(self, indent: int, loops: list[str], depth: int) -> None:
        name = f"i{self.names}"
        self.names += 1
        inner = [*loops, name]
        lo = self.r.choice(["0", "1", *loops])
        head = self.r.choice(
            [
                f"for {name} in range(N):", f"for {name} in range({lo}, M):", f"for {name} in range(2):",
                f"for {name} in range(N - 1, -1, -1):", f"for {name} in range(0, N, 2):", f"for {name} in (0, 2, 1):",
                f"for {name} in range(max({lo}, 1), min(N, 4)):", f"for {name} in range(I[{self.index(loops, 'N')}]):",
                f"for {name}, {name}_ in grid(2, (1, M)):", f"for {name} in range({self.r.choice(INTS)} % 3):",
                f"for {self.r.choice(INTS)} in (1, 2):",
            ]
        )  # fmt: skip
        if f" {name}" not in head:
            inner.pop()
        if "grid" in head:
            inner.append(f"{name}_")
        self.write(indent, head)
        self.block(indent + 1, inner, depth - 1)


def source(seed: int) -> str:
    """The text of program number `seed`."""
    w = Writer(seed)
    for name in FLOATS:
        if w.r.random() < 0.97:
            w.write(1, f"{name} = {w.r.choice(['0.0', '1', 'A[0]', 'A[0] * 2'])}")
    for name in INTS:
        w.write(1, f"{name} = {w.r.choice(['0', '1', 'N - 1', 'I[0]'])}")
    w.block(1, [], 3)
    for _ in range(3):
        w.loop(1, [], 2)
    return HEADER + "\n".join(w.lines) + "\n    return D\n"


def load(seed: int) -> Any:
    """The operator of program number `seed`."""
    from polyc import frontend_dsl
    from polyc.poly.dtypes import f64, i64

    text, name = source(seed), f"<random program {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {
        **{n: getattr(frontend_dsl, n) for n in frontend_dsl.__all__},
        "f64": f64,
        "i64": i64,
        "__name__": "random_program",
    }
    exec(compile(text, name, "exec"), space)
    return space["program"]
