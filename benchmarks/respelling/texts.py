"""Other spellings of a program's text: what it computes stays the same, but for the rounding of sums.

A change takes a function's syntax tree, which it may change in place, and a source of random numbers; it says whether
there was something to change.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import polyc
from polyc.frontend_dsl.operator import Operator
from polyc.frontend_dsl.source import register, source_of

Change = Callable[[ast.FunctionDef, random.Random], bool]
Block = list[ast.stmt]

BLOCK = 32
"""Iterations of a loop's blocks as people cut it by hand."""


def respelled(operator: Operator, change: Change, r: random.Random) -> tuple[Operator, str] | None:
    """The operator with a changed text, and that text; None where there is nothing to change.

    Raises:
        DslError: the language does not have the new spelling.
    """
    tree = deepcopy(source_of(operator.fn).node)
    assert isinstance(tree, ast.FunctionDef)
    if not change(tree, r):
        return None
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    space: dict[str, Any] = {"empty": polyc.empty, "f32": polyc.f32, "f64": polyc.f64, **operator.fn.__globals__}
    exec(compile(text, register(text, operator.name), "exec"), space)
    return space[operator.name], text


def blocks(tree: ast.AST) -> Iterator[Block]:
    """Every list of statements, the function's own first."""
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def names(tree: ast.FunctionDef) -> set[str]:
    """All names of a function."""
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {a.arg for a in tree.args.args}


def fresh(tree: ast.FunctionDef, base: str) -> str:
    """A name that the function does not have."""
    used, number = names(tree), 0
    while f"{base}{number}" in used:
        number += 1
    return f"{base}{number}"


def parsed(text: str) -> Block:
    """Statements of a text."""
    return ast.parse(text).body


def loops(tree: ast.AST) -> list[tuple[Block, int, ast.For, str, list[ast.expr]]]:
    """Loops over ranges: block, place, loop, iterator, what stands in `range`."""
    found = []
    for block in blocks(tree):
        for k, s in enumerate(block):
            if isinstance(s, ast.For) and isinstance(s.target, ast.Name) and isinstance(s.iter, ast.Call):
                if isinstance(s.iter.func, ast.Name) and s.iter.func.id == "range" and len(s.iter.args) <= 2:
                    found.append((block, k, s, s.target.id, s.iter.args))
    return found


def renamed(nodes: Block, name: str, new: ast.expr) -> Block:
    """Copies of statements with an expression for a name."""

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return deepcopy(new) if node.id == name and isinstance(node.ctx, ast.Load) else node

    return [Rename().visit(deepcopy(n)) for n in nodes]


def replaced(tree: ast.AST, old: ast.expr, new: ast.expr) -> None:
    """Put one expression in the place of another (that very node)."""

    class Replace(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else super().generic_visit(node)

        visit = generic_visit

    Replace().visit(tree)


def assignments(tree: ast.FunctionDef) -> list[tuple[Block, int, ast.Assign | ast.AugAssign]]:
    """Assignments inside of loops: block, place, statement."""
    inside = {id(n) for _, _, loop, _, _ in loops(tree) for n in ast.walk(loop)}
    return [
        (block, k, s)
        for block in blocks(tree)
        for k, s in enumerate(block)
        if id(s) in inside and isinstance(s, ast.Assign | ast.AugAssign)
        and not (isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Tuple))
    ]  # fmt: skip


def _target(s: ast.Assign | ast.AugAssign) -> ast.expr:
    return s.targets[0] if isinstance(s, ast.Assign) else s.target


def a_value_named(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`y += a * b` -> `t = a * b; y += t`, for any part of a value."""
    found = [
        (block, k, s, e)
        for block, k, s in assignments(tree)
        for e in _parts(s.value)
        if isinstance(e, ast.BinOp | ast.Call | ast.Subscript | ast.IfExp)
    ]
    if not found:
        return False
    block, k, s, e = r.choice(found)
    name = fresh(tree, "t")
    replaced(s, e, ast.Name(name, ast.Load()))
    block.insert(k, ast.Assign([ast.Name(name, ast.Store())], e))
    return True


def _parts(e: ast.expr) -> Iterator[ast.expr]:
    """An expression and what it is made of, but for subscripts and what is evaluated on a condition."""
    yield e
    if isinstance(e, ast.BinOp):
        yield from _parts(e.left)
        yield from _parts(e.right)
    elif isinstance(e, ast.Call):
        for a in e.args:
            yield from _parts(a)
    elif isinstance(e, ast.UnaryOp):
        yield from _parts(e.operand)


def a_subscript_named(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`X[i + 1]` -> `p = i + 1; X[p]`."""
    found = []
    for block, k, s in assignments(tree):
        for e in (x for part in _parts(s.value) for x in [part] if isinstance(x, ast.Subscript)):
            inner = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
            found += [(block, k, s, x) for x in inner if isinstance(x, ast.BinOp)]
    if not found:
        return False
    block, k, s, e = r.choice(found)
    name = fresh(tree, "p")
    replaced(s, e, ast.Name(name, ast.Load()))
    block.insert(k, ast.Assign([ast.Name(name, ast.Store())], e))
    return True


def a_choice_as_if(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`a if c else b` -> `t = b; if c: t = a; t`."""
    found = [(b, k, s, e) for b, k, s in assignments(tree) for e in _parts(s.value) if isinstance(e, ast.IfExp)]
    if not found:
        return False
    block, k, s, e = r.choice(found)
    name = fresh(tree, "t")
    replaced(s, e, ast.Name(name, ast.Load()))
    store = ast.Name(name, ast.Store())
    block[k:k] = [ast.Assign([store], e.orelse), ast.If(e.test, [ast.Assign([store], e.body)], [])]
    return True


def an_extreme_as_if(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`v = max(v, x)` -> `if x > v: v = x`."""
    found = []
    for block, k, s in assignments(tree):
        call = s.value
        if isinstance(s, ast.Assign) and isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            if call.func.id in ("min", "max", "maximum", "minimum") and len(call.args) == 2:
                here = ast.unparse(_target(s))
                others = [a for a in call.args if ast.unparse(a) != here]
                if len(others) == 1:
                    found.append((block, k, s, others[0], ">" if call.func.id.startswith("max") else "<"))
    if not found:
        return False
    block, k, s, x, sign = r.choice(found)
    here, there = ast.unparse(_target(s)), ast.unparse(x)
    block[k : k + 1] = parsed(f"if {there} {sign} {here}:\n    {here} = {there}")
    return True


def an_update_in_full(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`y += e` -> `y = e + y` or `y = y + e`."""
    found = [(b, k, s) for b, k, s in assignments(tree) if isinstance(s, ast.AugAssign)]
    if not found:
        return False
    block, k, s = r.choice(found)
    target = s.target
    read = deepcopy(target)
    read.ctx = ast.Load()  # type: ignore[attr-defined]
    turned = isinstance(s.op, ast.Add | ast.Mult) and r.random() < 0.5
    value = ast.BinOp(s.value, s.op, read) if turned else ast.BinOp(read, s.op, s.value)
    block[k] = ast.Assign([target], value)
    return True


def factors_swapped(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`a * b` -> `b * a`, `a + b` -> `b + a`."""
    found = [
        e for _, _, s in assignments(tree) for e in _parts(s.value)
        if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add | ast.Mult)
    ]  # fmt: skip
    if not found:
        return False
    e = r.choice(found)
    e.left, e.right = e.right, e.left
    return True


def a_product_distributed(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`y += (a + b) * c` -> `y += a * c + b * c`; `y += a + b` -> `y += a; y += b`."""
    found = []
    for block, k, s in assignments(tree):
        if isinstance(s, ast.AugAssign) and isinstance(s.op, ast.Add) and isinstance(s.value, ast.BinOp):
            if isinstance(s.value.op, ast.Add):
                found.append((block, k, s, None))
        for e in _parts(s.value):
            if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mult):
                for side in (e.left, e.right):
                    if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Add | ast.Sub):
                        found.append((block, k, s, (e, side)))  # type: ignore[arg-type]
    if not found:
        return False
    block, k, s, where = r.choice(found)
    if where is None:
        assert isinstance(s.value, ast.BinOp)
        block[k : k + 1] = [
            ast.AugAssign(deepcopy(s.target), ast.Add(), part) for part in (s.value.left, s.value.right)
        ]
        return True
    e, side = where
    other = e.right if side is e.left else e.left
    parts = [ast.BinOp(part, ast.Mult(), deepcopy(other)) for part in (side.left, side.right)]
    replaced(s, e, ast.BinOp(parts[0], side.op, parts[1]))
    return True


def a_loop_from_one(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i in range(N): f(i)` -> `for i in range(1, N + 1): f(i - 1)`."""
    found = loops(tree)
    if not found:
        return False
    _, _, loop, name, args = r.choice(found)
    low, high = (ast.Constant(0), args[0]) if len(args) == 1 else args
    one = ast.Constant(1)
    loop.iter.args = [ast.BinOp(low, ast.Add(), one), ast.BinOp(high, ast.Add(), one)]  # type: ignore[attr-defined]
    loop.body = renamed(loop.body, name, ast.BinOp(ast.Name(name, ast.Load()), ast.Sub(), one))
    return True


def a_loop_in_blocks(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i in range(N)` -> `for b in range(0, N, 32): for i in range(b, min(b + 32, N))`."""
    found = [x for x in loops(tree) if len(x[4]) == 1]
    if not found:
        return False
    block, k, loop, name, args = r.choice(found)
    outer, end = fresh(tree, "b"), ast.unparse(args[0])
    (new,) = parsed(
        f"for {outer} in range(0, {end}, {BLOCK}):\n    for {name} in range({outer}, min({outer} + {BLOCK}, {end})):\n"
        "        pass"
    )
    new.body[0].body = loop.body  # type: ignore[attr-defined]
    block[k] = new
    return True


def a_body_with_condition(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i in range(a, N)` -> `for i in range(N): if i >= a`."""
    found = [x for x in loops(tree) if len(x[4]) == 2]
    if not found:
        return False
    _, _, loop, name, (low, high) = r.choice(found)
    loop.iter.args = [high]  # type: ignore[attr-defined]
    test = ast.Compare(ast.Name(name, ast.Load()), [ast.GtE()], [low])
    loop.body = [ast.If(test, loop.body, [])]
    return True


def zeros_by_loops(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`Y = zeros((N, M), t)` -> `Y = empty((N, M), t)` and loops that clear it."""
    found = [
        (block, k, s)
        for block in blocks(tree)
        for k, s in enumerate(block)
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and isinstance(s.value.func, ast.Name)
        and s.value.func.id == "zeros" and isinstance(s.value.args[0], ast.Tuple)
    ]  # fmt: skip
    if not found:
        return False
    block, k, s = r.choice(found)
    assert isinstance(s.value, ast.Call) and isinstance(s.value.args[0], ast.Tuple)
    s.value.func = ast.Name("empty", ast.Load())
    iters, text, depth = [], "", 0
    for e in s.value.args[0].elts:
        iters.append(f"{fresh(tree, 'z')}_{depth}")
        text += f"{'    ' * depth}for {iters[-1]} in range({ast.unparse(e)}):\n"
        depth += 1
    text += f"{'    ' * depth}{ast.unparse(s.targets[0])}[{', '.join(iters)}] = 0\n"
    block[k + 1 : k + 1] = parsed(text)
    return True


def a_sum_in_place(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`s = 0.0; for k: s += e; Y[i] = s` -> `Y[i] = 0.0; for k: Y[i] += e`."""
    found = []
    for block in blocks(tree):
        for k, s in enumerate(block):
            if isinstance(s, ast.Assign) and isinstance(s.value, ast.Name) and isinstance(s.targets[0], ast.Subscript):
                found += [(block, j, k, s) for j in range(k) if _first(block[j]) == s.value.id]
    found = [x for x in found if not _used(x[0][x[2] + 1 :], x[3].value.id)]  # type: ignore[attr-defined]
    if not found:
        return False
    block, j, k, s = r.choice(found)
    name, target = s.value.id, s.targets[0]  # type: ignore[attr-defined]
    if _used([ast.Expr(target)], name):
        return False

    class InPlace(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            new = deepcopy(target)
            new.ctx = node.ctx  # type: ignore[attr-defined]
            return new if node.id == name else node

    block[j:k] = [InPlace().visit(x) for x in block[j:k]]
    del block[k]
    return True


def _first(s: ast.stmt) -> str | None:
    """The name that a plain assignment gives a value."""
    return s.targets[0].id if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) else None


def _used(body: Block, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for s in body for n in ast.walk(s))


def a_nest_apart(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i: A; B` -> `for i: A` and `for i: B`: right only where the parts do not share what is to be checked."""
    found = [x for x in loops(tree) if len(x[2].body) > 1]
    if not found:
        return False
    block, k, loop, _, _ = r.choice(found)
    at = r.randrange(1, len(loop.body))
    local = {
        n.id for s in loop.body[:at] for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if any(_used(loop.body[at:], name) for name in local):
        return False
    second = deepcopy(loop)
    loop.body, second.body = loop.body[:at], second.body[at:]
    block.insert(k + 1, second)
    return True


def loops_swapped(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i: for j: S` -> `for j: for i: S`, where the inner one's range does not depend on the outer one."""
    found = []
    for _, _, loop, name, args in loops(tree):
        inner = loop.body[0]
        if len(loop.body) == 1 and isinstance(inner, ast.For) and isinstance(inner.target, ast.Name):
            if not _used([ast.Expr(inner.iter)], name) and not any(_used([ast.Expr(a)], inner.target.id) for a in args):
                found.append((loop, inner))
    if not found:
        return False
    a, b = r.choice(found)
    a.target, b.target, a.iter, b.iter = b.target, a.target, b.iter, a.iter
    return True


def a_loop_backwards(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i in range(N): f(i)` -> `for i in range(N): f(N - 1 - i)`, by `range(N - 1, -1, -1)`."""
    found = [x for x in loops(tree) if len(x[4]) == 1]
    if not found:
        return False
    _, _, loop, _, (end,) = r.choice(found)
    loop.iter = ast.parse(f"range({ast.unparse(end)} - 1, -1, -1)", mode="eval").body
    return True


def two_loops_as_one(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i in range(N): for j in range(M)` -> `for p in range(N * M): i = p // M; j = p % M`."""
    found = []
    for block, k, loop, name, args in loops(tree):
        inner = next((x for x in loops(loop) if x[2] in loop.body and len(loop.body) == 1), None)
        if inner is not None and len(args) == len(inner[4]) == 1 and not _used([ast.Expr(inner[4][0])], name):
            found.append((block, k, loop, name, args[0], inner))
    if not found:
        return False
    block, k, _, name, end, (_, _, inner_loop, inner_name, inner_args) = r.choice(found)
    count, width = fresh(tree, "p"), ast.unparse(inner_args[0])
    (new,) = parsed(
        f"for {count} in range(({ast.unparse(end)}) * ({width})):\n    {name} = {count} // ({width})\n"
        f"    {inner_name} = {count} % ({width})"
    )
    new.body += inner_loop.body  # type: ignore[attr-defined]
    block[k] = new
    return True


def a_local_array_flat(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`T = empty((N, M), t)`, `T[i, j]` -> `T = empty((N * M,), t)`, `T[i * M + j]`, of arrays that are no results."""
    found = []
    for block in blocks(tree):
        for s in block:
            made = s.value if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) else None
            name = _first(s)
            if made is None or name is None or not (made.args and isinstance(made.args[0], ast.Tuple)):
                continue
            shape = made.args[0].elts
            uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
            own = [n for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
                   and n.value.id == name and isinstance(n.slice, ast.Tuple)]  # fmt: skip
            if len(shape) > 1 and len(uses) == len(own) + 1:
                found.append((made, shape, own))
    if not found:
        return False
    made, shape, own = r.choice(found)

    def row_major(at: list[ast.expr]) -> ast.expr:
        text = ast.unparse(at[0])
        for e, n in zip(at[1:], shape[1:], strict=True):
            text = f"({text}) * ({ast.unparse(n)}) + ({ast.unparse(e)})"
        return ast.parse(text, mode="eval").body

    for n in own:
        assert isinstance(n.slice, ast.Tuple)
        n.slice = row_major(n.slice.elts)
    size = " * ".join(f"({ast.unparse(n)})" for n in shape)
    made.args[0] = ast.Tuple([ast.parse(size, mode="eval").body], ast.Load())
    return True


def a_scalar_as_array(tree: ast.FunctionDef, r: random.Random) -> bool:
    """`for i in range(N): s = ...; ... s ...` -> `t = empty((N,), dtype)`, `t[i]` for `s`."""
    found = []
    for block, k, loop, name, args in loops(tree):
        if block is tree.body and len(args) == 1 and not any(isinstance(x, ast.While) for x in ast.walk(loop)):
            found += [(k, loop, name, args[0], s) for s in map(_first, loop.body) if s]
    found = [x for x in found if sum(_used([s], x[4]) for s in tree.body) == 1]
    if not found:
        return False
    k, loop, name, end, scalar = r.choice(found)
    array = fresh(tree, "w")

    class Indexed(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id != scalar:
                return node
            return ast.Subscript(ast.Name(array, ast.Load()), ast.Name(name, ast.Load()), node.ctx)

    loop.body = [Indexed().visit(s) for s in loop.body]
    tree.body[k:k] = parsed(f"{array} = empty(({ast.unparse(end)},), {_dtype(tree)})")
    return True


def _dtype(tree: ast.FunctionDef) -> str:
    """The first dtype that is written anywhere: most programs have one."""
    return next((n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in ("f32", "f64")), "f32")


SAME: Mapping[str, Change] = {f.__name__: f for f in (
    a_value_named, a_subscript_named, a_choice_as_if, an_extreme_as_if, an_update_in_full, factors_swapped,
    a_product_distributed, a_loop_from_one, a_loop_in_blocks, a_body_with_condition, zeros_by_loops, a_sum_in_place,
    two_loops_as_one, a_local_array_flat,
)}  # fmt: skip
"""Changes that keep what any program computes (but for the rounding of sums)."""

ORDER: Mapping[str, Change] = {f.__name__: f for f in (
    a_nest_apart, loops_swapped, a_loop_backwards, a_scalar_as_array,
)}  # fmt: skip
"""Changes of the order, which some programs do not bear: whoever asks compares results."""
