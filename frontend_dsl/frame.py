"""The state of a translation: one `Program`, and a `Frame` for each function being read."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Mapping
from dataclasses import field
from types import FunctionType
from typing import TYPE_CHECKING, Any

from polyc.poly.dtypes import missing_type
from polyc.poly.expr import Const, Expr, Load, Span, Var, substitute, walk
from polyc.poly.records import dataclass

from .annotations import Dim
from .builder import Builder, Guard, Loop
from .errors import DslError
from .fold import tidy
from .jumps import Label
from .liveness import own_names
from .reads import Path, Reads
from .source import Source, source_of
from .values import ArrayValue, Sym, Type

if TYPE_CHECKING:
    from .leaving import Place


@dataclass
class Choices:
    """What a pass over the program finds out for the next one, besides types. It only grows."""

    unrolled: set[ast.For] = field(default_factory=set)  # loops over numbers of which each iteration is its own
    flagged: set[Label] = field(default_factory=set)  # jumps that a run decides about
    endless: set[ast.While] = field(default_factory=set)  # `while` loops that Python cannot run to their end

    def __len__(self) -> int:
        return len(self.unrolled) + len(self.flagged) + len(self.endless)


class Program:
    """What all frames share. `types` are the dtypes of local scalars found by the last pass."""

    def __init__(self, builder: Builder, types: Mapping[int, Type], choices: Choices) -> None:
        self.builder = builder
        self.types = types
        self.given: dict[int, Type] = {}  # the dtypes that this pass works with
        self.seen: dict[int, Type] = {}
        self.count = 0
        self.assigned: frozenset[int] = frozenset()
        self.depth = 0
        self.kept: set[str] = set()  # arrays of values that never change once stored
        self.outside: list[str] = []  # sizes from outside that no shape has: parameters in the next pass
        self.reads = Reads()
        self.flags = 0  # labels that are flags, so far
        self.mixed: list[DslError] = []  # local scalars of two types, as far as the types are known
        self.choices = choices
        self.counted: dict[str, ast.For] = {}  # variable of a run-time loop -> the loop, where Python could count it
        self.wanted: set[ast.For] = set()  # of those, the ones whose variable must be a number


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

    def __init__(
        self, fn: FunctionType, program: Program, sizes: Mapping[str, Expr], is_operator: bool,
        source: Source | None = None,
    ) -> None:  # fmt: skip
        self.fn = fn
        self.name = fn.__name__
        self.program = program
        program.reads.function(fn)
        self.builder = program.builder
        self.source = source or source_of(fn)
        self.sizes = dict(sizes)
        self.is_operator = is_operator
        self.env: dict[str, Any] = {}
        self.pinned: frozenset[str] = frozenset()
        self.whole: ast.expr | None = None  # the expression that is a whole statement's value
        self.hint_name = "t"  # name for an array created by the statement at hand
        self.entry = (len(self.builder.loops), self.builder.guards)
        self.liveness = self.source.liveness
        self.places: dict[Label, Place] = {}
        code = fn.__code__
        self.own_names = frozenset(code.co_varnames) | frozenset(code.co_cellvars)
        self.free = {n: c for n, c in zip(code.co_freevars, fn.__closure__ or ())}

    # ---- errors ------------------------------------------------------------------------------

    def error(self, node: Any, reason: str, hint: str = "", word: str = "") -> DslError:
        """A `DslError` at `node`; `word` shortens the caret to the statement's first word."""
        span = self.source.keyword_span(node, word) if word else self.source.span(node)
        return DslError(reason, span, hint)

    def span(self, node: Any) -> Span:
        """Where in the user's file the node stands."""
        return self.source.span(node)

    # ---- names and sizes ---------------------------------------------------------------------

    def look_up(self, node: ast.Name) -> tuple[Any, Path | None]:
        """What a name stands for, and the way to it when it lies outside the function.

        Raises `DslError` when it has no value."""
        name = node.id
        if name in self.env:
            found = self.env[name]
            if isinstance(found, Unavailable):
                raise self.error(node, f"{name} {found.reason}", found.hint)
            return found, None
        if name in self.own_names:
            raise self.error(node, f"{name} is used before it is assigned", f"assign {name} first")
        return self.outside(node)

    def outside(self, node: ast.Name) -> tuple[Any, Path | None]:
        """What a name stands for that this function does not bind."""
        name = node.id
        if name in self.free:
            try:
                return self.free[name].cell_contents, Path(self.free[name], name)
            except ValueError:
                raise self.error(node, f"{name} has no value yet", "define it before the operator is used") from None
        if name in self.fn.__globals__:
            return self.fn.__globals__[name], Path(self.fn.__globals__, name)
        if hasattr(builtins, name):
            self.program.reads.absent(self.fn.__globals__, name)
            return getattr(builtins, name), None
        import difflib

        near = difflib.get_close_matches(name, [*self.env, *self.fn.__globals__, *dir(builtins)], 1)
        hint = f"did you mean {near[0]}?" if near else f"define {name}, or import it"
        raise self.error(node, f"unknown name {name}", missing_type(name) or hint)

    def size(self, dim: Dim, node: Any) -> Any:
        """A size symbol's value: an `int`, or a weak `Sym` while it is symbolic."""
        for name in dim.names():
            if name not in self.sizes and dim.from_outside:
                self.program.outside.append(name)
                self.sizes[name] = Var(name)
            elif name not in self.sizes:
                hint = f"only sizes in the shapes of {self.name}'s arguments are known: take it from A.shape"
                raise self.error(node, f"the size {name} is not known here", hint)
        self.builder.ranges |= dim.ranges()
        self.builder.facts |= dict.fromkeys(dim.facts())
        expr = tidy(substitute(dim.expr, self.sizes))
        return size_value(expr)

    def want_number(self, value: Any) -> None:
        """Note that a run-time value should be a number: the next pass unrolls the loops that it comes from.

        Those are counting loops with constant bounds whose variables occur in it, and, where it is a local scalar,
        those around that change it.
        """
        if not isinstance(value, Sym):
            return
        names = {v.name for v in walk(value.expr) if isinstance(v, Var)}
        if any(isinstance(e, Load) and self.builder.arrays[e.array].kind == "local" for e in walk(value.expr)):
            names |= {loop.name for loop in self.builder.loops}
        self.program.wanted |= {self.program.counted[n] for n in names if n in self.program.counted}

    @property
    def inside_loop(self) -> bool:
        """Whether a run-time loop of this function is open."""
        return len(self.builder.loops) > self.entry[0]

    @property
    def inside_condition(self) -> bool:
        """Whether a run-time condition of this function is open."""
        return self.builder.guards != self.entry[1]


@dataclass(frozen=True, eq=False)
class InnerFunction:
    """A function defined inside another one. Names from outside mean what they mean when it is called."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    home: Frame
    signature: inspect.Signature
    source: Source


class InnerFrame(Frame):
    """A call of an inner function."""

    def __init__(self, inner: InnerFunction) -> None:
        home = inner.home
        source = inner.source
        super().__init__(home.fn, home.program, home.sizes, False, source)
        self.name = inner.name
        self.home = home
        self.own_names = own_names(inner.node)

    def outside(self, node: ast.Name) -> tuple[Any, Path | None]:
        """The value in the function around, at this moment."""
        return self.home.look_up(node)


def size_value(expr: Expr) -> Any:
    """An extent as the user sees it: `int` when it is a number."""
    return int(expr.value) if isinstance(expr, Const) else Sym(expr, True)


def uses_only(expr: Expr, names: tuple[str, ...]) -> bool:
    """Whether all variables of `expr` are among `names`."""
    return all(v.name in names for v in walk(expr) if isinstance(v, Var))
