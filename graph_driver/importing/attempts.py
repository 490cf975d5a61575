"""Which representative sizes a model is imported at: the usual ones, smaller ones, or what its nodes ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.size import Quotient, Size
from polyc.graph_driver.graph.symbols import Guard, Range, Symbols
from polyc.graph_driver.importing.binding import Binder, Dim
from polyc.graph_driver.importing.representatives import other_sizes
from polyc.graph_driver.inference.symbolic import NotSymbolic
from polyc.poly.errors import ModelError

SCALES = (1, 4, 16)
"""The representative sizes are taken smaller when the model does not take them, or takes no smaller ones with
them: a table of 40 positions and a length of 128 do not go together."""
ATTEMPTS = 8
"""How often other representative sizes are looked for at each scale, when a node says what they must keep."""

Import = Callable[[Binder], Graph]


def imported(run: Import, dims: Mapping[str, Dim], shapes: Mapping[str, Sequence[int]], symbolic: bool) -> Graph:
    """What `run` makes at the first representative sizes that fit. Arguments are those of `Binder`.

    Raises:
        ModelError: the first attempt's, when none succeeds.
    """
    failure: ModelError | None = None
    usable: Graph | None = None
    for scale in SCALES:
        first = Binder(dims, shapes, symbolic, scale)
        try:
            graph = _repaired(run, first)
        except ModelError as error:
            if not first.symbols:
                raise
            failure = failure or error
            continue
        if graph.symbols is None or not graph.symbols.cut_below:
            return _settled(run, first, graph)
        usable = usable or _settled(run, first, graph)
    if usable is None:
        assert failure is not None
        raise failure
    return usable


def _repaired(run: Import, binder: Binder) -> Graph:
    """The import, with other representative sizes when a node asks for them."""
    wanted: list[Guard] = []
    failure: ModelError | None = None
    while True:
        try:
            return run(binder)
        except NotSymbolic as error:
            failure = failure or error
            if error.wanted is None or len(wanted) == ATTEMPTS:
                raise failure from None
            wanted.append(error.wanted)
            ranges = binder.symbols.ranges
            values = other_sizes(ranges, wanted)
            if values is None:
                raise failure from None
            binder = binder.again({n: Range(*r.asked, values[n], r.asked, r.key) for n, r in ranges.items()})


def _settled(run: Import, binder: Binder, graph: Graph) -> Graph:
    """The import anew with what it has found, where that makes a number or another size of a formula.

    The ranges may leave one value (to `(h + 15)//48` of 33 <= h <= 80, or to a size itself), and guards make one
    size of two; known from the start, loops need neither.
    """
    symbols = graph.symbols
    if symbols is None:
        return graph
    same = _same_sizes(symbols)
    atoms = {a for t in graph.tensors.values() for n in t.shape or () if isinstance(n, Size) for a in n.atoms()}
    ends = [symbols.bounds(Size(symbols, {((a, 1),): 1})) for a in atoms if isinstance(a, Quotient)]
    ends += [(r.low, r.high) for r in symbols.ranges.values()]
    if not same and not any(low is not None and low == high for low, high in ends):
        return graph
    known = {n: replace(r, asked=(r.low, r.high)) for n, r in symbols.ranges.items()}
    for name, first in same.items():
        known[first] = _both(known[first], known[name])
    keys = {symbols.ranges[name].key: symbols.ranges[first].key for name, first in same.items()}
    return run(binder.again(known, symbols.reasons, keys))


def _same_sizes(symbols: Symbols) -> dict[str, str]:
    """Symbols that a guard makes equal to another, each with the first that it is equal to."""
    order = list(symbols.ranges)
    first = {n: n for n in order}
    for g in symbols.guards:
        if g.kind == "=" and g.size.affine and sorted(f for _, f in g.size.terms) == [-1, 1]:
            names = g.size.symbols()
            if len(names) == 2 and set(g.size.atoms()) == names:
                a, b = sorted((first[n] for n in names), key=order.index)
                first = {n: a if f == b else f for n, f in first.items()}
    return {n: f for n, f in first.items() if n != f}


def _both(a: Range, b: Range) -> Range:
    """What two ranges have in common; the representative value of the first, which is that of the second."""
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    low = max(a.low, b.low)
    return Range(low, high, a.typical, (low, high), a.key)
