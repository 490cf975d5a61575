"""The section of docs/schedules.md on schedule programs: what they say of themselves, and a tree that each makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from polyc import dims, empty, f32, op
from polyc.scheduler.programs.keep_rows import keep_rows
from polyc.scheduler.programs.scan_panels import scan_panels

M, N = dims("M N")


@op
def sums(A: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        Y[i, 0] = A[i, 0]
        for j in range(1, N):
            Y[i, j] = Y[i, j - 1] + A[i, j]
    return Y


@op
def shares(A: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        s = 0.0
        for j in range(N):
            s += A[i, j]
        for j in range(N):
            Y[i, j] = A[i, j] / s
    return Y


@dataclass(frozen=True)
class Example:
    """`program` as `text` calls it on the schedule `s` of an operator."""

    program: Callable[..., Any]
    operator: Any
    text: str


EXAMPLES = (
    Example(scan_panels, sums, 'scan_panels(s, "i", ["j"], rows=32, panel=32)'),
    Example(keep_rows, shares, 'keep_rows(s.bind("i", "block.x"), "i", ["A"], where="N <= 4096")'),
)

INTRO = """\
## Programs

A schedule program is a function from a schedule to a schedule that takes several of the steps above: what the
automatic schedule does with a kind of nest, to be used by hand and combined. Its steps are in the trace as if they had
been written one by one, so `s.program()` shows them, and each of them is checked; `s.in_one_check(lambda s: ...)`
checks the result only. They are in `polyc.scheduler.programs`."""


def programs() -> Iterator[str]:
    """The lines of the section."""
    yield from INTRO.splitlines()
    for example in EXAMPLES:
        yield from ("", f"### `{example.program.__name__}`", "", "```text")
        yield from (inspect.getdoc(example.program) or "").splitlines()
        yield from ("```", "", "```python", *inspect.getsource(example.operator.fn).rstrip().splitlines(), "```", "")
        done = made(example)
        yield from (f"`{example.text}` makes", "", "```text", *(x.rstrip() for x in str(done).splitlines()), "```", "")
        yield from ("in these steps:", "", "```python", *done.program(example.operator.name).splitlines(), "```")


def made(example: Example) -> Any:
    """The schedule that the example makes."""
    names = {"s": example.operator.scop().schedule(), example.program.__name__: example.program}
    return eval(example.text, names)
