"""The operators of the domain `polyc.ranks`: what they mean, and the shapes of their results.

Each node names its group, the numbers of the ranks that take part, in order (`ranks`). The same node runs on all of
them. An operand `after` and a result `done` (of one i32 without meaning) keep the nodes of all ranks in one order:
MPI pairs collective calls by their order.

    AllReduce      Y = sum (max, min) of every rank's X
    AllGather      Y = every rank's X, one behind the other along `axis`; `counts`: their extents where they differ
    ReduceScatter  the part of the AllReduce along `axis` that belongs to this rank (`rank`); `counts` as above
    AllToAll       X cut along `split_axis`, a piece for each rank; Y the pieces that came, joined along `concat_axis`
    Broadcast      Y = X of the rank `root`
    Send, Recv     X goes to the rank `to`; Y comes from the rank `source`
    Exchange       X is the box `have` of a tensor, Y its box `need`, of each rank: whatever is missing is sent by the
                   first rank of the group that has it. (Halos, and a change of the axis of a split, are exchanges.)
    Start          one of the above (`kind`), begun: Y may be read behind its `Wait`
    Wait           Y = X, when the `Start` that makes X has ended

The definitions are schemas of onnx, registered when a file imports the domain: import, inference and verification treat
these nodes as ONNX's own. (MPI: A Message-Passing Interface Standard 4.1, chapters 3 and 6.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

DOMAIN = "polyc.ranks"
VERSION = 1
KINDS = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast", "Send", "Recv", "Exchange")
REDUCTIONS = ("sum", "max", "min")

Shape = tuple[int, ...]


def result_shape(kind: str, shape: Shape, attrs: Mapping[str, Any]) -> Shape:
    """The shape of the first result of a node from that of its operand (`()` of `Recv`).

    Raises:
        ValueError: the attributes do not fit together, or not to the shape.
    """
    ranks = list(attrs["ranks"])
    if not ranks or len(set(ranks)) != len(ranks):
        raise ValueError("ranks must name each rank of the group once")
    if kind in ("AllReduce", "Broadcast"):
        return shape
    if kind == "Recv":
        return tuple(attrs["shape"])
    if kind == "Send":
        return (1,)
    if kind == "AllToAll":
        return _all_to_all(shape, attrs, len(ranks))
    if kind == "Exchange":
        own = box_of(attrs["need"], len(shape), ranks.index(attrs["rank"]))
        if tuple(b - a for a, b in box_of(attrs["have"], len(shape), ranks.index(attrs["rank"]))) != shape:
            raise ValueError(f"X is {list(shape)}, its box in `have` is not")
        return tuple(b - a for a, b in own)
    axis = int(attrs["axis"])
    if not 0 <= axis < len(shape):
        raise ValueError(f"there is no axis {axis} in {list(shape)}")
    counts = counts_of(kind, shape, attrs)
    extent = sum(counts) if kind == "AllGather" else counts[ranks.index(attrs["rank"])]
    return (*shape[:axis], extent, *shape[axis + 1 :])


def counts_of(kind: str, shape: Shape, attrs: Mapping[str, Any]) -> list[int]:
    """The extents along the axis by rank of the group. Raises `ValueError`: they do not fit to the shape."""
    n, extent = len(attrs["ranks"]), shape[int(attrs["axis"])]
    counts = list(attrs.get("counts") or ([extent] * n if kind == "AllGather" else [extent // n] * n))
    if len(counts) != n or any(c < 0 for c in counts):
        raise ValueError(f"counts are the extents of {n} ranks, not {counts}")
    if kind == "ReduceScatter" and sum(counts) != extent:
        raise ValueError(f"{extent} elements along the axis are not parts of {counts}")
    return counts


def box_of(numbers: Sequence[int], rank: int, position: int) -> list[tuple[int, int]]:
    """The box of a member of the group in a list of them: for each axis, where it begins and ends."""
    own = numbers[2 * rank * position : 2 * rank * (position + 1)]
    if len(own) != 2 * rank:
        raise ValueError(f"a box of {rank} axes has {2 * rank} numbers")
    return [(int(own[2 * k]), int(own[2 * k + 1])) for k in range(rank)]


def _all_to_all(shape: Shape, attrs: Mapping[str, Any], n: int) -> Shape:
    split, concat = int(attrs["split_axis"]), int(attrs["concat_axis"])
    if not (0 <= split < len(shape) and 0 <= concat < len(shape)):
        raise ValueError(f"there are no axes {split} and {concat} in {list(shape)}")
    if shape[split] % n:
        raise ValueError(f"{shape[split]} elements along axis {split} are not {n} equal pieces")
    made = list(shape)
    made[split] //= n
    made[concat] *= n
    return tuple(made)


_INTS = {"ranks": True, "counts": False, "have": False, "need": False, "shape": False}
_INT = ("rank", "axis", "split_axis", "concat_axis", "root", "to", "source", "dtype", "tag")
_TYPES = (
    *("float", "double", "float16", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)


@cache
def define() -> None:
    """Make the operators known to onnx (once for each process)."""
    from onnx import defs

    for kind in (*KINDS, "Start", "Wait"):
        schema = _schema(kind)
        schema.set_type_and_shape_inference_function(_inference(kind))
        defs.register_schema(schema)


def _schema(kind: str) -> Any:
    from onnx.defs import OpSchema

    formal, option = OpSchema.FormalParameter, OpSchema.FormalParameterOption

    def attribute(name: str, kind: Any, required: bool = False) -> Any:
        return OpSchema.Attribute(name, kind, "", required=required)

    types, optional = OpSchema.AttrType, option.Optional
    attrs = [attribute(n, types.INTS, needed and kind != "Wait") for n, needed in _INTS.items()]
    attrs += [attribute(n, types.INT) for n in _INT]
    attrs += [attribute(n, types.STRING) for n in ("reduce", "kind")]
    if kind == "Wait":
        inputs = [formal("X", "T"), formal("operand", "U", "", param_option=optional)]
    else:
        inputs = [] if kind == "Recv" else [formal("X", "T")]
        inputs.append(formal("after", "tensor(int32)", param_option=optional))
    outputs = [] if kind == "Send" else [formal("Y", "T")]
    if kind != "Wait":
        outputs.append(formal("done", "tensor(int32)", param_option=option.Single if kind == "Send" else optional))
    allowed = [f"tensor({t})" for t in _TYPES]
    constraints = [] if kind == "Send" and not inputs else [("T", allowed, "")]
    if kind == "Wait":
        constraints.append(("U", allowed, ""))
    return OpSchema(
        kind, DOMAIN, VERSION, "", inputs=inputs, outputs=outputs, type_constraints=constraints, attributes=attrs
    )


def _inference(kind: str) -> Callable[[Any], None]:
    import onnx
    from onnx import helper
    from onnx.shape_inference import InferenceError

    done = helper.make_tensor_type_proto(onnx.TensorProto.INT32, [1])

    def infer(context: Any) -> None:
        made = kind
        if kind == "Start":
            given = context.get_attribute("kind")
            made = given.s.decode() if given is not None else ""
            if made not in KINDS or made in ("Send", "Recv"):
                raise InferenceError(f"Start of '{made}'")
        if kind == "Wait":
            context.set_output_type(0, context.get_input_type(0))
            return
        attrs = {}
        for name in (*_INTS, *_INT):
            found = context.get_attribute(name)
            if found is not None:
                attrs[name] = list(found.ints) if name in _INTS else found.i
        operand = None if made == "Recv" else context.get_input_type(0)
        shape: Shape = ()
        if operand is not None:
            dims = operand.tensor_type.shape.dim
            if not operand.tensor_type.HasField("shape") or not all(d.HasField("dim_value") for d in dims):
                raise InferenceError("what is sent must have a shape of numbers")
            shape = tuple(d.dim_value for d in dims)
        try:
            result = result_shape(made, shape, attrs)
        except (ValueError, KeyError, IndexError) as error:
            raise InferenceError(f"{made}: {error}") from None
        if made != "Send":
            element = attrs["dtype"] if operand is None else operand.tensor_type.elem_type
            context.set_output_type(0, helper.make_tensor_type_proto(element, result))
        if context.get_num_outputs() > (0 if made == "Send" else 1):
            context.set_output_type(context.get_num_outputs() - 1, done)

    return infer
