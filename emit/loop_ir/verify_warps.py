"""Rules of what the threads of warps do together: products by tensor cores, exchanges of registers."""

from __future__ import annotations

from collections.abc import Callable

from polyc.emit.loop_ir.linear import linear
from polyc.emit.loop_ir.loops import Buffer, Launch, PanelProduct, WarpgroupProduct, WarpProduct, WarpReduce
from polyc.poly.expr import Const, Expr, Var, const_int

WARP = 32  # threads that exchange registers

BufferOf = Callable[[str, int], Buffer]
LanesOf = Callable[[str, tuple[Expr, ...]], int]


class Broken(Exception):
    """A rule of the loop IR that is broken."""


def check_warps(
    s: PanelProduct | WarpReduce, launch: Launch | None, diverged: str, buffer_of: BufferOf, lanes_of: LanesOf
) -> None:
    """Check a statement of several threads in `launch`, under `diverged` if they may disagree on coming here.

    `buffer_of` is the buffer of a name and number of dimensions, `lanes_of` the lanes of its subscripts.

    Raises:
        Broken: the first rule that is broken.
    """
    name = s.array if isinstance(s, WarpReduce) else s.acc
    what = {WarpProduct: "warp product for", WarpgroupProduct: "warpgroup product for", WarpReduce: "warp reduction of"}
    if launch is None:
        raise Broken(f"a {what[type(s)]} '{name}' outside a launch")
    if diverged:
        raise Broken(f"a {what[type(s)]} '{name}' under {diverged} on which threads may disagree")
    if isinstance(s, WarpProduct):
        _product(s, launch, buffer_of, lanes_of)
    elif isinstance(s, WarpgroupProduct):
        _warpgroup_product(s, launch, buffer_of, lanes_of)
    else:
        assert isinstance(s, WarpReduce), type(s)
        _warp_reduce(s, launch, buffer_of, lanes_of)


def _product(s: WarpProduct, launch: Launch, buffer_of: BufferOf, lanes_of: LanesOf) -> None:
    """A product by tensor cores: panels in shared memory, results in registers, all threads of a warp."""
    if tuple(n for _, n in launch.threads)[:2] != (4, 8):
        raise Broken(f"a warp product for '{s.acc}' where warps are not 4 x 8 threads")
    acc = buffer_of(s.acc, 4)
    shape = tuple(e.value if isinstance(e, Const) else None for e in acc.shape)
    if acc.space not in ("register", "local") or acc.dtype.name != "f32" or shape != (*s.tiles, 2, 2):
        raise Broken(f"a warp product for '{s.acc}' of shape {shape}, not f32 {(*s.tiles, 2, 2)} in registers")
    for array, index in ((s.left, s.left_index), (s.right, s.right_index)):
        buffer = buffer_of(array, len(index))
        if buffer.space != "shared" or buffer.dtype != s.dtype or s.dtype.name not in ("f16", "bf16", "f32"):
            raise Broken(f"a warp product of '{array}', which is not {s.dtype} in shared memory")
        if lanes_of(array, index) != 1:
            raise Broken(f"a warp product with vector subscripts of '{array}'")
    x, y = (Var(v) for v, _ in launch.threads[:2])
    wanted = {(s.left, -2): (0, 1), (s.left, -1): (0, 0), (s.right, -2): (0, 0), (s.right, -1): (2, 0)}
    for (array, d), (along_x, along_y) in wanted.items():
        form = linear((s.left_index if array == s.left else s.right_index)[d])
        if (form.coefficient(x), form.coefficient(y)) != (along_x, along_y):
            raise Broken(f"a warp product whose threads are wrongly placed in '{array}'")


def _warpgroup_product(s: WarpgroupProduct, launch: Launch, buffer_of: BufferOf, lanes_of: LanesOf) -> None:
    """A product by `wgmma`: panels of 8 x 8 matrices in shared memory, all threads of a block of 128."""
    if tuple(n for _, n in launch.threads) != (4, 8, 4):
        raise Broken(f"a warpgroup product for '{s.acc}' where blocks are not 4 x 8 x 4 threads")
    if s.columns not in range(8, 257, 8) or s.steps < 1:
        raise Broken(f"a warpgroup product for '{s.acc}' of {s.columns} columns in {s.steps} steps")
    acc = buffer_of(s.acc, 3)
    shape = tuple(e.value if isinstance(e, Const) else None for e in acc.shape)
    if acc.space not in ("register", "local") or acc.dtype.name != "f32" or shape != (s.columns // 8, 2, 2):
        raise Broken(f"a warpgroup product for '{s.acc}', not f32 {(s.columns // 8, 2, 2)} in registers")
    threads = [Var(v) for v, _ in launch.threads]
    places = (
        (s.left, s.left_index, ((0, 0, 2), (0, 0, 0), (0, 1, 0), (0, 0, 0))),
        (s.right, s.right_index, ((0, 0, 0), (0, 0, 0), (2, 0, 0), (0, 0, 0))),
    )
    for array, index, wanted in places:
        buffer = buffer_of(array, 4)
        matrices = buffer.shape[2:] == (const_int(8), const_int(8))
        if buffer.space != "shared" or not matrices or buffer.dtype != s.dtype or s.dtype.name not in ("f16", "bf16"):
            raise Broken(f"a warpgroup product of '{array}', not 8 x 8 matrices of {s.dtype} in shared memory")
        if lanes_of(array, index) != 1:
            raise Broken(f"a warpgroup product with vector subscripts of '{array}'")
        forms = [linear(e) for e in index]
        along = tuple(tuple(f.coefficient(v) for v in threads) for f in forms)
        fixed = [f.const == 0 and all(a in threads for a, _ in f.terms) for f in forms[2:]]
        if along != wanted or not all(fixed):
            raise Broken(f"a warpgroup product whose threads are wrongly placed in '{array}'")


def _warp_reduce(s: WarpReduce, launch: Launch, buffer_of: BufferOf, lanes_of: LanesOf) -> None:
    """A combination across a warp: whole warps, all of which come, of registers that shuffles can move."""
    if launch.block_threads % WARP:
        raise Broken(f"a warp reduction of '{s.array}' where blocks are not whole warps")
    if s.width not in (2, 4, 8, 16, WARP):
        raise Broken(f"a warp reduction of '{s.array}' among {s.width} threads")
    buffer = buffer_of(s.array, len(s.index))
    if buffer.space not in ("register", "local") or buffer.dtype != s.dtype or s.dtype.bytes not in (4, 8):
        raise Broken(f"a warp reduction of '{s.array}', which is not 4 or 8 bytes in registers")
    if lanes_of(s.array, s.index) != 1:
        raise Broken(f"a warp reduction with vector subscripts of '{s.array}'")
