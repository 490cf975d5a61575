"""CPUs by LLVM's names: `znver3`, `skylake-avx512`, `neoverse-n1`, `apple-m1`, ... and what they can do.

The table is `target_data/cpus.json` (`python -m tests.cpus` makes it). Only what generated code may use is in it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from polyc.poly.target import Target

TABLE = Path(__file__).parent / "target_data" / "cpus.json"


@functools.cache
def table() -> Mapping[str, Mapping[str, str]]:
    """Architecture -> CPU -> features, with commas between."""
    found: dict[str, dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def names() -> list[str]:
    """All CPUs of the table."""
    return [cpu for cpus in table().values() for cpu in cpus]


def isa_of(cpu: str) -> str | None:
    """The architecture of a CPU of the table."""
    return next((isa for isa, cpus in table().items() if cpu in cpus), None)


def named_features(cpu: str, isa: str | None = None) -> frozenset[str]:
    """What a CPU of the table has; nothing if it is not there."""
    return frozenset(table().get(isa or isa_of(cpu) or "", {}).get(cpu, "").split(",")) - {""}


def features_of(target: Target) -> frozenset[str]:
    """What code for `target` may use: what its CPU has, and what its features add or take away."""
    listed = [f.strip() for f in target.features.split(",") if f.strip()]
    has = {*named_features(target.cpu, target.isa)}
    has |= {f[1:] for f in listed if f.startswith("+")}
    return frozenset(has - {f[1:] for f in listed if f.startswith("-")})


def known_features(isa: str) -> frozenset[str]:
    """Features that some CPU of an architecture has."""
    return frozenset(f for text in table().get(isa, {}).values() for f in text.split(",")) - {""}
