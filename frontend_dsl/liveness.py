"""Which names a loop or branch may still need afterwards: backward flow over the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache


class Liveness:
    """`after[node]`: names whose value may be read after a `for` or `if` node of a function body."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.after: dict[ast.AST, frozenset[str]] = {}
        self._block(body, frozenset())

    def _block(self, body: Iterable[ast.stmt], live: frozenset[str]) -> frozenset[str]:
        for s in reversed(list(body)):
            live = self._statement(s, live)
        return live

    def _statement(self, s: ast.stmt, live: frozenset[str]) -> frozenset[str]:
        if isinstance(s, ast.If):
            self.after[s] = live
            return self._block(s.body, live) | self._block(s.orelse, live) | reads(s.test)
        if isinstance(s, ast.For):
            self.after[s] = live
            around = live
            while True:  # what the next iteration needs is live at the end of the body
                entry = self._block(s.body, around) - stored(s.target)
                if entry <= around:
                    break
                around |= entry
            self.after[s] = live
            return around | reads(s.iter) | reads(s.target)
        if isinstance(s, ast.Assign):
            killed = frozenset[str]().union(*(stored(t) for t in s.targets))
            return (live - killed) | reads(s.value).union(*(reads(t) for t in s.targets))
        if isinstance(s, ast.AugAssign):
            return live | reads(s.value) | reads(s.target) | stored(s.target)
        if isinstance(s, ast.Return):
            return reads(s.value) if s.value is not None else frozenset()
        return live | reads(s)


def upward_exposed(body: list[ast.stmt]) -> frozenset[str]:
    """Names that `body` may read before it assigns them."""
    return Liveness([])._block(body, frozenset())


@lru_cache(maxsize=16384)
def reads(node: ast.AST) -> frozenset[str]:
    """Names read anywhere in `node`."""
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


@lru_cache(maxsize=16384)
def stored(node: ast.AST) -> frozenset[str]:
    """Names that a target binds (not the base of `A[i]`)."""
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def assigned(body: list[ast.stmt]) -> frozenset[str]:
    """Names assigned by the statements of `body` at any depth, loop targets included."""
    return frozenset().union(*(stored(s) for s in body))
