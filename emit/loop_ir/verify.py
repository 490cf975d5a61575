"""The loop-IR verifier: every rule of `polyc.emit.loop_ir.loops`, plus types of all expressions.

Inside a launch each variable is uniform (the same for all threads of a block) or not: what is
computed from thread variables or loaded is not. A barrier may stand only under uniform loops
and conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TypeVar

from polyc.emit.loop_ir.linear import variables
from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Block,
    Broadcast,
    Buffer,
    EndCopies,
    For,
    Function,
    HReduce,
    If,
    Launch,
    Let,
    MatrixStatement,
    PanelProduct,
    Prefetch,
    Ramp,
    Stmt,
    Store,
    VLoad,
    WarpReduce,
    walk,
)
from polyc.emit.loop_ir.verify_warps import Broken, check_warps
from polyc.poly.dtypes import DType, bool_, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import (
    COMPARISONS,
    LOGICAL,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    const_int,
)
from polyc.poly.expr import walk as walk_expr
from polyc.poly.intrinsics import TABLE
from polyc.poly.records import dataclass, replace
from polyc.poly.scop import ENDLESS
from polyc.poly.tree import is_bound
from polyc.poly.words import counted

Type = tuple[DType, int]  # element type and lanes
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Facts:
    """What an expression is, whatever is around it: its type, its variables and the arrays that it reads."""

    type: Type
    vars: frozenset[tuple[str, Type]] = frozenset()
    arrays: frozenset[tuple[str, int, DType]] = frozenset()


class Known:
    """Expressions and stores that are checked already but for what is in scope. Passes leave most of them as they
    are."""

    def __init__(self) -> None:
        self.facts: dict[int, tuple[Expr, _Facts]] = {}  # by identity; the expression is kept, so its id stays its own
        self.stores: dict[int, tuple[Store, _Facts]] = {}  # what all its expressions need together


def verify(fn: Function, after: str = "lowering", known: Known | None = None) -> None:
    """Check `fn`; `known` remembers expressions from one pass to the next.

    Raises:
        BuildError: the first rule that is broken; `after` names the pass to blame.
    """
    try:
        _Checker(known or Known()).function(fn)
    except Broken as e:
        raise BuildError(f"loop IR of '{fn.name}' is wrong after {after}: {e}") from None


@dataclass(frozen=True)
class _Env:
    """`launch`: the launch around; `varying`: variables whose values differ between the threads of a
    block; `diverged`: the condition or loop around on which they may disagree."""

    vars: dict[str, Type]
    buffers: Mapping[str, Buffer]
    launch: Launch | None = None
    varying: frozenset[str] = frozenset()
    diverged: str = ""

    def bind(self, name: str, kind: Type, *values: Expr) -> _Env:
        """With one more variable, computed from `values`."""
        vars = {**self.vars, name: kind}
        if self.launch is None:
            return _Env(vars, self.buffers)
        varying = self.varying | {name} if any(self.differs(v) for v in values) else self.varying
        return replace(self, vars=vars, varying=varying)

    def differs(self, e: Expr) -> bool:
        """Whether the threads of a block may compute different values."""
        if self.launch is None:
            return False
        return bool(variables(e) & self.varying) or any(isinstance(x, (Load, VLoad)) for x in walk_expr(e))

    def under(self, what: str, *values: Expr) -> _Env:
        """Inside a condition or loop that `values` decide."""
        if self.launch is None:
            return self
        return replace(self, diverged=what) if any(self.differs(v) for v in values) else self


class _Checker:
    def __init__(self, known: Known) -> None:
        self.names: set[str] = set()
        self.known = known.facts
        self.stores = known.stores

    def function(self, fn: Function) -> None:
        for p in fn.params:
            self.fresh(p)
        for b in fn.buffers:
            self.fresh(b.name)
            if b.space != "param":
                raise Broken(f"argument buffer '{b.name}' has space '{b.space}'")
        env = _Env({p: (i64, 1) for p in fn.params}, {b.name: b for b in fn.buffers})
        for b in fn.buffers:
            self.shape(b, env)
        self.stmt(fn.body, env)

    def fresh(self, name: str) -> None:
        if not name.isidentifier():
            raise Broken(f"'{name}' is not an identifier")
        if name in self.names:
            raise Broken(f"the name '{name}' is bound twice")
        self.names.add(name)

    def shape(self, buffer: Buffer, env: _Env) -> None:
        for e in buffer.shape:
            self.scalar(e, i64, env, f"a size of buffer '{buffer.name}'")
        if buffer.space == "register" and not all(isinstance(e, Const) for e in buffer.shape):
            raise Broken(f"register buffer '{buffer.name}' has no constant shape")

    # ---- statements ------------------------------------------------------------------------

    def stmt(self, s: Stmt, env: _Env) -> None:
        if isinstance(s, Store):
            self.store(s, env)
        elif isinstance(s, Block):
            for child in s.stmts:
                self.stmt(child, env)
        elif isinstance(s, For):
            self.loop(s, env)
        elif isinstance(s, If):
            self.scalar(s.cond, bool_, env, "a condition")
            inside = env.under("a condition", s.cond)
            self.stmt(s.then, inside)
            if s.orelse is not None:
                self.stmt(s.orelse, inside)
        elif isinstance(s, Let):
            kind = self.expr(s.value, env)
            self.fresh(s.name)
            if env.launch is None:  # its name is its own: no other variable has it meanwhile
                env.vars[s.name] = kind
                self.stmt(s.body, env)
                del env.vars[s.name]
            else:
                self.stmt(s.body, env.bind(s.name, kind, s.value))
        elif isinstance(s, Alloc):
            self.fresh(s.buffer.name)
            if s.buffer.space == "param":
                raise Broken(f"allocated buffer '{s.buffer.name}' has space 'param'")
            self.shape(s.buffer, env)
            self.space(s.buffer, env)
            self.stmt(s.body, replace(env, buffers={**env.buffers, s.buffer.name: s.buffer}))
        elif isinstance(s, Launch):
            self.launch(s, env)
        elif isinstance(s, Prefetch):
            self.buffer(s.array, len(s.index), env)
            for e in s.index:
                self.scalar(e, i64, env, f"a subscript of a hint for '{s.array}'")
        elif isinstance(s, (Barrier, EndCopies)):
            what = "a barrier" if isinstance(s, Barrier) else "a group of copies"
            if env.launch is None:
                raise Broken(f"{what} outside a launch")
            if env.diverged:
                raise Broken(f"{what} in '{env.launch.name}' under {env.diverged} on which threads may disagree")
        elif isinstance(s, (PanelProduct, WarpReduce)):
            check_warps(s, env.launch, env.diverged, partial(self.buffer, env=env), partial(self.subscripts, env=env))
        elif isinstance(s, MatrixStatement):
            from polyc.emit.loop_ir.verify_matrices import check_matrices  # few functions have any

            check_matrices(s, partial(self.buffer, env=env), partial(self.subscripts, env=env))
        else:
            raise Broken(f"unknown statement {type(s).__name__}")

    def loop(self, s: For, env: _Env) -> None:
        if s.step <= 0:
            raise Broken(f"loop '{s.var}' has step {s.step}")
        if s.kind not in ("serial", "parallel", "vector", "unroll") and not is_bound(s.kind):
            raise Broken(f"loop '{s.var}' has unknown kind '{s.kind}'")
        self.scalar(s.lo, i64, env, f"the lower bound of '{s.var}'")
        self.scalar(s.hi, i64, env, f"the upper bound of '{s.var}'")
        self.fresh(s.var)
        if s.until is not None:
            self.scalar(s.until, bool_, env, f"the end of '{s.var}'")
        elif s.hi == const_int(ENDLESS):
            raise Broken(f"loop '{s.var}' has no end")
        inside = env.under(f"loop '{s.var}'", s.lo, s.hi, *([] if s.until is None else [s.until]))
        self.stmt(s.body, inside.bind(s.var, (i64, 1), s.lo, s.hi))

    def launch(self, s: Launch, env: _Env) -> None:
        if env.launch is not None:
            raise Broken(f"launch '{s.name}' inside launch '{env.launch.name}'")
        self.fresh(s.name)
        for what, axes in (("grid", s.grid), ("block", s.threads)):
            if not 1 <= len(axes) <= 3:
                raise Broken(f"the {what} of launch '{s.name}' has {len(axes)} dimensions")
        for variable, blocks in s.grid:
            self.scalar(blocks, i64, env, f"the extent of '{variable}'")
        for condition in s.given:
            self.scalar(condition, bool_, env, f"a condition of launch '{s.name}'")
        bound = [variable for variable, _ in (*s.grid, *s.threads)]
        for variable in bound:
            self.fresh(variable)
        for variable, threads in s.threads:
            if threads < 1:
                raise Broken(f"launch '{s.name}' has {threads} threads '{variable}'")
        if any(isinstance(x, For) and (x.kind == "parallel" or is_bound(x.kind)) for x in walk(s.body)):
            raise Broken(f"launch '{s.name}' has a parallel or bound loop inside")
        vars = {**env.vars, **{variable: (i64, 1) for variable in bound}}
        varying = frozenset(variable for variable, count in s.threads if count > 1)
        body = s.body
        inside = _Env(vars, env.buffers, s, varying)
        while isinstance(body, Alloc) and body.buffer.space == "shared":
            self.fresh(body.buffer.name)
            self.shape(body.buffer, inside)
            if not all(isinstance(e, Const) for e in body.buffer.shape):
                raise Broken(f"shared buffer '{body.buffer.name}' has no constant shape")
            inside = replace(inside, buffers={**inside.buffers, body.buffer.name: body.buffer})
            body = body.body
        self.stmt(body, inside)

    def space(self, buffer: Buffer, env: _Env) -> None:
        """Whether this space may be allocated here."""
        if env.launch is not None and buffer.space not in ("register", "local"):
            raise Broken(f"'{buffer.name}' of space '{buffer.space}' is allocated inside launch '{env.launch.name}'")

    def store(self, s: Store, env: _Env) -> None:
        buffer = self.buffer(s.array, len(s.index), env)
        if not buffer.writable:
            raise Broken(f"store to read-only '{s.array}'")
        facts = self.stored(s)
        dtype, lanes = facts.type
        if dtype != buffer.dtype:
            raise Broken(f"store of {dtype} to '{s.array}' of {buffer.dtype}")
        self.scope(facts, env)
        if s.asynchronous:
            self.copy(s, buffer, lanes, env)

    def stored(self, s: Store) -> _Facts:
        """The type of what is stored, and what the store needs in scope besides its array."""
        entry = self.stores.get(id(s))
        if entry is None:
            index, value = [self.facts(e) for e in s.index], self.facts(s.value)
            lanes = value.type[1]
            wide = _wide(s.array, s.index, [p.type for p in index])
            if wide != lanes:
                raise Broken(f"store of {lanes} lanes to '{s.array}' at {wide}")
            parts = [*index, value]
            if s.mask is not None:
                parts.append(self.facts(s.mask))
                if lanes == 1 or parts[-1].type != (bool_, lanes):
                    raise _wrong_mask(s.mask, lanes)
            entry = self.stores[id(s)] = (
                s,
                _Facts(value.type, _union([p.vars for p in parts]), _union([p.arrays for p in parts])),
            )
        return entry[1]

    def copy(self, s: Store, buffer: Buffer, lanes: int, env: _Env) -> None:
        """An asynchronous copy moves 4, 8 or 16 bytes in a row from an array of the device to shared memory;
        2 only while a loop over lanes is around it."""
        source = env.buffers[s.value.array] if isinstance(s.value, (Load, VLoad)) else None
        if env.launch is None or buffer.space != "shared" or source is None or source.space not in ("param", "heap"):
            raise Broken(f"an asynchronous copy to '{s.array}' is not one from an array to shared memory")
        ramps = [e for e in (*s.index, *s.value.children()) if e.lanes > 1]
        ends = s.index[-1].lanes == lanes and all(isinstance(e, Ramp) and e.stride == 1 for e in ramps)
        if s.mask is not None or lanes * buffer.dtype.bytes not in (2, 4, 8, 16) or not (lanes == 1 or ends):
            raise Broken(f"an asynchronous copy to '{s.array}' does not move 4, 8 or 16 bytes in a row")

    # ---- expressions -----------------------------------------------------------------------

    def scalar(self, e: Expr, dtype: DType, env: _Env, what: str) -> None:
        if self.expr(e, env) != (dtype, 1):
            raise Broken(f"{what} is no scalar {dtype}: {e}")

    def buffer(self, name: str, rank: int, env: _Env) -> Buffer:
        if name not in env.buffers:
            raise Broken(f"no buffer '{name}' in scope")
        if len(env.buffers[name].shape) != rank:
            raise Broken(f"'{name}' has {counted(len(env.buffers[name].shape), 'dimension')}, accessed with {rank}")
        return env.buffers[name]

    def subscripts(self, array: str, index: tuple[Expr, ...], env: _Env) -> int:
        return _wide(array, index, [self.expr(e, env) for e in index])

    def expr(self, e: Expr, env: _Env) -> Type:
        facts = self.facts(e)
        self.scope(facts, env)
        return facts.type

    def scope(self, facts: _Facts, env: _Env) -> None:
        """Whether all that an expression needs is there, as it needs it."""
        for name, kind in facts.vars:
            if env.vars.get(name) != kind:
                if name not in env.vars:
                    raise Broken(f"variable '{name}' is not bound")
                raise Broken(f"variable '{name}' is bound as {env.vars[name]}, used as {kind}")
        for array, rank, dtype in facts.arrays:
            buffer = self.buffer(array, rank, env)
            if dtype != buffer.dtype:
                raise Broken(f"load of {dtype} from '{array}' of {buffer.dtype}")

    def facts(self, e: Expr) -> _Facts:
        entry = self.known.get(id(e))
        if entry is None:
            entry = self.known[id(e)] = (e, self._facts(e))
        return entry[1]

    def _facts(self, e: Expr) -> _Facts:
        if isinstance(e, Const):
            return _facts_of_const(e.dtype)
        if isinstance(e, Var):
            return _facts_of_variable(e.name, e.dtype, e.count)
        parts = [self.facts(c) for c in e.children()]
        variables, arrays = _union([p.vars for p in parts]), _union([p.arrays for p in parts])
        if isinstance(e, (Load, VLoad)):
            kind = self.load(e, parts)
            own = _array(e.array, len(e.index), e.dtype)
            return _Facts(kind, variables, arrays | own if arrays else own)
        if isinstance(e, (Ramp, Broadcast, HReduce)):
            return _Facts(self.vector(e, parts[0].type), variables, arrays)
        return _Facts(self.operation(e, [p.type for p in parts]), variables, arrays)

    def load(self, e: Load | VLoad, parts: list[_Facts]) -> Type:
        lanes, mask = (1, None) if isinstance(e, Load) else (e.count, e.mask)
        if _wide(e.array, e.index, [p.type for p in parts[: len(e.index)]]) != lanes:
            raise Broken(f"load from '{e.array}' has {lanes} lanes, its subscripts not: {e.index}")
        if mask is not None and (lanes == 1 or self.facts(mask).type != (bool_, lanes)):
            raise _wrong_mask(mask, lanes)
        return e.dtype, lanes

    def vector(self, e: Ramp | Broadcast | HReduce, operand: Type) -> Type:
        dtype, lanes = operand
        if isinstance(e, HReduce):
            if dtype != e.dtype or lanes & (lanes - 1) or lanes == 1:
                raise Broken(f"horizontal reduction of {lanes} lanes of {dtype} to {e.dtype}")
            return e.dtype, 1
        if e.count < 2:
            raise Broken(f"a vector of {e.count} lanes")
        wanted = i64 if isinstance(e, Ramp) else e.dtype
        if operand != (wanted, 1):
            raise Broken(f"the operand of a {type(e).__name__} is no scalar {wanted}: {e.children()[0]}")
        if isinstance(e, Ramp) and e.dtype != i64:
            raise Broken("a Ramp is not i64")
        return e.dtype, e.count

    def operation(self, e: Expr, kids: list[Type]) -> Type:
        if not kids:
            raise Broken(f"unknown expression {type(e).__name__}")
        lanes = kids[0][1]
        if any([n != lanes for _, n in kids]):
            raise Broken(f"operands of {[n for _, n in kids]} lanes in {type(e).__name__} {getattr(e, 'op', '')}")
        self.types(e, [d for d, _ in kids])
        return e.dtype, lanes

    def types(self, e: Expr, kids: list[DType]) -> None:
        good = True
        if isinstance(e, Binary):
            good = kids[0] == kids[1]
            if e.op in LOGICAL:
                good = good and kids[0] == e.dtype == bool_
            elif e.op in COMPARISONS:
                good = good and e.dtype == bool_
            else:
                good = good and kids[0] == e.dtype
        elif isinstance(e, Unary):
            good = kids[0] == e.dtype and (e.op != "not" or e.dtype == bool_)
        elif isinstance(e, Select):
            good = kids[0] == bool_ and kids[1] == kids[2] == e.dtype
        elif isinstance(e, Call):
            good = e.fn in TABLE and len(kids) == TABLE[e.fn].arity
            if good and TABLE[e.fn].result == "same":
                good = all(k == e.dtype for k in kids)
        elif not isinstance(e, Cast):
            raise Broken(f"unknown expression {type(e).__name__}")
        if not good:
            what = getattr(e, "op", getattr(e, "fn", ""))
            raise Broken(f"{type(e).__name__} {what} of {kids} cannot give {e.dtype}")


@lru_cache(maxsize=1024)
def _facts_of_const(dtype: DType) -> _Facts:
    return _Facts((dtype, 1))


@lru_cache(maxsize=1024)
def _facts_of_variable(name: str, dtype: DType, count: int) -> _Facts:
    return _Facts((dtype, count), frozenset({(name, (dtype, count))}))


@lru_cache(maxsize=1024)
def _array(name: str, rank: int, dtype: DType) -> frozenset[tuple[str, int, DType]]:
    return frozenset({(name, rank, dtype)})


def _union(sets: list[frozenset[T]]) -> frozenset[T]:
    """All in one; one of them where it is that."""
    found: frozenset[T] = frozenset()
    for other in sets:
        if other is not found and other:
            found = found | other if found else other
    return found


def _wide(array: str, index: tuple[Expr, ...], kinds: list[Type]) -> int:
    """Lanes of subscripts of these types: one of them at most is a vector."""
    if any([d is not i64 and d != i64 for d, _ in kinds]):
        raise Broken(f"a subscript of '{array}' is not i64: {index}")
    wide = [n for _, n in kinds if n > 1]
    if len(wide) > 1:
        raise Broken(f"an access of '{array}' has two vector subscripts")
    return wide[0] if wide else 1


def _wrong_mask(mask: Expr, lanes: int) -> Broken:
    return Broken(f"a mask of a {lanes}-lane access is wrong: {mask}")
