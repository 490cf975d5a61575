"""`@op` and the operator object."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, overload

import numpy as np

from polyc.poly.aliasing import separate
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.budgets import FRONT_END, budget
from polyc.poly.collection import seldom_collected
from polyc.poly.dtypes import i64
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Const, Expr
from polyc.poly.hooks import resolve
from polyc.poly.host_arrays import as_array, dtype_error, given_arrays, returned
from polyc.poly.scalars import scalar
from polyc.poly.scop import Origin, Scop
from polyc.poly.words import article, counted

from .annotations import Dim, bound_dims, running_python, with_integers
from .checked_arrays import checked, plain, running
from .errors import DslError
from .frozen import TooLarge, freeze
from .reads import Reads
from .scheduled import fitting
from .signature import REQUIRED, Param, read_signature
from .sizes import solve_sizes
from .source import remember

VARIANTS = 8  # kernels kept for the same shapes and constants while what the operator reads changes
_QUICK = (np.ndarray, float, int, bool)


class Operator:
    """A compiled function of the hybrid language; made by `@op`.

    `op(*arrays)` compiles for these dtypes and sizes on first use and runs;
    `op.python(*arrays)` runs the same function as plain Python on NumPy arrays.
    """

    has_text = True  # derived operators (`grad`) have none

    def __init__(self, fn: FunctionType, reassociate: bool = True, fast_math: bool = False) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.reassociate = reassociate
        self.fast_math = fast_math
        self.signature = read_signature(fn)
        self._kernels: dict[Any, list[tuple[Reads, Any]]] = {}
        self._families: dict[Any, Any] = {}  # what kernels for different sizes share, by constants
        self._quick: dict[Any, Any] = {}  # by dtypes and shapes alone, for calls without keywords
        own = (*self.signature.constants, *self.signature.dims(), *(p.name for p in self.signature.params))
        self._takes_out = "out" not in own  # else `out=` means that
        functools.update_wrapper(self, fn)

    def __repr__(self) -> str:
        return f"<operator {self.usage}>"

    def __reduce__(self) -> tuple[Any, ...]:
        from .pickling import by_name, packed, unpacked_operator

        return by_name(self) or (unpacked_operator, (packed(self),))

    def __copy__(self) -> Operator:
        return self  # like a function

    def __deepcopy__(self, memo: Any) -> Operator:
        return self

    @property
    def usage(self) -> str:
        """The call as the user would write it."""
        names = [p.name for p in self.signature.params]
        constants = [k if v is REQUIRED else f"{k}={v!r}" for k, v in self.signature.constants.items()]
        return f"{self.name}({', '.join([*names, *(['*', *constants] if constants else [])])})"

    @property
    def notes(self) -> tuple[str, ...]:
        """What its kernels report beside results: decisions of the compiler, and copies that calls needed."""
        kernels = [kernel for made in self._kernels.values() for _, kernel in made]
        return tuple(dict.fromkeys(note for kernel in kernels for note in kernel.report()["notes"]))

    # ---- translation -----------------------------------------------------------------------

    def scop(self, **given: Any) -> Scop:
        """The operator as a `Scop`.

        Keywords give compile-time constants (`stride=2`), sizes (`M=512`; those not given
        stay symbolic) and shapes of array parameters (`X=(3, 4)`, needed for `f32[...]`).

        Raises:
            DslError: the program is outside the language.
            ArgumentError: a keyword that fits nothing, or a missing one.
        """
        constants, sizes, shapes = self.sorted_keywords(given)
        return self.translated(Origin(constants, sizes, shapes))

    def translated(self, origin: Origin) -> Scop:
        """The Scop for these constants, sizes and shapes, as the operator and all that it reads are now."""
        return self._translated(origin)[0]

    def _translated(self, origin: Origin) -> tuple[Scop, Reads]:
        from .translate import translate

        try:
            with budget(f"{self.name}: making a Scop of the program", FRONT_END, "write it as several operators"):
                return translate(self, origin.shapes, origin.sizes, origin.constants)
        except DslError as error:
            raise error.with_traceback(None) from None
        except RecursionError:
            hint = "split long sums or products over several statements"
            raise DslError(f"{self.name}: an expression is nested too deeply", hint=hint) from None

    def sorted_keywords(
        self, given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Expr], dict[str, tuple[Expr, ...]]]:
        """Keywords of `scop` by what they mean.

        Raises:
            ArgumentError: a keyword is no constant, size or array of the operator, or a constant is missing.
        """
        constants = dict(self.signature.constants)
        sizes: dict[str, Expr] = {}
        shapes: dict[str, tuple[Expr, ...]] = {}
        arrays = {p.name for p in self.signature.params if p.shape is not None}
        dims = self.signature.dims()
        for key, value in given.items():
            if key in constants:
                constants[key] = value
            elif key in arrays:
                extents = value if isinstance(value, (tuple, list)) else (value,)
                shapes[key] = tuple(_extent(key, e) for e in extents)
            elif key in dims:
                sizes[key] = _extent(key, value)
            else:
                known = ", ".join([*constants, *dims, *sorted(arrays)]) or "none"
                raise ArgumentError(f"{self.name} has no constant, size or array named {key} (it has: {known})")
        for key, value in constants.items():
            if value is REQUIRED:
                raise ArgumentError(f"{self.name} needs the compile-time constant {key}: pass {key}=...")
        return constants, sizes, shapes

    def schedule(self, target: Any = "cpu", **given: Any) -> Any:
        """The automatic `Schedule` for any target that `compile` takes; keywords as in `scop`, sizes not given stay
        symbolic."""
        return resolve("auto_schedule")(self.scop(**given), target, {})

    def compile(
        self, target: Any = "cpu", schedule: Any = None, threads: int | None = None, checks: bool | None = None,
        **given: Any,
    ) -> Any:  # fmt: skip
        """A `Kernel`; keywords as in `scop`, sizes not given stay symbolic. `checks=False` leaves out the checks of
        accesses that are not proven to stay in their arrays (None: unless `POLYC_CHECK=0`).

        `schedule` is one made from this operator's `scop()`: it brings its constants and sizes, and
        fixes those sizes given here that it left symbolic. Without one the automatic schedule is used.

        Raises:
            ScheduleError: the schedule belongs to another operator, or to an older definition of this one.
            ArgumentError: a value given here contradicts what the schedule was made for.
        """
        build = resolve("compile_operator")
        if schedule is None:
            return build(self.scop(**given), target=target, schedule=None, threads=threads, sizes={}, checks=checks)
        scop, sizes = fitting(self, schedule, given)
        return build(scop, target=target, schedule=schedule, threads=threads, sizes=sizes, checks=checks)

    def build(
        self, folder: Any, emit: Any = None, target: Any = None, schedule: Any = None, threads: int | None = None,
        name: str | None = None, checks: bool | None = None, **given: Any,
    ) -> Any:  # fmt: skip
        """Write the operator as files that need neither Python nor polyc (`polyc build`); their paths by kind.

        `emit` names kinds of files, `c`, `h`, `ll`, `asm`, `obj`, `so` (None: C source, header, shared object).
        Keywords as in `scop`; sizes not given are arguments of the C function, called `name` (None: as this
        operator). `threads` of parallel loops are 1 when not given; `checks` as for `compile`: the function returns
        `NAME_OUT_OF_BOUNDS` after a violation.

        Raises:
            ArgumentError: an unknown kind of file, or a keyword that fits nothing.
            BuildError: no such target, no linker, or the folder cannot be written.
        """
        make = resolve("build_operator")
        scop, sizes = (self.scop(**given), None) if schedule is None else fitting(self, schedule, given)
        built = make(scop, folder, emit, sizes, target=target, schedule=schedule, threads=threads, name=name,
                     usage=self.usage, checks=checks)  # fmt: skip
        return dict(built.files)

    def grad(self, wrt: str | Sequence[str] | None = None) -> Operator:
        """The adjoint operator, in reverse mode: it takes the arguments of this one, then the adjoint of each
        floating-point result (those returned, then arrays updated in place), and returns the gradient of each argument
        in `wrt`, in that order (None: of all floating-point arguments). docs/derivatives.md.

        Raises:
            NotDifferentiable: when it is used, if this operator, or one of the names, has no derivative.
        """
        from .derived import grad

        return grad(self, wrt)

    def jvp(self, wrt: str | Sequence[str] | None = None) -> Operator:
        """The tangent operator, in forward mode: it takes the arguments of this one, then the tangent of each argument
        in `wrt` (None: of all floating-point arguments), and returns the tangent of each floating-point result.

        Raises:
            NotDifferentiable: as `grad`.
        """
        from .derived import jvp

        return jvp(self, wrt)

    def vjp(self, wrt: str | Sequence[str] | None = None) -> tuple[Operator, Operator]:
        """The adjoint in two parts, `forward, backward`: what the first has computed is not computed again.

            y, *kept = forward(*arguments)                    # its results, then what the other part needs
            gradients = backward(*arguments, y, *kept, d_y)   # those of `grad`

        Raises:
            NotDifferentiable: as `grad`.
        """
        from .derived import vjp

        return vjp(self, wrt)

    # ---- running ---------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays of NumPy or of a package that lends its memory; constants by keyword.

        Compiled for these dtypes and sizes on first use. Results are new arrays, or those of `out=`: an array, several
        in a tuple (None: a new one), or a dict by name. They may overlap inputs, which are read as they were before.
        """
        if running_python():
            return self.python(*args, **kwargs)
        quick, out = None, None
        if kwargs and self._takes_out and "out" in kwargs:
            out = kwargs.pop("out")
        if not kwargs:
            quick = tuple([(a.dtype, a.shape) if type(a) is np.ndarray else type(a) for a in args])
            found = self._quick.get(quick)
            if found is not None and found[0]():
                return found[1](*args) if out is None else found[1](*args, out=out)  # it checks its arguments itself
        recorded = next((a for a in (*args, *kwargs.values()) if hasattr(type(a), "__polyc_operator__")), None)
        if recorded is not None:  # a graph that is being recorded takes the operator as a node
            return recorded.__polyc_operator__(self, args, kwargs)
        values, sizes, constants = self._bind(args, kwargs)
        shapes = tuple((p.name, v.shape) for p, v in zip(self.signature.params, values) if p.shape is not None)
        reads, kernel = self._kernel(shapes, sizes, constants)
        if quick is not None and all(type(a) in _QUICK for a in args):
            self._quick[quick] = reads.holds, kernel
        return kernel(*values) if out is None else kernel(*values, out=out)

    def _kernel(
        self, shapes: tuple[tuple[str, tuple[int, ...]], ...], sizes: Mapping[str, int], constants: Mapping[str, Any]
    ) -> tuple[Reads, Any]:
        """The kernel for these shapes and constants, and for all that the operator reads as it is now."""
        family = None
        try:
            frozen = tuple((k, freeze(v)) for k, v in constants.items())
            made = self._kernels.setdefault((shapes, frozen), [])
            if not any(p.any_rank for p in self.signature.params) and set(sizes) == set(self.signature.dims()):
                family = self._families.get(frozen) or self._families.setdefault(frozen, resolve("further_sizes")())
        except TooLarge:
            made = []
        for reads, kernel in made:
            if reads.holds():
                return reads, kernel
        with seldom_collected():
            kernel, reads = self._made(dict(shapes), sizes, constants, family)
        made[:] = [*made[1 - VARIANTS :], (reads, kernel)]
        return reads, kernel

    def _made(
        self, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int], constants: Mapping[str, Any], family: Any
    ) -> tuple[Any, Reads]:
        """A kernel for these shapes, of the sizes' `family` if there is one, and what the operator has read."""
        numbers = {name: tuple(Const(n, i64) for n in shape) for name, shape in shapes.items()}
        scop, reads = self._translated(Origin(constants, {}, numbers))
        if family is None:
            return resolve("compile_operator")(scop, target="cpu", schedule=None, threads=None, sizes={}), reads
        extents = tuple([shapes.get(p.name, ()) for p in self.signature.params])
        return family.kernel(scop, sizes, extents, functools.partial(self._with_symbols, constants)), reads

    def _with_symbols(self, constants: Mapping[str, Any], sizes: Mapping[str, int]) -> Scop:
        """The Scop in which these sizes are numbers and the others symbols."""
        return self.translated(Origin(constants, {name: Const(n, i64) for name, n in sizes.items()}, {}))

    def python(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function as plain Python on NumPy arrays: slow, and the meaning of the program.

        Arguments that share memory are treated as the compiled run does: an input that overlaps an array updated in
        place is read as it was before the call, and two arrays updated in place must not overlap.

        Raises:
            BoundsError: a subscript is outside; negative ones are.
        """
        out = kwargs.pop("out", None) if self._takes_out else None
        values, sizes, constants = self._bind(args, kwargs)
        given = [] if out is None else self._given(values, sizes, constants, out)
        if not running_python():  # a call inside an operator is inlined when compiled: its arguments stay as they are
            values = self._separated(values, [(name, x) for name, x in given if x is not None])
        nested = running_python()
        views = [checked(v, p.name) if p.shape is not None else v for p, v in zip(self.signature.params, values)]
        with bound_dims(sizes), running(self.name):
            made = with_integers(self.fn, sizes)(*views, **constants, **dict.fromkeys(self.signature.absent))
        if not nested:
            made = plain(made, {id(v): x for v, x in zip(views, values)})
        if out is None:
            return made
        results = [np.asarray(r) for r in (made if isinstance(made, tuple) else (made,))]
        for (_, x), r in zip(given, results, strict=True):
            if x is not None:
                x[...] = r
        return returned(out, [name for name, _ in given], results)

    def _given(
        self, values: list[Any], sizes: dict[str, int], constants: dict[str, Any], out: Any
    ) -> list[tuple[str, np.ndarray | None]]:
        """The arrays of `out=` by result, checked as a compiled run does."""
        arrays = {p.name: v.shape for p, v in zip(self.signature.params, values) if p.shape is not None}
        shapes = {name: tuple(Const(n, i64) for n in shape) for name, shape in arrays.items()}
        scop = self.translated(Origin(constants, {}, shapes))
        results = [scop.arrays[name] for name in scop.results]
        known = bind_sizes(scop, {n: arrays.get(n, ()) for n in scop.args})
        placed = [(a.name, a.dtype, tuple(evaluate(e, known) for e in a.shape)) for a in results]
        return list(zip(scop.results, given_arrays(self.name, placed, out), strict=True))

    def _separated(self, values: list[Any], given: Sequence[tuple[str, np.ndarray]]) -> list[Any]:
        pairs = [(p, v) for p, v in zip(self.signature.params, values) if p.shape is not None]
        written = [*((p.name, v) for p, v in pairs if p.inout), *given]
        if not written:
            return values
        read = [(p.name, v) for p, v in pairs if not p.inout]
        apart = dict(zip((name for name, _ in read), separate(self.name, written, read)))
        return [apart.get(p.name, v) for p, v in zip(self.signature.params, values)]

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, int], dict[str, Any]]:
        """Checked arguments in order, the sizes that follow, and the constants."""
        params = self.signature.params
        if len(args) > len(params):
            raise ArgumentError(f"{self.usage} takes {counted(len(params), 'argument')}, not {len(args)}")
        given = dict(zip((p.name for p in params), args))
        constants = dict(self.signature.constants)
        known: dict[str, Expr] = {}
        for key, value in kwargs.items():
            if key in constants:
                constants[key] = value
            elif key in given:
                raise ArgumentError(f"{self.name}: two values for {key}")
            elif any(p.name == key for p in params):
                given[key] = value
            elif key in self.signature.dims():
                known[key] = _extent(key, value)
            else:
                raise ArgumentError(f"{self.usage} has no parameter {key}")
        missing = [p.name for p in params if p.name not in given]
        missing += [k for k, v in constants.items() if v is REQUIRED]
        if missing:
            raise ArgumentError(f"{self.usage}: no value for {missing[0]}")
        values = [_argument(self.name, p, given[p.name]) for p in params]
        shapes = {
            p.name: tuple(Const(int(n), i64) for n in v.shape) for p, v in zip(params, values) if p.shape is not None
        }
        solved = solve_sizes(self.signature, shapes, known)
        sizes = {k: int(v.value) for k, v in solved.items() if isinstance(v, Const)}
        return values, sizes, constants


def _extent(name: str, value: Any) -> Expr:
    if isinstance(value, Dim):
        return value.expr
    number = int(scalar(value, i64, f"the size {name}"))
    if number < 0:
        raise ArgumentError(f"{name}: the size {number} is negative")
    return Const(number, i64)


def _argument(operator: str, p: Param, value: Any) -> Any:
    """An argument as NumPy has it, checked against its annotation."""
    if p.shape is None:
        return scalar(value, p.dtype, f"{operator}: argument '{p.name}'")
    if type(value) is not np.ndarray:
        value = as_array(value, p.name, p.inout)
    if (problem := dtype_error(p.name, value.dtype, p.dtype)) is not None:
        raise problem
    if p.inout and not value.flags.writeable:
        raise ArgumentError(f"{p.name} is updated in place, the argument is read-only")
    return value


class _Decorator:
    """Makes a function an operator: `@op`, or `@op(reassociate=False, fast_math=True)`.

    `reassociate=False` keeps the order of floating-point reductions; `fast_math` allows
    rewrites that change rounding. `op.from_source(text)` does the same for a text.
    """

    @overload
    def __call__(self, fn: Callable[..., Any]) -> Operator: ...

    @overload
    def __call__(
        self, *, reassociate: bool = True, fast_math: bool = False
    ) -> Callable[[Callable[..., Any]], Operator]: ...

    def __call__(self, fn: Any = None, *, reassociate: bool = True, fast_math: bool = False) -> Any:
        """Raises `DslError`: the function's parameters or annotations are outside the language."""
        if fn is None:
            return lambda f: _operator(f, reassociate, fast_math)
        return _operator(fn, reassociate, fast_math)

    def from_source(
        self, text: str, name: str | None = None, scope: dict[str, Any] | None = None, *, reassociate: bool = True,
        fast_math: bool = False,
    ) -> Operator:  # fmt: skip
        """The operator that a text defines, for where Python keeps no source (`exec`, templates, a pipe).

        `text` is Python: the function (with `@op` or without), and what else it needs (`N = dims("N")`, helpers,
        imports). `name` says which of several functions. Other names mean what they do at the call, or in `scope`
        when it is given; those of polyc need no import. Messages call the text `<source>`.

        Raises:
            DslError: it is no text or no Python, defines no such function, or the function is outside the language.
        """
        from .from_text import function_in

        caller = sys._getframe(1)
        local = {} if scope is not None or caller.f_locals is caller.f_globals else dict(caller.f_locals)
        found = function_in(text, name, caller.f_globals if scope is None else scope, local)
        return found if isinstance(found, Operator) else _operator(found, reassociate, fast_math)

    def __repr__(self) -> str:
        return "<decorator polyc.op>"

    def __reduce__(self) -> str:
        return "op"


op = _Decorator()


def _operator(fn: Any, reassociate: bool, fast_math: bool) -> Operator:
    if not isinstance(fn, FunctionType):
        raise DslError(f"@op on {article(type(fn).__name__)}", hint="@op takes a function written with 'def'")
    remember(fn)
    try:
        return Operator(fn, reassociate, fast_math)
    except DslError as error:
        raise error.with_traceback(None) from None
