"""In place: may a result overwrite an operand, as a whole or at a distance? Decided from the access relations.

The result `y` may lie where `x` lies when every element of `x` is read for the last time no
later than the element of `y` at its address is written for the first time. Then both become one
`inout` array of the Scop, so that every later schedule has to keep that order too.

Where it may not lie at the same place, it may lie at a distance: elements die one by one, and `gap` is the interval of
distances at which one would be overwritten before its last use. (That is for the order of the program; of the loops
of a kernel `polyc.emit.loop_ir.overlap` says the same.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.errors import ScopError
from polyc.poly.expr import Const
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass
from polyc.poly.rewriting.compose import rename
from polyc.poly.rewriting.kept import without_kept
from polyc.poly.scop import Array, Scop


@dataclass(frozen=True)
class Clash:
    """`writer` stores `target[element]` before `reader` has read `source[element]` (same address).

    Instances are (statement, iterators). Without instances `reason` alone says what is in the way.
    """

    source: str
    target: str
    reason: str
    element: tuple[int, ...] = ()
    writer: tuple[str, tuple[int, ...]] | None = None
    reader: tuple[str, tuple[int, ...]] | None = None

    def __str__(self) -> str:
        return f"'{self.target}' cannot overwrite '{self.source}': {self.reason}"


def clash(scop: Scop, source: str, target: str, every_order: bool = False, distance: int = 0) -> Clash | None:
    """Why `target` cannot share its memory with `source`, from `distance` elements behind its begin on; None when it
    can.

    Both are addressed row by row; where their shapes differ, or with a distance, they must be constant. With
    `every_order` sharing must also leave the scheduler all its freedom: each element's reader
    is the instance that writes it, one whose value that instance needs anyway, or one that writes the element, too.

    Raises:
        ScopError: an array does not exist.
    """
    for name in (source, target):
        if name not in scop.arrays:
            raise ScopError(f"no array '{name}': the arrays are {', '.join(scop.arrays)}")
    x, y = scop.arrays[source], scop.arrays[target]
    if x.kind != "in" or y.kind != "out":
        return Clash(source, target, f"only a result overwrites a read-only operand, not {y.kind} {x.kind}")
    if x.dtype != y.dtype:
        return Clash(source, target, f"the elements are {x.dtype} and {y.dtype}")
    address = _addresses(scop, source, target, distance)
    if address is None:
        return Clash(source, target, "the sizes differ")
    writes = [a for a in accesses(scop) if a.array == target and a.write]
    pairs: dict[tuple[str, str], isl.Map] = {}
    for w, r, both in _meeting(writes, _reads(scop, source), address):
        key = (w.stmt, r.stmt)
        pairs[key] = pairs[key].union(both) if key in pairs else both
    if every_order and (hindered := _hindered(scop, pairs, writes)) is not None:
        writer, reader, late = hindered
        return _example(source, target, writer, reader, late, writes, "might write")
    for (writer, reader), late in in_order(scop, pairs).items():
        return _example(source, target, writer, reader, late, writes)
    return None


def gap(scop: Scop, source: str, target: str) -> tuple[int, int] | None:
    """The open interval (low, high), in elements, in which `target`'s begin minus `source`'s must not lie when
    `target` is written in the program's order while `source` dies; None where any distance is legal.

    The least legal overlap: `low` is the greatest distance at which `target` may begin before `source`, `high` the
    least at which it may begin behind. Both arrays are addressed row by row.

    Raises:
        ScopError: an array does not exist, is no operand and result of the same type, or has symbolic sizes.
    """
    for name in (source, target):
        if name not in scop.arrays:
            raise ScopError(f"no array '{name}': the arrays are {', '.join(scop.arrays)}")
    x, y = scop.arrays[source], scop.arrays[target]
    shapes = [_numbers(a) for a in (x, y)]
    if x.kind != "in" or y.kind != "out" or x.dtype != y.dtype or None in shapes:
        raise ScopError(f"'{target}' and '{source}' are no result and operand of one type whose sizes are numbers")
    address = [_row_major(name, shape or []) for name, shape in zip((source, target), shapes, strict=True)]
    writes = [a for a in accesses(scop) if a.array == target and a.write]
    every: dict[tuple[str, str], isl.Map] = {}
    for w in writes:
        for r in _reads(scop, source):
            both = isl.Map.from_domain_and_range(w.map.domain(), r.map.domain())
            key = (w.stmt, r.stmt)
            every[key] = every[key].union(both) if key in every else both
    ends: list[int] = []
    late = in_order(scop, every)
    for w in writes:
        for r in _reads(scop, source):
            if (w.stmt, r.stmt) not in late:
                continue
            written = w.map.apply_range(address[1]).reverse()
            distances = written.apply_range(late[w.stmt, r.stmt]).apply_range(r.map.apply_range(address[0])).deltas()
            if not distances.is_empty():
                ends += [_number(distances.dim_min(0)), _number(distances.dim_max(0))]
    return (min(ends) - 1, max(ends) + 1) if ends else None


def _number(end: isl.PwAff) -> int:
    """The one value of a function without variables."""
    found: list[int] = []
    end.foreach_piece(lambda _, aff: found.append(int(aff.get_constant_val().to_python())))
    return found[0]


def _reads(scop: Scop, source: str) -> list[Access]:
    return [a for a in accesses(scop) if a.array == source and not a.write]


def _numbers(array: Array) -> list[int] | None:
    """A shape, if it is constant."""
    sizes = [int(e.value) for e in array.shape if isinstance(e, Const)]
    return sizes if len(sizes) == len(array.shape) else None


def _hindered(
    scop: Scop, pairs: dict[tuple[str, str], isl.Map], writes: list[Access]
) -> tuple[str, str, isl.Map] | None:
    """A writer and readers that only sharing would put in order."""
    stored = {a.stmt: a.map for a in writes}
    adding = {n for n in stored if scop.statements[n].reduction is not None}

    def others(w: str, r: str, free: isl.Map) -> isl.Map:
        """Without pairs that write the same element: two stores to one element keep their order."""
        if r in stored and not {r, w} <= adding:
            return free.subtract(stored[w].apply_range(stored[r].reverse()))
        return free

    # Most often a statement reads what it writes itself: then nobody has to know what needs what.
    apart = {(w, r): m.subtract(isl.Map.identity(m.get_space())) if w == r else m for (w, r), m in pairs.items()}
    asked = [key for key, free in apart.items() if not others(*key, free).is_empty()]
    reach = _needed(scop, {(r, w) for w, r in asked}) if asked else {}
    for w, r in asked:
        free = apart[w, r]
        if (r, w) in reach:
            free = free.subtract(reach[r, w].reverse())
        free = others(w, r, free)
        if not free.is_empty():
            return w, r, free
    return None


def _needed(scop: Scop, asked: set[tuple[str, str]]) -> dict[tuple[str, str], isl.Map]:
    """Pairs of instances of which the second needs the value of the first, directly or not, among them all those of the
    pairs of statements `asked`. Ways of more steps than there are statements are left out: they go round a recurrence,
    which may have as many rounds as a symbol says, and a pair less only means a `Clash` more."""
    readers: dict[str, list[Access]] = {}
    for r in accesses(scop):
        if not r.write:
            readers.setdefault(r.array, []).append(r)
    between = _between(scop, asked, readers)
    flow: dict[tuple[str, str], isl.Map] = {}
    for w in accesses(scop):
        for r in readers.get(w.array, ()) if w.write and w.stmt in between else ():
            if w.stmt != r.stmt and r.stmt in between:
                both = w.map.apply_range(r.map.reverse())
                key = (w.stmt, r.stmt)
                flow[key] = flow[key].union(both) if key in flow else both
    into: dict[str, list[tuple[str, isl.Map]]] = {}
    for (a, b), m in in_order(scop, flow).items():
        into.setdefault(b, []).append((a, m))
    ends, steps = {w for _, w in asked}, _backwards(into)
    return _round_by_round(into, ends, len(scop.statements)) if steps is None else _once_each(into, ends, steps)


Into = Mapping[str, Sequence[tuple[str, isl.Map]]]
"""Of each statement, whose values it reads, and which instance those of which."""


def _backwards(into: Into) -> list[str] | None:
    """The statements that others need, each behind all that need it; None where some need one another."""
    needing = {b: 0 for b in into} | {a: 0 for found in into.values() for a, _ in found}
    for found in into.values():
        for a, _ in found:
            needing[a] += 1
    order = [s for s, n in needing.items() if not n]
    for b in order:  # it grows meanwhile
        for a, _ in into.get(b, ()):
            needing[a] -= 1
            if not needing[a]:
                order.append(a)
    return order if len(order) == len(needing) else None


def _once_each(into: Into, ends: set[str], steps: Sequence[str]) -> dict[tuple[str, str], isl.Map]:
    """What is needed for statements in `ends`: the way of each value goes through the values computed from it."""
    reach: dict[tuple[str, str], isl.Map] = {}
    for c in ends:
        for b in steps:
            last = reach.get((b, c))
            if last is not None:
                last = reach[b, c] = last.coalesce()
            for a, first in into.get(b, ()) if last is not None or b == c else ():
                m = first if last is None else first.apply_range(last)
                reach[a, c] = reach[a, c].union(m) if (a, c) in reach else m
    return reach


def _round_by_round(into: Into, ends: set[str], most: int) -> dict[tuple[str, str], isl.Map]:
    """The same where statements need one another: the ways of at most so many steps."""
    new = {(a, c): m for c in ends for a, m in into.get(c, ())}
    reach = dict(new)
    for _ in range(most):  # one more step backwards from what the last round has found
        if not new:
            break
        longer: dict[tuple[str, str], isl.Map] = {}
        for (b, c), last in new.items():
            for a, first in into.get(b, ()):
                m = first.apply_range(last)
                longer[a, c] = longer[a, c].union(m) if (a, c) in longer else m
        new = {k: m for k, m in longer.items() if k not in reach or not m.is_subset(reach[k])}
        reach |= {k: (m.union(reach[k]) if k in reach else m).coalesce() for k, m in new.items()}
    return reach


def _between(scop: Scop, asked: set[tuple[str, str]], readers: Mapping[str, Sequence[Access]]) -> set[str]:
    """The statements on ways from the first to the second of a pair, as far as the arrays tell."""
    after: dict[str, set[str]] = {}
    for w in accesses(scop):
        if w.write:
            after.setdefault(w.stmt, set()).update(r.stmt for r in readers.get(w.array, ()))
    before: dict[str, set[str]] = {}
    for a, found in after.items():
        for b in found:
            before.setdefault(b, set()).add(a)
    return _reached({a for a, _ in asked}, after) & _reached({b for _, b in asked}, before)


def _reached(start: set[str], steps: Mapping[str, set[str]]) -> set[str]:
    seen, waiting = set(start), [*start]
    while waiting:
        new = steps.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def _addresses(scop: Scop, source: str, target: str, distance: int) -> tuple[isl.Map, isl.Map] | None:
    """Maps from elements of both arrays to their places."""
    x, y = scop.arrays[source], scop.arrays[target]
    if x.shape == y.shape and not distance:
        spaces = (isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[f"e{k}" for k in range(len(x.shape))]),) * 2
        same = [isl.Map.identity(s.map_from_set()) for s in spaces]
        return (same[0].set_tuple_name(isl.dim_type.in_, source), same[1].set_tuple_name(isl.dim_type.in_, target))
    shapes = _numbers(x), _numbers(y)
    if shapes[0] is None or shapes[1] is None:
        return None
    return _row_major(source, shapes[0]), _row_major(target, shapes[1], distance)


def _row_major(name: str, shape: list[int], begin: int = 0) -> isl.Map:
    dims = [f"e{k}" for k in range(len(shape))]
    terms, stride = [], 1
    for dim, n in zip(reversed(dims), reversed(shape), strict=True):
        terms.append(f"{stride}{dim}")
        stride *= n
    text = f"{{ {name}[{', '.join(dims)}] -> [{' + '.join([*terms, str(begin)])}] }}"
    return isl.Map.read_from_str(isl.DEFAULT_CONTEXT, text)


def _meeting(
    writes: list[Access], reads: list[Access], address: tuple[isl.Map, isl.Map]
) -> Iterator[tuple[Access, Access, isl.Map]]:
    """Instances that write and that read the same place."""
    for w in writes:
        for r in reads:
            both = w.map.apply_range(address[1]).apply_range(r.map.apply_range(address[0]).reverse())
            if not both.is_empty():
                yield w, r, both


def _example(
    source: str, target: str, w: str, r: str, late: isl.Map, writes: list[Access], verb: str = "writes"
) -> Clash:
    pair = isl.Map.from_basic_map(late.sample())
    writer, reader = _point(pair.domain()), _point(pair.range())
    element = _point(next(a.map for a in writes if a.stmt == w).intersect_domain(pair.domain()).range())
    at = ", ".join(map(str, element))
    reason = (
        f"{w}[{', '.join(map(str, writer))}] {verb} {target}[{at}] before "
        f"{r}[{', '.join(map(str, reader))}] reads what lies there in {source}"
    )
    return Clash(source, target, reason, element, (w, writer), (r, reader))


def _point(s: isl.Set) -> tuple[int, ...]:
    point = s.sample_point()
    return tuple(int(point.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(s.dim(isl.dim_type.set)))


def merged(scop: Scop, source: str, target: str) -> Scop:
    """The Scop with `target` and `source` as one `inout` array, called `source`, without stores of what is there
    already (`rewriting.kept`).

    Raises:
        ScopError: they clash (with the elements), or have different shapes.
    """
    problem = clash(scop, source, target)
    if problem is not None:
        raise ScopError(str(problem))
    if scop.arrays[source].shape != scop.arrays[target].shape:
        raise ScopError(f"'{target}' and '{source}' have different shapes: they cannot be one array")
    one = rename(scop, {target: source})
    array = replace(one.arrays[source], kind="inout", scalar=False)
    results = tuple(r for r in scop.results if r != target)
    one = replace(one, arrays={**one.arrays, source: array}, args=scop.args, results=results)
    return without_kept(one, source)
