"""Statements of a hybrid-script function."""

from __future__ import annotations

import ast
from typing import Any

from polyc.poly.expr import Expr, loads
from polyc.poly.records import dataclass

from .builder import Condition, Guard
from .errors import DslError
from .evaluate import OPERATORS, binary, evaluate, is_symbolic, native, settled, subscripts
from .frame import Frame, Version
from .inline import define
from .jumps import Leave, Unless, always_leaves, leaves, next_of
from .leaving import arrive, enter, flagged, guard_of, has_left, leave
from .liveness import assigned
from .locals import assign, hide, is_scalar, is_shared, keep, settle
from .loops import execute_for, execute_while
from .values import ArrayValue, Sym, TypeProblem, cast, choose, describe, negate, to_sym, truth


@dataclass(frozen=True, slots=True)
class Returned:
    """A `return` was reached."""

    value: Any
    node: ast.AST


def execute(frame: Frame, body: list[ast.stmt]) -> Returned | None:
    """Translate statements in order, up to a `return`."""
    for position, statement in enumerate(body):
        if isinstance(statement, ast.If):
            out, finished = _if(frame, statement, body[position + 1 :])
            if out is not None or finished:
                return out
            continue
        if isinstance(statement, ast.Return):
            return _return(frame, statement)
        if isinstance(statement, (ast.For, ast.While)):
            out = _loop(frame, statement)
            if out is not None:
                return out
            continue
        handler = _HANDLERS.get(type(statement))
        if handler is None:
            raise _refusal(frame, statement)
        try:
            handler(frame, statement)
        except TypeProblem as problem:
            raise frame.error(statement, *problem.args) from None
    return None


# ---- assignments ---------------------------------------------------------------------------


def _assign(frame: Frame, node: ast.Assign) -> None:
    value = _named_value(frame, node.targets[0], node.value)
    if isinstance(value, Sym) and len(node.targets) > 1:
        value = keep(frame, value, node)
    for target in node.targets:
        bind(frame, target, value, node)


def _named_value(frame: Frame, target: ast.expr, node: ast.expr) -> Any:
    """The value assigned to `target`; arrays that it creates take the target's name."""
    many = (ast.Tuple, ast.List)
    if isinstance(target, many) and isinstance(node, many) and len(target.elts) == len(node.elts):
        if not any(isinstance(e, ast.Starred) for e in [*target.elts, *node.elts]):
            return tuple(_named_value(frame, t, v) for t, v in zip(target.elts, node.elts))
    frame.hint_name = target.id if isinstance(target, ast.Name) else "t"
    frame.whole = node
    value = evaluate(frame, node)
    frame.hint_name, frame.whole = "t", None
    return value


def bind(frame: Frame, target: ast.expr, value: Any, node: ast.stmt) -> None:
    """Assign `value` to a target: a name, an array element, or a tuple of them."""
    if isinstance(target, ast.Name):
        assign(frame, target.id, value, node)
    elif isinstance(target, ast.Subscript):
        _store(frame, target, value, node)
    elif isinstance(target, (ast.Tuple, ast.List)):
        pairs = _unpack(frame, target, value)
        changed: set[str] = set()
        for n, (part, v) in enumerate(pairs):  # Python evaluates the whole right side first
            if isinstance(v, Sym) and any(load.array in changed for load in loads(v.expr)):
                pairs[n] = part, keep(frame, v, node)
            changed |= _changed_by(frame, part)
        for part, v in pairs:
            bind(frame, part, v, node)
    else:
        raise frame.error(target, "this cannot be assigned to", "assign to a name or to an array element A[i]")


def _changed_by(frame: Frame, target: ast.expr) -> set[str]:
    """The array that an assignment to `target` stores to, unless it is a new one."""
    if isinstance(target, ast.Subscript):
        base = evaluate(frame, target.value)
        return {base.name} if isinstance(base, ArrayValue) else set()
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*(_changed_by(frame, t) for t in target.elts))
    current = frame.env.get(target.id) if isinstance(target, ast.Name) else None
    if isinstance(current, Version) and current.array is not None and is_shared(frame, current):
        return {current.array.name}
    return set()


def _unpack(frame: Frame, target: ast.Tuple | ast.List, value: Any) -> list[tuple[ast.expr, Any]]:
    if isinstance(value, (Sym, ArrayValue)):
        raise frame.error(target, f"{describe(value)} cannot be unpacked", "one name, or a tuple on the right")
    values = [settled(frame, v, target) for v in native(frame, target, list, value)]
    stars = [n for n, e in enumerate(target.elts) if isinstance(e, ast.Starred)]
    count = len(target.elts)
    if len(values) < count - len(stars) or (not stars and len(values) != count):
        raise frame.error(
            target, f"{count} names for {len(values)} values", "give one name for each value on the right"
        )
    if not stars:
        return list(zip(target.elts, values))
    at, extra = stars[0], len(values) - (count - 1)
    middle = target.elts[at]
    assert isinstance(middle, ast.Starred)
    grouped = [*values[:at], values[at : at + extra], *values[at + extra :]]
    names = [*target.elts[:at], middle.value, *target.elts[at + 1 :]]
    return list(zip(names, grouped))


def bind_static(frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind the variables of a run-time loop or a comprehension: only names and tuples of names."""
    if isinstance(target, ast.Name):
        frame.env[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part, v in _unpack(frame, target, value):
            bind_static(frame, part, v)
    else:
        raise frame.error(target, "a loop's target must be names", "write for i, j in ...")


def _store(frame: Frame, target: ast.Subscript, value: Any, node: ast.stmt) -> None:
    base = evaluate(frame, target.value)
    if not isinstance(base, ArrayValue):
        raise frame.error(target, f"{describe(base)} cannot be assigned to by subscript", "only array elements can")
    array = writable(frame, base, target)
    index = subscripts(frame, array, target)
    if isinstance(value, ArrayValue) and value.rank:
        raise frame.error(node, f"the whole array {value.name} is assigned to an element", "write a loop")
    try:
        stored = cast(to_sym(value).expr, array.dtype)
    except TypeProblem as problem:
        raise frame.error(node, *problem.args) from None
    frame.builder.store(array, index, stored, frame.span(node))


def writable(frame: Frame, array: ArrayValue, node: ast.Subscript) -> ArrayValue:
    """Raises `DslError` for an array that must not change."""
    if array.kind == "in":
        name = ast.unparse(node.value)  # in an inlined operator the array has the caller's name
        hint = f"annotate it as inout(...), or write into a result made by empty({name}.shape, ...)"
        raise frame.error(node, f"{name} is an input and cannot be assigned to", hint)
    return array


def _augmented(frame: Frame, node: ast.AugAssign) -> None:
    op = OPERATORS.get(type(node.op))
    if op is None:
        raise frame.error(node, "'@=' is not part of the language", "write the product as loops")
    if isinstance(node.target, ast.Attribute):
        raise frame.error(node.target, "this cannot be assigned to", "assign to a name or to an array element A[i]")
    reading = ast.copy_location(_as_load(node.target), node.target)
    old = evaluate(frame, reading)
    value = binary(frame, op, old, evaluate(frame, node.value), node)
    if isinstance(node.target, ast.Name):
        assign(frame, node.target.id, value, node)
    else:
        assert isinstance(node.target, ast.Subscript)
        _store(frame, node.target, value, node)


def _as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


# ---- control -------------------------------------------------------------------------------


def _if(frame: Frame, node: ast.If, rest: list[ast.stmt]) -> tuple[Returned | None, bool]:
    """An `if`; the flag says that the statements after it are dealt with too."""
    value = evaluate(frame, node.test)
    if isinstance(value, ArrayValue):
        raise frame.error(
            node.test, f"the array {value.name} is used as a condition", f"test an element: {value.name}[i]"
        )
    if not is_symbolic(value):
        return execute(frame, node.body if native(frame, node.test, bool, value) else node.orelse), False
    try:
        condition = truth(value).expr
    except TypeProblem as problem:
        raise frame.error(node.test, *problem.args) from None
    if any(isinstance(n, ast.Return) for n in ast.walk(node)):
        return _returning_if(frame, node, condition, rest), True
    _branches(frame, node, condition)
    return None, False


def _branches(frame: Frame, node: ast.If, condition: Expr) -> None:
    """Both branches of a run-time condition, under their guards."""
    for jump, other, when in ((node.orelse, node.body, negate(condition)), (node.body, node.orelse, condition)):
        if flagged(frame, jump):  # the flag is the condition that guards the rest
            assert isinstance(jump[0], Leave)
            leave(frame, jump[0], when)
            _under(frame, node, ((guard_of(frame, (jump[0].label,)), other),))
            return
    guards = guards_of(frame, condition)
    mark, flags = frame.builder.mark(), frame.program.flags
    _under(frame, node, ((guards[0], node.body), (guards[1], node.orelse)))
    save_if_needed(frame, guards[2], mark, node.test, flags=flags)
    if guards[2] is not None and guards[2].saved is None and frame.builder.loses_an_error(guards[2], mark):
        frame.builder.save(guards[2], mark, frame.span(node.test))


def _unless(frame: Frame, node: Unless) -> None:
    """Statements behind others that may have left a label."""
    if not has_left(frame, node.labels):
        guards = guard_of(frame, node.labels)
        if guards:
            _under(frame, node, ((guards, node.body), ((), [])))
        else:
            execute(frame, node.body)


def _under(frame: Frame, node: ast.stmt, branches: tuple[tuple[tuple[Guard, ...], list[ast.stmt]], ...]) -> None:
    """Statement lists of which a run executes one, each under its guards. What those that do not end by a jump assign
    is assigned afterwards."""
    program = frame.program
    changed = frozenset[str]().union(*(assigned(body) for _, body in branches))
    exposed = frozenset[str]().union(*(frame.liveness.exposed(body) for _, body in branches))
    carried = changed & (exposed | frame.liveness.after[node])
    fixed = settle(frame, carried, node)
    outer_pinned = frame.pinned
    frame.pinned |= fixed
    before = program.assigned
    after: list[frozenset[int]] = []
    private = changed - carried
    hidden = hide(frame, private)
    for guards, body in branches:
        hide(frame, private)
        program.assigned = before
        with frame.builder.guarded(guards):
            execute(frame, body)
        if not always_leaves(body):
            after.append(program.assigned)
    hide(frame, private)
    frame.env.update(hidden)
    program.assigned = frozenset.intersection(*after) if after else before
    frame.pinned = outer_pinned


def save_if_needed(
    frame: Frame, condition: Condition | None, mark: Any, test: ast.expr, used_later: bool = False, flags: int = 0
) -> None:
    """Keep a condition as it is before what stands under it: where that changes it, and where a loop inside may be
    left, because the loop's end includes that it is not come to at all."""
    if condition is None:
        return
    if frame.program.flags > flags or frame.builder.needs_saving(condition, mark, used_later):
        frame.builder.save(condition, mark, frame.span(test))


def guards_of(frame: Frame, condition: Expr) -> tuple[tuple[Guard, ...], tuple[Guard, ...], Condition | None]:
    """Guards of the two branches, and the data-dependent condition when there is one."""
    affine, data = frame.builder.split(condition)
    if data is None:
        return (Guard(condition),), (Guard(negate(condition)),), None
    shared = Condition(condition, data)
    then = (*(Guard(a) for a in affine), Guard(condition=shared))
    return then, (Guard(condition=shared, holds=False),), shared


def _returning_if(frame: Frame, node: ast.If, condition: Expr, rest: list[ast.stmt]) -> Returned | None:
    """A condition that decides what a helper returns: both ways to the end, then a choice."""
    if frame.is_operator or frame.inside_loop:
        where = "a run-time condition" if frame.is_operator else "a loop"
        place = next(n for n in ast.walk(node) if isinstance(n, ast.Return))
        raise frame.error(place, f"return inside {where}", "return once, at the end of the operator")
    guards = guards_of(frame, condition)
    mark, flags = frame.builder.mark(), frame.program.flags
    env, before = dict(frame.env), frame.program.assigned
    found: list[Returned | None] = []
    for guard, branch in ((guards[0], node.body), (guards[1], node.orelse)):
        frame.env, frame.program.assigned = dict(env), before
        with frame.builder.guarded(guard):
            found.append(execute(frame, [*branch, *rest]))
    frame.env, frame.program.assigned = env, before
    save_if_needed(frame, guards[2], mark, node.test, used_later=True, flags=flags)
    if found[0] is None or found[1] is None:
        hint = "give a value in every case"
        raise frame.error(node, f"{frame.name} returns a value in one case only", hint, word="if")
    a, b = found[0].value, found[1].value
    if not (is_scalar(a) and is_scalar(b)):
        raise frame.error(
            node, "a run-time condition decides between things that are no scalars", "return scalars", "if"
        )
    chosen = guards[2].saved if guards[2] is not None and guards[2].saved is not None else condition
    return Returned(choose(Sym(chosen, False), a, b), node)


def _loop(frame: Frame, node: ast.For | ast.While) -> Returned | None:
    out: list[Returned] = []
    ends, next_one = leaves(node), () if (label := next_of(node)) is None else (label,)

    def body() -> None:
        if out:
            return
        statements = node.body
        if ends:
            assert isinstance(statements[0], Unless)
            statements = statements[0].body
        with frame.builder.guarded(guard_of(frame, ends)):
            enter(frame, next_one, node)
            returned = execute(frame, statements)
            arrive(frame, next_one)
        if returned is not None:
            if frame.inside_loop:
                raise frame.error(returned.node, "return inside a loop", "return once, after the loops")
            out.append(returned)

    place = node.test if isinstance(node, ast.While) else node.iter
    try:
        if isinstance(node, ast.While):
            execute_while(frame, node, body)
        else:
            execute_for(frame, node, body)
    except TypeProblem as problem:
        raise frame.error(place, *problem.args) from None
    return out[0] if out else None


def _return(frame: Frame, node: ast.Return) -> Returned:
    if frame.inside_loop:
        raise frame.error(node, "return inside a loop", "return once, after the loops", word="return")
    if frame.is_operator and frame.inside_condition:
        hint = "return once, at the end of the operator"
        raise frame.error(node, "return inside a run-time condition", hint, word="return")
    frame.whole = node.value
    value = None if node.value is None else evaluate(frame, node.value)
    frame.whole = None
    return Returned(value, node)


# ---- small statements ----------------------------------------------------------------------


def _expression(frame: Frame, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant):
        return  # a docstring
    frame.whole = node.value
    evaluate(frame, node.value)
    frame.whole = None
    if not isinstance(node.value, ast.Call):
        raise frame.error(node, "this expression has no effect", "assign its value, or remove it")


def _assert(frame: Frame, node: ast.Assert) -> None:
    value = evaluate(frame, node.test)
    if is_symbolic(value):
        hint = "assert what is known at specialisation only: sizes that are numbers, constants, dtypes"
        raise frame.error(node.test, "an assertion about run-time values", hint)
    if not native(frame, node.test, bool, value):
        message = "assertion failed" if node.msg is None else f"assertion failed: {evaluate(frame, node.msg)}"
        raise frame.error(node, message, "the operator itself refuses these sizes or constants")


def _raise(frame: Frame, node: ast.Raise) -> None:
    if frame.inside_condition:
        raise frame.error(node, "raise under a run-time condition", "raise only for what is known at specialisation")
    error = evaluate(frame, node.exc) if node.exc is not None else "raise"
    raise DslError(f"{type(error).__name__}: {error}", frame.span(node), "the operator itself refuses these arguments")


def _annotated(frame: Frame, node: ast.AnnAssign) -> None:
    hint = "drop the annotation; to fix a type, convert the value, as in s = f32(0.0)"
    raise frame.error(node.annotation, "local names have no annotations in the language", hint)


def _define(frame: Frame, node: ast.FunctionDef) -> None:
    if node.decorator_list:
        raise frame.error(node.decorator_list[0], "a decorator on an inner function", "define it outside the operator")
    assign(frame, node.name, define(frame, node), node)


_HANDLERS: dict[type[ast.stmt], Any] = {
    ast.FunctionDef: _define,
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.AnnAssign: _annotated,
    ast.Expr: _expression,
    ast.Assert: _assert,
    ast.Raise: _raise,
    ast.Pass: lambda frame, node: None,
    Leave: leave,
    Unless: _unless,
}

_REFUSED: dict[type[ast.stmt], tuple[str, str]] = {
    ast.Try: ("try", "operators raise no exceptions: test with 'if'"),
    ast.With: ("with", "open files and contexts outside the operator"),
    ast.ClassDef: ("class", "define classes outside the operator"),
    ast.AsyncFunctionDef: ("async", "operators are ordinary functions"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("from", "import at the top of the file"),
    ast.Global: ("global", "pass arrays as parameters and return results"),
    ast.Nonlocal: ("nonlocal", "pass arrays as parameters and return results"),
    ast.Delete: ("del", "names go away by themselves"),
    ast.Match: ("match", "use 'if' and 'elif'"),
}


def _refusal(frame: Frame, node: ast.stmt) -> DslError:
    word, hint = _REFUSED.get(type(node), (type(node).__name__.lower(), "see the language in docs"))
    return frame.error(node, f"'{word}' is not part of the language", hint, word=word)
