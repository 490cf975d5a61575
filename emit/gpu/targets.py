"""GPU targets: data files in `target_data/gpu/`, one a target. A new one needs no code."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from polyc.emit.targets import DATA, OF_GRAPHS, UNLIMITED, gpu_names, is_file, read_toml, wrong_floats
from polyc.poly.errors import BuildError
from polyc.poly.target import BESIDE, FLOATS, TF32, GpuTarget, mma_feature

DEFAULT_CUDA = "sm_80"  # of `cuda` where no device says what it is
KIND = "kind"  # the key that files of GPUs have, and those of CPUs do not
MOST = 1 << 40  # of any number
OF_TIMES = ("bandwidth", "gflops", "link", "launch")
"""How fast a device is; a file may leave it out."""
MAY_BE_UNKNOWN = ("sms", "sm_threads", "sm_blocks", "sm_registers", "sm_shared", "register_unit", "shared_unit",
                  "shared_reserved", *UNLIMITED, *OF_TIMES)  # fmt: skip
"""Numbers that may be 0."""


def names() -> list[str]:
    """All target names that `get` knows."""
    return gpu_names()


def is_gpu(target: object) -> bool:
    """Whether this is a GPU target or the name or the file of one, perhaps with `+tf32`."""
    if isinstance(target, GpuTarget):
        return True
    if not isinstance(target, (str, Path)):
        return False
    base, plus, _ = _parts(str(target))
    if plus:
        return is_gpu(base)
    return KIND in read_toml(Path(base)) if is_file(base) else base in names()


def get(name: str | Path) -> GpuTarget:
    """A GPU target by name; `cuda` is the device's own architecture, `sm_80` without a device.

    `NAME+tf32` is the same with products of f32 allowed to round their operands to tf32, `NAME+cpu` with kernels of a
    model allowed on the CPU beside it. `NAME.toml` is a file.

    Raises:
        BuildError: there is no such target (valid names are listed), or it has no tf32.
    """
    base, plus, allowed = _parts(str(name))
    if plus:
        return _allowing(get(base), allowed)
    return replace(from_toml(Path(base)), name=base) if is_file(base) else _named(base)


def _parts(name: str) -> tuple[str, str, str]:
    """A name without what `+` allows, `+` if it is there, and what is allowed. Names of files may have a `+`."""
    base, plus, allowed = name.rpartition("+")
    return (base, plus, allowed) if plus and not is_file(name) else (name, "", "")


@functools.cache
def _named(name: str) -> GpuTarget:
    if name not in names():
        raise BuildError(f"unknown GPU target '{name}'; known: {', '.join(names())}")
    if name == "cuda":
        from polyc.emit.gpu.devices import cuda_architecture

        name = _nearest(cuda_architecture() or DEFAULT_CUDA)
    return from_toml(DATA / "gpu" / f"{name}.toml")


def _allowing(target: GpuTarget, what: str) -> GpuTarget:
    if what == BESIDE:
        return replace(target, name=f"{target.name}+{BESIDE}", features=(*target.features, BESIDE))
    if what != TF32:
        raise BuildError(f"a GPU target's name ends in nothing, '+{TF32}' or '+{BESIDE}', not '+{what}'")
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
    return from_data(path.stem, read_toml(path), f"target file {path.name}")


def from_data(name: str, data: Mapping[str, Any], where: str) -> GpuTarget:
    """A GPU target from plain data; `where` says in an error where it stands.

    Raises:
        BuildError: a key is missing, unknown or of the wrong type.
    """
    wanted = {f.name for f in fields(GpuTarget)} - {"name"}
    optional = {*OF_GRAPHS, *OF_TIMES}
    wrong = sorted((wanted - optional) ^ (set(data) - optional))
    if wrong:
        raise BuildError(f"{where}: the key '{wrong[0]}' is missing or unknown")
    for key, kind in typing.get_type_hints(GpuTarget).items():
        if key != "name" and key in data and not _fits(data[key], kind):
            raise BuildError(f"{where}: '{key}' must be {_spelled(kind)}")
        for number in data[key] if isinstance(data.get(key), list) else [data.get(key)]:
            if type(number) is int and not (0 if key in MAY_BE_UNKNOWN else 1) <= number <= MOST:
                raise BuildError(f"{where}: '{key}' is out of its range: {number}")
    for key in ("max_block", "max_grid"):
        if len(data[key]) != 3:
            raise BuildError(f"{where}: '{key}' are three numbers, for x, y and z, not {len(data[key])}")
    counted = ("sm_blocks", "sm_registers", "register_unit", "shared_unit")
    if data["sm_threads"] and not all(data[key] for key in counted):
        raise BuildError(f"{where}: with sm_threads known, {', '.join(counted)} are, too: they may not be 0")
    if reason := wrong_floats(data.get("floats", FLOATS)):
        raise BuildError(f"{where}: {reason}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return GpuTarget(name=name, **values)


def _fits(value: object, kind: object) -> bool:
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return isinstance(value, list) and all(type(v) is element for v in value)
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind)
    return type(value) is kind


def _spelled(kind: object) -> str:
    if typing.get_origin(kind) is tuple:
        return f"a list of {typing.get_args(kind)[0].__name__}"
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(typing.get_args(kind))
    return getattr(kind, "__name__", str(kind))
