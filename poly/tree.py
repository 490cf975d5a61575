"""The schedule tree: immutable, with named loops.

Mirrors isl's schedule trees (Verdoolaege et al., "Schedule Trees", IMPACT 2014) but
members carry names and loop kinds, so transformations address loops by name. The tree
converts to `isl.Schedule` for AST generation (`emit`) and to time maps for legality.

    Band       one or more loops (members); each member maps every statement below to a
               quasi-affine time value
    Sequence   children executed one after another; every child is a Filter
    Filter     restricts to some instances of some statements
    Promote    below it, accesses to `array` go to a smaller local buffer
    Leaf       the statement instances
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import field
from operator import is_
from typing import Any, Literal, NamedTuple

import islpy as isl

from polyc.poly.records import dataclass

GpuAxis = Literal["block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z"]
LoopKind = Literal["serial", "parallel", "vector", "unroll"] | GpuAxis
Space = Literal["register", "local", "shared", "heap"]
Layout = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One loop. `schedule[stmt]` is an `isl.PwAff` on `{ stmt[iters] }` (parameters allowed).

    `kind` says how it runs; a `GpuAxis` binds it to the blocks of a GPU's grid or the threads of
    a block (CPU targets run the outermost block loop as a parallel loop, other bound loops serially).
    `factor`: vector lanes or unroll factor (None = whole loop). `coincident`: carries no
    dependence (as found by analysis; informative, never trusted without a check).
    """

    name: str
    schedule: Mapping[str, isl.PwAff]
    kind: LoopKind = "serial"
    factor: int | None = None
    coincident: bool = False


def is_bound(kind: LoopKind) -> bool:
    """Whether a loop of this kind is bound to GPU blocks or threads."""
    return kind.startswith(("block.", "thread."))


def concurrency(kind: LoopKind) -> Literal["parallel", "vector"] | None:
    """What a loop of this kind promises: `parallel`, its iterations may run at the same time;
    `vector`, they may but for reductions; None, nothing."""
    if kind == "vector":
        return "vector"
    return "parallel" if kind == "parallel" or is_bound(kind) else None


class Parts(NamedTuple):
    """All loops of a subtree with their names, and its promotions, outermost and textually first first."""

    loops: tuple[Member, ...]
    names: tuple[str, ...]
    promotions: tuple[Promote, ...]


class Node:
    """Base of tree nodes.

    Trees share their unchanged parts, so what is known of a part is kept with it: what it holds, and the Scop and
    the depth that its leaves know. A step of a schedule then looks at what it has changed only.
    """

    __slots__ = ("_parts", "_owner")
    _parts: Parts
    _owner: tuple[Any, int]

    def children(self) -> tuple[Node, ...]:
        """The nodes directly below, in execution order; none below a leaf."""
        return ()

    def with_children(self, children: tuple[Node, ...]) -> Node:
        """The same node above others: as many as `children()` gives, in the same order."""
        assert not children
        return self

    def __str__(self) -> str:
        from polyc.poly.text import print_tree

        return print_tree(self)


@dataclass(frozen=True, slots=True)
class Leaf(Node):
    """End of a branch: the instances that reach it (one statement, or several in any order
    only if no dependence joins them; builders always separate statements by a Sequence).

    `source` is the Scop whose statements these are and `depth` the number of nodes above, where
    that is known: for printing only."""

    source: Any = field(default=None, compare=False, repr=False)
    depth: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Band(Node):
    """Nested loops, outermost first. `permutable`: every order and tiling of them is legal."""

    members: tuple[Member, ...]
    child: Node
    permutable: bool = False

    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return Band(self.members, children[0], self.permutable)


@dataclass(frozen=True, slots=True)
class Filter(Node):
    """Only these instances: statement name -> subset of its domain (a `{ stmt[iters] }` set)."""

    domain: Mapping[str, isl.Set]
    child: Node

    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return Filter(self.domain, children[0])


@dataclass(frozen=True, slots=True)
class Sequence(Node):
    """Children in execution order."""

    filters: tuple[Filter, ...]

    def children(self) -> tuple[Node, ...]:
        return self.filters

    def with_children(self, children: tuple[Node, ...]) -> Node:
        assert all(isinstance(c, Filter) for c in children)
        return Sequence(children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Promote(Node):
    """For each value of the loops above, the part of `array` touched below lives in a buffer.

    The buffer is the bounding box of the elements touched at this depth (per-dimension
    minimum as offset; the extent must be a constant or parametric bound). Elements read
    before written are copied in, elements written are copied out, unless `array` is local
    to this subtree (array contraction: then neither).

    `layout`: how the box coordinates are laid out, outermost first, as `(dim, div, mod)`:
    `(box[dim] // div) % mod` with mod 0 = no modulo. None is row-major over the box.
    GEMM's packed A panel of MR rows is `((0, MR, 0), (1, 1, 0), (0, 1, MR))`.
    """

    array: str
    buffer: str
    space: Space
    child: Node
    layout: Layout | None = None
    copy_in: bool = True
    copy_out: bool = True

    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return Promote(self.array, self.buffer, self.space, children[0], self.layout, self.copy_in, self.copy_out)


def walk(node: Node) -> Iterator[Node]:
    """All nodes, parents first."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children()))


def of_scop(node: Node, scop: Any, depth: int = 0) -> Node:
    """The same (whole) tree with leaves that know the Scop, so that it prints the statements."""
    if isinstance(node, Leaf):
        return node if node.source is scop and node.depth == depth else Leaf(scop, depth)
    owner = getattr(node, "_owner", None)
    if owner is not None and owner[0] is scop and owner[1] == depth:
        return node
    children, new = node.children(), []
    for child in children:
        new.append(of_scop(child, scop, depth + 1))
    owned = node if all(map(is_, children, new)) else node.with_children(tuple(new))
    object.__setattr__(owned, "_owner", (scop, depth))
    return owned


def _parts(node: Node) -> Parts:
    try:
        return node._parts
    except AttributeError:
        pass
    if isinstance(node, Filter):
        known = _parts(node.child)
    else:
        loops = list(node.members) if isinstance(node, Band) else []
        promotions = [node] if isinstance(node, Promote) else []
        for child in node.children():
            below = _parts(child)
            loops += below.loops
            promotions += below.promotions
        known = Parts(tuple(loops), tuple([m.name for m in loops]), tuple(promotions))
    object.__setattr__(node, "_parts", known)
    return known


def loops_below(node: Node) -> tuple[Member, ...]:
    """All loops of the subtree, outermost and textually first first."""
    return _parts(node).loops


def loop_names(node: Node) -> tuple[str, ...]:
    """Their names."""
    return _parts(node).names


def promotions_below(node: Node) -> tuple[Promote, ...]:
    """All promotions of the subtree, outermost and textually first first."""
    return _parts(node).promotions


def loops_around(node: Node, stmt: str) -> list[Member]:
    """All loops of the tree around a statement, outermost first."""
    return [m for m in loops_below(node) if stmt in m.schedule]


def loop_dim(domain: isl.Set, position: int) -> isl.PwAff:
    """The `isl.PwAff` `{ S[..., i, ...] -> [i] }` of one set dimension of `domain`'s space."""
    ls = isl.LocalSpace.from_space(domain.get_space())
    return isl.PwAff.from_aff(isl.Aff.var_on_domain(ls, isl.dim_type.set, position))


def time_maps(tree: Node, domains: Mapping[str, isl.Set]) -> list[isl.Map]:
    """The schedule as maps from instances to time vectors of one common length.

    A statement split by filters gives one map per branch. Sequence positions are constant
    dimensions; shorter branches are padded with zeros. Map ranges are anonymous sets.
    """
    branches: list[tuple[isl.Set, list[isl.PwAff | int]]] = []

    def visit(node: Node, active: dict[str, isl.Set], prefix: dict[str, list[isl.PwAff | int]]) -> None:
        if isinstance(node, Band):
            prefix = {s: [*p, *(m.schedule[s] for m in node.members)] for s, p in prefix.items()}
            visit(node.child, active, prefix)
        elif isinstance(node, Sequence):
            for position, f in enumerate(node.filters):
                inner = {s: active[s].intersect(d) for s, d in f.domain.items() if s in active}
                visit(f.child, inner, {s: [*prefix[s], position] for s in inner})
        elif isinstance(node, Filter):
            inner = {s: active[s].intersect(d) for s, d in node.domain.items() if s in active}
            visit(node.child, inner, {s: prefix[s] for s in inner})
        elif isinstance(node, Leaf):
            branches.extend((active[s], prefix[s]) for s in active)
        else:
            visit(node.children()[0], active, prefix)

    visit(tree, dict(domains), {s: [] for s in domains})
    depth = max((len(t) for _, t in branches), default=0)
    return [time_map(dom, [*times, *([0] * (depth - len(times)))]) for dom, times in branches]


def time_map(domain: isl.Set, times: SequenceOf[isl.PwAff | int]) -> isl.Map:
    """`{ S[i] -> [t0, t1, ...] }` on `domain`; an int is a constant coordinate."""
    space = domain.get_space()
    zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    values = [zero.set_constant_val(isl.Val(t)) if isinstance(t, int) else t for t in times]
    if all(isinstance(v, isl.Aff) or v.isa_aff() for v in values):  # one map at once: a tenth of the product's time
        coordinates = isl.AffList.alloc(isl.DEFAULT_CONTEXT, len(values))
        for v in values:
            coordinates = coordinates.add(v if isinstance(v, isl.Aff) else v.as_aff())
        vector = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(values)).align_params(space.params())
        whole = isl.MultiAff.from_aff_list(isl.Space.map_from_domain_and_range(space, vector), coordinates)
        return isl.Map.from_multi_aff(whole).intersect_domain(domain)
    result = isl.Map.from_domain(domain)
    for v in values:
        value = isl.PwAff.from_aff(v) if isinstance(v, isl.Aff) else v
        result = result.flat_range_product(isl.Map.from_pw_aff(value).intersect_domain(domain))
    return result
