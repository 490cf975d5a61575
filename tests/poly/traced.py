"""Sets of origins carried through a program, instance by instance: what each element of a result comes from."""

from __future__ import annotations

from itertools import product

from polyc.poly.scop import Scop
from tests.poly import brute

Element = tuple[str, tuple[int, ...]]
Origin = frozenset[Element]


def traced(scop: Scop) -> dict[Element, Origin]:
    """For each element of results and arrays updated in place the elements of arguments that it depends on; of a Scop
    without parameters."""
    state: dict[Element, Origin] = {}
    given = {n for n, a in scop.arrays.items() if a.kind in ("in", "inout")}

    def here(key: Element) -> Origin:  # random programs read outside of arrays, too
        return state.get(key, frozenset({key}) if key[0] in given else frozenset())

    all_of = brute.instances(scop)
    when = brute.times(scop.tree, all_of)
    for name, at in sorted(all_of, key=lambda i: when[i][0]):
        touched = brute.touches(scop, scop.statements[name], at)
        seen: Origin = frozenset()
        for t in touched:
            if not t.write:
                seen |= here((t.array, t.element))
        for t in touched:
            if t.write:
                key = (t.array, t.element)
                state[key] = seen if t.sure else seen | here(key)
    ends = {n for n, a in scop.arrays.items() if n in scop.results or a.kind == "inout"}
    out: dict[Element, Origin] = {}
    for name in ends:
        shape = [brute.value(e, {}) for e in scop.arrays[name].shape]
        out |= {(name, x): here((name, x)) for x in product(*map(range, shape))}
    return out
