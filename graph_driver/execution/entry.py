"""The native program of a plan: LLVM IR functions that call the kernels one after another.

Host steps cut the plan into segments; segment `k` is `void polyc_segment_k(void **bases)`
with `bases = [runtime, arena, weights, stop, inputs..., outputs...]`. Every pointer that a kernel
gets is one of the bases plus a constant. With symbolic sizes there is one base more, the run's table
(`polyc.graph_driver.planning.table`): offsets in the arena, sizes of copies and the kernels' parameters are read from
it. Where the word at `stop` is not zero, no further step begins
(`polyc.graph_driver.execution.stopping`).

Where steps may run at the same time (`Plan.after`), a segment of several hands a function with one case a step
and the graph of who waits for whom to the threads (`polyc.emit.run_time.task_runner`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from polyc.emit.run_time.task_runner import TASKS_AT, graph_words
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Place, Step, any_formula

if TYPE_CHECKING:
    from polyc.graph_driver.planning.table import Table

RUNTIME, ARENA, WEIGHTS, STOP, FIRST_INPUT = 0, 1, 2, 3, 4


def segments(plan: Plan, alone: Collection[int] = ()) -> list[list[int]]:
    """Step numbers of each maximal run of native steps, in order; those in `alone` are in none."""
    found: list[list[int]] = []
    for k, step in enumerate(plan.steps):
        if step.kind in ("host", "control") or k in alone:
            continue
        if found and found[-1][-1] == k - 1:
            found[-1].append(k)
        else:
            found.append([k])
    return found


def segment_name(number: int) -> str:
    """The symbol of a segment."""
    return f"polyc_segment_{number}"


def base_index(plan: Plan, place: Place) -> int:
    """Which entry of `bases` a place is relative to."""
    if place.kind == "arena":
        return ARENA
    if place.kind == "weight":
        return WEIGHTS
    if place.kind == "input":
        return FIRST_INPUT + place.index
    if place.kind == "table":
        return table_index(plan)
    assert place.kind == "output", place
    return FIRST_INPUT + len(plan.inputs) + place.index


def table_index(plan: Plan) -> int:
    """Which entry of `bases` is the table."""
    return FIRST_INPUT + len(plan.inputs) + len(plan.outputs)


def entry_text(plan: Plan, triple: str, alone: Collection[int] = ()) -> str:
    """LLVM IR of all segments, without the steps `alone`."""
    symbols = dict.fromkeys(s.symbol for s in plan.steps if s.kind == "kernel")
    lines = [f'target triple = "{triple}"', *(f"declare void @{s}(ptr, ptr, ptr)" for s in symbols)]
    lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    for step in {s.sizes: s for s in plan.steps if s.sizes and not any_formula(s.sizes)}.values():
        numbers = ", ".join(f"i64 {n}" for n in step.sizes)
        lines.append(f"@{sizes_name(step)} = internal constant [{len(step.sizes)} x i64] [{numbers}]")
    calls = _Calls(plan)
    for number, steps in enumerate(segments(plan, alone)):
        name, after = segment_name(number), waits(plan, steps)
        lines += calls.task_graph(name, steps, after) if after else calls.segment(name, steps)
    return "\n".join(lines) + "\n"


def waits(plan: Plan, steps: Sequence[int]) -> list[tuple[int, ...]]:
    """For each step of a segment, counted from its first, those that it waits for; empty when they run in order.

    A step that is cut out of the plan is done before what follows it, whoever waits for it.
    """
    if not plan.after:
        return []
    after = [tuple(e - steps[0] for e in plan.after[k] if e >= steps[0]) for k in steps]
    return after if any(len(e) != 1 or e[0] != k for k, e in enumerate(after[1:])) else []


def stop_word() -> list[str]:
    """Where the word is that stops a run."""
    return [f"  %stop.at = getelementptr ptr, ptr %bases, i64 {STOP}", "  %stop = load ptr, ptr %stop.at, align 8"]


def unless_stopped(number: int, end: str) -> list[str]:
    """Go to `end` instead of on to a step of a run that has been stopped."""
    return [
        f"  %stopped.{number} = load atomic i64, ptr %stop monotonic, align 8",
        f"  %going.{number} = icmp eq i64 %stopped.{number}, 0",
        f"  br i1 %going.{number}, label %step.{number}, label %{end}",
        f"step.{number}:",
    ]


def task_function(
    name: str, after: Sequence[tuple[int, ...]], head: Sequence[str], cases: Sequence[Sequence[str]]
) -> list[str]:
    """A segment as a graph of tasks: `cases` has the text of each, `head` what all of them need."""
    words, count = graph_words(after), len(cases)
    labels = " ".join(f"i64 {n}, label %case{n}" for n in range(count))
    lines = [f"@{name}.graph = internal constant [{len(words)} x i32] [{', '.join(f'i32 {w}' for w in words)}]"]
    lines += [f"define internal void @{name}.task(i64 %number, ptr %bases, ptr %runtime) {{", "entry:", *head]
    lines += [*stop_word(), *unless_stopped(0, "end")]
    lines.append(f"  switch i64 %number, label %end [ {labels} ]")
    for n, case in enumerate(cases):
        lines += [f"case{n}:", *case, "  br label %end"]
    return [
        *lines,
        "end:",
        "  ret void",
        "}",
        f"define void @{name}(ptr %bases) {{",
        "entry:",
        "  %pool = load ptr, ptr %bases, align 8",
        "  %none = icmp eq ptr %pool, null",
        "  br i1 %none, label %serial, label %threads",
        "threads:",
        f"  %run.at = getelementptr i8, ptr %pool, i64 {TASKS_AT}",
        "  %run = load ptr, ptr %run.at, align 8",
        f"  call void %run(ptr %pool, ptr @{name}.task, ptr %bases, ptr @{name}.graph)",
        "  ret void",
        "serial:",
        *(f"  call void @{name}.task(i64 {n}, ptr %bases, ptr null)" for n in range(count)),
        "  ret void",
        "}",
    ]


class _Calls:
    """The text of a plan's segments."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.table: Table | None = None
        if plan.arena is not None:
            from polyc.graph_driver.planning.table import Table  # programs of numbers have none

            self.table = Table(plan)
        self.loaded: set[int] = set()

    def segment(self, name: str, steps: list[int]) -> list[str]:
        """A segment as a function that runs its steps in order."""
        self.loaded = set()
        lines = [f"define void @{name}(ptr %bases) {{", "entry:", *self.frame(steps), *self.bases(steps, "")]
        lines += [f"  %b{RUNTIME} = load ptr, ptr %bases, align 8", *stop_word()]
        for n, k in enumerate(steps):
            lines += [*unless_stopped(n, "end"), *self.call(k, str(n), "", f"%b{RUNTIME}")]
        return [*lines, "  br label %end", "end:", "  ret void", "}"]

    def task_graph(self, name: str, steps: list[int], after: list[tuple[int, ...]]) -> list[str]:
        """A segment whose steps the threads of the pool share out; without a pool they run in order."""
        cases = []
        for n, k in enumerate(steps):
            self.loaded = set()
            cases.append([*self.bases([k], f"{n}."), *self.call(k, str(n), f"{n}.", "%runtime")])
        return task_function(name, after, self.frame(steps), cases)

    def frame(self, steps: list[int]) -> list[str]:
        """Room for the pointers that a kernel gets."""
        width = max(len(self.plan.steps[k].args) for k in steps)
        slots = [f"  %slot{k} = getelementptr ptr, ptr %args, i64 {k}" for k in range(width)]
        return [f"  %args = alloca [{width} x ptr], align 8", *slots]

    def bases(self, steps: list[int], prefix: str) -> list[str]:
        """Load what the arguments of these steps are relative to."""
        lines = []
        needed = {base_index(self.plan, self.plan.slots[a].place) for k in steps for a in self.plan.steps[k].args}
        if self.table is not None:
            needed.add(table_index(self.plan))
        for b in sorted(needed):
            lines.append(f"  %b{prefix}{b}.at = getelementptr ptr, ptr %bases, i64 {b}")
            lines.append(f"  %b{prefix}{b} = load ptr, ptr %b{prefix}{b}.at, align 8")
        return lines

    def call(self, k: int, number: str, prefix: str, runtime: str) -> list[str]:
        """One step."""
        step, lines, pointers = self.plan.steps[k], [], []
        for a, arg in enumerate(step.args):
            pointers.append(f"%p{number}.{a}")
            lines += self.pointer(pointers[-1], self.plan.slots[arg].place, prefix)
        if step.kind == "copy":
            size = str(self.plan.slots[step.args[0]].nbytes)
            if self.table is not None:
                size, loads = self.entry(self.table.sizes[k], prefix)
                lines += loads
            return [*lines, *_copy(number, pointers[0], pointers[1], size)]
        lines += [f"  store ptr {p}, ptr %slot{n}, align 8" for n, p in enumerate(pointers)]
        sizes = f"@{sizes_name(step)}" if step.sizes else "null"
        if self.table is not None and k in self.table.sizes:
            sizes, table = f"%n{number}", f"%b{prefix}{table_index(self.plan)}"
            lines.append(f"  {sizes} = getelementptr i64, ptr {table}, i64 {self.table.sizes[k]}")
        return [*lines, f"  call void @{step.symbol}(ptr %args, ptr {sizes}, ptr {runtime})"]

    def pointer(self, name: str, place: Place, prefix: str) -> list[str]:
        """Where a tensor lies: a constant from what its place is relative to. In the arena of a plan of formulas that
        is the beginning of a memory, which the table has."""
        base, offset = f"%b{prefix}{base_index(self.plan, place)}", str(place.offset)
        lines: list[str] = []
        if self.table is not None and place.kind == "arena":
            start, lines = self.entry(self.table.offsets + place.index, prefix)
            if place.offset:
                lines = [*lines, f"  {name}.home = getelementptr i8, ptr {base}, i64 {start}"]
                base = f"{name}.home"
            else:
                offset = start
        return [*lines, f"  {name} = getelementptr i8, ptr {base}, i64 {offset}"]

    def entry(self, number: int, prefix: str) -> tuple[str, list[str]]:
        """The value of an entry of the table, and what loads it, unless an earlier step has."""
        name, table = f"%e{prefix}{number}", f"%b{prefix}{table_index(self.plan)}"
        if number in self.loaded:
            return name, []
        self.loaded.add(number)
        place = f"  {name}.at = getelementptr i64, ptr {table}, i64 {number}"
        return name, [place, f"  {name} = load i64, ptr {name}.at, align 8"]


def _copy(number: str, source: str, target: str, size: str) -> list[str]:
    """Copy bytes, unless they are there already: the caller gave one array for an input and an output."""
    return [
        f"  %same.{number} = icmp eq ptr {source}, {target}",
        f"  br i1 %same.{number}, label %copied.{number}, label %copy.{number}",
        f"copy.{number}:",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)",
        f"  br label %copied.{number}",
        f"copied.{number}:",
    ]


def sizes_name(step: Step) -> str:
    """The constant with the sizes that a registered function gets."""
    return f"sizes.{'.'.join(map(str, step.sizes))}"
