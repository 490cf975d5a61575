"""The one representation of a program: arrays, statements and a schedule tree.

A DSL operator, a library operator and a fused subgraph are all a `Scop`.
Sizes are `Expr`s that are affine in the parameters; loop bounds live in the
statements' isl domains; everything else about a statement is an `Expr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal

import islpy as isl

from polyc.poly.dtypes import DType
from polyc.poly.expr import Expr, Load, Span
from polyc.poly.records import dataclass
from polyc.poly.tree import Node
from polyc.poly.words import counted

ArrayKind = Literal["in", "out", "inout", "local"]


@dataclass(frozen=True, slots=True)
class Array:
    """A (row-major, dense) array; `shape` is affine in the Scop's parameters, `()` is a scalar.

    `kind`: `in` is read only, `inout` updated in place, `out` allocated by the caller and
    returned, `local` private to the Scop (no value survives). `scalar` marks a run-time
    scalar argument (rank 0, `in`). The values that `zeros` and `full`
    give an array are written by an ordinary statement. `expanded` is the number of leading dimensions that the front
    end added to a local array, one for each loop around it. `given` is the shape that callers have an argument or
    result in, where the Scop sees the same elements over another one.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    kind: ArrayKind
    scalar: bool = False
    span: Span | None = field(default=None, compare=False)
    expanded: int = field(default=0, compare=False)
    given: tuple[Expr, ...] | None = None

    @property
    def outside(self) -> tuple[Expr, ...]:
        """The shape that callers have it in."""
        return self.shape if self.given is None else self.given


@dataclass(frozen=True, slots=True)
class DynamicBound:
    """A data-dependent loop: iterator `iter` really runs over `lo <= iter < hi`.

    `lo` and `hi` may load arrays and use only iterators before `iter`. The statement's
    isl domain over-approximates a bound that loads by minus or plus `DYNAMIC_EXTENT`. Where
    `hi` is the constant `ENDLESS`, no bound but the statements' predicates ends the loop.
    """

    iter: str
    lo: Expr
    hi: Expr


DYNAMIC_EXTENT = 2**31 - 1
ENDLESS = 2**62


@dataclass(frozen=True, slots=True)
class LoopMark:
    """How the program says that a loop of the tree runs: a step of every schedule of the Scop.

    `kind` is `serial`, `parallel`, `vectorize` (`factor` lanes), `unroll` (`factor` times) or an axis of a GPU.
    """

    loop: str
    kind: str
    factor: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One store `array[index] = value`, executed for every point of `domain`.

    `domain` is a set `{ name[iters] : ... }`. `predicate` (data-dependent) guards the
    store: its write is then a *may* write. `reduction` is `+ * min max and or & | ^` when
    `value` is `array[index] OP update` (accumulator first operand) and the instances may
    be reordered among themselves.
    """

    name: str
    iters: tuple[str, ...]
    domain: isl.Set
    array: str
    index: tuple[Expr, ...]
    value: Expr
    predicate: Expr | None = None
    reduction: str | None = None
    dynamic: tuple[DynamicBound, ...] = ()
    span: Span | None = field(default=None, compare=False)

    @property
    def target(self) -> Load:
        """The written element, as the expression that would read it back."""
        return Load(self.array, self.index, self.value.dtype, self.span)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the front end made a Scop from beside the operator's text: constants, sizes (numbers or expressions)
    and shapes of array arguments, by name."""

    constants: Mapping[str, Any]
    sizes: Mapping[str, Expr]
    shapes: Mapping[str, tuple[Expr, ...]]


@dataclass(frozen=True)
class Scop:
    """A static control part. `args` is the call's argument order (inputs, inouts, scalars);
    `results` the `out` arrays in the order they are returned. `origin`: see there; None for other Scops than those
    of operators."""

    name: str
    params: tuple[str, ...]
    context: isl.Set
    arrays: Mapping[str, Array]
    statements: Mapping[str, Statement]
    tree: Node
    args: tuple[str, ...]
    results: tuple[str, ...]
    reassociate: bool = True
    fast_math: bool = False
    notes: tuple[str, ...] = ()
    marks: tuple[LoopMark, ...] = ()
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @property
    def domain(self) -> isl.UnionSet:
        """The union of all statement domains."""
        out = isl.UnionSet.from_set(isl.Set.empty(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[])))
        for s in self.statements.values():
            out = out.union(isl.UnionSet.from_set(s.domain))
        return out

    def with_tree(self, tree: Node) -> Scop:
        """The same algorithm with another initial schedule tree."""
        return replace(self, tree=tree)

    def schedule(self) -> Any:
        """The program-order `Schedule` (needs `import polyc`, which wires the packages)."""
        from polyc.poly.hooks import resolve

        return resolve("schedule")(self)

    def __repr__(self) -> str:
        sizes = f" over {', '.join(self.params)}" if self.params else ""
        count = counted(len(self.statements), "statement")
        return f"<Scop {self.name}({', '.join(self.args)}) -> ({', '.join(self.results)}){sizes}: {count}>"

    def __reduce__(self) -> tuple[Any, ...]:
        from polyc.poly.hooks import resolve
        from polyc.poly.json_io import dumps

        return _unpickled, (dumps(self), None if self.origin is None else resolve("packed")(self.origin))

    def __copy__(self) -> Scop:
        return self  # nothing in it changes

    def __deepcopy__(self, memo: Any) -> Scop:
        return self

    def _repr_html_(self) -> str:
        from polyc.poly.hooks import resolve

        return str(resolve("html")(self))

    def __str__(self) -> str:
        from polyc.poly.text import print_scop

        return print_scop(self)


def _unpickled(text: str, origin: Origin | None) -> Scop:
    from polyc.poly.json_io import loads

    return replace(loads(text), origin=origin)
