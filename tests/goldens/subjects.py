"""The programs whose automatic schedules are frozen: library operators, PolyBench, groups of networks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from examples.polybench import MODULES
from examples.polybench import load as load_polybench
from polyc.emit import targets
from polyc.graph_driver.backends.protocol import Backend
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.sensible import sensible_sizes
from polyc.graph_driver.compiling.stages import formed, optimise
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.options import CompileOptions
from polyc.poly import json_io
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))
from library_cases import CASES

SHAPES = {"small": (5, 7, 6), "odd": (37, 33, 41), "round": (64, 64, 64)}
"""Sizes a, b, c of the library's operators."""

LARGE = {
    "correlation": {"M": 1200, "N": 1400},
    "covariance": {"M": 1200, "N": 1400},
    "gemm": {"NI": 1000, "NJ": 1100, "NK": 1200},
    "symm": {"M": 1000, "N": 1200},
    "syrk": {"M": 1000, "N": 1200},
    "trmm": {"M": 1000, "N": 1200},
    "2mm": {"NI": 800, "NJ": 900, "NK": 1100, "NL": 1200},
    "3mm": {"NI": 800, "NJ": 900, "NK": 1000, "NL": 1100, "NM": 1200},
    "atax": {"M": 1900, "N": 2100},
    "doitgen": {"NQ": 140, "NR": 150, "NP": 160},
    "jacobi-2d": {"N": 1300},
}
"""PolyBench's LARGE sizes of the kernels where sizes decide the schedule; all kernels also stay symbolic."""


@dataclass(frozen=True)
class Subject:
    """One program; `scop` makes it."""

    name: str
    scop: Callable[[], Scop]


def library() -> Iterator[Subject]:
    """Every operator of the library at three sets of sizes."""
    for operator, make in CASES.items():
        for shape, sizes in SHAPES.items():
            yield Subject(f"{operator}/{shape}", lambda make=make, sizes=sizes: make(*sizes).scop())


def polybench() -> Iterator[Subject]:
    """The kernels of PolyBench with symbolic sizes, and some with those of LARGE."""
    for name in MODULES:
        kernel = load_polybench(name)
        sizes = {k.lower(): v for k, v in kernel.sizes["MINI"].items()}
        constants = {k: sizes[k.lower()] for k in kernel.operator.signature.constants if k.lower() in sizes}
        yield Subject(f"{name}/symbolic", lambda k=kernel, c=constants: k.operator.scop(**c))
        if name in LARGE:
            yield Subject(f"{name}/large", lambda n=name, k=kernel, c=constants: _large(n, k.operator.scop(**c)))


def _large(name: str, scop: Scop) -> Scop:
    known = {k: v for k, v in LARGE[name].items() if k in scop.params}
    if not known:
        raise ValueError(f"{name} has the sizes {scop.params}, not {tuple(LARGE[name])}")
    return specialise(scop, known)


def networks() -> list[Path]:
    """The light models, and those trained ones that have been fetched (`python -m benchmarks` does)."""
    from benchmarks import packaged
    from benchmarks.models import LIGHT, light_model

    found = []
    for model in packaged.MODELS.values():
        folder = packaged.DEFAULT_ROOT / model.requirement.split("==")[0]
        if not model.bind and any(folder.rglob("*" + model.suffix)):
            found.append(model.path())
    return [*map(light_model, LIGHT), *found]


def not_fetched() -> frozenset[str]:
    """Files of trained networks, without their endings, that are not on this machine."""
    from benchmarks import packaged

    return frozenset(Path(m.suffix).stem for m in packaged.MODELS.values()) - {path.stem for path in networks()}


def groups(path: Path, target: str) -> Iterator[Subject]:
    """The distinct groups that a network becomes on `target`; beside a GPU is the same CPU everywhere."""
    platform, options = platform_of(target, 1), CompileOptions()
    graph = import_model(path, dims=sensible_sizes(path, options))
    with patch.object(Backend, "host", lambda self, machine: targets.get("x86-64-v3")):
        optimise(graph, platform, options)
        found = formed(graph, platform, options)[1]
    seen: set[str] = set()
    for number, group in enumerate(found):
        if group.key and group.key not in seen:
            seen.add(group.key)
            yield Subject(f"{path.stem}/{number}", lambda text=group.text: json_io.loads(text))
