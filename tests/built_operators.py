"""Operators built as files (`polyc.emit.standalone`), compiled strictly and called through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyc.emit.c.cc import compilers
from polyc.emit.interface import Interface
from polyc.emit.kernel import address
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.scop import Scop

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
COMPILERS = compilers()

_CTYPES: dict[str, Any] = {
    "bool_": ctypes.c_uint8, "i8": ctypes.c_int8, "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "u16": ctypes.c_uint16,
    "i32": ctypes.c_int32, "u32": ctypes.c_uint32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64,
    "f16": ctypes.c_uint16, "bf16": ctypes.c_uint16, "f32": ctypes.c_float, "f64": ctypes.c_double,
}  # fmt: skip


def compiled(compiler: str, source: Path, out: Path, *flags: str) -> Path:
    """The shared object that `compiler` makes of a C source; any warning fails."""
    command = [compiler, *STRICT, *flags, "-shared", "-fPIC", str(source), "-o", str(out), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[:8])}: {done.stderr[:1500]}"
    return out


def scalar_value(dtype: str, value: Any) -> Any:
    """A number as the C function takes it: f16 and bf16 as their bits."""
    kind = _CTYPES[dtype]
    if dtype in ("f16", "bf16"):
        return kind(int(np.asarray(value).view(np.uint16)))
    return kind(np.asarray(value).item())


def call(library: Path, interface: Interface, scop: Scop, args: Sequence[Any], scratch: bool = False) -> list[Any]:
    """Arrays updated in place, then results, after a call of the C function on copies of `args`.

    The results' memory is poisoned before; guards behind each written array stay as they are.
    With `scratch` the caller brings the memory of local arrays.
    """
    given = {n: np.array(a, scop.arrays[n].dtype.np) for n, a in zip(scop.args, args, strict=True)}
    sizes = bind_sizes(scop, {n: a.shape for n, a in given.items()})
    written, guards, values = [], [], []
    for p in interface.parameters:
        shape = tuple(evaluate(e, sizes) for e in p.array.shape)
        if p.role == "scalar":
            values.append(scalar_value(p.dtype.name, given[p.array.name]))
            continue
        if p.role == "in":
            values.append(ctypes.c_void_p(address(given[p.array.name])))
            continue
        count = int(np.prod(shape, dtype=np.int64))
        raw = np.full(count * p.dtype.bytes + 64, 0xA5, np.uint8)
        array = raw[: count * p.dtype.bytes].view(p.dtype.np).reshape(shape)
        if p.role == "inout":
            array[...] = given[p.array.name]
        guards.append(raw[count * p.dtype.bytes :])
        written.append(array)
        values.append(ctypes.c_void_p(address(raw)))
    numbers = [ctypes.c_int64(sizes[p]) for p, _ in interface.sizes]
    loaded = ctypes.CDLL(str(library))
    function = getattr(loaded, f"{interface.name}_with" if scratch else interface.name)
    function.restype = ctypes.c_int
    if scratch:
        size = getattr(loaded, f"{interface.name}_scratch_bytes")
        size.restype = ctypes.c_int64
        memory = np.full(size(*numbers) + 128, 0xA5, np.uint8)
        start = (address(memory) + 63) // 64 * 64
        numbers.append(ctypes.c_void_p(start))
        guards.append(memory[start - address(memory) + size(*numbers[:-1]) :])
    assert function(*values, *numbers) == 0
    assert all((g == 0xA5).all() for g in guards), "written behind an array"
    inout = [
        a for a, p in zip(written, (p for p in interface.parameters if p.role in ("inout", "out"))) if p.role == "inout"
    ]
    out = [
        a for a, p in zip(written, (p for p in interface.parameters if p.role in ("inout", "out"))) if p.role == "out"
    ]
    return [*inout, *out]


def wanted(operator: Any, args: Sequence[Any]) -> list[np.ndarray]:
    """Arrays updated in place, then results, of the plain-Python run."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    results = operator.python(*copies)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    inout = [p.inout for p in operator.signature.params]
    return [*(c for c, flag in zip(copies, inout, strict=True) if flag), *results]


def assert_equal(got: Sequence[np.ndarray], want: Sequence[Any], tolerance: float = 1e-5) -> None:
    """Equal exactly for integers and booleans, within the tolerance of the dtype for floats."""
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        y = np.asarray(y)
        assert x.shape == y.shape and x.dtype == y.dtype
        if y.dtype.kind in "iub":
            np.testing.assert_array_equal(x, y)
        else:
            loose = {2: 2e-2, 4: tolerance, 8: tolerance / 1000}[y.dtype.itemsize]
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=loose, atol=loose)
