"""`polyc certify`: certificates of the loops of an operator or a model, and the checker that needs nothing of polyc."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.cli.inspect import (
    UsageError,
    is_operator,
    load_operator,
    operator_schedule,
    operator_scop,
    parse_numbers,
    refuse_model_options,
)
from polyc.graph_driver.graph.progress import progress_bar
from polyc.poly.words import counted

if TYPE_CHECKING:
    from polyc.poly.scop import Scop
    from polyc.scheduler.schedule import Schedule

CHECKER = "check.pyz"
SECONDS = 120  # that the checker may take for one certificate


def certify_command(arguments: argparse.Namespace) -> int:
    """Write a certificate for each kernel and the checker, and run it; 1 where one does not hold, or where the order of
    sums was to be proven and is not.

    Raises:
        UsageError: options that do not go together, or a compiled directory.
    """
    from polyc.emit.lowering.lower import proven_loops
    from polyc.emit.proof.certificate import certificate
    from polyc.poly.errors import BuildError

    kernels = list(_operator(arguments) if is_operator(arguments.what) else _model(arguments))
    folder = arguments.output or Path(f"{Path(arguments.what.partition(':')[0]).stem}_certificates")
    folder.mkdir(parents=True, exist_ok=True)
    _write_checker(folder / CHECKER)
    rows: list[dict[str, Any]] = []
    with progress_bar(arguments.json) as progress:
        for k, (title, schedule) in enumerate(kernels):
            name = f"{k:03d}-{re.sub(r'[^A-Za-z0-9]+', '_', title).strip('_')[:60]}.json"
            try:
                loops = proven_loops(schedule.scop, schedule.tree, "loops")
                (folder / name).write_text(certificate(schedule.scop, loops), encoding="utf-8")
                rows.append({"kernel": title, "file": name, **_checked(folder, name)})
                if arguments.prove_order:
                    _say_order(rows[-1], schedule.scop)
            except BuildError as refusal:
                rows.append({"kernel": title, "file": None, "holds": None, "said": str(refusal)})
            if progress is not None:
                progress("certificates", k + 1, len(kernels))
    if arguments.json:
        print(json.dumps({"output": str(folder), "kernels": rows}, indent=2))
    else:
        for r in rows:
            print(f"{r['kernel']}: {r['said']}")
        held = sum(r["holds"] is True for r in rows)
        print(f"{held} of {len(rows)} certificates hold; check them again: python {folder / CHECKER} {folder}/*.json")
        if arguments.prove_order:
            print(_order_of_all(rows))
    return int(any(r["holds"] is False or (arguments.prove_order and not r["holds"]) for r in rows))


def _say_order(row: dict[str, Any], scop: Scop) -> None:
    """Add what the certificate says of sums of floats: each two updates of one element conflict, so that loops which
    keep all conflicts add them up in the program's order."""
    from polyc.poly.dependences import conflicts
    from polyc.poly.reduction import reorders

    sums = [s for s in scop.statements.values() if s.reduction is not None and s.value.dtype.is_float]
    free = [s.name for s in sums if reorders(scop, s) or (s.name, s.name) in conflicts(scop).relaxed]
    row["sums"] = len(sums)
    row["holds"] = row["holds"] and not free
    if free:
        row["said"] = f"the order is free in {', '.join(free)}"
    elif row["holds"] and sums:
        row["said"] += f"; {counted(len(sums), 'reduction')} in the order of the program"


def _order_of_all(rows: Sequence[dict[str, Any]]) -> str:
    """One line on the order of all sums."""
    failed = [r["kernel"] for r in rows if not r["holds"]]
    if failed:
        return f"the order of sums is not proven for {', '.join(failed)}"
    sums = counted(sum(r["sums"] for r in rows), "reduction")
    return f"order proven: {sums} of floats, in the order of the program on any number of threads"


def _operator(arguments: argparse.Namespace) -> Iterator[tuple[str, Schedule]]:
    """An operator's schedule: the automatic one, or the one of `--schedule`."""
    from polyc.poly.reduction import fixed_order

    refuse_model_options(arguments)
    scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
    if arguments.prove_order:
        scop = fixed_order(scop)
    yield scop.name, operator_schedule(scop, arguments.target, sizes, arguments.schedule, arguments.threads)


def _model(arguments: argparse.Namespace) -> Iterator[tuple[str, Schedule]]:
    """The schedules of a model's distinct kernels."""
    from polyc.graph_driver.artifacts.package import is_package
    from polyc.graph_driver.cli.compile import options_of
    from polyc.graph_driver.cli.models import kernels_of_model, schedule_of
    from polyc.graph_driver.worker import tuned as use

    path = Path(arguments.what)
    if arguments.schedule is not None:
        raise UsageError("--schedule is for operators (FILE.py:OP)")
    if is_package(path):
        raise UsageError("a compiled directory keeps no Scops: give the ONNX file")
    arguments.reproducible |= arguments.prove_order
    platform, kernels = kernels_of_model(path, options_of(arguments))
    with use.tuned(arguments.tuned):
        for title, group in kernels:
            yield title, schedule_of(group, platform)


def _write_checker(path: Path) -> None:
    """The checker's folder as one file that Python runs; its only package is islpy."""
    import polyc.emit.proof

    start = "import sys\nfrom checker.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), start)  # a ZipInfo has a fixed date: the same bytes each time
        for file in sorted(Path(polyc.emit.proof.__file__).with_name("checker").glob("*.py")):
            archive.writestr(zipfile.ZipInfo(f"checker/{file.name}"), file.read_bytes())


def _checked(folder: Path, name: str) -> dict[str, Any]:
    """What the checker says, in a process that cannot import polyc."""
    command = [sys.executable, "-E", "-P", CHECKER, name]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"holds": None, "said": f"not decided within {SECONDS} s"}
    said = (done.stdout or done.stderr).strip().splitlines()[-1:] or ["the checker said nothing"]
    return {"holds": done.returncode == 0, "said": said[0].removeprefix(f"{name}: ")}
