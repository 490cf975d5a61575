"""`while`, `break` and `continue` as structure: a statement list after a jump becomes conditional.

Where a branch of an `if` always jumps, the statements after the `if` move into the other branch, so that the
condition itself guards them. Where it only may, they stand in an `Unless` of the labels that may have been left.
What a label means (a domain, a flag, nothing at run time) is decided in `leaving`.

    for i in ...:                      for i in ...:
        if a:                              if a:
            continue          =>               pass
        rest                               else:
                                               rest
"""

from __future__ import annotations

import ast
import copy
from weakref import WeakKeyDictionary

from polyc.poly.records import dataclass


@dataclass(eq=False)
class Label:
    """Where a jump leads: behind a loop (`break`) or to the end of its body (`continue`)."""

    word: str
    line: int


class Leave(ast.stmt):
    """The jump itself; nothing stands behind it."""

    _fields = ()

    def __init__(self, label: Label, at: ast.stmt) -> None:
        super().__init__()
        self.label = label
        ast.copy_location(self, at)


class Unless(ast.stmt):
    """`body`, where none of the labels has been left."""

    _fields = ("body",)

    def __init__(self, labels: tuple[Label, ...], body: list[ast.stmt]) -> None:
        super().__init__()
        self.labels, self.body = labels, body
        ast.copy_location(self, body[0])


_known: WeakKeyDictionary[ast.FunctionDef, list[ast.stmt]] = WeakKeyDictionary()


class _For(ast.For):
    """A `for` whose body has labels (see `leaves`, `next_of`)."""

    leaves: tuple[Label, ...]
    next: Label | None


class _While(ast.While):
    """A `while` whose body has labels."""

    leaves: tuple[Label, ...]
    next: Label | None


def structured(function: ast.FunctionDef) -> list[ast.stmt]:
    """A function's statements with the jumps of all its loops as `Leave` and `Unless`: always the same objects."""
    found = _known.get(function)
    if found is None:
        found = _known[function] = _block(function.body, None, None)
    return found


def leaves(loop: ast.For | ast.While) -> tuple[Label, ...]:
    """The labels behind a structured loop: its `break`, the end of its test."""
    return loop.leaves if isinstance(loop, (_For, _While)) else ()


def next_of(loop: ast.For | ast.While) -> Label | None:
    """The label of a structured loop's `continue`, where one is left."""
    return loop.next if isinstance(loop, (_For, _While)) else None


def _block(body: list[ast.stmt], out: Label | None, on: Label | None) -> list[ast.stmt]:
    """`out` and `on` are the labels of the innermost loop's `break` and `continue`."""
    done: list[ast.stmt] = []
    for position, s in enumerate(body):
        if isinstance(s, ast.Break) and out is not None:
            return [*done, Leave(out, s)]
        if isinstance(s, ast.Continue) and on is not None:
            return [*done, Leave(on, s)]
        if isinstance(s, (ast.For, ast.While)):
            loop, end = _loop(s)
            other = _block(s.orelse, out, on)
            left = _left_in(other)
            done += [loop, *(_unless((end,), other) if end in leaves(loop) else other)]
            if left:
                return [*done, *_unless(left, _block(body[position + 1 :], out, on))]
            continue
        if not isinstance(s, ast.If):
            done.append(s)
            continue
        then, other = _block(s.body, out, on), _block(s.orelse, out, on)
        rest = body[position + 1 :]
        left = _left_in([*then, *other])
        if left and rest:
            after = _block(rest, out, on)
            if always_leaves(then):
                other = [*other, *_unless(_left_in(other), after)] if not always_leaves(other) else other
            elif always_leaves(other):
                then = [*then, *_unless(_left_in(then), after)]
            else:
                return [*done, _if(s, then, other), *_unless(left, after)]
            return [*done, _if(s, then, other)]
        done.append(_if(s, then, other))
    return done


def _if(s: ast.If, then: list[ast.stmt], other: list[ast.stmt]) -> ast.If:
    if then == s.body and other == s.orelse:
        return s
    new = copy.copy(s)
    new.body, new.orelse = then, other
    return new


def _unless(labels: tuple[Label, ...], body: list[ast.stmt]) -> list[ast.stmt]:
    return [Unless(labels, body)] if labels and body else body


def _loop(s: ast.For | ast.While) -> tuple[ast.For | ast.While, Label]:
    """The loop without its `else`, and the label of its `break`."""
    out, on = Label("break", s.lineno), Label("continue", s.lineno)
    body = _without_last(_block(s.body, out, on), on)
    if isinstance(s, ast.While) and not (isinstance(s.test, ast.Constant) and s.test.value):
        end = Label("break", s.lineno) if s.orelse else out  # the `else` is for this end only
        body = [ast.copy_location(ast.If(s.test, body or [_nothing(s)], [Leave(end, s)]), s)]
    left = _left_in(body)
    if body == s.body and not s.orelse:
        return s, out
    ends = tuple(label for label in left if label is not on)
    body = [Unless(ends, body)] if ends else body or [_nothing(s)]
    new = _For(s.target, s.iter, body, []) if isinstance(s, ast.For) else _While(s.test, body, [])
    new.leaves, new.next = ends, on if on in left else None
    return ast.copy_location(new, s), out


def _nothing(at: ast.stmt) -> ast.Pass:
    return ast.copy_location(ast.Pass(), at)


def _without_last(body: list[ast.stmt], on: Label) -> list[ast.stmt]:
    """The body of a loop without the `continue`s behind which nothing stands."""
    if not body:
        return body
    *before, last = body
    if isinstance(last, Leave) and last.label is on:
        return _without_last(before, on)
    if isinstance(last, ast.If):
        then, other = _without_last(last.body, on), _without_last(last.orelse, on)
        last = _if(last, then or [_nothing(last)], other)
    elif isinstance(last, Unless):
        inner = _without_last(last.body, on)
        if not inner:
            return before
        last = Unless(last.labels, inner)
    return [*before, last]


def _left_in(body: list[ast.stmt]) -> tuple[Label, ...]:
    """The labels that may be left in these statements, of this loop only."""
    found: dict[Label, None] = {}
    for s in body:
        if isinstance(s, Leave):
            found[s.label] = None
        elif isinstance(s, ast.If):
            found |= dict.fromkeys(_left_in([*s.body, *s.orelse]))
        elif isinstance(s, Unless):
            found |= dict.fromkeys(_left_in(s.body))
    return tuple(found)


def always_leaves(body: list[ast.stmt]) -> bool:
    """Whether the end of a structured statement list is a jump in every case."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return always_leaves(last.body) and always_leaves(last.orelse)
    return isinstance(last, Leave)
