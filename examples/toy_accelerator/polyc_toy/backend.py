"""The back end: what polyc asks, answered for the toy accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from polyc.emit import targets
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.stepping import Run, SteppingBackend, lowered, scratch_of
from polyc.poly.errors import BuildError
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc_toy.codegen import instructions
from polyc_toy.machine import MACHINES, Toy
from polyc_toy.scheduling import schedule_for
from polyc_toy.simulator import Program

NUMBERS = [f.name for f in fields(Toy) if f.name != "name"]


class ToyBackend(SteppingBackend):
    """`target="toy"`: products on the matrix unit, the rest on the scalar unit, nothing on the CPU beside it."""

    name = "toy"
    numbers_because = "the toy accelerator's instructions are for sizes that are numbers"
    stages = ("loops", "toy")
    ignored = {
        "threads": "it has one thread",
        "tasks": "it has one thread",
        "tuned": "schedules are tuned for CPUs",
        "layouts": "it reads images as the model has them",
    }

    def targets(self) -> tuple[str, ...]:
        """Its machines."""
        return tuple(MACHINES)

    def find(self, target: object) -> Toy | None:
        """A machine by name, itself, or a file whose `base` is one of the names."""
        if not targets.is_file(target):
            return target if isinstance(target, Toy) else MACHINES.get(str(target))
        data = targets.read_toml(path := Path(str(target)))
        base = MACHINES.get(str(data.pop("base", "")))
        if base is None:
            return None  # another back end's
        unknown = [k for k, v in data.items() if type(v) is not int or k not in NUMBERS]
        if unknown:
            raise BuildError(f"target file {path.name}: '{unknown[0]}' is none of the numbers {', '.join(NUMBERS)}")
        return replace(base, name=path.stem, **data)

    def machine_from(self, data: Mapping[str, Any]) -> Toy:
        """A machine back from its numbers."""
        return Toy(**data)

    def schedule(self, scop: Scop, machine: Toy, threads: int) -> Schedule:
        """Products in tiles, their operands in the scratchpad."""
        return schedule_for(scop, machine)

    def compile(self, schedule: Schedule, machine: Toy, threads: int, symbol: str, checks: bool) -> Compiled:
        """Instruction text."""
        function, notes = lowered(schedule, symbol, checks), tuple(schedule.notes)
        try:
            text = instructions(function, machine)
        except BuildError as error:  # the program's own order needs the scalar unit alone
            function = lowered(replace(schedule, tree=schedule.scop.tree), symbol, checks)
            text, notes = instructions(function, machine), (*notes, f"all of it runs on the scalar unit: {error}")
        order, scratch = tuple(b.name for b in function.buffers), scratch_of(function)
        return Compiled(symbol, order, text.encode(), notes, {}, False, scratch)

    def function(self, image: bytes, machine: Toy) -> Run:
        """The simulator, with the program loaded."""
        return Program(image.decode(), machine)

    def text_of(self, image: bytes) -> str:
        """The instructions."""
        return image.decode()
