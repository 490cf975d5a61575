"""isl's AST of a schedule, with the buffer subscripts of promoted accesses worked out by isl.

The at-each-domain callback is where isl knows most about the iterators, so subscripts
`access - box offset` are simplified there. Exceptions must not pass through isl: they are
caught in the callbacks and raised again after the build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import islpy as isl

from polyc.emit.lowering.promotion import Copy, Promotion, accesses, copied_element, element_of, prefix_of
from polyc.emit.lowering.schedule_to_isl import EXACT, PROMOTE, IslSchedule
from polyc.poly.expr import Expr
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement

Subscripts = tuple[str, tuple[isl.AstExpr, ...]]


@dataclass
class AccessPlan:
    """What one AST user node accesses: for a statement `redirect` maps (array, subscripts) of
    promoted accesses to buffers; for a copy, `outside` and `inside` are its two accesses. `runs`
    says when there is such an instance at all, where isl was shown more than there are."""

    redirect: dict[tuple[str, tuple[Expr, ...]], Subscripts] = field(default_factory=dict)
    copy: Copy | None = None
    outside: Subscripts = ("", ())
    inside: Subscripts = ("", ())
    runs: isl.AstExpr | None = None


def run_build(scop: Scop, schedule: IslSchedule) -> tuple[isl.AstNode, dict[str, AccessPlan]]:
    """Generate the AST; user nodes are annotated with the keys of the returned plans."""
    planner = _Planner(scop, schedule)
    build = isl.AstBuild.from_context(scop.context).set_iterators(_iterators(len(schedule.members)))
    alive: list[Any] = []  # islpy frees callbacks that nobody holds
    for setter, callback in (
        ("set_at_each_domain", planner.at_domain),
        ("set_before_each_mark", planner.before_mark),
        ("set_after_each_mark", planner.after_mark),
    ):
        pair = getattr(build, setter)(callback)
        alive.append(pair)
        build = pair[0]
    # Statements scheduled together stay under one mark: a buffer must have one lifetime.
    isl.DEFAULT_CONTEXT.set_ast_build_group_coscheduled(1)
    try:
        ast = build.node_from_schedule(schedule.schedule)
    except isl.Error:
        if planner.error is None:
            raise
    finally:
        alive.clear()
        if planner.error is not None:
            isl.DEFAULT_CONTEXT.resume()
    if planner.error is not None:
        raise planner.error  # isl only says that it gave up
    return ast, planner.plans


def _iterators(count: int) -> isl.IdList:
    """Names for the loop variables that no parameter can have (isl's own are c0, c1, ...)."""
    names = isl.IdList.alloc(isl.DEFAULT_CONTEXT, count)
    for i in range(count):
        names = names.add(isl.Id(f"@{i}", context=isl.DEFAULT_CONTEXT))
    return names


class _Planner:
    def __init__(self, scop: Scop, schedule: IslSchedule) -> None:
        self.scop = scop
        self.promotions = schedule.promotions
        self.exact = schedule.exact
        self.instances: list[Mapping[str, isl.Set]] = []
        self.copies = {c.name: c for p in schedule.promotions for c in (p.copy_in, p.copy_out) if c is not None}
        self.active: list[Promotion] = []
        self.plans: dict[str, AccessPlan] = {}
        self.known: dict[tuple[str, int], dict[tuple[Expr, ...], list[isl.PwAff]]] = {}
        self.error: BaseException | None = None

    def failed(self, error: BaseException) -> None:
        """Remember what went wrong in a callback, and end the build: the rest of the AST is of no use."""
        if self.error is None:
            self.error = error
            isl.DEFAULT_CONTEXT.abort()

    def before_mark(self, mark: isl.Id, build: isl.AstBuild) -> None:
        try:
            name = mark.get_name()
            if name.startswith(PROMOTE):
                self.active.append(self.promotions[int(name[len(PROMOTE) :])])
            if name.startswith(EXACT):
                self.instances.append(self.exact[int(name[len(EXACT) :])])
        except BaseException as error:
            self.failed(error)

    def after_mark(self, node: isl.AstNode, build: isl.AstBuild) -> isl.AstNode:
        try:
            name = node.mark_get_id().get_name()
            if name.startswith(PROMOTE):
                self.active.pop()
            if name.startswith(EXACT):
                self.instances.pop()
        except BaseException as error:
            self.failed(error)
        return node

    def at_domain(self, node: isl.AstNode, build: isl.AstBuild) -> isl.AstNode:
        try:
            key = f"u{len(self.plans)}"
            plan = self.plans[key] = AccessPlan()
            self.plan(node, build, plan)
            return node.set_annotation(isl.Id(key, context=isl.DEFAULT_CONTEXT))
        except BaseException as error:
            self.failed(error)
            return node

    def plan(self, node: isl.AstNode, build: isl.AstBuild, plan: AccessPlan) -> None:
        name = node.user_get_expr().get_op_arg(0).get_id().get_name()
        if not self.active and not self.instances:
            return
        to_instance = isl.PwMultiAff.from_map(isl.Map.from_union_map(build.get_schedule()).reverse())
        if self.instances:
            real = self.instances[-1].get(name)
            when = to_instance.domain().intersect(real.preimage_pw_multi_aff(to_instance)) if real is not None else None
            if when is None:
                when = isl.Set.empty(to_instance.domain().get_space())
            plan.runs = build.expr_from_set(when)
        if name in self.copies:
            self.plan_copy(self.copies[name], build, to_instance, plan)
            return
        stmt = self.scop.statements[name]
        innermost = {p.array: p for p in self.active}
        for array, p in innermost.items():
            for subscripts, index in self.redirected(stmt, p).items():
                plan.redirect[array, subscripts] = p.buffer.name, _subscripts(index, build, to_instance)

    def redirected(self, stmt: Statement, p: Promotion) -> Mapping[tuple[Expr, ...], list[isl.PwAff]]:
        """By the subscripts of a promoted access of a statement its subscripts in the buffer, as functions of the
        instance: the same for all copies of the statement that unrolled loops have."""
        here = stmt.name, p.number
        if here not in self.known:
            found = self.known[here] = {}
            loads = {load.index: load for load, _, _ in accesses(self.scop, stmt, p.array)}
            if loads:
                prefix = isl.PwMultiAff.from_map(_of_statement(p.prefix, stmt.domain))
                found |= {key: p.buffer_index(element_of(stmt, load), prefix) for key, load in loads.items()}
        return self.known[here]

    def plan_copy(self, copy: Copy, build: isl.AstBuild, to_instance: isl.PwMultiAff, plan: AccessPlan) -> None:
        p = self.promotions[copy.promotion]
        space = copy.extension.get_space().range()
        element = copied_element(space, p)
        inside = p.buffer_index(element, prefix_of(space, p.depth))
        plan.copy = copy
        plan.inside = p.buffer.name, _subscripts(inside, build, to_instance)
        outer = [q for q in self.active if q.array == p.array and q is not p]
        if outer:
            q = outer[-1]
            index = q.buffer_index(element, prefix_of(space, q.depth))
            plan.outside = q.buffer.name, _subscripts(index, build, to_instance)
        else:
            parts = [element.get_pw_aff(d) for d in range(len(p.offset))]
            plan.outside = p.array, _subscripts(parts, build, to_instance)


def _of_statement(prefix: isl.UnionMap, domain: isl.Set) -> isl.Map:
    return isl.Map.from_union_map(prefix.intersect_domain(isl.UnionSet.from_set(domain)))


def _subscripts(index: list[isl.PwAff], build: isl.AstBuild, to_instance: isl.PwMultiAff) -> tuple[isl.AstExpr, ...]:
    return tuple(_subscript(pa.pullback_pw_multi_aff(to_instance), build) for pa in index)


def _subscript(pa: isl.PwAff, build: isl.AstBuild) -> isl.AstExpr:
    """The expression of a subscript; 0 in code of which isl does not see that no instance reaches it.

    Unrolled copies of a loop can be such code. The proof of the loops sees that it does nothing.
    """
    if pa.domain().is_empty():
        return isl.AstExpr.from_val(isl.Val(0))
    return build.expr_from_pw_aff(pa)
