"""The formats of all images between kernels, chosen together.

Every kernel can read and write an image in every format that its loops allow, so no kernel is needed that does
nothing but convert: where a kernel reads one format and writes another, the conversion is in its subscripts. Its
price is in the cost model's prediction for that kernel. The sum over the graph is least (`selection.solve`, exact).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from polyc.graph_driver.choosing.solve import Option, Problem, Task, solve
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.fusion.rearranging import Rearranged, rearrange
from polyc.graph_driver.graph.aliases import is_alias, storage
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.layouts.formats import CHANNELS_LAST, GIVEN, Format, blocked
from polyc.graph_driver.layouts.offers import Offer, Offers, applied
from polyc.poly.records import dataclass
from polyc.poly.target import Target

GAIN = (
    0.91  # a kernel in other formats counts as slower than predicted by so much: less the model does not see reliably
)
MIXED = 0.9  # and one that converts by so much: lanes that are gathered or scattered cost more than the model says
FULL = 0.7  # share of the lanes of whole blocks that channels must fill (17 of 32: 1.2 times as slow, 40 of 48: equal)
MOST_STATES = 20_000


@dataclass(frozen=True)
class Chosen:
    """Groups with their images in the chosen formats; what is stored otherwise; how many kernels convert."""

    groups: list[Group]
    stored: tuple[Rearranged, ...]
    conversions: int


def choose_formats(graph: Graph, groups: Sequence[Group], target: Target, layouts: str) -> Chosen:
    """The groups with their images stored so that the whole graph takes least time.

    Args:
        layouts: one of `LAYOUTS`; other than `auto` and `as_given` it stores as many images as possible so.
    """
    for name, t in graph.tensors.items():
        if t.layout is not None:  # of an attempt before
            graph.tensors[name] = replace(t, layout=None)
    free = () if layouts == "as_given" else _free(graph, groups, layouts == "auto")
    choices = {t: _choices(graph, t, target, layouts) for t in free}
    choices = {t: found for t, found in choices.items() if len(found) > 1}
    if not choices:
        return Chosen([*groups], (), 0)
    offers = Offers(graph, target)
    found = {k: offers.of(g, choices) for k, g in enumerate(groups) if _images(g, choices)}
    tasks = tuple(
        Task(
            str(k),
            *_wired(groups[k], choices),
            tuple(_option(o, n, groups[k], choices, layouts) for n, o in enumerate(own)),
        )
        for k, own in found.items()
    )
    solution = solve(Problem(tasks, {}, {}, {}), MOST_STATES)
    out, stored, conversions = [], dict[str, Rearranged](), 0
    for k, g in enumerate(groups):
        if k not in found:
            out.append(g)
            continue
        offer = found[k][int(solution.chosen[str(k)].name)]
        changed, what = applied(graph, g, offer)
        conversions += offer.mixed
        out.append(changed)
        for r in what:
            rearrange(graph, r)
            stored[r.name] = r
    return Chosen(out, tuple(stored.values()), conversions)


def _images(group: Group, choices: Mapping[str, object]) -> bool:
    return any(t in choices for t in (*group.inputs, *group.outputs))


def _wired(group: Group, choices: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inputs = tuple(dict.fromkeys(t for t in group.inputs if t in choices))
    return inputs, tuple(t for t in group.outputs if t in choices)


def _option(offer: Offer, number: int, group: Group, choices: Mapping[str, object], layouts: str) -> Option:
    """An offer for the solver. Formats that meet need no conversion; others cannot meet, as there is no kernel that
    converts: the solver's first aim, fewest conversions, is none (everything as given has none)."""
    formats = dict(offer.formats)
    inputs, outputs = _wired(group, choices)
    given = all(f.given for f in formats.values())
    cost = offer.cycles / (1.0 if given else MIXED if offer.mixed else GAIN)
    if layouts != "auto":
        cost = float(sum(f.given for f in formats.values()))
    wants, gives = (tuple(("", str(formats[t].block)) for t in names) for names in (inputs, outputs))
    return Option(str(number), wants, gives, 0, cost)


def _choices(graph: Graph, tensor: str, target: Target, layouts: str) -> list[Format]:
    """The formats that a tensor may have; of its own accord the compiler takes blocks where no padding is needed."""
    t = graph.tensors[tensor]
    assert t.dtype is not None and t.shape is not None
    blocks = blocked(target, t.dtype.bits)
    if layouts == "channels_last":
        return [GIVEN, CHANNELS_LAST]
    if layouts == "blocked":
        return [GIVEN, blocks]
    channels = t.shape[1]
    if not isinstance(channels, int) or channels < FULL * -(-channels // blocks.block) * blocks.block:
        return [GIVEN]
    return [GIVEN, CHANNELS_LAST if channels % blocks.block else blocks]


def _free(graph: Graph, groups: Sequence[Group], gaining: bool) -> list[str]:
    """Images that kernels make and only kernels read, each in memory of its own.

    `gaining`: without those of Winograd's transformations, which gain nothing by it (measured: 25 % slower on images
    of 56 and 28, faster on those of 14).
    """
    where = storage(graph)
    shown = {where[n][0] for n in where if where[n] != (n, 0)}
    held = {*graph.inputs, *graph.outputs, *shown, *(n for n in where if where[n] != (n, 0))}
    held |= {n for node in graph.nodes if is_alias(node) for n in (*node.reads(), *node.writes())}
    for g in groups:
        held |= {c for n in g.nodes for c in n.captures}
        if g.scop is None or g.inplace or (gaining and any(n.op_type.startswith("Winograd") for n in g.nodes)):
            held |= {*g.inputs, *g.outputs}
    made = [o for g in groups for o in g.outputs if o not in held]
    return [o for o in made if _is_image(graph, o)]


def _is_image(graph: Graph, name: str) -> bool:
    t = graph.tensors[name]
    if t.dtype is None or not t.dtype.is_float or t.shape is None or len(t.shape) != 4:
        return False
    sizes = [n for n in t.shape if isinstance(n, int)]
    return len(sizes) == 4 and sizes[1] > 1 and prod(sizes[2:]) > 1
