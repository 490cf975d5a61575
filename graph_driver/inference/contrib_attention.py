"""`GroupQueryAttention`: heads in groups that share keys and values, which are appended to a cache.

Row `s` of a call stands at position `past + s`, where `past` is `seqlens_k + 1` less the rows of the call, 0 for a
first call. The cache is as long as `total_sequence_length` where that is known to be past and rows together; else it
has room for all positions, and the new rows are written into it. Of a cache with room the first
`total_sequence_length` positions are read, where a shape says how many these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.graph.size import Size
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.inference.contrib_body import Body
from polyc.graph_driver.inference.contrib_language import turn
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

OPTIONAL = ("", "", "", "past_key", "past_value", "seqlens_k", "total", "cosine", "sine", "positions", "bias")
DOMAIN = "com.microsoft"
UNKNOWN_FORMS = (
    "smooth_softmax", "qk_output", "kv_cache_bit_width", "sliding_window_cache", "qk_norm_epsilon", "q_norm_epsilon",
)  # fmt: skip


@dataclass(frozen=True)
class _Sizes:
    """Heads, groups of them, elements of a head, rows of the call (a number, or a tensor of one; `count` is a formula
    then)."""

    heads: int
    groups: int
    size: int
    rows: Any
    count: Any


def grouped_attention(
    body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """The node as products, a softmax and the caches' new values. Raises `ModelError` for forms without these."""
    given = dict(zip((*OPTIONAL[:3], *OPTIONAL[3:]), node.input, strict=False))
    if any(node.input[len(OPTIONAL) :]):
        raise ModelError("GroupQueryAttention with sinks, scales of the cache, or norms of queries is not supported")
    for name in UNKNOWN_FORMS:
        if name in attrs and attrs[name] not in (0, -1, 0.0, 1e-6):
            raise ModelError(f"GroupQueryAttention with {name} is not supported")
    if len(node.output) > 3 and node.output[3]:
        raise ModelError("GroupQueryAttention with the scores as output is not supported")
    heads, groups = int(attrs["num_heads"]), int(attrs["kv_num_heads"])
    shape = tensors[node.input[0]].shape or ()
    if len(shape) != 3 or heads % groups:
        raise ModelError(f"GroupQueryAttention of queries of shape {list(shape)} with {heads} heads in {groups} groups")
    packed = len(node.input) < 2 or not node.input[1]
    size = shape[2] // (heads + 2 * groups if packed else heads)
    dtype = tensors[node.input[0]].dtype
    assert dtype is not None
    rows = shape[1] if isinstance(shape[1], int) else body.add("Shape", node.input[0], start=1, end=2)
    sizes = _Sizes(heads, groups, size, rows, shape[1])
    query, key, value = _operands(body, node, sizes, packed)
    past = _past(body, given["seqlens_k"], rows)
    if attrs.get("do_rotary", 0):
        tables = (given.get("cosine", ""), given.get("sine", ""))
        table = tensors[tables[0]].shape or ()
        positions = given.get("positions") or body.add("Add", past, _counted(body, rows))
        how = (tables, positions, size, 2 * table[-1], bool(attrs.get("rotary_interleaved", 0)))
        query, key = turn(body, query, *how), turn(body, key, *how)
    keys, length = _cache(body, key, given.get("past_key", ""), past, sizes, given["total"], tensors, 1)
    values, _ = _cache(body, value, given.get("past_value", ""), past, sizes, given["total"], tensors, 2)
    scale = float(attrs.get("scale", 0.0)) or 1.0 / float(np.sqrt(size))
    scores = _scores(body, query, keys, sizes, length, body.constant(np.array(scale, dtype.np)))
    cap = float(attrs.get("softcap", 0.0))
    if cap > 0:
        limit = body.constant(np.array(cap, dtype.np))
        scores = body.add("Mul", body.add("Tanh", body.add("Div", scores, limit)), limit)
    if given.get("bias"):
        scores = body.add("Add", scores, _grouped_bias(body, given["bias"], sizes, tensors))
    if int(attrs.get("causal", 1)) or int(attrs.get("local_window_size", -1)) > 0:
        seen = _seen(body, past, rows, length, int(attrs.get("local_window_size", -1)))
        scores = body.add("Where", seen, scores, body.constant(np.array(-np.inf, dtype.np)))
    shares = body.add("Softmax", scores, axis=-1)
    flat = body.add("Reshape", shares, _shape(body, 0, 0, -1, length))
    result = body.add("MatMul", flat, values)
    apart = body.add("Reshape", result, _shape(body, 0, heads, -1, size))
    turned = body.add("Transpose", apart, perm=[0, 2, 1, 3])
    body.add("Reshape", turned, body.integers(0, 0, heads * size), to=body.outputs[0])


def _operands(body: Body, node: onnx.NodeProto, sizes: _Sizes, packed: bool) -> list[str]:
    """Queries, keys and values as `[batch, rows, heads, size]`."""
    counts = (sizes.heads, sizes.groups, sizes.groups)
    if packed:
        lengths = body.integers(*(n * sizes.size for n in counts))
        parts = body.several("Split", [node.input[0], lengths], 3, axis=2)
    else:
        parts = list(node.input[:3])
    return [body.add("Reshape", p, body.integers(0, 0, n, sizes.size)) for p, n in zip(parts, counts, strict=True)]


def _past(body: Body, lengths: str, rows: Any) -> str:
    """Positions before the rows of this call, `[batch, 1]`, i64."""
    last = body.add("Reshape", _wide(body, lengths), body.integers(-1, 1))
    before = body.add("Sub", body.add("Add", last, body.integers(1)), _tensor(body, rows))
    return body.add("Max", before, body.integers(0))


def _wide(body: Body, numbers: str) -> str:
    """Integers as i64."""
    return body.several("Cast", [numbers], 1, to=onnx.TensorProto.INT64)[0]


def _tensor(body: Body, size: Any) -> str:
    return body.integers(size) if isinstance(size, int) else str(size)


def _shape(body: Body, *sizes: Any) -> str:
    """A shape of numbers and of tensors of one element."""
    if all(isinstance(n, int) for n in sizes):
        return body.integers(*sizes)
    return body.add("Concat", *(_tensor(body, n) for n in sizes), axis=0)


def _counted(body: Body, size: Any) -> str:
    """`[[0, 1, ...]]`."""
    if isinstance(size, int):
        return body.constant(np.arange(size, dtype=np.int64)[None])
    ones = body.add("Expand", body.constant(np.ones((1, 1), np.int64)), _shape(body, 1, size))
    return body.add("CumSum", ones, body.constant(np.array(1)), exclusive=1)


def _cache(
    body: Body, new: str, before: str, past: str, sizes: _Sizes, total: str, tensors: Mapping[str, Tensor], output: int
) -> tuple[str, Any]:
    """The positions that rows may see of the cache with the new rows, `[batch, groups, positions, size]`, and how many
    these are. The cache is an output."""
    to = body.outputs[output] if len(body.outputs) > output else ""
    held = (tensors[before].shape or ())[2] if before else 0
    if isinstance(held, int) and held == 0:
        return body.add("Transpose", new, to=to, perm=[0, 2, 1, 3]), sizes.rows
    used = _count(tensors[total])
    grows = _grows(held, used, sizes.count, _said(body.declared, before, to))
    flat = body.add("Reshape", past, body.integers(-1))
    if not grows and used is not None and used != held:
        seen: Any = used
        if not isinstance(used, int):
            seen = body.add("Reshape", _wide(body, total), body.integers(1))
        operands = [before, new, flat, _tensor(body, seen)]
        cache = body.add("AppendToCache", *operands, to=to, domain=DOMAIN, grows=0)
        return body.add("Slice", cache, body.integers(0), _tensor(body, seen), body.integers(2)), seen
    known = isinstance(held, int) and isinstance(sizes.rows, int)
    length: Any = held + sizes.rows * grows if known else body.add("Shape", before, start=2, end=3)
    if grows and not known:
        length = body.add("Add", length, _tensor(body, sizes.rows))
    return body.add("AppendToCache", before, new, flat, to=to, domain=DOMAIN, grows=int(grows)), length


def _said(declared: Mapping[str, Sequence[int | str]], before: str, after: str) -> bool | None:
    """Whether the model says of an input and an output of its that the second is longer; None: it says nothing."""
    shapes = [declared.get(name, ()) for name in (before, after)]
    if any(len(s) != 4 or str(s[2]) == f"{name}.2" for s, name in zip(shapes, (before, after))):
        return None
    return shapes[0][2] != shapes[1][2]


def _grows(held: Any, used: Any, rows: Any, said: bool | None) -> bool:
    """Whether the cache is as long as past and rows together, or has room for more already.

    Where sizes are formulas the model's own words decide, if it has any, and a guard keeps that; else the
    representative sizes do. Raises `GuardError`: these contradict the words.
    """
    home = next((n.home for n in (held, used) if isinstance(n, Size)), None)
    if used is None or said is None or not isinstance(home, Symbols):
        return used is not None and bool(used > held)
    if said:
        home.require_equal(used, held + rows, "a cache is as long as past and rows")
    else:
        home.require_at_least(held - used, 0, "a cache has room for all rows")
    return said


def _count(total: Tensor) -> Any:
    """`total_sequence_length` as a number or a formula; None where each run has its own."""
    known = total.sizes if total.sizes is not None else total.const
    if known is None:
        return None
    count = known.reshape(-1)[0]
    return count if isinstance(count, Size) else int(count)


def appended(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The result of `AppendToCache`, polyc's own: a cache, rows `[batch, rows, groups, size]`, how many it holds; of
    one with room also how many positions are in use by any row of the batch.

    Raises:
        ModelError: these do not fit together.
    """
    cache, rows, held = (tensors[i] for i in node.input[:3])
    if not cache.static or not rows.static or len(cache.shape or ()) != 4 or len(rows.shape or ()) != 4:
        raise ModelError(f"{what}: a cache and rows of four axes are needed, not {cache} and {rows}")
    assert cache.shape is not None and rows.shape is not None
    fits = (cache.dtype, *(cache.shape[k] for k in (0, 1, 3))) == (rows.dtype, *(rows.shape[k] for k in (0, 2, 3)))
    if not fits or held.shape != cache.shape[:1]:
        raise ModelError(f"{what}: {rows} and {held} do not fit {cache}")
    grows = next((a.i for a in node.attribute if a.name == "grows"), 0)
    room = cache.shape[2] + rows.shape[1] * grows
    return {node.output[0]: Tensor(node.output[0], cache.dtype, (*cache.shape[:2], room, cache.shape[3]))}


def put(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The result of `PutRows`, polyc's own: an array, rows along `axis`, the first row's position.

    Raises:
        ModelError: these do not fit together.
    """
    whole, rows, at = (tensors[i] for i in node.input)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    shape, part = list(whole.shape or ()), list(rows.shape or ())
    if len(shape) != len(part) or not 0 <= axis < len(shape) or whole.dtype != rows.dtype:
        raise ModelError(f"{what}: {rows} cannot be put along axis {axis} of {whole}")
    room, count = shape.pop(axis), part.pop(axis)
    if shape != part or (at.const is not None and count + int(at.const.reshape(-1)[0]) > room):
        raise ModelError(f"{what}: {rows} does not fit into {whole}")
    return {node.output[0]: Tensor(node.output[0], whole.dtype, whole.shape)}


def _scores(body: Body, query: str, keys: str, sizes: _Sizes, length: Any, scale: str) -> str:
    """`[batch, groups, heads of a group, rows, positions]`."""
    share = sizes.heads // sizes.groups
    rows = body.add("Transpose", body.add("Mul", query, scale), perm=[0, 2, 1, 3])
    grouped = body.add("Reshape", rows, _shape(body, 0, sizes.groups, -1, sizes.size))
    product = body.add("Einsum", grouped, keys, equation="bgmd,bgtd->bgmt")  # the keys are read as they lie
    return body.add("Reshape", product, _shape(body, 0, 0, share, -1, length))


def _grouped_bias(body: Body, bias: str, sizes: _Sizes, tensors: Mapping[str, Tensor]) -> str:
    """A bias `[batch or 1, heads or 1, rows, positions]` over grouped heads."""
    if (tensors[bias].shape or ())[1] == 1:
        return body.add("Unsqueeze", bias, body.integers(1))
    shape = body.add("Shape", bias, start=2, end=4)
    parts = body.add("Concat", body.integers(0, sizes.groups, sizes.heads // sizes.groups), shape, axis=0)
    return body.add("Reshape", bias, parts)


def _seen(body: Body, past: str, rows: Any, length: Any, window: int) -> str:
    """Which positions a row sees: `[batch, 1, 1, rows, positions]`."""
    own = body.add("Unsqueeze", body.add("Add", past, _counted(body, rows)), body.integers(2))
    places = body.add("Unsqueeze", _counted(body, length), body.integers(1))
    seen = body.add("LessOrEqual", places, own)
    if window > 0:
        near = body.add("Greater", places, body.add("Sub", own, body.integers(window)))
        seen = body.add("And", seen, near)
    return body.add("Unsqueeze", seen, body.integers(1, 2))
