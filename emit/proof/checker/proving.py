"""What isl decides for all sizes: executed domain, order, bounds."""

from __future__ import annotations

import ast
import itertools

import islpy as isl

from .affine import OUT, Affine
from .reading import Line, Loops
from .text import Rejected, parsed

IN = isl.dim_type.in_


class Proof:
    """The parts of the proof; each raises `Rejected`."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops

    def check_domain(self) -> None:
        """Every instance runs once, and nothing else."""
        for name, stmt in self.loops.statements.items():
            wanted = isl.Set(stmt["domain"]).intersect_params(self.loops.context)
            done = isl.Set.empty(wanted.get_space())
            for line in self.loops.lines:
                if line.stmt != name:
                    continue
                if line.conditions and stmt["condition"] is None:
                    raise Rejected(f"{name} runs under a condition of its own")
                m = self.loops.instance_map(line)
                if not m.is_injective() or not m.range().is_disjoint(done):
                    raise Rejected(f"some instance of {name} runs twice")
                done = done.union(m.range())
            if not done.is_equal(wanted):
                raise Rejected(f"the loops do not run the domain of {name}: {done.subtract(wanted)} too much, "
                               f"{wanted.subtract(done)} too little")  # fmt: skip

    def times(self, line: Line, length: int) -> isl.Map:
        """`{ S[iterators] -> [time] }`, numbers in the text and loop variables."""
        parts = [ast.Constant(p) if isinstance(p, int) else p.target for p in line.path]
        time = self.loops.affine(line.variables).function([*parts, *[ast.Constant(0)] * (length - len(parts))], "time")
        return self.loops.instance_map(line).reverse().apply_range(time)

    def conflicts(self, source: str, sink: str) -> tuple[isl.Map | None, isl.Map | None]:
        """Pairs that must keep their order, and pairs of updates by one operator that may swap."""
        before: isl.Map | None = None
        for a in self.loops.statements[source]["time"]:
            for b in self.loops.statements[sink]["time"]:
                pairs = isl.Map(a).lex_lt_map(isl.Map(b))
                before = pairs if before is None else before.union(pairs)
        strict: isl.Map | None = None
        loose: isl.Map | None = None
        for a in self.loops.statements[source]["accesses"]:
            for b in self.loops.statements[sink]["accesses"]:
                first, second = isl.Map(a["map"]), isl.Map(b["map"])
                if not (a["write"] or b["write"]) or first.get_tuple_name(OUT) != second.get_tuple_name(OUT):
                    continue
                pairs = first.apply_range(second.reverse()).intersect(before).intersect_params(self.loops.context)
                one = self.loops.statements[source]["operator"] == self.loops.statements[sink]["operator"]
                if a["accumulator"] and b["accumulator"] and one:
                    loose = pairs if loose is None else loose.union(pairs)
                else:
                    strict = pairs if strict is None else strict.union(pairs)
        return strict, loose

    def check_order(self) -> None:
        """Conflicting instances keep their order; loops marked parallel or vector carry none."""
        runs = [line for line in self.loops.lines if line.stmt is not None]
        length = max((len(x.path) for x in runs), default=0)
        for source, sink in itertools.product(self.loops.statements, repeat=2):
            strict, loose = self.conflicts(source, sink)
            for a in (x for x in runs if x.stmt == source):
                for b in (x for x in runs if x.stmt == sink):
                    for pairs, swap in ((strict, False), (loose, True)):
                        if pairs is not None and not self.kept(a, b, pairs, length, swap):
                            raise Rejected(f"{sink} may run before or with {source}, which it conflicts with")

    def kept(self, a: Line, b: Line, pairs: isl.Map, length: int, swap: bool) -> bool:
        """Whether all pairs run one surely before the other (or, for `swap`, never at once)."""
        times = pairs.apply_domain(self.times(a, length)).apply_range(self.times(b, length))
        loops = 0
        for d in range(length):
            step = a.path[d] if d < len(a.path) else 0
            if isinstance(step, ast.For) and d < len(b.path) and b.path[d] is step:
                kind, loops = self.loops.kind(step), loops + 1
                lanes = not swap or a.stmt != b.stmt or _copied(a, b) >= loops  # (else they are added up)
                at_once = kind == "parallel" or (kind == "vector" and lanes)
            else:
                at_once = False
            late, early = times.order_gt(IN, d, OUT, d), times.order_lt(IN, d, OUT, d)
            if (not swap and not late.is_empty()) or (at_once and not (early.is_empty() and late.is_empty())):
                return False
            times = times.equate(IN, d, OUT, d)
        return swap or bool(times.is_empty())

    def check_bounds(self) -> None:
        """Statements without a condition on data access elements that exist."""
        for name, stmt in self.loops.statements.items():
            for access in stmt["accesses"]:
                touched = isl.Map(access["map"])
                array = touched.get_tuple_name(OUT)
                shape = self.loops.data["arrays"][array]["shape"]
                names = [f"e{k}" for k in range(len(shape))]
                space = Affine(self.loops.sizes, names)
                box = isl.Set.universe(space.space)
                for name_, size in zip(names, shape):
                    box = box.intersect(space.compared(ast.Name(name_), ast.GtE, ast.Constant(0)))
                    box = box.intersect(space.compared(ast.Name(name_), ast.Lt, parsed(size)))
                box = box.set_tuple_name(array)
                if not touched.range().is_subset(box) and stmt["condition"] is None:
                    raise Rejected(f"{name} leaves the array '{array}'")


def _copied(*lines: Line) -> int:
    """How many loops are around the innermost buffer that a store goes to."""
    return max(x.allocated.get(ast.unparse(x.node.targets[0].value), 0) for x in lines)  # type: ignore[attr-defined]
