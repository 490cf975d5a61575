"""The graph passes by name, and running them: in order, to a fixed point, verified before and after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.external import any_registered, calls_of, use_externals
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.precisions import F16
from polyc.graph_driver.passes.algebra import simplify, simplify_fast
from polyc.graph_driver.passes.batch_norm import fold_affine_into_convolutions
from polyc.graph_driver.passes.bf16_pairs import use_bf16_pairs
from polyc.graph_driver.passes.byte_images import use_byte_images
from polyc.graph_driver.passes.byte_products import use_byte_products
from polyc.graph_driver.passes.cleanup import remove_dead, remove_identities
from polyc.graph_driver.passes.common import share_common
from polyc.graph_driver.passes.directions import split_directions
from polyc.graph_driver.passes.fold import fold_constants
from polyc.graph_driver.passes.integer_pairs import use_integer_pairs, use_quantised_convolutions
from polyc.graph_driver.passes.integer_products import compute_integer_products_in_f32
from polyc.graph_driver.passes.limits import keep_to_limits
from polyc.graph_driver.passes.parts import share_parts
from polyc.graph_driver.passes.precision import Precision, use_types_of
from polyc.graph_driver.passes.reciprocals import use_reciprocals
from polyc.graph_driver.passes.transforms import cancel_transforms
from polyc.graph_driver.passes.views import make_views
from polyc.graph_driver.passes.weight_panels import use_weight_panels
from polyc.graph_driver.passes.zero_blocks import skip_zero_blocks
from polyc.graph_driver.verifying.verify import verify
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass
from polyc.poly.spans import span
from polyc.poly.target import Target

ROUNDS = 8  # of the rewriting passes, until none of them changes the graph
REWRITING, PLACING = "rewriting", "placing"
GENERAL, SPECIFIC = "general", "specific"
NO_PAIRS = "products of pairs become shifts and products there, not one instruction"


@dataclass(frozen=True)
class Pass:
    """A pass changes the graph in place and says how often it did something, by what.

    `phase`: rewriting passes run in turns until nothing changes; placing passes, which decide where
    tensors lie and which implementation a node gets, run once after them. `specific`: it knows the
    target. `default`: it runs when nothing else is asked for, else with the option `asked_by`. `exact`: it keeps
    every operator's rounding. `everywhere`: where it does not, it rounds alike on every machine. `needs`:
    what a back end must be able to (`Backend.abilities`) for it to have code for what the pass makes, or to gain by it;
    on others it does not run, because of `limit`.
    """

    name: str
    what: str
    run: Callable[[Graph, Target | None], dict[str, int]]
    phase: str = REWRITING
    specific: bool = False
    exact: bool = True
    default: bool = True
    asked_by: str = ""
    needs: str = ""
    limit: str = ""
    everywhere: bool = False

    @property
    def given(self) -> bool:
        """Whether it does nothing without a value that an option or a target file gives it."""
        return not self.default and self.name != "fast-math"

    def suits(self, backend: Ability) -> bool:
        """Whether a back end can do what this needs."""
        return not self.needs or self.needs in backend.abilities


class Ability(Protocol):
    """What passes ask of a back end: its name, and what it is able to (`polyc.graph_driver.backends.protocol`)."""

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def abilities(self) -> frozenset[str]:
        """What it can do, of all that passes need."""


def _general(step: Callable[[Graph], dict[str, int]]) -> Callable[[Graph, Target | None], dict[str, int]]:
    return lambda graph, target: step(graph)


def types_of(floats: Sequence[str], allow_downcast: bool) -> Pass:
    """The pass for a target that does not compute in all types."""

    def run(graph: Graph, target: Target | None) -> dict[str, int]:
        return use_types_of(graph, floats, allow_downcast)

    return replace(BY_NAME["target-types"], run=run)


def within_limits(most: Mapping[str, int]) -> Pass:
    """The pass for a target whose operators take so many operands at most, by the operator's name."""
    return replace(BY_NAME["operand-limits"], run=_general(lambda graph: keep_to_limits(graph, most)))


def with_portable_constants(passes: Iterable[Pass]) -> tuple[Pass, ...]:
    """The passes by which nothing is computed at compile time that another machine would round elsewhere."""
    run = _general(lambda graph: fold_constants(graph, portable=True))
    return tuple(replace(p, run=run) if p.name == "constants" else p for p in passes)


def with_parts_at(alignment: int, passes: Iterable[Pass]) -> tuple[Pass, ...]:
    """The passes for a target whose tensors begin at multiples of so many bytes: so do parts of tensors."""
    run = _general(lambda graph: share_parts(graph, alignment))
    return tuple(replace(p, run=run) if p.name == "parts" else p for p in passes)


def _winograd(graph: Graph, target: Target | None) -> dict[str, int]:
    if target is None:
        return {}
    from polyc.graph_driver.choosing.select import select as select_implementations
    from polyc.graph_driver.choosing.winograd import use_winograd

    fixed = {s.results: s for s in graph.selections if s.results in calls_of(graph)}
    graph.selections = [fixed.get(s.results, s) for s in select_implementations(graph, target)]
    chosen = {s.results: s.chosen for s in graph.selections}
    tiles = {r: int(name.removeprefix("winograd")) for r, name in chosen.items() if name.startswith("winograd")}
    return use_winograd(graph, tiles, target)


def _siblings(graph: Graph, target: Target | None) -> dict[str, int]:
    if target is None:
        return {}
    from polyc.graph_driver.choosing.siblings import join_siblings

    return join_siblings(graph, target)


def _external(graph: Graph, target: Target | None) -> dict[str, int]:
    if target is None or not any_registered():
        return {}
    from polyc.graph_driver.choosing.select import select as select_implementations

    graph.selections = select_implementations(graph, target)
    return use_externals(graph, {s.results: s.chosen for s in graph.selections})


PASSES: tuple[Pass, ...] = (
    Pass("identities", "identities, dropout, casts to the same type", _general(remove_identities)),
    Pass("dead-code", "nodes and tensors that no output needs", _general(remove_dead)),
    Pass("constants", "nodes over constants are run at compile time", _general(fold_constants)),
    Pass("common", "equal nodes and equal constants once", _general(share_common)),
    Pass("algebra", "exact algebraic rules", _general(simplify)),
    Pass("fast-math", "algebraic rules that change rounding, NaN or -0", _general(simplify_fast), exact=False,
         default=False, asked_by="--fast-math"),
    Pass("transforms", "chains of moves that cancel", _general(cancel_transforms)),
    Pass("affine", "normalisation and scales into the weights before them", _general(fold_affine_into_convolutions),
         exact=False, everywhere=True),
    Pass("target-types", "f32 where the target has no f16, or no f64", _general(lambda graph: {}), PLACING, exact=False,
         default=False, asked_by="a target file"),
    Pass("precision", "f32 models computed in f16 (or --precision bf16, int8, auto)", _general(Precision(F16).apply),
         PLACING, exact=False, default=False, asked_by="--precision"),
    Pass("directions", "bidirectional recurrent layers as two layers", _general(split_directions), PLACING),
    Pass("byte-images", "images of codes with channels last, convolutions four channels at a time", use_byte_images,
         PLACING, specific=True, exact=False, needs="pairs", limit=NO_PAIRS),
    Pass("byte-products", "matrix products of codes four at a time", use_byte_products, PLACING, specific=True,
         exact=False, needs="pairs", limit=NO_PAIRS),
    Pass("zero-blocks", "products without the blocks of zeros of their weights", _general(skip_zero_blocks), PLACING,
         exact=False),
    Pass("operand-limits", "operators of more operands than the target takes as trees", _general(lambda graph: {}),
         PLACING, default=False, asked_by="a target file"),
    Pass("siblings", "products of one operand as one product where it pays", _siblings, PLACING, specific=True),
    Pass("views", "reshapes become aliases", _general(make_views), PLACING),
    Pass("parts", "concatenations and splits without copies", _general(share_parts), PLACING),
    Pass("external", "nodes that a registered function of the user's does best", _external, PLACING, specific=True,
         exact=False, needs="calls", limit="they cannot call into this process"),
    Pass("winograd", "3x3 convolutions by Winograd's method where it pays", _winograd, PLACING, specific=True,
         exact=False, needs="known machine", limit="its filters are up to four times as large: on a machine "
         "that nobody knows, size counts more"),
    Pass("quantised-convolutions", "convolutions of dequantised codes in integers", use_quantised_convolutions, PLACING,
         specific=True, exact=False, needs="pairs", limit=NO_PAIRS),
    Pass("reciprocals", "quantisation by constant scales without division, the same codes", use_reciprocals, PLACING,
         specific=True, needs="fma", limit="a fused multiply-add may be a function there"),
    Pass("integer-pairs", "products of 8-bit integers two at a time", use_integer_pairs, PLACING, specific=True,
         needs="pairs", limit=NO_PAIRS),
    Pass("bf16-pairs", "products of bf16 two at a time, where a machine has that", use_bf16_pairs, PLACING,
         specific=True, exact=False, needs="pairs", limit=NO_PAIRS),
    Pass("weight-panels", "weights of 4 and 8 bits in panels, rows in codes where a machine multiplies bytes",
         use_weight_panels, PLACING, specific=True, exact=False, needs="pairs", limit=NO_PAIRS),
    Pass("integer-products", "products of 8-bit integers in f32 where that is exact",
         _general(compute_integer_products_in_f32), PLACING),
)  # fmt: skip
BY_NAME = {p.name: p for p in PASSES}


@dataclass(frozen=True)
class PassRecord:
    """One run of one pass: counts, and nodes and seconds after it."""

    name: str
    counts: dict[str, int]
    nodes: int
    seconds: float

    def __str__(self) -> str:
        done = ", ".join(f"{v} {k}" for k, v in self.counts.items() if v) or "nothing to do"
        return f"{self.name}: {done}"


def select(
    passes: Sequence[str] | None = None,
    disable: Iterable[str] = (),
    fast_math: bool = False,
    exact: bool = False,
    precision: Precision | None = None,
    asked: Sequence[Pass] = (),
    backend: Ability | None = None,
    enabled: Sequence[str] = (GENERAL, SPECIFIC),
    reproducible: bool = False,
) -> tuple[Pass, ...]:
    """The passes to run: rewriting ones in the given order, placing ones after them in their own.

    This is the only place that decides it: whatever compiles, explains or shows a model asks here.

    Args:
        passes: names; None is the default list.
        disable: names to leave out.
        fast_math: with the default list, also rules that change rounding.
        exact: without those that round elsewhere than the operators' definitions and that no other option asks for.
        precision: also the precision pass with this choice.
        asked: also these passes, which the target's own limits ask for.
        backend: what makes the code; None can do everything.
        enabled: the default list, which a target may narrow and widen: `general` passes, those `specific` to hardware,
            and others by name.
        reproducible: as `exact`, but with what rounds alike on every machine.

    Raises:
        ArgumentError: there is no such pass (the names are listed), or one in `passes` is not for the back end or not
            exact where that is asked for, or a target enables what is no pass.
    """
    strange = [n for n in enabled if n not in (GENERAL, SPECIFIC, *BY_NAME) or (n in BY_NAME and BY_NAME[n].given)]
    if strange:
        raise ArgumentError(
            f"the target's 'passes' are {GENERAL}, {SPECIFIC} and names of passes that need nothing else, not "
            f"{strange[0]!r:.80}; passes are {', '.join(BY_NAME)}"
        )
    unknown = [n for n in (*(passes or ()), *disable) if n not in BY_NAME]
    if unknown:
        raise ArgumentError(f"there is no pass '{unknown[0]}'; passes are {', '.join(BY_NAME)}")
    if passes is None:
        kinds = {GENERAL: False, SPECIFIC: True}
        usual = {kinds[n] for n in enabled if n in kinds}
        chosen = [
            p for p in PASSES
            if (p.default and p.specific in usual) or p.name in enabled or (fast_math and p.name == "fast-math")
        ]  # fmt: skip
    else:
        chosen = [BY_NAME[n] for n in passes]
        for p in chosen:
            if backend is not None and not p.suits(backend):
                raise ArgumentError(f"pass '{p.name}' is not for the back end {backend.name}: {p.limit}")
            if _rounds_elsewhere(p, exact, reproducible):
                raise ArgumentError(f"pass '{p.name}' rounds elsewhere than the operator's definition: not with exact")
    if precision is not None:
        chosen = [p for p in chosen if p.name != "precision"]
        chosen.append(replace(BY_NAME["precision"], run=_general(precision.apply)))
    chosen += asked
    left_out = {*disable} | {p.name for p in chosen if _rounds_elsewhere(p, exact, reproducible)}
    left_out |= set() if fast_math or passes is not None or not (exact or reproducible) else {"fast-math"}
    left_out |= {p.name for p in chosen if backend is not None and not p.suits(backend)}
    order = {p.name: 0 if p.phase == REWRITING else 1 + k for k, p in enumerate(PASSES)}
    return tuple(sorted((p for p in chosen if p.name not in left_out), key=lambda p: order[p.name]))


def _rounds_elsewhere(p: Pass, exact: bool, reproducible: bool) -> bool:
    """Whether a pass rounds where it may not; what another option asks for is that option's matter."""
    return p.default and not p.exact and (exact or (reproducible and not p.everywhere))


def rounded_elsewhere(records: Iterable[PassRecord]) -> str:
    """One line on the passes that did something and round elsewhere than the operators' definitions; empty for none."""
    names = [r.name for r in records if not BY_NAME[r.name].exact and any(r.counts.values())]
    left_out = ": --exact leaves it out" if len(names) == 1 else ": --exact leaves them out"
    asked = all(not BY_NAME[n].default for n in names)
    each = "pass " + names[0] + " rounds" if len(names) == 1 else "passes " + ", ".join(names) + " round"
    return f"{each} elsewhere than the operators' definitions{'' if asked else left_out}" if names else ""


DEFAULT = select(disable=[p.name for p in PASSES if p.specific])  # what needs no target

Watch = Callable[[PassRecord, Graph], None]


def run(
    graph: Graph, passes: Sequence[Pass] = DEFAULT, target: Target | None = None, watch: Watch | None = None
) -> list[PassRecord]:
    """Apply `passes` to `graph` in place; `watch` is called after each run of a pass that did something.

    Raises:
        GraphError: the graph is broken before, or a pass broke it (the message names the pass).
    """
    verify(graph)
    records: dict[str, PassRecord] = {}
    mark = _mark(graph)

    def once(step: Pass) -> bool:
        nonlocal mark
        start, before = time.perf_counter(), mark
        with span(step.name):
            counts = step.run(graph, target)
        try:
            verify(graph)
        except GraphError as error:
            raise GraphError(f"pass {step.name}: {error}") from None
        mark = _mark(graph)
        changed = mark != before
        old = records.get(step.name, PassRecord(step.name, {}, 0, 0.0))
        total = {k: old.counts.get(k, 0) + v for k, v in counts.items()}
        records[step.name] = PassRecord(step.name, total, len(graph.nodes), old.seconds + time.perf_counter() - start)
        if changed and watch is not None:
            watch(PassRecord(step.name, counts, len(graph.nodes), 0.0), graph)
        return changed

    rewriting = [p for p in passes if p.phase == REWRITING]
    quiet = 0  # runs since the last change: after one of each nothing more will happen
    for step in rewriting * ROUNDS:
        quiet = 0 if once(step) else quiet + 1
        if quiet >= len(rewriting):
            break
    for step in passes:
        if step.phase == PLACING:
            once(step)
            if any(p.name == "dead-code" for p in passes):
                once(BY_NAME["dead-code"])
    return [records[p.name] for p in passes]


def _mark(graph: Graph) -> tuple[object, ...]:
    """Equal before and after a pass that did nothing."""
    nodes = tuple((id(n), n.kind, tuple(n.inputs), tuple(n.outputs), len(n.attrs), id(n.proto)) for n in graph.nodes)
    return nodes, tuple((name, id(t.const)) for name, t in graph.tensors.items())
