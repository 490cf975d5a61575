"""Operators that prepare features: scaled, filled in, normalised, chosen, encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.classical.forest import listed
from polyc.graph_driver.inference.classical.scores import (
    WHERE_OPSET,
    cast,
    equal,
    reduced,
    summed,
    with_last_axis,
    write,
)  # fmt: skip
from polyc.graph_driver.inference.contrib_body import Body
from polyc.poly.errors import ModelError

MOST_KEYS = 1024  # that each element is compared with
NORMS = ("MAX", "L1", "L2")


def dtype_of(x: Tensor) -> np.dtype[Any]:
    """A tensor's element type."""
    assert x.dtype is not None
    return np.dtype(x.dtype.np)


def as_float(body: Body, x: Tensor) -> tuple[str, np.dtype[Any]]:
    """Features as floats: f64 as they are, all others as f32."""
    own = dtype_of(x)
    wanted = np.dtype(np.float64 if own == np.float64 else np.float32)
    return (x.name if own == wanted else cast(body, x.name, wanted)), wanted


def scaler(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """`(x - offset) * scale`, in f32."""
    x, dtype = as_float(body, inputs[0])
    moved = body.add("Sub", x, _for_each(body, attrs, "offset", inputs[0], dtype, what))
    write(body, body.add("Mul", moved, _for_each(body, attrs, "scale", inputs[0], dtype, what)), 0, dtype)


def imputer(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """Elements that equal one value (or are NaN) replaced. Raises `Unsupported` before opset 9."""
    x, dtype = inputs[0], dtype_of(inputs[0])
    of_floats = dtype.kind == "f"
    new = _for_each(body, attrs, "imputed_value_floats" if of_floats else "imputed_value_int64s", x, dtype, what)
    old = np.array(attrs.get("replaced_value_float" if of_floats else "replaced_value_int64", 0), dtype)
    if body.opset < WHERE_OPSET:
        raise Unsupported(f"Imputer in opset {body.opset}")
    if of_floats and np.isnan(old):
        replaced = body.add("IsNaN", x.name)
    else:
        replaced = equal(body, x.name, body.constant(old), dtype)
    write(body, body.add("Where", replaced, new, x.name), 0, dtype, dtype)


def normalizer(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """Rows divided by their largest element, the sum of their sizes, or their length, where that is not 0.

    Raises:
        ModelError: no such norm.
        Unsupported: no matrix.
    """
    norm = _text(attrs.get("norm", "MAX"))
    if norm not in NORMS:
        raise ModelError(f"{what}: attribute norm is {norm!r}, expected one of {', '.join(NORMS)}")
    if len(inputs[0].shape or ()) != 2:
        raise Unsupported(f"Normalizer of {inputs[0]}")
    x, dtype = as_float(body, inputs[0])
    if norm == "MAX":
        size = reduced(body, "ReduceMax", x)
    elif norm == "L1":
        size = summed(body, body.add("Abs", x))
    else:
        size = body.add("Sqrt", summed(body, body.add("Mul", x, x)))
    nothing = cast(body, body.add("Not", cast(body, size, np.bool_)), dtype)
    write(body, body.add("Div", x, body.add("Add", size, nothing)), 0, dtype)


def binarizer(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """1 above the threshold, else 0 (NaN is not above it). Raises `Unsupported` for thresholds outside of integers."""
    x, dtype = inputs[0], dtype_of(inputs[0])
    threshold = float(attrs.get("threshold", 0.0))
    if dtype.kind != "f":  # a whole number is above it where it is above its floor
        info = np.iinfo(dtype)
        if body.opset < WHERE_OPSET or not info.min <= threshold < info.max:
            raise Unsupported(f"Binarizer of {x.dtype} with threshold {threshold}, in opset {body.opset}")
        threshold = float(np.floor(threshold))
    above = body.add("Greater", x.name, body.constant(np.array(threshold).astype(dtype)))
    write(body, cast(body, above, dtype), 0, dtype, dtype)


def extractor(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """The elements with these numbers along the last axis; a vector becomes a matrix of one row.

    Raises `Unsupported` for a scalar, or for what are no numbers.
    """
    x, index = inputs
    rank = len(x.shape or ())
    if index.dtype is None or not rank:
        raise Unsupported(f"ArrayFeatureExtractor of {x} by {index}")
    found = body.add("Gather", x.name, body.add("Reshape", index.name, body.integers(-1)), axis=rank - 1)
    if rank == 1:
        found = body.add("Reshape", found, body.integers(1, -1))
    write(body, found, 0, dtype_of(x), dtype_of(x))


def vectorizer(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """Matrices (a vector is one of one row) side by side, in f32.

    Raises `Unsupported` where columns are cut or filled up.
    """
    widths = listed(attrs, "inputdimensions", np.int64, what, len(inputs))
    parts = []
    for x, width in zip(inputs, widths, strict=True):
        shape = x.shape or ()
        if x.dtype is None or len(shape) not in (1, 2) or shape[-1] != width:
            raise Unsupported(f"FeatureVectorizer of {x} with {width} columns")
        part = x.name if dtype_of(x) == np.float32 else cast(body, x.name, np.float32)
        parts.append(part if len(shape) == 2 else body.add("Reshape", part, body.integers(1, -1)))
    write(body, body.add("Concat", *parts, axis=1), 0, np.float32)


def one_hot(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """1 at the place of the element's category, in a new last axis.

    Raises `Unsupported` for categories that must be there, come twice, or are very many.
    """
    categories = listed(attrs, "cats_int64s", np.int64, what)
    if not int(attrs.get("zeros", 1)):
        raise Unsupported("OneHotEncoder that fails for what is no category")
    if len(np.unique(categories)) < len(categories) or len(categories) > MOST_KEYS:
        raise Unsupported("OneHotEncoder with one category twice, or very many")
    x = inputs[0]
    whole = x.name if dtype_of(x) == np.int64 else cast(body, x.name, np.int64)
    found = equal(body, with_last_axis(body, whole, x), body.constant(categories), np.int64)
    write(body, cast(body, found, np.float32), 0, np.float32)


def label_encoder(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """The value of the key that an element is, or a default.

    Raises:
        ModelError: keys of another type, or not as many as values.
        Unsupported: strings, or very many keys.
    """
    if any(name.startswith(("keys_strings", "values_strings", "classes_")) for name in attrs):
        raise Unsupported("LabelEncoder of strings")
    keys, values = _column(attrs, "keys", what), _column(attrs, "values", what)
    x, dtype = inputs[0], dtype_of(inputs[0])
    if keys.dtype != dtype or len(keys) != len(values) or values.dtype.kind not in "fi":
        raise ModelError(f"{what}: {len(keys)} keys of {keys.dtype} and {len(values)} values for {x}")
    last = {("NaN" if k != k else k): n for n, k in enumerate(keys.tolist())}
    chosen = np.array(list(last.values()), np.int64)
    keys, values = keys[chosen], values[chosen]
    if not 0 < len(keys) <= MOST_KEYS:
        raise Unsupported(f"LabelEncoder with {len(keys)} keys")
    spread = with_last_axis(body, x.name, x)
    found = equal(body, spread, body.constant(keys), dtype)
    if "NaN" in last:
        is_key = body.constant(np.isnan(keys))
        found = body.add("Or", found, body.add("And", body.add("IsNaN", spread), is_key))
    # One key at most is it: the sum of the numbers from 1 on of those that are.
    numbers = body.add("Mul", cast(body, found, np.int64), body.constant(np.arange(1, len(keys) + 1)))
    position = summed(body, numbers, axis=len(x.shape or ()), keepdims=0)
    table = np.concatenate([[_default(attrs, values.dtype)], values]).astype(values.dtype)
    write(body, body.add("Gather", body.constant(table), position), 0, values.dtype, values.dtype)


def _column(attrs: Mapping[str, Any], name: str, what: str) -> np.ndarray:
    """Keys or values of a `LabelEncoder`."""
    for kind, dtype in (("floats", np.float32), ("int64s", np.int64)):
        if len(attrs.get(f"{name}_{kind}", ())):
            return listed(attrs, f"{name}_{kind}", dtype, what)
    given = attrs.get(f"{name}_tensor")
    if given is None or np.asarray(given).dtype.kind not in "fi":
        raise Unsupported("LabelEncoder of strings")
    return np.asarray(given).reshape(-1)


def _default(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> Any:
    given = np.asarray(attrs.get("default_tensor", ())).reshape(-1)
    if len(given):
        return given[0]
    return attrs.get("default_int64", -1) if dtype.kind == "i" else attrs.get("default_float", -0.0)


def _for_each(body: Body, attrs: Mapping[str, Any], name: str, x: Tensor, dtype: Any, what: str) -> str:
    """A number for all features, or one for each."""
    found = listed(attrs, name, np.float32 if dtype.kind == "f" else np.int64, what)
    features = (x.shape or (1,))[-1]
    if len(found) != 1 and (len(x.shape or ()) > 2 or len(found) != features):
        raise ModelError(f"{what}: attribute {name} has {len(found)} elements for {x}")
    return body.constant(found.astype(dtype))


def _text(given: Any) -> str:
    return given.decode(errors="replace") if isinstance(given, bytes) else str(given)
