"""The state of a translation: one `Program`, and a `Frame` for each function being read."""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from polyc.poly.expr import Const, Expr, Span, Var, substitute, walk

from .annotations import Dim
from .builder import Builder, Guard, Loop
from .errors import DslError
from .fold import tidy
from .source import source_of
from .values import ArrayValue, Sym, Type


class Program:
    """What all frames share. `types` are the dtypes of local scalars found by the last pass."""

    def __init__(self, builder: Builder, types: Mapping[int, Type]) -> None:
        self.builder = builder
        self.types = types
        self.seen: dict[int, Type] = {}
        self.count = 0
        self.assigned: frozenset[int] = frozenset()
        self.depth = 0
        self.kept: set[str] = set()  # arrays of values that never change once stored
        self.outside: list[str] = []  # sizes from outside that no shape has: parameters in the next pass
        self.mixed: list[DslError] = []  # local scalars of two types, as far as the types are known


@dataclass(eq=False)
class Version:
    """A local scalar from one definition to the next: an array over the loops around it.

    `type` is None until the first value is assigned.
    """

    name: str
    ordinal: int
    loops: tuple[Loop, ...]
    guards: tuple[Guard, ...]
    prefix: tuple[Expr, ...]
    prefix_shape: tuple[Expr, ...]
    type: Type | None = None
    array: ArrayValue | None = None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A name that Python knows here, but the language does not. `reason` completes 'NAME ...'."""

    reason: str
    hint: str


class Frame:
    """One function being translated: its names, its sizes, its place in the program."""

    def __init__(self, fn: FunctionType, program: Program, sizes: Mapping[str, Expr], is_operator: bool) -> None:
        self.fn = fn
        self.program = program
        self.builder = program.builder
        self.source = source_of(fn)
        self.sizes = dict(sizes)
        self.is_operator = is_operator
        self.env: dict[str, Any] = {}
        self.pinned: frozenset[str] = frozenset()
        self.whole: ast.expr | None = None  # the expression that is a whole statement's value
        self.hint_name = "t"  # name for an array created by the statement at hand
        self.entry = (len(self.builder.loops), len(self.builder.guards))
        self.liveness = self.source.liveness
        code = fn.__code__
        self.own_names = frozenset(code.co_varnames) | frozenset(code.co_cellvars)
        self.free = {n: c for n, c in zip(code.co_freevars, fn.__closure__ or ())}

    # ---- errors ------------------------------------------------------------------------------

    def error(self, node: Any, reason: str, hint: str = "", word: str = "") -> DslError:
        """A `DslError` at `node`; `word` shortens the caret to the statement's first word."""
        span = self.source.keyword_span(node, word) if word else self.source.span(node)
        return DslError(reason, span, hint)

    def span(self, node: Any) -> Span:
        return self.source.span(node)

    # ---- names and sizes ---------------------------------------------------------------------

    def look_up(self, node: ast.Name) -> Any:
        """What a name stands for. Raises `DslError` when it has no value."""
        name = node.id
        if name in self.env:
            found = self.env[name]
            if isinstance(found, Unavailable):
                raise self.error(node, f"{name} {found.reason}", found.hint)
            return found
        if name in self.own_names:
            raise self.error(node, f"{name} is used before it is assigned", f"assign {name} first")
        if name in self.free:
            try:
                return self.free[name].cell_contents
            except ValueError:
                raise self.error(node, f"{name} has no value yet", "define it before the operator is used") from None
        if name in self.fn.__globals__:
            return self.fn.__globals__[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        near = difflib.get_close_matches(name, [*self.env, *self.fn.__globals__, *dir(builtins)], 1)
        hint = f"did you mean {near[0]}?" if near else f"define {name}, or import it"
        raise self.error(node, f"unknown name {name}", hint)

    def size(self, dim: Dim, node: Any) -> Any:
        """A size symbol's value: an `int`, or a weak `Sym` while it is symbolic."""
        for name in dim.names():
            if name not in self.sizes and dim.from_outside:
                self.program.outside.append(name)
                self.sizes[name] = Var(name)
            elif name not in self.sizes:
                hint = f"only sizes in the shapes of {self.fn.__name__}'s arguments are known: take it from A.shape"
                raise self.error(node, f"the size {name} is not known here", hint)
        self.builder.ranges |= dim.ranges()
        expr = tidy(substitute(dim.expr, self.sizes))
        return size_value(expr)

    @property
    def inside_loop(self) -> bool:
        """Whether a run-time loop of this function is open."""
        return len(self.builder.loops) > self.entry[0]

    @property
    def inside_condition(self) -> bool:
        """Whether a run-time condition of this function is open."""
        return len(self.builder.guards) > self.entry[1]


def size_value(expr: Expr) -> Any:
    """An extent as the user sees it: `int` when it is a number."""
    return int(expr.value) if isinstance(expr, Const) else Sym(expr, True)


def uses_only(expr: Expr, names: tuple[str, ...]) -> bool:
    """Whether all variables of `expr` are among `names`."""
    return all(v.name in names for v in walk(expr) if isinstance(v, Var))
