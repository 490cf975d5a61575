"""What a model file says of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from polyc.poly.records import dataclass

if TYPE_CHECKING:  # known models start without onnx
    import onnx

    from polyc.graph_driver.importing.binding import Dim

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Declared:
    """The inputs in the file's order with the sizes that it gives them: numbers, or names; None: it gives no rank.

    `tensors` are those that are tensors of numbers: others (strings, sequences) have no sizes.
    """

    name: str
    shapes: Mapping[str, Sequence[int | str] | None]
    tensors: frozenset[str]

    @property
    def free(self) -> list[str]:
        """The names of the sizes that the file leaves open, and the inputs of unknown rank."""
        found: dict[str, None] = {}
        for name, shape in self.shapes.items():
            if name in self.tensors:
                found.update(dict.fromkeys([name] if shape is None else [s for s in shape if isinstance(s, str)]))
        return list(found)

    def allows(self, given: Mapping[str, Shape], dims: Mapping[str, Dim], shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether arrays of these shapes contradict neither the file nor what was asked for by `dims` and `shapes`.

        Sizes of one name need not be equal: nothing but the operators can say whether the model needs that.
        """
        for name, want in self.shapes.items():
            if name not in self.tensors or name not in given:
                continue
            shape = given[name]
            if name in shapes and tuple(shapes[name]) != shape:
                return False
            if want is None:
                continue
            if len(want) != len(shape):
                return False
            for axis, (size, n) in enumerate(zip(want, shape, strict=True)):
                asked = size if isinstance(size, int) else dims.get(size, dims.get(f"{name}.{axis}"))
                if isinstance(asked, tuple):
                    low, high = asked
                    if n < low or (high is not None and n > high):
                        return False
                elif asked is not None and asked != n:
                    return False
        return True

    def bindings(self, given: Mapping[str, Shape], dims: Mapping[str, Dim]) -> tuple[dict[str, Dim], dict[str, Shape]]:
        """`dims` and `shapes` that make every size of every input the number that it has in `given`.

        Sizes go by input and axis, so that two of one name may differ.
        """
        numbers = {name: value for name, value in dims.items() if isinstance(value, int)}
        found: dict[str, Dim] = dict(numbers)
        shapes: dict[str, Shape] = {}
        for name, want in self.shapes.items():
            if name not in self.tensors or name not in given:
                continue
            if want is None:
                shapes[name] = given[name]
                continue
            for axis, (size, n) in enumerate(zip(want, given[name], strict=True)):
                if isinstance(size, str) and size not in numbers:
                    found[f"{name}.{axis}"] = n
        return found, shapes


def declared(model: onnx.ModelProto, without: Iterable[str] = ()) -> Declared:
    """The inputs of a model that a run must give, `without` those that are bound to values."""
    from polyc.graph_driver.graph.onnx_tensors import dtype_of
    from polyc.graph_driver.importing.binding import symbol_of

    given = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    shapes: dict[str, Sequence[int | str] | None] = {}
    tensors = set()
    for i in model.graph.input:
        if i.name in given or i.name in without:
            continue
        shapes[i.name] = None
        if i.type.HasField("tensor_type") and dtype_of(i.type.tensor_type.elem_type) is not None:
            tensors.add(i.name)
            if i.type.tensor_type.HasField("shape"):
                dims = i.type.tensor_type.shape.dim
                shapes[i.name] = [symbol_of(i.name, axis, d) for axis, d in enumerate(dims)]
    return Declared(model.graph.name or "model", shapes, frozenset(tensors))
