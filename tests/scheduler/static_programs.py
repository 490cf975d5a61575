"""Random small programs of constant sizes, for tests that enumerate every instance."""

from __future__ import annotations

import random

from scop_builder import Loop, Stmt, build

from polyc.poly.scop import Scop

EXTENT = 4


def program(r: random.Random) -> Scop:
    """One to three nests, sometimes imperfect or triangular, over shared arrays with offsets."""
    names = iter("ijklmnopqrstuvw")
    arrays = {"A": 2, "B": 1, "C": 2}

    def subscript(rank: int, its: list[str]) -> str:
        parts = []
        for _ in range(rank):
            base = r.choice(its) if its and r.random() < 0.9 else "2"
            other = f" - {r.choice(its)} + {EXTENT}" if its and r.random() < 0.1 else f" + {r.randint(1, 3)}"
            parts.append(base + other)
        return ", ".join(parts)

    def load(its: list[str]) -> str:
        name = r.choice(list(arrays))
        return f"{name}[{subscript(arrays[name], its)}]"

    def statement(its: list[str]) -> Stmt:
        target = load(its)
        if r.random() < 0.3:
            return Stmt(f"{target} = {target} + {load(its)}", "+")
        return Stmt(f"{target} = {load(its)} * {load(its)}")

    def nest(its: list[str], depth: int) -> Loop:
        name = next(names)
        lo = r.choice([*its, "0", "0", "0"])
        inside = [*its, name]
        body: list = []
        if depth > 1:
            if r.random() < 0.4:
                body.append(statement(inside))
            body.append(nest(inside, depth - 1))
            if r.random() < 0.2:
                body.append(nest(inside, 1))
        else:
            body = [statement(inside) for _ in range(r.choice((1, 1, 2)))]
        return Loop(name, lo, str(EXTENT), body)

    nests = [nest([], r.randint(1, 3)) for _ in range(r.randint(1, 2))]
    return build("p", [], {"A": "12,12", "B": "12", "C": "12,12"}, nests)


def with_locals(r: random.Random) -> Scop:
    """Nests that compute local arrays `t` and `u` from `A`, change `A`, and use the locals, in some order."""
    n = str(EXTENT)
    offset = lambda: r.randint(0, 2)  # noqa: E731
    sources = ["A", "A", "B", r.choice("AB")]

    def one(k: int, target: str, value: str) -> Loop:
        return Loop(f"i{k}", "0", n, [Stmt(f"{target} = {value}".replace("@", f"i{k}"))])

    def load(k: int) -> str:
        return f"{r.choice(sources)}[@ + {offset()}]"

    nests: list = [one(0, "t[@]", f"{load(0)} * {load(0)}")]
    if r.random() < 0.5:
        nests.append(one(1, r.choice(("A[@]", "A[@ + 3]", "B[@]")), f"{load(1)} * 2.0"))
    if r.random() < 0.4:
        nests.append(one(2, "u[@]", f"t[{r.choice(('@', '3 - @'))}] + {load(2)}"))
    reader = r.choice(("t[@]", "t[3 - @] * t[@]", "t[@] + B[@]", "u[@] + t[@]" if len(nests) > 2 else "t[0]"))
    if "u" in reader and not any("u[" in s.text.split("=")[0] for x in nests for s in x.body):
        reader = "t[@]"
    nests.append(one(3, r.choice(("C[@]", "A[@ + 1]", "B[@]")), reader))
    if r.random() < 0.4:
        nests.append(one(4, "C[@ + 1]", f"t[@] * {load(4)}"))
    if r.random() < 0.5:  # producer, consumer and disturbance in one loop
        nests = [Loop("i", "0", n, [Stmt(s.text.replace(x.name, "i")) for x in nests for s in x.body])]
        if any("3 - i" in s.text or "t[0]" in s.text for s in nests[0].body):
            return with_locals(r)
    return build("p", [], {"A": "9", "B": "9", "C": "9", "t": n, "u": n}, nests, local=["t", "u"])


def with_sums(r: random.Random) -> Scop:
    """A reduction over some of three loops, with statements that set or use its result around or inside."""
    n = str(EXTENT)
    its = ["i", "j", "k"][: r.randint(1, 3)]
    out = r.sample(its, r.randint(0, len(its) - 1)) if len(its) > 1 else []
    target = f"C[{', '.join([*out, *['0'] * (2 - len(out))])}]"
    update = Stmt(f"{target} = {target} + A[{its[0]}, {its[-1]}]", "+")
    body: list = [update]
    for depth, name in reversed(list(enumerate(its))):
        lo = its[r.randrange(depth)] if depth and r.random() < 0.3 else "0"
        known = set(its[: depth + 1])
        if set(out) <= known:
            if r.random() < 0.3:
                body.insert(0, Stmt(f"{target} = 0.0"))
            if r.random() < 0.3:
                body.append(Stmt(f"B[{name}] = {target}"))
        body = [Loop(name, lo, n, body)]
    return build("p", [], {"A": f"{n},{n}", "B": n, "C": f"{n},{n}"}, body)
