"""The native program of a plan whose sizes are formulas.

As `polyc.graph_driver.execution.entry`, but offsets in the arena, sizes of copies and the kernels' parameters are read
from the run's table, whose address is the last of `bases`.
"""

from __future__ import annotations

from collections.abc import Collection

from polyc.graph_driver.execution.entry import (
    FIRST_INPUT,
    RUNTIME,
    base_index,
    segment_name,
    segments,
    stop_word,
    task_function,
    unless_stopped,
    waits,
)
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.symbolic.template import Template


def table_index(plan: Plan) -> int:
    """Which of `bases` is the table."""
    return FIRST_INPUT + len(plan.inputs) + len(plan.outputs)


def entry_text(template: Template, triple: str, alone: Collection[int] = ()) -> str:
    """LLVM IR of all segments, without the steps `alone`."""
    plan = template.typical
    symbols = dict.fromkeys(s.symbol for s in plan.steps if s.kind == "kernel")
    lines = [f'target triple = "{triple}"', *(f"declare void @{s}(ptr, ptr, ptr)" for s in symbols)]
    lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    for number, steps in enumerate(segments(plan, alone)):
        segment, name, after = _Segment(template), segment_name(number), waits(plan, steps)
        lines += segment.tasks(name, steps, after) if after else segment.text(name, steps)
    return "\n".join(lines) + "\n"


class _Segment:
    def __init__(self, template: Template) -> None:
        self.template, self.plan = template, template.typical
        self.table = table_index(self.plan)
        self.offset_entry = {n: template.offsets_at + k for k, n in enumerate(template.arena.order)}
        self.value_entry = template.values_at()
        self.lines: list[str] = []
        self.loaded: set[int] = set()
        self.runtime, self.prefix = f"%b{RUNTIME}", ""

    def text(self, name: str, steps: list[int]) -> list[str]:
        """The segment as a function that runs its steps in order."""
        for k in steps:
            self.lines += unless_stopped(k, "end")
            self.step(k)
        head = [f"define void @{name}(ptr %bases) {{", "entry:", *self.head(steps), *stop_word()]
        return [*head, *self.lines, "  br label %end", "end:", "  ret void", "}"]

    def tasks(self, name: str, steps: list[int], after: list[tuple[int, ...]]) -> list[str]:
        """The segment as a graph of tasks."""
        self.runtime = "%runtime"
        cases = []
        for k in steps:
            self.lines, self.loaded, self.prefix = [], set(), f"{k}."
            self.step(k)
            cases.append(self.lines)
        return task_function(name, after, self.head(steps), cases)

    def head(self, steps: list[int]) -> list[str]:
        """Room for the pointers that a kernel gets, and what they are relative to."""
        width = max(len(self.plan.steps[k].args) for k in steps)
        bases = {self.base(a) for k in steps for a in self.plan.steps[k].args} | {RUNTIME, self.table}
        lines = [f"  %args = alloca [{width} x ptr], align 8"]
        for b in sorted(bases):
            lines.append(f"  %b{b}.at = getelementptr ptr, ptr %bases, i64 {b}")
            lines.append(f"  %b{b} = load ptr, ptr %b{b}.at, align 8")
        return [*lines, *(f"  %slot{k} = getelementptr ptr, ptr %args, i64 {k}" for k in range(width))]

    def base(self, arg: str) -> int:
        return self.table if arg in self.value_entry else base_index(self.plan, self.plan.slots[arg].place)

    def entry(self, number: int) -> str:
        """The value of an entry of the table (loaded at its first use)."""
        name = f"%e{self.prefix}{number}"
        if number not in self.loaded:
            self.loaded.add(number)
            self.lines.append(f"  {name}.at = getelementptr i64, ptr %b{self.table}, i64 {number}")
            self.lines.append(f"  {name} = load i64, ptr {name}.at, align 8")
        return name

    def step(self, number: int) -> None:
        step = self.plan.steps[number]
        pointers = [self.pointer(f"%p{number}.{k}", arg) for k, arg in enumerate(step.args)]
        if step.kind == "copy":
            size = self.entry(self.template.copies[number])
            operands = f"ptr {pointers[1]}, ptr {pointers[0]}, i64 {size}, i1 false"
            self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({operands})")
            return
        self.lines += [f"  store ptr {p}, ptr %slot{k}, align 8" for k, p in enumerate(pointers)]
        params = "null"
        if self.template.params[number] >= 0:
            params = f"%n{number}"
            at = self.template.params[number]
            self.lines.append(f"  {params} = getelementptr i64, ptr %b{self.table}, i64 {at}")
        self.lines.append(f"  call void @{step.symbol}(ptr %args, ptr {params}, ptr {self.runtime})")

    def pointer(self, name: str, arg: str) -> str:
        base, slot = self.base(arg), self.plan.slots[arg]
        if arg in self.value_entry:
            offset = str(8 * self.value_entry[arg])
        elif slot.place.kind == "arena":
            home, at = self.template.homes[arg]
            offset = self.entry(self.offset_entry[home])
            if at:
                self.lines.append(f"  {name}.in = add i64 {offset}, {at}")
                offset = f"{name}.in"
        else:
            offset = str(slot.place.offset)
        self.lines.append(f"  {name} = getelementptr i8, ptr %b{base}, i64 {offset}")
        return name
