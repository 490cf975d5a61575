"""Graphs with one rule broken, and how many of them the verifier refuses.

    python -m tests.graph_driver.corruption [COUNT [SEED]]

takes real graphs (small networks, symbolic ones, a published network without its weights) as they are after import and
after each graph pass, breaks one rule in a copy, and asks the verifier; it prints a table by rule and every miss. That
the rule is broken follows from how the copy was changed, never from what the verifier says: `RULES` has the reason.
"""

from __future__ import annotations

import collections
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from polyc.emit import targets
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.precisions import F16
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.manager import PassRecord, run, select
from polyc.graph_driver.passes.precision import Precision
from polyc.graph_driver.verifying.verify import verify
from polyc.poly.dtypes import DType, bool_, f16, f32, f64, i8, i32, i64, u8

DTYPES: tuple[DType, ...] = (f16, f32, f64, i8, u8, i32, i64, bool_)
PUBLISHED = "light_squeezenet.onnx"


class NotHere(Exception):
    """The graph has nothing that this rule is about."""


@dataclass(frozen=True)
class Rule:
    """A rule of the graph, and a change that breaks it for the reason given."""

    name: str
    why: str
    break_: Callable[[Graph, random.Random], None]


# ---- graphs --------------------------------------------------------------------------------------


def models() -> dict[str, tuple[onnx.ModelProto, dict[str, Any]]]:
    """Models by name, and what they are imported with."""
    from hostile_models import looping, of_every_type, products
    from onnx.backend.test import data
    from symbolic_models import attention, convolutions, perceptron
    from tiny_models import branching, network, recurrent, with_host_steps

    published = onnx.load(str(Path(list(data.__path__)[0], "light", PUBLISHED)))
    found: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
        "network": (network(), {"dims": {"N": 2}}),
        "host": (with_host_steps(), {}),
        "recurrent": (recurrent(), {}),
        "branching": (branching(np.random.default_rng(7), 12), {}),
        "looping": (looping(), {}),
        "types": (of_every_type(), {}),
        "products": (products(), {"dims": {"N": 3}}),
        "symbolic perceptron": (perceptron(), {"symbolic": True}),
        "symbolic attention": (attention(), {"symbolic": True}),
        "symbolic convolutions": (convolutions(), {"symbolic": True}),
        "published": (published, {}),
    }
    return found


@cache
def stages() -> tuple[tuple[str, Graph], ...]:
    """Graphs after import and after each pass that changes something."""
    found: list[tuple[str, Graph]] = []
    for name, (model, how) in models().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = import_model(model, **how)
        found.append((f"{name}, imported", copy_of(graph)))

        def watch(record: PassRecord, graph: Graph, name: str = name) -> None:
            found.append((f"{name}, after {record.name}", copy_of(graph)))

        run(graph, select(precision=Precision(F16) if name == "network" else None), targets.host(), watch)
    return tuple(found)


def copy_of(graph: Graph) -> Graph:
    """A copy whose nodes and tensors can be changed. Tensors are immutable; the verifier's memory is not copied."""
    nodes = [
        replace(n, inputs=list(n.inputs), outputs=list(n.outputs), attrs={k: _own(v) for k, v in n.attrs.items()},
                bodies=tuple(None if b is None else copy_of(b) for b in n.bodies))
        for n in graph.nodes
    ]  # fmt: skip
    names = {"inputs": list(graph.inputs), "outputs": list(graph.outputs), "tensors": dict(graph.tensors)}
    return replace(graph, nodes=nodes, checked={}, sound={}, **names)


def _own(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


# ---- where -----------------------------------------------------------------------------------------


def _pick(rng: random.Random, found: list[Any]) -> Any:
    if not found:
        raise NotHere
    return rng.choice(found)


def _results(graph: Graph) -> list[tuple[Node, str]]:
    """Results with a known type and shape."""
    return [(n, o) for n in graph.nodes for o in n.writes() if graph.tensors[o].static]


def _schema(graph: Graph, node: Node) -> Any:
    """The operator's definition, for an operator of ONNX's own; else None."""
    if node.domain or not onnx.defs.has(node.op_type, graph.opsets.get("", 1), ""):
        return None
    return onnx.defs.get_schema(node.op_type, graph.opsets.get("", 1), "")


def _defined(graph: Graph) -> list[tuple[Node, Any]]:
    return [(n, s) for n in graph.nodes if (s := _schema(graph, n)) is not None]


def _set(graph: Graph, name: str, **changes: Any) -> None:
    graph.tensors[name] = replace(graph.tensors[name], **changes)


@cache
def _foreign() -> Any:
    """A formula of the symbols of another graph."""
    from symbolic_models import perceptron

    graph = import_model(perceptron(), symbolic=True)
    return next(n for i in graph.inputs for n in graph.tensors[i].shape or () if not isinstance(n, int))


def _add(graph: Graph, name: str, like: Tensor) -> str:
    name = graph.fresh(name)
    graph.tensors[name] = Tensor(name, like.dtype, like.shape)
    return name


# ---- names ---------------------------------------------------------------------------------------


def undeclared_operand(graph: Graph, rng: random.Random) -> None:
    """A node reads what nobody declares."""
    node = _pick(rng, [n for n in graph.nodes if any(n.inputs)])
    k = rng.choice([k for k, i in enumerate(node.inputs) if i])
    node.inputs[k] = "nowhere"


def undeclared_result(graph: Graph, rng: random.Random) -> None:
    """The declaration of a result goes."""
    _, name = _pick(rng, [(n, o) for n in graph.nodes for o in n.writes()])
    del graph.tensors[name]


def use_before_definition(graph: Graph, rng: random.Random) -> None:
    """A node moves before the maker of one of its operands."""
    makers = {o: k for k, n in enumerate(graph.nodes) for o in n.writes()}
    pairs = [(k, makers[i]) for k, n in enumerate(graph.nodes) for i in n.reads() if i in makers]
    late, early = _pick(rng, pairs)
    graph.nodes.insert(rng.randint(0, early), graph.nodes.pop(late))


def cycle(graph: Graph, rng: random.Random) -> None:
    """A node reads what is made of its own result."""
    reach: dict[str, set[int]] = {}
    pairs = []
    for k, node in enumerate(graph.nodes):
        above = {k}.union(*(reach.get(i, set()) for i in node.reads()))
        for o in node.writes():
            reach[o] = above
            pairs += [(a, o) for a in above if any(graph.nodes[a].inputs)]
    k, name = _pick(rng, pairs)
    node = graph.nodes[k]
    node.inputs[rng.choice([j for j, i in enumerate(node.inputs) if i])] = name


def two_definitions(graph: Graph, rng: random.Random) -> None:
    """A result has the name of an earlier result, an input or a constant."""
    k = _pick(rng, list(range(1, len(graph.nodes))))
    node = graph.nodes[k]
    others = [o for n in graph.nodes[:k] for o in n.writes()] + list(graph.inputs)
    others += [n for n, t in graph.tensors.items() if t.const is not None]
    node.outputs[_pick(rng, [j for j, o in enumerate(node.outputs) if o])] = rng.choice(others)


def lost_definition(graph: Graph, rng: random.Random) -> None:
    """A node goes although somebody needs what it makes."""
    needed = {i for n in graph.nodes for i in n.reads()} | set(graph.outputs)
    k = _pick(rng, [k for k, n in enumerate(graph.nodes) if set(n.writes()) & needed])
    del graph.nodes[k]


def lost_constant(graph: Graph, rng: random.Random) -> None:
    """A constant that is read has no value any more."""
    read = {i for n in graph.nodes for i in n.reads()}
    name = _pick(
        rng, [n for n, t in graph.tensors.items() if n in read and (t.const is not None or t.sizes is not None)]
    )
    _set(graph, name, const=None, sizes=None)


def outputs_of_the_graph(graph: Graph, rng: random.Random) -> None:
    """An output that nothing makes, or one that is listed twice."""
    if rng.random() < 0.5:
        graph.outputs.append(rng.choice(graph.outputs))
    else:
        graph.outputs[rng.randrange(len(graph.outputs))] = "nowhere"


def inputs_of_the_graph(graph: Graph, rng: random.Random) -> None:
    """An input that is listed twice, is a constant, or is not declared."""
    how = rng.randrange(3)
    constants = [n for n, t in graph.tensors.items() if t.const is not None]
    if how == 0 and graph.inputs:
        graph.inputs.append(rng.choice(graph.inputs))
    elif how == 1 and constants:
        graph.inputs.append(rng.choice(constants))
    else:
        graph.inputs.append("nowhere")


def filed_under_another_name(graph: Graph, rng: random.Random) -> None:
    """A tensor's own name is not the one that the graph has it under."""
    name = _pick(rng, list(graph.tensors))
    graph.tensors[name] = replace(graph.tensors[name], name=name + "x")


# ---- types and shapes ----------------------------------------------------------------------------


def wrong_dtype(graph: Graph, rng: random.Random) -> None:
    """A result is declared with another element type."""
    node, name = _pick(rng, _results(graph))
    _set(graph, name, dtype=rng.choice([d for d in DTYPES if d != graph.tensors[name].dtype]))


def wrong_shape(graph: Graph, rng: random.Random) -> None:
    """One extent another, one more, one less, or two exchanged."""
    _, name = _pick(rng, _results(graph))
    shape = list(graph.tensors[name].shape or ())
    how = rng.randrange(4)
    if how == 0 and shape:
        k = rng.randrange(len(shape))
        shape[k] = shape[k] + rng.choice((1, 2, 7))
    elif how == 1 and shape:
        del shape[rng.randrange(len(shape))]
    elif how == 2 and len(shape) > 1 and len(set(map(str, shape))) > 1:
        i, j = rng.choice([(i, j) for i in range(len(shape)) for j in range(i) if str(shape[i]) != str(shape[j])])
        shape[i], shape[j] = shape[j], shape[i]
    else:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((1, 3)))
    _set(graph, name, shape=tuple(shape))


def no_extent(graph: Graph, rng: random.Random) -> None:
    """Something that is neither a number from 0 on nor a formula of the graph's own symbols."""
    name = _pick(rng, [n for n, t in graph.tensors.items() if t.shape and t.const is None and t.sizes is None])
    shape = list(graph.tensors[name].shape or ())
    shape[rng.randrange(len(shape))] = rng.choice((-1, 2.0, np.int64(3), "N", None, True, _foreign()))
    _set(graph, name, shape=tuple(shape))


def unknown_type(graph: Graph, rng: random.Random) -> None:
    """A type or shape that follows from the operands is declared unknown."""
    _, name = _pick(rng, _results(graph))
    _set(graph, name, **rng.choice(({"dtype": None, "shape": None}, {"shape": None}, {"dtype": None})))


def constant_against_declaration(graph: Graph, rng: random.Random) -> None:
    """The value of a constant has another type or shape than declared."""
    name = _pick(rng, [n for n, t in graph.tensors.items() if t.const is not None and t.static])
    t = graph.tensors[name]
    assert t.const is not None and t.shape is not None and t.dtype is not None
    how = rng.randrange(4)
    if how == 0:
        other = rng.choice([d for d in DTYPES if d != t.dtype])
        _set(graph, name, const=np.zeros(t.shape, other.np))
    elif how == 1:
        _set(graph, name, const=np.zeros((*t.shape, 2), t.dtype.np))
    elif how == 2:
        _set(graph, name, dtype=rng.choice([d for d in DTYPES if d != t.dtype]))
    else:
        _set(graph, name, shape=(*t.shape, 1))


def sizes_against_declaration(graph: Graph, rng: random.Random) -> None:
    """Elements of a tensor of sizes that are not as many as declared, of a type that is no integer."""
    name = _pick(rng, [n for n, t in graph.tensors.items() if t.sizes is not None])
    t = graph.tensors[name]
    assert t.sizes is not None
    how: list[dict[str, Any]] = [
        {"sizes": np.array([*t.sizes.reshape(-1), 1], object)},
        {"dtype": f32},
        {"shape": (9, 9)},
    ]
    _set(graph, name, **rng.choice(how))


# ---- operators -----------------------------------------------------------------------------------


def unknown_operator(graph: Graph, rng: random.Random) -> None:
    """A name or a domain that nobody has."""
    node = _pick(rng, graph.nodes)
    if rng.random() < 0.6:
        node.op_type = rng.choice(("Konv", "matMul", "Relu2", ""))
    else:
        node.domain = rng.choice(("com.example", "polyk"))
    if rng.random() < 0.5:
        node.proto = None


def other_than_its_protobuf(graph: Graph, rng: random.Random) -> None:
    """The node says one operator, the protobuf that the host would run another."""
    node = _pick(rng, [n for n in graph.nodes if n.proto is not None])
    node.op_type = rng.choice([o for o in ("Neg", "Abs", "Floor", "Sqrt") if o != node.op_type])


def another_result_type(graph: Graph, rng: random.Random) -> None:
    """An operator that makes a truth value or an integer in the place of one that makes a float."""
    found = [
        n for n in graph.nodes
        if not n.domain and not n.captures and len(n.inputs) == 1 and len(n.outputs) == 1 and n.inputs[0]
        and graph.tensors[n.inputs[0]].dtype in (f32, f64) and graph.tensors[n.outputs[0]].dtype in (f32, f64, f16)
    ]  # fmt: skip
    node = _pick(rng, found)
    node.op_type, node.attrs, node.proto = rng.choice(("IsNaN", "Shape", "IsInf", "Size", "NonZero")), {}, None


def missing_operand(graph: Graph, rng: random.Random) -> None:
    """A required operand is left out, or absent."""
    found = [(n, s) for n, s in _defined(graph) if s.min_input and len(n.inputs) >= 1]
    own = [(n, None) for n in graph.nodes if n.domain == "polyc" and n.inputs]
    node, schema = _pick(rng, found + own)
    if schema is None:
        node.inputs[:] = []
    elif rng.random() < 0.5 and str(schema.inputs[min(schema.min_input, len(schema.inputs)) - 1].option).endswith(
        "Single"
    ):
        node.inputs[rng.randrange(schema.min_input)] = ""
    else:
        node.inputs[:] = node.inputs[: schema.min_input - 1]


def surplus_operand(graph: Graph, rng: random.Random) -> None:
    """More operands than the definition has."""
    found = [(n, s) for n, s in _defined(graph) if s.max_input < 100]
    node, schema = _pick(rng, found)
    have = [i for i in node.inputs if i] or [_pick(rng, list(graph.inputs))]
    while len(node.inputs) <= schema.max_input:
        node.inputs.append(rng.choice(have))


def surplus_result(graph: Graph, rng: random.Random) -> None:
    """More results than the definition has."""
    found = [(n, s) for n, s in _defined(graph) if s.max_output < 100 and any(n.outputs)]
    node, schema = _pick(rng, found)
    like = graph.tensors[next(iter(node.writes()))]
    while len(node.outputs) <= schema.max_output:
        node.outputs.append(_add(graph, "surplus", like))


def no_result(graph: Graph, rng: random.Random) -> None:
    """A node that makes nothing."""
    node = _pick(rng, graph.nodes)
    node.outputs[:] = rng.choice(([], [""] * len(node.outputs)))


# ---- weights -------------------------------------------------------------------------------------

TIED: dict[str, dict[int, tuple[int, ...]]] = {
    "Conv": {1: (0, 1), 2: (0,)}, "ConvTranspose": {1: (0,)}, "Gemm": {1: (0, 1)}, "MatMul": {0: (-1,), 1: (-2, -1)},
    "BatchNormalization": {1: (0,), 2: (0,), 3: (0,), 4: (0,)}, "LSTM": {1: (1, 2), 2: (1, 2)},
    "LayerNormalization": {1: (0,)}, "PairMatMul": {1: (-2,)}, "PairConv": {1: (0, 1)}, "Bf16MatMul": {1: (-2,)},
}  # fmt: skip
"""Extents of operands that other operands or the result of the operator fix."""


def weight_shape(graph: Graph, rng: random.Random) -> None:
    """A weight of another size, and so declared, where the operator ties it to another operand or a result."""
    places = []
    for node in graph.nodes:
        for position, axes in TIED.get(node.op_type, {}).items():
            name = node.inputs[position] if position < len(node.inputs) else ""
            t = graph.tensors[name] if name else None
            if t is not None and t.const is not None and t.shape:
                rank = len(t.shape)
                places += [(name, axis % rank) for axis in axes if -rank <= axis < rank]
    name, k = _pick(rng, places)
    t = graph.tensors[name]
    assert t.dtype is not None and t.shape is not None
    change = rng.choice([c for c in (-1, 1, 2) if t.shape[k] + c > 1] or [2])
    shape = (*t.shape[:k], t.shape[k] + change, *t.shape[k + 1 :])
    graph.tensors[name] = Tensor(name, t.dtype, shape, np.zeros(shape, t.dtype.np))


# ---- attributes ----------------------------------------------------------------------------------


def attribute_of_the_wrong_kind(graph: Graph, rng: random.Random) -> None:
    """Text for a number, a list for one value, one value for a list."""
    found = [
        (n, k) for n, s in _defined(graph) for k, v in n.attrs.items() if k in s.attributes and not hasattr(v, "node")
    ]
    node, key = _pick(rng, found)
    old = node.attrs[key]
    if isinstance(old, list):
        new: Any = rng.choice(("text", 1, 0.5))
    elif isinstance(old, str):
        new = rng.choice((3, [1, 2], 1.5))
    else:
        new = rng.choice(("text", [1, 2], [0.5]))
    node.attrs[key] = new
    node.proto = None


def attribute_unknown(graph: Graph, rng: random.Random) -> None:
    """An attribute that the operator does not have."""
    node = _pick(rng, [n for n in graph.nodes if _schema(graph, n) is not None or n.domain == "polyc"])
    node.attrs[rng.choice(("nosuch", "Axis", "kernel"))] = rng.choice((1, "x", [1]))
    node.proto = None


def attribute_missing(graph: Graph, rng: random.Random) -> None:
    """A required attribute is left out."""
    found = [(n, k) for n, s in _defined(graph) for k, a in s.attributes.items() if a.required and k in n.attrs]
    own = [(n, k) for n in graph.nodes if n.domain == "polyc" for k in n.attrs if k in ("offsets", "m", "pads", "out")]
    node, key = _pick(rng, found + own)
    del node.attrs[key]
    if node.domain != "polyc":
        node.proto = None


def attribute_out_of_range(graph: Graph, rng: random.Random) -> None:
    """An axis beyond the rank, a permutation that is none, a stride of 0, groups that do not divide."""
    found: list[tuple[Node, str, Any]] = []
    for n in graph.nodes:
        rank = len(graph.tensors[n.inputs[0]].shape or ()) if n.inputs and n.inputs[0] else 0
        known = bool(n.inputs and n.inputs[0] and graph.tensors[n.inputs[0]].static)
        if known and type(n.attrs.get("axis")) is int and n.op_type not in ("Unsqueeze", "ConcatFromSequence"):
            found += [(n, "axis", rank + 3), (n, "axis", -rank - 4)]
        if isinstance(n.attrs.get("perm"), list):
            found += [(n, "perm", [0] * max(2, rank)), (n, "perm", [*range(rank + 1)])]
        if isinstance(n.attrs.get("strides"), list):
            found += [(n, "strides", [0] * len(n.attrs["strides"])), (n, "strides", [-1] * len(n.attrs["strides"]))]
        if n.op_type == "Conv":
            channels = (graph.tensors[n.inputs[0]].shape or (0, 0))[1]
            found += [(n, "group", 0), (n, "group", -1)] + (
                [(n, "group", channels + 1)] if isinstance(channels, int) else []
            )
    node, key, value = _pick(rng, found)
    node.attrs[key] = value
    if node.domain != "polyc":
        node.proto = None


def attribute_other_than_its_protobuf(graph: Graph, rng: random.Random) -> None:
    """A pass has changed an attribute, and the protobuf that a host would run still has the old one."""
    found = [
        (n, k) for n in graph.nodes if n.proto is not None for k, v in n.attrs.items() if type(v) in (int, float, list)
    ]
    node, key = _pick(rng, found)
    old = node.attrs[key]
    node.attrs[key] = [*old, 1] if isinstance(old, list) else old + 1


def captures(graph: Graph, rng: random.Random) -> None:
    """What subgraphs read is not what the node says that it captures."""
    node = _pick(rng, [n for n in graph.nodes if n.captures])
    others = [n for n in graph.inputs if n not in node.captures]
    node.captures = node.captures[1:] if rng.random() < 0.6 or not others else (*node.captures, rng.choice(others))


def parts_of_memory(graph: Graph, rng: random.Random) -> None:
    """Offsets of parts that overlap, leave gaps, or lie outside."""
    node = _pick(rng, [n for n in graph.nodes if n.domain == "polyc" and len(n.attrs.get("offsets", ())) > 1])
    k = rng.randrange(len(node.attrs["offsets"]))
    node.attrs["offsets"][k] += rng.choice((-4, 4, 1, 1 << 40))


RULES: tuple[Rule, ...] = (
    Rule("operands are declared", "the name is new", undeclared_operand),
    Rule("results are declared", "the declaration is removed", undeclared_result),
    Rule("definition before use", "a reader moves before its maker", use_before_definition),
    Rule("no cycles", "a node reads what is made of its own result", cycle),
    Rule("one definition of a name", "a result is named like something that is there before", two_definitions),
    Rule("what is read is defined", "the maker of something needed is removed", lost_definition),
    Rule("constants have values", "the value of a constant that is read is removed", lost_constant),
    Rule("outputs of the graph", "one is listed twice or made by nobody", outputs_of_the_graph),
    Rule("inputs of the graph", "one is listed twice, a constant, or undeclared", inputs_of_the_graph),
    Rule("filed under its own name", "the tensor gets another name", filed_under_another_name),
    Rule("element types follow", "a result's declared type is replaced", wrong_dtype),
    Rule("shapes follow", "a result's declared shape is replaced by one with other numbers", wrong_shape),
    Rule("extents are sizes", "negative, a float, a text, a truth value, a NumPy scalar", no_extent),
    Rule("what follows is declared", "a known type or shape is declared unknown", unknown_type),
    Rule("constants are as declared", "value or declaration gets another type or shape", constant_against_declaration),
    Rule("sizes are as declared", "one more, or a type that is no integer", sizes_against_declaration),
    Rule("operators are known", "a name or a domain that nobody has", unknown_operator),
    Rule("node and protobuf agree", "the node gets another operator", other_than_its_protobuf),
    Rule("operators make what is declared", "an operator of another result type takes the place", another_result_type),
    Rule("required operands", "one is left out or absent", missing_operand),
    Rule("no surplus operands", "more than the definition has", surplus_operand),
    Rule("no surplus results", "more than the definition has", surplus_result),
    Rule("nodes make something", "all results are left out", no_result),
    Rule("weights fit", "another extent where the operator ties it to an operand or a result", weight_shape),
    Rule("kinds of attributes", "text for a number, one value for a list", attribute_of_the_wrong_kind),
    Rule("known attributes", "one that the operator does not have", attribute_unknown),
    Rule("required attributes", "one is left out", attribute_missing),
    Rule("ranges of attributes", "an axis beyond the rank, no permutation, a stride of 0", attribute_out_of_range),
    Rule("attributes and protobuf agree", "only the node's is changed", attribute_other_than_its_protobuf),
    Rule("captures are what bodies read", "one is left out or added", captures),
    Rule("parts lie side by side", "an offset is changed", parts_of_memory),
)


# ---- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the verifier said of a corrupted graph; `said` is empty where it said nothing."""

    seed: int
    stage: str
    rule: str
    said: str
    caught: bool


def corrupted(seed: int) -> tuple[str, Rule, Graph]:
    """A graph that the verifier has seen and found in order, with one rule broken since."""
    rng = random.Random(f"corruption {seed}")
    rules = list(RULES)
    while True:
        stage, graph = rng.choice(stages())
        rule = rules[seed % len(rules)] if rng.random() < 0.9 else rng.choice(rules)
        copy = copy_of(graph)
        bodies = [b for n in copy.nodes for b in n.bodies if b is not None and b.nodes]
        where = rng.choice(bodies) if bodies and rng.random() < 0.3 else copy
        verify(copy)
        try:
            rule.break_(where, rng)
        except NotHere:
            continue
        return stage, rule, copy


def verdict(seed: int) -> Verdict:
    """Break a rule and ask."""
    stage, rule, graph = corrupted(seed)
    try:
        verify(graph)
    except GraphError as error:
        return Verdict(seed, stage, rule.name, str(error), "\n" not in str(error))
    except Exception as error:  # the verifier's own fault
        return Verdict(seed, stage, rule.name, f"{type(error).__name__}: {error}", False)
    return Verdict(seed, stage, rule.name, "", False)


def campaign(seeds: range) -> Iterator[Verdict]:
    """Verdicts of all seeds."""
    yield from map(verdict, seeds)


def table(verdicts: list[Verdict]) -> str:
    """Caught and missed by rule."""
    caught, total = (collections.Counter(v.rule for v in verdicts if v.caught or every) for every in (False, True))
    lines = [f"{'rule':34s}{'broken':>8s}{'caught':>8s}"]
    lines += [f"{r.name:34s}{total[r.name]:8d}{caught[r.name]:8d}" for r in RULES if total[r.name]]
    lines.append(
        f"{'all':34s}{len(verdicts):8d}{sum(caught.values()):8d}  ({sum(caught.values()) / len(verdicts):.2%})"
    )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """The command; exit code 1 where less than 99 % are caught."""
    count, seed = int(arguments[0]) if arguments else 2000, int(arguments[1]) if len(arguments) > 1 else 1
    verdicts = list(campaign(range(seed, seed + count)))
    print(table(verdicts))
    for v in verdicts:
        if not v.caught:
            print(f"seed {v.seed}, {v.stage}, {v.rule}: {v.said or 'nothing said'}")
    return 0 if sum(v.caught for v in verdicts) >= 0.99 * len(verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
