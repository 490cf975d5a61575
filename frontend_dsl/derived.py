"""`op.grad` and `op.jvp`: operators that are made from the Scop of another one.

A derived operator has no text. It is derived anew for each specialisation of the operator it comes from, when it is
needed: a call translates that operator for the shapes and constants given, and derives the Scop. `.python` runs the
Scop's statements one by one, in its own order, in the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.poly.adjoint.joint import adjoint, forward_and_backward
from polyc.poly.adjoint.tangent import tangent
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.budgets import DERIVATIVE, budget
from polyc.poly.dtypes import i64
from polyc.poly.errors import ArgumentError, PolycError
from polyc.poly.expr import Const, Expr, Var, walk
from polyc.poly.hooks import resolve
from polyc.poly.host_arrays import given_arrays, returned
from polyc.poly.scop import Array, Origin, Scop

from .annotations import Dim
from .operator import Operator
from .reads import Reads
from .signature import Param, Signature

_MODES: dict[str, Callable[[Scop, Sequence[str] | None], Scop]] = {
    "grad": lambda scop, wrt: adjoint(scop, wrt).scop,
    "jvp": lambda scop, wrt: tangent(scop, wrt).scop,
    "forward": lambda scop, wrt: forward_and_backward(scop, wrt).forward,
    "backward": lambda scop, wrt: forward_and_backward(scop, wrt).backward,
}
_WHAT = {
    "grad": "The adjoint of {}.", "jvp": "The tangent of {}.",
    "forward": "{}, and what its adjoint needs of it.",
    "backward": "The adjoint of {}, given what its forward returns.",
}  # fmt: skip


class Derived(Operator):
    """What is derived from an operator with respect to some of its arguments: the adjoint (`grad`), the tangent
    (`jvp`), or the adjoint in two parts (`forward`, `backward`)."""

    has_text = False

    def __init__(self, original: Operator, mode: str, wrt: tuple[str, ...] | None) -> None:
        self.original, self.mode, self.wrt = original, mode, wrt
        self.fn = original.fn
        self.name = f"{original.name}_{mode}"
        self.__name__ = self.__qualname__ = self.name
        self.__doc__ = _WHAT[mode].format(original.usage)
        self.reassociate, self.fast_math = original.reassociate, original.fast_math
        self._kernels, self._families, self._quick = {}, {}, {}
        self._takes_out = original._takes_out
        self._signature: Signature | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Derived, (self.original, self.mode, self.wrt)

    @property
    def signature(self) -> Signature:
        """The parameters of the original, none of them updated in place, then the adjoints of its results (for
        `jvp`: the tangents of the arguments; for `backward`: what `forward` returns stands before the adjoints).

        Raises:
            ArgumentError: they are not known before a call, because the original needs constants or takes any rank.
        """
        if self._signature is None:
            constants = self.original.signature.constants
            self._signature = self._signature_of(self._derived(Origin(dict(constants), {}, {}))[0])
        return self._signature

    @signature.setter
    def signature(self, value: Signature) -> None:
        """Known from a call's arguments."""
        self._signature = value

    def _signature_of(self, scop: Scop) -> Signature:
        original = self.original.signature
        params = [replace(p, inout=False) for p in original.params]
        known = set(original.dims())
        for name in scop.args[len(params) :]:
            array = scop.arrays[name]
            params.append(Param(name, array.dtype, tuple(_declared(array, known)), False))
        return Signature(tuple(params), original.constants, None, original.absent)

    # ---- translation -----------------------------------------------------------------------

    def _translated(self, origin: Origin) -> tuple[Scop, Reads]:
        known = {p.name for p in self.original.signature.params}
        shapes = {n: shape for n, shape in origin.shapes.items() if n in known}
        return self._derived(Origin(origin.constants, origin.sizes, shapes))

    def _derived(self, origin: Origin) -> tuple[Scop, Reads]:
        scop, reads = self.original._translated(origin)
        stage = f"{self.name}: deriving the program"
        with budget(stage, DERIVATIVE, "derive a smaller part of it"):
            made = _MODES[self.mode](scop, self._named(scop))
        return replace(made, name=self.name, origin=origin), reads

    def _named(self, scop: Scop) -> tuple[str, ...] | None:
        """The arrays to derive by: parameters may be called otherwise in the Scop."""
        if self.wrt is None:
            return None
        names = {p.name: n for p, n in zip(self.original.signature.params, scop.args)}
        return tuple(names.get(n, n) for n in self.wrt)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, int], dict[str, Any]]:
        if self._signature is None:
            try:
                self.signature  # noqa: B018
            except ArgumentError:  # these arguments say what the original alone leaves open
                self._signature = self._signature_for(args, kwargs)
        return super()._bind(args, kwargs)

    def _signature_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Signature:
        params = self.original.signature.params
        mine = {*self.original.signature.constants, *self.original.signature.dims(), *(p.name for p in params)}
        own = {k: v for k, v in kwargs.items() if k in mine}
        values, _, constants = self.original._bind(args[: len(params)], own)
        shapes = {p.name: v.shape for p, v in zip(params, values) if p.shape is not None}
        numbers = {n: tuple(Const(int(e), i64) for e in shape) for n, shape in shapes.items()}
        return self._signature_of(self._derived(Origin(constants, {}, numbers))[0])

    # ---- running ---------------------------------------------------------------------------

    def python(self, *args: Any, **kwargs: Any) -> Any:
        """Run the statements one by one in the reference interpreter: slow, and the meaning of the program.

        Raises:
            BoundsError: a subscript is outside.
        """
        out = kwargs.pop("out", None) if self._takes_out else None
        values, _, constants = self._bind(args, kwargs)
        shapes = {p.name: v.shape for p, v in zip(self.signature.params, values) if p.shape is not None}
        numbers = {n: tuple(Const(int(e), i64) for e in shape) for n, shape in shapes.items()}
        scop = self.translated(Origin(constants, {}, numbers))
        found = resolve("run_scop")(scop, dict(zip(scop.args, values)))
        if out is None:
            return found[0] if len(found) == 1 else tuple(found)
        sizes = bind_sizes(scop, {n: np.shape(v) for n, v in zip(scop.args, values)})
        results = [scop.arrays[n] for n in scop.results]
        placed = [(a.name, a.dtype, tuple(evaluate(e, sizes) for e in a.shape)) for a in results]
        for x, made in zip(given_arrays(self.name, placed, out), found, strict=True):
            if x is not None:
                x[...] = made
        return returned(out, list(scop.results), found)


def _declared(array: Array, known: set[str]) -> list[Any]:
    """The shape of a further argument as an annotation has it; '...' where it follows from the others alone."""
    out: list[Any] = []
    for extent in array.shape:
        if isinstance(extent, Const):
            out.append(int(extent.value))
        elif all(isinstance(e, Var) and e.name in known for e in walk(extent) if not e.children() and not _number(e)):
            out.append(Dim(extent))
        else:
            return [Ellipsis]
    return out


def _number(e: Expr) -> bool:
    return isinstance(e, Const)


def grad(operator: Operator, wrt: str | Sequence[str] | None = None) -> Operator:
    """The adjoint of an operator, in reverse mode: an operator that takes the arguments of the original, then the
    adjoint of each floating-point result (those that it returns, then its arrays updated in place), and returns the
    gradient of each argument in `wrt`, in that order (None: of all floating-point arguments). It updates nothing in
    place: the gradient of an array that the original updates is that of the array as it was before.

    Raises:
        PolycError: `operator` is no operator.
        NotDifferentiable: a name in `wrt` is no floating-point argument (other refusals come up when it is used).
    """
    return _made(operator, "grad", wrt)


def jvp(operator: Operator, wrt: str | Sequence[str] | None = None) -> Operator:
    """The tangent of an operator, in forward mode: an operator that takes the arguments of the original, then the
    tangent of each argument in `wrt` (None: of all floating-point arguments), and returns the tangent of each
    floating-point result: those that it returns, then its arrays updated in place. Other arguments do not move.

    Raises:
        PolycError: `operator` is no operator.
        NotDifferentiable: a name in `wrt` is no floating-point argument (other refusals come up when it is used).
    """
    return _made(operator, "jvp", wrt)


def vjp(operator: Operator, wrt: str | Sequence[str] | None = None) -> tuple[Operator, Operator]:
    """The adjoint of an operator in two parts, so that nothing is computed twice: operators `forward` and `backward`.

    `forward` takes the arguments of the original and returns its results, its arrays updated in place (which it leaves
    alone), then what `backward` needs of the way there. `backward` takes the arguments, all that `forward` has
    returned, and the adjoint of each floating-point result; it returns the gradients that `grad` returns.

    Raises:
        PolycError: `operator` is no operator.
        NotDifferentiable: a name in `wrt` is no floating-point argument (other refusals come up when it is used).
    """
    return _made(operator, "forward", wrt), _made(operator, "backward", wrt)


def _made(operator: Operator, mode: str, wrt: str | Sequence[str] | None) -> Operator:
    if not isinstance(operator, Operator):
        raise PolycError(f"polyc.{mode} takes an operator made by @op, not {type(operator).__name__}")
    names = (wrt,) if isinstance(wrt, str) else None if wrt is None else tuple(wrt)
    return Derived(operator, mode, names)
