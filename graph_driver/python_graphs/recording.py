"""A graph that a program of Python records: arrays that it meets, operators of the language, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from onnx import NodeProto, defs

from polyc.frontend_dsl import Operator
from polyc.graph_driver.building.construction import Construction, Value
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.graph.size import Size
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.graph_driver.python_graphs.elements import digest_of
from polyc.graph_driver.python_graphs.place import place, placed
from polyc.poly.dtypes import DType, from_numpy, i64
from polyc.poly.errors import ModelError, PolycError
from polyc.poly.words import first_line

UNBOUNDED = 1 << 20
"""ONNX says so many where an operator takes any number of operands."""


class Recording(Construction):
    """A graph under construction from Python.

    Arrays that the program meets beside its arguments have the elements of that moment. They become constants of the
    graph, or, with `around`, inputs: `arrays` by their names, those `around` as they are, so that a run reads them
    where they lie, and others as copies. `finished`: nothing more may be recorded.
    """

    def __init__(self, name: str, around: Sequence[np.ndarray] | None = None, symbols: Symbols | None = None) -> None:
        super().__init__(name, symbols)
        self.around = None if around is None else {id(a) for a in around}
        self.arrays: dict[str, np.ndarray] = {}
        self.protos: list[NodeProto] = []
        """All nodes as ONNX has them, as far as it can."""
        self.own: list[str] = []
        """Names of operators of the language: a file of ONNX has no such nodes."""
        self.finished = ""
        self._met: dict[tuple[int, int], tuple[np.ndarray, Value]] = {}
        """By identity and elements: the array, kept so that no other gets its identity, and what it became."""

    # ---- leaves ----

    def leaf(self, array: np.ndarray) -> Value:
        """An array of the program that is no argument. Raises `ModelError`: polyc has no such elements."""
        dtype = element_type(array.dtype)
        key = id(array), digest_of(array)
        if key not in self._met:
            self._met[key] = array, self._leaf(array, dtype)
        return self._met[key][1]

    def _leaf(self, array: np.ndarray, dtype: DType) -> Value:
        if self.around is None:
            return self.constant(array, dtype)
        name = self.graph.fresh(f"array{len(self.arrays)}")
        self.arrays[name] = array if id(array) in self.around else array.copy()
        return self.input(name, dtype, array.shape)

    def weight(self, name: str, array: np.ndarray, dtype: DType) -> Value:
        """A constant with a name of its own."""
        self.graph.tensors[name] = Tensor(name, dtype, array.shape, array)
        return self.value(name)

    def number(self, value: Any, dtype: DType) -> Value:
        """A number in an element type. Raises `ModelError`: it does not fit there."""
        array = np.asarray(value)
        if dtype.is_int and not (np.iinfo(dtype.np).min <= int(array) <= np.iinfo(dtype.np).max):
            self.refuse(f"{value} is out of range of {dtype}")
        return self.constant(array, dtype)

    def operand(self, value: Any, like: DType | None = None) -> Value:
        """An operand of a function: a tensor, an array, or a number (of the type `like`, or NumPy's own for it).

        Raises:
            ModelError: it is something else.
        """
        if isinstance(value, Value):
            return value
        if isinstance(value, np.ndarray):
            return self.leaf(value)
        if isinstance(value, Size):
            return self.cast(self.reshape(self.integers([value]), ()), like or i64)
        if isinstance(value, (np.generic, bool, int, float)):
            if like is not None and not isinstance(value, np.generic):
                return self.number(value, like)
            array = np.asarray(value)
            return self.constant(array, element_type(array.dtype))
        if isinstance(value, (list, tuple)) and not any(isinstance(v, Value) for v in value):
            return self.leaf(np.asarray(value))
        self.refuse(f"{type(value).__name__} is no array")

    # ---- nodes ----

    def refuse(self, text: str) -> NoReturn:
        """Raises `ModelError` with the place in the user's program."""
        raise ModelError(placed(text))

    def checked(self, what: str, record: Callable[[], Any]) -> Any:
        """What `record` records. Raises `ModelError` with the place in the user's program: it does not fit."""
        if self.finished:
            self.refuse(f"{what}: {self.finished}")
        self.where = place() or what
        before = len(self.graph.nodes), len(self.protos)
        try:
            return record()
        except PolycError as error:
            del self.graph.nodes[before[0] :], self.protos[before[1] :]
            text = first_line(error)
            raise ModelError(text if text.startswith(f"{self.where}:") else f"{self.where}: {text}") from None

    def ops(self, kind: str, results: int, *operands: Any, **attributes: Any) -> list[Value]:
        """As `Construction.ops`. Raises `ModelError`: also where ONNX's inference says nothing."""
        made = super().ops(kind, results, *operands, **attributes)
        if kind == "Reshape" and (before := operands[0].size) != made[0].size:
            self.refuse(f"{list(operands[0].shape)}, which are {before} elements, cannot become {list(made[0].shape)}")
        return made

    def visit(self, proto: NodeProto) -> None:
        """Another node, which is kept as ONNX has it, too."""
        self.protos.append(proto)
        super().visit(proto)

    def onnx_operator(self, kind: str, operands: Sequence[Value | None], attributes: Mapping[str, Any]) -> list[Value]:
        """A node of ONNX with all of its results (as many as the operator always has).

        Raises:
            ModelError: there is no such operator or attribute, or operands do not fit.
        """
        if not defs.has(kind):
            import difflib

            known = sorted({s.name for s in defs.get_all_schemas() if not s.domain})
            near = difflib.get_close_matches(kind, known, 1)
            self.refuse(f"ONNX has no operator '{kind}'" + (f": did you mean {near[0]}?" if near else ""))
        schema = defs.get_schema(kind, self.graph.opsets[""])
        for name in attributes:
            if name not in schema.attributes:
                self.refuse(f"{kind} has no attribute '{name}': it has {', '.join(schema.attributes) or 'none'}")
        if not schema.min_input <= len(operands) <= schema.max_input:
            least, most = schema.min_input, schema.max_input
            wanted = f"{least}" if least == most else f"{least} to {most}" if most < UNBOUNDED else f"at least {least}"
            self.refuse(f"{kind} takes {wanted} operands, not {len(operands)}")
        return self.ops(kind, max(schema.min_output, 1), *operands, **attributes)

    def operator(self, op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Value]:
        """An operator of the language as a node of its loops; its results.

        Raises:
            ModelError: it updates an argument in place, or arguments do not fit.
        """
        parameters = op.signature.params
        changed = [p.name for p in parameters if p.inout]
        if changed:
            self.refuse(f"{op.name} updates its argument {changed[0]} in place: return a new array instead")
        constants = dict(kwargs)
        named = {p.name: constants.pop(p.name) for p in parameters if p.name in constants}
        if len(args) + len(named) != len(parameters):
            self.refuse(f"{op.usage} takes {len(parameters)} arrays and numbers, not {len(args) + len(named)}")
        given = dict(zip((p.name for p in parameters if p.name not in named), args, strict=True)) | named
        operands = {p.name: self.operand(given[p.name], p.dtype) for p in parameters}
        for p in parameters:
            if operands[p.name].dtype != p.dtype:
                self.refuse(f"{op.name} takes {p.name} as {p.dtype}, not {operands[p.name].dtype}")
        shapes = {p.name: self.numbers(operands[p.name].shape, op.name) for p in parameters if p.shape is not None}
        try:
            scop = op.scop(**constants, **shapes)
        except PolycError as error:
            self.refuse(f"{op.name}: {first_line(error)}")
        plain = OperatorScop(scop, (), (), False)
        made = [array_shape(plain, r) for r in scop.results]
        if any(shape is None for shape in made):
            self.refuse(f"{op.name}: sizes of its results do not follow from those of its arguments")
        self.own.append(op.name)
        return self.loops(scop, [operands[a] for a in scop.args], [shape or () for shape in made])

    def numbers(self, shape: Sequence[Any], what: str) -> tuple[int, ...]:
        """A shape of numbers. Raises `ModelError`: sizes are symbolic."""
        symbolic = [n for n in shape if not isinstance(n, int)]
        if symbolic:
            self.refuse(f"{what} needs sizes that are numbers, but {symbolic[0]} is symbolic")
        return tuple(shape)


def element_type(dtype: np.dtype[Any]) -> DType:
    """polyc's name of NumPy's element type. Raises `ModelError`: it has none."""
    try:
        return from_numpy(dtype)
    except KeyError:
        raise ModelError(placed(f"polyc has no element type {dtype}")) from None
