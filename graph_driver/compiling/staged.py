"""The stages after the graph as files: which kernels there are (`selection`), where tensors lie (`memory`), what runs
in which order (`plan`). Each can be read, changed, and taken back in place of the model.

A file `NAME.stage` is JSON, one entry a line, beside the graph that it is about:

    kernels  in order: nodes; tensors read and written and their arrays; `code`, or `host` with a reason
    code     the Scops of kernels, line by line; a kernel without `code` is composed of its nodes as they stand
    memory   where each memory of the arena begins (stages `memory` and `plan`)
    steps    in order, with all they read and write (stage `plan`)

What the files do not say (schedules, machine code, weights' places) is made as when a model is compiled; what they do
say is checked before it runs: a kernel's arrays against its tensors, places and order by
`polyc.graph_driver.planning.verify_plan`, which knows bytes, not lifetimes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyc.graph_driver import memory
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.compiling.assumed import assume
from polyc.graph_driver.compiling.stages import compile_groups, placed, summarise
from polyc.graph_driver.fusion.joined import Cluster, Group, make_group, on_host, text_of
from polyc.graph_driver.graph.aliases import is_alias
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.graph.size import SizeError, size_of
from polyc.graph_driver.importing.graph_files import STAGE, read_graph
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.fixed_order import in_fixed_order
from polyc.graph_driver.operators.pieces import Piece, translate
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.planning.build import memory_of
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Step
from polyc.graph_driver.planning.verify_plan import check_plan
from polyc.poly.binding import evaluate
from polyc.poly.errors import ModelError, PolycError, ScopError
from polyc.poly.expr import const_int, substitute
from polyc.poly.records import dataclass
from polyc.poly.texts.parser import parse_scop
from polyc.poly.texts.printer import exact_scop
from polyc.poly.words import first_line

SELECTION, MEMORY, PLAN = STAGES = ("selection", "memory", "plan")
_KERNEL = ("nodes", "reads", "writes")


@dataclass(frozen=True)
class Staged:
    """A stage as its file has it. `order` are the steps by what they write; `places` begins in the arena by memory;
    None: as polyc plans it. `own` are the names of memories of each step's own."""

    path: Path
    graph: Graph
    kernels: tuple[Mapping[str, Any], ...]
    code: Mapping[str, str]
    places: Mapping[str, int] | None = None
    steps: tuple[Mapping[str, Any], ...] | None = None


# ---- writing -------------------------------------------------------------------------------


def stage_text(stage: str, graph_file: str, groups: Sequence[Group], plan: Plan[int] | None, roots: Graph) -> str:
    """The text of a stage of a graph (`roots`) that lies in `graph_file`. `plan` is of numbers, and is there for
    `memory` and `plan`."""
    codes = {g.key: f"k{n}" for n, g in enumerate({g.key: g for g in groups if g.scop is not None}.values())}
    parts: dict[str, Any] = {"stage": stage, "graph": graph_file}
    parts["kernels"] = [_kernel(g, codes) for g in groups]
    if stage != SELECTION:
        assert plan is not None
        parts["memory"] = memory_lines(plan, memory_of(roots, groups))
    if stage == PLAN:
        assert plan is not None
        parts["steps"] = [_step(s) for s in plan.steps]
    scops = {codes[g.key]: exact_scop(g.scop).split("\n") for g in groups if g.scop is not None}
    return _text(parts | {"code": scops})


def _kernel(group: Group, codes: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {"kernel": group.label} if group.key else {"host": group.reason or group.label}
    made |= {"nodes": [n.name for n in group.nodes]}
    made |= {"reads": list(group.inputs), "writes": list(group.outputs)}
    if group.key:
        made |= {"code": codes[group.key], "arrays": list(group.arrays)}
        made |= {"inplace": dict(group.inplace)} if group.inplace else {}
        made |= {"first_rows": dict(group.first_rows)} if group.first_rows else {}
    return made


def memory_lines(plan: Plan[int], inside: Mapping[str, tuple[str, int]]) -> list[dict[str, Any]]:
    """Each memory of the arena with its begin and bytes, and the steps between which it is alive."""
    times: dict[str, tuple[int, int]] = {}
    for t in plan.lifetimes:
        root = t.name if t.name in plan.slots else t.name.rpartition("+")[0]
        first, last = times.get(root, (t.first, t.last))
        times[root] = min(first, t.first), max(last, t.last)
    made = []
    for name, slot in plan.slots.items():
        if slot.place.kind == "arena" and inside.get(name, (name, 0)) == (name, 0):
            alive = list(times[name]) if name in times else []
            made.append({"memory": name, "at": slot.place.offset, "bytes": slot.nbytes, "steps": alive})
    return made


def _step(step: Step[int]) -> dict[str, Any]:
    made: dict[str, Any] = {"step": step.kind, "label": step.label, "nodes": list(step.nodes)}
    made |= {"reads": [a for a in step.args if a not in step.results and a not in step.scratch]}
    made |= {"writes": list(step.results)}
    return made | ({"own": list(step.scratch)} if step.scratch else {})


def _text(parts: Mapping[str, Any]) -> str:
    """JSON with a line for each entry of a list."""

    def lines(value: Any, pad: str) -> str:
        if isinstance(value, dict) and value and pad == "  ":
            inner = (f"{pad}  {json.dumps(k)}: {lines(v, pad + '  ')}" for k, v in value.items())
            return "{\n" + ",\n".join(inner) + f"\n{pad}}}"
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(f"{pad}  {json.dumps(v)}" for v in value) + f"\n{pad}]"
        return json.dumps(value)

    return "{\n" + ",\n".join(f"  {json.dumps(k)}: {lines(v, '  ')}" for k, v in parts.items()) + "\n}\n"


# ---- reading -------------------------------------------------------------------------------


def read_stage(path: Path) -> Staged:
    """The stage that a file has, and its graph.

    Raises:
        ModelError: there is no such file, or it is none of a stage; one line.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["stage"] not in STAGES:
            raise ModelError(f"{path}: there is no stage '{data['stage']}' ({', '.join(STAGES)})")
        kernels = tuple(dict(k) for k in data["kernels"])
        if not all(isinstance(k[part], list) for k in kernels for part in _KERNEL):
            raise TypeError
        code = {str(name): "\n".join(map(str, lines)) for name, lines in data.get("code", {}).items()}
        places = {str(m["memory"]): int(m["at"]) for m in data["memory"]} if "memory" in data else None
        steps = tuple(dict(s) for s in data["steps"]) if "steps" in data else None
        graph = read_graph(path.with_name(Path(str(data["graph"])).name))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "an entry is missing"
        raise ModelError(f"{path} is no {STAGE} file: {what}") from None
    return Staged(path, graph, kernels, code, places, steps)


def staged_plan(
    staged: Staged, platform: Platform, options: CompileOptions, report: Report
) -> tuple[list[Group], Mapping[str, Compiled], Plan]:
    """Groups in order, their code by key, and the plan.

    Raises:
        ModelError: a kernel does not fit its nodes, a place is not free, a step comes too early, ...; one line.
    """
    graph = staged.graph
    try:
        with report.stage("groups"):
            pieces = translate(graph, in_fixed_order(lookup) if options.reproducible else lookup)
            groups = _in_order(staged, _groups(staged, pieces))
        with report.stage("kernels"):
            groups, compiled = compile_groups(graph, groups, pieces, platform, options, report)
        assume(graph, groups)
        with report.stage("plan"):
            abis = {key: c.abi for key, c in compiled.items()}
            gaps = {key: c.gaps for key, c in compiled.items() if c.gaps}
            plan = placed(graph, groups, abis, platform, options, report.notes, gaps)
            if staged.places is not None:
                plan = _moved(staged, plan, groups)
                hosts = sum(s.kind in ("host", "control") for s in plan.steps)
                check_plan(plan, {s.symbol for s in plan.steps if s.kind == "kernel"}, hosts)
    except (GraphError, memory.PlanError, ScopError) as error:
        raise ModelError(f"{staged.path}: {first_line(error)}") from None
    report.nodes = len(graph.nodes)
    summarise(report, graph, plan, compiled, options)
    return groups, compiled, plan


def _groups(staged: Staged, pieces: Sequence[Piece]) -> list[Group]:
    """The kernels as the file has them. Raises `ModelError`, `ScopError`."""
    nodes = {n.name: n for n in staged.graph.nodes}
    by_node = {p.node.name: p for p in pieces}
    scops = {name: parse_scop(text) for name, text in staged.code.items()}
    made: list[Group] = []
    for n, entry in enumerate(staged.kernels):
        where = f"{staged.path}: kernel {n}"
        unknown = [name for name in entry["nodes"] if name not in nodes]
        if unknown or not entry["nodes"]:
            raise ModelError(f"{where}: {f'there is no node {unknown[0]!r}' if unknown else 'it has no nodes'}")
        members = tuple(nodes[name] for name in entry["nodes"])
        if "code" in entry and "host" not in entry:
            if entry["code"] not in scops:
                raise ModelError(f"{where}: there is no code '{entry['code']}'")
            scop = scops[entry["code"]]
            text, key = text_of(scop)
            arrays = tuple(map(str, entry.get("arrays", (*scop.args, *scop.results))))
            inplace = tuple((str(y), str(x)) for y, x in entry.get("inplace", {}).items())
            rows = tuple((str(p), int(first)) for p, first in entry.get("first_rows", {}).items())
            reads, writes = tuple(entry["reads"]), tuple(entry["writes"])
            group = Group(members, reads, writes, scop, text, key, "", arrays, inplace, rows)
            _check_arrays(staged.graph, group, where)
        else:
            group = _composed(members, by_node, where, entry.get("host"))
        made.append(group)
    _check_all_made(staged, made)
    return made


def _composed(members: Sequence[Node], by_node: Mapping[str, Piece], where: str, host: str | None) -> Group:
    """A group of these nodes as they stand, or the one node on the host."""
    work = [by_node[n.name] for n in members if not is_alias(n)]
    if host is not None:
        if len(work) != 1:
            raise ModelError(f"{where}: the host runs one node at a time, not {len(work)}")
        return on_host(make_group(Cluster(work)), str(host))
    if len(work) > 1 and any(p.operator is None for p in work):
        raise ModelError(f"{where}: '{next(p.node.name for p in work if p.operator is None)}' has no loops to join")
    return make_group(Cluster(work, [n for n in members if is_alias(n)]))


def _check_arrays(graph: Graph, group: Group, where: str) -> None:
    """Each array of a kernel is a tensor with as many bytes, and no other. Raises `ModelError`."""
    assert group.scop is not None
    scop, tensors = group.scop, (*group.inputs, *group.kept)
    if {*group.arrays} != {*scop.args, *scop.results} or len(group.arrays) != len(tensors):
        raise ModelError(f"{where}: its code has the arrays {', '.join((*scop.args, *scop.results))}, not these")
    rows = {p: const_int(first) for p, first in group.first_rows}
    for array, name in zip(group.arrays, tensors, strict=True):
        tensor, has = graph.tensors.get(name), scop.arrays[array]
        if tensor is None or not tensor.static:
            raise ModelError(f"{where}: there is no tensor '{name}' for '{array}'")
        needed: Any = has.dtype.bytes
        for extent in has.shape:
            try:
                if graph.symbols is None:
                    needed *= evaluate(extent, {})
                else:
                    needed = needed * size_of(graph.symbols, substitute(extent, rows))
            except (SizeError, PolycError, KeyError):
                raise ModelError(f"{where}: the extents of '{array}' are no sizes of the model") from None
        if needed != tensor.nbytes:
            raise ModelError(f"{where}: '{array}' has {needed} bytes, its tensor '{name}' has {tensor.nbytes}")
    for y, x in group.inplace:
        if y not in group.outputs or x not in group.inputs:
            raise ModelError(f"{where}: '{y}' cannot be written over '{x}', which are not its tensors")


def _check_all_made(staged: Staged, groups: Sequence[Group]) -> None:
    """Each tensor is made by one kernel at most, and the results are made. Raises `ModelError`."""
    graph = staged.graph
    made: set[str] = set()
    for n, g in enumerate(groups):
        twice = [o for o in g.outputs if o in made]
        if twice:
            raise ModelError(f"{staged.path}: kernel {n} makes '{twice[0]}', which another one has made")
        made |= {*g.outputs}
    shown = {name for n in graph.nodes if is_alias(n) for name in n.writes()}
    given = {*graph.inputs, *made, *shown}
    for name in graph.outputs:
        tensor = graph.tensors[name]
        if name not in given and tensor.const is None and tensor.sizes is None:
            raise ModelError(f"{staged.path}: no kernel makes the result '{name}'")


def _in_order(staged: Staged, groups: Sequence[Group]) -> list[Group]:
    """The groups in the order of the file's steps. Raises `ModelError`."""
    if staged.steps is None:
        return list(groups)
    left = {tuple(g.outputs): g for g in groups}
    found = []
    for n, step in enumerate(staged.steps):
        if step.get("step") == "copy":
            continue
        group = left.pop(tuple(step.get("writes", ())), None)
        if group is None or [x.name for x in group.nodes] != step.get("nodes"):
            raise ModelError(f"{staged.path}: step {n} is none of the kernels, or there a second time")
        found.append(group)
    if left:
        raise ModelError(f"{staged.path}: no step makes '{next(iter(left))[0]}'")
    return found


def _moved(staged: Staged, plan: Plan, groups: Sequence[Group]) -> Plan:
    """The plan with the places of the file. Raises `ModelError`."""
    assert staged.places is not None
    if plan.symbols is not None:
        raise ModelError(f"{staged.path}: places are numbers, and the sizes of this graph are not")
    inside, names = memory_of(staged.graph, groups), _own(staged, plan)
    slots = dict(plan.slots)
    for name, slot in plan.slots.items():
        if slot.place.kind != "arena":
            continue
        root, at = inside.get(name, (names.get(name, name), 0))
        if root not in staged.places:
            raise ModelError(f"{staged.path}: '{root}' has no place in the arena")
        slots[name] = replace(slot, place=replace(slot.place, offset=staged.places[root] + at))
    known = {names.get(n, n) for n in slots} | {where for where, _ in inside.values()}
    unknown = [n for n in staged.places if n not in known]
    if unknown:
        raise ModelError(f"{staged.path}: there is no memory '{unknown[0]}'")
    ends = (s.place.offset + s.nbytes for s in slots.values() if s.place.kind == "arena")
    peak = memory.aligned(max(ends, default=0), plan.alignment)
    return replace(plan, slots=slots, peak=peak, planner=staged.path.name, peaks={})


def _own(staged: Staged, plan: Plan) -> dict[str, str]:
    """The names that the file has for memories of steps' own, by the plan's: those have the number of the step."""
    if staged.steps is None:
        return {}
    by_results = {tuple(s.get("writes", ())): s.get("own", ()) for s in staged.steps}
    return {
        mine: str(theirs)
        for s in plan.steps
        for mine, theirs in zip(s.scratch, by_results.get(s.results, ()), strict=False)
    }
