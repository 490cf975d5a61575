"""Implementations of nodes: what each supports, as an integer set of sizes, and what it is expected to cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import prod

import islpy as isl

from polyc.graph_driver.choosing import winograd
from polyc.graph_driver.graph.decisions import Considered
from polyc.graph_driver.graph.external import External, externals_for
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.inference.symbolic import at_typical
from polyc.graph_driver.operators import lookup
from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Work, at_level, nominal, predict

HOST_CYCLES = 200_000.0  # a call of Python's reference (measured: some 50 microseconds)
HOST_SLOWDOWN = 20.0  # of NumPy's interpreted loops, against vector code
HOST_PRODUCT = 1.2  # of its BLAS
HOST_PATCH = 28.0  # cycles for each element of the patches that its convolution copies (measured: some 9 ns)
CONVOLUTION = "n, c, h, w, o, kh, kw, sh, sw, dh, dw, g"  # batch, channels, image, filters, kernel, strides, ...
ANY = ""
EXACT = "it rounds in other places (--exact)"


@dataclass(frozen=True)
class Candidate:
    """One implementation of `op_types` (empty: of any).

    `dtypes` of the first operand (empty: any), `layout` of all operands and results, `device`: `cpu` code or
    the `host`. `shapes` is a set over `sizes(node)`. `cost` in cycles of one thread. `exact` candidates round
    as the operator's definition does.
    """

    name: str
    op_types: tuple[str, ...]
    dtypes: tuple[str, ...]
    device: str
    shapes: str
    cost: Callable[[Graph, Node, Target], float]
    exact: bool = True
    layout: str = "row-major"

    def refusal(self, graph: Graph, node: Node) -> str | None:
        """Why it cannot run this node; None when it can."""
        dtype = graph.tensors[node.inputs[0]].dtype if node.inputs and node.inputs[0] else None
        if self.dtypes and (dtype is None or dtype.name not in self.dtypes):
            return f"it takes {' or '.join(self.dtypes)}, not {dtype}"
        if not self.shapes:
            return None
        sizes = sizes_of(graph, node)
        if sizes is None:
            return "sizes are only known at run time"
        return _first_violated(self.shapes, tuple(sizes.items()))


def sizes_of(graph: Graph, node: Node) -> dict[str, int] | None:
    """The sizes that candidates' sets are about: those of a two-dimensional convolution, else none. Any number of
    images is the representative one; other sizes have to be numbers."""
    if node.op_type != "Conv" or node.domain:
        return {}
    tensors = [graph.tensors[n] for n in (node.inputs[0], node.inputs[1], node.outputs[0])]
    if any(t.shape is None or len(t.shape) != 4 or not all(isinstance(e, int) for e in t.shape[1:]) for t in tensors):
        return None
    shapes = [_typical(graph, t).shape for t in tensors]
    x, w = (tuple(int(e) for e in s or () if isinstance(e, int)) for s in shapes[:2])
    strides, dilations = (list(node.attrs.get(k) or (1, 1)) for k in ("strides", "dilations"))
    values = (x[0], x[1], x[2], x[3], w[0], w[2], w[3], *strides, *dilations, node.attrs.get("group", 1))
    return dict(zip(CONVOLUTION.split(", "), map(int, values), strict=True))


@cache
def _set(sizes: str, condition: str) -> isl.Set:
    return isl.Set(f"{{ [{sizes}] : {condition} }}")


@cache
def _first_violated(shapes: str, sizes: tuple[tuple[str, int], ...]) -> str | None:
    """The first of the conditions (joined by `and`) that these sizes break."""
    names = ", ".join(n for n, _ in sizes)
    if not names:
        return "it is for convolutions of images"
    at = _set(names, " and ".join(f"{n} = {v}" for n, v in sizes))
    if at.is_subset(_set(names, shapes)):
        return None
    for condition in shapes.split(" and "):
        if not at.is_subset(_set(names, condition)):
            return f"it needs {condition}"
    return f"it needs {shapes}"


# ---- costs ---------------------------------------------------------------------------------------


def _cycles(work: Work, target: Target) -> float:
    """By the one cost model, for a nominal machine: the same choice on every computer with this target."""
    machine = nominal(target)
    return predict(work, machine).seconds * machine.hertz


def _typical(graph: Graph, tensor: Tensor) -> Tensor:
    """With the representative sizes: a model is planned with them."""
    return tensor if graph.symbols is None else at_typical(tensor, graph.symbols)


def _moved(graph: Graph, node: Node, target: Target) -> Work:
    """Operands and results once: activations from where so many bytes are, weights from memory if L2 cannot hold
    them (the many layers of a network share the caches)."""
    total = Work()
    for name in (*node.reads(), *node.writes()):
        t = _typical(graph, graph.tensors[name])
        size = t.nbytes if t.static and isinstance(t.nbytes, int) else 0
        level = "memory" if t.const is not None and size > target.l2 else at_level(size, target)
        if level is not None:
            moved: dict[str, float] = {level: size}
            total += Work(read=moved) if name in node.inputs else Work(write=moved)
    return total


def _traffic(graph: Graph, node: Node, target: Target) -> float:
    return _cycles(_moved(graph, node, target), target)


def _direct(graph: Graph, node: Node, target: Target) -> float:
    return _cycles(_moved(graph, node, target) + _products(graph, node), target)


def _products(graph: Graph, node: Node) -> Work:
    """The multiply-adds of a convolution or matrix product of known sizes."""
    s = sizes_of(graph, node)
    y = _typical(graph, graph.tensors[next(node.writes())]).shape or ()
    a = _typical(graph, graph.tensors[node.inputs[0]]).shape or () if node.inputs and node.inputs[0] else ()
    if not all(isinstance(e, int) for e in (*a, *y)):
        return Work()
    if s:
        terms = s["c"] // s["g"] * s["kh"] * s["kw"]
    elif node.op_type in ("Gemm", "MatMul") and a:
        terms = int(a[0 if node.attrs.get("transA") else -1])
    else:
        return Work()
    return Work(flops=2.0 * prod(int(e) for e in y) * terms / winograd.DIRECT_SHARE)


def _winograd(m: int) -> Callable[[Graph, Node, Target], float]:
    def cost(graph: Graph, node: Node, target: Target) -> float:
        shape = winograd.shape_of(graph, node)
        if shape is None:
            return float("inf")
        parts = winograd.winograd_work(shape, m, target), winograd.handed_on(shape, m, target)
        return winograd.GAIN * sum(_cycles(w, target) for w in parts)

    return cost


def _host(graph: Graph, node: Node, target: Target) -> float:
    """By onnx's reference: products are NumPy's, convolutions such products of copied patches."""
    direct = _direct(graph, node, target)
    sizes = sizes_of(graph, node)
    if sizes:
        y = _typical(graph, graph.tensors[node.outputs[0]]).shape or ()
        pixels = prod(int(e) for e in (y[0], *y[2:]))
        patches = sizes["c"] * sizes["kh"] * sizes["kw"] * pixels
        return HOST_CYCLES + HOST_PRODUCT * direct + HOST_PATCH * patches
    if node.op_type in ("Gemm", "MatMul"):
        return HOST_CYCLES + HOST_PRODUCT * direct
    return HOST_CYCLES + HOST_SLOWDOWN * direct


WINOGRAD_SHAPES = "kh = 3 and kw = 3 and sh = 1 and sw = 1 and dh = 1 and dw = 1 and g = 1"
CANDIDATES: tuple[Candidate, ...] = (
    Candidate("loops", (ANY,), (), "cpu", "", _traffic),
    Candidate("contraction", ("Conv", "ConvTranspose", "Gemm", "MatMul"), (), "cpu", "", _direct),
    *(
        Candidate(f"winograd{m}", ("Conv",), ("f32",), "cpu", WINOGRAD_SHAPES, _winograd(m), exact=False)
        for m in winograd.TILES
    ),
    Candidate("host", (ANY,), (), "host", "", _host),
)


def considered(graph: Graph, node: Node, target: Target, exact: bool, allowed: Mapping[str, str]) -> list[Considered]:
    """All candidates for a node. `allowed` refuses candidates by name, with the reason."""
    special = any(node.op_type in c.op_types for c in CANDIDATES)
    out = []
    for c in CANDIDATES:
        if node.op_type not in c.op_types and (c.op_types != (ANY,) or (c.name == "loops" and special)):
            continue
        refusal = allowed.get(c.name) or c.refusal(graph, node)
        if refusal is None and exact and not c.exact:
            refusal = EXACT
        if refusal is None and c.device == "cpu" and lookup(node.domain, node.op_type) is None:
            refusal = "no operator in the library yet"
        if refusal is None and c.name.startswith("winograd") and winograd.shape_of(graph, node) is None:
            refusal = "its weights are no constants, or its padding is negative"
        out.append(Considered(c.name, c.device, None if refusal else c.cost(graph, node, target), refusal or ""))
    return [*out, *(_external(graph, node, e, allowed, exact) for e in externals_for(node))]


def _external(graph: Graph, node: Node, e: External, allowed: Mapping[str, str], exact: bool) -> Considered:
    """A function that the user registered."""
    sizes = e.sizes(graph, node)
    refusal = allowed.get("external") or (EXACT if exact else "")
    if not refusal and isinstance(sizes, str):
        refusal = sizes
    if not refusal and not isinstance(sizes, str) and e.shapes:
        refusal = _first_violated(e.shapes, tuple(sizes.items())) or ""
    if refusal or isinstance(sizes, str):
        return Considered(e.name, e.device, None, refusal)
    return Considered(e.name, e.device, 0.0 if e.cost is None else float(e.cost(sizes)))
