"""Which polyc the outcomes of a run are of."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
PARTS = ("emit", "frontend_dsl", "graph_driver", "poly", "polyc", "scheduler", "tests/opinfo")
"""Folders whose files decide what becomes of a sample."""


def sources() -> str:
    """A digest of the files of polyc and of this runner, committed or not, and the version of torch."""
    digest = hashlib.sha256(torch.__version__.encode())
    for part in PARTS:
        files = (f for f in (ROOT / part).rglob("*") if f.suffix in (".py", ".json", ".toml", ".h") and f.is_file())
        for file in sorted(files):
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def commit() -> str:
    """The commit of this checkout, with a + where files differ from it; for people, `sources` is what decides."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=9", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "none"
