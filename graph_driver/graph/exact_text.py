"""A graph as exact text, and the graph back: `parse_graph(exact_graph(g), parts(g))` is `g` again.

Nodes with attributes and subgraphs, tensors with types and shapes, symbolic sizes with ranges and guards. Arrays and
protobufs of up to `SMALL` bytes stand in the text as hexadecimal bytes (little endian, by rows); longer ones, and what
the file said of a node, as their SHA-256: `parts` has them by it. What passes and the verifier have noted on the way
(decisions, selections, checks) is no part of it. `ir.to_text` is the short form for people.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from math import prod
from operator import add, floordiv, mul, sub
from typing import Any, NoReturn

import numpy as np
import onnx

from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Codes, Graph, Node, Tensor
from polyc.graph_driver.graph.size import Size, SizeError, symbol
from polyc.graph_driver.graph.symbols import Guard, Range, Symbols
from polyc.poly.dtypes import BY_NAME
from polyc.poly.records import dataclass
from polyc.poly.text import layout_text
from polyc.poly.texts.parser import layout_from
from polyc.poly.texts.words import WORD, WrongTextError, unquoted, word

SMALL = 64
"""Bytes of an array or a protobuf that the text shows."""

Part = np.ndarray | bytes
_PROTOS = {t.__name__: t for t in (onnx.NodeProto, onnx.GraphProto, onnx.TypeProto, onnx.TensorProto,
                                   onnx.SparseTensorProto)}  # fmt: skip
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv
}  # fmt: skip
TYPE_NAMES = {d.np: name for name, d in BY_NAME.items()}
"""What texts call the types of arrays."""


def exact_graph(graph: Graph) -> str:
    """The graph as text; equal texts are equal graphs. Ends with a newline.

    Raises:
        GraphError: an attribute of a kind that has no text.
    """
    return "\n".join(_Printer().graph(graph, "")) + "\n"


def parts(graph: Graph) -> dict[str, Part]:
    """Arrays and serialised protobufs that the text has as hashes, by these."""
    printer = _Printer()
    list(printer.graph(graph, ""))
    return printer.parts


def parse_graph(text: str, given: Mapping[str, Part] | None = None) -> Graph:
    """The graph that `exact_graph` has written.

    Args:
        given: what `parts` says of the graph. A node whose protobuf is not there has none.

    Raises:
        GraphError: the text is none, or an array is not given; one line with the line's number.
    """
    reader = _Reader(text, given or {})
    try:
        graph = reader.graph(0)
        if reader.at < len(reader.lines):
            raise WrongTextError("nothing may come after the graph")
    except (WrongTextError, SizeError) as error:
        said = str(error)
    except RecursionError:
        said = "this is nested too deeply"
    else:
        return graph
    number, line = reader.place()
    short = " ".join(line.split())
    raise GraphError(f"graph, line {number}: {said}: {short if len(short) <= 200 else short[:197] + '...'}") from None


# ---- writing -------------------------------------------------------------------------------


class _Printer:
    """Collects what is left out of the text."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}

    def graph(self, graph: Graph, pad: str) -> Iterator[str]:
        """Everything in the order in which a reader needs it."""
        yield f"{pad}graph {word(graph.name)}"
        yield from (f"{pad}  opset {word(domain)} {version}" for domain, version in graph.opsets.items())
        yield from (f"{pad}  note {json.dumps(note)}" for note in graph.notes)
        if graph.symbols is not None:
            yield from self.symbols(graph.symbols, pad + "  ")
        yield from (line for t in graph.tensors.values() for line in self.tensor(t, pad + "  "))
        yield f"{pad}  input {_words(graph.inputs)}"
        yield f"{pad}  output {_words(graph.outputs)}"
        for node in graph.nodes:
            yield from self.node(node, pad + "  ")

    def symbols(self, symbols: Symbols, pad: str) -> Iterator[str]:
        """`size n from 1 to - typical 8 asked 1 to - key "batch"`, and guards."""
        yield f"{pad}symbolic{' cut_below' if symbols.cut_below else ''}"
        for name, r in symbols.ranges.items():
            if not name.isidentifier():
                raise GraphError(f"the symbolic size '{name}' has no name for formulas")
            low, high = f"{r.low} to {_end(r.high)}", f"{r.asked[0]} to {_end(r.asked[1])}"
            why = f" because {json.dumps(symbols.reasons[name])}" if name in symbols.reasons else ""
            yield f"{pad}size {name} from {low} typical {r.typical} asked {high} key {word(r.key)}{why}"
        for g in symbols.guards:
            yield f"{pad}guard {g.kind} {g.size} because {json.dumps(g.reason)}"

    def tensor(self, t: Tensor, pad: str) -> Iterator[str]:
        """`tensor x: f32[1, 3]`, and what else is known of it."""
        shape = "?" if t.shape is None else f"[{', '.join(map(str, t.shape))}]"
        const = "" if t.const is None else f" = {self.value(np.asarray(t.const))}"
        yield f"{pad}tensor {word(t.name)}: {'?' if t.dtype is None else t.dtype}{shape}{const}"
        if t.onnx_type is not None:
            yield f"{pad}  onnx_type {self.value(t.onnx_type)}"
        if t.sizes is not None:
            yield f"{pad}  sizes {list(t.sizes.shape)} {', '.join(map(str, t.sizes.flat))}"
        if t.codes is not None:
            arrays = (t.codes.integers, t.codes.zero, t.codes.scale)
            yield f"{pad}  codes of axis {t.codes.axis} [{', '.join(map(self.value, arrays))}]"
        if t.layout is not None:
            yield f"{pad}  layout {layout_text(t.layout)}"

    def node(self, node: Node, pad: str) -> Iterator[str]:
        """`node n0: y = Conv(x, w, -)`, its attributes, then its subgraphs."""
        kind = f"{word(node.domain)}::{word(node.op_type)}" if node.domain else word(node.op_type)
        yield f"{pad}node {word(node.name)}: {_words(node.outputs)} = {kind}({_words(node.inputs)})"
        yield from (f"{pad}  {word(key)} = {self.value(value)}" for key, value in node.attrs.items())
        if node.captures:
            yield f"{pad}  captures {_words(node.captures)}"
        if node.proto is not None:
            data = node.proto.SerializeToString(deterministic=True)
            yield f"{pad}  protobuf {self.data(data, hashed=True)}"
        for body in node.bodies:
            yield f"{pad}  {'on the host' if body is None else 'body'}"
            if body is not None:
                yield from self.graph(body, pad + "    ")

    def value(self, value: Any) -> str:
        """An attribute's value or an array, as a Python expression."""
        if value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        if type(value) is float:
            return repr(value) if np.isfinite(value) else f"float('{value!r}')"
        if type(value) is list:
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, np.ndarray):
            return self.array(value)
        if type(value).__name__ in _PROTOS:
            data = value.SerializeToString(deterministic=True)
            return f"proto({type(value).__name__!r}, {self.data(data)})"
        raise GraphError(f"a value of type {type(value).__name__} has no text")

    def array(self, a: np.ndarray) -> str:
        """`array(f32, [2], '0000803f00000040')`, `strings([1], ['yes'])`."""
        if a.dtype == object:
            return f"strings({list(a.shape)}, {self.value(a.ravel().tolist())})"
        if a.dtype not in TYPE_NAMES:
            raise GraphError(f"an array of {a.dtype} has no text")
        data = np.ascontiguousarray(a).tobytes()
        return f"array({TYPE_NAMES[a.dtype]}, {list(a.shape)}, {self.data(data, a)})"

    def data(self, data: bytes, array: np.ndarray | None = None, hashed: bool = False) -> str:
        """The bytes in hexadecimal, or their hash: of long ones, and where `hashed` says so."""
        if len(data) <= SMALL and not hashed:
            return repr(data.hex())
        # The same bytes may be arrays of several types.
        kind = "" if array is None else f"{array.dtype} {array.shape} "
        digest = f"sha256 {sha256(kind.encode() + data).hexdigest()}"
        self.parts[digest] = data if array is None else array
        return repr(digest)


def _words(names: list[str] | tuple[str, ...]) -> str:
    """Names with commas between; the absent one is `-`."""
    return ", ".join(word(n) if n else "-" for n in names)


def _end(high: int | None) -> str:
    return "-" if high is None else str(high)


# ---- reading -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    number: int
    depth: int
    text: str


class _Reader:
    """Line by line, by indentation; methods raise `WrongTextError`."""

    def __init__(self, text: str, given: Mapping[str, Part]) -> None:
        self.lines = [
            _Line(n, (len(raw) - len(raw.lstrip(" "))) // 2, raw.strip())
            for n, raw in enumerate(text.split("\n"), 1)
            if raw.strip()
        ]
        self.given, self.at = given, 0

    def place(self) -> tuple[int, str]:
        """Number and text of the present line, at the end of the last one."""
        if not self.lines:
            return 1, "the text is empty"
        line = self.lines[min(self.at, len(self.lines) - 1)]
        return line.number, line.text

    def next(self, pattern: str, depth: int) -> re.Match[str] | None:
        """The present line, if it is of this form and as far to the right."""
        if self.at >= len(self.lines) or self.lines[self.at].depth != depth:
            return None
        return re.fullmatch(pattern, self.lines[self.at].text)

    def each(self, pattern: str, depth: int) -> Iterator[re.Match[str]]:
        """All lines of this form from here; each is the present one while it is read."""
        while found := self.next(pattern, depth):
            yield found
            self.at += 1

    def need(self, pattern: str, depth: int, form: str) -> re.Match[str]:
        """The present line, which has to be of this form."""
        found = self.next(pattern, depth)
        if found is None:
            raise WrongTextError(f"here the text has the form '{form}', indented by {2 * depth}")
        return found

    def graph(self, depth: int) -> Graph:
        """A graph whose head is at this depth."""
        name = unquoted(self.need(rf"graph ({WORD})", depth, "graph NAME")[1])
        self.at += 1
        inner = depth + 1
        opsets = {unquoted(f[1]): int(f[2]) for f in self.each(rf"opset ({WORD}) (\d+)", inner)}
        notes = [unquoted(f[1]) for f in self.each(r"note (\".*\")", inner)]
        symbols = self.symbols(inner)
        tensors: dict[str, Tensor] = {}
        while self.next(r"tensor .*", inner):
            t = self.tensor(symbols, inner)
            if t.name in tensors:
                self.at -= 1
                raise WrongTextError(f"there is another tensor '{t.name}'")
            tensors[t.name] = t
        ends = []
        for what in ("input", "output"):
            found = self.need(rf"{what} ?(.*)", inner, f"{what} NAMES")
            ends.append(self.known(_names(found[1]), tensors))
            self.at += 1
        nodes = []
        while self.next(r"node .*", inner):
            nodes.append(self.node(tensors, inner))
        if self.at < len(self.lines) and self.lines[self.at].depth >= inner:
            raise WrongTextError("here the text has the form 'node NAME: RESULTS = OPERATOR(OPERANDS)'")
        return Graph(name, opsets, ends[0], ends[1], tensors, nodes, notes, symbols=symbols)

    def known(self, names: list[str], tensors: Mapping[str, Tensor]) -> list[str]:
        """The names, if they are of tensors or absent."""
        for n in names:
            if n and n not in tensors:
                raise WrongTextError(f"no tensor '{n}' is declared")
        return names

    def symbols(self, depth: int) -> Symbols | None:
        """Ranges and guards; None: all sizes are numbers."""
        head = self.next(r"symbolic( cut_below)?", depth)
        if head is None:
            return None
        self.at += 1
        made = Symbols(cut_below=head[1] is not None)
        end = r"(-?\d+) to (-|-?\d+)"
        pattern = rf"size (\w+) from {end} typical (-?\d+) asked {end} key ({WORD})(?: because (\".*\"))?"
        for f in self.each(pattern, depth):
            made.ranges[f[1]] = Range(int(f[2]), _high(f[3]), int(f[4]), (int(f[5]), _high(f[6])), unquoted(f[7]))
            if f[8]:
                made.reasons[f[1]] = unquoted(f[8])
        for f in self.each(r"guard (<|=|>=) (.*?) because (\".*\")", depth):
            size = _formula(f[2], made)
            if not isinstance(size, Size):
                raise WrongTextError("a guard is about a formula")
            made.guards.append(Guard(size, f[1], unquoted(f[3])))
        return made

    def tensor(self, symbols: Symbols | None, depth: int) -> Tensor:
        """A tensor and the lines below it."""
        pattern = rf"tensor ({WORD}): (\?|\w+)(\?|\[[^\]]*\])(?: = (.*))?"
        f = self.need(pattern, depth, "tensor NAME: TYPE[SHAPE]")
        if f[2] != "?" and f[2] not in BY_NAME:
            raise WrongTextError(f"there is no type '{f[2]}'")
        shape = None if f[3] == "?" else _formulas(f[3][1:-1], symbols)
        const = None if f[4] is None else self.array_of(f[4])
        self.at += 1
        onnx_type = sizes = codes = layout = None
        for g in self.each(r"onnx_type (.*)", depth + 1):
            onnx_type = self.value(g[1])
        for g in self.each(r"sizes (\[[\d, ]*\]) ?(.*)", depth + 1):
            sizes = np.empty(_shape(g[1]), object)
            elements = _formulas(g[2], symbols)
            if len(elements) != sizes.size:
                raise WrongTextError(f"{sizes.size} sizes have to stand here")
            sizes.ravel()[:] = elements
        for g in self.each(r"codes of axis (-?\d+) (\[.*\])", depth + 1):
            arrays = self.value(g[2])
            if len(arrays) != 3:
                raise WrongTextError("codes are integers, zero points and scales")
            codes = Codes(arrays[0], arrays[1], arrays[2], int(g[1]))
        for g in self.each(r"layout \((.*)\)", depth + 1):
            layout = layout_from(g[1])
        return Tensor(unquoted(f[1]), BY_NAME.get(f[2]), shape, const, onnx_type, sizes, codes, layout)

    def node(self, tensors: Mapping[str, Tensor], depth: int) -> Node:
        """A node and the lines below it."""
        kind = rf"(?:({WORD})::)?({WORD})"
        pattern = rf"node ({WORD}): (.*) = {kind}\((.*)\)"
        f = self.need(pattern, depth, "node NAME: RESULTS = OPERATOR(OPERANDS)")
        operands, results = (self.known(_names(text), tensors) for text in (f[5], f[2]))
        self.at += 1
        attrs: dict[str, Any] = {}
        for g in self.each(rf"({WORD}) = (.*)", depth + 1):
            attrs[unquoted(g[1])] = self.value(g[2])
        captures: tuple[str, ...] = ()
        for g in self.each(r"captures (.*)", depth + 1):
            captures = tuple(self.known(_names(g[1]), tensors))
        proto = None
        for g in self.each(r"protobuf '(sha256 \w+)'", depth + 1):
            proto = self.proto("NodeProto", g[1])
        bodies: list[Graph | None] = []
        while body := self.next(r"on the host|body", depth + 1):
            self.at += 1
            bodies.append(None if body[0] == "on the host" else self.graph(depth + 2))
        name, domain, kind = unquoted(f[1]), unquoted(f[3] or ""), unquoted(f[4])
        return Node(name, kind, operands, results, attrs, domain, captures, proto, tuple(bodies))

    # ---- values ----------------------------------------------------------------------------

    def array_of(self, text: str) -> np.ndarray:
        """A value that has to be an array."""
        made = self.value(text)
        if not isinstance(made, np.ndarray):
            raise WrongTextError("a constant is an array")
        return made

    def value(self, text: str) -> Any:
        """What `_Printer.value` has written; Python's parser reads it, nothing is evaluated."""
        try:
            node = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, MemoryError):
            raise WrongTextError(f"'{text[:60]}' is no value") from None
        return self.made(node)

    def made(self, node: ast.expr) -> Any:
        """The value of a tree of Python's parser."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            if type(node.operand.value) in (int, float):
                return -node.operand.value  # type: ignore[operator]
        if isinstance(node, ast.List):
            return [self.made(e) for e in node.elts]
        forms: Mapping[str, Callable[..., Any]] = {
            "float": float, "array": self.array, "strings": _strings, "proto": self.proto
        }  # fmt: skip
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in forms:
            arguments = [e.id if isinstance(e, ast.Name) else self.made(e) for e in node.args]
            try:
                return forms[node.func.id](*arguments)
            except (TypeError, ValueError, KeyError):
                pass
        return _refuse(node)

    def array(self, dtype: str, shape: list[int], data: str) -> np.ndarray:
        """From hexadecimal bytes, or one of those given."""
        if not data.startswith("sha256 "):
            return np.frombuffer(bytes.fromhex(data), BY_NAME[dtype].np).reshape(shape)
        found = self.given.get(data)
        if not isinstance(found, np.ndarray) or found.dtype != BY_NAME[dtype].np or list(found.shape) != shape:
            raise WrongTextError(f"no {dtype} array of this shape and hash is given")
        return found

    def proto(self, kind: str, data: str) -> Any:
        """A protobuf; None where its bytes are not given."""
        found = self.given.get(data) if data.startswith("sha256 ") else bytes.fromhex(data)
        if not isinstance(found, bytes):
            return None
        made = _PROTOS[kind]()
        try:
            made.ParseFromString(found)
        except Exception as error:  # protobuf's own, of which it has several by version
            raise WrongTextError(f"these are no bytes of a {kind}") from error
        return made


def _strings(shape: list[int], elements: list[str]) -> np.ndarray:
    made = np.empty(len(elements), object)
    made[:] = elements
    return made.reshape(shape)


def _refuse(node: ast.expr) -> NoReturn:
    raise WrongTextError(f"'{ast.unparse(node)[:60]}' is no value")


def _high(text: str) -> int | None:
    return None if text == "-" else int(text)


def _shape(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _names(text: str) -> list[str]:
    """Names with commas between."""
    if not text:
        return []
    if not re.fullmatch(rf"{WORD}(, {WORD})*", text):
        raise WrongTextError(f"'{text[:60]}' are no names with commas between")
    return ["" if w == "-" else unquoted(w) for w in re.findall(WORD, text)]


def _formulas(text: str, symbols: Symbols | None) -> tuple[Any, ...]:
    """Extents with commas between."""
    return tuple(_formula(part, symbols) for part in text.split(", ")) if text else ()


def _formula(text: str, symbols: Symbols | None) -> Any:
    """A number or a formula of the symbolic sizes; its text has `^` for powers."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        return _computed(ast.parse(text.replace("^", "**"), mode="eval").body, symbols)
    except (SyntaxError, ValueError, MemoryError, ArithmeticError):
        raise WrongTextError(f"'{text}' is no size") from None


def _computed(node: ast.expr, symbols: Symbols | None) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and symbols is not None and node.id in symbols.ranges:
        return symbol(symbols, node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand, symbols)
    if isinstance(node, ast.BinOp):
        a, b = _computed(node.left, symbols), _computed(node.right, symbols)
        if isinstance(node.op, ast.Pow) and type(b) is int and 0 < b < 64:
            return prod([a] * b)
        if type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](a, b)
    raise ValueError(ast.unparse(node))
