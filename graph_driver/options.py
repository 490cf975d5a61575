"""How a model is compiled: what `compile_model`, the commands and C sources hand on as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from polyc.graph_driver import memory
from polyc.graph_driver.layouts.formats import LAYOUTS
from polyc.graph_driver.passes import manager
from polyc.poly.errors import ArgumentError, OptionError
from polyc.poly.target import GpuTarget, Target

if TYPE_CHECKING:
    from polyc.graph_driver.graph.progress import Progress
    from polyc.graph_driver.importing.binding import Dim
    from polyc.graph_driver.passes.manager import Pass
    from polyc.graph_driver.planning.contiguous import Groups
    from polyc.graph_driver.worker.platforms import Platform


class NeedsNumbers(OptionError):
    """An option that would have no effect for symbolic sizes."""


@dataclass(frozen=True)
class CompileOptions:
    """The options of `polyc.graph_driver.compile_model.compile_model`, by the same names and with the same meaning.

    Raises:
        ArgumentError: there is no such planner, or no such choice of layouts.
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
    dtype: str | None = None
    keep_f32: Sequence[str] = ()
    contiguous: Groups = ()
    layouts: str = "auto"
    strict_annotations: bool = False
    strict_shapes: bool = False
    checks: bool | None = None

    def __post_init__(self) -> None:
        for name in ("dims", "shapes", "bind"):
            if not isinstance(getattr(self, name), Mapping):
                raise ArgumentError(f"{name} is a dict by name, not {getattr(self, name)!r:.80}")
        limit = self.memory_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise ArgumentError(f"the memory limit is a number of bytes, not {limit!r:.80}")
        if self.planner is not None and self.planner not in memory.PLANNERS:
            raise ArgumentError(f"there is no planner '{self.planner}'; planners are {', '.join(memory.PLANNERS)}")
        if self.layouts not in LAYOUTS:
            raise ArgumentError(f"there are no layouts '{self.layouts}'; choices are {', '.join(LAYOUTS)}")

    def pipeline(self, platform: Platform) -> tuple[Pass, ...]:
        """The graph passes in the order in which they run.

        Raises:
            ArgumentError: there is no such pass, or one that is asked for by name is not for this platform.
        """
        return manager.select(
            self.passes, self.disable, self.fast_math, self.exact, self.dtype, self.keep_f32, platform.kind
        )

    def for_bodies(self) -> CompileOptions:
        """Those for the bodies of control flow, whose arenas are their own."""
        return replace(self, memory_limit=None, contiguous=())

    def refuse_ignored(self, platform: Platform, symbolic: bool = False) -> None:
        """Refuse what would have no effect on this platform, on a model with `symbolic` sizes, or beside the others.

        Raises:
            OptionError: one line that names the option and says why.
        """
        given = vars(self)
        if self.keep_f32 and self.dtype is None:
            raise OptionError("keep_f32 has no effect without dtype: the model is computed as it stands")
        if self.fast_math and self.passes is not None:
            raise OptionError("fast_math has no effect with passes, which names all that run: add 'fast-math' there")
        beside = (["symbolic"] if symbolic else []) + (["one thread"] if self.threads == 1 else [])
        for where in (platform.kind, *beside):
            for name, why in IGNORED.get(where, {}).items():
                if given[name] not in NOT_GIVEN[name]:
                    kind = NeedsNumbers if where == "symbolic" else OptionError
                    raise kind(f"{name} has no effect for {_named(where, platform)}: {why}")


NOT_GIVEN: Mapping[str, tuple[Any, ...]] = {
    "layouts": ("auto", "as_given"), "threads": (None, 1), "tasks": (False,), "tuned": (None, False),
    "contiguous": ((), []),
}  # fmt: skip
"""Values that say that an option is not asked for."""

IGNORED: Mapping[str, Mapping[str, str]] = {
    "c": {"tasks": "kernels from a C compiler share out their own loops"},
    "c99": {
        "threads": "they have one thread",
        "tasks": "they have one thread",
        "tuned": "schedules were tuned for this machine, C sources are for any",
        "contiguous": "their arena is their own",
    },
    "gpu": {
        "threads": "they are those of a CPU",
        "tasks": "they are threads of a CPU",
        "tuned": "schedules are tuned for CPUs",
        "contiguous": "contiguous tensors are for the arena of a CPU",
        "layouts": "its kernels read images as the model has them",
    },
    "symbolic": {
        "contiguous": "contiguous tensors need sizes that are numbers (--dim NAME=V)",
        "layouts": "blocks of channels need sizes that are numbers (--dim NAME=V)",
    },
    "one thread": {
        "tasks": "independent steps run at the same time on several (threads=2 or more)",
    },
}
"""By back end, for symbolic sizes, or where one thread is asked for (not where a machine has one core only: a script
runs there too): options that have no effect there, and why."""


def _named(where: str, platform: Platform) -> str:
    if where in ("symbolic", "one thread"):
        return "symbolic sizes" if where == "symbolic" else where
    return "C sources" if where == "c99" else f"target {platform.name}"
