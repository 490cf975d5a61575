"""A `Program` as an ONNX model: the walk over its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

import onnx
from onnx import helper

from polyc.graph_driver.building.construction import OPSET
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.loops import DOMAIN
from polyc.graph_driver.stablehlo.program import Function, Operation, Program, Region
from polyc.graph_driver.stablehlo.registry import RULES
from polyc.graph_driver.stablehlo.sink import IR_VERSION, Sink, Val
from polyc.poly.dtypes import DType
from polyc.poly.errors import ModelError, PolycError
from polyc.poly.words import first_line

_RULES = ("elementwise", "movement", "indexed", "windows", "products", "control")
_RETURNS = ("stablehlo.return", "func.return", "return")
_DEEPEST = 60
"""Functions that call functions; none may call itself."""


def to_onnx(program: Program, entry: str = "main") -> onnx.ModelProto:
    """The model of a function: inputs are called as its arguments, results `result0`, `result1`, ...

    Raises:
        ModelError: an operation or a type that polyc has not, with its line.
    """
    for name in _RULES:
        import_module(f"polyc.graph_driver.stablehlo.{name}")
    function = program.functions.get(entry)
    if function is None:
        raise ModelError(f"{program.source}: it has no function {entry}: {', '.join(program.functions)}")
    return Writer(program).model(function)


class Writer:
    """The model under construction. `region` and `called` write operations with their arguments as given values."""

    def __init__(self, program: Program) -> None:
        self.program, self.sink = program, Sink()
        self._outer: list[Mapping[str, Val]] = []
        self._depth = 0

    def model(self, function: Function) -> onnx.ModelProto:
        """The whole model of a function."""
        inputs = [self._input(name, self._typed(t, function.line)) for name, t in function.body.arguments]
        results = self.region(function.body, inputs)
        named = [f"result{k}" for k in range(len(results))]
        for name, v in zip(named, results, strict=True):
            self.sink.nodes.append(helper.make_node("Identity", [v.name], [name], name=name))
        outputs = [_info(Val(n, v.dtype, v.shape)) for n, v in zip(named, results, strict=True)]
        graph = helper.make_graph(
            self.sink.nodes, self.program.name, [_info(v) for v in inputs], outputs, list(self.sink.constants.values())
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def _input(self, name: str, kind: tuple[DType, tuple[int, ...]]) -> Val:
        return Val(name.replace("#", "_"), *kind)

    def _typed(self, type_: object, line: int) -> tuple[DType, tuple[int, ...]]:
        return self.program.element(type_, line), self.program.shape(type_, line)  # type: ignore[arg-type]

    def types(self, o: Operation) -> list[tuple[DType, tuple[int, ...]]]:
        """Element type and extents of each result. Raises `ModelError`: polyc has none such."""
        return [self._typed(t, o.line) for t in o.types]

    def refusal(self, o: Operation, text: str) -> ModelError:
        """The error that names the line of an operation."""
        return self.program.refusal(o.line, text)

    def region(self, region: Region, arguments: Sequence[Val]) -> list[Val]:
        """The results of a region for these arguments; other names are those around it."""
        around = self._outer[-1] if self._outer else {}
        return self._block(region, {**around, **dict(zip((n for n, _ in region.arguments), arguments, strict=True))})

    def called(self, o: Operation, name: str, operands: Sequence[Val]) -> list[Val]:
        """The results of a function. Raises `ModelError`: there is none, or it calls itself."""
        function = self.program.functions.get(name)
        if function is None:
            raise self.refusal(o, f"there is no function {name}")
        if len(operands) != len(function.body.arguments):
            raise self.refusal(o, f"{name} takes {len(function.body.arguments)} arguments, not {len(operands)}")
        if self._depth > _DEEPEST:
            raise self.refusal(o, f"{name} calls itself")
        self._depth += 1
        known = dict(zip((n for n, _ in function.body.arguments), operands, strict=True))
        made = self._block(function.body, known)
        self._depth -= 1
        return made

    def _block(self, region: Region, values: dict[str, Val]) -> list[Val]:
        self._outer.append(values)
        try:
            for o in region.operations:
                for name in o.operands:
                    if name not in values:
                        raise self.refusal(o, f"%{name} is not defined")
                operands = [values[n] for n in o.operands]
                if o.name in _RETURNS:
                    return operands
                values.update(zip(o.results, self._written(o, operands), strict=True))
        finally:
            self._outer.pop()
        raise ModelError(f"{self.program.source}: a block ends without return")

    def _written(self, o: Operation, operands: list[Val]) -> Sequence[Val]:
        rule = RULES.get(o.name)
        if rule is None:
            target = f" @{o.attributes['callee']}" if "callee" in o.attributes else ""
            raise self.refusal(o, f"polyc has no operation {o.name}{target}")
        self.sink.label = f"{o.name.partition('.')[2]}:{o.line}"
        try:
            made = rule(self, o, operands)
        except ModelError:
            raise
        except PolycError as error:
            raise self.refusal(o, f"{o.name}: {first_line(error)}") from None
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise self.refusal(o, f"{o.name} is not understood ({type(error).__name__}: {error})") from None
        for v, (dtype, shape) in zip(made, self.types(o), strict=True):
            if (v.dtype, v.shape) != (dtype, tuple(shape)):
                raise self.refusal(o, f"{o.name} gives {v.dtype}{list(v.shape)}, not {dtype}{list(shape)}")
        return made


def _info(v: Val) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(v.name, elem_type_of(v.dtype), v.shape)
