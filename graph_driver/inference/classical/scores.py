"""What becomes of the sums that classical models end with: transformed scores, and the labels of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.contrib_body import Body
from polyc.poly.errors import ModelError

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
WHERE_OPSET, EQUAL_OPSET, SUM_AXES_AS_INPUT, AXES_AS_INPUT = 9, 11, 13, 18
ZERO = 1e-7  # scores that SOFTMAX_ZERO takes for none
WINITZKI = 0.147  # of his approximation of the inverse of erf, which onnx and ONNX Runtime use

Labels = Sequence[int] | Sequence[bytes] | Sequence[str]


def transform_of(attrs: Mapping[str, Any], what: str) -> str:
    """The attribute `post_transform`, as text or as `TreeEnsemble`'s number. Raises `ModelError` for another."""
    given = attrs.get("post_transform", "NONE")
    name = given.decode(errors="replace") if isinstance(given, bytes) else given
    if isinstance(name, int) and 0 <= name < len(TRANSFORMS):
        name = TRANSFORMS[name]
    if name not in TRANSFORMS:
        raise ModelError(f"{what}: attribute post_transform is {name!r}, expected one of {', '.join(TRANSFORMS)}")
    return str(name)


def labels_of(attrs: Mapping[str, Any], integers: str, what: str) -> Labels:
    """The labels of a classifier: attribute `integers`, or `classlabels_strings`. Raises `ModelError`."""
    found = [list(attrs.get(name, ())) for name in (integers, "classlabels_strings")]
    if bool(found[0]) == bool(found[1]):
        raise ModelError(f"{what} needs either {integers} or classlabels_strings")
    return found[0] or found[1]


def transformed(body: Body, scores: str, name: str, dtype: Any) -> str:
    """Scores of the rows of a matrix after the transform `name`. Raises `Unsupported`: not in so old an opset."""
    if name == "LOGISTIC":
        return body.add("Sigmoid", scores)
    if name == "SOFTMAX":
        return body.add("Softmax", scores, axis=1)
    if name == "PROBIT":
        return _probit(body, scores, dtype)
    return _softmax_zero(body, scores, dtype) if name == "SOFTMAX_ZERO" else scores


def _probit(body: Body, scores: str, dtype: Any) -> str:
    """The quantile of the normal distribution, with Winitzki's approximation."""

    def number(value: float) -> str:
        return body.constant(np.array(value, dtype))

    if body.opset < WHERE_OPSET:
        raise Unsupported(f"PROBIT in opset {body.opset}")
    twice = body.add("Sub", body.add("Mul", scores, number(2)), number(1))
    log = body.add("Log", body.add("Mul", body.add("Sub", number(1), twice), body.add("Add", number(1), twice)))
    v = body.add("Add", body.add("Mul", log, number(0.5)), number(2 / (np.pi * WINITZKI)))
    under = body.add("Sub", body.add("Mul", v, v), body.add("Mul", log, number(1 / WINITZKI)))
    size = body.add("Sqrt", body.add("Sub", body.add("Sqrt", under), v))
    signed = body.add("Where", body.add("Less", twice, number(0)), body.add("Neg", size), size)
    return body.add("Mul", signed, number(2**0.5))


def _softmax_zero(body: Body, scores: str, dtype: Any) -> str:
    """Softmax over the scores that are not 0, which stay (almost) what they are; rows without any become 0.5."""
    if body.opset < WHERE_OPSET:
        raise Unsupported(f"SOFTMAX_ZERO in opset {body.opset}")
    zero = body.constant(np.array(0, dtype))
    some = body.add("Greater", body.add("Abs", scores), body.constant(np.array(ZERO, dtype)))
    highest = reduced(body, "ReduceMax", scores)
    powers = body.add("Exp", body.add("Sub", scores, highest))
    exps = body.add("Where", some, powers, zero)
    small = body.add("Where", some, zero, body.add("Mul", scores, body.add("Exp", body.add("Neg", highest))))
    total = summed(body, exps)
    shares = body.add("Div", body.add("Add", exps, small), total)
    return body.add("Where", body.add("Greater", total, zero), shares, body.constant(np.array(0.5, dtype)))


def reduced(body: Body, op_type: str, x: str) -> str:
    """A reduction (other than ReduceSum) of the last axis of a matrix, which stays."""
    return _over(body, op_type, x, AXES_AS_INPUT, 1, 1)


def summed(body: Body, x: str, axis: int = 1, keepdims: int = 1) -> str:
    """The sums along an axis, which stays or not."""
    return _over(body, "ReduceSum", x, SUM_AXES_AS_INPUT, axis, keepdims)


def _over(body: Body, op_type: str, x: str, since: int, axis: int, keepdims: int) -> str:
    """A reduction that takes its axes as an operand since an opset, as an attribute before."""
    if body.opset >= since:
        return body.add(op_type, x, body.integers(axis), keepdims=keepdims)
    return body.add(op_type, x, axes=[axis], keepdims=keepdims)


def equal(body: Body, a: str, b: str, dtype: Any) -> str:
    """Whether numbers of a type are equal. Raises `Unsupported` before opset 11, which has this of floats."""
    if body.opset >= EQUAL_OPSET or np.dtype(dtype).kind != "f":
        return body.add("Equal", a, b)
    raise Unsupported(f"equal numbers in opset {body.opset}")


def with_last_axis(body: Body, x: str, like: Tensor) -> str:
    """A tensor of the shape of `like` with one more axis of one element."""
    rank = len(like.shape or ())
    if body.opset >= SUM_AXES_AS_INPUT:
        return body.add("Unsqueeze", x, body.integers(rank))
    return body.add("Unsqueeze", x, axes=[rank])


def cast(body: Body, value: str, dtype: Any) -> str:
    """A value of another element type."""
    return body.several("Cast", [value], 1, to=int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))[0]


def write(body: Body, value: str, position: int, dtype: Any, wanted: Any = np.float32) -> None:
    """A value of type `dtype` as the node's output of type `wanted`, if that is asked for."""
    if position < len(body.outputs) and body.outputs[position]:
        value = value if np.dtype(dtype) == np.dtype(wanted) else cast(body, value, wanted)
        body.add("Identity", value, to=body.outputs[position])


def best(body: Body, scores: str, labels: Labels) -> None:
    """The first output: labels of the highest scores of each row, of equal ones the first."""
    if body.outputs[0]:
        named(body, body.add("ArgMax", scores, axis=1, keepdims=0), labels)


def above(body: Body, scores: str, limit: float, labels: Labels, dtype: Any) -> None:
    """The first output: the second label where a column of scores is above `limit`, else the first."""
    if body.outputs[0]:
        higher = body.add("Greater", scores, body.constant(np.array(limit, dtype)))
        named(body, body.add("Reshape", cast(body, higher, np.int64), body.integers(-1)), labels)


def named(body: Body, numbers: str, labels: Labels) -> None:
    """The first output: the labels with these numbers."""
    if list(labels) == list(range(len(labels))):
        body.add("Identity", numbers, to=body.outputs[0])
        return
    whole = isinstance(labels[0], int)
    table = np.array(labels, np.int64) if whole else np.array([_text(t) for t in labels], object)
    body.add("Gather", body.constant(table), numbers, to=body.outputs[0])


def _text(label: Any) -> str:
    return label.decode("utf-8", errors="replace") if isinstance(label, bytes) else str(label)


def pair(body: Body, column: str, complement: bool, dtype: Any) -> str:
    """Scores of two classes from those of the second one: `1 - s` (`complement`) or `-s`, and `s`."""
    other = body.add("Sub", body.constant(np.array(1, dtype)), column) if complement else body.add("Neg", column)
    return body.add("Concat", other, column, axis=1)
