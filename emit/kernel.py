"""Kernels: compiled Scops that are called with NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from polyc.emit import targets
from polyc.emit.loop_ir.loops import Function
from polyc.emit.run_time import threadpool
from polyc.emit.run_time.room import check_room
from polyc.poly.aliasing import separate
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.errors import ArgumentError, BuildError
from polyc.poly.host_arrays import as_array, given_arrays, lends, returned
from polyc.poly.records import dataclass
from polyc.poly.scalars import scalar
from polyc.poly.scop import Array, Scop
from polyc.poly.target import Target
from polyc.poly.violations import violation
from polyc.poly.words import counted

if TYPE_CHECKING:
    from polyc.emit.recipe import Recipe

NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
SOURCES = ("loops", "llvm", "c", "asm", "mlir")
MAX_BOUND = 256  # remembered shape combinations per kernel


def _slow_address(x: ndarray[Any, Any]) -> int:
    return int(x.__array_interface__["data"][0])


def _fast_address(x: ndarray[Any, Any]) -> int:
    """The data pointer is the first field of NumPy's C struct; asking for it takes a dictionary."""
    return _WORD(id(x) + _HEAD).value or 0


_WORD = ctypes.c_void_p.from_address
_HEAD = object.__basicsize__
_PROBE = np.zeros(3)[1:]
address = _fast_address if _fast_address(_PROBE) == _slow_address(_PROBE) else _slow_address


@dataclass
class Report:
    """What compiling a kernel did. `seconds` per stage in order; `cache_hit` None without a cache."""

    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cache_hit: bool | None = None
    code_bytes: int = 0
    source_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Native:
    """Machine code: its image, the address of the kernel's symbol and what keeps it loaded.

    The address is 0 for code of another machine, which is compiled but not loaded."""

    address: int
    owner: Any
    image: bytes


@dataclass(frozen=True, slots=True)
class _Bound:
    """Sizes solved for one combination of argument shapes."""

    values: dict[str, int]
    params: Any  # ctypes array
    results: tuple[tuple[int, ...], ...]


class Kernel:
    """A compiled operator.

    Call it with the arguments in the order of `scop.args` (or by name): arrays of exactly
    the declared element types, of NumPy or of any package that lends its memory (DLPack,
    `__array_interface__`, `__array__`), and numbers for run-time scalars. Arrays that are not C-contiguous
    are copied, those updated in place there and back (with a note in the report). Gives the results as new
    arrays (a tuple when there are several, None when all effects are in place); `out=` takes arrays to
    write them to instead: one, several in a tuple (None: a new array), or a dict by name.
    """

    def __init__(
        self, scop: Scop, function: Function, target: Target, backend: str, threads: int,
        native: Native | None, report: Report,
    ) -> None:  # fmt: skip
        self.scop = scop
        self.function = function
        self.target = target
        self.backend = backend
        self.threads = threads
        self.native = native
        self.recipe: Recipe | None = None
        self._report = report
        self._arguments = [scop.arrays[name] for name in scop.args]
        self._specs = [(a, a.dtype.np, a.kind == "in") for a in self._arguments]
        self._results = [scop.arrays[name] for name in scop.results]
        self._run = NATIVE(0 if native is None else native.address)
        names = [*scop.args, *scop.results, *([function.buffers[-1].name] if function.checks else [])]
        self._order = [names.index(b.name) for b in function.buffers]
        self._pointers = ctypes.c_void_p * max(1, len(self._order))
        self._bound: dict[Any, _Bound] = {}
        self._late = any(c.how == "in the loop" for c in function.checks)  # results may be half written after an error
        self._in_place = [k for k, a in enumerate(self._arguments) if a.kind == "inout"]

    @property
    def name(self) -> str:
        """The symbol of the machine code."""
        return self.function.name

    def __reduce__(self) -> tuple[Any, ...]:
        from polyc.emit.recipe import made

        if self.recipe is None:
            raise BuildError(f"the kernel {self.name} cannot be pickled: it was not made by compiling a schedule")
        return made, self.recipe.parts()

    def __copy__(self) -> Kernel:
        return self  # nothing in it changes

    def __deepcopy__(self, memo: Any) -> Kernel:
        return self

    def __repr__(self) -> str:
        return f"<Kernel {self.name}({', '.join(self.scop.args)}) for {self.target.name}, {self.backend}>"

    def _repr_html_(self) -> str:
        from polyc.poly.hooks import resolve

        return str(resolve("html")(self))

    # ---- calling ----

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run on `args`.

        Raises:
            ArgumentError: number, names, dtypes, shapes or sizes of the arguments do not fit, or local arrays of these
                sizes are larger than the machine's memory.
            BoundsError: an access that was executed lies outside its array.
            BuildError: the kernel was compiled for another machine.
        """
        if out is not None and "out" in self.scop.args:
            named, out = {**named, "out": out}, None
        if named or len(args) != len(self._arguments):
            args = self._by_name(args, named)
        arrays = []
        for x, (array, dtype, read_only) in zip(args, self._specs):
            if type(x) is not ndarray or x.dtype != dtype:
                x = self._converted(array, x)
            if not x.flags.carray:
                if not read_only:
                    self._check_writable(array, x)
                elif not (x.flags.c_contiguous and x.flags.aligned):
                    x = x.copy(order="C")
            arrays.append(x)
        shapes = tuple([x.shape for x in arrays])
        bound = self._bound.get(shapes) or self.bind(shapes)
        if out is None:
            results = [np.empty(shape, a.dtype.np) for a, shape in zip(self._results, bound.results)]
        else:
            results = self._given(out, bound)
        if self._in_place or out is not None:
            self._separate(arrays, results)
            self._run_on_copies([*arrays, *results], bound)
        else:
            self.run([*arrays, *results], bound)
        if out is not None:
            return returned(out, self.scop.results, results)
        given = [r if r.ndim else r[()] for r in results]
        return None if not given else given[0] if len(given) == 1 else tuple(given)

    def run(self, arrays: list[ndarray[Any, Any]], bound: _Bound) -> None:
        """Execute on checked arrays: arguments, then results. Raises `BoundsError` as a call does."""
        checks = self.function.checks
        record = np.zeros(len(checks), np.uint64) if checks else None
        if record is not None:
            arrays = [*arrays, record]
        if self.native is None:
            names = [b.name for b in self.function.buffers]
            from polyc.emit.interpreter import interp

            interp.run(self.function, {n: arrays[k] for n, k in zip(names, self._order)}, bound.values)
        else:
            if not self.native.address:
                targets.check_runs_here(self.target)
            pointers = self._pointers(*[address(arrays[k]) for k in self._order])
            self._run(pointers, bound.params, threadpool.handle(self.threads) if self.threads > 1 else None)
        if record is not None and any(found := record.tolist()):
            raise violation(checks, found, bound.values)

    def bind(self, shapes: tuple[tuple[int, ...], ...], known: Mapping[str, int] | None = None) -> _Bound:
        """Sizes for these argument shapes (remembered); `known` are those that no shape tells. Raises `ArgumentError`
        as a call does."""
        key = (shapes, *known.items()) if known else shapes
        found = self._bound.get(key)
        if found is None:
            values = bind_sizes(self.scop, dict(zip(self.scop.args, shapes)), known)
            check_room(self.function, values)
            params = (ctypes.c_int64 * max(1, len(values)))(*[values[p] for p in self.function.params])
            sizes = tuple(tuple(evaluate(e, values) for e in a.outside) for a in self._results)
            found = _Bound(values, params, sizes)
            if len(self._bound) >= MAX_BOUND:
                self._bound.clear()
            self._bound[key] = found
        return found

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        names = self.scop.args
        values = dict(zip(names, args))
        if len(args) > len(names):
            raise ArgumentError(
                f"{self.scop.name} takes {counted(len(names), 'argument')} ({', '.join(names)}), got {len(args)}"
            )
        for name, value in named.items():
            if name not in names:
                raise ArgumentError(f"{self.scop.name} has no argument '{name}' (arguments: {', '.join(names)})")
            if name in values:
                raise ArgumentError(f"{self.scop.name}: argument '{name}' is given twice")
            values[name] = value
        missing = [n for n in names if n not in values]
        if missing:
            raise ArgumentError(f"{self.scop.name}: argument '{missing[0]}' is missing")
        return tuple(values[n] for n in names)

    def _run_on_copies(self, arrays: list[ndarray[Any, Any]], bound: _Bound) -> None:
        """Execute; written arrays that machine code cannot use as they lie are copied there and back."""
        dense = [x if x.flags.c_contiguous and x.flags.aligned else x.copy(order="C") for x in arrays]
        if self._late:
            count = len(self._arguments)
            dense[count:] = [np.empty(x.shape, x.dtype) for x in arrays[count:]]
        self.run(dense, bound)
        for name, x, copy in zip((*self.scop.args, *self.scop.results), arrays, dense):
            if x is not copy:
                x[...] = copy
                if x.flags.c_contiguous and x.flags.aligned:
                    continue
                note = f"'{name}' is copied there and back in calls where it is not contiguous (row-major)"
                if note not in self._report.notes:
                    self._report.notes.append(note)

    def _check_writable(self, a: Array, x: ndarray[Any, Any]) -> None:
        if not x.flags.writeable:
            raise ArgumentError(f"{self.scop.name}: '{a.name}' is updated in place, but the array given is read-only")

    def _converted(self, a: Array, x: Any) -> ndarray[Any, Any]:
        where = f"{self.scop.name}: argument '{a.name}'"
        if a.kind == "inout" and not lends(x):
            raise ArgumentError(f"{where} is updated in place and must be a NumPy array, not {type(x).__name__}")
        if a.scalar or (not a.shape and isinstance(x, bool | int | float) and not isinstance(x, np.generic)):
            return np.asarray(scalar(x, a.dtype, where))
        try:
            array = as_array(x, where, a.kind == "inout") if lends(x) else np.asarray(x)
        except (ValueError, TypeError) as error:
            raise ArgumentError(f"{where} is no array: {error}") from None
        if array.dtype != a.dtype.np:
            shown = array.dtype if array.dtype.isnative else f"{array.dtype.str} (another byte order)"
            raise ArgumentError(f"{where} has dtype {shown}, expected {a.dtype.np.name}")
        return array

    def _given(self, out: Any, bound: _Bound) -> list[ndarray[Any, Any]]:
        """The arrays of `out=`, checked, and new ones for results that it leaves out."""
        results = [(a.name, a.dtype, shape) for a, shape in zip(self._results, bound.results)]
        given = given_arrays(self.scop.name, results, out)
        return [np.empty(shape, t.np) if x is None else x for x, (_, t, shape) in zip(given, results)]

    def _separate(self, arrays: list[ndarray[Any, Any]], results: list[ndarray[Any, Any]]) -> None:
        """Written arrays overlap no other: inputs that do are copied, the rest is refused."""
        written = [(self._arguments[k].name, arrays[k]) for k in self._in_place]
        written += [(a.name, x) for a, x in zip(self._results, results)]
        inputs = [k for k in range(len(arrays)) if k not in self._in_place]
        apart = separate(self.scop.name, written, [(self._arguments[k].name, arrays[k]) for k in inputs])
        for k, x in zip(inputs, apart):
            arrays[k] = x

    def alone(self) -> Kernel:
        """The same machine code, its parallel loops on the caller's thread."""
        made = Kernel(self.scop, self.function, self.target, self.backend, 1, self.native, self._report)
        made.recipe = self.recipe
        return made

    # ---- looking inside ----

    def source(self, kind: str = "loops") -> str:
        """The kernel as text: `loops`, `llvm`, `c`, `asm` or `mlir`.

        Raises:
            BuildError: there is no such text for this kernel.
        """
        from polyc.emit.compile import source_text

        return source_text(self.function, self.target, kind)

    def report(self) -> dict[str, Any]:
        """How it was compiled: stages and their seconds, cache, sizes in bytes, notes."""
        r = self._report
        return {
            "name": self.name,
            "backend": self.backend,
            "target": self.target.name,
            "threads": self.threads,
            "seconds": dict(r.seconds),
            "cache_hit": r.cache_hit,
            "code_bytes": r.code_bytes,
            "source_bytes": r.source_bytes,
            "notes": list(r.notes),
        }


def unsupported(kind: str) -> BuildError:
    """The error for an unknown kind of source."""
    return BuildError(f"a CPU kernel has no source of kind '{kind}'; choose from {', '.join(SOURCES)}")
