"""Room in the caches of a model: an input that an output repeats, with rows behind it, becomes an array with room.

    present = Concat(past, new)    ->    present = PutRows(past, new, n); what read `past` reads its first n rows

`past` and `present` then have as many rows as there is room for; how many of them are in use, `n`, is the length of an
input `NAME.rows` of the new model (`NAME` is the size's name in the model; its elements are never read). Whether the
rows that stay need to be copied is decided like for any output that is an input with some elements changed
(`polyc.graph_driver.planning.overwriting`): with one array for both they stay where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from polyc.graph_driver.importing.binding import names_of
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

DOMAIN = "com.microsoft"
CACHES = {
    (DOMAIN, "GroupQueryAttention"): ((3, 1, 0), (4, 2, 0)),
    ("", "Attention"): ((4, 1, 1), (5, 2, 2)),
}
"""Of operators that append to caches themselves: operands, results, and operands with as many rows as are new."""


@dataclass(frozen=True)
class Cache:
    """An input `past` and an output `present` that is longer along `axis`, where the first has `size` rows."""

    past: str
    present: str
    axis: int
    size: str

    @property
    def rows(self) -> str:
        """The input whose length is how many rows are in use."""
        return f"{self.size}.rows"

    @property
    def used(self) -> str:
        """The output that says how many are in use then."""
        return f"{self.size}.used"


def with_room(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[Cache, ...]]:
    """The model with room in all caches that it has, and these.

    Raises:
        ModelError: it has no cache whose length has a name.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    inputs = {i.name: names_of(i) for i in graph.input}
    outputs = {o.name for o in graph.output}
    found = [(n, c, new) for n in graph.node for c, new in _caches(n, inputs, outputs)]
    if not found:
        raise ModelError(
            "the model has no cache that grows: no output is an input, whose length has a name, with rows behind it"
        )
    _Room(made).rewrite(found)
    return made, tuple(c for _, c, _ in found)


def _caches(
    node: onnx.NodeProto, inputs: Mapping[str, Sequence[int | str]], outputs: set[str]
) -> Iterator[tuple[Cache, str]]:
    """The caches that a node makes longer, with the operand that has the new rows."""
    if node.op_type == "Concat" and not node.domain and len(node.input) == 2:
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        pairs = [(node.input[0], node.output[0], axis % max(1, len(inputs.get(node.input[0], ()))), node.input[1])]
    else:
        pairs = [
            (node.input[i], node.output[o], 2, node.input[new])
            for i, o, new in CACHES.get((node.domain, node.op_type), ())
            if len(node.input) > i and len(node.output) > o
        ]
    for past, present, axis, new in pairs:
        shape = inputs.get(past, ())
        size = shape[axis] if axis < len(shape) else 0
        if present in outputs and isinstance(size, str) and size != f"{past}.{axis}":
            yield Cache(past, present, axis, size), new


class _Room:
    """A model that gets room."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.made: list[onnx.NodeProto] = []
        self.instead: dict[str, str] = {}  # what is read in the place of a cache
        if DOMAIN not in {o.domain for o in model.opset_import}:
            model.opset_import.append(helper.make_opsetid(DOMAIN, 1))

    def rewrite(self, found: Sequence[tuple[onnx.NodeProto, Cache, str]]) -> None:
        """Give these caches room."""
        self._declare([c for _, c, _ in found])
        zero = self._constant("rows.zero", [0])
        for _, c, _ in found:
            axis = self._constant(f"{c.past}.axis", [c.axis])
            self.instead[c.past] = self._add("Slice", [c.past, zero, f"{c.size}.count", axis], f"{c.past}.filled")
        counted: set[str] = set()
        for node in list(self.graph.node):
            mine = [(c, new) for n, c, new in found if n is node]
            own = {c.past for c, _ in mine}
            for k, name in enumerate(node.input):
                if name not in own:
                    node.input[k] = self.instead.get(name, name)
            if node.op_type == "GroupQueryAttention" or not mine:
                self.made.append(node)  # takes caches with room
            for c, new in mine:
                self._use(c, *self._put(node, c, self.instead.get(new, new)), zero)
                if c.size not in counted:
                    counted.add(c.size)
                    self._add("Identity", [f"{c.present}.count"], c.used)
            if mine and node.op_type == "Attention":
                self._joining(node, [c for c, _ in mine], zero)
        del self.graph.node[:]
        self.graph.node.extend(self.made)

    def _put(self, node: onnx.NodeProto, cache: Cache, new: str) -> tuple[str, int]:
        """Write new rows into a cache, where its node does not; the array and the axis that say how many they are."""
        if node.op_type == "GroupQueryAttention":
            return new, 1
        heads = next((a.i for a in node.attribute if a.name == "kv_num_heads"), 0)
        if heads:  # heads side by side
            shape = self._constant(f"{cache.present}.apart", [0, 0, heads, -1])
            apart = self._add("Reshape", [new, shape], f"{cache.present}.heads")
            new = self._add("Transpose", [apart], f"{cache.present}.rows", perm=[0, 2, 1, 3])
        operands = [cache.past, new, f"{cache.size}.count"]
        self._add("PutRows", operands, cache.present, DOMAIN, axis=cache.axis)
        return new, cache.axis

    def _joining(self, node: onnx.NodeProto, caches: Sequence[Cache], zero: str) -> None:
        """A node that joins what has been and what comes for itself: it reads the first where both are now, lest `past`
        be needed after `present` is made."""
        for c in caches:
            operands = [c.present, zero, f"{c.size}.count", f"{c.past}.axis"]
            before = self._add("Slice", operands, f"{c.present}.before")
            for k, name in enumerate(node.input):
                node.input[k] = before if name == c.past else name
            for k, name in enumerate(node.output):
                node.output[k] = f"{name}.joined" if name == c.present else name
        self.made.append(node)

    def _declare(self, caches: Sequence[Cache]) -> None:
        """Inputs and outputs, and how many rows are in use before."""
        for size in dict.fromkeys(c.size for c in caches):
            self.graph.input.append(helper.make_tensor_value_info(f"{size}.rows", TensorProto.BOOL, [size]))
            self.graph.output.append(helper.make_tensor_value_info(f"{size}.used", TensorProto.INT64, [1]))
            self._add("Shape", [f"{size}.rows"], f"{size}.count")
        known = {name: c for c in caches for name in (c.past, c.present)}
        for info in (*self.graph.input, *self.graph.output):
            dims = info.type.tensor_type.shape.dim
            if info.name in known and len(dims) > known[info.name].axis:
                dims[known[info.name].axis].dim_param = f"{known[info.name].size}.room"

    def _use(self, cache: Cache, new: str, axis: int, zero: str) -> None:
        """What reads a cache behind the node that makes it reads the rows that are in use."""
        place, along = self._constant(f"{cache.present}.place", [axis]), f"{cache.past}.axis"
        shape = self._add("Shape", [new], f"{cache.present}.shape")
        rows = self._add("Gather", [shape, place], f"{cache.present}.new")
        count = self._add("Add", [f"{cache.size}.count", rows], f"{cache.present}.count")
        self.instead[cache.present] = self._add("Slice", [cache.present, zero, count, along], f"{cache.present}.filled")

    def _constant(self, name: str, value: list[int]) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    def _add(self, op_type: str, inputs: list[str], result: str, domain: str = "", **attrs: int | list[int]) -> str:
        self.made.append(helper.make_node(op_type, inputs, [result], domain=domain, **attrs))
        return result
