"""Random operators that work element by element."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from onnx import helper

from benchmarks.cases import Case
from benchmarks.hunting.arrays import Sizes, by, case_of, node, one_of, shape_of, total, values

UNARY = (
    "Abs",
    "Neg",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Exp",
    "Erf",
    "Softplus",
    "Softsign",
    "Elu",
    "LeakyRelu",
    "Selu",
    "HardSigmoid",
    "HardSwish",
    "Sin",
    "Cos",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Mish",
    "Gelu",
    "Reciprocal",
    "ThresholdedRelu",
    "Atan",
    "Celu",
    "Identity",
    "IsNaN",
    "Sinh",
    "Tan",
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "LessOrEqual", "Equal", "PRelu")


def unary(rng: Generator) -> Case:
    what = one_of(rng, *UNARY)
    shape = shape_of(rng, int(rng.integers(1, 5)), total(rng))
    return case_of(f"{what} {by(shape)}", "unary", [node(what)], {"X": values(rng, shape)})


def positive(rng: Generator) -> Case:
    """Operators of positive numbers."""
    what = one_of(rng, "Sqrt", "Log", "Pow")
    shape = shape_of(rng, 2, total(rng))
    x = np.abs(values(rng, shape)) + np.float32(0.1)
    if what != "Pow":
        return case_of(f"{what} {by(shape)}", "unary", [node(what)], {"X": x})
    power = one_of(rng, 2.0, 3.0, 0.5, -0.5, 1.7)
    return case_of(
        f"Pow {power} {by(shape)}", "unary", [node("Pow", ["X", "p"])], {"X": x}, {"p": np.array(power, np.float32)}
    )


def fitting(rng: Generator, shape: Sizes) -> Sizes:
    """A shape that broadcasts to `shape`."""
    kept = tuple(1 if rng.random() < 0.4 else n for n in shape)
    return kept[int(rng.integers(len(kept))) :] if rng.random() < 0.4 else kept


def binary(rng: Generator) -> Case:
    what = one_of(rng, *BINARY)
    shape = shape_of(rng, int(rng.integers(1, 6)), total(rng))
    dtype = (
        one_of(rng, *[np.float32] * 4, np.float64, np.int64, np.int32) if what not in ("PRelu", "Div") else np.float32
    )
    second = fitting(rng, shape)
    first = shape if what == "PRelu" or rng.random() < 0.6 else fitting(rng, shape)
    x, z = values(rng, first, dtype), values(rng, second, dtype)
    name = f"{what} {np.dtype(dtype).name} {by(first)} with {by(second)}"
    if rng.random() < 0.3:
        return case_of(name + " constant", "broadcast", [node(what, ["X", "Z"])], {"X": x}, {"Z": z})
    return case_of(name, "broadcast", [node(what, ["X", "Z"])], {"X": x, "Z": z})


def where(rng: Generator) -> Case:
    shape = shape_of(rng, int(rng.integers(1, 5)), total(rng))
    shapes = [shape if rng.random() < 0.5 else fitting(rng, shape) for _ in range(3)]
    inputs = {"C": values(rng, shapes[0], np.bool_), "X": values(rng, shapes[1]), "Z": values(rng, shapes[2])}
    return case_of(f"Where {' '.join(map(by, shapes))}", "broadcast", [node("Where", ["C", "X", "Z"])], inputs)


def chain(rng: Generator) -> Case:
    """Some pointwise operators in a row, of two inputs and a row of constants."""
    shape = shape_of(rng, int(rng.integers(1, 4)), total(rng))
    nodes, known = [], ["X", "Z", "S"]
    words = []
    count = int(rng.integers(3, 8))
    for k in range(count):
        out = "Y" if k == count - 1 else f"t{k}"
        before = known[-1] if k else "X"
        what = one_of(
            rng, "Sigmoid", "Tanh", "Relu", "Add", "Mul", "Sub", "Max", "Add", "Mul", "Abs", "Erf", "HardSwish"
        )
        more = [one_of(rng, *known[:-1])] if what in BINARY else []
        nodes.append(node(what, [before, *more], [out]))
        known.append(out)
        words.append(what)
    # an input that no node reads would be refused by a peer
    read = {i for n in nodes for i in n.input}
    inputs = {"X": values(rng, shape)} | ({"Z": values(rng, fitting(rng, shape))} if "Z" in read else {})
    constants = {"S": values(rng, shape[-1:])} if "S" in read else {}
    return case_of(f"chain {'-'.join(words)} {by(shape)}", "chain", nodes, inputs, constants, count)


def logic(rng: Generator) -> Case:
    """Booleans, bits and casts."""
    shape = shape_of(rng, int(rng.integers(1, 4)), total(rng))
    what = one_of(rng, "And", "Or", "Xor", "Not", "Cast", "Cast", "Cast", "BitwiseAnd", "BitShift", "Mod", "Clip")
    if what in ("And", "Or", "Xor"):
        inputs = {"X": values(rng, shape, np.bool_), "Z": values(rng, fitting(rng, shape), np.bool_)}
        return case_of(f"{what} {by(shape)}", "logic", [node(what, ["X", "Z"])], inputs)
    if what == "Not":
        return case_of(f"Not {by(shape)}", "logic", [node("Not")], {"X": values(rng, shape, np.bool_)})
    if what == "Cast":
        kinds = (np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.int8)
        source, target = one_of(rng, *kinds), one_of(rng, *kinds)
        x = values(rng, shape, source)
        if np.dtype(target).kind == "u":
            x = np.abs(x) if np.dtype(source).kind in "fi" else x
        cast = node("Cast", to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
        return case_of(f"Cast {np.dtype(source).name}->{np.dtype(target).name} {by(shape)}", "logic", [cast], {"X": x})
    if what == "Clip":
        dtype = one_of(rng, np.float32, np.int64, np.uint8)
        bounds = {"low": np.array(1, dtype), "high": np.array(5, dtype)}
        return case_of(
            f"Clip {np.dtype(dtype).name} {by(shape)}",
            "logic",
            [node("Clip", ["X", "low", "high"])],
            {"X": values(rng, shape, dtype)},
            bounds,
        )
    dtype = one_of(rng, np.uint8, np.int32, np.int64) if what != "BitShift" else np.uint8
    z = np.asarray(rng.integers(1, 7, fitting(rng, shape)), dtype)
    attributes = {"direction": "LEFT"} if what == "BitShift" else {}
    return case_of(
        f"{what} {np.dtype(dtype).name} {by(shape)} with {by(z.shape)}",
        "logic",
        [node(what, ["X", "Z"], **attributes)],
        {"X": values(rng, shape, dtype), "Z": z},
    )
