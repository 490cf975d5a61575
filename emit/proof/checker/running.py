"""The loops at given sizes, run on version numbers. Loops that do not do what the model does are `Rejected`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from .reading import Line, Loops
from .text import Opaque, Rejected, known, parsed, subscripts, undecided, value


class Enough(Exception):
    """As many stores have run as were asked for."""


class Run:
    """The loops at one combination of sizes, on version numbers. `most` stores run, then it is `Enough`.
    `current[element]` counts the
    writes to an element; `memory` has the version that the array holds, `cells` what buffers hold:
    (element, version). `teams` are the parallel loops being run: the iteration, and who has touched
    what, by place: (iterations, whether one writes)."""

    def __init__(self, loops: Loops, sizes: dict[str, int], most: int | None = None) -> None:
        self.loops = loops
        self.left = most
        self.current: dict[Any, int] = {}
        self.memory: dict[Any, int] = {}
        self.cells: dict[str, dict[tuple[int, ...], tuple[Any, int]]] = {}
        self.lines = {id(x.node): x for x in loops.lines}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, array in loops.data["arrays"].items():
            self.shapes[name] = tuple(int(value(parsed(n), sizes)) for n in array["shape"])
        self.arrays = set(self.shapes)
        self.teams: list[tuple[list[int], dict[Any, tuple[set[int], bool]]]] = []
        self.born: dict[str, int] = {}

    def block(self, body: list[ast.stmt], env: dict[str, int]) -> None:
        """Run statements in order; `env` has the sizes and the loops' variables.

        The branch of a test that only data decide runs: whether it may is asked of each store.

        Raises:
            Rejected: something in it differs from the model.
            Enough: the stores that were asked for have run.
        """
        for node in body:
            if isinstance(node, ast.For):
                self.loop(node, env)
            elif isinstance(node, ast.If):
                try:
                    taken = node.body if value(node.test, env) else node.orelse
                except Opaque:
                    taken = node.body
                self.block(taken, env)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.allocate(node, env)
            elif isinstance(node, ast.Assign):
                self.store(self.lines[id(node)], env)
        if body is self.loops.body:
            self.finish()

    def loop(self, node: ast.For, env: dict[str, int]) -> None:
        """Run a loop; while a parallel one runs, who touches what is booked."""
        lo, hi, *step = (int(value(x, env)) for x in node.iter.args)  # type: ignore[attr-defined]
        parallel = self.loops.kind(node) == "parallel"
        if parallel:
            self.teams.append(([0], {}))
        for v in range(lo, hi, *step):
            if parallel:
                self.teams[-1][0][0] = v
            self.block(node.body, {**env, ast.unparse(node.target): v})
        if parallel:
            self.teams.pop()

    def touch(self, name: str, at: tuple[int, ...], write: bool) -> None:
        """Two iterations of a parallel loop may not meet at one place, if one of them writes."""
        for (iteration,), seen in self.teams[self.born.get(name, 0) :]:
            who, written = seen.get((name, at), (set(), False))
            if (write or written) and who - {iteration}:
                raise Rejected(f"iterations of a parallel loop meet at {name}{list(at)}")
            seen[name, at] = who | {iteration}, written or write

    def allocate(self, node: ast.Assign, env: dict[str, int]) -> None:
        """An empty buffer, of the shape that the sizes give it."""
        name = node.targets[0].id  # type: ignore[attr-defined]
        if name in self.arrays:
            return
        shape = node.value.args[0]  # type: ignore[attr-defined]
        self.shapes[name] = tuple(max(0, int(value(x, env))) for x in subscripts(shape))
        self.cells[name] = {}
        self.born[name] = len(self.teams)

    def place(self, node: ast.Subscript, env: Mapping[str, int]) -> tuple[str, tuple[int, ...]]:
        """The array or buffer and the place that a subscript names.

        Raises:
            Rejected: the place lies outside.
            Opaque: data decide about it.
        """
        name = ast.unparse(node.value)
        at = tuple(int(value(x, env)) for x in subscripts(node))
        if len(at) != len(self.shapes[name]) or not all(0 <= i < n for i, n in zip(at, self.shapes[name])):
            raise Rejected(f"{name}{list(at)} is outside {list(self.shapes[name])}")
        return name, at

    def store(self, line: Line, env: dict[str, int]) -> None:
        """A store of an instance: its condition, value and element have to be the model's. Others are copies.

        Raises:
            Rejected: one of them is not.
            Enough: no more stores are to run.
        """
        if self.left is not None:
            if self.left == 0:
                raise Enough
            self.left -= 1
        target = line.node.targets[0]
        assert isinstance(target, ast.Subscript)
        if line.instance is None:
            self.copy(line, target, env)
            return
        stmt = self.loops.statements[str(line.stmt)]
        iters = {i: int(value(x, env)) for i, x in zip(stmt["iterators"], subscripts(line.instance), strict=True)}
        own = {n: env[n] for n in self.loops.sizes} | iters
        for test, truth in line.conditions:
            if not truth or stmt["condition"] is None or not self.same(parsed(stmt["condition"]), own, test, env):
                raise Rejected(f"{line.stmt} runs under another condition")
        if stmt["condition"] is not None and not line.conditions and not value(parsed(stmt["condition"]), own):
            raise Rejected(f"{line.stmt} runs without its condition")
        if not self.same(parsed(stmt["value"]), own, line.node.value, env):
            raise Rejected(f"{line.stmt}{list(iters.values())} computes another value")
        self.write(parsed(stmt["target"]), own, target, env)

    def copy(self, line: Line, target: ast.Subscript, env: dict[str, int]) -> None:
        """A copy moves an element and its version between an array and a buffer, or between buffers.

        Raises:
            Rejected: nothing was there, or an element of an array would become another one.
        """
        source = line.node.value
        if not isinstance(source, ast.Subscript) or line.conditions:
            raise Rejected(f"a store that belongs to no statement: {ast.unparse(line.node)}")
        name, at = self.place(source, env)
        held = ((name, at), self.memory.get((name, at), 0)) if name in self.arrays else self.cells[name].get(at)
        if held is None:
            raise Rejected(f"a copy of the unset {name}{list(at)}")
        to, where = self.place(target, env)
        self.touch(name, at, False)
        self.touch(to, where, True)
        if to not in self.arrays:
            self.cells[to][where] = held
        elif held[0] != (to, where):
            raise Rejected(f"{to}{list(where)} becomes the copy of another element")
        else:
            self.memory[to, where] = held[1]

    def write(self, wanted: ast.expr, own: dict[str, int], target: ast.Subscript, env: dict[str, int]) -> None:
        """The element of the model gets its next version, at the place where the loops put it.

        Raises:
            Rejected: this is another element's place.
        """
        assert isinstance(wanted, ast.Subscript)
        name = ast.unparse(wanted.value)
        try:
            element = self.place(wanted, own)
        except Opaque:  # a scatter: only the text is compared
            parts = zip(subscripts(wanted), subscripts(target), strict=True)
            if name != ast.unparse(target.value) or not all(self.same(x, own, y, env) for x, y in parts):
                raise Rejected(f"another element of '{name}' is written") from None
            return
        version = self.current.get(element, 0) + 1
        to, at = self.place(target, env)
        self.touch(to, at, True)
        if to in self.arrays and (to, at) != element:
            raise Rejected(f"{to}{list(at)} is written instead of {element}")
        if to in self.arrays:
            self.memory[element] = version
        else:
            self.cells[to][at] = (element, version)
        self.current[element] = version

    def read(self, wanted: ast.Subscript, own: Mapping[str, int], given: ast.Subscript, env: Mapping[str, int]) -> bool:
        """Whether the loops read, at this point, the element that the model reads, in its last version.

        Raises:
            Rejected: the array is read while a buffer has the element's last version.
        """
        try:
            element = self.place(wanted, own)
        except Opaque:  # a gather
            return self.same_operands(wanted, own, given, env)
        name, at = self.place(given, env)
        self.touch(name, at, False)
        version = self.current.get(element, 0)
        if name in self.arrays:
            if (name, at) == element and self.memory.get(element, 0) != version:
                raise Rejected(f"{name}{list(at)} is read while its value is in a buffer")
            return (name, at) == element
        if at not in self.cells[name]:
            undefined = version == 0 and self.loops.data["arrays"][element[0]]["kind"] in ("local", "out")
            return undefined
        return self.cells[name][at] == (element, version)

    def same(self, e: ast.expr, own: Mapping[str, int], a: ast.expr, env: Mapping[str, int]) -> bool:
        """Whether `a` of the loops computes what the statement's `e` does."""
        if isinstance(e, ast.IfExp):
            try:
                e = e.body if value(e.test, own) else e.orelse
                if isinstance(a, ast.IfExp) and known(a.test, env):
                    a = a.body if value(a.test, env) else a.orelse
                return self.same(e, own, a, env)
            except Opaque:
                pass
        e, a = undecided(e, own), undecided(a, env)
        if known(e, own) or known(a, env):
            return known(e, own) and known(a, env) and value(e, own) == value(a, env)
        if isinstance(e, ast.Subscript) and isinstance(a, ast.Subscript):
            return self.read(e, own, a, env)
        return self.same_operands(e, own, a, env)

    def same_operands(self, e: ast.AST, own: Mapping[str, int], a: ast.AST, env: Mapping[str, int]) -> bool:
        """Whether two expressions are the same operation on operands that are the same."""
        if type(e) is not type(a):
            return False
        if isinstance(e, (ast.Name, ast.Constant)):
            return ast.dump(e) == ast.dump(a)
        for x, y in zip(ast.iter_child_nodes(e), ast.iter_child_nodes(a), strict=True):
            good = (
                self.same(x, own, y, env) if isinstance(x, ast.expr) and isinstance(y, ast.expr) else type(x) is type(y)
            )
            if not good:
                return False
        return True

    def finish(self) -> None:
        """At the end, arrays hold the last version of every element of a result.

        Raises:
            Rejected: one was left in a buffer.
        """
        for element, version in self.current.items():
            kept = self.memory.get(element, 0) == version
            if not kept and self.loops.data["arrays"][element[0]]["kind"] in ("out", "inout"):
                raise Rejected(f"the last value of {element} stays in a buffer")
