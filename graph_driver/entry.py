"""The native program of a plan: LLVM IR functions that call the kernels one after another.

Host steps cut the plan into segments; segment `k` is `void polyc_segment_k(void **bases)`
with `bases = [runtime, arena, weights, inputs..., outputs...]`. Every pointer that a kernel
gets is one of the bases plus a constant.
"""

from __future__ import annotations

from graph_driver.plan import Place, Plan, Step

RUNTIME, ARENA, WEIGHTS, FIRST_INPUT = 0, 1, 2, 3


def segments(plan: Plan) -> list[list[int]]:
    """Step numbers of each maximal run of native steps, in order."""
    found: list[list[int]] = []
    for k, step in enumerate(plan.steps):
        if step.kind in ("host", "control"):
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
    assert place.kind == "output", place
    return FIRST_INPUT + len(plan.inputs) + place.index


def entry_text(plan: Plan, triple: str) -> str:
    """LLVM IR of all segments."""
    symbols = dict.fromkeys(s.symbol for s in plan.steps if s.kind == "kernel")
    lines = [f'target triple = "{triple}"', *(f"declare void @{s}(ptr, ptr, ptr)" for s in symbols)]
    lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    for number, steps in enumerate(segments(plan)):
        lines += _segment(plan, segment_name(number), [plan.steps[k] for k in steps])
    return "\n".join(lines) + "\n"


def _segment(plan: Plan, name: str, steps: list[Step]) -> list[str]:
    width = max(len(s.args) for s in steps)
    lines = [f"define void @{name}(ptr %bases) {{", "entry:", f"  %args = alloca [{width} x ptr], align 8"]
    bases = {base_index(plan, plan.slots[a].place) for s in steps for a in s.args} | {RUNTIME}
    for b in sorted(bases):
        lines.append(f"  %b{b}.at = getelementptr ptr, ptr %bases, i64 {b}")
        lines.append(f"  %b{b} = load ptr, ptr %b{b}.at, align 8")
    for k in range(width):
        lines.append(f"  %slot{k} = getelementptr ptr, ptr %args, i64 {k}")
    for n, step in enumerate(steps):
        pointers = []
        for k, arg in enumerate(step.args):
            place = plan.slots[arg].place
            lines.append(f"  %p{n}.{k} = getelementptr i8, ptr %b{base_index(plan, place)}, i64 {place.offset}")
            pointers.append(f"%p{n}.{k}")
        if step.kind == "copy":
            size = plan.slots[step.args[0]].nbytes
            operands = f"ptr {pointers[1]}, ptr {pointers[0]}, i64 {size}, i1 false"
            lines.append(f"  call void @llvm.memcpy.p0.p0.i64({operands})")
            continue
        lines += [f"  store ptr {p}, ptr %slot{k}, align 8" for k, p in enumerate(pointers)]
        lines.append(f"  call void @{step.symbol}(ptr %args, ptr null, ptr %b{RUNTIME})")
    return [*lines, "  ret void", "}"]
