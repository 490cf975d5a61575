"""Functions that call themselves, as loops.

A function whose calls of itself are its last act goes on with other operands: one loop over them. One that uses the
result of its single call (`n * f(n - 1)`) takes two: the first goes down and keeps the operands of each level, the
second comes back up and computes each level's result from the one below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.graph_driver.functional.syntax import Call, Expr, Fn, If, Let, Match, Name
from polyc.graph_driver.functional.values import Answer, Closure, Value, Values, Weak, children, mentions, rebuilt
from polyc.graph_driver.functional.writer import Writer
from polyc.graph_driver.stablehlo.sink import Val
from polyc.poly.dtypes import bool_, i64
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class _Step:
    """One level: whether the function calls itself, with which operands, and else its result. All are tensors."""

    again: Val
    operands: list[Val]
    result: list[Val]

    @property
    def tensors(self) -> list[Val]:
        return [self.again, *self.operands, *self.result]


def as_loop(w: Writer, c: Closure, given: Sequence[Value], e: Expr) -> Value:
    """The result of a recursive function. Raises `ModelError`: no loop computes it."""
    if c.fn.result is None or any(t is None for _, t in c.fn.parameters):
        raise w.refusal(c.fn, f"{c.name} calls itself: its parameters and its result (->) need types")
    zeros = w.zeros(c.fn.result)
    recursion = _Recursion(w, c, list(given), zeros)
    made = recursion.last_act(e) if tail(c.fn.body, c.name) else recursion.down_and_up(e)
    return rebuilt(zeros, iter(made))


def tail(e: Expr, name: str) -> bool:
    """Whether every call of `name` is the last thing that an expression does."""
    if isinstance(e, Let):
        return not mentions(e.value, name) and tail(e.body, name)
    if isinstance(e, If):
        return not mentions(e.condition, name) and tail(e.then, name) and tail(e.other, name)
    if isinstance(e, Match):
        return not mentions(e.value, name) and all(tail(body, name) for _, body in e.cases)
    if isinstance(e, Call) and e.function == Name(e.function.line, name):
        return not any(mentions(o, name) for o in e.operands)
    return not mentions(e, name)


class _Recursion:
    def __init__(self, w: Writer, c: Closure, given: list[Value], zeros: Value) -> None:
        self.w, self.c, self.given, self.zeros = w, c, given, zeros

    # ---- one loop ----

    def last_act(self, e: Expr) -> list[Val]:
        """Operands and result are the loop's state."""
        w = self.w
        first, result = self.flat(self.given, e), w.flat(self.zeros, e)
        states = self.fresh([*first, *result])

        def write() -> list[Val]:
            step = self.step(self.c.fn.body, self.inside(states[: len(first)]), states[: len(first)])
            return step.tensors

        return self.loop(None, [*first, *result], states, write, 0)[len(first) :]

    def step(self, e: Expr, values: Values, now: list[Val]) -> _Step:
        """What one level does; `now` are its operands."""
        w, name = self.w, self.c.name
        if isinstance(e, Let):
            return self.step(e.body, w.bound(e, values), now)
        if isinstance(e, Match):
            body, inner = w.case(e, values)
            return self.step(body, inner, now)
        if isinstance(e, If) and mentions(e, name):
            return self.chosen(e, values, now, lambda body: self.step(body, values, now))
        if isinstance(e, Call) and e.function == Name(e.function.line, name):
            following = self.operands(e, values)
            return _Step(self.truth(True), following, w.flat(self.zeros, e))
        value = w.typed(w.value(e, values), self.c.fn.result, e)
        return _Step(self.truth(False), now, w.flat(value, e))

    def chosen(self, e: If, values: Values, now: list[Val], step: Callable[[Expr], _Step]) -> _Step:
        """The step of one of two branches."""
        w = self.w
        condition = w.value(e.condition, values)
        if isinstance(condition, Weak):
            return step(e.then if condition.value else e.other)
        again, *rest = w.either(e, condition, lambda _: step(e.then).tensors, lambda _: step(e.other).tensors)
        return _Step(again, rest[: len(now)], rest[len(now) :])

    # ---- two loops ----

    def down_and_up(self, e: Expr) -> list[Val]:
        """Operands of all levels first, then results from the last level to the first."""
        w, body = self.w, self.c.fn.body
        first = self.flat(self.given, e)
        states = self.fresh(first)

        def down() -> list[Val]:
            step = self.descent(body, self.inside(states), states)
            return [*step.tensors, *states]  # the operands of this level are kept

        kept = self.loop(None, first, states, down, len(first))[len(first) :]
        size = w.sink.node("Shape", [kept[0]], (i64, (1,)), start=0, end=1)
        levels = w.sink.reshape(size, ())
        result = w.flat(self.zeros, e)
        below, number = self.fresh(result), Val(w.sink.fresh(), i64, ())

        def up() -> list[Val]:
            one = w.sink.integers([1])
            last = w.sink.node("Sub", [levels, w.sink.reshape(one, ())], (i64, ()))
            at = w.sink.node("Sub", [last, number], (i64, ()))
            own = [w.sink.node("Gather", [k, at], (f.dtype, f.shape), axis=0) for k, f in zip(kept, first, strict=True)]
            values = {**self.inside(own), self.c.name: Answer(rebuilt(self.zeros, iter(below)))}
            made = w.typed(w.value(body, values), self.c.fn.result, e)
            return [self.truth(True), *w.flat(made, e)]

        return self.loop(levels, result, below, up, 0, number)

    def descent(self, e: Expr, values: Values, now: list[Val]) -> _Step:
        """Whether a level calls the function, and with which operands; without the result."""
        w, name = self.w, self.c.name
        if not mentions(e, name):
            return _Step(self.truth(False), now, [])
        if isinstance(e, Let):
            if mentions(e.value, name) and not isinstance(e.value, Fn):
                if mentions(e.body, name):
                    raise self.twice(e)
                return self.descent(e.value, values, now)
            return self.descent(e.body, w.bound(e, values), now)
        if isinstance(e, Match):
            body, inner = w.case(e, values)
            return self.descent(body, inner, now)
        if isinstance(e, If):
            if mentions(e.condition, name):
                raise w.refusal(e, f"{name} calls itself to decide whether to call itself: that is no loop")
            return self.chosen(e, values, now, lambda body: self.descent(body, values, now))
        if isinstance(e, Call) and e.function == Name(e.function.line, name):
            if any(mentions(o, name) for o in e.operands):
                raise self.twice(e)
            return _Step(self.truth(True), self.operands(e, values), [])
        using = [x for x in children(e) if mentions(x, name)]
        if len(using) > 1 or isinstance(e, Fn | Name):
            raise self.twice(e)
        return self.descent(using[0], values, now)

    def twice(self, e: Expr) -> Exception:
        name = self.c.name
        return self.w.refusal(e, f"{name} needs more than one result of its own, or is a value: that is no loop")

    # ---- what both need ----

    def operands(self, e: Call, values: Values) -> list[Val]:
        """The operands of a call of the function itself, of its parameters' types."""
        w, parameters = self.w, self.c.fn.parameters
        if len(e.operands) != len(parameters):
            raise w.refusal(e, f"the function takes {len(parameters)} operands, not {len(e.operands)}")
        made = [w.typed(w.value(o, values), t, e) for o, (_, t) in zip(e.operands, parameters, strict=True)]
        return self.flat(made, e)

    def flat(self, values: Sequence[Value], e: Expr) -> list[Val]:
        return self.w.flat(tuple(values), e)

    def inside(self, tensors: Sequence[Val]) -> dict[str, Value]:
        """The values in the body, for operands of one level."""
        given = rebuilt(tuple(self.given), iter(tensors))
        assert isinstance(given, tuple)
        return self.w.inside(self.c, given)

    def truth(self, value: bool) -> Val:
        return self.w.tensor(Weak(value), self.c.fn, bool_)

    def fresh(self, like: Sequence[Val]) -> list[Val]:
        return [Val(self.w.sink.fresh(), v.dtype, v.shape) for v in like]

    def loop(
        self, rounds: Val | None, first: list[Val], states: list[Val], write: Callable[[], list[Val]], kept: int,
        number: Val | None = None,
    ) -> list[Val]:  # fmt: skip
        """ONNX's Loop; the last `kept` results of a round are kept of all rounds."""
        w = self.w
        number = number or Val(w.sink.fresh(), i64, ())
        going = Val(w.sink.fresh(), bool_, ())
        body, results = w.subgraph([number, going, *states], write)
        all_rounds = results[len(results) - kept :]
        kinds = [(v.dtype, v.shape) for v in [*first, *all_rounds]]  # (of what is kept there is one more axis)
        return w.sink.several("Loop", [rounds, self.truth(True), *first], kinds, body=body)
