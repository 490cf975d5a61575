"""`polyc compile --stop-after` and `--dump-after`: what stages and passes make of a model, as files.

A graph is a file that every command takes in place of the ONNX file (`polyc.graph_driver.importing.graph_files`);
selection, memory and plan are texts for reading.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.backends.registry import for_stage, platform_of
from polyc.graph_driver.cli.inspect import UsageError
from polyc.graph_driver.cli.mlir import write_mlir
from polyc.graph_driver.cli.models import formed_of, imported_for, plan_of, plan_stage
from polyc.graph_driver.graph.exact_text import Part, exact_graph, parts
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.graph_files import SHARED, SUFFIX, write_graph, write_graphs
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.passes import manager
from polyc.graph_driver.passes.manager import REWRITING, PassRecord

AFTER_PASSES = ("selection", "memory", "plan")
STAGES = ("import", *AFTER_PASSES)


def dump(arguments: argparse.Namespace, options: CompileOptions) -> bool:
    """Write what the arguments ask for; whether compiling ends here.

    Raises:
        UsageError: a stage that there is not, or `--emit graph` without `--stop-after`.
        ModelError: the model cannot be read.
    """
    if arguments.emit == "mlir":
        write_mlir(arguments, options)
        return True
    if arguments.emit is not None and arguments.stop_after is None:
        raise UsageError("--emit graph needs --stop-after frontend or --stop-after graph")
    platform = platform_of(for_stage(options.target, "graph", runs=False), options.threads, runs=False)
    path: Path = arguments.model
    stop: str | None = arguments.stop_after
    if arguments.dump_after is not None:
        folder = (arguments.output or path.with_suffix(".polyc")).with_suffix(".dumps")
        files = Dumps(folder, _wanted(arguments.dump_after)).write(path, platform, options, stop)
        print(f"wrote    {folder}: {', '.join(files)}")
        return stop is not None
    graph, options = imported_for(path, platform, options)
    passes = [p for p in options.pipeline(platform) if stop == "graph" or p.phase == REWRITING]
    manager.run(graph, passes, platform.host)
    target: Path = arguments.output or path.with_suffix(SUFFIX)
    write_graph(graph, target)
    print(f"wrote    {target}: {len(graph.nodes)} nodes after {'all passes' if stop == 'graph' else 'the front end'}")
    return True


def _wanted(text: str) -> frozenset[str]:
    """The stages and passes of `A,B,...`; empty: all. Raises `UsageError`."""
    names = frozenset(n for n in text.split(",") if n)
    unknown = names - {"all", *STAGES, *manager.BY_NAME}
    if unknown or not names:
        raise UsageError(
            f"--dump-after knows all, {', '.join(STAGES)} and the passes ({', '.join(manager.BY_NAME)}), "
            f"not '{min(unknown, default=text)}'"
        )
    return frozenset() if "all" in names else names


class Dumps:
    """The files of one model, numbered in the order in which compiling makes them."""

    def __init__(self, folder: Path, wanted: frozenset[str]) -> None:
        self.folder, self.wanted = folder, wanted
        self.index: list[dict[str, Any]] = []
        self.texts: dict[Path, str] = {}
        self.arrays: dict[str, Part] = {}

    def write(self, path: Path, platform: Platform, options: CompileOptions, stop: str | None) -> Sequence[str]:
        """Write all that is wanted, and `index.json`; the names of the files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        graph, options = imported_for(path, platform, options)
        self.graph("import", graph, exact=True)
        passes = [p for p in options.pipeline(platform) if stop != "frontend" or p.phase == REWRITING]
        exact = {p.name: p.exact for p in passes}

        def after(record: PassRecord, now: Graph) -> None:
            self.graph(record.name, now, exact[record.name], str(record).partition(": ")[2])

        manager.run(graph, passes, platform.host, after)
        if stop is None:
            groups, _ = formed_of(graph, platform, options)
            chosen = [str(s) for s in graph.selections]
            kernels = [f"{g.label}: {', '.join(n.name for n in g.nodes)}" for g in groups]
            self.text("selection", ["# implementations", *chosen, "# kernels, in order", *kernels])
            plan = plan_of(graph, groups, platform, options)
            self.text("memory", [plan_stage(plan, "memory")])
            self.text("plan", [plan_stage(plan, "plan")])
        write_graphs(self.texts, self.arrays, self.folder / SHARED)
        (self.folder / "index.json").write_text(json.dumps(self.index, indent=2) + "\n", encoding="utf-8")
        return [d["file"] for d in self.index]

    def graph(self, stage: str, graph: Graph, exact: bool, did: str = "") -> None:
        """A graph; `exact`: the stage keeps every rounding."""
        if not self.wanted or stage in self.wanted:
            name = f"{len(self.index):02d}-{stage}{SUFFIX}"
            self.texts[self.folder / name] = exact_graph(graph)
            self.arrays |= parts(graph)
            self.index.append({"stage": stage, "file": name, "did": did, "nodes": len(graph.nodes), "exact": exact})

    def text(self, stage: str, lines: Sequence[str]) -> None:
        """A text."""
        if not self.wanted or stage in self.wanted:
            name = f"{len(self.index):02d}-{stage}.txt"
            (self.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            self.index.append({"stage": stage, "file": name})
