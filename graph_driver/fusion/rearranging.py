"""Tensors that are stored in another layout than the model's: what they are, and making them."""

from __future__ import annotations

from dataclasses import replace

from polyc.graph_driver.graph.ir import Graph, Tensor
from polyc.poly.expr import Const
from polyc.poly.records import dataclass
from polyc.poly.rewriting.stored import Layout, laid_out_shape, seen_by
from polyc.poly.scop import Array


@dataclass(frozen=True, slots=True)
class Rearranged:
    """The weight `source`, seen as `shape`, stored by `layout` as the tensor `name`; or what a kernel makes, stored so
    under its own name."""

    name: str
    source: str
    shape: tuple[int, ...]
    layout: Layout

    def described(self) -> str:
        """For people: the tensor, its shape and the shape that it is stored in."""
        return f"{self.source}: {list(self.shape)} stored as {list(laid_out_shape(self.shape, self.layout))}"


def rearrange(graph: Graph, what: Rearranged) -> None:
    """Make the tensor `what.name` of `graph` if it is not there yet, or say of one that is made in a run how it is
    stored."""
    old = graph.tensors[what.source]
    if what.name == what.source:
        graph.tensors[what.name] = replace(old, layout=what.layout)
        return
    if what.name in graph.tensors:
        return
    assert old.const is not None
    data = seen_by(old.const.reshape(what.shape), what.layout)  # the weights' segment is the only copy
    graph.tensors[what.name] = Tensor(what.name, old.dtype, data.shape, data)


def stored_as(graph: Graph, name: str, array: Array, layout: Layout) -> Rearranged:
    """The weight in its new layout (made once per layout)."""
    shape = tuple(int(e.value) for e in array.shape if isinstance(e, Const))
    cuts = "x".join("_".join(map(str, part)) for part in layout)
    what = Rearranged(f"{name}:{'x'.join(map(str, shape))}:{cuts}", name, shape, layout)
    rearrange(graph, what)
    return what
