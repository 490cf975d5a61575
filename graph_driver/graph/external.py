"""Functions of the user's own (a BLAS, hand-written C) as implementations of operators.

`register_external` is the only way in: nothing in a model file or a compiled directory names a library or a
path. A registered function is one more candidate for the nodes that it fits (`graph_driver.choosing`); where it is
chosen, the node becomes a step that calls it.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ArgumentError, BuildError
from polyc.poly.records import dataclass
from polyc.poly.words import counted

DOMAIN = "polyc.external"
_NAME = re.compile(r"[A-Za-z_]\w*")
_PATTERN = re.compile(r"(\w+)\[([\w\s,]*)\]")


@dataclass(frozen=True)
class Operand:
    """An array: element type, and the name (or value) of each extent. Row-major, without gaps."""

    dtype: str
    extents: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> Operand:
        """From `f32[m, k]`. Raises `ArgumentError`."""
        found = _PATTERN.fullmatch(text.strip())
        extents = tuple(e.strip() for e in found[2].split(",")) if found and found[2].strip() else ()
        if found is None or found[1] not in BY_NAME or not all(_NAME.fullmatch(e) or e.isdigit() for e in extents):
            raise ArgumentError(f"'{text}' is no array; write it as f32[m, k]")
        return Operand(found[1], extents)


@dataclass(frozen=True)
class External:
    """A registered function. `symbol` stands for its declaration and its text or library."""

    name: str
    operator: str
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    shapes: str
    attributes: tuple[tuple[str, Any], ...]
    symbol: str
    device: str = "cpu"
    layout: str = "row-major"
    cost: Callable[[Mapping[str, int]], float] | None = field(default=None, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The sizes that the function gets, in this order."""
        named = [e for o in (*self.operands, *self.results) for e in o.extents if not e.isdigit()]
        return tuple(dict.fromkeys(named))

    def sizes(self, graph: Graph, node: Node) -> dict[str, int] | str:
        """The sizes of a node, or why the function is not for it."""
        if {k: v for k, v in node.attrs.items() if k not in dict(self.attributes)}:
            extra = next(k for k in node.attrs if k not in dict(self.attributes))
            return f"it knows no attribute {extra}"
        for key, value in self.attributes:
            if node.attrs.get(key) != value:
                return f"it needs {key} = {value}"
        patterns, names = (*self.operands, *self.results), (*node.inputs, *node.outputs)
        if len(node.inputs) != len(self.operands) or len(node.outputs) != len(self.results) or not all(names):
            return f"it takes {counted(len(self.operands), 'operand')} and gives {counted(len(self.results), 'result')}"
        values: dict[str, int] = {}
        for pattern, name in zip(patterns, names, strict=True):
            tensor = graph.tensors[name]
            shape = tensor.shape
            if not tensor.static or shape is None or not all(isinstance(n, int) for n in shape):
                return "sizes are only known at run time"
            if tensor.dtype is None or tensor.dtype.name != pattern.dtype or len(shape) != len(pattern.extents):
                return f"'{name}' is {tensor.dtype}[{', '.join(map(str, shape))}], not {_text(pattern)}"
            for extent, n in zip(pattern.extents, shape, strict=True):
                if (int(extent) if extent.isdigit() else values.setdefault(extent, int(n))) != n:
                    return f"'{name}' is {tensor.dtype}[{', '.join(map(str, shape))}], not {_text(pattern)}"
        return values if all(values.values()) else "it has no elements"


@dataclass(frozen=True)
class Call:
    """What a node that runs as a registered function has in its attributes; no file can say that."""

    external: External
    sizes: tuple[int, ...]


def _text(pattern: Operand) -> str:
    return f"{pattern.dtype}[{', '.join(pattern.extents)}]"


_registered: dict[str, External] = {}
_addresses: dict[str, int] = {}  # of all that ever were registered, by symbol: models that use them go on
_libraries: list[ctypes.CDLL] = []  # a function's code lives as long as its library


def register_external(
    name: str, operator: str, operands: Sequence[str], results: Sequence[str], *, function: str,
    source: str | None = None, library: str | Path | None = None, link: Sequence[str] = (), shapes: str = "",
    attributes: Mapping[str, Any] | None = None, cost: Callable[[Mapping[str, int]], float] | None = None,
) -> None:  # fmt: skip
    """Offer a C function as an implementation of an ONNX operator; it is used where it is the cheapest.

    The function is `void FUNCTION(void **buffers, const int64_t *sizes, void *runtime)`: `buffers` are the
    operands and then the results, row-major and without gaps; `sizes` the named extents in the order in which
    they first stand in `operands` and `results`. It writes all of its results, nothing else, keeps no pointer, and may
    be called from several threads at the same time. Models compiled before are not changed.

    Args:
        name: of the candidate, as `polyc explain` shows it; an older one of that name is replaced.
        operator: ONNX's name, as `MatMul`.
        operands: element types and extents, as `f32[m, k]`; an extent is a name or a number.
        results: the same.
        function: its name in `source` or `library`.
        source: C text, compiled now by gcc or clang with the options `link`.
        library: path of a shared library (instead of `source`).
        shapes: the sizes that it supports as an integer set in isl's notation, as `m >= 16 and n mod 8 = 0`.
        attributes: values that the node's attributes must have; a node with others is refused.
        cost: cycles for given sizes; None: nothing, it is taken wherever it fits.

    Raises:
        ArgumentError: the declaration makes no sense.
        BuildError: the text does not compile, or there is no such library or function.
    """
    import islpy as isl  # models that call none start without it

    taken = [Operand.parse(o) for o in operands]
    given = [Operand.parse(r) for r in results]
    if (source is None) == (library is None):
        raise ArgumentError(f"external function '{name}' needs either source or library")
    if not given or not _NAME.fullmatch(name):
        raise ArgumentError(f"external function '{name}' needs a result, and a name of letters and digits")
    code = source.encode() if source is not None else _library_bytes(Path(str(library)))
    declared = (name, operator, taken, given, shapes, sorted((attributes or {}).items()), function, link)
    digest = hashlib.sha256(repr(declared).encode() + code).hexdigest()
    made = External(
        name, operator, tuple(taken), tuple(given), shapes, tuple(sorted((attributes or {}).items())),
        f"polyc_{digest[:20]}", cost=cost,
    )  # fmt: skip
    try:
        isl.Set(f"{{ [{', '.join(made.names)}] : {shapes or 'true'} }}")
    except isl.Error:
        raise ArgumentError(f"'{shapes}' is no set of the sizes {', '.join(made.names)}") from None
    _addresses[made.symbol] = _address(name, function, source, library, link)
    _registered[name] = made


def unregister_external(name: str) -> None:
    """Take a function back; models that use it go on. Raises `ArgumentError` when there is none."""
    if name not in _registered:
        raise ArgumentError(f"there is no external function '{name}'")
    del _registered[name]


def externals_for(node: Node) -> list[External]:
    """The registered functions for a node's operator."""
    return [] if node.domain else [e for e in _registered.values() if e.operator == node.op_type]


def all_registered() -> tuple[External, ...]:
    """The registered functions, the one registered last at the end."""
    return tuple(_registered.values())


def any_registered() -> bool:
    """Whether there is a registered function."""
    return bool(_registered)


def address_of(symbol: str) -> int:
    """Where the function of a compiled or loaded model is in this process."""
    return _addresses[symbol]


def check_registered(symbol: str, name: str) -> None:
    """Raise `BuildError` when a function that a saved model calls, or this version of it, is not registered."""
    found = _registered.get(name)
    if found is None or found.symbol != symbol:
        state = "not registered" if found is None else "registered in another version"
        raise BuildError(f"the model calls the external function '{name}', which is {state} here")


def call_of(node: Node) -> Call | None:
    """The call that a node stands for, None for all ordinary ones."""
    call = node.attrs.get("call") if node.domain == DOMAIN else None
    return call if isinstance(call, Call) else None


def calls_of(graph: Graph) -> set[tuple[str, ...]]:
    """The results of all nodes that are calls."""
    return {tuple(n.outputs) for n in graph.nodes if call_of(n) is not None}


def use_externals(graph: Graph, chosen: Mapping[tuple[str, ...], str]) -> dict[str, int]:
    """Replace the nodes for which `chosen` (by results) names a registered function by calls of it."""
    count = 0
    for k, node in enumerate(graph.nodes):
        external = _registered.get(chosen.get(tuple(node.outputs), ""))
        sizes = "" if external is None else external.sizes(graph, node)
        if external is None or isinstance(sizes, str):
            continue
        attrs = {"call": Call(external, tuple(sizes[n] for n in external.names))}
        graph.nodes[k] = Node(node.name, external.name, list(node.inputs), list(node.outputs), attrs, DOMAIN)
        count += 1
    return {"nodes": count}


def _library_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BuildError(f"cannot read the library {path}: {error.strerror}") from None


def _address(name: str, function: str, source: str | None, library: str | Path | None, link: Sequence[str]) -> int:
    from polyc.emit.c import cc

    try:
        loaded = cc.load_shared(cc.build_shared(source, link)) if source is not None else ctypes.CDLL(str(library))
        found = ctypes.cast(getattr(loaded, function), ctypes.c_void_p).value
    except OSError as error:
        raise BuildError(f"cannot load the library of external function '{name}': {error}") from None
    except AttributeError:
        raise BuildError(f"external function '{name}': there is no function '{function}' in it") from None
    assert found is not None
    _libraries.append(loaded)
    return found
