"""The document about one operator and its schedule: what the page and `--json` are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polyc.emit.loop_ir.loops import Function
from polyc.graph_driver.backends.protocol import Backend
from polyc.graph_driver.backends.registry import found
from polyc.graph_driver.html.code import code_data
from polyc.graph_driver.html.cost import cost_data
from polyc.graph_driver.html.source import source_data
from polyc.graph_driver.html.space import space_data
from polyc.graph_driver.html.tree import tree_data
from polyc.poly.errors import BuildError, PolycError
from polyc.poly.scop import Scop
from polyc.poly.text import print_array, print_statement
from polyc.poly.tree import loop_names

if TYPE_CHECKING:
    from polyc.graph_driver.bench.operator_time import OperatorTime
    from polyc.scheduler.schedule import Schedule
    from polyc.scheduler.step import Step

VERSION = 1
LONG = 200  # characters of a step's argument


def operator_document(
    schedule: Schedule, target: object, origin: str, sizes: Mapping[str, object],
    times: OperatorTime | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Everything about `schedule` as JSON values. `target`: a machine, or its name. For a GPU `mapping` says what each
    kernel maps to.

    `origin` says where the schedule comes from ("automatic", a file's name), `sizes` what was fixed, `times` what
    is known of how long it takes.
    """
    backend, machine = found(target)
    scop = schedule.scop
    loops = frozenset(loop_names(schedule.tree))
    function, code, mapping = _code(schedule, backend, machine, loops)
    return {
        "format": "polyc-inspect",
        "version": VERSION,
        "kind": "operator",
        "name": scop.name,
        "target": backend.headline(machine),
        "schedule": {
            "origin": origin,
            "program": schedule.program(),
            "steps": [_step(s) for s in schedule.trace],
            "decisions": [d.data() | {"text": str(d)} for d in schedule.decisions],
            "codeNotes": [] if function is None else list(function.notes),
        },
        "sizes": {name: str(value) for name, value in sizes.items()},
        "arrays": [{"name": a.name, "kind": a.kind, "text": print_array(a)} for a in scop.arrays.values()],
        "statements": [
            {"name": s.name, "text": print_statement(s), "reduction": s.reduction} for s in scop.statements.values()
        ],
        "sources": source_data(scop),
        "tree": tree_data(schedule.tree, scop),
        "free": free_data(schedule),
        "programTree": tree_data(scop.tree, scop),
        "programFree": free_data(replace(schedule, tree=scop.tree)),
        "code": code,
        "mapping": mapping,
        "space": space_data(scop, schedule.tree),
        "cost": cost_data(schedule),
        "time": None if times is None else times.data(),
    }


def _code(
    schedule: Schedule, backend: Backend, machine: Any, loops: frozenset[str]
) -> tuple[Function | None, dict[str, Any], list[dict[str, Any]]]:
    """The function, its texts, and what its kernels map to (nothing on a CPU)."""
    try:
        function, listing, mapping = backend.listing(schedule, machine, symbol(schedule.scop))
    except BuildError as error:  # the page shows the schedule all the same, and says why it has no code
        return None, {"error": str(error)}, []
    return function, code_data(function, listing, loops), mapping


def free_data(schedule: Schedule) -> dict[str, Any]:
    """What the dependences leave free: loops that carry none, loops that only carry a reduction's own
    updates, and groups of loops that may be put in any order. Empty where isl's quota ends."""
    try:
        parallel = schedule.parallel_loops()
        sums = [loop for loop in schedule.parallel_loops(reductions=True) if loop not in parallel]
        return {"parallel": list(parallel), "sums": sums, "bands": [list(b) for b in schedule.permutable_bands()]}
    except PolycError:
        return {"parallel": [], "sums": [], "bands": []}


def symbol(scop: Scop) -> str:
    """The name of the generated function."""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in scop.name)


def _step(step: Step) -> dict[str, Any]:
    shown = {k: v for k, v in step.args.items() if v is not None}
    texts = {k: v if isinstance(v, str) else repr(v) for k, v in shown.items()}
    return {
        "name": step.name,
        "args": {k: t if len(t) <= LONG else f"{t[:LONG]}… ({len(t)} characters)" for k, t in texts.items()},
    }
