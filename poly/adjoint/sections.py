"""A program with a loop over time in sections: what comes before it, some of its steps, what comes after it.

    before              A[i] = X[i]
    steps t .. u - 1    for t: B[i] = A[i - 1] + A[i + 1]; A[i] = B[i]
    after               Y[i] = A[i] * A[i]

A section is a program of its own that updates the arrays that it writes: all that it touches are its arguments. Run one
after the other on the same arrays, sections do what the program does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.adjoint.trees import in_place
from polyc.poly.dependences import value_flow_among
from polyc.poly.errors import ScopError
from polyc.poly.forms.ranges import value_range
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Leaf, Node
from polyc.poly.tree import Sequence as SequenceNode
from polyc.poly.verify import verify

BEGIN, END = "begin", "end"


@dataclass(frozen=True, eq=False)
class TimeLoop:
    """A loop of the program that nothing is around: `times` of its statements, from `first` on, `steps` of them.
    `before` and `after` are the instances of the rest, `within` those of the loop."""

    name: str
    first: int
    steps: int
    times: Mapping[str, isl.PwAff]
    before: Mapping[str, isl.Set]
    within: Mapping[str, isl.Set]
    after: Mapping[str, isl.Set]


def time_loops(scop: Scop) -> list[TimeLoop]:
    """The outermost loops of a program whose sizes are numbers, in their order."""
    parts: list[tuple[dict[str, isl.Set], Node]] = []
    whole = {n: s.domain.intersect_params(scop.context) for n, s in scop.statements.items()}
    if isinstance(scop.tree, SequenceNode):
        for f in scop.tree.filters:
            parts.append(({n: whole[n].intersect(d.set_tuple_name(n)) for n, d in f.domain.items()}, f.child))
    elif isinstance(scop.tree, Filter):
        parts.append((whole, scop.tree.child))
    else:
        parts.append((whole, scop.tree))
    found = []
    for k, (here, node) in enumerate(parts):
        if not isinstance(node, Band):
            continue
        member = node.members[0]
        ranges = [value_range(member.schedule[n], d) for n, d in here.items() if not d.is_empty()]
        known = [r for r in ranges if r is not None]
        if len(known) != len(ranges) or not known or any(_counts_data(scop, n) for n in here):
            continue
        low, high = min(a for a, _ in known), max(b for _, b in known)
        before, after = _together(parts[:k]), _together(parts[k + 1 :])
        found.append(TimeLoop(member.name, low, high - low + 1, dict(member.schedule), before, here, after))
    return found


def _counts_data(scop: Scop, statement: str) -> bool:
    """Whether data end the outermost loop of a statement."""
    s = scop.statements[statement]
    return any(b.iter == s.iters[0] for b in s.dynamic)


def _together(parts: Sequence[tuple[Mapping[str, isl.Set], Node]]) -> dict[str, isl.Set]:
    found: dict[str, isl.Set] = {}
    for domains, _ in parts:
        for n, d in domains.items():
            found[n] = found[n].union(d) if n in found else d
    return found


def steps_of(scop: Scop, loop: TimeLoop) -> Scop:
    """The steps `begin <= t < end` of a loop, by two further sizes."""
    return section(scop, _at(loop, f"{BEGIN} <= t < {END}", (BEGIN, END)), f"{scop.name}_steps", (BEGIN, END), loop)


def step_of(scop: Scop, loop: TimeLoop) -> Scop:
    """The step `begin` of a loop."""
    return section(scop, _at(loop, f"t = {BEGIN}", (BEGIN,)), f"{scop.name}_step", (BEGIN,), loop)


def _at(loop: TimeLoop, condition: str, names: tuple[str, ...]) -> dict[str, isl.Set]:
    times = isl.Set(f"[{', '.join(names)}] -> {{ [t] : {condition} }}")
    return {
        n: d.intersect(isl.Map.from_pw_aff(loop.times[n]).intersect_range(times).domain().set_tuple_name(n))
        for n, d in loop.within.items()
    }


def section(
    scop: Scop, domains: Mapping[str, isl.Set], name: str, sizes: tuple[str, ...] = (), loop: TimeLoop | None = None
) -> Scop:
    """Some instances of a program, as a program that updates the arrays that it writes.

    Raises:
        ScopError: the program has sizes that are no numbers.
    """
    if scop.params:
        raise ScopError(f"sections of {scop.name} need sizes that are numbers")
    if clash := set(sizes) & {*scop.arrays, *scop.statements}:
        raise ScopError(f"{scop.name}: '{min(clash)}' is a size of its sections, and cannot be a name in it")
    context = scop.context
    if loop is not None:
        last = loop.first + loop.steps
        inside = [f"{loop.first} <= {BEGIN} < {last}"]
        inside += [f"{BEGIN} < {END} <= {last}"] if END in sizes else []
        context = isl.Set(f"[{', '.join(sizes)}] -> {{ : {' and '.join(inside)} }}").intersect_params(context.params())
    statements = {
        n: replace(scop.statements[n], domain=_named(d.align_params(context.get_space()), scop.statements[n].iters, n))
        for n, d in domains.items()
        if not d.is_empty()
    }
    tree = in_place(scop.tree, {n: [s] for n, s in statements.items()}, str)
    touched = accesses(replace(scop, statements=statements, params=sizes, context=context))
    written = {s.array for s in statements.values()}
    used = {a.array for a in touched} | written
    arrays = {
        n: replace(a, kind="inout" if n in written else "in", scalar=a.scalar and n not in written, expanded=0)
        for n, a in scop.arrays.items()
        if n in used
    }
    made = replace(
        scop, name=name, params=sizes, context=context, arrays=arrays, statements=statements,
        tree=Leaf() if tree is None else tree, args=tuple(arrays), results=(), marks=(), origin=None,
    )  # fmt: skip
    verify(made)
    return made


def _named(domain: isl.Set, iters: Sequence[str], name: str) -> isl.Set:
    for k, i in enumerate(iters):
        domain = domain.set_dim_name(isl.dim_type.set, k, i)
    return domain.set_tuple_name(name)


def private(step: Scop, needed: set[str]) -> set[str]:
    """The arrays of which a step reads nothing that it has not written before; `needed` elsewhere they are not."""
    found = set()
    for name, array in step.arrays.items():
        if array.kind == "inout" and name not in needed:
            own = [a for a in accesses(step) if a.array == name]
            if all(a.must for a in own) and all(_written_before(step, own, a) for a in own if not a.write):
                found.add(name)
    return found


def _written_before(step: Scop, own: Sequence[Access], read: Access) -> bool:
    """Whether all instances of a read see a value of this step."""
    flow = value_flow_among(step, [*(a for a in own if a.write), read], "RAW")
    seen = isl.Set.empty(step.statements[read.stmt].domain.get_space())
    maps: list[isl.Map] = []
    flow.foreach_map(maps.append)
    for m in maps:
        seen = seen.union(m.range())
    return bool(read.map.domain().intersect_params(step.context).is_subset(seen))
