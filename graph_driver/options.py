"""How a model is compiled: what `compile_model`, the commands and C sources hand on as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from polyc.graph_driver import memory
from polyc.graph_driver.graph.precisions import F32, MEASURED, PRECISIONS
from polyc.graph_driver.layouts.names import LAYOUTS
from polyc.poly.errors import ArgumentError, OptionError
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget, Target

if TYPE_CHECKING:
    from polyc.graph_driver.backends.protocol import Platform
    from polyc.graph_driver.graph.progress import Progress
    from polyc.graph_driver.importing.binding import Dim
    from polyc.graph_driver.passes.manager import Pass
    from polyc.graph_driver.planning.contiguous import Groups


MEMORIES = (USUAL, MINIMAL) = ("usual", "minimal")
"""How little memory a run shall need: as little as costs no time, or as little as possible."""
OVERWRITING = "minimal, overwriting"
"""One way to MINIMAL: results that can take an operand's place as a whole do. It is not asked for, but tried."""
TIERS = (FULL, FAST, PROGRESSIVE) = ("full", "fast", "progressive")
"""How much is made of the code before a model runs (docs/internals/models.md)."""


def options_of(caller: str, target: str | Target | GpuTarget, given: Mapping[str, Any]) -> CompileOptions:
    """The options that keywords give, `compile_model`'s by name; what is None is as if it were not given.

    Raises:
        ArgumentError: `caller` has no such keyword, or one has no such value.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    asked["precision"] = one_precision(asked.get("precision"), asked.pop("dtype", None))
    try:
        return CompileOptions(target=target, **asked)
    except TypeError as error:
        raise ArgumentError(f"{caller}: {str(error).split('__init__() ')[-1]}") from None


def one_precision(precision: str | None, dtype: str | None) -> str | None:
    """The precision, of which `dtype` is another name. Raises `ArgumentError`: they contradict each other."""
    if dtype is not None and precision not in (None, dtype):
        raise ArgumentError(f"dtype is another name of precision: {dtype!r} and {precision!r} contradict each other")
    return precision or dtype


class NeedsNumbers(OptionError):
    """An option that would have no effect for symbolic sizes."""

    code = "P004"


@dataclass(frozen=True)
class CompileOptions:
    """The options of `polyc.graph_driver.compile_model.compile_model`, by the same names and with the same meaning.

    Raises:
        ArgumentError: there is no such planner, no such choice of layouts, or no such tier.
    """

    target: str | Target | GpuTarget = "cpu"
    threads: int | None = None
    dims: Mapping[str, Dim] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    fuse: bool = True
    memory_limit: int | None = None
    progress: Progress | None = None
    exact: bool = False
    symbolic: bool | None = None
    passes: Sequence[str] | None = None
    disable: Sequence[str] = ()
    fast_math: bool = False
    bind: Mapping[str, Any] = field(default_factory=dict)
    planner: str | None = None
    tasks: bool = False
    tuned: bool | None = None
    precision: str | None = None
    keep_f32: Sequence[str] = ()
    contiguous: Groups = ()
    layouts: str = "auto"
    strict_annotations: bool = False
    strict_shapes: bool = False
    checks: bool | None = None
    tier: str = FULL
    narrow_only: Sequence[str] = ()
    max_error: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    allow_downcast: bool = False
    reproducible: bool = False
    memory: str = USUAL

    def __post_init__(self) -> None:
        for name in ("dims", "shapes", "bind", "data"):
            if not isinstance(getattr(self, name), Mapping):
                raise ArgumentError(f"{name} is a dict by name, not {getattr(self, name)!r:.80}")
        limit = self.memory_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise ArgumentError(f"the memory limit is a number of bytes, not {limit!r:.80}")
        if self.planner is not None and self.planner not in memory.PLANNERS:
            raise ArgumentError(f"there is no planner '{self.planner}'; planners are {', '.join(memory.PLANNERS)}")
        if self.memory not in (*MEMORIES, OVERWRITING):
            raise ArgumentError(f"there is no memory '{self.memory}'; choices are {', '.join(MEMORIES)}")
        if self.overlapping:
            for name, other in (("tasks", self.tasks), ("planner", self.planner), ("contiguous", self.contiguous)):
                if other:
                    raise OptionError(
                        f"memory minimal has a plan of its own, {name} asks for another: take one of them"
                    )
            if self.tier != FULL:
                raise OptionError(f"memory minimal takes its time, tier {self.tier} has none: take one of them")
        if self.layouts not in LAYOUTS:
            raise ArgumentError(f"there are no layouts '{self.layouts}'; choices are {', '.join(LAYOUTS)}")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise ArgumentError(f"there is no precision '{self.precision}'; choices are {', '.join(PRECISIONS)}")
        if self.max_error is not None and not self.max_error > 0:
            raise ArgumentError(f"an error is a positive number, not {self.max_error}")
        if self.tier not in TIERS:
            raise ArgumentError(f"there is no tier '{self.tier}'; tiers are {', '.join(TIERS)}")
        if self.reproducible and self.tier == PROGRESSIVE:
            raise OptionError("reproducible has no effect with tier progressive: its first answers are NumPy's")
        if self.reproducible and self.fast_math:
            raise OptionError("reproducible keeps every rounding, fast_math changes them: take one of them")

    @property
    def overlapping(self) -> bool:
        """Whether tensors may lie over others that die while they are made."""
        return self.memory != USUAL

    def pipeline(self, platform: Platform) -> tuple[Pass, ...]:
        """The graph passes in the order in which they run.

        Raises:
            ArgumentError: there is no such pass, or one that is asked for by name is not for this platform.
        """
        from polyc.graph_driver.passes import manager  # a known model runs none

        precision = None
        if self.precision is not None and self.precision != F32:
            precision = manager.Precision(self.precision, self.keep_f32, self.narrow_only, self.max_error, self.data)
        floats = platform.backend.floats(platform.machine)
        types = None if {"f16", "f64"} <= {*floats} else manager.types_of(floats, self.allow_downcast)
        limits = platform.backend.operand_limits(platform.machine)
        asked = [p for p in (types, manager.within_limits(limits) if limits else None) if p is not None]
        chosen = manager.select(
            self.passes, self.disable, self.fast_math, self.exact, precision, asked,
            platform.backend, platform.backend.graph_passes(platform.machine), self.reproducible,
        )  # fmt: skip
        if self.reproducible:
            chosen = manager.with_portable_constants(chosen)
        return manager.with_parts_at(platform.backend.alignment, chosen)

    def as_given(self) -> CompileOptions:
        """Those by which every tensor has the type that the model says."""
        return replace(self, precision=None, keep_f32=(), narrow_only=(), max_error=None, data={})

    def for_bodies(self) -> CompileOptions:
        """Those for the bodies of control flow, whose arenas are their own."""
        return replace(self, memory_limit=None, contiguous=())

    def refuse_ignored(self, platform: Platform, symbolic: bool = False) -> None:
        """Refuse what would have no effect on this platform, on a model with `symbolic` sizes, or beside the others.

        Raises:
            OptionError: one line that names the option and says why.
        """
        given = vars(self)
        for name in ("keep_f32", "narrow_only", "max_error", "data"):
            if given[name] not in (None, (), [], {}) and self.precision in (None, F32):
                raise OptionError(f"{name} has no effect without a precision: the model is computed as it stands")
            if name in ("max_error", "data") and given[name] not in (None, {}) and self.precision not in MEASURED:
                raise OptionError(f"{name} has no effect for precision {self.precision}, of which nothing is measured")
        if self.allow_downcast and "f64" in platform.backend.floats(platform.machine):
            raise OptionError(f"allow_downcast has no effect for {platform.meant}: it computes in f64")
        if self.fast_math and self.passes is not None:
            raise OptionError("fast_math has no effect with passes, which names all that run: add 'fast-math' there")
        beside = (["symbolic sizes"] if symbolic else []) + (["one thread"] if self.threads == 1 else [])
        tables = [(platform.meant, platform.backend.ignored), *((where, IGNORED[where]) for where in beside)]
        for where, ignored in tables:
            for name, why in ignored.items():
                if given[name] not in NOT_GIVEN[name]:
                    kind = NeedsNumbers if where == "symbolic sizes" else OptionError
                    raise kind(f"{name} has no effect for {where}: {why}")


NOT_GIVEN: Mapping[str, tuple[Any, ...]] = {
    "layouts": ("auto", "as_given"), "threads": (None, 1), "tasks": (False,), "tuned": (None, False),
    "contiguous": ((), []), "tier": (FULL,), "memory": (USUAL,),
}  # fmt: skip
"""Values that say that an option is not asked for."""

IGNORED: Mapping[str, Mapping[str, str]] = {
    "symbolic sizes": {
        "contiguous": "contiguous tensors need sizes that are numbers (--dim NAME=V)",
        "layouts": "blocks of channels need sizes that are numbers (--dim NAME=V)",
        "memory": "which elements die before others are made needs sizes that are numbers (--dim NAME=V)",
    },
    "one thread": {
        "tasks": "independent steps run at the same time on several (threads=2 or more)",
    },
}
"""For symbolic sizes, or where one thread is asked for (not where a machine has one core only: a script runs there,
too): options that have no effect there, and why. Those of a back end are its own (`Backend.ignored`)."""
