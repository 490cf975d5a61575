"""A functional program as an ONNX model.

Functions are written where they are called, so closures, tuples and data types are gone when the model is complete;
what depends on values that only a run knows becomes If and Loop (`recursion`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, shape_inference

from polyc.graph_driver.building.construction import OPSET
from polyc.graph_driver.functional.syntax import (
    Call,
    Expr,
    Fn,
    Full,
    If,
    Let,
    Match,
    Member,
    Name,
    Number,
    Program,
    TensorType,
    Tuple,
    TupleType,
    Type,
)
from polyc.graph_driver.functional.values import (
    Answer,
    Closure,
    Data,
    Operator,
    Value,
    Values,
    Weak,
    fits,
    leaves,
    mentions,
    of_numbers,
    rebuilt,
)
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.stablehlo.sink import IR_VERSION, Sink, Val
from polyc.poly.dtypes import DType, bool_, f32, from_numpy, i32
from polyc.poly.errors import ModelError
from polyc.poly.words import first_line

MOST_RESULTS = 1000
"""Of one operator."""

_DEEPEST = 100
"""Calls inside of calls."""


AsLoop = Callable[["Writer", Closure, list[Value], Expr], Value]


class Writer:
    """The model under construction."""

    def __init__(self, program: Program, as_loop: AsLoop) -> None:
        """`as_loop` writes functions that call themselves."""
        self.program, self.sink, self.as_loop = program, Sink(), as_loop
        self.active: list[Closure] = []

    def refusal(self, e: Expr, text: str) -> ModelError:
        """The error that names the line of an expression."""
        return self.program.refusal(e.line, text)

    def model(self, entry: str) -> onnx.ModelProto:
        """The model of a definition.

        Raises:
            ModelError: there is no such definition, or something in it cannot be a model; the line is named.
        """
        fn = self.program.functions.get(entry)
        if fn is None:
            has = ", ".join(self.program.functions) or "none"
            raise ModelError(f"{self.program.source}: there is no definition {entry} (it has {has})")
        inputs = []
        for name, type_ in fn.parameters:
            if not isinstance(type_, TensorType):
                raise self.refusal(fn, f"the input {name} needs the type of a tensor, as f32[2, 3]")
            inputs.append(Val(name[1:], type_.dtype, type_.shape))
        result = self.called(Closure(fn, {}, entry), list(inputs), fn)
        outputs = []
        for k, v in enumerate(self.flat(result, fn)):
            self.sink.nodes.append(helper.make_node("Identity", [v.name], [f"result{k}"], name=f"result{k}"))
            outputs.append(info(Val(f"result{k}", v.dtype, v.shape)))
        constants = list(self.sink.constants.values())
        graph = helper.make_graph(self.sink.nodes, entry[1:], [info(v) for v in inputs], outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    # ---- expressions ----

    def value(self, e: Expr, values: Values) -> Value:
        """What an expression is where names stand for `values`."""
        self.sink.label = f"line {e.line}"
        if isinstance(e, Number):
            return Weak(e.value)
        if isinstance(e, Full):
            return self.full(e.value, e.type)
        if isinstance(e, Name):
            return self.named(e, values)
        if isinstance(e, Tuple):
            return tuple(self.value(m, values) for m in e.members)
        if isinstance(e, Member):
            return self.member(e, self.value(e.of, values))
        if isinstance(e, Fn):
            return Closure(e, values, "")
        if isinstance(e, Let):
            return self.value(e.body, self.bound(e, values))
        if isinstance(e, Match):
            body, inner = self.case(e, values)
            return self.value(body, inner)
        if isinstance(e, If):
            return self.if_(e, values)
        assert isinstance(e, Call)
        function = self.value(e.function, values)
        return self.applied(e, function, [self.value(o, values) for o in e.operands])

    def full(self, number: bool | int | float, type_: TensorType) -> Val:
        """A constant tensor of one number."""
        return self.sink.constant(np.full(type_.shape, number, type_.dtype.np), type_.dtype)

    def named(self, e: Name, values: Values) -> Value:
        """What a name stands for. Raises `ModelError`: nothing is called so."""
        if e.name in values:
            return values[e.name]
        if e.name in self.program.functions:
            return Closure(self.program.functions[e.name], {}, e.name)
        if e.name in self.program.constructors:
            return Data(e.name, None)
        if e.name[0] not in "%@" and defs.has(e.name, OPSET):
            return Operator(e.name)
        what = "variable" if e.name[0] == "%" else "definition" if e.name[0] == "@" else "operator of ONNX"
        raise self.refusal(e, f"there is no {what} {e.name}")

    def member(self, e: Member, of: Value) -> Value:
        """A member of a tuple. Raises `ModelError`: there is none."""
        if not isinstance(of, tuple):
            raise self.refusal(e, f".{e.index} is a member of tuples, and this is none")
        if e.index >= len(of):
            raise self.refusal(e, f"the tuple has {len(of)} members, counted from 0: there is no .{e.index}")
        return of[e.index]

    def bound(self, e: Let, values: Values) -> Values:
        """The values in the body of a let."""
        if isinstance(e.value, Fn):
            inner: dict[str, Value] = dict(values)
            inner[e.name] = Closure(e.value, inner, e.name)  # its own name is known inside
            return inner
        value = self.value(e.value, values)
        return {**values, e.name: self.typed(value, e.type, e)}

    def case(self, e: Match, values: Values) -> tuple[Expr, Values]:
        """The body of the first pattern that fits, and what its variables stand for."""
        value = self.value(e.value, values)
        for pattern, body in e.cases:
            bound: dict[str, Value] = {}
            if fits(pattern, value, bound):
                return body, {**values, **bound}
        raise self.refusal(e, "no case fits: match is decided while the model is written, by constructors in the text")

    # ---- calls ----

    def applied(self, e: Call, function: Value, operands: list[Value]) -> Value:
        """A call of whatever a function is."""
        if e.attributes and not isinstance(function, Operator):
            raise self.refusal(e, "only operators have attributes")
        if isinstance(function, Answer):
            return function.result
        if isinstance(function, Operator):
            return self.operator(e, function.kind, operands)
        if isinstance(function, Data) and function.members is None:
            wanted = self.program.constructors[function.constructor]
            if len(operands) != wanted:
                raise self.refusal(e, f"{function.constructor} has {wanted} members, not {len(operands)}")
            return Data(function.constructor, tuple(operands))
        if isinstance(function, Closure):
            return self.called(function, operands, e)
        raise self.refusal(e, "this is called, and it is no function")

    def called(self, c: Closure, operands: list[Value], e: Expr) -> Value:
        """The result of a function: its body here, or a loop where it calls itself.

        Raises:
            ModelError: the operands do not fit, or the recursion is none that a loop can do.
        """
        if len(operands) != len(c.fn.parameters):
            raise self.refusal(e, f"the function takes {len(c.fn.parameters)} operands, not {len(operands)}")
        given = [self.typed(o, t, e) for o, (_, t) in zip(operands, c.fn.parameters)]
        recursive = bool(c.name) and mentions(c.fn.body, c.name)
        if recursive and any(isinstance(v, Val) for o in given for v in leaves(o)):
            return self.as_loop(self, c, given, e)
        if len(self.active) > _DEEPEST:
            raise self.refusal(e, "functions call each other without end")
        if not recursive and any(a.fn is c.fn for a in self.active):
            raise self.refusal(e, f"{c.name or 'a function'} calls itself by way of others: that is no loop")
        self.active.append(c)
        try:
            return self.typed(self.value(c.fn.body, self.inside(c, given)), c.fn.result, e)
        finally:
            self.active.pop()

    def inside(self, c: Closure, given: Sequence[Value]) -> dict[str, Value]:
        """The values in a function's body."""
        own: dict[str, Value] = {c.name: c} if c.name else {}
        return {**c.around, **own, **dict(zip((n for n, _ in c.fn.parameters), given, strict=True))}

    def operator(self, e: Call, kind: str, operands: Sequence[Value]) -> Value:
        """A node of ONNX; numbers take the type of the first tensor, and among themselves remain numbers."""
        folded = of_numbers(kind, operands)
        if folded is not None:
            return folded
        like = next((o.dtype for o in operands if isinstance(o, Val)), None)
        if like is None and all(isinstance(o, Weak) for o in operands):
            numbers = [o.value for o in operands if isinstance(o, Weak)]
            like = f32 if any(isinstance(n, float) for n in numbers) else i32
            like = bool_ if numbers and all(isinstance(n, bool) for n in numbers) else like
        tensors = [self.tensor(o, e, like) for o in operands]
        schema = defs.get_schema(kind, OPSET)
        count = self.results(e, schema.min_output)
        names = [self.sink.fresh() for _ in range(count)]
        node = helper.make_node(
            kind, [v.name for v in tensors], names, name=f"line {e.line} {names[0]}", **e.attributes
        )
        types = {v.name: info(v).type for v in tensors}
        data = {v.name: self.sink.constants[v.name] for v in tensors if v.name in self.sink.constants}
        try:
            found = shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[helper.make_opsetid("", OPSET)]
            )
        except Exception as error:  # onnx raises several kinds
            raise self.refusal(e, f"{kind} does not take these operands: {first_line(error)}") from None
        results = tuple(self._result(e, kind, n, found.get(n)) for n in names)
        self.sink.nodes.append(node)
        return results[0] if count == 1 else results

    def results(self, e: Call, least: int) -> int:
        """How many results an operator has: Split says it."""
        asked = e.attributes.get("num_outputs", least)
        if not isinstance(asked, int) or not 1 <= asked <= MOST_RESULTS:
            raise self.refusal(e, f"num_outputs={asked} is no number of results")
        return asked

    def _result(self, e: Expr, kind: str, name: str, type_: Any) -> Val:
        if type_ is None or not type_.HasField("tensor_type"):
            raise self.refusal(e, f"{kind} does not take these operands: their types do not fit")
        dims = type_.tensor_type.shape.dim
        if not type_.tensor_type.HasField("shape") or not all(d.HasField("dim_value") for d in dims):
            raise self.refusal(e, f"the extents of what {kind} gives are decided by data: only a run knows them")
        dtype = from_numpy(helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type))
        return Val(name, dtype, tuple(d.dim_value for d in dims))

    # ---- conditions ----

    def if_(self, e: If, values: Values) -> Value:
        """One of two branches: chosen here where the condition is a number of the text, else by the run."""
        condition = self.value(e.condition, values)
        if isinstance(condition, Weak):
            return self.value(e.then if condition.value else e.other, values)
        forms: list[Value] = []

        def branch(body: Expr) -> Callable[[list[Val]], list[Val]]:
            def write(like: list[Val]) -> list[Val]:
                value = self.value(body, values)
                forms.append(value)
                return self.flat(value, body, like)

            return write

        made = self.either(e, condition, branch(e.then), branch(e.other))
        return rebuilt(forms[0], iter(made))

    def either(
        self, e: Expr, condition: Value, then: Callable[[list[Val]], list[Val]], other: Callable[[list[Val]], list[Val]]
    ) -> list[Val]:
        """An If whose branches write the same number of tensors, of the same types. Numbers in one take the types of
        the other, which is given to it."""
        chosen = self.tensor(condition, e, bool_)
        if chosen.dtype != bool_ or chosen.shape:
            raise self.refusal(e, f"a condition is a bool_[], not {chosen.dtype}{list(chosen.shape)}")
        first, types = self.subgraph([], lambda: then([]))
        second, others = self.subgraph([], lambda: other(types))
        if [(v.dtype, v.shape) for v in types] != [(v.dtype, v.shape) for v in others]:
            first, types = self.subgraph([], lambda: then(others))  # numbers, now with the other's types
        if [(v.dtype, v.shape) for v in types] != [(v.dtype, v.shape) for v in others]:
            shown = [", ".join(f"{v.dtype}{list(v.shape)}" for v in side) for side in (types, others)]
            raise self.refusal(e, f"the branches give {shown[0]} and {shown[1]}: they have to be the same")
        kinds = [(v.dtype, v.shape) for v in types]
        return self.sink.several("If", [chosen], kinds, then_branch=first, else_branch=second)

    def subgraph(self, inputs: Sequence[Val], write: Callable[[], Sequence[Val]]) -> tuple[onnx.GraphProto, list[Val]]:
        """What `write` writes, as a graph whose results have names of its own; and these."""
        with self.sink.inside() as nodes:
            results = [self.sink.node("Identity", [v], (v.dtype, v.shape)) for v in write()]
        graph = helper.make_graph(nodes, self.sink.fresh(), [info(v) for v in inputs], [info(v) for v in results])
        return graph, results

    # ---- types ----

    def tensor(self, v: Value, e: Expr, like: DType | None = None) -> Val:
        """A value as a tensor; a number as a scalar of the type `like`."""
        if isinstance(v, Val):
            return v
        if isinstance(v, Weak):
            natural = bool_ if isinstance(v.value, bool) else f32 if isinstance(v.value, float) else i32
            return self.full(v.value, TensorType(like or natural, ()))
        what = "a tuple" if isinstance(v, tuple) else "a value of a data type" if isinstance(v, Data) else "a function"
        raise self.refusal(e, f"here stands {what}, where a tensor has to be: only the text knows it")

    def typed(self, v: Value, type_: Type | None, e: Expr) -> Value:
        """A value of a declared type. Raises `ModelError`: it has another."""
        if type_ is None:
            return v
        if isinstance(type_, TupleType):
            if not isinstance(v, tuple) or len(v) != len(type_.members):
                raise self.refusal(e, f"this is no {type_}")
            return tuple(self.typed(m, t, e) for m, t in zip(v, type_.members, strict=True))
        made = self.tensor(v, e, type_.dtype)
        if (made.dtype, made.shape) != (type_.dtype, type_.shape):
            raise self.refusal(e, f"this is {made.dtype}{list(made.shape)}, and {type_} is declared")
        return made

    def flat(self, v: Value, e: Expr, like: Sequence[Val] = ()) -> list[Val]:
        """The tensors of a value, those of tuples in order; numbers take the types of `like`."""
        found = leaves(v)
        types = [t.dtype for t in like] if len(like) == len(found) else [None] * len(found)
        return [self.tensor(x, e, t) for x, t in zip(found, types, strict=True)]

    def zeros(self, type_: Type) -> Value:
        """A value of a type, all of it 0."""
        if isinstance(type_, TupleType):
            return tuple(self.zeros(t) for t in type_.members)
        return self.full(0, type_)


def info(v: Val) -> onnx.ValueInfoProto:
    """A value as ONNX declares it."""
    return helper.make_tensor_value_info(v.name, elem_type_of(v.dtype), v.shape)
