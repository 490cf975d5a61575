"""Which names a loop or branch may still need afterwards: backward flow over the syntax tree.

The tree is the one that `jumps` made: `break` and `continue` are `Leave`s there.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from functools import lru_cache

from .jumps import Label, Leave, Unless, leaves, next_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Liveness:
    """`after[node]`: names whose value may be read after a statement with a body of its own.

    A function defined inside reads its outer names where it is called. One that is not just called by its name
    (handed on, say) may be called anywhere: what it reads is live everywhere.
    """

    def __init__(self, body: list[ast.stmt]) -> None:
        self.after: dict[ast.AST, frozenset[str]] = {}
        self.targets: dict[Label, frozenset[str]] = {}  # what is live where a jump leads to
        self.functions, self.always = _functions(body)
        self._block(body, self.always)

    def exposed(self, body: list[ast.stmt]) -> frozenset[str]:
        """Names that statements of the body may read before they assign them."""
        alone = copy.copy(self)
        alone.after, alone.targets = {}, {}
        return alone._block(body, frozenset())

    def _reads(self, node: ast.AST) -> frozenset[str]:
        names = reads(node)
        while True:
            more = names.union(*(self.functions[n] for n in names if n in self.functions))
            if more == names:
                return names
            names = more

    def _block(self, body: Iterable[ast.stmt], live: frozenset[str]) -> frozenset[str]:
        for s in reversed(list(body)):
            live = self._statement(s, live) | self.always
        return live

    def _statement(self, s: ast.stmt, live: frozenset[str]) -> frozenset[str]:
        if isinstance(s, ast.If):
            self.after[s] = live | self._jumps(s)
            return self._block(s.body, live) | self._block(s.orelse, live) | self._reads(s.test)
        if isinstance(s, Unless):
            self.after[s] = live | self._jumps(s)
            return self._block(s.body, live) | live
        if isinstance(s, Leave):
            return self.targets.get(s.label, frozenset())
        if isinstance(s, ast.For):
            return self._loop(s, live, stored(s.target)) | self._reads(s.iter) | self._reads(s.target)
        if isinstance(s, ast.While):
            return self._loop(s, live, frozenset())
        if isinstance(s, ast.Assign):
            killed = frozenset[str]().union(*(stored(t) for t in s.targets))
            return (live - killed) | self._reads(s.value).union(*(self._reads(t) for t in s.targets))
        if isinstance(s, ast.AugAssign):
            return live | self._reads(s.value) | self._reads(s.target) | stored(s.target)
        if isinstance(s, ast.FunctionDef):
            return (live - {s.name}).union(*(self._reads(d) for d in [*s.args.defaults, *s.args.kw_defaults] if d))
        if isinstance(s, ast.Return):
            return self._reads(s.value) if s.value is not None else frozenset()
        return live | self._reads(s)

    def _jumps(self, s: ast.stmt) -> frozenset[str]:
        """What is live where the jumps lead to that leave a statement."""
        nodes = [*ast.walk(s)]
        own = {label for n in nodes if isinstance(n, (ast.For, ast.While)) for label in (*leaves(n), next_of(n))}
        out = {n.label for n in nodes if isinstance(n, Leave)} - own
        return frozenset[str]().union(*(self.targets.get(label, frozenset()) for label in out))

    def _loop(self, s: ast.For | ast.While, live: frozenset[str], variables: frozenset[str]) -> frozenset[str]:
        around = live if isinstance(s, ast.For) else frozenset()  # a `while` ends by its jumps only
        while True:  # what the next iteration needs is live at the end of the body
            self.targets |= dict.fromkeys(leaves(s), live)
            if (label := next_of(s)) is not None:
                self.targets[label] = around
            entry = self._block(s.body, around) - variables
            if entry <= around:
                break
            around |= entry
        self.after[s] = live
        return around


def _functions(body: list[ast.stmt]) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """Functions defined in `body` with what they read from outside, and what is read by ones used freely."""
    nodes = [n for s in body for n in ast.walk(s)]
    if not any(isinstance(n, FUNCTIONS) for n in nodes):
        return {}, frozenset()
    named: dict[str, frozenset[str]] = {}
    placed: set[ast.AST] = set()
    for n in nodes:
        if isinstance(n, ast.FunctionDef):
            named[n.name] = named.get(n.name, frozenset()) | free_names(n)
            placed.add(n)
        elif isinstance(n, ast.Assign) and isinstance(n.value, ast.Lambda) and isinstance(n.targets[0], ast.Name):
            name = n.targets[0].id
            named[name] = named.get(name, frozenset()) | free_names(n.value)
            placed.add(n.value)
    called = {n.func for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    free = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n not in called}
    always = frozenset[str]().union(*(free_names(n) for n in nodes if isinstance(n, FUNCTIONS) and n not in placed))
    always |= frozenset[str]().union(*(reach for name, reach in named.items() if name in free))
    while more := always.union(*(named[n] for n in always if n in named)) - always:
        always |= more
    return named, always


@lru_cache(maxsize=4096)
def free_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """Names that a function reads and does not bind itself."""
    body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
    return frozenset[str]().union(*(reads(b) for b in body)) - own_names(node)


@lru_cache(maxsize=4096)
def own_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """The parameters of a function and the names that its body assigns."""
    a = node.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]
    body = node.body if isinstance(node.body, list) else []
    return frozenset(p.arg for p in every).union(*(stored(s) for s in body))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement without those inside functions that it defines."""
    yield node
    if not isinstance(node, FUNCTIONS):
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)


@lru_cache(maxsize=16384)
def reads(node: ast.AST) -> frozenset[str]:
    """Names read anywhere in `node`."""
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


@lru_cache(maxsize=16384)
def stored(node: ast.AST) -> frozenset[str]:
    """Names that a statement or target binds (not the base of `A[i]`)."""
    names = {n.id for n in _own_nodes(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(names | {n.name for n in _own_nodes(node) if isinstance(n, ast.FunctionDef)})


def assigned(body: list[ast.stmt]) -> frozenset[str]:
    """Names assigned by the statements of `body` at any depth, loop targets included."""
    return frozenset().union(*(stored(s) for s in body))
