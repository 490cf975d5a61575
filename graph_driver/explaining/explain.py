"""Why a schedule or a plan is as it is: records of what was decided, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.backends.registry import found
from polyc.poly.errors import PolycError
from polyc.poly.target import Target
from polyc.poly.tree import Band, Member, walk
from polyc.poly.words import counted, first_line

if TYPE_CHECKING:
    from polyc.graph_driver.bench.operator_time import OperatorTime
    from polyc.poly.scop import Scop
    from polyc.scheduler.cost.model import Machine
    from polyc.scheduler.schedule import Schedule

VERSION = 1
MOST_LOOPS = 12
LINE = 64  # bytes of a cache's line
MOST_TEXT = 1_200  # characters of a case of misses that are still read, unless somebody asks for them
SLOWEST = 12  # kernels whose times are listed


def explain_schedule(
    schedule: Schedule, target: object, sizes: Mapping[str, int], times: OperatorTime,
    machine: Machine | None = None, checks: bool | None = None, verbose: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The work of an operator, what the automatic schedule decided and declined, and what its loops touch.

    `sizes` are those fixed on the command line. Numbers that cannot be counted are None, with the reason.
    `times` are predicted, and measured if that was asked for, with so many threads; `machine` has the figures that
    say what these get (None: those of the target's data). `checks` of accesses that are not proven: None is unless
    `POLYC_CHECK=0`. `target`: a machine, or its name; loops for a GPU share no threads, and fit no
    caches. `verbose`: with formulas of any length.
    """
    scop = schedule.scop
    steps = [str(s) for s in schedule.trace]
    backend, made_for = found(target)
    cpu = backend.costed(made_for)
    shared = [] if cpu is None else _shared(schedule, cpu, times.threads, machine)
    return {
        "format": "polyc-explain", "version": VERSION, "kind": "operator", "name": scop.name,
        "sizes": dict(sizes), "free_sizes": list(scop.params), "threads": times.threads,
        "target": backend.facts(made_for),
        "work": {
            "flops": _formula(lambda: schedule.count("flops")),
            "bytes": _formula(lambda: schedule.count("bytes")),
            "traffic": _formula(lambda: schedule.count("traffic")),
            "flops_per_byte": _ratio(schedule),
        },
        "predicted": None if times.predicted is None else times.predicted.data(),
        "measured": times.measured,
        "decisions": [d.data() | {"text": str(d)} for d in schedule.decisions],
        "steps": [s if len(s) < 200 else s[:200] + "..." for s in steps],
        "program": schedule.program(),
        "parallel_loops": list(schedule.parallel_loops()),
        "shared_loops": shared,
        "loops": _loops(schedule, cpu),
        "misses": {
            "given": _misses(schedule.original.schedule(), cpu, verbose),
            "scheduled": _misses(schedule, cpu, verbose) if schedule.trace else [],
        },
        "accesses": _accesses(schedule.original, checks, not backend.checks_first),
    }  # fmt: skip


def _misses(schedule: Schedule, cpu: Target | None, verbose: bool) -> list[str]:
    """Cache lines that a schedule's order fetches, as formulas in the sizes, up to those loops whose iteration L1
    always holds; the reason where there are no more, or how to see more of them."""
    from polyc.scheduler.questions.miss_formulas import miss_formulas

    found: list[str] = []
    try:
        for case in miss_formulas(schedule.scop, schedule.tree, LINE, 0 if cpu is None else cpu.l1 // LINE):
            if len(str(case)) > MOST_TEXT and not verbose:
                from_here = "without a loop that stays" if case.loop is None else f"from {case.loop} on"
                return [*found, f"the cases {from_here} have over {MOST_TEXT} characters: --verbose has them"]
            found.append(str(case))
    except PolycError as error:
        found.append(f"not counted: {first_line(error)}")
    return found


def _shared(schedule: Schedule, target: Target, threads: int, machine: Machine | None) -> list[dict[str, Any]]:
    """What the threads of a CPU get of the loops that they share."""
    from polyc.scheduler.cost.model import nominal
    from polyc.scheduler.cost.shared_loops import shared_loops

    found = shared_loops(schedule, target, machine or nominal(target), threads)
    return [x.data() | {"text": str(x)} for x in found]


def _accesses(scop: Scop, checks: bool | None, gpu: bool) -> list[dict[str, Any]]:
    """What keeps each access inside its array."""
    from polyc.emit.certificates import certificates
    from polyc.emit.lowering.checks import wanted

    found = certificates(scop, wanted(checks), gpu)
    return [
        {"array": c.array, "access": c.access, "write": c.write, "line": c.line, "certificate": c.how, "text": str(c)}
        for c in found
    ]


def _formula(make: Callable[[], Any]) -> dict[str, Any]:
    """Text, and the number where no size is left."""
    try:
        f = make()
    except PolycError as error:
        return {"text": None, "value": None, "exact": False, "why": first_line(error)}
    return {"text": str(f), "value": f() if not f.names else None, "exact": f.exact, "why": f.why}


def _ratio(schedule: Schedule) -> dict[str, Any]:
    try:
        r = schedule.intensity()
    except PolycError as error:
        return {"text": None, "value": None, "exact": False, "why": first_line(error)}
    return {"text": str(r), "value": r() if not r.over.names else None, "exact": r.exact, "why": ""}


def _loops(schedule: Schedule, cpu: Target | None) -> list[dict[str, Any]]:
    """What one iteration of each of the first loops touches, and the cache that holds it."""
    members = [m for n in walk(schedule.tree) if isinstance(n, Band) for m in n.members]
    return [_loop(schedule, m, cpu) for m in members[:MOST_LOOPS]]


def _loop(schedule: Schedule, member: Member, cpu: Target | None) -> dict[str, Any]:
    scop = schedule.scop
    arrays: dict[str, Any] = {}
    total: int | None = 0
    for array in scop.arrays.values():
        try:
            formula = schedule.footprint(array.name, at=member.name)
            if not formula.pieces:
                continue
            most = formula.largest() * array.dtype.bytes if not scop.params else None
            arrays[array.name] = {"elements": str(formula), "bytes": most}
        except PolycError as error:
            most = None
            arrays[array.name] = {"elements": None, "bytes": None, "why": first_line(error)}
        total = None if most is None or total is None else total + most
    return {
        "name": member.name, "kind": member.kind, "factor": member.factor, "arrays": arrays,
        "bytes": total,
        "fits": None if total is None or cpu is None else _level(total, cpu),
    }  # fmt: skip


def _level(size: int, target: Target) -> str:
    """The smallest cache that holds so many bytes."""
    return next((n for n, most in (("L1", target.l1), ("L2", target.l2), ("L3", target.l3)) if size <= most), "memory")


def explain_model(
    document: Mapping[str, Any], kernels: Mapping[str, list[dict[str, Any]]], blocked: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The decisions about a model, from its document (`polyc.graph_driver.html.model_page`).

    `kernels`: label -> the decisions of its schedule; `blocked`: neighbouring kernels and the dependence between them
    (`polyc.graph_driver.fusion.blocking`).
    """
    steps = document["steps"]
    return {
        "format": "polyc-explain", "version": VERSION, "kind": "model", "name": document["name"],
        "target": document["target"], "nodes": document["nodes"],
        "passes": document["passes"], "layouts": document["layouts"], "notes": document["notes"],
        "groups": [
            {"label": s["label"], "nodes": [n for n, _ in s["nodes"]], "results": s["results"]}
            for s in steps if s["kind"] == "kernel"
        ],
        "host": [
            {"label": s["label"], "nodes": [n for n, _ in s["nodes"]], "reason": s["reason"]}
            for s in steps if s["kind"] == "host"
        ],
        "decisions": document["decisions"], "casts": document["casts"], "selections": document["selections"],
        "times": _times(steps), "blocked": [dict(b) for b in blocked],
        "kernels": [
            {"label": label, "decisions": found} for label, found in kernels.items()
        ],
    }  # fmt: skip


def _times(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Predicted beside measured seconds of the kernels, and how far apart they are (a factor of at least 1)."""
    rows = [
        {
            "label": s["label"], "node": s["nodes"][0][0] if s["nodes"] else "",
            "predicted": s["predicted"]["seconds"], "bound": s["predicted"]["bound"], "measured": s.get("seconds"),
        }
        for s in steps if s["predicted"] is not None
    ]  # fmt: skip
    apart = [max(r["predicted"] / r["measured"], r["measured"] / r["predicted"]) for r in rows if r["measured"]]
    return {
        "kernels": rows,
        "median_factor": round(median(apart), 3) if apart else None,
        "worst_factor": round(max(apart), 3) if apart else None,
        "rank_correlation": _rank_correlation(rows) if len(apart) == len(rows) > 2 else None,
    }


def _rank_correlation(rows: Sequence[Mapping[str, Any]]) -> float:
    """Spearman's coefficient of predicted and measured times: 1 when both sort the kernels alike."""

    def ranks(key: str) -> list[float]:
        times = [float(r[key]) for r in rows]
        return [sum(t < x for t in times) + sum(t == x for t in times) / 2 for x in times]

    a, b = ranks("predicted"), ranks("measured")
    middle = len(rows) / 2
    both = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    own = [sum((x - middle) ** 2 for x in r) for r in (a, b)]
    return round(both / (own[0] * own[1]) ** 0.5, 3) if min(own) > 0 else 1.0


# ---- text ----------------------------------------------------------------------------------------


def operator_lines(data: Mapping[str, Any]) -> Iterable[str]:
    """The explanation of an operator for people."""
    machine, work = data["target"], data["work"]
    sizes = ", ".join(f"{n}={v}" for n, v in data["sizes"].items())
    free = f"; {', '.join(data['free_sizes'])} stay symbolic" if data["free_sizes"] else ""
    yield f"{data['name']}{f' with {sizes}' if sizes else ''}{free}"
    if "kind" in machine:
        yield f"  for {machine['name']} ({machine['kind']}), blocks of up to {machine['max_threads']} threads"
    else:
        yield f"  for {machine['cpu']}, {machine['vector_bits']}-bit vectors, {counted(data['threads'], 'thread')}"
    yield f"  computes   {_number(work['flops'])} flops"
    yield f"  moves      {_number(work['bytes'])} bytes at least, {_number(work['traffic'])} without caches"
    yield f"  intensity  {_number(work['flops_per_byte'])} flops per byte"
    if data["predicted"] is not None:
        yield f"  predicted  {1e6 * data['predicted']['seconds']:.1f} us, bound by {data['predicted']['bound']}"
    if data["measured"] is not None:
        yield f"  measured   {1e6 * data['measured']:.1f} us, the shortest call on random arguments"
    yield ""
    for title, outcomes in (("done", ("done",)), ("declined", ("declined", "refused", "impossible"))):
        chosen = [d for d in data["decisions"] if d["outcome"] in outcomes]
        if chosen:
            yield f"{title}:"
        for d in chosen:
            yield f"  {d['stage']:<12} {d['text']}"
            figures = ", ".join(f"{k} {v}" for k, v in d["figures"].items() if v is not None)
            if figures:
                yield f"  {'':<12}   ({figures})"
    if not data["decisions"]:
        yield "nothing to decide: program order"
    yield "the schedule as a program, to edit and to give to compile(schedule=s):"
    for line in data["program"].splitlines():
        yield f"  {line}"
    yield ""
    yield from _thread_lines(data)
    yield f"loops that carry nothing: {', '.join(data['parallel_loops']) or 'none'}"
    for kind, whose in (("given", "the program's own order"), ("scheduled", "this schedule")):
        if data["misses"][kind]:
            yield f"cache lines of {LINE} bytes that {whose} fetches, the first that holds:"
            yield from (f"  {text}" for text in data["misses"][kind])
    yield "one iteration of"
    for loop in data["loops"]:
        kind = "" if loop["kind"] == "serial" else f" [{loop['kind']}]"
        touched = ", ".join(f"{a}: {f['elements'] or f.get('why')}" for a, f in loop["arrays"].items())
        fits = "" if loop["fits"] is None else f"  = {loop['bytes']:,} bytes, fits {loop['fits']}"
        yield f"  {loop['name']}{kind} touches {touched}{fits}"
    yield from _access_lines(data)


def _access_lines(data: Mapping[str, Any]) -> Iterable[str]:
    """What keeps accesses inside their arrays: those that are proven in one line."""
    proven = [a["access"] for a in data["accesses"] if a["certificate"] == "proven"]
    yield f"accesses that are proven: {', '.join(dict.fromkeys(proven)) or 'none'}"
    for a in data["accesses"]:
        if a["certificate"] != "proven":
            yield f"access {a['text']}"


def _thread_lines(data: Mapping[str, Any]) -> Iterable[str]:
    """What the threads of a CPU share."""
    if "kind" in data["target"]:
        return
    if data["threads"] < 2:
        yield "threads: one, no loop is shared"
    elif not data["shared_loops"]:
        yield f"threads: no loop is shared among {data['threads']}"
    for shared in data["shared_loops"]:
        yield f"threads: {shared['text']}"


def _number(f: Mapping[str, Any]) -> str:
    if f["text"] is None:
        return f"? ({f['why']})"
    value = f["value"]
    if value is None:
        return str(f["text"])
    about = "" if f["exact"] else "at most "
    return about + (f"{value:,}" if isinstance(value, int) else f"{value:.2f}")


def model_lines(data: Mapping[str, Any], verbose: bool) -> Iterable[str]:
    """The explanation of a model for people."""
    groups = data["groups"]
    inside = sum(len(g["nodes"]) for g in groups)
    host = len(data["host"])
    yield f"{data['name']}: {data['nodes']} nodes, {inside} of them in {len(groups)} kernels, {host} on the host"
    for p in data["passes"]:
        yield f"  pass      {p}"
    for label, times in Counter(g["label"] for g in groups).most_common():
        yield f"  kernel    {times:>3} x {label}"
    for s in data["selections"]:
        if verbose or len([c for c in s["candidates"] if c["cost"] is not None and c["device"] != "host"]) > 1:
            yield f"  selected  {s['text']}"
    for d in data["decisions"]:
        if d["kind"] == "in place":
            yield f"  memory    {d['text']}"
        else:
            yield f"  {'joined' if d['joined'] else 'apart':<9} {d['from']} -> {d['to']}: {d['reason']}"
    for b in data["blocked"]:
        yield f"  {'legal' if b['legal'] else 'blocked':<9} {b['from']} -> {b['to']} ('{b['tensor']}'): {b['reason']}"
    for c in data["casts"]:
        why = "by --precision" if c["added"] else "in the model"
        yield f"  cast      {c['from']} to {c['to']}: '{c['tensor']}' ({why})"
    for name in data["layouts"]:
        yield f"  layout    {name}"
    for h in data["host"]:
        yield f"  host      {h['label']}: {h['reason']}"
    for n in data["notes"]:
        yield f"  note      {n}"
    yield from _time_lines(data["times"], verbose)
    for k in data["kernels"] if verbose else ():
        yield f"kernel {k['label']}"
        for d in k["decisions"]:
            yield f"  {d['stage']:<12} {d['text']}"


def _time_lines(times: Mapping[str, Any], verbose: bool) -> Iterable[str]:
    """The kernels that are predicted to take longest, with the measurement if there is one."""
    rows = sorted(times["kernels"], key=lambda r: -float(r["predicted"]))
    if not rows:
        return
    measured = all(r["measured"] for r in rows)
    total = f"  predicted {1e3 * sum(r['predicted'] for r in rows):9.3f} ms in {len(rows)} kernels"
    if measured:
        total += (
            f", measured {1e3 * sum(r['measured'] for r in rows):.3f} ms; "
            f"apart by a factor of {times['median_factor']:.2f} (median), {times['worst_factor']:.2f} (worst)"
            + ("" if times["rank_correlation"] is None else f", rank correlation {times['rank_correlation']:.2f}")
        )
    yield total
    for r in rows if verbose else rows[:SLOWEST]:
        beside = f", measured {1e6 * r['measured']:9.1f} us" if r["measured"] else ""
        what = f"{r['bound']:<10} {r['label']} at '{r['node']}'"
        yield f"  predicted {1e6 * r['predicted']:9.1f} us{beside}  bound by {what}"
    if len(rows) > SLOWEST and not verbose:
        yield f"  predicted ... and {len(rows) - SLOWEST} more (--verbose)"
