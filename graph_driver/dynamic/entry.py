"""The native program of a plan whose sizes are formulas.

As `graph_driver.execution.entry`, but offsets in the arena, sizes of copies and the kernels' parameters are read
from the run's table, whose address is the last of `bases`.
"""

from __future__ import annotations

from collections.abc import Collection

from graph_driver.dynamic.plan import Template
from graph_driver.execution.entry import FIRST_INPUT, RUNTIME, base_index, segment_name, segments
from graph_driver.planning.plan import Plan


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
        lines += _Segment(template).text(segment_name(number), steps)
    return "\n".join(lines) + "\n"


class _Segment:
    def __init__(self, template: Template) -> None:
        self.template, self.plan = template, template.typical
        self.table = table_index(self.plan)
        self.offset_entry = {n: template.offsets_at + k for k, n in enumerate(template.arena.order)}
        self.value_entry = template.values_at()
        self.lines: list[str] = []
        self.loaded: set[int] = set()

    def text(self, name: str, steps: list[int]) -> list[str]:
        plan = self.plan
        width = max(len(plan.steps[k].args) for k in steps)
        bases = {self.base(a) for k in steps for a in plan.steps[k].args} | {RUNTIME, self.table}
        self.lines = [f"define void @{name}(ptr %bases) {{", "entry:", f"  %args = alloca [{width} x ptr], align 8"]
        for b in sorted(bases):
            self.lines.append(f"  %b{b}.at = getelementptr ptr, ptr %bases, i64 {b}")
            self.lines.append(f"  %b{b} = load ptr, ptr %b{b}.at, align 8")
        for k in range(width):
            self.lines.append(f"  %slot{k} = getelementptr ptr, ptr %args, i64 {k}")
        for k in steps:
            self.step(k)
        return [*self.lines, "  ret void", "}"]

    def base(self, arg: str) -> int:
        return self.table if arg in self.value_entry else base_index(self.plan, self.plan.slots[arg].place)

    def entry(self, number: int) -> str:
        """The value of an entry of the table (loaded at its first use)."""
        if number not in self.loaded:
            self.loaded.add(number)
            self.lines.append(f"  %e{number}.at = getelementptr i64, ptr %b{self.table}, i64 {number}")
            self.lines.append(f"  %e{number} = load i64, ptr %e{number}.at, align 8")
        return f"%e{number}"

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
        self.lines.append(f"  call void @{step.symbol}(ptr %args, ptr {params}, ptr %b{RUNTIME})")

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
