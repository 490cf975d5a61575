"""`polyc.training`: forward and backward of a model in one graph, its parameters, and steps of an optimiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.from_source import compile_built
from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.messages import last_message
from polyc.graph_driver.gradients.reverse import add_gradients
from polyc.graph_driver.graph.ir import Graph, Tensor
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.options import CompileOptions, options_of
from polyc.graph_driver.running.model import Model
from polyc.graph_driver.training import saving
from polyc.graph_driver.training.losses import TARGET, add_loss
from polyc.graph_driver.training.optimisers import LossScaling, Optimiser
from polyc.graph_driver.training.prepare import BATCH, Prepared, prepare
from polyc.graph_driver.training.storage import Storage
from polyc.poly.dtypes import BY_NAME, f32
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    from polyc.graph_driver.execution.evicting_run import Evicted

PLANNED, AT_RUN_TIME = "planned", "at_run_time"  # how a memory limit is kept
LOSS_SCALE = "loss.scale"
GRADIENT = "gradient of "
STEPS, SCALE, RANDOM = "steps", "loss scale", "random"  # in files
WORDS = 2  # of 64 bits, each of the two numbers of PCG64


def training(
    model: str | Path | bytes | onnx.ModelProto,
    loss: Any,
    wrt: Sequence[str] | None = None,
    *,
    target: str = "cpu",
    target_input: str = TARGET,
    statistics: str = BATCH,
    scaling: LossScaling | None = None,
    seed: int = 0,
    recompute: str = PLANNED,
    **options: Any,
) -> Training:
    """A model ready to be trained: forward and backward are one graph, compiled as any other.

    Args:
        model: an ONNX model: a path, its bytes, or a `ModelProto`. Its weights are copied.
        loss: the name of a tensor of the model; `SoftmaxCrossEntropyLoss`, `MeanSquaredError`, `MeanAbsoluteError` or
            `BinaryCrossEntropyWithLogits` of the first output and a target; or an operator of the program that makes
            one number of the outputs and a target.
        wrt: the weights to train, by name; None: all of floats but scalars.
        target: what to compile for, as in `compile_model`.
        target_input: the name of the input that is the target.
        statistics: what batch norms normalise by: those of the `batch`, or the `running` ones.
        scaling: multiply the loss, for gradients of f16 (with `dtype="f16"`).
        seed: of the masks of dropouts.
        recompute: how `memory_limit` is kept: `planned` when compiling (one native program), or while a step runs
            (`at_run_time`, on a CPU: `Model.run_within`); gradients have the same bits.
        options: further options of `compile_model`: `threads`, `dims`, `shapes`, `dtype`, `memory_limit`, ...

    Raises:
        ArgumentError: there is no such weight, loss or option, or no limit that could be kept at run time.
        ModelError: the model is broken, or something between weights and loss has no derivative (the line names it).
    """
    prepared = prepare(model, wrt, statistics)
    # Offers of other layouts for every kernel of a step take long: ResNet-18's 47 s to compile, a tenth of its time.
    options.setdefault("layouts", "as_given")
    limit = _limit_at_run_time(recompute, options)
    return Training(prepared, loss, target_input, scaling, seed, options_of("polyc.training", target, options), limit)


def _limit_at_run_time(recompute: str, options: dict[str, Any]) -> int | None:
    """The limit that runs keep; the compiler gets none then."""
    if recompute not in (PLANNED, AT_RUN_TIME):
        raise ArgumentError(f"recompute is '{PLANNED}' or '{AT_RUN_TIME}', not {recompute!r}")
    if recompute == PLANNED:
        return None
    limit = options.pop("memory_limit", None)
    if type(limit) is not int or limit < 0:
        raise ArgumentError(f"recompute='{AT_RUN_TIME}' needs memory_limit, a number of bytes, not {limit!r}")
    return limit


@dataclass(frozen=True)
class Step:
    """A compiled step for inputs of certain shapes: `model` has `loss`, `gradients` by parameter, and `running`
    statistics, as outputs of these names; `fed` are its inputs that are no parameters."""

    model: Model
    loss: str
    gradients: Mapping[str, str]
    running: Mapping[str, str]
    fed: tuple[str, ...]


@dataclass(frozen=True)
class Built:
    """The graph of a step: its first `forward` nodes are the model and its loss; `loss`, and `gradients` by parameter,
    are results. `made_for`: by name of a backward node the forward node whose gradient it is a part of."""

    graph: Graph
    loss: str
    gradients: Mapping[str, str]
    forward: int
    made_for: Mapping[str, str]


class Training:
    """A model, its parameters and the state of its optimiser.

    Calls with inputs of further shapes compile a further step. Parameters (`parameters`, arrays by name) are changed in
    place; they may be written to between steps. `evicted` says what the last run did to keep a limit at run time.
    """

    evicted: Evicted | None

    def __init__(
        self, prepared: Prepared, loss: Any, target: str, scaling: LossScaling | None, seed: int,
        options: CompileOptions, run_limit: int | None = None,
    ) -> None:  # fmt: skip
        self.run_limit, self.evicted = run_limit, None
        self._prepared, self._loss, self._target, self._options = prepared, loss, target, options
        self.scaling = scaling
        self.random = np.random.default_rng(seed)
        self.weights = Storage(prepared.parameters)
        self.slopes = self._empty_state()
        self.buffers = {n: v.copy() for n, v in prepared.buffers.items()}
        self.state: dict[str, Storage] = {}
        self.steps = 0
        self._compiled: dict[tuple[tuple[str, tuple[int, ...]], ...], Step] = {}

    @property
    def parameters(self) -> Mapping[str, np.ndarray]:
        """The weights by name: views of the arrays that steps change."""
        return self.weights.views

    def compiled(self, inputs: Mapping[str, Any]) -> Step:
        """The step for inputs of these shapes, compiled at their first call. Raises as `training`."""
        key = tuple(sorted((n, np.shape(v)) for n, v in inputs.items() if n != self._target))
        if key not in self._compiled:
            self._compiled[key] = self._compile(dict(key))
        return self._compiled[key]

    def _built(self, shapes: Mapping[str, Sequence[int]]) -> Built:
        options = self._options
        proto = self._prepared.proto
        graph = import_model(proto, options.dims, {**shapes, **options.shapes}, False, options.bind, warn=False)
        loss = add_loss(graph, self._loss, self._target)
        builder, forward, made_for = Builder(graph, "loss"), len(graph.nodes), dict[str, str]()
        if self.scaling is not None:
            graph.tensors[LOSS_SCALE] = Tensor(LOSS_SCALE, f32, ())
            graph.inputs.append(LOSS_SCALE)
            seed = builder.op("CastLike", LOSS_SCALE, loss) if builder.dtype(loss) != f32 else LOSS_SCALE
            seed = builder.expand(seed, builder.shape(loss))
        else:
            seed = builder.constant(np.ones(builder.shape(loss), builder.dtype(loss).np))
        found = add_gradients(graph, {loss: seed}, list(self.parameters), made_for)
        gradients = {}
        for name, tensor in found.items():
            gradients[name] = _named(graph, tensor, GRADIENT + name)
        loss = _named(graph, loss, "loss") if loss in graph.inputs else loss
        done = last_message(graph)  # a result, so that no message that another rank waits for is left out
        graph.outputs = [loss, *gradients.values(), *self._prepared.running, *([done] if done else [])]
        return Built(graph, loss, gradients, forward, made_for)

    def _compile(self, shapes: Mapping[str, Sequence[int]]) -> Step:
        options = self._options
        platform = platform_of(options.target, options.threads)
        options.pipeline(platform)  # refuses passes that are not there
        options.refuse_ignored(platform)
        built = self._built(shapes)
        return self._step(compile_built(built.graph, platform, options), built)

    def _step(self, model: Any, built: Built) -> Step:
        """A step that `model` runs: a compiled one, or what is called as one and has its inputs."""
        own = {*self.parameters, *self.buffers}
        fed = tuple(n for n in model.inputs if n not in own)
        return Step(model, built.loss, built.gradients, self._prepared.running, fed)

    # ---- running -----------------------------------------------------------------------------

    def gradients(self, inputs: Mapping[str, Any]) -> tuple[float, dict[str, np.ndarray]]:
        """The loss and the gradient of each parameter for these inputs (and target); nothing is changed.

        With `scaling` gradients are those of the scaled loss. The arrays are those of every call.

        Raises:
            ArgumentError: inputs are missing, or do not fit.
        """
        loss, _ = self._run(inputs)
        return loss, dict(self.slopes.views)

    def step(self, inputs: Mapping[str, Any], optimiser: Optimiser) -> float:
        """One step of the optimiser on these inputs (and target); the loss before it.

        Raises:
            ArgumentError: inputs are missing or do not fit, or the optimiser is another than the state is of.
        """
        for kind in optimiser.kept:
            if kind not in self.state:
                self.state[kind] = self._empty_state()
        loss, running = self._run(inputs)
        scale = 1.0
        if self.scaling is not None:
            scale = 1.0 / self.scaling.factor
            finite = all(np.isfinite(flat).all() for flat in self.slopes.flat.values())
            self.scaling.after(finite)
            if not finite:
                return loss
        self.steps += 1
        for dtype, weights in self.weights.flat.items():
            state = {kind: self.state[kind].flat[dtype] for kind in optimiser.kept}
            optimiser.update(weights, self.slopes.flat[dtype], state, self.steps, scale)
        for name, value in running.items():
            self.buffers[name][...] = value
        return loss

    def _run(self, inputs: Mapping[str, Any]) -> tuple[float, dict[str, np.ndarray]]:
        """The loss, and new running statistics by the buffer that they replace; gradients go to `slopes`."""
        own = {*self.parameters, *self.buffers, *self._prepared.masks, LOSS_SCALE}
        if wrong := sorted(own & inputs.keys()):
            raise ArgumentError(f"'{wrong[0]}' is no input of a step: write to `parameters`")
        step = self.compiled(inputs)
        missing = [n for n in step.fed if n not in inputs and n not in own]
        if missing:
            raise ArgumentError(f"the step has no value for its input '{missing[0]}'")
        feeds = {**inputs, **self.parameters, **self.buffers}
        for name, ratio in self._prepared.masks.items():
            shape, dtype = step.model.inputs[name][1], step.model.inputs[name][0]
            feeds[name] = (self.random.random(shape) >= ratio).astype(BY_NAME[dtype].np) / (1 - ratio)
        if self.scaling is not None:
            feeds[LOSS_SCALE] = np.array(self.scaling.factor, np.float32)
        out = {tensor: self.slopes.views[name] for name, tensor in step.gradients.items()}
        if self.run_limit is None:
            made = step.model(feeds, out)
        else:
            made, self.evicted = step.model.run_within(feeds, self.run_limit, out=out)
        return float(made[step.loss].reshape(-1)[0]), {old: made[new] for new, old in step.running.items()}

    # ---- results -----------------------------------------------------------------------------

    def exported(self) -> onnx.ModelProto:
        """The model as it was given, with the parameters and running statistics of now."""
        return saving.exported(self._prepared, {**self.parameters, **self.buffers})

    def save(self, path: str | Path) -> None:
        """Write parameters, statistics, the optimiser's state and that of the masks' random numbers to a file of NumPy
        (`.npz`, no pickle): training goes on from it with equal bits. What was there stays until all is written.

        Raises:
            BuildError: it cannot be written.
        """
        saving.save(path, {**self._places(self.state), **self._numbers()})

    def load(self, path: str | Path) -> None:
        """Read what `save` wrote, for the same model.

        Raises:
            ModelError: the file is broken, or of another model; nothing is changed then.
        """
        found = saving.read(path)
        kinds = dict.fromkeys(n.split(" ")[1] for n in found if n.startswith("state "))
        state = {kind: self._empty_state() for kind in kinds}
        places = self._places(state)
        saving.check(path, found, {**places, **self._numbers()})
        for name, place in places.items():
            place[...] = found[name]
        self.state, self.steps = state, int(found[STEPS])
        if self.scaling is not None:
            self.scaling.factor, self.scaling.good = float(found[SCALE][0]), int(found[SCALE][1])
        if self._prepared.masks:
            _continue(self.random, found[RANDOM])

    def _empty_state(self) -> Storage:
        return Storage({n: np.zeros_like(v) for n, v in self.parameters.items()})

    def _places(self, state: Mapping[str, Storage]) -> dict[str, np.ndarray]:
        """All arrays that a file keeps, by their names there."""
        arrays = {f"parameter {n}": v for n, v in self.parameters.items()}
        arrays |= {f"buffer {n}": v for n, v in self.buffers.items()}
        return arrays | {f"state {kind} {n}": v for kind, s in state.items() for n, v in s.views.items()}

    def _numbers(self) -> dict[str, np.ndarray]:
        """The numbers that a file keeps."""
        numbers = {STEPS: np.array(self.steps, np.int64)}
        if self.scaling is not None:
            numbers[SCALE] = np.array([self.scaling.factor, self.scaling.good], np.float64)
        if self._prepared.masks:
            numbers[RANDOM] = _state_of(self.random)
        return numbers


def _named(graph: Graph, tensor: str, name: str) -> str:
    """A result of the graph of this name: also where the tensor is an input, a constant, or another result."""
    builder = Builder(graph, name)
    (made,) = builder.ops("Identity", [tensor], 1) if graph.constant(tensor) is None else [tensor]
    return made


def _state_of(random: np.random.Generator) -> np.ndarray:
    """The state of a generator (PCG64: two numbers of 128 bits, and half a word that may be left)."""
    found = random.bit_generator.state
    numbers = [found["state"]["state"], found["state"]["inc"]]
    words = [n >> 64 * k & (1 << 64) - 1 for n in numbers for k in range(WORDS)]
    return np.array([*words, found["has_uint32"], found["uinteger"]], np.uint64)


def _continue(random: np.random.Generator, words: np.ndarray) -> None:
    """Go on from such a state."""
    *rest, has, half = (int(w) for w in words)
    state, inc = (sum(w << 64 * k for k, w in enumerate(rest[at : at + WORDS])) for at in (0, WORDS))
    numbers = {"state": state, "inc": inc}
    now = random.bit_generator.state
    random.bit_generator.state = {**now, "state": numbers, "has_uint32": has, "uinteger": half}
