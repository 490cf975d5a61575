"""What is different between two schedules of one algorithm, said in terms of loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import islpy as isl

from polyc.poly.forms.affine_text import condition_source, value_source
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Leaf, Node, Promote, Sequence
from polyc.scheduler.texts.yaml_form import on_instances

What = Literal[
    "tile", "order", "mark", "added", "removed", "values", "promoted", "promotion removed", "promotion changed",
    "joined", "separated", "statements", "part", "permutable",
]  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change. `subject` is a loop, an array or a statement; `before` and `after` are what `what` says:
    tile sizes, marks, values, ..."""

    what: What
    subject: str
    text: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        return self.text

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {"what": self.what, "subject": self.subject, "text": self.text,
                "before": self.before, "after": self.after}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """The changes, as a sequence; false when there are none."""

    changes: tuple[Change, ...]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        return "\n".join(str(c) for c in self.changes) or "no difference"


@dataclass(frozen=True)
class _Loop:
    values: Mapping[str, str]
    functions: Mapping[str, isl.Map]
    mark: str
    around: tuple[str, ...]
    permutable: bool


@dataclass
class _Facts:
    """A tree as tables: loops by name, promotions by array and place, the way to each statement."""

    loops: dict[str, _Loop]
    buffers: dict[str, tuple[str, str, str]]
    """Array -> (place, space, details)."""
    ways: dict[str, list[tuple[tuple[str, ...], tuple[int, ...]]]]
    """Statement -> (loops around, positions in sequences with the number of loops outside each)."""
    parts: dict[str, list[tuple[str, isl.Set]]]
    """Statement -> the conditions of its parts, as text and as sets."""


def compare(first: Scop, before: Node, second: Scop, after: Node) -> Difference:
    """All changes, loops first, outermost first."""
    a, b = _facts(first, before), _facts(second, after)
    found: list[Change] = []
    found += _statements(a, b)
    told = set()
    for change, names in _tiles(a, b):
        found.append(change)
        told |= names
    found += _loops(a, b, told)
    found += _moves(a, b)
    found += _neighbours(a, b)
    found += _promotions(a, b)
    return Difference(tuple({(c.what, c.text): c for c in found}.values()))


# ---- a tree as tables --------------------------------------------------------------------------------


def _facts(scop: Scop, tree: Node) -> _Facts:
    facts = _Facts({}, {}, {s: [] for s in scop.statements}, {s: [] for s in scop.statements})
    active = {n: s.domain.intersect_params(scop.context) for n, s in scop.statements.items()}
    _visit(tree, active, (), (), {}, facts)
    return facts


def _visit(
    node: Node, active: dict[str, isl.Set], around: tuple[str, ...], positions: tuple[int, ...],
    limits: dict[str, str], facts: _Facts,
) -> None:  # fmt: skip
    if isinstance(node, Band):
        for m in node.members:
            values = {s: value_source(on_instances(m.schedule[s], active[s])) for s in active if s in m.schedule}
            functions = {s: isl.Map.from_pw_aff(m.schedule[s].intersect_domain(active[s])) for s in values}
            mark = m.kind if m.factor is None else f"{m.kind} {m.factor}"
            known = facts.loops.get(m.name)
            if known is not None:
                values, functions = {**known.values, **values}, {**known.functions, **functions}
            facts.loops[m.name] = _Loop(values, functions, mark, around, node.permutable)
            around = (*around, m.name)
        _visit(node.child, active, around, positions, limits, facts)
    elif isinstance(node, (Sequence, Filter)):
        for k, f in enumerate(node.filters if isinstance(node, Sequence) else (node,)):
            inner = {s: active[s].intersect(d) for s, d in f.domain.items() if s in active}
            cut = {s: condition_source(d.gist(active[s])) for s, d in f.domain.items()
                   if s in active and not active[s].is_subset(d)}  # fmt: skip
            _visit(f.child, inner, around, (*positions, len(around), k), {**limits, **cut}, facts)
    elif isinstance(node, Promote):
        copies = " and ".join(w for w, on in (("copied in", node.copy_in), ("copied out", node.copy_out)) if on)
        details = (copies or "contracted") + ("" if node.layout is None else f", layout {node.layout}")
        facts.buffers[node.array] = (f"at {around[-1]}" if around else "at the top", node.space, details)
        _visit(node.child, active, around, positions, limits, facts)
    else:
        assert isinstance(node, Leaf)
        for s in active:
            facts.ways[s].append((around, positions))
            facts.parts[s].append((limits.get(s, ""), active[s]))


# ---- changes ---------------------------------------------------------------------------------------


def _statements(a: _Facts, b: _Facts) -> Iterator[Change]:
    for s in a.ways:
        if s not in b.ways:
            yield Change("statements", s, f"{s} is gone")
    for s in b.ways:
        if s not in a.ways:
            yield Change("statements", s, f"{s} is new")
        elif not _same_parts(a.parts[s], b.parts[s]):
            was, now = ([text or "all" for text, _ in f.parts[s]] for f in (a, b))
            yield Change("part", s, f"{s} runs in parts: {' / '.join(was)} -> {' / '.join(now)}", was, now)


def _same_parts(a: list[tuple[str, isl.Set]], b: list[tuple[str, isl.Set]]) -> bool:
    """Whether a statement is cut into the same sets of instances (in any order of the parts)."""
    if sorted(text for text, _ in a) == sorted(text for text, _ in b):
        return True
    return len(a) == len(b) and all(any(x.is_equal(y) for _, y in b) for _, x in a)


def _block(facts: _Facts, name: str) -> int | None:
    """The block size of `name.out`, `name.in`."""
    outer = facts.loops.get(f"{name}.out")
    if outer is None or f"{name}.in" not in facts.loops:
        return None
    sizes = {m.group(1) for v in outer.values.values() if (m := re.search(r"// (\d+)$", v))}
    return int(next(iter(sizes))) if len(sizes) == 1 else None


def _tiles(a: _Facts, b: _Facts) -> Iterator[tuple[Change, set[str]]]:
    """Blocks that are new, gone or of another size, with the loops that this explains."""
    names = [n.removesuffix(".out") for n in dict.fromkeys((*a.loops, *b.loops)) if n.endswith(".out")]
    for name in names:
        was, now = _block(a, name), _block(b, name)
        loops = {f"{name}.out", f"{name}.in"}
        if was is not None and now is not None and was != now:
            yield Change("tile", name, f"tile of {name} {was} -> {now}", was, now), loops
        elif was is None and now is not None and name in a.loops and name not in b.loops:
            yield Change("tile", name, f"{name} cut into blocks of {now}", None, now), {*loops, name}
        elif was is not None and now is None and name in b.loops and name not in a.loops:
            yield Change("tile", name, f"{name} no longer cut into blocks of {was}", was, None), {*loops, name}


def _loops(a: _Facts, b: _Facts, told: set[str]) -> Iterator[Change]:
    for name in dict.fromkeys((*a.loops, *b.loops)):
        x, y = a.loops.get(name), b.loops.get(name)
        if y is None or x is None:
            if name not in told:
                yield Change(
                    "removed" if y is None else "added", name, f"loop {name} {'is gone' if y is None else 'is new'}"
                )
            if y is not None and y.mark != "serial":
                yield _marked(name, "serial", y.mark)
            continue
        if x.mark != y.mark:
            yield _marked(name, x.mark, y.mark)
        if name not in told and (changed := [s for s in x.values if s in y.values and not _same(x, y, s)]):
            was, now = x.values[changed[0]], y.values[changed[0]]
            whose = "" if set(changed) == set(y.values) else f" for {', '.join(changed)}"
            yield Change("values", name, f"{name} runs over {now}{whose}, was {was}", was, now)
        if x.permutable != y.permutable and x.around == y.around:
            text = f"the band of {name} is {'now' if y.permutable else 'no longer'} permutable"
            yield Change("permutable", name, text, x.permutable, y.permutable)


def _same(x: _Loop, y: _Loop, stmt: str) -> bool:
    """Whether two loops have one value for every instance: one function may have several texts."""
    return x.values[stmt] == y.values[stmt] or bool(x.functions[stmt].is_equal(y.functions[stmt]))


def _marked(name: str, was: str, now: str) -> Change:
    if now == "serial":
        text = f"{name} is no longer {was}"
    elif was == "serial":
        text = f"{name} became {now}"
    else:
        text = f"{name}: {was} -> {now}"
    return Change("mark", name, text, was, now)


def _moves(a: _Facts, b: _Facts) -> Iterator[Change]:
    """Loops around one statement that stand in another order."""
    seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    for s in a.ways:
        for (was, _), (now, _) in zip(a.ways[s], b.ways.get(s, [])):
            old = tuple(n for n in was if n in now)
            new = tuple(n for n in now if n in old)
            if old == new or (old, new) in seen:
                continue
            seen.add((old, new))
            kept = _longest_in_order(old, new)
            for name in (n for n in new if n not in kept):
                place = new.index(name)
                inside = [n for n in new[:place] if old.index(n) > old.index(name)]
                outside = [n for n in new[place + 1 :] if old.index(n) < old.index(name)]
                text = f"{name} moved inside {inside[-1]}" if inside else f"{name} moved outside {outside[0]}"
                yield Change("order", name, text, list(was), list(now))


def _longest_in_order(old: tuple[str, ...], new: tuple[str, ...]) -> set[str]:
    """A longest common subsequence: the loops that need not have moved (the outer ones where it is a tie)."""
    best: dict[int, list[str]] = {}
    for k, name in enumerate(new):
        before: list[str] = []
        for j in range(k):
            if old.index(new[j]) < old.index(name) and len(best[j]) > len(before):
                before = best[j]
        best[k] = [*before, name]
    longest = max(best.values(), key=len)
    return set(longest)


def _neighbours(a: _Facts, b: _Facts) -> Iterator[Change]:
    """Which statements share loops, and which comes first inside them."""
    names = [s for s in a.ways if s in b.ways]
    for i, s in enumerate(names):
        for t in names[i + 1 :]:
            was, now = _together(a, s, t), _together(b, s, t)
            gained, lost = [n for n in now[0] if n not in was[0]], [n for n in was[0] if n not in now[0]]
            known = set(a.loops) & set(b.loops)
            if not was[0] and now[0] or (gained and not lost and set(gained) <= known):
                yield Change("joined", f"{s}, {t}", f"{s} and {t} share {', '.join(gained)}", was[0], now[0])
            elif was[0] and not now[0] or (lost and not gained and set(lost) <= known):
                yield Change("separated", f"{s}, {t}", f"{s} and {t} no longer share {', '.join(lost)}", was[0], now[0])
            if was[1] != now[1]:
                first, second = (s, t) if now[1] else (t, s)
                yield Change("order", s, f"{first} now runs before {second}" + (f" in {now[0][-1]}" if now[0] else ""))


def _together(facts: _Facts, s: str, t: str) -> tuple[list[str], bool]:
    """The loops that two statements share, and whether `s` comes first inside them."""
    (x, p), (y, q) = facts.ways[s][0], facts.ways[t][0]
    split = next((k for k in range(0, min(len(p), len(q)), 2) if p[k : k + 2] != q[k : k + 2]), None)
    if split is None:
        return [n for n, m in zip(x, y) if n == m], s < t
    return list(x[: p[split]]), p[split + 1] < q[split + 1]


def _promotions(a: _Facts, b: _Facts) -> Iterator[Change]:
    for array in dict.fromkeys((*a.buffers, *b.buffers)):
        x, y = a.buffers.get(array), b.buffers.get(array)
        if x is None and y is not None:
            verb = "contracted" if y[2] == "contracted" else "promoted"
            yield Change("promoted", array, f"{array} {verb} {y[0]} to {y[1]}", None, list(y))
        elif y is None and x is not None:
            yield Change("promotion removed", array, f"{array} no longer in a buffer ({x[0]})", list(x), None)
        elif x is not None and y is not None and x != y:
            steps = [f"{was} -> {now}" for was, now in zip(x, y) if was != now]
            yield Change("promotion changed", array, f"the buffer of {array}: {'; '.join(steps)}", list(x), list(y))
