"""Operators that are called with many sizes, and mutants of their Scops: bugs of a layer that shares kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import islpy as isl
import numpy as np

from polyc import dims, empty, exp, f32, grid, inout, op, rsqrt
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, rewrite
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Node, Sequence

B, M, N, K, C, O, H, W = dims("B M N K C O H W")


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def conv(X: f32[C, H, W], F: f32[O, C, 3, 3]) -> f32[O, H - 2, W - 2]:
    Y = empty((O, H - 2, W - 2), f32)
    for o, y, x in grid(O, H - 2, W - 2):
        Y[o, y, x] = 0.0
        for c, r, s in grid(C, 3, 3):
            Y[o, y, x] += X[c, y + r, x + s] * F[o, c, r, s]
    return Y


@op
def norm(X: f32[M, N], G: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        s = f32(0.0)
        for j in range(N):
            s += X[i, j]
        mean = s / f32(N)
        v = f32(0.0)
        for j in range(N):
            v += (X[i, j] - mean) * (X[i, j] - mean)
        r = rsqrt(v / f32(N) + 1e-5)
        for j in range(N):
            Y[i, j] = (X[i, j] - mean) * r * G[j]
    return Y


@op
def softmax(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        m = X[i, 0]
        for j in range(N):
            m = max(m, X[i, j])
        s = f32(0.0)
        for j in range(N):
            s += exp(X[i, j] - m)
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m) / s
    return Y


@op
def smooth(A: inout(f32[N]), alpha: f32):
    for i in range(1, N - 1):
        A[i] = A[i - 1] + alpha * A[i + 1]
    for i in range(N):
        if i % 3 == 1:
            A[i] = A[i] * 2.0


@op
def every_other(A: f32[2 * N], X: f32[M]) -> f32[N, M]:
    Y = empty((N, M), f32)
    for i, j in grid(N, M):
        Y[i, j] = A[2 * i + 1] - X[j] if i < M else A[2 * i]
    return Y


@op
def mirrored(A: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i, j in grid(M, N):
        Y[i, j] = A[M - 1 - i, N - j - 1] + A[i, (j + N - 1) % N]
    return Y


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Sized:
    """An operator, how to make its arguments from sizes, which are by name, and what NumPy computes; each size is at
    least `least`."""

    operator: Any
    names: str
    make: Callable[..., tuple[Any, ...]]
    wanted: Callable[..., np.ndarray]
    least: int = 0

    def arguments(self, rng: np.random.Generator, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """Random arguments of these sizes."""
        return self.make(rng, *(sizes[n] for n in self.names.split()))

    def sizes(self, rng: np.random.Generator, most: int) -> dict[str, int]:
        """Random sizes."""
        return {n: int(rng.integers(self.least, most + 1)) for n in self.names.split()}

    def scop(self, sizes: Mapping[str, int]) -> Scop:
        """The operator's Scop with these sizes as numbers, others as symbols."""
        found: Scop = self.operator.scop(**sizes)
        return found


def _conv(X: np.ndarray, F: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), axis=(1, 2))
    return np.einsum("cyxrs,ocrs->oyx", windows, F)


def _norm(X: np.ndarray, G: np.ndarray) -> np.ndarray:
    if not X.size:
        return np.zeros_like(X)
    apart = X - X.mean(1, keepdims=True)
    return apart / np.sqrt((apart * apart).mean(1, keepdims=True) + 1e-5) * G


def _softmax(X: np.ndarray) -> np.ndarray:
    e = np.exp(X - X.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _smooth(A: np.ndarray, alpha: np.float32) -> np.ndarray:
    for i in range(1, len(A) - 1):
        A[i] = A[i - 1] + alpha * A[i + 1]
    A[1::3] *= 2
    return A


def _mirrored(A: np.ndarray) -> np.ndarray:
    return A[::-1, ::-1] + np.roll(A, 1, axis=1)


def _every_other(A: np.ndarray, X: np.ndarray) -> np.ndarray:
    inside = np.arange(len(A) // 2)[:, None] < len(X)
    return np.where(inside, A[1::2, None] - X, A[::2, None] + 0 * X)


CASES = {
    "matmul": Sized(matmul, "M N K", lambda r, m, n, k: (drawn(r, m, k), drawn(r, k, n)), np.matmul),
    "conv": Sized(conv, "C O H W", lambda r, c, o, h, w: (drawn(r, c, h, w), drawn(r, o, c, 3, 3)), _conv, 3),
    "norm": Sized(norm, "M N", lambda r, m, n: (drawn(r, m, n), drawn(r, n)), _norm),
    "softmax": Sized(softmax, "M N", lambda r, m, n: (drawn(r, m, n),), _softmax, 1),
    "smooth": Sized(smooth, "N", lambda r, n: (drawn(r, n), np.float32(0.25)), _smooth),
    "mirrored": Sized(mirrored, "M N", lambda r, m, n: (drawn(r, m, n),), _mirrored),
    "every_other": Sized(every_other, "M N", lambda r, m, n: (drawn(r, 2 * n), drawn(r, m)), _every_other),
}


# ---- mutants of a Scop with symbols -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A Scop with one mistake."""

    kind: str
    scop: Scop


def mutants(scop: Scop, random: Random) -> Iterator[Mutant]:
    """Mutants without end, the kinds in turn."""
    while True:
        for kind, change in CHANGES.items():
            found = change(scop, random)
            if found is not None:
                yield Mutant(kind, found)


def wrong_stride(scop: Scop, random: Random) -> Scop | None:
    """One extent of an array, so that rows lie elsewhere."""
    name = random.choice([n for n, a in scop.arrays.items() if a.shape])
    shape = list(scop.arrays[name].shape)
    at = random.randrange(len(shape))
    other = [e for e in shape if e != shape[at]] + [plus(shape[at], random.choice((-1, 1, 16)))]
    shape[at] = random.choice(other)
    return replace(scop, arrays={**scop.arrays, name: replace(scop.arrays[name], shape=tuple(shape))})


def wrong_trip_count(scop: Scop, random: Random) -> Scop | None:
    """A loop of one statement that leaves out its first iteration, or runs once more."""

    def changed(domain: isl.Set, at: int) -> isl.Set:
        first = domain.lower_bound_val(isl.dim_type.set, at, isl.Val(1))
        shifted = isl.Map(f"{{ [{coords(domain)}] -> [{coords(domain, at)}] }}")
        more = named_like(unnamed(domain).apply(shifted), domain)
        return first if random.random() < 0.5 else domain.union(more)

    return _domain(scop, random, changed)


def wrong_remainder(scop: Scop, random: Random) -> Scop | None:
    """A loop that runs only whole blocks of lanes."""

    def changed(domain: isl.Set, at: int) -> isl.Set:
        lanes = random.choice((4, 8, 16))
        last = coords(domain, at, f"{lanes} * floor(i{at} / {lanes}) + {lanes - 1}")  # of the block
        top = isl.Map(f"{{ [{coords(domain)}] -> [{last}] }}")
        whole = unnamed(domain).intersect(unnamed(domain).apply(top.reverse()))
        return named_like(whole, domain)

    return _domain(scop, random, changed)


def coords(domain: isl.Set, at: int | None = None, text: str | None = None) -> str:
    """`i0, i1, ...`, one of them as `text` (None: the next)."""
    names = [f"i{k}" for k in range(domain.dim(isl.dim_type.set))]
    if at is not None:
        names[at] = text or f"i{at} + 1"
    return ", ".join(names)


def unnamed(domain: isl.Set) -> isl.Set:
    return domain.reset_tuple_id()


def named_like(domain: isl.Set, like: isl.Set) -> isl.Set:
    return domain.set_tuple_name(like.get_tuple_name())


def _domain(scop: Scop, random: Random, change: Callable[[isl.Set, int], isl.Set]) -> Scop | None:
    name = random.choice(list(scop.statements))
    stmt = scop.statements[name]
    if not stmt.iters:
        return None
    domain = change(stmt.domain, random.randrange(len(stmt.iters)))
    return None if domain == stmt.domain else _with(scop, replace(stmt, domain=domain))


def wrong_alias(scop: Scop, random: Random) -> Scop | None:
    """A statement that reads or writes another array of the same rank."""
    stmt = scop.statements[random.choice(list(scop.statements))]

    def other(array: str) -> str | None:
        alike = [n for n, a in scop.arrays.items() if n != array and len(a.shape) == len(scop.arrays[array].shape)]
        return random.choice(alike) if alike else None

    if random.random() < 0.3:
        array = other(stmt.array)
        return None if array is None else _with(scop, replace(stmt, array=array))
    return _value(scop, stmt, random, Load, lambda e: replace(e, array=other(e.array) or e.array))


def wrong_subscript(scop: Scop, random: Random) -> Scop | None:
    """A subscript that is one further, or two that are exchanged."""

    def moved(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        at = random.randrange(len(index))
        if len(index) > 1 and random.random() < 0.4:
            return (*index[1:], index[0])
        return (*index[:at], plus(index[at], random.choice((-1, 1))), *index[at + 1 :])

    stmt = scop.statements[random.choice(list(scop.statements))]
    if stmt.index and random.random() < 0.3:
        return _with(scop, replace(stmt, index=moved(stmt.index)))
    return _value(scop, stmt, random, Load, lambda e: replace(e, index=moved(e.index)) if e.index else e)


def wrong_operation(scop: Scop, random: Random) -> Scop | None:
    """Another operation."""
    stmt = scop.statements[random.choice(list(scop.statements))]
    other = {"+": "-", "-": "+", "*": "+", "/": "*", "max": "min", "min": "max"}
    return _value(scop, stmt, random, Binary, lambda e: replace(e, op=other.get(e.op, e.op)))


def wrong_literal(scop: Scop, random: Random) -> Scop | None:
    """Another number: its sign alone, too, that of zero included."""
    stmt = scop.statements[random.choice(list(scop.statements))]
    return _value(scop, stmt, random, Const, lambda e: replace(e, value=random.choice((-e.value, e.value + 1))))


def wrong_size(scop: Scop, random: Random) -> Scop | None:
    """A size where another one belongs."""
    stmt = scop.statements[random.choice(list(scop.statements))]
    others = [*scop.params]
    return _value(scop, stmt, random, Var, lambda e: replace(e, name=random.choice(others)) if e.name in others else e)


def wrong_order(scop: Scop, random: Random) -> Scop | None:
    """Statements, or iterations of a loop, one after another the other way round; parts left out."""
    nodes = [n for n in _nodes(scop.tree) if isinstance(n, Sequence | Band)]
    node = random.choice(nodes)
    if isinstance(node, Sequence):
        filters = [*node.filters]
        random.shuffle(filters)
        other: Node = replace(node, filters=tuple(filters))
    else:
        member = node.members[0]
        backwards = replace(member, schedule={s: pa.neg() for s, pa in member.schedule.items()})
        other = replace(node, members=(backwards, *node.members[1:]))
    return None if other == node else replace(scop, tree=_replaced(scop.tree, node, other))


def wrong_reduction(scop: Scop, random: Random) -> Scop | None:
    """A statement whose instances may be reordered though they may not, or the other way round."""
    stmt = scop.statements[random.choice(list(scop.statements))]
    return _with(scop, replace(stmt, reduction=None if stmt.reduction else "+"))


CHANGES: dict[str, Callable[[Scop, Random], Scop | None]] = {
    "stride": wrong_stride, "trip count": wrong_trip_count, "remainder": wrong_remainder, "alias": wrong_alias,
    "subscript": wrong_subscript, "operation": wrong_operation, "literal": wrong_literal, "size": wrong_size,
    "order": wrong_order, "reduction": wrong_reduction,
}  # fmt: skip


def plus(e: Expr, n: int) -> Expr:
    return Binary("+", e, const_int(n), e.dtype)


def _with(scop: Scop, stmt: Statement) -> Scop:
    return replace(scop, statements={**scop.statements, stmt.name: stmt})


def _value(scop: Scop, stmt: Statement, random: Random, kind: Any, change: Callable[[Any], Expr]) -> Scop | None:
    """One expression of this kind in what the statement computes changed."""
    skip = random.randrange(3)

    def visit(e: Expr) -> Expr:
        nonlocal skip
        if not isinstance(e, kind):
            return e
        skip -= 1
        return change(e) if skip == -1 else e

    value = rewrite(stmt.value, visit)
    same = value == stmt.value and repr(value) == repr(stmt.value)
    return None if same else _with(scop, replace(stmt, value=value))


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children():
        yield from _nodes(child)


def _replaced(tree: Node, old: Node, new: Node) -> Node:
    if tree is old:
        return new
    kids = tree.children()
    made = tuple(_replaced(c, old, new) for c in kids)
    if isinstance(tree, Sequence):
        return replace(tree, filters=tuple(m for m in made if isinstance(m, Filter)))
    return tree.with_children(made) if kids else tree
