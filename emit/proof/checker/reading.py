"""A certificate's loops: every store with what is around it.

A text that does not say what a certificate must is `Rejected`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import islpy as isl

from .affine import SET, Affine
from .text import Opaque, Rejected, arguments, subscripts


@dataclass(frozen=True, eq=False)
class Line:
    """One store. `path`: from the root, numbers in the text and the loops between them."""

    node: ast.Assign
    instance: ast.Subscript | None
    path: tuple[int | ast.For, ...]
    points: isl.Set
    conditions: tuple[tuple[ast.expr, bool], ...]
    allocated: Mapping[str, int]

    @property
    def loops(self) -> list[ast.For]:
        """The loops around it, outermost first."""
        return [p for p in self.path if isinstance(p, ast.For)]

    @property
    def variables(self) -> tuple[str, ...]:
        """Their variables."""
        return tuple(ast.unparse(loop.target) for loop in self.loops)

    @property
    def stmt(self) -> str | None:
        """The statement of the model that the line claims to run; None for a copy."""
        return None if self.instance is None else ast.unparse(self.instance.value)


class Loops:
    """One certificate: the model and its loops."""

    def __init__(self, text: str) -> None:
        self.data: dict[str, Any] = json.loads(text)
        if self.data.get("format") != "polyc certificate of loops, version 1":
            raise Rejected("this is no certificate of loops that I know")
        self.sizes: list[str] = self.data["sizes"]
        self.context = isl.Set(self.data["context"])
        self.statements: dict[str, dict[str, Any]] = self.data["statements"]
        source = [x for x in self.data["loops"][1:] if not x.strip().startswith("#")]
        self.kinds = [x.rpartition("  # ")[2].split()[0] if "  # " in x else "serial" for x in source]
        code = "\n".join(x[4:].replace("[]", "[()]") for x in source)
        self.body = ast.parse(code).body
        stores = sum(_is_store(n) for n in ast.walk(ast.Module(self.body, [])))
        if stores != len(self.data["instances"]):
            raise Rejected("there is not one instance for each store")
        texts = iter(self.data["instances"])
        self.instances = {id(n): next(texts) for n in _in_order(self.body) if _is_store(n)}
        self.lines = list(self.read(self.body, (), isl.Set.universe(self.affine(()).space), (), {}))

    def affine(self, variables: tuple[str, ...]) -> Affine:
        """A reader of expressions over the sizes and these loop variables."""
        return Affine(self.sizes, list(variables))

    def read(
        self, body: list[ast.stmt], path: tuple[Any, ...], points: isl.Set, conditions: tuple[Any, ...],
        allocated: dict[str, int],
    ) -> Iterator[Line]:  # fmt: skip
        """All stores in a block."""
        allocated = dict(allocated)
        depth = sum(isinstance(p, ast.For) for p in path)
        variables = tuple(ast.unparse(p.target) for p in path if isinstance(p, ast.For))
        for k, node in enumerate(body):
            here = (*path, k)
            if isinstance(node, ast.For):
                inner = self.loop(node, (*variables, ast.unparse(node.target)), points)
                yield from self.read(node.body, (*here, node), inner, conditions, allocated)
            elif isinstance(node, ast.If):
                for arm, truth in ((node.body, True), (node.orelse, False)):
                    try:
                        test = self.affine(variables).condition(node.test)
                        inside, more = points.intersect(test if truth else test.complement()), conditions
                    except Opaque:
                        inside, more = points, (*conditions, (node.test, truth))
                    yield from self.read(arm, (*here, int(truth)), inside, more, allocated)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                allocated[node.targets[0].id] = depth
            elif isinstance(node, ast.Assign):
                text = self.instances[id(node)]
                instance = None if text is None else ast.parse(text.replace("[]", "[()]"), mode="eval").body
                yield Line(node, instance, here, points, conditions, dict(allocated))
            elif not isinstance(node, ast.Pass):
                raise Rejected(f"a statement that I do not know: {ast.unparse(node)}")

    def loop(self, node: ast.For, variables: tuple[str, ...], points: isl.Set) -> isl.Set:
        """The points inside a loop: those around it with one more dimension, between its bounds and on its step."""
        assert isinstance(node.iter, ast.Call)
        lo, hi, *step = node.iter.args
        space = self.affine(variables)
        points = points.add_dims(SET, 1).set_dim_name(SET, len(variables) - 1, variables[-1])
        for x in arguments(lo, "max"):
            points = points.intersect(space.compared(node.target, ast.GtE, x))
        for x in arguments(hi, "min"):
            points = points.intersect(space.compared(node.target, ast.Lt, x))
        if step:
            distance = ast.BinOp(ast.BinOp(node.target, ast.Sub(), lo), ast.Mod(), step[0])
            points = points.intersect(space.compared(distance, ast.Eq, ast.Constant(0)))
        return points

    def kind(self, loop: ast.For) -> str:
        """How the loop runs, by the comment behind its line (`serial` without one)."""
        return self.kinds[loop.lineno - 1]

    def instance_map(self, line: Line) -> isl.Map:
        """`{ [loop variables] -> S[iterators] }`."""
        assert line.instance is not None
        m = self.affine(line.variables).function(subscripts(line.instance), str(line.stmt))
        return m.intersect_domain(line.points).intersect_params(self.context)


def _is_store(n: ast.AST) -> bool:
    return isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript)


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for n in body:
        yield n
        for arm in (getattr(n, "body", []), getattr(n, "orelse", [])):
            yield from _in_order(arm)
