"""`polyc run MODEL --check` of every network on two sets of shapes, as a table.

`python -m benchmarks.checked --table docs/checked-models.md` runs the packaged networks
(`benchmarks.packaged`) and the exported ones that are there (`benchmarks.exports`); names restrict it.
Errors are relative to the largest magnitude of the output; times are those of one thread, polyc and
ONNX Runtime in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exports, packaged

HEAD = """# Networks checked

Made by `python -m benchmarks.checked --table docs/checked-models.md`; do not edit. Each network runs through
`polyc run MODEL --check` on two sets of inputs, of different shapes where its sizes are free. The error is the
largest difference from ONNX Runtime relative to the output's largest magnitude. Its limit is 1e-4, and for a
network of 8-bit codes what changes of one part in a million in the weights do to ONNX Runtime's own result
(times two; `graph_driver/checking/quantised_noise.py`). Weights of the exported networks are random.
Times are milliseconds of CPU time of one thread on a shared 2-core machine without AVX-512: read the
ratios, roughly.

| network | inputs | host operators | error | limit | polyc ms | ONNX Runtime ms | times as fast |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class Case:
    """One network with one set of inputs."""

    name: str
    path: Path
    feeds: dict[str, np.ndarray]
    bind: dict[str, Any]


@dataclass(frozen=True)
class Checked:
    """What a check and a measurement said; `passed` is the exit code of the command."""

    case: Case
    passed: bool
    host: tuple[str, ...]
    error: float
    limit: float
    ours: float
    theirs: float

    def row(self) -> str:
        """A line of the table."""
        shapes = ", ".join("x".join(map(str, v.shape)) or "scalar" for v in list(self.case.feeds.values())[:2])
        more = ", ..." if len(self.case.feeds) > 2 else ""
        verdict = "" if self.passed else " FAILED"
        return (
            f"| {self.case.name} | {shapes}{more} | {', '.join(self.host) or 'none'} | {self.error:.1e}{verdict} | "
            f"{self.limit:.0e} | {self.ours:.2f} | {self.theirs:.2f} | {self.theirs / self.ours:.2f} |"
        )


def cases(names: list[str], folder: Path, root: Path) -> Iterator[Case]:
    """The cases of the named networks (all without names). Exported ones that are not in `folder` are left out."""
    for name, model in packaged.MODELS.items():
        if not names or name in names:
            path = model.path(root)
            for k in (0, 1):
                yield Case(name, path, model.make(np.random.default_rng(k), k), model.bind)
    for name, network in exports.NETWORKS.items():
        path = folder / f"{name}.onnx"
        if path.exists() and (not names or name in names):
            for feeds in network.feeds(np.random.default_rng(7)):
                yield Case(name, path, feeds, {})


def command(case: Case, folder: Path) -> list[str]:
    """The arguments of `polyc` that check a case; its inputs are written into `folder`."""
    arguments = ["run", str(case.path), "--check", "--json", "--threads", "1"]
    for k, (name, value) in enumerate(case.feeds.items()):
        np.save(folder / f"{k}.npy", value)
        arguments += ["--input", f"{name}={folder / f'{k}.npy'}"]
    for name, value in case.bind.items():
        arguments += ["--bind", f"{name}={value}"]
    return arguments


def check(case: Case) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `polyc run --check`; the report is empty when it ended with an error."""
    from polyc.graph_driver.cli import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        code = main(command(case, Path(folder)))
    out.flush()
    text = out.buffer.getvalue().decode()
    return code, json.loads(text) if text else {}


def measured(case: Case) -> Checked:
    """The check, then the times."""
    import onnxruntime

    import polyc

    code, report = check(case)
    if not report:
        raise SystemExit(f"{case.name}: polyc run ended with {code}")
    outputs = report["check"]["outputs"].values()
    host = {str(h["operator"]) for h in report["report"]["host"]}
    shapes = {n: v.shape for n, v in case.feeds.items()}
    model = polyc.compile_model(case.path, threads=1, shapes=shapes, bind=case.bind)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    peer = onnxruntime.InferenceSession(str(case.path), options, providers=["CPUExecutionProvider"])
    kinds = {i.name: np.int64 for i in peer.get_inputs()}
    whole = case.feeds | {n: np.array(v, kinds[n]) for n, v in case.bind.items()}
    ours, theirs = thread_times(lambda: model(case.feeds), lambda: peer.run(None, whole))
    worst = max(outputs, key=lambda o: float(o["relative"]) / float(o["limit"]))
    return Checked(
        case, code == 0, tuple(sorted(host)), worst["relative"], worst["limit"], ours, theirs,
    )  # fmt: skip


def thread_times(*runs: Callable[[], object], rounds: int = 5) -> list[float]:
    """Least milliseconds of CPU time of this thread, in turn: other work on the machine counts less there."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds + 1):
        for k, run in enumerate(runs):
            start = time.thread_time()
            run()
            best[k] = min(best[k], 1e3 * (time.thread_time() - start))
    return best


def main() -> int:
    """Print rows as they come; write the table; 1 when a check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--exports", type=Path, default=None, help="folder of exported networks")
    parser.add_argument("--packages", type=Path, default=packaged.DEFAULT_ROOT, help="folder of packaged networks")
    arguments = parser.parse_args()
    folder = arguments.exports or exports.default_folder()
    rows = []
    for case in cases(arguments.names, folder, arguments.packages):
        rows.append(measured(case))
        print(rows[-1].row(), flush=True)
    if arguments.table is not None:
        arguments.table.write_text(HEAD + "".join(f"{r.row()}\n" for r in rows), encoding="utf-8")
    return 0 if all(r.passed for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
