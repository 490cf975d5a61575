"""`polyc compile --stop-after` and `--dump-after`: what stages and passes make of a model, as files.

A graph is a file that every command takes in place of the ONNX file (`polyc.graph_driver.importing.graph_files`);
`polyc run` and `polyc compile` take selection, memory and plan (`polyc.graph_driver.compiling.staged`), too. Where the
target does not run here, or sizes are formulas, memory and plan are texts for reading.
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
from polyc.graph_driver.cli.models import formed_of, imported_for, plan_of, plan_stage, refuse_minimal
from polyc.graph_driver.compiling.staged import STAGES as AFTER_PASSES
from polyc.graph_driver.compiling.staged import stage_text
from polyc.graph_driver.compiling.stages import kernels_anew, placed
from polyc.graph_driver.graph.exact_text import Part, exact_graph, parts
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.importing.graph_files import SHARED, STAGE, SUFFIX, write_graph, write_graphs
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.passes import manager
from polyc.graph_driver.passes.manager import REWRITING, PassRecord
from polyc.graph_driver.worker import kernels
from polyc.graph_driver.worker import tuned as use

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
            self.stages(graph, platform, options)
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

    def stages(self, graph: Graph, platform: Platform, options: CompileOptions) -> None:
        """What follows after the graph."""
        if self.wanted and not self.wanted & {*AFTER_PASSES}:
            return
        if not platform.backend.runs:
            groups, _ = formed_of(graph, platform, options)
            plan = plan_of(graph, groups, platform, options)
        else:
            refuse_minimal(options)
            report = Report(platform.name, platform.threads)
            with use.tuned(options.tuned), kernels.workers():
                groups, compiled, _, _ = kernels_anew(graph, platform, options, report)
            gaps = {key: c.gaps for key, c in compiled.items() if c.gaps}
            abis = {key: c.abi for key, c in compiled.items()}
            plan = placed(graph, groups, abis, platform, options, graph.notes, gaps)
        exact = all(d["exact"] for d in self.index)
        file = f"{len(self.index):02d}-kernels{SUFFIX}"
        self.texts[self.folder / file] = exact_graph(graph)
        self.arrays |= parts(graph)
        for stage in AFTER_PASSES:
            if stage != "selection" and (graph.symbols is not None or not platform.backend.runs):
                self.text(stage, [plan_stage(plan, stage)])
            elif not self.wanted or stage in self.wanted:
                name = f"{len(self.index):02d}-{stage}{STAGE}"
                self.texts[self.folder / name] = stage_text(stage, file, groups, plan, graph)
                self.index.append({"stage": stage, "file": name, "kernels": len(groups), "exact": exact})

    def text(self, stage: str, lines: Sequence[str]) -> None:
        """A text."""
        if not self.wanted or stage in self.wanted:
            name = f"{len(self.index):02d}-{stage}.txt"
            (self.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            self.index.append({"stage": stage, "file": name})
