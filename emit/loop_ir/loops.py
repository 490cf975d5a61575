"""The loop IR: the one small typed language between schedule trees and printers.

Expressions are `polyc.poly.expr` nodes plus the vector nodes below. A program is a `Function`.
All optimisation happens on this IR or above it; emitters print it and decide nothing.

Rules (checked by `polyc.emit.loop_ir.verify`):
* every `Var` is bound by an enclosing `For`/`Let` or is a size parameter; names are unique;
* a `Load`/`Store` names a buffer in scope, with one index per dimension;
* in a vector expression every operand is scalar-free: scalars enter through `Broadcast`;
* subscripts of a vector access have at most one vector index (a `Ramp`, or any i64 vector =
  gather/scatter); the mask, when present, has the access's lanes and dtype `bool_`;
* a masked-off lane loads 0 and stores nothing; its address may be invalid.

Code for a GPU is a host function: serial loops, conditions and `heap` Allocs (arrays of the
device) around `Launch` statements. Inside a launch every thread of every block runs the body;
`shared` Allocs stand directly in the body and exist once a block, `register` and `local` ones
once a thread. A `Barrier` is reached by all threads of a block or by none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from typing import Literal

from polyc.poly.dtypes import DType
from polyc.poly.expr import Expr, Load, Span, hashed_once
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass
from polyc.poly.tree import GpuAxis, Space
from polyc.poly.violations import Check

ForKind = Literal["serial", "parallel", "vector", "unroll"] | GpuAxis


# ---- vector expressions (extend poly.expr) -------------------------------------------------


@hashed_once
@dataclass(frozen=True, slots=True)
class Ramp(Expr):
    """`base, base + stride, ...` (i64)."""

    base: Expr
    stride: int
    count: int
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.count

    def children(self) -> tuple[Expr, ...]:
        return (self.base,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Ramp(children[0], self.stride, self.count, self.dtype)


@hashed_once
@dataclass(frozen=True, slots=True)
class Broadcast(Expr):
    """The scalar `a` in every lane."""

    a: Expr
    count: int
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.count

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Broadcast(children[0], self.count, self.dtype)


@hashed_once
@dataclass(frozen=True, slots=True)
class VLoad(Expr):
    """Vector read: `index` has one vector entry (or none: then use Broadcast(Load))."""

    array: str
    index: tuple[Expr, ...]
    mask: Expr | None
    count: int
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.count

    def children(self) -> tuple[Expr, ...]:
        return self.index if self.mask is None else (*self.index, self.mask)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        n = len(self.index)
        return VLoad(self.array, children[:n], children[n] if len(children) > n else None, self.count, self.dtype)


@hashed_once
@dataclass(frozen=True, slots=True)
class HReduce(Expr):
    """Horizontal reduction of a vector to a scalar: `op` is `+ * min max and or & | ^`.

    Order is part of the meaning: halves are combined pairwise (lane i with lane i + n/2),
    repeatedly; `min`/`max` as in `polyc.poly.expr`.
    """

    op: str
    a: Expr
    dtype: DType

    @property
    def lanes(self) -> int:
        return 1

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return HReduce(self.op, children[0], self.dtype)


# ---- buffers and statements ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Buffer:
    """Row-major storage. `space`: `param` = pointer argument, else allocated by an `Alloc`.

    `register` buffers have constant shape and, after unrolling, constant subscripts, so
    that LLVM's mem2reg/SROA turns them into registers. `align` in bytes. `promoted` is the
    buffer's name in the schedule tree's `Promote` node (passes may rename buffers). An argument that is not `apart` may
    share bytes with others that are not: compilers must keep the order of accesses to both. One that is `aligned`
    begins at a multiple of 64 bytes.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    space: Space | Literal["param"]
    writable: bool = True
    align: int = 64
    promoted: str = field(default="", compare=False)
    apart: bool = field(default=True, compare=False)
    aligned: bool = field(default=False, compare=False)


class Stmt:
    """Base of loop-IR statements."""

    __slots__ = ()

    def bodies(self) -> tuple[Stmt, ...]:
        """The statements directly inside, in order."""
        return ()


@dataclass(frozen=True, slots=True)
class Block(Stmt):
    """In order."""

    stmts: tuple[Stmt, ...]

    def bodies(self) -> tuple[Stmt, ...]:
        return self.stmts


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for var in range(lo, hi, step)`, step a positive constant. `loop` is the schedule
    tree's loop name. `parallel`: iterations on the thread pool. `vector` (with `factor`
    lanes), `unroll` and the axes of a GPU exist only before the passes that expand them.

    `until`: evaluated before each iteration; where it holds, neither this iteration nor a later one
    would store anything, and the loop may end (one up to `ENDLESS` must)."""

    var: str
    lo: Expr
    hi: Expr
    step: int
    body: Stmt
    kind: ForKind = "serial"
    factor: int | None = None
    loop: str = ""
    until: Expr | None = None

    def bodies(self) -> tuple[Stmt, ...]:
        return (self.body,)


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """Scalar condition."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None

    def bodies(self) -> tuple[Stmt, ...]:
        return (self.then,) if self.orelse is None else (self.then, self.orelse)


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """Bind an immutable scalar or vector for `body`."""

    name: str
    value: Expr
    body: Stmt

    def bodies(self) -> tuple[Stmt, ...]:
        return (self.body,)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where code comes from: the schedule tree's loops around it, outermost first (also those
    that leave no loop: unrolled, vectorised, of one iteration), and the Scop's statement, or for
    a copy the buffer of the `Promote` node."""

    loops: tuple[str, ...]
    statement: str | None = None
    buffer: str | None = None


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """`buffer[index] = value`, scalar or vector (`mask` only for vectors).

    `instance`: the Scop statement's name and the iterators' values, for the proof of the loops and a GPU's passes
    (those of a CPU drop it); None for copies. `reduction` marks an update whose instances may be reordered (then the
    value is `Load(target) OP update`).
    `origin` is kept by all passes, for people who look at the code. `asynchronous`: a copy from an array to
    shared memory that is in place after the thread's next barrier that waits for copies, not before.

    `predicated`: the condition directly around it is the statement's, until passes change the loops. Until the loops
    are proved, `checked` is the same store with the checks of its accesses, which takes the place of this one and of
    the statement's condition (`polyc.emit.lowering.checks`); for a copy, with conditions. `rare`: an update that
    hardly ever happens, for which a loop keeps nothing in registers.
    """

    array: str
    index: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    instance: tuple[str, tuple[Expr, ...]] | None = field(default=None, compare=False)
    reduction: str | None = None
    span: Span | None = field(default=None, compare=False)
    origin: Origin | None = field(default=None, compare=False)
    asynchronous: bool = False
    checked: Stmt | None = field(default=None, compare=False)
    predicated: bool = field(default=False, compare=False)
    rare: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Alloc(Stmt):
    """`buffer` exists (uninitialised) inside `body`. `heap`/`local` buffers with symbolic or
    large shape come from a per-call workspace; `register` are stack slots."""

    buffer: Buffer
    body: Stmt

    def bodies(self) -> tuple[Stmt, ...]:
        return (self.body,)


@dataclass(frozen=True, slots=True)
class Prefetch(Stmt):
    """A hint that the element will be read before long. It may lie outside of the array; nothing depends on it."""

    array: str
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Launch(Stmt):
    """One launch of a GPU kernel: `body` is run by every thread of every block.

    `grid`: (block variable, number of blocks) for x, y, z in this order, one to three of them; the
    numbers are expressions of the host, and where one is not positive nothing is launched. `threads`:
    (thread variable, number of threads) likewise. The variables are i64 and bound in `body`.
    `name` is unique within the function. `given` are conditions on the host's variables that hold whenever it is
    launched. `narrow`: all index arithmetic in it fits in 32 bits.
    """

    name: str
    grid: tuple[tuple[str, Expr], ...]
    threads: tuple[tuple[str, int], ...]
    body: Stmt
    given: tuple[Expr, ...] = ()
    narrow: bool = False

    def bodies(self) -> tuple[Stmt, ...]:
        return (self.body,)

    @property
    def block_threads(self) -> int:
        """Threads of one block."""
        return math.prod(n for _, n in self.threads)


@dataclass(frozen=True, slots=True)
class Barrier(Stmt):
    """All threads of the block wait for each other; what they wrote before is seen by all after.

    `copies`: each thread first waits for the asynchronous copies that it began; with `pending` more than 0 the
    last so many groups of them (`EndCopies`) may still be under way."""

    copies: bool = False
    pending: int = 0


@dataclass(frozen=True, slots=True)
class EndCopies(Stmt):
    """The asynchronous copies that a thread has begun since the last one of these are a group (perhaps an empty one).

    `ahead`: of the groups ended here, so many are not needed in the next iteration of the loop around."""

    ahead: int


@dataclass(frozen=True, slots=True)
class PanelProduct(Stmt):
    """What tensor cores do: several threads multiply panels in shared memory and add to registers of theirs."""

    acc: str
    left: str
    left_index: tuple[Expr, ...]
    right: str
    right_index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class WarpProduct(PanelProduct):
    """The threads of a warp multiply panels of floats and add to registers.

    With (r, c) the last two subscripts of `left` and (c', j) of `right`, a thread computes for m, n in `tiles`,
    h, e < 2 and k < 16: `acc[m, n, h, e] += left[r + 16 m + 8 h, c + k] * right[c' + k, j + 8 n + e]`, exact
    products added to f32 in some order. The elements are f16, bf16, or f32: those are first rounded to 10 bits of
    fraction (`poly.tf32`). `r` is a multiple of 8 plus the thread's y (of 8), `j` one plus twice
    its x (of 4), `c` a multiple of 8; otherwise the subscripts are the same for all threads of the warp, and all come.
    """

    tiles: tuple[int, int]
    dtype: DType
    instance: tuple[str, tuple[Expr, ...]] | None = field(default=None, compare=False)
    origin: Origin | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class WarpgroupProduct(PanelProduct):
    """The 128 threads of a block, 4 x 8 x 4, multiply panels of 16-bit floats and add to registers (`wgmma`).

    Panels are made of 8 x 8 matrices: element (r, k) of `left` is `left[r / 8, k / 8, r % 8, k % 8]`, element (k, j) of
    the right factor `right[j / 8, k / 8, j % 8, k % 8]`. With (r, c, y, 0) the subscripts of `left` and (j, c', x', 0)
    of `right`, a thread computes for n < columns / 8, h, e < 2 and k < 16 steps:
    `acc[n, h, e] += left[r + h, c + k / 8, y, k % 8] * right[j + n, c' + k / 8, x' + e, k % 8]`, exact products added
    to f32 in some order. `y` is the thread's y, `x'` twice its x and `r` a number plus twice its z; otherwise the
    subscripts are the same for all threads, and all come.
    """

    columns: int
    steps: int
    dtype: DType


class MatrixStatement(Stmt):
    """Something that a core does with its matrix registers: `MATRIX_REGISTERS` matrices of 32-bit words.

    They are the thread's own, and hold garbage until `MatrixShapes` says how large they are."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class MatrixShapes(MatrixStatement):
    """From here on register k has `shapes[k]` rows and words in a row; all words are 0. (0, 0): it is not used.
    An empty tuple ends all use of the registers."""

    shapes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class MatrixClear(MatrixStatement):
    """All words of a register become 0."""

    register: int


@dataclass(frozen=True, slots=True)
class MatrixMove(MatrixStatement):
    """A register takes a matrix from a buffer of 32-bit elements, or (`store`) gives it to the buffer.

    Word (i, j) is `array[index + i * step]`, j added to the last subscript: rows are any constant steps apart, words
    of a row lie side by side."""

    register: int
    array: str
    index: tuple[Expr, ...]
    step: tuple[int, ...]
    store: bool = False


@dataclass(frozen=True, slots=True)
class MatrixProduct(MatrixStatement):
    """`acc[i, j] += sum over k of intrinsic(left[i, k], right[k, j])` of three registers, for all of their words.

    `swapped`: the intrinsic takes its operands the other way round. `dot_bytes` is exact; `dot_bf16` adds f32 in some
    order, and takes and gives 0 for what is smaller than a normal f32."""

    acc: int
    left: int
    right: int
    intrinsic: str
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class WarpReduce(Stmt):
    """Each `width` (2 to 32) neighbouring threads of a warp combine an element of register buffers of theirs.

    For d in width / 2, ..., 2, 1, each thread's `array[index] = array[index] OP other`, where `other` is the element
    of the thread whose number differs in the bit d. Threads are numbered x fastest; all of the block come.
    """

    op: str
    array: str
    index: tuple[Expr, ...]
    dtype: DType
    width: int = 32


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel. `buffers` are the pointer arguments in ABI order (all arrays of the Scop that
    are not local, in `Scop.arrays` order), `params` the i64 size arguments.

    `fma`: reduction updates may contract `a * b + c`; `fast_math`: any expression may. `notes`
    say what the passes declined (a vector loop left serial, ...) and why. `checks` name the elements of the record of
    violated accesses, which is the last of the Scop's own buffers if there are any (`polyc.emit.lowering.checks`).

    Native ABI: `void name(void **buffers, int64_t *params, void *runtime)`.
    """

    name: str
    buffers: tuple[Buffer, ...]
    params: tuple[str, ...]
    body: Stmt
    fma: bool = True
    fast_math: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)
    checks: tuple[Check, ...] = field(default=(), compare=False)


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """All statements, parents first."""
    waiting = [stmt]
    while waiting:
        stmt = waiting.pop()
        yield stmt
        if inside := stmt.bodies():  # most statements have none
            waiting.extend(inside[::-1])


def accesses(expr: Expr) -> tuple[Load | VLoad, ...]:
    """All loads in an expression, of scalars and vectors, parents first: most passes ask for those of all expressions,
    which few passes change."""
    found: tuple[Load | VLoad, ...] | None = getattr(expr, "_accesses", None)
    if found is None:
        found = tuple([e for e in walk_expr(expr) if isinstance(e, (Load, VLoad))])
        object.__setattr__(expr, "_accesses", found)
    return found
