"""Kernels as portable C99: no extensions of a compiler, no vectors, no threads, no allocation.

One kernel is one function of typed pointers; arrays that would come from the heap are arguments
too (`polyc.emit.passes.workspace`). Signed arithmetic wraps by going through unsigned types, f16 and bf16 are
their bits, and what needs `<math.h>` goes through the few functions of `polyc.emit.c.c99_math`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from cgen import Block, Const, For, FunctionBody, FunctionDeclaration, If, Initializer, Line, Statement, Value

from polyc.emit.c.expr import Helpers
from polyc.emit.c.plain import PLAIN, PlainPrinter
from polyc.emit.loop_ir import loops
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.emit.loop_ir.work import context_of, operations_of, work_of
from polyc.emit.lowering.checks import self_describing
from polyc.emit.lowering.lower import proven_loops
from polyc.emit.mathlib import expand_function
from polyc.emit.passes.unread import drop_unread
from polyc.emit.passes.workspace import constant_bytes, hoist
from polyc.emit.pipeline import run_passes
from polyc.emit.targets import get
from polyc.poly.dtypes import DType
from polyc.poly.errors import BuildError
from polyc.poly.expr import Const as ConstExpr
from polyc.poly.expr import Expr, walk
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Node

KEEP = "POLYC_KEEP"  # before a loop that is to stay one; GCC -O3 takes three to nine times as long without
MOST_PEELED = 16  # iterations of a loop that GCC writes out
STACK_BYTES = 4096  # of a kernel's small arrays: a microcontroller's stack is short


@dataclass(frozen=True)
class Argument:
    """One pointer of a kernel. `scratch` arguments hold no tensor: only memory for `nbytes`."""

    name: str
    dtype: str
    writable: bool
    scratch: bool
    nbytes: int


@dataclass(frozen=True)
class PortableKernel:
    """The text of one function, what it takes, and the helpers (`polyc.emit.c.c99_math`) that it calls.

    What a call does: `iterations` of all loops at most, `operations` of floats (None: data decide), bytes of local
    arrays on the `stack`.
    """

    symbol: str
    text: str
    arguments: tuple[Argument, ...]
    helpers: tuple[str, ...]
    notes: tuple[str, ...] = ()
    iterations: int | None = None
    operations: int | None = None
    stack: int = 0

    def to_json(self) -> str:
        """Stable text of it all."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes) -> PortableKernel:
        """The kernel back."""
        data = json.loads(text)
        arguments = tuple(Argument(**a) for a in data.pop("arguments"))
        work = (data[key] for key in ("iterations", "operations", "stack"))
        return PortableKernel(
            data["symbol"], data["text"], arguments, tuple(data["helpers"]), tuple(data["notes"]), *work
        )

    @property
    def declaration(self) -> str:
        """The prototype's text, without a semicolon."""
        return self.text.partition("\n{")[0]


def target() -> Target:
    """The machine that schedules of portable code assume: small caches, vectors of 128 bits."""
    return replace(get("x86-64"), name="c99", triple="", cpu="", isa="c99", l1=16384, l2=131072, l3=1 << 20)


def portable_kernel(scop: Scop, tree: Node, symbol: str, target: Target, checks: bool = False) -> PortableKernel:
    """The function that runs `scop` in the order of `tree`.

    Products and sums of reductions stay apart (few portable machines have a fused one, and
    emulating it would cost more than the reduction). With `checks`, the record of violated accesses is a scratch
    argument, if the Scop needs one (`polyc.emit.lowering.checks.self_describing`).

    Raises:
        BuildError: sizes are symbolic, or the loops hold what C99 cannot express.
    """
    made = replace(proven_loops(scop, tree, symbol, checks=checks), fma=False)
    made = self_describing(run_passes(made, target, vectorise=False))
    record = made.buffers[-1:] if made.checks else ()
    fn = drop_unread(expand_function(made))
    if fn.params:
        raise BuildError(f"C99 code needs fixed sizes; {scop.name} has {', '.join(fn.params)}")
    fn, scratch = hoist(replace(fn, body=serial_loops(fn.body)), STACK_BYTES, STACK_BYTES)
    helpers = _PlainHelpers()
    writer = _Writer({b.name: b for b in fn.buffers}, helpers)
    text = "\n".join(writer.function(fn).generate())
    extra = {b.name for b in (*record, *scratch)}
    arguments = tuple(
        Argument(b.name, b.dtype.name, b.writable, b.name in extra, constant_bytes(b) or 0) for b in fn.buffers
    )
    assert not helpers.vectors and not helpers.functions, "vector code in a portable kernel"
    work, operations = work_of(fn, context_of(scop)), operations_of(scop)
    iterations = None if work.iterations is None else work.iterations()
    return PortableKernel(
        symbol, text, arguments, tuple(sorted(helpers.scalars)), fn.notes,
        iterations, None if operations is None else operations(), work.stack,
    )  # fmt: skip


def plain_type(dtype: DType) -> str:
    """The C type of one element in memory."""
    return PLAIN[dtype.name]


def serial_loops(s: loops.Stmt) -> loops.Stmt:
    """Parallel loops as serial ones."""
    s = with_bodies(s, tuple(serial_loops(b) for b in s.bodies()))
    return replace(s, kind="serial") if isinstance(s, loops.For) and s.kind == "parallel" else s


class _PlainHelpers(Helpers):
    """Types without extensions."""

    def vector(self, dtype: DType, lanes: int) -> str:
        if lanes > 1:
            raise BuildError("a vector in portable C: run the passes without vectors")
        return plain_type(dtype)


class StandardPrinter(PlainPrinter):
    """With NaN and infinities as <math.h> has them."""

    def expr(self, e: Expr) -> str:
        if isinstance(e, ConstExpr) and e.dtype.is_float and e.value - e.value != 0:
            text = "NAN" if e.value != e.value else "INFINITY" if e.value > 0 else "(-INFINITY)"
            if e.dtype.name in ("f16", "bf16"):
                return self._from_f32(text, e.dtype)
            return f"(({plain_type(e.dtype)}){text})"
        return super().expr(e)


class _Writer:
    """Prints the statements of one function."""

    def __init__(self, buffers: dict[str, loops.Buffer], helpers: Helpers) -> None:
        self.buffers = buffers
        self.helpers = helpers
        self.printer = StandardPrinter(buffers, helpers)

    def function(self, fn: loops.Function) -> FunctionBody:
        arguments = [
            Value(f"{'' if b.writable else 'const '}{plain_type(b.dtype)} *restrict", b.name) for b in fn.buffers
        ]
        body = self.block(fn.body)
        used = {line for s in loops.walk(fn.body) for line in _arrays(s)}
        unused = [Statement(f"(void){b.name}") for b in fn.buffers if b.name not in used]
        return FunctionBody(FunctionDeclaration(Value("void", fn.name), arguments), Block([*unused, *body]))

    def more(self, s: loops.For) -> str:
        """Whether there is another iteration."""
        more = f"{s.var} < {self.printer.index(s.hi)}"
        return more if s.until is None else f"{more} && !({self.printer.expr(s.until)})"

    def block(self, s: loops.Stmt) -> list[object]:
        if isinstance(s, loops.Block):
            return [node for inner in s.stmts for node in self.block(inner)]
        if isinstance(s, loops.Store):
            return [Statement(self.printer.store(s.array, s.index, s.value, s.mask))]
        if isinstance(s, loops.For):
            head = (f"int64_t {s.var} = {self.printer.index(s.lo)}", self.more(s),
                    f"{s.var} += {s.step}")  # fmt: skip
            kept = [Line(KEEP)] if short_and_innermost(s) else []
            return [*kept, For(*head, Block(self.block(s.body)))]
        if isinstance(s, loops.If):
            orelse = None if s.orelse is None else Block(self.block(s.orelse))
            return [If(self.printer.expr(s.cond), Block(self.block(s.then)), orelse)]
        if isinstance(s, loops.Let):
            value = Initializer(Const(Value(plain_type(s.value.dtype), s.name)), self.printer.expr(s.value))
            return [Block([value, *self.block(s.body)])]
        if isinstance(s, loops.Alloc):
            self.buffers[s.buffer.name] = s.buffer
            count = constant_bytes(s.buffer)
            if count is None:
                raise BuildError(f"'{s.buffer.name}' has no constant size")
            element = Line(f"{plain_type(s.buffer.dtype)} {s.buffer.name}[{count // s.buffer.dtype.bytes}];")
            return [Block([element, *self.block(s.body)])]
        raise BuildError(f"portable C has no rule for {type(s).__name__}")


def short_and_innermost(s: loops.For) -> bool:
    """Whether GCC would write the loop out before it looks for vectors in it, and then find none."""
    if not (isinstance(s.lo, ConstExpr) and isinstance(s.hi, ConstExpr)):
        return False
    trips = -(-(int(s.hi.value) - int(s.lo.value)) // s.step)
    return trips <= MOST_PEELED and not any(isinstance(inner, loops.For) for inner in loops.walk(s.body))


def _arrays(s: loops.Stmt) -> set[str]:
    """Arrays that a statement itself touches."""
    found = {s.array} if isinstance(s, loops.Store) else set()
    return found | {a for e in stmt_exprs(s) for x in walk(e) if isinstance(a := getattr(x, "array", None), str)}
