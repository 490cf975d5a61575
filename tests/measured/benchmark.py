"""Benchmarks of the repository, each in a process of its own, and the rows that it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def rows_of(folder: Path, module: str, *options: str, judges: bool = False) -> list[dict[str, Any]]:
    """`python -m MODULE OPTIONS --json`, run in the repository; what it printed is shown when the test fails.

    Args:
        folder: where its rows are written; rows of an earlier run with the same folder are the benchmark's to keep.
        judges: the benchmark ends with 1 where its rows are not what it promises, which is for the caller to say.
    """
    file = folder / "rows.json"
    command = [sys.executable, "-m", module, *options, "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert file.is_file(), f"{' '.join(command)} ended with {done.returncode} and wrote no rows"
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    assert done.returncode in ((0, 1) if judges else (0,)), f"{' '.join(command)} ended with {done.returncode}: {found}"
    return found
