"""What a `Loop` tells before it runs: states that no iteration changes, and how often it runs.

A loop of TensorFlow carries its weights as states, and counts in its condition: its limit is absent, and the condition
compares a counter, a state, with the length of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import onnx
from onnx import helper

from polyc.graph_driver.importing.unrolling import body_of, runs_to_the_end

MAX_TRIPS = 1 << 14  # iterations that are counted
MAX_COUNTING = 32  # nodes of a body that decide how often it runs
Known = Callable[[str], np.ndarray | None]


def without_kept_states(
    node: onnx.NodeProto, what: str, is_tensor: Callable[[str], bool]
) -> tuple[onnx.NodeProto, dict[str, str]]:
    """The `Loop` without tensors (no sequences) that its body hands on as they are, and what its outputs for those are:
    what they start as, which the body reads by an `Identity`.

    Raises `ModelError`: the body does not fit the node.
    """
    states = list(node.input[2:])
    body = body_of(node, len(states), len(node.input), what)
    copies = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Identity" and not n.domain}
    inside = (
        {i.name for i in body.input} | {t.name for t in body.initializer} | {o for n in body.node for o in n.output}
    )
    kept = [
        k
        for k, state in enumerate(states)
        if state
        and state not in inside
        and is_tensor(state)
        and _origin(body.output[1 + k].name, copies) == body.input[2 + k].name
    ]
    outputs = {node.output[k]: states[k] for k in kept if k < len(node.output) and node.output[k]}
    if not kept:
        return node, {}
    short = onnx.NodeProto()
    short.CopyFrom(node)
    inner = next(a.g for a in short.attribute if a.name == "body")
    for k in reversed(kept):
        inner.node.insert(0, helper.make_node("Identity", [states[k]], [inner.input[2 + k].name]))
        del inner.input[2 + k], inner.output[1 + k], short.input[2 + k]
        if k < len(short.output):
            del short.output[k]
    return short, outputs


def _origin(name: str, copies: Mapping[str, str]) -> str:
    while name in copies:
        name = copies[name]
    return name


def trips(node: onnx.NodeProto, what: str, known: Known, opsets: Mapping[str, int]) -> int | None:
    """How often a `Loop` runs, from the nodes that its condition needs; None when that depends on what is not known,
    or takes more than `MAX_COUNTING` nodes or `MAX_TRIPS` iterations."""
    body = body_of(node, len(node.input) - 2, len(node.input), what)
    limit, going = (np.array(True) if not n else known(n) for n in node.input[:2])
    if limit is None or going is None:
        return None
    most = int(limit.reshape(-1)[0]) if node.input[0] else MAX_TRIPS + 1
    if not bool(going.reshape(-1)[0]) or most <= 0:
        return 0
    needed = _counting(body)
    if needed is None:
        return None
    nodes, states, outside = needed
    if runs_to_the_end(body):
        return most if node.input[0] else None
    given = {name: v for name in outside if (v := known(name)) is not None}
    now = {k: v for k in states if (v := known(node.input[2 + k])) is not None}
    if len(given) < len(outside) or len(now) < len(states):
        return None
    run = _evaluator(body, nodes, states, outside, opsets)
    for trip in range(min(most, MAX_TRIPS)):
        own = {body.input[0].name: np.array(trip, np.int64), body.input[1].name: np.array(True)}
        own |= {body.input[2 + k].name: v for k, v in now.items()}
        more, *after = run(own | given)
        if not bool(np.asarray(more).reshape(-1)[0]):
            return trip + 1
        if not states and not any(i.name in n.input for n in nodes for i in body.input[:2]):
            return most if node.input[0] else None  # the same in each iteration
        now = dict(zip(now, after, strict=True))
    return most if most <= MAX_TRIPS else None


def _counting(body: onnx.GraphProto) -> tuple[list[onnx.NodeProto], list[int], list[str]] | None:
    """The nodes that the condition needs, in any iteration, the states that they read, and the tensors outside."""
    made = {o: n for n in body.node for o in n.output}
    inputs = {i.name: k for k, i in enumerate(body.input)}
    inside = {t.name for t in body.initializer}
    open_names, seen, wanted, states, outside = [body.output[0].name], set[str](), set[int](), set[int](), set[str]()
    while open_names:
        name = open_names.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        if name in made:
            node = made[name]
            if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
                return None
            wanted.add(id(node))
            open_names += node.input
        elif inputs.get(name, 0) >= 2:
            states.add(inputs[name] - 2)
            open_names.append(body.output[inputs[name] - 1].name)
        elif name not in inputs and name not in inside:
            outside.add(name)
        if len(wanted) > MAX_COUNTING:
            return None
    return [n for n in body.node if id(n) in wanted], sorted(states), sorted(outside)


def _evaluator(
    body: onnx.GraphProto,
    nodes: Collection[onnx.NodeProto],
    states: Collection[int],
    outside: Collection[str],
    opsets: Mapping[str, int],
) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
    """Runs these nodes: the condition, then the states after it, for the inputs of the body and what is outside."""
    from onnx.reference import ReferenceEvaluator

    from polyc.graph_driver.host.host_operators import replacements

    results = [body.output[0].name, *(body.output[1 + k].name for k in states)]
    copies = [helper.make_node("Identity", [r], [f"{r}@counted{k}"]) for k, r in enumerate(results)]
    names = [i.name for i in body.input[:2]] + [body.input[2 + k].name for k in states] + list(outside)
    graph = onnx.GraphProto(
        name="counting",
        node=[*nodes, *copies],
        initializer=body.initializer,
        input=[onnx.ValueInfoProto(name=n) for n in names],
        output=[onnx.ValueInfoProto(name=c.output[0]) for c in copies],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports), new_ops=replacements(opsets))
    return lambda feeds: list(evaluator.run(None, dict(feeds)))
