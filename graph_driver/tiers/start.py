"""Compiling for the tier `progressive`: two programs of one source."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from polyc.emit import targets
from polyc.graph_driver.compiling.from_source import Compiling, compile_anew, compile_per_call
from polyc.graph_driver.graph.external import any_registered
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.importing.source import Source
from polyc.graph_driver.operators.registry import others
from polyc.graph_driver.options import FULL
from polyc.graph_driver.running.model import Model
from polyc.graph_driver.running.per_call import PerCall
from polyc.graph_driver.tiers.background import Background
from polyc.graph_driver.tiers.progressive import Progressive
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    import onnx

    from polyc.graph_driver.backends.protocol import Platform
    from polyc.graph_driver.options import CompileOptions


def compile_progressively(
    source: str | Path | onnx.ModelProto | bytes, platform: Platform, options: CompileOptions, again: Compiling
) -> Model:
    """A model that answers at once and becomes the full one; where there is no first program, the full one, and the
    report says why. `again` compiles for the shapes of calls, and in full. Raises as `compile_model` does."""
    options.refuse_ignored(platform)
    why = _obstacle(platform, options)
    if why:
        return _full(source, options, again, why)
    kept = Source(source)
    try:
        background = Background(kept.again(), options)
    except (OSError, TypeError, AttributeError, pickle.PicklingError) as error:
        return _full(source, options, again, f"no process can be started for the full one: {one_line(error)}")
    try:
        first = compile_anew(source, platform.hurried(), options, again)
    except PolycError as error:
        background.stop()
        return _full(source, options, again, one_line(error))
    except BaseException:
        background.stop()
        raise
    if isinstance(first.running, PerCall):  # each of its models has a first program of its own
        background.stop()
        return first
    running = Progressive(first, background, _Means(kept, platform, options, again, first))
    return Model(first.name, running, first.report())


def _full(source: str | Path | onnx.ModelProto | bytes, options: CompileOptions, again: Compiling, why: str) -> Model:
    model = again(source, replace(options, tier=FULL))
    model.report().tiers.append(f"full from the start: {why}")
    return model


def _obstacle(platform: Platform, options: CompileOptions) -> str:
    """Why there is to be no first program; empty where there may be one."""
    if options.memory_limit is not None:
        return "NumPy does not keep a memory limit"
    if options.contiguous:
        return "the first program has no contiguous tensors"
    if any_registered() or others():
        return "registered functions and operators are those of this process"
    if targets.obstacle(platform.machine) is not None:
        return "the code is for another machine"
    return ""


@dataclass(frozen=True)
class _Means:
    """How the full program of a source is come by (`polyc.graph_driver.tiers.progressive.Means`)."""

    source: Source
    platform: Platform
    options: CompileOptions
    again: Compiling
    first: Model

    def accept(self, model: Model) -> Model:
        """The model, if the file has not changed meanwhile; other sizes are compiled for as they were. Raises
        `ModelError`."""
        self.source.again()
        if model.running.formulas is not None:
            model.running.specialiser = self.first.running.specialiser
        model.running.compiled_by(lambda: self.here().running.built)
        return model

    def of_numbers(self, why: str) -> Model:
        """A model for the shapes of each call."""
        return compile_per_call(self.source, self.platform, self.options, self.again, why)

    def here(self) -> Model:
        """Compiled in this process. Raises as `compile_model` does."""
        return self.again(self.source.again(), replace(self.options, tier=FULL))
