"""GPU targets: data files in `target_data/gpu/`, one a target. A new one needs no code."""

from __future__ import annotations

import functools
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from polyc.emit.targets import DATA
from polyc.poly.errors import BuildError
from polyc.poly.target import TF32, GpuTarget, mma_feature

DEFAULT_CUDA = "sm_80"  # of `cuda` where no device says what it is


def names() -> list[str]:
    """All target names that `get` knows."""
    return ["cuda", *sorted(p.stem for p in (DATA / "gpu").glob("*.toml"))]


def is_gpu(target: object) -> bool:
    """Whether this is a GPU target or the name of one, perhaps with `+tf32`."""
    return isinstance(target, GpuTarget) or (isinstance(target, str) and target.partition("+")[0] in names())


@functools.cache
def get(name: str) -> GpuTarget:
    """A GPU target by name; `cuda` is the device's own architecture, `sm_80` without a device.

    `NAME+tf32` is the same with products of f32 allowed to round their operands to tf32.

    Raises:
        BuildError: there is no such target (valid names are listed), or it has no tf32.
    """
    base, plus, allowed = name.partition("+")
    if plus:
        return _allowing(get(base), allowed)
    if name not in names():
        raise BuildError(f"unknown GPU target '{name}'; known: {', '.join(names())}")
    if name == "cuda":
        from polyc.emit.gpu.devices import cuda_architecture

        name = _nearest(cuda_architecture() or DEFAULT_CUDA)
    return from_toml(DATA / "gpu" / f"{name}.toml")


def _allowing(target: GpuTarget, what: str) -> GpuTarget:
    if what != TF32:
        raise BuildError(f"a GPU target's name ends in nothing or '+{TF32}', not '+{what}'")
    if mma_feature("f32") not in target.features:
        raise BuildError(f"{target.name} multiplies no {TF32}: targets from sm_80 on do")
    return replace(target, name=f"{target.name}+{TF32}", features=(*target.features, TF32))


def _nearest(architecture: str) -> str:
    """The target whose code a device of this architecture runs best: of the same generation, and no newer.

    Raises:
        BuildError: there is none.
    """
    fitting = [n for n in names() if n[:-1] == architecture[:-1] and n <= architecture]
    if not fitting:
        raise BuildError(f"no target for a device of architecture {architecture}; known: {', '.join(names())}")
    return max(fitting)


def from_toml(path: Path) -> GpuTarget:
    """A GPU target from a data file.

    Raises:
        BuildError: a key is missing, unknown or of the wrong type.
    """
    return from_data(path.stem, tomllib.loads(path.read_text(encoding="utf-8")), f"target file {path.name}")


def from_data(name: str, data: Mapping[str, Any], where: str) -> GpuTarget:
    """A GPU target from plain data; `where` says in an error where it stands.

    Raises:
        BuildError: a key is missing, unknown or of the wrong type.
    """
    wanted = {f.name for f in fields(GpuTarget)} - {"name"}
    wrong = sorted(wanted ^ set(data))
    if wrong:
        raise BuildError(f"{where}: the key '{wrong[0]}' is missing or unknown")
    for key, kind in typing.get_type_hints(GpuTarget).items():
        if key != "name" and not _fits(data[key], kind):
            raise BuildError(f"{where}: '{key}' must be {_spelled(kind)}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return GpuTarget(name=name, **values)


def _fits(value: object, kind: object) -> bool:
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return isinstance(value, list) and all(isinstance(v, element) for v in value)
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind)
    return type(value) is kind


def _spelled(kind: object) -> str:
    if typing.get_origin(kind) is tuple:
        return f"a list of {typing.get_args(kind)[0].__name__}"
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(typing.get_args(kind))
    return getattr(kind, "__name__", str(kind))
