"""StableHLO's public test programs: a `main` that computes from `@inputs` and checks against `@expected`.

`split` takes the check away: the computation as a program with arguments, its operands, what is expected, and by which
rule. The rules are those of StableHLO's own interpreter (`StablehloTranslateMain.cpp`): `expect_eq` wants equal
elements, `expect_almost_eq` differences of at most 0.001, `expect_close` at most 3 units in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyc.graph_driver.stablehlo.program import Function, Operation, Program, Region, TensorType
from polyc.poly.errors import ModelError

ALMOST = 0.001
ULPS = 3


@dataclass
class Case:
    """`program` computes, for `feeds`, what `expected` has by the rules of the same places."""

    program: Program
    feeds: dict[str, np.ndarray]
    expected: list[np.ndarray]
    rules: list[str]


def split(program: Program) -> Case:
    """The case of a test program. Raises `ModelError`: it has another form."""
    main = program.functions["main"]
    constants: dict[str, np.ndarray] = {}
    arguments: list[tuple[str, TensorType]] = []
    feeds: dict[str, np.ndarray] = {}
    kept: list[Operation] = []
    checks: list[Operation] = []
    for o in main.body.operations:
        callee = str(o.attributes.get("callee", ""))
        if o.name == "stablehlo.custom_call" and callee.startswith("check."):
            checks.append(o)
        elif o.name in ("call", "func.call") and callee == "inputs":
            for name, type_, array in zip(o.results, o.types, values(program, callee), strict=True):
                plain = name.replace("#", "_")
                arguments.append((name, type_))
                feeds[plain] = array
        elif o.name in ("call", "func.call") and callee == "expected":
            constants.update(zip(o.results, values(program, callee), strict=True))
        else:
            kept.append(o)
    if not checks:
        raise ModelError("it checks nothing")
    if any(o.operands[1] not in constants for o in checks):
        raise ModelError("what it expects is computed")
    expected = [constants[o.operands[1]] for o in checks]
    end = Operation("return", main.line, [o.operands[0] for o in checks])
    body = Region(arguments, [*kept[:-1], end])
    functions = {**program.functions, "main": Function("main", main.line, body, [])}
    rules = [str(o.attributes["callee"]).removeprefix("check.") for o in checks]
    return Case(Program(program.source, program.name, functions), feeds, expected, rules)


def values(program: Program, name: str) -> list[np.ndarray]:
    """What a function of constants returns."""
    found: dict[str, np.ndarray] = {}
    for o in program.functions[name].body.operations:
        if o.name == "stablehlo.constant":
            shape = program.shape(o.types[0], o.line)
            found[o.results[0]] = np.asarray(o.attributes["value"]).reshape(shape)
        elif o.name == "return":
            return [found[n] for n in o.operands]
        else:
            raise ModelError(f"@{name} computes ({o.name})")
    raise ModelError(f"@{name} returns nothing")


def difference(rule: str, actual: np.ndarray, expected: np.ndarray) -> str:
    """What is wrong by a rule; nothing if it holds."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if not actual.size:
        return ""
    a, e = actual.astype(_wide(actual)), expected.astype(_wide(expected))
    with np.errstate(all="ignore"):
        same = (a == e) | ((a != a) & (e != e))
        if rule == "expect_eq":
            good = same
        elif rule == "expect_almost_eq":
            good = same | (np.isfinite(a) & np.isfinite(e) & (np.abs(a - e) <= ALMOST))
        elif rule == "expect_close":
            good = same | (np.isfinite(a) & np.isfinite(e) & (ulps(actual, expected) <= ULPS))
        else:
            return f"the check {rule} is not known"
    if good.all():
        return ""
    at = tuple(int(k) for k in np.argwhere(~good)[0])
    return f"{rule}: {int((~good).sum())} of {good.size} elements, {list(at)} is {actual[at]}, not {expected[at]}"


def _wide(array: np.ndarray) -> np.dtype:
    return np.dtype(np.float64) if array.dtype.kind not in "iub" else array.dtype


def ulps(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many floats lie between two finite ones."""
    bits = actual.dtype.itemsize * 8
    half = 1 << (bits - 1)

    def order(array: np.ndarray) -> Sequence[int] | np.ndarray:
        whole = np.ascontiguousarray(array).reshape(-1).view(f"u{bits // 8}").astype(object)
        return np.where(whole >= half, half - whole, whole)

    return np.abs(np.asarray(order(actual) - order(expected))).astype(np.float64).reshape(actual.shape)
