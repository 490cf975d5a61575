"""`polyc bench`: models timed beside ONNX Runtime and OpenVINO, and where polyc's time goes."""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.bench import peers
from polyc.graph_driver.bench.compare import measure
from polyc.graph_driver.bench.profile import profile
from polyc.graph_driver.checking.check import random_input
from polyc.graph_driver.cli.compile import compile_from
from polyc.graph_driver.cli.inspect import UsageError
from polyc.graph_driver.cli.run import read_inputs
from polyc.graph_driver.running.model import Model
from polyc.graph_driver.worker.apart import begin
from polyc.poly.errors import ArgumentError, BuildError, PolycError
from polyc.poly.words import counted, first_line

SLOWEST = 8  # steps of each model that are listed
PLAIN = (str, int, float, bool, type(None))
"""Types of options that go to a worker as they are."""
SHARES = ("GFLOP/s", "% of peak", "GB/s", "% of memory bandwidth")


def bench_command(arguments: argparse.Namespace) -> int:
    """Time each model, by default on one thread; print tables, and write `--json`.

    Raises:
        UsageError: no rounds.
        ArgumentError: an unknown peer or input.
    """
    if arguments.rounds < 1:
        raise UsageError("--rounds must be at least 1")
    given = read_inputs(arguments.input)
    threads = arguments.threads or 1
    arguments.threads = threads
    if arguments.dask is not None:
        rows, rivals = _on_farm(arguments)
    else:
        rivals = peers.chosen(arguments.against)
        rows = [row_of(arguments, path, given) for path in arguments.model]
    if arguments.json is not None:
        _write(arguments.json, rows)
    _print(rows, rivals, threads, arguments.rounds)
    return 0


def row_of(arguments: argparse.Namespace, path: Path, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The figures of one model, compiled and timed here. Raises `PolycError`."""
    rivals, threads = peers.chosen(arguments.against), arguments.threads
    arguments_of = argparse.Namespace(**{**vars(arguments), "model": path, "json": False})
    compiled = compile_from(arguments_of, {n: v.shape for n, v in given.items()}, symbolic=False)
    inputs = _inputs(compiled, given, arguments.seed)
    row = measure(compiled, str(path), inputs, rivals, arguments.rounds, threads)
    best = _best_of_each(compiled, inputs)
    energy = {"energy": _energy(compiled, inputs, best)} if arguments.energy else {}
    return {
        "model": path.name,
        "threads": threads,
        **row,
        **energy,
        "steps": _slowest(best, arguments.kernels),
        "sizes": list(compiled.report().sizes),
    }


def _on_farm(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows by workers of a Dask cluster, and the peers that all of them have.

    Raises:
        UsageError: an option that names files here. BuildError: a model could not be timed.
    """
    from polyc.emit import targets
    from polyc.graph_driver.farm.opening import farm_at
    from polyc.graph_driver.farm.rows import rows_on
    from polyc.graph_driver.graph.progress import progress_bar

    for name in ("input", "register"):
        if vars(arguments)[name]:
            raise UsageError(f"--{name} names a file of this machine: workers of --dask do not have it")
    try:
        wanted = [_asked(arguments, path) for path in arguments.model]
    except OSError as error:
        raise BuildError(f"cannot read {error.filename}: {error.strerror}") from None

    def failed(k: int, why: str) -> dict[str, Any]:
        return {"error": why}

    with farm_at(arguments.dask) as farm, progress_bar() as progress:
        count = iter(range(1, len(wanted) + 1))

        def seen(_: int, row: dict[str, Any]) -> None:
            if progress is not None:
                progress("models", next(count), len(wanted))

        target = targets.get(arguments.target)
        rows = rows_on(farm, "polyc.graph_driver.cli.bench", wanted, target, arguments.threads, failed, seen)
    for path, row in zip(arguments.model, rows, strict=True):
        if "error" in row:
            raise BuildError(f"{path}: {row['error']}")
    everywhere = set.intersection(*(set(row["ms"]) for row in rows)) - {"polyc"}
    return rows, [p for p in rows[0]["ms"] if p in everywhere]


def _asked(arguments: argparse.Namespace, model: Path) -> dict[str, Any]:
    """What a worker needs for the row of a model (`main`): the file itself, and all options."""
    options = {k: v for k, v in vars(arguments).items() if isinstance(v, PLAIN) or k in ("dim", "bind")}
    return {"name": model.name, "file": base64.b64encode(whole_file(model)).decode(), "options": options}


def whole_file(model: Path) -> bytes:
    """A model as one file: what it has outside is put in.

    Raises:
        BuildError: its data is missing, or too much for one file.
        OSError: it cannot be read.
    """
    import onnx

    raw = model.read_bytes()
    try:
        proto = onnx.load_model_from_string(raw)
    except Exception:  # protobuf's own
        return raw  # what it is instead, or what is wrong with it, the worker says
    if all(t.data_location != onnx.TensorProto.EXTERNAL for t in proto.graph.initializer):
        return raw
    try:
        onnx.load_external_data_for_model(proto, str(model.parent))
        return bytes(proto.SerializeToString())
    except Exception as error:  # of files, or protobuf's own: there is a most that a message holds
        raise BuildError(f"{model}: its external data cannot be sent to workers: {first_line(error)}") from None


def _inputs(model: Model, given: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The inputs that are given, and random ones for the rest."""
    unknown = sorted(set(given) - set(model.inputs))
    if unknown:
        raise ArgumentError(f"the model has no input '{unknown[0]}' (it has {', '.join(model.inputs)})")
    out = dict(given)
    for name, (dtype, shape) in model.inputs.items():
        if name not in out and not dtype:
            raise ArgumentError(f"input '{name}' is no tensor of numbers: give it with --input")
        if name not in out:
            out[name] = random_input(name, dtype, shape, seed, model.plan.index_limits.get(name))
    return out


def _energy(model: Model, inputs: Mapping[str, np.ndarray], best: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Joules of a run, and a line about them."""
    from polyc.graph_driver.bench.energy import energy_of

    found = energy_of(lambda: model(dict(inputs)), {k: e["args"] for k, e in best.items()})
    return {**found.data(), "said": str(found)}


def _best_of_each(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[int, dict[str, Any]]:
    """Each step, by its number, with the best of some runs."""
    best: dict[int, dict[str, Any]] = {}
    for event in profile(model, inputs)["traceEvents"]:
        step = event["args"]["step"]
        if step not in best or event["dur"] < best[step]["dur"]:
            best[step] = event
    return best


def _slowest(best: Mapping[int, Mapping[str, Any]], every: bool) -> list[dict[str, Any]]:
    """The steps that take longest (or all), each with its shares of what the machine can do."""
    slow = sorted(best.values(), key=lambda e: -float(e["dur"]))[: None if every else SLOWEST]
    return [
        {"step": _label(e), "microseconds": e["dur"], **{k: e["args"][k] for k in SHARES if k in e["args"]}}
        for e in slow
    ]


def _label(event: Mapping[str, Any]) -> str:
    """What a step computes and the name of its first node."""
    nodes = event["args"]["nodes"]
    return f"{event['name']} {nodes[0]}" if nodes else str(event["name"])


def _print(rows: Sequence[Mapping[str, Any]], rivals: Sequence[str], threads: int, rounds: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    caption = f"minimum of {rounds} interleaved rounds, {counted(threads, 'thread')}; ratio = best peer / polyc"
    table = Table("model", "polyc ms", *(f"{p} ms" for p in rivals), "ratio", "difference", caption=caption)
    for r in rows:
        times = [f"{r['ms'][who][0]:.3f}" for who in ("polyc", *rivals)]
        ratio = "" if math.isnan(r["ratio"]) else f"{r['ratio']:.2f}"
        table.add_row(r["model"], *times, ratio, f"{r['difference']:.1e}" if rivals else "")
    console.print(table)
    spread = Table("model", "", "median ms", "p99 ms", "runs a second", title="latency and throughput")
    for r in rows:
        for k, who in enumerate(("polyc", *rivals)):
            figures = f"{r['ms'][who][1]:.3f}", f"{r['p99_ms'][who]:.3f}", f"{r['runs_per_second'][who]:.4g}"
            spread.add_row("" if k else r["model"], who, *figures)
    console.print(spread)
    for r in rows:
        if "energy" in r:
            console.print(f"energy   {r['model']}: {r['energy']['said']}", markup=False, soft_wrap=True)
        for line in r["sizes"]:
            console.print(f"sizes    {r['model']}: {line}", markup=False)
        steps = Table("steps, the slowest first", "µs", *SHARES, title=r["model"])
        for s in r["steps"]:
            steps.add_row(s["step"], f"{s['microseconds']:.1f}", *(str(s.get(k, "")) for k in SHARES))
        console.print(steps)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as JSON (`null` for a ratio without peers)."""
    plain = [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in r.items()} for r in rows]
    try:
        path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BuildError(f"cannot write {path}: {error.strerror}") from None


def main() -> None:
    """In a process of its own on a worker of a farm: a line of JSON in, the row of one model out."""
    from polyc.graph_driver import wiring

    line, out = begin()
    wiring.connect()
    data = json.loads(line)
    with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
        path = Path(folder) / Path(data["name"]).name
        path.write_bytes(base64.b64decode(data["file"]))
        try:
            row = row_of(argparse.Namespace(**data["options"]), path, {})
        except PolycError as error:
            row = {"error": first_line(error)}
    with os.fdopen(out, "w") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
