"""From an operator to its `Scop`: set up the arguments, read the body, hand over to `program`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from polyc.poly.dtypes import i64
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Const, Expr, Var, substitute, walk
from polyc.poly.scop import Origin, Scop
from polyc.poly.words import counted

from .annotations import Dim, size_text
from .builder import Builder, records_of
from .errors import DslError
from .fold import difference, tidy
from .frame import Choices, Frame, Program
from .locals import is_scalar
from .operator import Operator
from .program import finish
from .reads import Reads, of_object
from .signature import declared_at
from .sizes import axes_of, solve_sizes
from .statements import Returned, execute
from .values import ArrayValue, Type, describe, join

PASS_LIMIT = 20


def translate(
    operator: Operator,
    shapes: Mapping[str, tuple[Expr, ...]],
    sizes: Mapping[str, Expr],
    constants: Mapping[str, Any],
) -> tuple[Scop, Reads]:
    """The Scop of `operator` for these shapes, sizes and constants, and what it read from outside.

    The body is read until the dtypes of local scalars settle: `s = 0.0` gets its dtype
    from values that it meets later in the text.
    """
    types: dict[int, Type] = {}
    outside: tuple[str, ...] = ()
    choices = Choices()
    passes = 0
    while passes < PASS_LIMIT:
        known = len(choices)
        program, frame, args = _start(operator, shapes, sizes, constants, types, outside, choices)
        problem: DslError | None = None
        returned: Returned | None = None
        try:
            returned = execute(frame, frame.source.body)
        except DslError as error:
            problem = error
            choices.unrolled |= program.wanted
        if len(choices) > known:  # another program now
            types = {}
            continue
        passes += 1
        found = {k: join(types[k], t) if k in types else t for k, t in program.seen.items()}
        if program.given == found and not program.outside:  # the next pass would be this one again
            break
        types, outside = found, tuple(dict.fromkeys((*outside, *program.outside)))
    for mistake in (problem, *program.mixed):
        if mistake is not None:
            raise mistake
    results = _results(operator, frame, returned)
    scop = finish(program.builder, operator.name, args, results, operator.reassociate, operator.fast_math)
    return replace(scop, origin=Origin(dict(constants), dict(sizes), dict(shapes))), program.reads


def _start(
    operator: Operator,
    shapes: Mapping[str, tuple[Expr, ...]],
    known: Mapping[str, Expr],
    constants: Mapping[str, Any],
    types: Mapping[int, Type],
    outside: tuple[str, ...],
    choices: Choices,
) -> tuple[Program, Frame, tuple[str, ...]]:
    signature = operator.signature
    sizes = solve_sizes(signature, shapes, known)
    for name in (*signature.dims(), *outside):
        sizes.setdefault(name, Var(name))
    every = [*sizes.values(), *(e for shape in shapes.values() for e in shape)]
    params = tuple(dict.fromkeys(v.name for e in every for v in walk(e) if isinstance(v, Var)))
    builder = Builder(params)
    program = Program(builder, types, choices)
    frame = Frame(operator.fn, program, sizes, True)
    args = []
    for p in signature.params:
        span = declared_at(frame.source, p.name)
        shape: tuple[Expr, ...] = ()
        if p.shape is not None:
            if p.name in shapes:
                shape = shapes[p.name]
                axes_of(p, len(shape))
            elif p.any_rank:
                raise ArgumentError(f"{operator.name}: {p.name} has any rank, so its shape is needed: {p.name}=(3, 4)")
            else:
                shape = tuple(tidy(substitute(_declared(d), sizes)) for d in p.shape)
        kind = "inout" if p.inout else "in"
        array = builder.add_array(ArrayValue(p.name, p.dtype, shape, kind, span, scalar=p.shape is None))
        frame.env[p.name] = array
        args.append(array.name)
    for shape_of in (*(p.shape for p in signature.params), *(r.shape for r in signature.results or ())):
        for extent in shape_of or ():
            if isinstance(extent, Dim):
                builder.ranges |= extent.ranges()
    for name, value in signature.constants.items():
        if constants[name] is value:  # a default: others are part of the key of a call
            program.reads.add(of_object(value), value)
    frame.env.update(constants)
    frame.env.update(dict.fromkeys(signature.absent))
    return program, frame, tuple(args)


def _declared(extent: Any) -> Expr:
    return extent.expr if isinstance(extent, Dim) else Const(extent, i64)


def _results(operator: Operator, frame: Frame, returned: Returned | None) -> tuple[str, ...]:
    """Check and mark the returned arrays."""
    declared = operator.signature.results
    if returned is None or returned.value is None:
        if declared is not None:
            raise frame.error(frame.source.node, f"{operator.name} declares a result but returns none",
                              "end with 'return C', or remove the result type", word="def")  # fmt: skip
        if not any(a.kind == "inout" for a in frame.builder.arrays.values()):
            hint = "return an array made by empty(...), or mark a parameter inout(...)"
            reason = f"{operator.name} has no effect: nothing is returned or updated"
            raise frame.error(frame.source.node, reason, hint, word="def")
        return ()
    node = returned.node
    values = returned.value if isinstance(returned.value, (tuple, list)) else (returned.value,)
    if declared is not None and len(declared) != len(values):
        raise frame.error(
            node, f"{counted(len(values), 'result')}, but the annotation declares {len(declared)}", "make them agree"
        )
    written = {r.array.name for r in records_of(frame.builder.root)}
    names: list[str] = []
    for n, value in enumerate(values):
        if not isinstance(value, ArrayValue):
            raise frame.error(
                node,
                f"{'a scalar' if is_scalar(value) else describe(value)} is returned",
                "return arrays: r = empty((), f32), then r[()] = value",
            )
        array = frame.builder.arrays[value.name]
        if array.kind == "in":
            raise frame.error(node, f"the input {value.name} is returned", "copy it into an array made by empty(...)")
        if array.kind == "inout":
            raise frame.error(
                node, f"{value.name} is returned, but it is updated in place", "return nothing for inout parameters"
            )
        if value.name in names:
            raise frame.error(node, f"{value.name} is returned twice", "return each array once")
        if array.scope:
            raise frame.error(node, f"{value.name} was created inside a loop", "create results before the loops")
        if value.name not in written:
            raise frame.error(node, f"{value.name} is returned but never written", "assign its elements first")
        if declared is not None:
            _check_result(frame, declared[n], value, node)
        array.kind = "out"
        names.append(value.name)
    return tuple(names)


def _check_result(frame: Frame, declared: Any, value: ArrayValue, node: Any) -> None:
    hint = "change the annotation or the array"
    if declared.dtype != value.dtype:
        raise frame.error(node, f"{value.name} is {value.dtype}, the annotation says {declared.dtype}", hint)
    if any(e is Ellipsis for e in declared.shape):
        return
    if len(declared.shape) != value.rank:
        raise frame.error(node, f"{value.name} has rank {value.rank}, the annotation says {len(declared.shape)}", hint)
    for axis, (want, have) in enumerate(zip(declared.shape, value.shape)):
        expr = tidy(substitute(_declared(want), frame.sizes))
        unknown = [v.name for v in walk(expr) if isinstance(v, Var) and v.name not in frame.builder.params]
        if not unknown and difference(expr, have) != 0:
            raise frame.error(
                node, f"axis {axis} of {value.name} is {size_text(have)}, the annotation says {size_text(expr)}", hint
            )
