"""Schedule tree to loop IR: walk isl's AST and rebuild the statements' expressions in it."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyc.emit.loop_ir.linear import difference, linear, operands, rebuild
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, ForKind, Function, If, Origin, Stmt, Store
from polyc.emit.loop_ir.rewrite import Names, map_exprs, substitute_stmt
from polyc.emit.loop_ir.verify import Known
from polyc.emit.lowering import checks as bounds
from polyc.emit.lowering.accesses import AccessPlan, run_build
from polyc.emit.lowering.dynamic import UnknownEnd, real_bounds
from polyc.emit.lowering.exits import early_ends, with_exits
from polyc.emit.lowering.isl_expr import arguments, to_expr
from polyc.emit.lowering.lifetimes import guard_copies
from polyc.emit.lowering.promotion import Copy
from polyc.emit.lowering.schedule_to_isl import EXACT, LOOP, PROMOTE, IslSchedule, to_isl
from polyc.emit.lowering.straight_lines import write_out
from polyc.emit.names import symbol
from polyc.emit.passes.nonpositive import sharpen
from polyc.emit.passes.simplify import simplify, simplify_expr
from polyc.emit.pipeline import run_passes
from polyc.emit.proof.proven import proven
from polyc.emit.proof.read_back import WrongLoops
from polyc.poly.budgets import OverBudget, over_budget, scaled
from polyc.poly.certificates import expressions, is_position, limited
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Expr, Load, Var, const_int, rewrite, walk
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass, replace
from polyc.poly.reduction import contracts
from polyc.poly.scop import Array, Scop
from polyc.poly.spans import span
from polyc.poly.target import Target
from polyc.poly.tree import Member, Node, is_bound

AST_QUOTA = 4_000_000  # isl operations before loops are no longer cut into pieces, and for those that are not


class NoLoops(BuildError):
    """isl failed, for no reason of ours, to generate an AST."""

    code = "P304"


def lower(
    scop: Scop, tree: Node, name: str, target: Target, vectorise: bool = True, checks: bool = False,
    known: Known | None = None,
) -> Function:  # fmt: skip
    """The kernel that runs `scop` in the order of `tree`, optimised for `target`.

    The function is called `name`, if that is free (`emit.names`). `vectorise=False` leaves vector loops serial. Every
    Scop array that is not local is a buffer argument; sizes are the Scop's parameters. With `checks`, accesses that may
    leave their arrays are checked, and the kernel has one more argument if there are any (`Function.checks`). `known`
    is what the verifier remembers.

    Raises:
        BuildError: the loops do not execute exactly the Scop's domain, or the tree asks for
            something that has no code (a buffer of unbounded size, two loops of one name).
    """
    with span("loops"):
        fn = proven_loops(scop, tree, symbol(name), checks=checks)
    try:
        with quota(scaled(AST_QUOTA)):
            fn = sharpen(scop, fn)
    except QuotaExceeded as error:
        fn = replace(fn, notes=(*fn.notes, f"exponentials were not looked at: {error}"))
    with span("loop passes"):
        return run_passes(fn, target, vectorise, known)


def proven_loops(scop: Scop, tree: Node, name: str, gpu: bool = False, checks: bool = False) -> Function:
    """Loops that execute exactly the Scop's domain, with the real bounds of data-dependent loops and, if wanted,
    `checks` of the accesses.

    Raises:
        BuildError: as `lower`.
    """
    plan = bounds.plan(scop, gpu) if checks else None
    has_positions = any(is_position(x) for s in scop.statements.values() for e in expressions(s) for x in walk(e))

    def loops(loose: bool) -> Function:
        fn = proven(scop, build_loops(scop, tree, name, gpu, loose, plan))
        if plan is None:
            return write_out(with_exits(bounds.expanded(real_bounds(fn, scop, tree)), scop))
        fn = early_ends(fn, scop)
        fn = bounds.expanded(real_bounds(fn, plan.scop(scop), tree, plan.entry(scop, fn)))
        fn = with_exits(fn, plan.scop(scop))
        if (only := plan.of_first()) is not None and plan.first is not None:
            fn = plan.after([checks_alone(s, only) for s, _ in plan.first.scops], fn)
        return write_out(plan.finished(fn))

    def checks_alone(first: Scop, only: bounds.Plan) -> Function:
        fn = proven(first, build_loops(first, first.tree, name, gpu, checks=only))
        return bounds.expanded(real_bounds(fn, only.scop(first), first.tree))

    def limited_loops(loose: bool) -> Function:
        fn = loops(loose)
        return replace(fn, body=map_exprs(fn.body, lambda e: rewrite(e, limited))) if has_positions else fn

    try:
        return limited_loops(loose=False)
    except (WrongLoops, NoLoops, UnknownEnd) as first:
        try:
            fn = limited_loops(loose=True)
        except (BuildError, isl.Error):
            raise first from None
        note = f"loops with a condition around every statement, because isl's could not be used: {first}"
        return replace(fn, notes=(*fn.notes, note))


def build_loops(
    scop: Scop, tree: Node, name: str, gpu: bool = False, loose: bool = False, checks: bounds.Plan | None = None
) -> Function:
    """The loop nest straight from isl's AST: loops keep their kinds, nothing is expanded, and
    data-dependent loops still have their static bounds. Loops bound to a GPU's axes stay so only
    for a `gpu`. `loose`: see `to_isl`. Stores carry the `checks` of their accesses."""
    notes = []
    try:
        schedule, ast, plans = _generate(scop, tree, name, loose=loose)
    except (OverBudget, NoLoops) as error:
        if loose:
            raise
        schedule, ast, plans = _generate(scop, tree, name, atomic=True)
        if isinstance(error, OverBudget):
            notes.append(f"no loop is cut into pieces: that needs more than {scaled(AST_QUOTA):,} isl operations")
    walker = _Walker(scop, schedule, plans, gpu, checks)
    body = walker.node(ast, _Scope({p: Var(p) for p in scop.params}, None))
    for array in reversed([a for a in scop.arrays.values() if a.kind == "local"]):
        if walker.uses(array.name):
            body = Alloc(Buffer(array.name, array.dtype, array.shape, "heap"), body)
    buffers = tuple(_argument(a) for a in scop.arrays.values() if a.kind != "local")
    fn = Function(name, buffers, scop.params, body, fma=contracts(scop), fast_math=scop.fast_math,
                  notes=(*walker.notes, *notes))  # fmt: skip
    return guard_copies(scop, simplify(fn))


def _generate(
    scop: Scop, tree: Node, name: str, atomic: bool = False, loose: bool = False
) -> tuple[IslSchedule, isl.AstNode, dict[str, AccessPlan]]:
    """isl's AST within the budget; `atomic` and `loose` as in `to_isl`. Raises `OverBudget`, `NoLoops`."""
    allowed = scaled(AST_QUOTA)
    try:
        with quota(allowed):
            schedule = to_isl(scop, tree, atomic, loose)
            return schedule, *run_build(scop, schedule)
    except QuotaExceeded as error:
        if error.spent:
            advice = "use fewer or larger blocks and parts, or fix sizes with N=..."
            raise over_budget(f"{name}: generating loops from the schedule", allowed, advice) from None
        raise NoLoops(f"{name}: isl makes no loops of this schedule ({error})") from None


def _argument(array: Array) -> Buffer:
    return Buffer(array.name, array.dtype, array.shape, "param", writable=array.kind != "in")


@dataclass(frozen=True)
class _Scope:
    """`names`: AST iterators and parameters; `loop`: the name that the next `for` takes;
    `path`: names of all loops around."""

    names: Mapping[str, Expr]
    loop: str | None
    path: tuple[str, ...] = ()

    def inside(self, loop: str) -> _Scope:
        """Where the `for` of `loop` comes next."""
        return _Scope(self.names, loop, (*self.path, loop))

    def with_value(self, iterator: str, value: Expr) -> _Scope:
        """In the body of the loop over `iterator`."""
        return _Scope({**self.names, iterator: value}, None, self.path)


class _Walker:
    def __init__(
        self, scop: Scop, schedule: IslSchedule, plans: Mapping[str, AccessPlan], gpu: bool, checks: bounds.Plan | None
    ) -> None:
        self.scop = scop
        self.checks = checks
        self.schedule = schedule
        self.plans = plans
        self.gpu = gpu
        self.names = Names({*scop.params, *scop.arrays, *(p.buffer.name for p in schedule.promotions)})
        if checks is not None:
            self.names.fresh(checks.record)
        self.used: set[str] = set()
        self.notes: dict[str, None] = {}

    def uses(self, array: str) -> bool:
        """Whether the array itself (not a buffer that replaces it) is accessed."""
        return array in self.used

    def node(self, node: isl.AstNode, scope: _Scope) -> Stmt:
        kind = node.get_type()
        if kind == isl.ast_node_type.block:
            children = node.block_get_children()
            return Block(tuple(self.node(children.get_at(i), scope) for i in range(children.n_ast_node())))
        if kind == isl.ast_node_type.mark:
            return self.mark(node, scope)
        if kind == isl.ast_node_type.for_:
            return self.loop(node, scope)
        if kind == isl.ast_node_type.if_:
            then = self.node(node.if_get_then_node(), scope)
            orelse = self.node(node.if_get_else_node(), scope) if node.if_has_else_node() else None
            return If(to_expr(node.if_get_cond(), scope.names), then, orelse)
        if kind == isl.ast_node_type.user:
            return self.user(node, scope)
        raise BuildError(f"isl's AST has a node of unknown type {kind}")

    def mark(self, node: isl.AstNode, scope: _Scope) -> Stmt:
        name = node.mark_get_id().get_name()
        if name.startswith(LOOP):
            return self.node(node.mark_get_node(), scope.inside(name[len(LOOP) :]))
        if name.startswith(EXACT):
            return self.node(node.mark_get_node(), scope)
        promotion = self.schedule.promotions[int(name[len(PROMOTE) :])]
        return Alloc(promotion.buffer, self.node(node.mark_get_node(), scope))

    def loop(self, node: isl.AstNode, scope: _Scope) -> Stmt:
        if scope.loop is None:
            raise BuildError("isl's AST has a loop without a name")
        member = self.schedule.members[scope.loop]
        iterator = node.for_get_iterator().get_id().get_name()
        lo = simplify_expr(to_expr(node.for_get_init(), scope.names))
        if node.for_is_degenerate():
            return self.node(node.for_get_body(), scope.with_value(iterator, lo))
        step = node.for_get_inc().get_val().to_python()
        hi = simplify_expr(self.upper(node.for_get_cond(), iterator, scope))
        var = self.names.fresh(identifier(member.name))
        kind = self.kind(member, scope)
        body = self.node(node.for_get_body(), scope.with_value(iterator, Var(var)))
        return from_zero(For(var, lo, hi, step, body, kind, member.factor, member.name))

    def kind(self, member: Member, scope: _Scope) -> ForKind:
        """How the loop runs: on a CPU, of the loops bound to a GPU's grid the outermost block loop is parallel."""
        bound = member.kind
        if self.gpu or not is_bound(bound):
            return bound
        around = [self.schedule.members[loop].kind for loop in scope.path[:-1]]
        shared = any(k == "parallel" or k.startswith("block.") for k in around)
        kind: ForKind = "parallel" if bound.startswith("block.") and not shared else "serial"
        self.notes[f"loop '{member.name}' (bound to {bound}) runs as a {kind} loop on a CPU"] = None
        return kind

    def upper(self, cond: isl.AstExpr, iterator: str, scope: _Scope) -> Expr:
        """The exclusive bound in `iterator < hi` or `iterator <= hi`."""
        op = cond.get_op_type()
        left = cond.get_op_arg(0)
        ops = isl.ast_expr_op_type
        variable = left.get_type() == isl.ast_expr_type.id and left.get_id().get_name() == iterator
        if op not in (ops.lt, ops.le) or not variable:
            raise BuildError(f"a loop condition of isl is no upper bound: {cond.to_C_str()}")
        hi = to_expr(cond.get_op_arg(1), scope.names)
        return plus(hi, 1) if op == ops.le else hi

    def user(self, node: isl.AstNode, scope: _Scope) -> Stmt:
        plan = self.plans[node.get_annotation().get_name()]
        done = self.instance(node, plan, scope)
        return done if plan.runs is None else If(to_expr(plan.runs, scope.names), done)

    def instance(self, node: isl.AstNode, plan: AccessPlan, scope: _Scope) -> Stmt:
        """One instance of a statement or of a copy."""
        name, values = arguments(node.user_get_expr(), scope.names)
        if plan.copy is not None:
            return self.copy(plan.copy, plan, scope)
        stmt = self.scop.statements[name]
        iters = {i: simplify_expr(v) for i, v in zip(stmt.iters, values, strict=True)}

        def place(e: Expr) -> Expr:
            return self.placed(e, iters, plan, scope)

        target = place(stmt.target)
        assert isinstance(target, Load)
        store = Store(
            target.array,
            target.index,
            place(stmt.value),
            instance=(name, tuple(iters[i] for i in stmt.iters)),
            reduction=stmt.reduction,
            span=stmt.span,
            origin=Origin(scope.path, name),
        )
        if self.checks is not None:
            safe = self.checks.placed(stmt, store, place, self.names.fresh)
            store = replace(store, checked=safe)
        return store if stmt.predicate is None else If(place(stmt.predicate), replace(store, predicated=True))

    def placed(self, expr: Expr, iters: Mapping[str, Expr], plan: AccessPlan, scope: _Scope) -> Expr:
        """`expr` of a statement with iterators replaced and promoted accesses redirected."""

        def fix(e: Expr) -> Expr:
            if isinstance(e, Load):
                redirected = plan.redirect.get((e.array, e.index))
                if redirected is not None:
                    buffer, index = redirected
                    return Load(buffer, tuple(to_expr(x, scope.names) for x in index), e.dtype, e.span)
                self.used.add(e.array)
            if isinstance(e, Load) or e.children():
                kids = tuple(fix(c) for c in e.children())
                return e.with_children(kids)
            return iters.get(e.name, e) if isinstance(e, Var) else e

        return simplify_expr(fix(expr))

    def copy(self, copy: Copy, plan: AccessPlan, scope: _Scope) -> Stmt:
        outer = tuple(to_expr(e, scope.names) for e in plan.outside[1])
        inner = tuple(to_expr(e, scope.names) for e in plan.inside[1])
        if plan.outside[0] in self.scop.arrays:
            self.used.add(plan.outside[0])
        pair = [(plan.inside[0], inner), (plan.outside[0], outer)]
        (to, to_index), (source, source_index) = pair if copy.fill else reversed(pair)
        value = Load(source, tuple(simplify_expr(e) for e in source_index), copy.dtype)
        origin = Origin(scope.path, buffer=plan.inside[0])
        store = Store(to, tuple(simplify_expr(e) for e in to_index), value, origin=origin)
        if plan.outside[0] not in self.scop.arrays:
            return store
        return replace(store, checked=bounds.copied(self.scop, store, Load(plan.outside[0], outer, copy.dtype)))


def identifier(loop: str) -> str:
    """A loop name as a C identifier."""
    return "".join(c if c.isalnum() else "_" for c in loop)


def plus(expr: Expr, amount: int) -> Expr:
    """`expr + amount`, pushed into `min` and `max`."""
    if isinstance(expr, Binary) and expr.op in ("min", "max"):
        return Binary(expr.op, plus(expr.a, amount), plus(expr.b, amount), expr.dtype)
    return rebuild(linear(expr).shift(amount))


def minus(expr: Expr, other: Expr) -> Expr:
    """`expr - other`, pushed into `min` and `max`."""
    if isinstance(expr, Binary) and expr.op in ("min", "max"):
        return Binary(expr.op, minus(expr.a, other), minus(expr.b, other), expr.dtype)
    return rebuild(linear(expr) - linear(other))


def from_zero(loop: For) -> For:
    """A loop with a constant upper bound on its trip count, shifted to start at 0."""
    if linear(loop.lo).is_const or operands(loop.lo, "max") != (loop.lo,):
        return loop
    if all(difference(hi, loop.lo) is None for hi in operands(loop.hi, "min")):
        return loop
    shifted = rebuild(linear(loop.lo) + linear(Var(loop.var)))
    body = substitute_stmt(loop.body, {loop.var: shifted})
    hi = simplify_expr(minus(loop.hi, loop.lo))
    return For(loop.var, const_int(0), hi, loop.step, body, loop.kind, loop.factor, loop.loop)
