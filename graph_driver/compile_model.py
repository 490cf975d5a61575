"""`compile_model`: from an ONNX model to a `Model`, known or new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.options import FAST, FULL, PROGRESSIVE, CompileOptions, one_precision
from polyc.poly.hooks import resolve

if TYPE_CHECKING:
    import onnx

    from polyc.graph_driver.backends.protocol import Platform
    from polyc.graph_driver.graph.progress import Progress
    from polyc.graph_driver.importing.binding import Dim
    from polyc.graph_driver.planning.contiguous import Groups
    from polyc.graph_driver.running.model import Model
    from polyc.poly.target import GpuTarget, Target


def compile_model(
    source: str | Path | onnx.ModelProto | bytes,
    target: str | Target | GpuTarget = "cpu",
    threads: int | None = None,
    dims: Mapping[str, Dim] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fuse: bool = True,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    exact: bool = False,
    symbolic: bool | None = None,
    passes: Sequence[str] | None = None,
    disable: Sequence[str] = (),
    fast_math: bool = False,
    bind: Mapping[str, Any] | None = None,
    planner: str | None = None,
    tasks: bool = False,
    tuned: bool | None = None,
    dtype: str | None = None,
    keep_f32: Sequence[str] = (),
    contiguous: Groups = (),
    layouts: str = "auto",
    strict_annotations: bool = False,
    strict_shapes: bool = False,
    checks: bool | None = None,
    tier: str = "full",
    precision: str | None = None,
    narrow_only: Sequence[str] = (),
    max_error: float | None = None,
    data: Mapping[str, Any] | None = None,
    allow_downcast: bool = False,
    reproducible: bool = False,
    memory: str = "usual",
) -> Model:
    """Compile an ONNX model for this machine, or for a GPU.

    Sizes that nothing binds stay symbolic: one model runs all of them. Where that cannot be, and at sizes that a
    guard excludes, the model is compiled for the shapes of the call, and kept (`Model.specialisations()`).

    An option that would have no effect is refused: the tables are `polyc.graph_driver.options.IGNORED` and
    `Backend.ignored`.

    Args:
        source: a path, a `ModelProto`, or its bytes.
        target: `cpu`, `c` (through a C compiler), or a GPU: `cuda`, `opencl`, `sm_80`, ...
        threads: for parallel loops; None is all cores. Not on a GPU.
        dims: values of symbolic sizes by name (or as `INPUT.AXIS`); a range `(low, high)` keeps the size
            symbolic: the model is compiled once for all its values (`high` None: no end).
        shapes: concrete input shapes, which bind symbolic sizes too.
        fuse: join pointwise operators to their producers.
        memory_limit: bytes that the arena may take; with symbolic sizes at all of their values.
        progress: called as `progress(stage, done, total)`.
        exact: keep the rounding of each operator's definition (no Winograd convolutions, no normalisation in weights).
        symbolic: what happens to the sizes that nothing binds. None: they stay symbolic where that can be; True: they
            stay symbolic, else the model, or a call, is refused; False: they are the numbers of each call. On a GPU
            all sizes are numbers.
        passes: names of the graph passes to run, in order (`polyc.graph_driver.passes.manager.PASSES`).
        disable: passes to leave out.
        bind: values of inputs that are fixed now; they become constants and are inputs no longer.
        planner: of the arena, one of `memory.PLANNERS` (None: the cheapest that reaches the lower bound).
        tasks: let independent steps run at the same time on several threads, in memory of their own; the results
            are the same bits. For `cpu`.
        tuned: take schedules that `polyc tune` has found; None: if `POLYC_TUNED` is set in the environment. Not on
            a GPU.
        dtype: another name of `precision`.
        keep_f32: operators, nodes or their results that `precision` leaves in f32.
        contiguous: groups of tensors that lie one behind the other in the arena, in this order, each at a multiple
            of 64 bytes, all intact when the last is made (`model.plan.slots[name].place.offset`). Not on a GPU, and
            for sizes that are numbers.
        layouts: how images between kernels are stored: `auto` (as the cost model finds best), `as_given`, or as many as
            possible `channels_last` or `blocked` (blocks of channels as wide as a register tile). For CPUs.
        fast_math: allow algebraic rules that change rounding or treat NaN, infinities and -0 loosely.
        strict_annotations: refuse a file that declares shapes (of outputs, in `value_info`) which its own operators
            contradict; else there is an `AnnotationWarning` and a note in the report.
        strict_shapes: never compile at a call: refuse a model whose sizes cannot stay symbolic, and calls at sizes
            that a guard excludes.
        checks: whether indices (of Gather, ScatterND, ...) outside of what they choose from are a `BoundsError` of the
            call that names the node (None: unless `POLYC_CHECK=0`); without checks the nearest element counts.
        tier: `full`: the code is as fast as it gets before this returns. `fast`: the whole program soon, of kernels
            that are made with less care. `progressive`: a program that runs on NumPy at once; another process makes
            the full one, which takes its place between two calls (`Model.wait`). For CPUs.
        precision: what an f32 model is computed in; its inputs and outputs stay f32. `f16` or `bf16`
            (`passes/precision.py`); `int8`: products and convolutions with constant weights as integer products
            (`passes/row_codes.py`); `auto`: f16 or bf16 where the error allows, which is measured; `f32`: as it stands.
        narrow_only: operators, nodes or their results that alone become narrow.
        max_error: of `auto` (None: 0.01) and `int8` (None: any), the largest relative error of an output.
        data: what the error is measured on, for each input an array of samples (None: random operands).
        allow_downcast: compute f64 in f32 on a target without f64.
        reproducible: the same bits on every number of threads, size of batch, CPU and back end: every sum is added up
            in the order of its operator's program, and no pass rounds elsewhere for one machine's sake
            (docs/reproducible.md).
        memory: `usual`, or `minimal`: the arena as small as it gets, whatever that costs. What a kernel has read for
            the last time is written over by what it makes, element by element (docs/memory.md). For `cpu`, and for
            sizes that are numbers.

    Raises:
        ModelError: the file is broken, sizes are missing (with `strict_shapes`), or the memory limit is too small.
        ArgumentError: there is no such pass or planner.
        OptionError: an option has no effect for this target or these sizes.
        BuildError: the target is unknown or code generation failed.
    """
    return compile_with(source, CompileOptions(
        target, threads, dims or {}, shapes or {}, fuse, memory_limit, progress, exact, symbolic, passes, disable,
        fast_math, bind or {}, planner, tasks, tuned, one_precision(precision, dtype), keep_f32, contiguous, layouts,
        strict_annotations, strict_shapes, checks, tier, narrow_only, max_error, data or {}, allow_downcast,
        reproducible, memory,
    ))  # fmt: skip


def compile_with(source: str | Path | onnx.ModelProto | bytes, options: CompileOptions) -> Model:
    """`compile_model` with its options as one value. Raises as it does."""
    platform = platform_of(options.target, options.threads)
    if options.tier == PROGRESSIVE:
        return _progressively(source, platform, options)
    known = resolve("known_model")(source, platform, options)
    found: Model | None = known.find(_anew, compile_with)
    if found is not None:
        return found
    with known.watching():
        made = _anew(source, options)
    known.keep(made)
    return made


def _anew(source: str | Path | onnx.ModelProto | bytes, options: CompileOptions) -> Model:
    from polyc.graph_driver.compiling.from_source import compile_anew  # a known model needs none of that

    platform = platform_of(options.target, options.threads)
    return compile_anew(source, platform.hurried() if options.tier == FAST else platform, options, compile_with)


def _progressively(source: str | Path | onnx.ModelProto | bytes, platform: Platform, options: CompileOptions) -> Model:
    """The full model, if it is known; else one with a first program, which is not kept."""
    options.refuse_ignored(platform)
    known = resolve("known_model")(source, platform, replace(options, tier=FULL))
    found: Model | None = known.find(_anew, compile_with)
    if found is not None:
        return found
    from polyc.graph_driver.tiers.start import compile_progressively

    return compile_progressively(source, platform, options, compile_with)
