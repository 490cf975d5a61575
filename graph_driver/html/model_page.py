"""The document about a model: its steps as a graph, kernels with their work, memory, decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.explaining.counted import counted_work
from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.decisions import Overwriting
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.html.layers import drawn
from polyc.graph_driver.memory import aligned
from polyc.graph_driver.passes.precision import is_added_cast
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Slot, Step

if TYPE_CHECKING:
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.decisions import Decision
    from polyc.scheduler.cost.model import Machine, Prediction

VERSION = 1


def model_document(
    name: str,
    plan: Plan,
    target: str,
    graph: Graph | None = None,
    groups: Sequence[Group] = (),
    passes: Sequence[str] = (),
    rearranged: Sequence[str] = (),
    seconds: Sequence[float] | None = None,
    predicted: Sequence[Prediction | None] = (),
    machine: Machine | None = None,
    threads: int = 1,
) -> dict[str, Any]:
    """Everything about a planned model as JSON values (`graph` is None for a compiled directory).

    `seconds` is the measured time of each step, if it was measured, `predicted` what the cost model says.
    `machine`: what this machine does at most, where the model is for it, with so many `threads`.
    """
    kernels, kernel_of = _kernels(groups)
    symbols = {s.symbol: None for s in plan.steps if s.kind == "kernel"}
    steps = [step_data(s, graph) for s in plan.steps]
    for s, group in zip((s for s in steps if s["kind"] != "copy"), groups, strict=False):
        s["kernel"] = kernel_of.get(group.key)
    for s, time in zip(steps, seconds or (), strict=seconds is not None):
        s["seconds"] = time
    for s, prediction in zip(steps, predicted, strict=bool(predicted)):
        s["predicted"] = None if prediction is None else prediction.data()
    boxes, lines, size = drawing(plan, graph, steps)
    return {
        "format": "polyc-inspect",
        "version": VERSION,
        "kind": "model",
        "name": name,
        "target": target,
        "nodes": None if graph is None else len(graph.nodes),
        "distinct": len(symbols),
        "measured": seconds is not None,
        "steps": steps,
        "kernels": kernels,
        "boxes": boxes,
        "lines": lines,
        "drawing": {"width": round(size[0], 3), "layers": size[1]},
        "tensors": {s.name: tensor_data(s) for s in plan.slots.values()},
        "inputs": list(plan.inputs),
        "outputs": list(plan.outputs),
        "memory": _memory(plan),
        "decisions": [] if graph is None else [_decision(d) for d in graph.decisions],
        "selections": [] if graph is None else [asdict(s) | {"text": str(s)} for s in graph.selections],
        "passes": list(passes),
        "layouts": list(rearranged),
        "casts": [] if graph is None else _casts(graph, plan),
        "roofs": None if machine is None else _roofs(machine, threads),
        "notes": [] if graph is None else list(graph.notes),
    }


def tensor_data(s: Slot) -> dict[str, Any]:
    """Type, size and place of a tensor."""
    shape = "?" if s.dtype is None else f"{s.dtype}[{', '.join(map(str, s.shape or ()))}]"
    place = s.place
    where = f"{place.kind} {place.index}" if place.kind in ("input", "output") else place.kind
    return {"type": shape, "bytes": s.nbytes, "where": where, "offset": place.offset}


def step_data(s: Step, graph: Graph | None) -> dict[str, Any]:
    """A step; of its kernel nothing is known yet."""
    kinds = {} if graph is None else {n.name: n.kind for n in graph.nodes}
    return {
        "kind": s.kind, "label": s.label, "args": list(s.args), "results": list(s.results), "reason": s.reason,
        "captures": list(s.captures), "nodes": [[n, kinds.get(n, "")] for n in s.nodes], "kernel": None,
        "predicted": None,
    }  # fmt: skip


def _decision(d: Decision | Overwriting) -> dict[str, Any]:
    if isinstance(d, Overwriting):
        ends = {"kind": "in place", "tensor": d.output, "from": d.group, "to": f"'{d.source}'"}
    else:
        ends = {"kind": "fusion", "tensor": d.tensor, "from": d.producer, "to": d.consumer}
    return ends | {"joined": d.joined, "reason": d.reason, "text": str(d)}


def _casts(graph: Graph, plan: Plan) -> list[dict[str, Any]]:
    """Changes of the element type, those of the model and those that the precision pass has put in."""
    step_of = {n: k for k, s in enumerate(plan.steps) for n in s.nodes}
    return [
        {
            "node": n.name, "tensor": n.inputs[0], "from": str(graph.tensors[n.inputs[0]].dtype),
            "to": str(graph.tensors[n.outputs[0]].dtype), "added": is_added_cast(n), "step": step_of.get(n.name),
        }
        for n in graph.nodes if n.kind == "Cast"
    ]  # fmt: skip


def _roofs(machine: Machine, threads: int) -> dict[str, Any]:
    """Flops and bytes a second of `threads` cores at most; L3 and memory are shared by all."""
    read = {level: machine.hertz * rate for level, rate in machine.read.items()}
    read["l2"] *= threads
    return {"threads": threads, "flops": machine.hertz * machine.fma_flops * threads, "bytes": read}


# ---- kernels -----------------------------------------------------------------------------------


def _kernels(groups: Sequence[Group]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The distinct kernels in order of first use, and the number of each key."""
    number: dict[str, int] = {}
    kernels: list[dict[str, Any]] = []
    for g in groups:
        if g.scop is None:
            continue
        if g.key not in number:
            number[g.key] = len(kernels)
            kernels.append({"label": g.label, "first": g.nodes[0].name, "uses": 0, **counted_work(g)})
        kernels[number[g.key]]["uses"] += 1
    return kernels, number


# ---- the graph ---------------------------------------------------------------------------------


def drawing(
    plan: Plan, graph: Graph | None, steps: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], tuple[float, int]]:
    """Boxes for inputs, steps and outputs, with their places, and lines for the tensors between."""
    boxes: list[dict[str, Any]] = [{"kind": "input", "tensor": n} for n in plan.inputs]
    boxes += [{"kind": "step", "step": k} for k in range(len(steps))]
    maker = {n: k for k, n in enumerate(plan.inputs)}
    seen = _passed_on(graph, plan)
    edges: dict[tuple[int, int], list[str]] = {}
    for k, s in enumerate(plan.steps):
        number = len(plan.inputs) + k
        for tensor in (*s.args, *s.captures):
            if tensor not in s.results:
                for source in _makers(tensor, maker, seen):
                    edges.setdefault((source, number), []).append(tensor)
        for r in s.results:
            maker[r] = number
    for name in plan.outputs:
        boxes.append({"kind": "output", "tensor": name})
        for source in _makers(name, maker, seen):
            edges.setdefault((source, len(boxes) - 1), []).append(name)
    picture = drawn(len(boxes), list(edges))
    for box, (x, layer) in zip(boxes, picture.at, strict=True):
        box |= {"x": round(x, 3), "layer": layer}
    lines = [
        {"from": a, "to": b, "tensors": list(dict.fromkeys(names)), "path": [[round(x, 3), layer] for x, layer in path]}
        for ((a, b), names), path in zip(edges.items(), picture.lines, strict=True)
    ]
    return boxes, lines, (picture.width, picture.layers)


def _passed_on(graph: Graph | None, plan: Plan) -> dict[str, list[str]]:
    """Tensors that no step makes: views and parts of others, and what they are made of."""
    if graph is None:
        return {}
    run = {n for s in plan.steps for n in s.nodes}
    return {o: list(n.reads()) for n in graph.nodes if is_view(n) or n.name not in run for o in n.writes()}


def _makers(tensor: str, maker: Mapping[str, int], seen: Mapping[str, list[str]]) -> list[int]:
    """The boxes that a tensor comes from."""
    if tensor in maker:
        return [maker[tensor]]
    return list(dict.fromkeys(b for t in seen.get(tensor, ()) for b in _makers(t, maker, seen)))


# ---- memory ------------------------------------------------------------------------------------


def _memory(plan: Plan) -> dict[str, Any]:
    """Each tensor of the arena as a rectangle of steps and bytes; live bytes at every step."""
    live = [0] * len(plan.steps)
    for t in plan.lifetimes:
        for k in range(t.first, t.last + 1):
            live[k] += aligned(t.size)
    by_class = {kind: 0 for kind in ("input", "output")}
    for s in {s.place: s for s in plan.slots.values() if s.place.kind in by_class}.values():
        by_class[s.place.kind] += s.nbytes
    return {
        "peak": plan.peak,
        "bound": plan.bound,
        "weights": plan.weight_bytes,
        "inputs": by_class["input"],
        "outputs": by_class["output"],
        "live": live,
        "tensors": [[t.name, plan.offset_of(t.name), t.size, t.first, t.last] for t in plan.lifetimes],
    }
