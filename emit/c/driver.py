"""A C program that runs a stand-alone operator: made-up arguments, a checksum of each result, the least time."""

from __future__ import annotations

from collections.abc import Iterator

from polyc.emit.c.operator_file import Described
from polyc.emit.c.plain import PLAIN
from polyc.emit.c.standard import StandardHelpers, VectorPrinter
from polyc.emit.interface import Parameter
from polyc.poly.expr import Expr, Load, Select, Var, const_int, substitute, walk
from polyc.poly.scop import Scop

DEFAULT_SIZE = 64
RUNS = 10


def program(scop: Scop, what: Described) -> str:
    """The text of NAME_main.c; sizes that the function takes are the program's arguments (64 when not given)."""
    i = what.interface
    arrays = [p for p in i.parameters if p.role != "scalar"]
    limits = index_limits(scop)
    usage = " ".join(f"[{c}]" for _, c in i.sizes)
    lines = [
        f"/* Runs {i.name} on made-up arguments, {RUNS} times; prints a checksum of each result and the least time.",
        f"   cc -O3 -march=native {i.name}_main.c {i.name}.c -lm && ./a.out {usage}".rstrip() + " */",
        f'#include "{i.name}.h"', "#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>",
        "#include <time.h>", "", *_conversions(what),
        "int main(int argc, char **argv)", "{", "  double best = -1;", "  int run, status = 0;", "  int64_t k;",
    ]  # fmt: skip
    for n, (_, c) in enumerate(i.sizes):
        lines.append(f"  int64_t {c} = argc > {n + 1} ? atoll(argv[{n + 1}]) : {DEFAULT_SIZE};")
    sizes = {p: Var(c) for p, c in i.sizes}
    for p in arrays:
        t = PLAIN[p.dtype.name]
        lines.append(f"  int64_t {p.name}_count = {_count(p, sizes)};")
        lines.append(
            f"  {t} *{p.name} = ({t} *)malloc((size_t)({p.name}_count > 0 ? {p.name}_count : 1) * sizeof({t}));"
        )
    checks = " || ".join(f"!{p.name}" for p in arrays)
    if not i.sizes:
        lines.append("  (void)argc, (void)argv;")
    if checks:
        lines.append(f'  if ({checks}) {{ fprintf(stderr, "no memory\\n"); return 1; }}')
    lines.append(f"  for (run = 0; run < {RUNS} && !status; run++) {{")
    lines.append("    clock_t start;")
    lines.append("    double seconds;")
    for p in arrays:
        value = _value(p, "k", limits.get(p.array.name), sizes)
        lines.append(f"    for (k = 0; k < {p.name}_count; k++) {p.name}[k] = {value};")
    numbers = {p.name: _value(p, "3", None, sizes) for p in i.parameters if p.role == "scalar"}
    call = ", ".join([*(numbers.get(p.name, p.name) for p in i.parameters), *(c for _, c in i.sizes)])
    lines += [
        "    start = clock();", f"    status = {i.name}({call});",
        "    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;",
        "    if (best < 0 || seconds < best) best = seconds;", "  }",
        f'  if (status) {{ fprintf(stderr, "{i.name} returned %d\\n", status); return 1; }}',
    ]  # fmt: skip
    for p in arrays:
        if p.role != "in":
            lines += [
                "  {", "    double sum = 0;",
                f"    for (k = 0; k < {p.name}_count; k++) sum += {_as_double(p, 'k')} * (double)(k % 7 + 1);",
                f'    printf("{p.name} checksum %.17g\\n", sum);', "  }",
            ]  # fmt: skip
    lines += ['  printf("time %.9f s\\n", best);', *(f"  free({p.name});" for p in arrays), "  return 0;", "}", ""]
    return "\n".join(lines)


def index_limits(scop: Scop) -> dict[str, Expr]:
    """Arrays whose values are subscripts, with the extent of the axis, or bounds of loops, which shall be 0."""
    out: dict[str, Expr] = {}
    for s in scop.statements.values():
        exprs = [s.value, *s.index, *([s.predicate] if s.predicate is not None else [])]
        accesses = [s.target, *(x for e in exprs for x in walk(e) if isinstance(x, Load))]
        for a in accesses:
            for axis, subscript in enumerate(a.index):
                for x in walk(subscript):
                    if isinstance(x, Load):
                        out.setdefault(x.array, scop.arrays[a.array].shape[axis])
        for bound in s.dynamic:
            for e in (bound.lo, bound.hi):
                out |= {x.array: const_int(1) for x in _chosen(e)}
    return out


def _chosen(e: Expr) -> Iterator[Load]:
    """The loads that make a value, without those that choose one."""
    if isinstance(e, Load):
        yield e
    for part in (e.a, e.b) if isinstance(e, Select) else e.children():
        yield from _chosen(part)


def _count(p: Parameter, sizes: dict[str, Var]) -> str:
    printer = VectorPrinter({}, StandardHelpers())
    return " * ".join(f"({printer.index(substitute(e, sizes))})" for e in p.array.shape) or "1"


def _value(p: Parameter, k: str, limit: Expr | None, sizes: dict[str, Var]) -> str:
    """Element `k` of an argument: fractions, small integers, or subscripts that stay inside."""
    t = PLAIN[p.dtype.name]
    if limit is not None:
        return f"({t})({k} % ({VectorPrinter({}, StandardHelpers()).index(substitute(limit, sizes))}))"
    if p.dtype.kind == "bool":
        return f"({t})({k} % 2)"
    if p.dtype.is_int:
        return f"({t})({k} % 5)"
    fraction = f"(float)(({k} * 37 + 11) % 101) / 101.0f"
    if p.dtype.name == "f64":
        return f"(double)(({k} * 37 + 11) % 101) / 101.0"
    return (
        fraction
        if p.dtype.name == "f32"
        else f"(uint16_t)({k} * 37 % 101 + {0x3400 if p.dtype.name == 'f16' else 0x3E80})"
    )


def _as_double(p: Parameter, k: str) -> str:
    if p.dtype.name in ("f16", "bf16"):
        return f"{p.dtype.name}_as_double({p.name}[{k}])"
    return f"(double){p.name}[{k}]"


def _conversions(what: Described) -> list[str]:
    """Halves are their bits; a checksum needs their values."""
    written = {p.dtype.name for p in what.interface.parameters if p.role in ("out", "inout")}
    out = []
    if "f16" in written:
        out += [
            "static double f16_as_double(uint16_t a)", "{", "  int e = (a >> 10) & 31;",
            "  double m = (double)(a & 1023), s = a & 0x8000 ? -1 : 1;",
            "  for (m = e ? m + 1024 : m, e = e ? e : 1; e < 25; e++) m /= 2;",
            "  for (; e > 25; e--) m *= 2;", "  return s * m;", "}", "",
        ]  # fmt: skip
    if "bf16" in written:
        out += [
            "static double bf16_as_double(uint16_t a)", "{", "  uint32_t u = (uint32_t)a << 16;", "  float r;",
            "  memcpy(&r, &u, sizeof r);", "  return r;", "}", "",
        ]  # fmt: skip
    return out
