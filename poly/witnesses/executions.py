"""Orders of execution that a tree allows at fixed sizes: the program's, and a wrong one of a refused tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.enumeration import Instance, Time, Timeline, at_sizes, count_bound, instances, timeline
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, loops_below
from polyc.poly.witnesses.witness import Case, Witness

LIMIT = 1500  # instances in a script; more are cut down to those that touch the witness's element
DYNAMIC = 2  # iterations shown of a data-dependent loop

NEW_BUFFER, DROP_BUFFER = "new buffer", "drop buffer"
Entry = Instance | tuple[Instance, ...] | str
"""An instance, a group whose members all read before any of them writes, or a buffer's begin or end."""


@dataclass(frozen=True)
class Execution:
    """`order` of execution and what it models, in words."""

    order: tuple[Entry, ...]
    words: str


@dataclass(frozen=True)
class Enumerated:
    """The refused tree and the program at the witness's sizes; `partial`: only some instances run."""

    scop: Scop
    sizes: Mapping[str, int]
    program: Execution
    refused: tuple[Execution, ...]
    partial: bool


def enumerate_orders(witness: Witness, case: Case) -> Enumerated | None:
    """Both orders of a refusal at the witness's sizes; None when the instances cannot be listed."""
    scop, tree = at_sizes(case.scop, case.tree, witness.params)
    sizes = {p: int(scop_size) for p, scop_size in witness.params.items()}
    scop = _bounded(scop, witness)
    bound = count_bound(scop)
    if bound is None:
        return None
    points = instances(scop) if bound <= 20 * LIMIT else {}  # the bound may be far too large
    partial = not 0 < len(points) <= LIMIT
    if partial:
        points = instances(scop, _touching(scop, witness))
    if len(points) > LIMIT:
        points = {x: p for x, p in points.items() if x in (witness.source, witness.sink)}
    buffer = case.promote.buffer if case.promote else None
    own = timeline(scop.tree, points)
    new = timeline(tree, points, case.loop, buffer)
    program = Execution(tuple(own.in_order()), "the program's own order")
    refused = tuple(_wrong(tree, case, witness, own, new))
    return Enumerated(scop, sizes, program, refused, partial)


def _bounded(scop: Scop, witness: Witness) -> Scop:
    """Data-dependent loops cut to the first iterations (the script checks their real bounds)."""
    changed = {}
    for s in scop.statements.values():
        domain = s.domain
        for bound in s.dynamic:
            k = s.iters.index(bound.iter)
            seen = [at[k] for name, at in (witness.source, witness.sink) if name == s.name]
            domain = domain.lower_bound_val(isl.dim_type.set, k, isl.Val(min([0, *seen])))
            domain = domain.upper_bound_val(isl.dim_type.set, k, isl.Val(max([DYNAMIC, *seen])))
        changed[s.name] = replace(s, domain=domain)
    return replace(scop, statements=changed)


def _touching(scop: Scop, witness: Witness) -> dict[str, isl.Set]:
    """The instances that may touch the witness's element."""
    from polyc.poly.access import accesses

    only = {n: isl.Set.empty(s.domain.get_space()) for n, s in scop.statements.items()}
    for a in accesses(scop):
        if a.array == witness.array:
            relation = a.map
            for k, value in enumerate(witness.element):
                relation = relation.fix_val(isl.dim_type.out, k, isl.Val(value))
            only[a.stmt] = only[a.stmt].union(relation.domain())
    return only


def _wrong(tree: Node, case: Case, w: Witness, own: Timeline, new: Timeline) -> Iterator[Execution]:
    """Executions that the refused tree allows, the most natural first."""
    if case.rule == "order":
        yield Execution(tuple(new.in_order()), "the order of the refused schedule")
    elif case.rule == "unordered":
        tied = sorted(new.times, key=lambda x: (new.times[x], tuple(-t for t in own.times[x])))
        yield Execution(
            tuple(tied), "the order of the refused schedule (it gives the two one time: here the later one first)"
        )
    elif case.rule == "delayed":
        order = [x for x in own.in_order() if x != w.source]
        order.insert(order.index(w.sink) + 1, w.source)
        yield Execution(tuple(order), f"the order of the refused step ({w.instance('source')} comes that late)")
    elif case.rule == "promotion":
        yield Execution(tuple(_with_buffers(new)), f"the refused buffer '{case.promote and case.promote.buffer}'")
    elif own_update(case.scop, w):
        yield _race(new, w, case.loop)  # another order of the updates would be right
    else:
        if case.rule == "vector":
            lanes = next(m.factor for m in loops_below(tree) if m.name == case.loop)
            yield _lockstep(new, case.loop, lanes)
        yield _backwards(new, case.rule, case.loop)
        yield _race(new, w, case.loop)


def own_update(scop: Scop, w: Witness) -> bool:
    """Whether the pair are two updates of a reduction's accumulator, which may change places."""
    s = scop.statements.get(w.source[0])
    return s is not None and w.source[0] == w.sink[0] and s.reduction is not None and s.array == w.array


def _with_buffers(new: Timeline) -> Iterator[Entry]:
    """The order with the begin and the end of each buffer."""
    current: Time | None = None
    for x in new.in_order():
        key = new.times[x][: new.region[x]] if x in new.region else None
        if key != current:
            if current is not None:
                yield DROP_BUFFER
            if key is not None:
                yield NEW_BUFFER
            current = key
        yield x
    if current is not None:
        yield DROP_BUFFER


def _lockstep(new: Timeline, loop: str | None, lanes: int | None) -> Execution:
    """Lanes of the vector loop side by side: each statement reads in all lanes, then writes."""
    first: dict[Time, int] = {}
    for x, k in new.coordinate.items():
        prefix = new.times[x][:k]
        first[prefix] = min(first.get(prefix, new.times[x][k]), new.times[x][k])

    def key(x: Instance) -> Time:
        t, k = new.times[x], new.coordinate.get(x)
        if k is None:
            return t
        chunk = 0 if lanes is None else (t[k] - first[t[:k]]) // lanes
        return (*t[:k], chunk, *t[k + 1 :])

    groups: dict[tuple[Time, str], list[Instance]] = {}
    for x in new.in_order():
        groups.setdefault((key(x), x[0]), []).append(x)
    order = tuple(tuple(groups[g]) if len(groups[g]) > 1 else groups[g][0] for g in sorted(groups))
    width = "all iterations" if lanes is None else f"{lanes} iterations"
    return Execution(order, f"the refused vector loop '{loop}' ({width} side by side: all read, then all write)")


def _backwards(new: Timeline, rule: str, loop: str | None) -> Execution:
    """The loop's iterations last to first: they claim to be independent, so any order must do."""

    def key(x: Instance) -> Time:
        t, k = new.times[x], new.coordinate.get(x)
        return t if k is None else (*t[:k], -t[k], *t[k + 1 :])

    order = tuple(sorted(new.times, key=key))
    return Execution(
        order, f"the refused {rule} loop '{loop}' (any order of its iterations must do: here last to first)"
    )


def _race(new: Timeline, w: Witness, loop: str | None) -> Execution:
    """The iterations of the pair interleaved so that both instances read before either writes."""
    k = new.coordinate.get(w.source)
    before, after = w.source, w.sink
    if k is None:
        return Execution(tuple(new.in_order()), f"the loop '{loop}'")
    tb, ta = new.times[before], new.times[after]
    pair = (tb[: k + 1], ta[: k + 1])

    def key(x: Instance) -> tuple[Time, int, int, Time]:
        t = new.times[x]
        if t[: k + 1] not in pair:
            return (t[: k + 1], 0, 0, t[k + 1 :]) if t[: k + 1] < pair[0] else (t[: k + 1], 3, 0, t[k + 1 :])
        late = t > (tb if t[: k + 1] == pair[0] else ta)
        # both iterations up to the pair, the pair, what remains of the first, of the second
        return pair[0], 2 if late else 1, pair.index(t[: k + 1]) if late or x not in (before, after) else 2, t[k + 1 :]

    entries: list[Entry] = [x for x in sorted(new.times, key=key) if x not in (before, after)]
    at = sum(key(x) < key(before) for x in new.times if x not in (before, after))
    entries.insert(at, (after, before))
    return Execution(tuple(entries), f"the refused parallel loop '{loop}' (two threads: both read, then both write)")
