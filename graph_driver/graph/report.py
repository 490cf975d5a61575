"""What compiling a model did: stages with their times, kernels, host operators, memory, decisions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from polyc.graph_driver.graph.wording import human
from polyc.poly.records import dataclass
from polyc.poly.spans import span
from polyc.poly.words import counted

OWN_IN_DECISION = re.compile(r"'[^']*'|\([-\d, ]+\)|(?<=: )\w+\[.*(?= reads what)")
"""What tells equal decisions apart: the tensors' names, an element, an instance."""


@dataclass
class Report:
    """What compiling did. `seconds` by stage; `host` lists (operator, node, reason)."""

    target: str = ""
    threads: int = 1
    nodes: int = 0
    kernels: int = 0
    distinct: int = 0
    cache_hits: int = 0
    host: list[tuple[str, str, str]] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    kernel_seconds: dict[str, float] = field(default_factory=dict)
    peak: int = 0
    bound: int = 0
    weight_bytes: int = 0
    eager_launches: int = 0  # of the model as it was given, one node at a time (0: data or sizes decide)
    eager_peak: int = 0  # bytes of that
    sizes: list[str] = field(default_factory=list)
    specialised: list[str] = field(default_factory=list)  # a line for each model made for the shapes of a call
    made: dict[str, Any] = field(default_factory=dict)  # of a finished program from the cache: when, and the times
    tier: str = "full"  # of all kernels that run
    tiers: list[str] = field(default_factory=list)  # how that came about, where another tier was asked for

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        with span(name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def include(self, what: str, bodies: Sequence[Report]) -> None:
        """Add the reports on the compiled bodies of the control flow `what`."""
        kernels = sum(b.kernels for b in bodies)
        self.eager_launches = 0  # how often a body runs, data decide
        self.notes.append(f"{what} is part of the plan: {len(bodies)} compiled bodies with {kernels} kernels")
        self.kernels += kernels
        for body in bodies:
            self.nodes += body.nodes
            self.distinct += body.distinct
            self.cache_hits += body.cache_hits
            self.host += [(operator, f"{node} in {what}", reason) for operator, node, reason in body.host]
            self.notes += body.notes
            for stage, seconds in body.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data (the `--json` form)."""
        data = dict(vars(self))
        data["host"] = [{"operator": o, "node": n, "reason": r} for o, n, r in self.host]
        data["seconds"] = {k: round(v, 4) for k, v in self.seconds.items()}
        data["kernel_seconds"] = {k: round(v, 4) for k, v in self.kernel_seconds.items()}
        return data

    def _beside_eager(self) -> str:
        """What the whole graph as one program saves."""
        alone = counted(self.eager_launches, "launch", "launches")
        return (
            f"launches {self.kernels + len(self.host)}, peak {human(self.peak)}; "
            f"one node at a time it would be {alone}, {human(self.eager_peak)}"
        )

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        stages = ", ".join(f"{k} {v:.2f}" for k, v in self.seconds.items())
        lines = [
            f"target   {self.target}, {self.threads} thread{'s' if self.threads != 1 else ''}",
            f"kernels  {self.kernels} from {self.nodes} nodes ({self.distinct} distinct, "
            f"{self.cache_hits} from the cache)",
            f"host     {len(self.host) or 'no'} operator{'s' if len(self.host) != 1 else ''}",
            *(f"         {o} '{n}': {r}" for o, n, r in self.host),
            f"memory   arena {human(self.peak)}, lower bound {human(self.bound)}, weights {human(self.weight_bytes)}",
            f"seconds  {total:.2f} ({stages})",
        ]
        if self.eager_launches:
            lines.insert(-1, self._beside_eager())
        if self.made:
            lines += _of_the_making(self.made)
        if self.kernel_seconds:
            each = ", ".join(f"{k} {v:.2f}" for k, v in self.kernel_seconds.items())
            lines.append(f"         kernels, added up over processes: {each}")
        lines += [f"tier     {self.tier}"] * (self.tier != "full") + [f"tier     {line}" for line in self.tiers]
        lines += [f"sizes    {line}" for line in (*self.sizes, *self.specialised)]
        lines += [
            f"decision {first}" + (f" ({n} times like that)" if n > 1 else "") for first, n in _counted(self.decisions)
        ]
        return "\n".join(lines + [f"note     {n}" for n in self.notes])


def _of_the_making(made: dict[str, Any]) -> list[str]:
    """That a finished program was in the cache, and what making it took."""
    stages = ", ".join(f"{k} {v:.2f}" for k, v in made["seconds"].items())
    lines = [f"cache    the finished program, made {made['on']} in {sum(made['seconds'].values()):.2f} s ({stages})"]
    if made["kernel_seconds"]:
        each = ", ".join(f"{k} {v:.2f}" for k, v in made["kernel_seconds"].items())
        lines.append(f"         kernels, added up over processes: {each}")
    return lines


def _counted(decisions: Sequence[str]) -> list[tuple[str, int]]:
    """The first of equal decisions (but for what is a tensor's own), with how often they were taken."""
    found: dict[str, tuple[str, int]] = {}
    for text in decisions:
        first, number = found.get(alike := OWN_IN_DECISION.sub("", text), (text, 0))
        found[alike] = (first, number + 1)
    return list(found.values())
