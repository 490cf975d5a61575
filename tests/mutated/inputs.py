"""The five kinds of input: valid ones in a folder, and the damaged one of a seed as something to run."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mutated import commands, texts

OPERATORS = ("matmul", "matmul_bias_relu", "transpose", "chain", "softmax", "jacobi")


@dataclass(frozen=True)
class Trial:
    """What was done to the input, and the command that reads it: it gives an exit code."""

    damage: str
    run: Callable[[], int]


@dataclass(frozen=True)
class Kind:
    """`prepare` puts valid inputs into a folder, once; `deal` makes the trial of a seed in a folder of its own."""

    name: str
    prepare: Callable[[Path], None]
    deal: Callable[[Path, Path, int], Trial]


def _command(*argv: object) -> int:
    from polyc.graph_driver import cli

    try:
        return cli.main([str(a) for a in argv])
    except SystemExit as stop:
        return int(stop.code or 0)


# ---- models and compiled directories -------------------------------------------------------------


def model_sources() -> list[onnx.ModelProto]:
    """Small models with all that a file can have: host steps, control flow, symbolic sizes, functions."""
    from hostile_models import contributed, defined_in_functions, looping, of_every_type
    from symbolic_models import attention, perceptron
    from tiny_models import SOURCES

    made = (*SOURCES, looping, perceptron, attention, contributed, defined_in_functions, of_every_type)
    return [make() for make in made]


def prepare_models(folder: Path) -> None:
    """The sources as files."""
    for k, model in enumerate(model_sources()):
        (folder / f"source{k}.onnx").write_bytes(model.SerializeToString())


def deal_model(valid: Path, folder: Path, seed: int) -> Trial:
    """A damaged model file, run or (one in five) inspected."""
    from mutators import mutate

    sources = sorted(valid.glob("source*.onnx"))
    damage, data = mutate(sources[seed % len(sources)].read_bytes(), seed)
    path = folder / "mutant.onnx"
    path.write_bytes(data)
    rng = random.Random(f"model {seed}")
    free = rng.random() < 0.2
    more: tuple[str, ...] = ("--strict-annotations",) if rng.random() < 0.1 else ()
    if free:
        return Trial(damage, partial(_command, "inspect", path, "--stage", rng.choice(("graph", "plan", "memory"))))
    return Trial(damage, partial(_command, "run", path, "--threads", "1", *more))


def prepare_plans(folder: Path) -> None:
    """Compiled directories, one of them for all sizes."""
    from symbolic_models import perceptron
    from tiny_models import SOURCES, branching

    from polyc.graph_driver.compile_model import compile_model

    graphs = [make() for make in SOURCES] + [branching(np.random.default_rng(7), 10)]
    for k, model in enumerate(graphs):
        compile_model(model, threads=2, tasks=True).save(folder / f"plan{k}")
    compile_model(perceptron(), threads=1, symbolic=True).save(folder / f"plan{len(graphs)}")


def deal_plan(valid: Path, folder: Path, seed: int) -> Trial:
    """A damaged compiled directory, run or inspected."""
    from plan_mutators import damaged

    sources = sorted(valid.glob("plan*"))
    path = folder / "plan"
    damage = damaged(sources[seed // 12 % len(sources)], path, seed)
    rng = random.Random(f"plan {seed}")
    how = rng.choice((("run", "--mode", "graph"), ("run", "--mode", "eager"), ("inspect", "--stage", "plan")))
    return Trial(damage, partial(_command, how[0], path, *how[1:]))


# ---- schedules -----------------------------------------------------------------------------------


def _operators_file() -> str:
    return str(Path(__file__).parents[1] / "small_operators.py")


def prepare_schedules(folder: Path) -> None:
    """Random legal schedules as YAML and as traces."""
    import small_operators
    from random_schedules import random_schedule

    from polyc.graph_driver.worker.compile_operator import auto_schedule
    from polyc.scheduler.schedule import Schedule

    for name in OPERATORS:
        scop = getattr(small_operators, name).scop()
        made = [random_schedule(Schedule.start(scop), seed, 5) for seed in range(3)] + [auto_schedule(scop)]
        for k, schedule in enumerate(made):
            (folder / f"{name}.{k}.yaml").write_text(schedule.to_yaml(), encoding="utf-8")
            if schedule.trace:
                (folder / f"{name}.{k}.jsonl").write_text(schedule.save(), encoding="utf-8")


def deal_schedule(valid: Path, folder: Path, seed: int) -> Trial:
    """A damaged schedule file of a small operator, shown at some stage."""
    rng = random.Random(f"schedule {seed}")
    source = rng.choice(sorted(valid.glob("*.*.*")))
    edits = texts.YAML_EDITS if source.suffix == ".yaml" else texts.EDITS
    damage, data = texts.mutated(source.read_text(encoding="utf-8"), edits, rng)
    path = folder / f"mutant{source.suffix}"
    path.write_bytes(data)
    what = f"{_operators_file()}:{source.name.partition('.')[0]}"
    stage = rng.choice(("schedule", "schedule", "loops", "c"))
    return Trial(damage, partial(_command, "inspect", what, "--schedule", path, "--stage", stage, "--threads", "1"))


# ---- targets -------------------------------------------------------------------------------------


def prepare_targets(folder: Path) -> None:
    """The target files that polyc comes with."""
    from polyc.emit.targets import DATA

    for path in DATA.rglob("*.toml"):
        shutil.copy(path, folder / f"{'gpu' if path.parent.name == 'gpu' else 'cpu'}.{path.name}")


def deal_target(valid: Path, folder: Path, seed: int) -> Trial:
    """A damaged target file: an operator is built for it, or shown."""
    rng = random.Random(f"target {seed}")
    source = rng.choice(sorted(valid.glob("*.toml")))
    damage, data = texts.mutated(source.read_text(encoding="utf-8"), texts.TOML_EDITS, rng)
    path = folder / "machine.toml"
    path.write_bytes(data)
    what = f"{_operators_file()}:{rng.choice(OPERATORS)}"
    if source.name.startswith("gpu"):
        stage = rng.choice(("cuda", "opencl", "schedule"))
        return Trial(damage, partial(_command, "inspect", what, "--target", path, "--stage", stage))
    argv: tuple[object, ...] = ("build", what, "--target", path, "-o", folder / "b", "--emit", "c,h,ll,asm,obj")
    if rng.random() < 0.2:
        argv = ("inspect", what, "--target", path, "--stage", rng.choice(("schedule", "loops", "asm")))
    return Trial(damage, partial(_command, *argv))


# ---- command lines -------------------------------------------------------------------------------


def prepare_commands(folder: Path) -> None:
    """What the command lines name: models, a compiled directory, operators, schedules, an array."""
    import small_operators
    from hostile_models import products
    from tiny_models import network

    from polyc.graph_driver.compile_model import compile_model
    from polyc.graph_driver.worker.compile_operator import auto_schedule

    (folder / "m.onnx").write_bytes(products().SerializeToString())
    (folder / "net.onnx").write_bytes(network().SerializeToString())
    compile_model(products(), threads=1, dims={"N": 3}).save(folder / "p")
    names = ", ".join(f"{n} as {n}" for n in ("chain", "matmul"))
    (folder / "ops.py").write_text(f"from small_operators import {names}\n", encoding="utf-8")
    schedule: Any = auto_schedule(small_operators.chain.scop())
    (folder / "s.yaml").write_text(schedule.to_yaml(), encoding="utf-8")
    (folder / "t.jsonl").write_text(schedule.save(), encoding="utf-8")
    np.save(folder / "x.npy", np.ones((2, 4), np.float32))


def deal_command(valid: Path, folder: Path, seed: int) -> Trial:
    """A damaged command line, run in a copy of the folder."""
    damage, argv = commands.mutated(random.Random(f"command {seed}"))
    place = folder / "a" / "b" / "c"  # names with .. stay inside
    shutil.copytree(valid, place)

    def run() -> int:
        os.chdir(place)
        try:
            return _command(*argv)
        finally:
            os.chdir("/")

    return Trial(damage, run)


KINDS = {
    k.name: k for k in (
        Kind("model", prepare_models, deal_model),
        Kind("plan", prepare_plans, deal_plan),
        Kind("schedule", prepare_schedules, deal_schedule),
        Kind("target", prepare_targets, deal_target),
        Kind("command", prepare_commands, deal_command),
    )
}  # fmt: skip
