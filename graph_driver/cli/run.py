"""`polyc run`: inputs, a run, outputs, and the check against a reference."""

from __future__ import annotations

import argparse
import json
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.artifacts.package import is_package, load
from polyc.graph_driver.checking.check import Difference, compare, random_input, reference_outputs
from polyc.graph_driver.cli.compile import compile_from, options_of, refuse_compiled
from polyc.graph_driver.cli.inspect import UsageError, parse_bindings, parse_dims
from polyc.graph_driver.cli.sizes import with_sizes
from polyc.graph_driver.compiling.sensible import chosen_text
from polyc.graph_driver.execution.watching import Seen, Watch
from polyc.graph_driver.planning.index_limits import index_limits
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError, BuildError, ModelError


def read_inputs(pairs: list[str]) -> dict[str, np.ndarray]:
    """`["x=x.npy"]` as arrays. Raises `UsageError`, or `ArgumentError` for an unreadable file."""
    inputs: dict[str, np.ndarray] = {}
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not equals or not name or not file:
            raise UsageError(f"expected --input NAME=FILE.npy, got '{pair}'")
        if name in inputs:
            raise UsageError(f"input '{name}' is given twice")
        try:
            value = np.load(file, allow_pickle=False)
        except OSError as error:
            raise ArgumentError(f"cannot read {file}: {error.strerror or error}") from None
        except (ValueError, EOFError, MemoryError):
            raise ArgumentError(f"cannot read {file}: not an array in .npy format") from None
        if not isinstance(value, np.ndarray):
            raise ArgumentError(f"cannot read {file}: expected one array (.npy), found an archive")
        inputs[name] = value
    return inputs


def run_command(arguments: argparse.Namespace) -> int:
    """Run once; exit code 1 when `--check` finds too large an error.

    Raises:
        UsageError: options that do not go together, or a tolerance that is no bound.
        ArgumentError: an input that is no tensor of numbers is not given.
    """
    inputs = read_inputs(arguments.input)
    packaged = is_package(arguments.model)
    if arguments.differential:
        return _differential(arguments, inputs, packaged)
    if arguments.tolerance is not None and not 0 <= arguments.tolerance < float("inf"):
        raise UsageError(f"--tolerance is a number of at least 0, not {arguments.tolerance:g}")
    if not arguments.check and (arguments.reference is not None or arguments.tolerance is not None):
        raise UsageError("--reference and --tolerance need --check")
    if arguments.check and packaged and arguments.reference is None:
        raise UsageError("--check of a compiled directory needs --reference MODEL.onnx")
    _check_mode(arguments)
    model = _model(arguments, inputs, packaged)
    sizes = {n: v for n, v in parse_dims(arguments.dim).items() if isinstance(v, int)} if packaged else {}
    given = {n: v.shape for n, v in inputs.items()}
    if chosen := model.chosen_sizes(given, sizes):
        model.report().sizes.append(chosen_text(chosen))
    for name, (dtype, shape) in model.inputs_for(given, sizes).items():
        if name not in inputs and not dtype:
            raise ArgumentError(f"input '{name}' is no tensor of numbers: give it with --input")
        if name not in inputs:
            inputs[name] = random_input(name, dtype, shape, arguments.seed, model.plan.index_limits.get(name))
    start = time.perf_counter()
    model.executor()
    loaded = time.perf_counter()
    watch = Watch(keep=False) if arguments.mode == "mixed" else None
    evicted = None
    if arguments.mode == "evicting":
        outputs, evicted = model.run_within(inputs, arguments.held_at_most)
    elif arguments.stop_at is None:
        outputs = model.run(inputs, arguments.mode, arguments.eager, watch)
    else:
        outputs = model.run_until(inputs, arguments.stop_at, arguments.tensor)
    seconds = time.perf_counter() - loaded
    if arguments.poison:
        _check_poisoned(model, inputs, outputs)
    tensors = model.inspect(inputs, arguments.tensor) if arguments.tensor and arguments.stop_at is None else {}
    if arguments.save is not None:
        _save(arguments.save, outputs)
    if arguments.profile is not None:
        from polyc.graph_driver.bench.profile import write_profile

        write_profile(model, inputs, arguments.profile)
    work = None
    if arguments.count_work:
        from polyc.graph_driver.explaining.work_done import work_done

        work = work_done(model, inputs)
    differences: list[Difference] = []
    limits: dict[str, float] = {}
    reference = ""
    if arguments.check:
        source = arguments.reference or arguments.model
        everything = inputs | _bound(source, arguments.bind)
        expected, reference = reference_outputs(source, everything)
        differences = compare(outputs, expected)
        limits = _limits(source, everything, expected, differences, _tolerance(arguments))
    good = all(d.relative <= limits[d.name] for d in differences)
    if arguments.json:
        data = _data(model, outputs, differences, limits, reference, good)
        if watch is not None:
            data["watched"] = [s.data() for s in watch.seen]
        if evicted is not None:
            data["evicted"] = asdict(evicted)
        if work is not None:
            data["work"] = asdict(work)
        print(json.dumps(data | {"seconds": {"link": loaded - start, "run": seconds}}, indent=2, sort_keys=True))
    else:
        seen = [] if watch is None else watch.seen
        print(_text(model, outputs | tensors, seconds, seen, differences, limits, reference))
        if evicted is not None:
            print(f"memory   {evicted}")
        if work is not None:
            print(work)
    return 0 if good else 1


def _tolerance(arguments: argparse.Namespace) -> float:
    return 1e-4 if arguments.tolerance is None else float(arguments.tolerance)


def _check_mode(arguments: argparse.Namespace) -> None:
    """Raises `UsageError` for options of one mode in another."""
    if (arguments.mode == "evicting") != (arguments.held_at_most is not None):
        raise UsageError("--mode evicting and --memory-limit go together (to plan within a limit: polyc compile)")
    if arguments.mode == "evicting" and arguments.tensor:
        raise UsageError("--tensor does not go with --mode evicting: what a tensor holds may be gone")
    if arguments.tensor and arguments.mode == "graph":
        raise UsageError("--tensor needs --mode eager or --mode mixed")
    if arguments.stop_at is not None:
        if arguments.mode != "eager":
            raise UsageError("--stop-at needs --mode eager")
        for name in ("check", "poison", "profile"):
            if getattr(arguments, name):
                raise UsageError(f"--{name} does not go with --stop-at: the run does not come to its outputs")
    if arguments.eager and arguments.mode != "mixed":
        raise UsageError("--eager needs --mode mixed")
    if arguments.mode == "mixed" and not arguments.eager:
        raise UsageError("--mode mixed needs --eager PATTERN: which steps run one at a time")


def _check_poisoned(model: Model, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, Any]) -> None:
    """Raises `ModelError` when memory that nothing lives in has any influence."""
    from polyc.graph_driver.checking.poison import differs, poisoned_run

    wrong = differs(poisoned_run(model, inputs), outputs)
    if wrong:
        raise ModelError(f"output '{wrong[0]}' depends on memory that nothing lives in: please report this model")


def _differential(arguments: argparse.Namespace, inputs: dict[str, np.ndarray], packaged: bool) -> int:
    """Exit code 1 when a pass changes the outputs by more than the tolerance."""
    from polyc.graph_driver.backends.registry import platform_of
    from polyc.graph_driver.checking.differential import compiled_outputs, differential
    from polyc.graph_driver.compiling.from_source import import_with

    for name, absent in NOT_WITH_DIFFERENTIAL.items():
        if vars(arguments)[name] != absent:
            raise UsageError(
                f"--{name.replace('_', '-')} does not go with --differential, which only compares the outputs"
            )
    if packaged:
        raise UsageError("--differential needs the ONNX file: a compiled directory has no passes to run")
    options = options_of(arguments, {name: value.shape for name, value in inputs.items()}, symbolic=False)
    options, _ = with_sizes(arguments.model, options)
    platform = platform_of(options.target, options.threads)
    graph = import_with(arguments.model, platform, options)
    limits = index_limits(graph)
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if name not in inputs and (tensor.dtype is None or tensor.shape is None):
            raise ArgumentError(f"input '{name}' is no tensor of numbers: give it with --input")
        if name not in inputs and tensor.dtype is not None:
            inputs[name] = random_input(name, tensor.dtype.name, tensor.shape or (), arguments.seed, limits.get(name))
    evaluate = compiled_outputs(platform, options, inputs)
    verdict = differential(graph, options.pipeline(platform), platform.machine, evaluate, _tolerance(arguments))
    print(json.dumps(asdict(verdict), indent=2) if arguments.json else verdict)
    return 0 if verdict.guilty is None else 1


NOT_WITH_DIFFERENTIAL: Mapping[str, Any] = {
    "mode": "graph", "eager": [], "tensor": [], "save": None, "check": False, "reference": None, "poison": False,
    "profile": None, "contiguous": [], "stop_at": None, "held_at_most": None, "count_work": False,
}  # fmt: skip
"""Options of a run that `--differential` does not do, and what they are when not given."""


def _bound(source: Path, pairs: list[str]) -> dict[str, np.ndarray]:
    """The inputs that are constants of the compiled model and inputs of the reference."""
    import onnx

    from polyc.graph_driver.importing.bound_inputs import bound_values

    return bound_values(onnx.load(source, load_external_data=False).graph, parse_bindings(pairs)) if pairs else {}


def _limits(
    source: Path, inputs: Mapping[str, np.ndarray], expected: Mapping[str, Any], differences: list[Difference],
    tolerance: float,
) -> dict[str, float]:  # fmt: skip
    """How large the relative error of each output may be: of a quantised model, what one code more or less does."""
    from polyc.graph_driver.checking.quantised_noise import allowances, quantises

    limits = {d.name: tolerance for d in differences}
    if any(d.relative > tolerance for d in differences) and quantises(source):
        limits |= {name: max(tolerance, a) for name, a in allowances(source, inputs, expected).items()}
    return limits


def _model(arguments: argparse.Namespace, inputs: Mapping[str, np.ndarray], packaged: bool) -> Model:
    if packaged:
        refuse_compiled(arguments, arguments.model, sizes=True)
        return load(arguments.model)
    if Path(arguments.model).is_dir():
        raise BuildError(f"{arguments.model} is neither an ONNX file nor a folder made by polyc compile")
    return compile_from(arguments, {name: value.shape for name, value in inputs.items()}, symbolic=False)


def _save(path: Path, outputs: Mapping[str, Any]) -> None:
    plain = {n: v for n, v in outputs.items() if isinstance(v, (np.ndarray, np.generic))}
    if len(plain) != len(outputs):
        raise ModelError("--save: an output is not a tensor")
    try:
        with zipfile.ZipFile(path, "w") as archive:  # np.savez cannot write an array called "file"
            for name, value in plain.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
    except OSError as error:
        raise BuildError(f"cannot write {path}: {error.strerror}") from None


def _describe(value: Any) -> dict[str, Any]:
    if not isinstance(value, (np.ndarray, np.generic)):
        return {"type": type(value).__name__}
    array = np.asarray(value)
    out: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind not in "OSU":
        x = array.astype(np.float64)
        out |= {"min": float(x.min()), "max": float(x.max()), "mean": float(x.mean())}
    return out


def _data(
    model: Model,
    outputs: Mapping[str, Any],
    differences: list[Difference],
    limits: Mapping[str, float],
    reference: str,
    good: bool,
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "outputs": {n: _describe(v) for n, v in outputs.items()},
        "report": model.report().to_dict(),
    }
    if reference:
        data["check"] = {
            "reference": reference,
            "ok": good,
            "outputs": {
                d.name: {
                    "error": d.error,
                    "scale": d.scale,
                    "relative": d.relative,
                    "limit": limits[d.name],
                    "constant": d.constant,
                }
                for d in differences
            },
        }
    return data


def _text(
    model: Model, values: Mapping[str, Any], seconds: float, seen: Sequence[Seen], differences: list[Difference],
    limits: Mapping[str, float], reference: str,
) -> str:  # fmt: skip
    lines = [str(model.report()), f"run      {1e3 * seconds:.2f} ms", *(f"watched  {s}" for s in seen)]
    for name, value in values.items():
        d = _describe(value)
        numbers = ", ".join(f"{k} {d[k]:.6g}" for k in ("min", "max", "mean") if k in d)
        lines.append(f"output   {name}: {d.get('dtype', d.get('type'))}{d.get('shape', '')} {numbers}")
    for diff in differences:
        verdict = "ok" if diff.relative <= limits[diff.name] else "TOO LARGE"
        little = "; the output is constant, which checks little" if diff.constant else ""
        lines.append(
            f"check    {diff.name}: largest error {diff.error:.3g}, {diff.relative:.2g} of the output's scale "
            f"{diff.scale:.4g}: {verdict} (limit {limits[diff.name]:.2g}, {reference}){little}"
        )
    return "\n".join(lines)
