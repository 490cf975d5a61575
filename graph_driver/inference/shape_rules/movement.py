"""Elements moved: views, parts, copies, gathers, resizing."""

from __future__ import annotations

from math import prod

import numpy as np

from polyc.graph_driver.graph.size import Extent
from polyc.graph_driver.inference.shape_rules.call import Call, NoRule, Shape, rule
from polyc.graph_driver.inference.shape_rules.elements import broadcast


@rule("Transpose")
def transpose(call: Call) -> list[Shape]:
    """Axes in the order of `perm`, reversed where it is absent."""
    shape = call.shape()
    perm = call.attrs.get("perm") or range(len(shape) - 1, -1, -1)
    return [tuple(shape[p] for p in perm)]


@rule("Reshape")
def reshape(call: Call) -> list[Shape]:
    """The shape that the operand says: 0 takes the axis over (without `allowzero`), -1 is what is left.

    Raises:
        NoRule: two axes are -1, or only a run knows the shape.
    """
    shape, wanted = call.shape(), call.values(1)
    assert wanted is not None
    zero_copies = not call.attrs.get("allowzero", 0)
    new = [shape[k] if isinstance(n, int) and n == 0 and zero_copies else n for k, n in enumerate(wanted)]
    free = [k for k, n in enumerate(new) if isinstance(n, int) and n == -1]
    if len(free) > 1:
        raise NoRule("Reshape with two free sizes")
    if free:
        rest = prod(n for k, n in enumerate(new) if k not in free)
        new[free[0]] = prod(shape) // rest
    call.symbols.require_equal(prod(new), prod(shape), "Reshape keeps the number of elements")
    return [tuple(new)]


@rule("Flatten")
def flatten(call: Call) -> list[Shape]:
    """Two axes: the product of those before `axis`, and of the others."""
    shape, axis = call.shape(), int(call.attrs.get("axis", 1))
    axis = axis + len(shape) if axis < 0 else axis
    return [(prod(shape[:axis]), prod(shape[axis:]))]


@rule("Squeeze")
def squeeze(call: Call) -> list[Shape]:
    """Without the given axes, which must be 1 (a guard), or without all that are 1."""
    shape, given = call.shape(), call.given("axes", 1)
    if given is None:
        return [tuple(n for n in shape if (n != 1 if isinstance(n, int) else n > 1))]  # a guard for a formula
    axes = {a % len(shape) for a in given}
    for a in axes:
        call.symbols.require_equal(shape[a], 1, "Squeeze")
    return [tuple(n for d, n in enumerate(shape) if d not in axes)]


@rule("Unsqueeze")
def unsqueeze(call: Call) -> list[Shape]:
    """With axes of 1 at the given places of the result."""
    given = call.given("axes", 1) or []
    rank = len(call.shape()) + len(given)
    axes, rest = {a % rank for a in given}, iter(call.shape())
    return [tuple(1 if d in axes else next(rest) for d in range(rank))]


@rule("Concat")
def concat(call: Call) -> list[Shape]:
    """The sum on one axis; the others are equal (a guard)."""
    shapes = [call.shape(k) for k in range(len(call.inputs))]
    axis = call.axis(0)
    for s in shapes[1:]:
        for d, n in enumerate(s):
            if d != axis:
                call.symbols.require_equal(n, shapes[0][d], "the other sizes of a Concat")
    out = list(shapes[0])
    for s in shapes[1:]:
        out[axis] = out[axis] + s[axis]
    return [tuple(out)]


@rule("Split")
def split(call: Call) -> list[Shape]:
    """A shape for each part; the parts add up to the axis (a guard)."""
    shape, axis, given = call.shape(), call.axis(0), call.given("split", 1)
    parts = _equal_parts(call, shape[axis]) if given is None else given
    call.symbols.require_equal(sum(parts), shape[axis], "the parts of a Split")
    return [(*shape[:axis], n, *shape[axis + 1 :]) for n in parts]


def _equal_parts(call: Call, n: Extent) -> list[Extent]:
    """The last part may be smaller since opset 18; each has an element when `n` is a formula."""
    part = (n + call.outputs - 1) // call.outputs
    if isinstance(part, int):
        assert isinstance(n, int)
        return [max(0, min(part, n - k * part)) for k in range(call.outputs)]
    if call.opset < 18:
        call.symbols.require_equal(n % call.outputs, 0, "equal parts of a Split")
        return [n // call.outputs] * call.outputs
    last = n - part * (call.outputs - 1)
    call.symbols.require_at_least(last, 1, "the last part of a Split")
    return [part] * (call.outputs - 1) + [last]


@rule("Slice")
def slice_(call: Call) -> list[Shape]:
    """How many steps fit between the bounds, on each axis that is cut."""
    shape = list(call.shape())
    for axis, start, stop, step in slices(call):
        shape[axis] = (
            max((stop - start + step - 1) // step, 0) if step > 0 else max((start - stop - step - 1) // -step, 0)
        )
    return [tuple(shape)]


FAR = 1 << 30  # an end beyond it means "to the end"


def slices(call: Call) -> list[tuple[int, Extent, Extent, int]]:
    """(axis, first, end, step) of a Slice with bounds inside the axis."""
    shape = call.shape()
    if call.opset < 10:
        starts, ends, axes, steps = call.attrs["starts"], call.attrs["ends"], call.attrs.get("axes"), None
    else:
        starts, ends, axes, steps = (call.values(k) for k in range(1, 5))
    where = list(axes) if axes is not None else list(range(len(starts)))
    out: list[tuple[int, Extent, Extent, int]] = []
    for k, a in enumerate(where):
        axis = int(a) % len(shape)
        n, step = shape[axis], int(steps[k]) if steps is not None else 1
        out.append((axis, *_bounds(starts[k], ends[k], n, step), step))
    return out


def _bounds(start: Extent, end: Extent, n: Extent, step: int) -> tuple[Extent, Extent]:
    def clamped(at: Extent, low: Extent, high: Extent) -> Extent:
        if isinstance(at, int) and at >= FAR:
            return high
        if isinstance(at, int) and at <= -FAR:
            return low
        at = at + n if at < 0 else at
        return low if at < low else high if at > high else at

    if step > 0:
        return clamped(start, 0, n), clamped(end, 0, n)
    return clamped(start, 0, n - 1), -1 if isinstance(end, int) and end <= -FAR else clamped(end, -1, n - 1)


@rule("Gather")
def gather(call: Call) -> list[Shape]:
    """The axis gives way to the axes of the indices."""
    shape, axis = call.shape(), call.axis(0)
    return [(*shape[:axis], *call.shape(1), *shape[axis + 1 :])]


@rule("GatherElements")
def gather_elements(call: Call) -> list[Shape]:
    """The shape of the indices."""
    return [call.shape(1)]


@rule("GatherND")
def gather_nd(call: Call) -> list[Shape]:
    """The indices without their last axis, then the axes that a tuple of indices leaves.

    Raises:
        NoRule: the tuples' length is a formula.
    """
    shape, index, skip = call.shape(), call.shape(1), int(call.attrs.get("batch_dims", 0))
    depth = index[-1]
    if not isinstance(depth, int):
        raise NoRule("GatherND whose index tuples have a symbolic length")
    return [(*index[:-1], *shape[skip + depth :])]


@rule("Expand")
def expand(call: Call) -> list[Shape]:
    """The operand and the given shape, broadcast together."""
    wanted = call.values(1)
    assert wanted is not None
    return [broadcast(call, [call.shape(), tuple(wanted)])]


@rule("Tile")
def tile(call: Call) -> list[Shape]:
    """Each axis times its repeats."""
    repeats = call.values(1)
    assert repeats is not None
    return [tuple(n * r for n, r in zip(call.shape(), repeats, strict=True))]


@rule("Pad")
def pad(call: Call) -> list[Shape]:
    """Each axis and its two pads, which may be negative."""
    shape = list(call.shape())
    pads = call.given("pads", 1) or []
    axes = call.given("", 3) or list(range(len(shape)))
    for k, a in enumerate(axes):
        shape[a % len(shape)] = shape[a % len(shape)] + pads[k] + pads[k + len(axes)]
    return [tuple(shape)]


@rule("ConstantOfShape")
def constant_of_shape(call: Call) -> list[Shape]:
    """The operand's elements."""
    wanted = call.values(0)
    assert wanted is not None
    return [tuple(wanted)]


@rule("Range")
def range_(call: Call) -> list[Shape]:
    """One axis: `ceil((limit - start) / delta)`, not negative (a guard).

    Raises:
        NoRule: the step is a formula or 0.
    """
    (start,), (limit,), (delta,) = (call.values(k) or [0] for k in range(3))
    if not isinstance(delta, int) or delta == 0:
        raise NoRule("Range with a symbolic step")
    count = (limit - start + delta - 1) // delta if delta > 0 else (start - limit - delta - 1) // -delta
    call.symbols.require_at_least(count, 0, "Range")
    return [(count,)]


@rule("DepthToSpace")
def depth_to_space(call: Call) -> list[Shape]:
    """(n, c, h, w) to (n, c / b**2, h * b, w * b), b the block size."""
    (n, c, h, w), b = call.shape(), int(call.attrs["blocksize"])
    return [(n, c // (b * b), h * b, w * b)]


@rule("SpaceToDepth")
def space_to_depth(call: Call) -> list[Shape]:
    """(n, c, h, w) to (n, c * b**2, h / b, w / b); b divides h and w (a guard)."""
    (n, c, h, w), b = call.shape(), int(call.attrs["blocksize"])
    for extent in (h, w):
        call.symbols.require_equal(extent % b, 0, "SpaceToDepth")
    return [(n, c * b * b, h // b, w // b)]


@rule("OneHot")
def one_hot(call: Call) -> list[Shape]:
    """The indices' shape with an axis of `depth` more."""
    shape, depth = list(call.shape()), call.values(1)
    assert depth is not None
    axis = call.axis(-1, rank=len(shape) + 1)
    return [tuple([*shape[:axis], depth[0], *shape[axis:]])]


@rule("Resize", "Upsample")
def resize(call: Call) -> list[Shape]:
    """The given sizes, or each axis times its scale, rounded down.

    Raises:
        NoRule: only a run knows the scales, or one of them makes no formula of a symbolic axis.
    """
    shape = call.shape()
    scales_at = 1 if call.op_type == "Upsample" or call.opset < 11 else 2
    scales = call.inputs[scales_at] if scales_at < len(call.inputs) else None
    if len(call.inputs) > 3 and call.inputs[3] is not None:
        wanted = call.values(3)
        assert wanted is not None
        return [tuple(wanted)]
    if scales is None or scales.const is None or call.attrs.get("axes"):
        raise NoRule("Resize with scales that are known at run time only")
    factors = [float(s) for s in scales.const.reshape(-1)]
    out: list[Extent] = []
    for n, s in zip(shape, factors, strict=True):
        if isinstance(n, int):
            out.append(int(np.floor(n * np.float32(s))))
        elif s == int(s):
            out.append(n * int(s))
        elif 1 / s == int(1 / s):
            out.append(n // int(1 / s))
        else:
            raise NoRule(f"Resize of a symbolic size by {s:g}")
    return [tuple(out)]
