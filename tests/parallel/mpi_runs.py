"""Programs on several ranks of this machine: `launch` starts `tests.parallel.on_ranks CASE ...` by mpiexec."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def mpiexec() -> str:
    """The launcher of the MPI that Python has; the test is skipped where there is none."""
    pytest.importorskip("mpi4py", reason="needs polyc[mpi]")
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("needs mpiexec (polyc[mpi])")
    return found


def launch(
    ranks: int, case: str, *args: str, timeout: float = 120, env: Mapping[str, str] | None = None, ok: bool = True
) -> list[dict[str, Any]]:
    """Run a case; what each rank says, by rank. `ok`: it must end well."""
    done = started(ranks, case, *args, timeout=timeout, env=env)
    assert not ok or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = [json.loads(line.partition("SAYS ")[2]) for line in done.stdout.splitlines() if "SAYS {" in line]
    return sorted(said, key=lambda s: int(s["rank"]))


def started(
    ranks: int,
    case: str,
    *args: str,
    timeout: float = 120,
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """The same, with all that it printed. Raises `TimeoutExpired`: it hangs."""
    command = [
        mpiexec(),
        *flags,
        "--oversubscribe",
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "tests.parallel.on_ranks",
        case,
    ]
    around = {
        **os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", **(env or {}),
    }  # fmt: skip
    return subprocess.run(
        [*command, *args], cwd=ROOT, env=around, capture_output=True, text=True, timeout=timeout, check=False
    )
