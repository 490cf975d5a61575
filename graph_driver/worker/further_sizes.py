"""One kernel for an operator's further sizes: made once with sizes as symbols, checked for each of them.

An operator that is called with numbers gets a kernel for exactly these (the first `OWN` different sizes). Further ones
share a *general* kernel, in which the sizes that have differed between calls are parameters: its analysis, schedule,
loops, proof and machine code are made once. What a size brings itself is a certificate: its own Scop, translated anew,
is the general one at these sizes, in every set, map, expression and literal. A size without one is compiled as the
first ones are. So is one that has been used for `WORTH` predicted seconds: then its own kernel pays.

The first general kernel of a contraction has no tiles, so that no call waits long. Once such kernels have been used for
`TILES_WORTH` predicted seconds, by all sizes together, the next new size has one with tiles made, for this size and
those after it, where the model of costs predicts at most `SLOWER` times the time of a size's own kernel. All of this
counts calls, nothing asks a clock: the same calls have the same results.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polyc.emit.kernel import Kernel
from polyc.emit.lowering.checks import wanted
from polyc.emit.proof.proven import wholly
from polyc.frontend_dsl.fold import tidy
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.worker import tuned
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.errors import PolycError
from polyc.poly.expr import Const, Expr, rewrite, walk
from polyc.poly.records import dataclass
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop, Statement
from polyc.scheduler.cost.unknown_sizes import Times, times
from polyc.scheduler.strategies.auto import untiled

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule

OWN = 1  # different sizes that get kernels of their own first: most programs have no more
SLOWER = 3.0  # predicted times a kernel's own; beyond it tiles do not fit these sizes at all
WORTH = 0.05  # predicted seconds of calls that a kernel of its own is worth: a compile takes 0.1 to 1 s, and gains half
TILES_WORTH = 0.5  # predicted seconds of calls without tiles that are worth a general kernel with them

Sizes = Mapping[str, int]
Translate = Callable[[Sizes], Scop]


@dataclass(frozen=True)
class General:
    """A kernel for all values of some sizes. `scop` is what it was made from; `fixed` are the sizes that are numbers
    in it, `setting` what else decides about its code; `tiled`: whether it is as fast as one for all sizes gets. No
    kernel: there is none for these sizes."""

    scop: Scop | None
    kernel: Kernel | None
    fixed: Sizes
    setting: tuple[Platform, bool]
    tiled: bool = True


class Shared:
    """The general kernel for one combination of sizes, until its own kernel pays; called as a `Kernel` is."""

    def __init__(
        self, general: Kernel, scop: Scop, sizes: Sizes, calls: int, called: Callable[[], None] | None = None
    ) -> None:
        """`calls` of the general kernel, then one of `scop`, which is the same program at these `sizes`. `called` is
        told of each call of the general kernel."""
        self._kernel, self._left, self._called = general, calls, called
        self._scop: Scop | None = scop
        self._making = threading.Lock()
        at = ", ".join(f"{name} = {n}" for name, n in sizes.items())
        self._note = f"{at}: a kernel made for all values of {', '.join(sizes)}, until one for these alone pays"
        if scop.reassociate and any(s.reduction for s in scop.statements.values()):
            self._note += "; the two may add in another order"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run; raises what a `Kernel` does."""
        if self._scop is not None:
            self._left -= 1
            if self._left < 0 and self._making.acquire(blocking=False):  # other threads go on with the general one
                try:
                    self._own()
                finally:
                    self._making.release()
            elif self._called is not None:
                self._called()
        return self._kernel(*args, **named)

    def _own(self) -> None:
        if self._scop is not None:
            self._kernel, self._scop, self._note = compile_operator(self._scop), None, ""

    def report(self) -> dict[str, Any]:
        """That of the kernel that runs now; its notes say if it is a general one."""
        found = self._kernel.report()
        return {**found, "notes": [*found["notes"], *([self._note] if self._note else [])]}


class FurtherSizes:
    """The sizes that one operator was called with, for one choice of its constants."""

    def __init__(self) -> None:
        self._seen: list[Sizes] = []
        self._general: General | None = None
        self._without_tiles = 0.0  # predicted seconds of calls

    def kernel(self, scop: Scop, sizes: Sizes, shapes: tuple[tuple[int, ...], ...], translate: Translate) -> Any:
        """What runs `scop`: its own kernel, or a shared one.

        Args:
            scop: the operator at these sizes; it has no parameters.
            sizes: all of the operator's sizes, by name.
            shapes: of the arguments, in the order of `scop.args`.
            translate: makes the operator's Scop with some sizes as numbers, the others as symbols.
        """
        own = self._shared(scop, sizes, shapes, translate)
        return compile_operator(scop) if own is None else own

    def _shared(
        self, scop: Scop, sizes: Sizes, shapes: tuple[tuple[int, ...], ...], translate: Translate
    ) -> Shared | None:
        if not self._further(sizes):
            return None
        general = self._general_for(scop, sizes, translate)
        if general is None or general.scop is None or general.kernel is None:
            return None
        open_sizes = {name: sizes[name] for name in general.scop.params}
        if not same_program(general.scop, open_sizes, scop):
            now = _with_symbols(translate, general.fixed, sizes)
            if now is None or not same_program(general.scop, {}, now):
                self._seen, self._general = [sizes], None  # the operator is another one by now
            return None  # else these sizes make another program of it: loops that run once, say
        found = _worth(general.scop, scop, general.setting[0], general.tiled)
        if found is None or not _binds(general.kernel, shapes, open_sizes):
            return None
        kernel = general.kernel if found.threaded else general.kernel.alone()
        called = None if general.tiled else functools.partial(self._used, found.unknown)
        return Shared(kernel, scop, open_sizes, int(WORTH / found.unknown), called)

    def _used(self, seconds: float) -> None:
        self._without_tiles += seconds

    def _further(self, sizes: Sizes) -> bool:
        """Whether sizes enough have kernels of their own; if not, these are one of them."""
        if tuned.asked():  # schedules that were measured, for exactly these sizes
            return False
        if sizes in self._seen or len(self._seen) < OWN:
            if sizes not in self._seen:
                self._seen.append(sizes)
            return False
        return True

    def _general_for(self, scop: Scop, sizes: Sizes, translate: Translate) -> General | None:
        """The general kernel that covers these sizes, made where there is none and it is predicted to be quick; one
        with tiles once calls without them have been worth it."""
        setting = platform_of("cpu", None), wanted(None)
        known = self._general if self._general is not None and self._general.setting == setting else None
        tiles = self._without_tiles >= TILES_WORTH
        if known is not None and _covers(known.fixed, sizes):
            if known.tiled or not tiles:
                return known
            better = _made(known.scop, scop, sizes, known.fixed, setting, True)
            if better is not None and better.kernel is not None:
                self._general = better
            return self._general
        before = self._seen if known is None else [known.fixed]
        fixed = {name: n for name, n in sizes.items() if all(s.get(name) == n for s in before)}
        made = _made(_with_symbols(translate, fixed, sizes), scop, sizes, fixed, setting, tiles)
        if made is not None:
            self._general = made
        return made


def _made(
    general: Scop | None, scop: Scop, sizes: Sizes, fixed: Sizes, setting: tuple[Platform, bool], tiles: bool
) -> General | None:
    """A kernel of the general program, without tiles if there are any to leave out and they are not asked for; None
    where these sizes could not share it."""
    if general is None:
        return General(None, None, fixed, setting)
    platform, _ = setting
    quick = None if tiles else untiled(general, platform.machine, platform.threads)
    here = {name: sizes[name] for name in general.params}
    if not same_program(general, here, scop) or _worth(general, scop, platform, quick is None) is None:
        return None
    return General(general, _compiled(general, quick), fixed, setting, quick is None)


def _with_symbols(translate: Translate, fixed: Sizes, sizes: Sizes) -> Scop | None:
    """The program with all sizes but `fixed` as parameters; None where it needs numbers."""
    try:
        general = translate(fixed)
    except PolycError:
        return None
    return general if set(general.params) <= set(sizes) - set(fixed) else None


def _compiled(general: Scop, schedule: Schedule | None) -> Kernel | None:
    """Its kernel, by this schedule or the automatic one; None where isl cannot make or prove one with sizes as symbols:
    with numbers it may."""
    try:
        kernel = compile_operator(general) if schedule is None else compile_operator(general, schedule=schedule)
    except PolycError:
        return None
    return kernel if wholly(kernel.report()["notes"]) else None


def _covers(fixed: Sizes, sizes: Sizes) -> bool:
    return all(sizes[name] == n for name, n in fixed.items())


def _worth(general: Scop, scop: Scop, platform: Platform, tiled: bool) -> Times | None:
    """Predicted times, where a call of the general kernel at the sizes of `scop` is worth more than a compile."""
    found = times(general, scop, platform.machine, tiled)
    if found is None or found.unknown > (min(SLOWER * found.own, WORTH) if tiled else WORTH):
        return None
    return found


def _binds(kernel: Kernel, shapes: tuple[tuple[int, ...], ...], sizes: Sizes) -> bool:
    """Whether the kernel itself finds these sizes in the shapes of its arguments."""
    try:
        return kernel.bind(shapes).values == sizes
    except PolycError:
        return False


def same_program(general: Scop, sizes: Sizes, scop: Scop) -> bool:
    """The certificate: whether `general` at these sizes is `scop`, so that what is proved of one holds of the other.

    Sets and maps are compared as isl does, exactly; literals by their bits (0.0 is not -0.0); subscripts and other
    integers as written, or as the front end collects their terms (13 - 1 - i is 12 - i).
    """
    try:
        here = specialise(general, sizes)
    except PolycError:  # sizes outside its context
        return False
    return _equal(here, scop) or (here.statements.keys() == scop.statements.keys() and _equal(_tidy(here), _tidy(scop)))


def _equal(a: Scop, b: Scop) -> bool:
    return a == b and list(_literals(a)) == list(_literals(b))


def _tidy(scop: Scop) -> Scop:
    """The Scop with terms of integers collected."""

    def collected(e: Expr) -> Expr:
        return rewrite(e, tidy)

    def statement(s: Statement) -> Statement:
        index, predicate = tuple(map(collected, s.index)), None if s.predicate is None else collected(s.predicate)
        dynamic = tuple(replace(d, lo=collected(d.lo), hi=collected(d.hi)) for d in s.dynamic)
        return replace(s, index=index, value=collected(s.value), predicate=predicate, dynamic=dynamic)

    return replace(scop, statements={n: statement(s) for n, s in scop.statements.items()})


def _literals(scop: Scop) -> Iterator[tuple[Any, ...]]:
    for s in scop.statements.values():
        bounds = [e for d in s.dynamic for e in (d.lo, d.hi)]
        for expr in (*s.index, s.value, s.predicate, *bounds):
            yield from map(_bits, walk(expr) if isinstance(expr, Expr) else ())


def _bits(e: Expr) -> tuple[Any, ...]:
    if not isinstance(e, Const):
        return ()
    return type(e.value), repr(e.value), math.copysign(1.0, e.value)
