"""Reading the cases, and polyc's answers to them."""

from __future__ import annotations

import itertools
import linecache
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polyc
from polyc.poly.errors import IllegalSchedule
from polyc.poly.scop import Scop

CASES = Path(__file__).parent / "cases"
Case = Mapping[str, Any]


def names() -> list[str]:
    """All cases, by file name."""
    return sorted(p.stem for p in CASES.glob("*.toml"))


def load(name: str) -> Case:
    """One case."""
    with open(CASES / f"{name}.toml", "rb") as f:
        return tomllib.load(f)


def scop(case: Case) -> Scop:
    """polyc's model of the program."""
    text = f"from polyc import empty, f64, i64, inout, max, min, dims\n{_dims(case)}\n{case['program']}"
    name = f"<gauntlet {case['title']}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {}
    exec(compile(text, name, "exec"), scope)
    operator = polyc.op(reassociate=case.get("reassociate", True))(scope["program"])
    return operator.scop()


def _dims(case: Case) -> str:
    return "\n".join(f'{n} = dims("{n}")' for n in case["sizes"])


@dataclass(frozen=True)
class Answer:
    """polyc's verdict on the last step. `ms` is the time of the check alone (CPU)."""

    verdict: str
    ms: float
    error: IllegalSchedule | None = None


def answer(case: Case) -> Answer:
    """Apply the steps (all but the last must be accepted)."""
    schedule = scop(case).schedule()
    *before, last = case["steps"]
    for step in before:
        schedule = _do(schedule, step)
    start = time.thread_time()
    try:
        _do(schedule, last)
    except IllegalSchedule as error:
        return Answer("refuse", 1e3 * (time.thread_time() - start), error)
    return Answer("accept", 1e3 * (time.thread_time() - start))


def _do(schedule: Any, step: Mapping[str, Any]) -> Any:
    args = {k: v for k, v in step.items() if k != "do"}
    return getattr(schedule, step["do"])(**args)


def instance_text(x: tuple[str, tuple[int, ...]]) -> str:
    """`S0[1, 2]`."""
    return f"{x[0]}[{', '.join(map(str, x[1]))}]"


def witness_of(error: IllegalSchedule) -> dict[str, Any]:
    """The witness in the form of the files."""
    w = error.witness
    assert w is not None
    return {
        "sizes": dict(w.params),
        "source": instance_text(w.source),
        "sink": instance_text(w.sink),
        "element": instance_text((w.array, w.element)),
        "kind": w.kind,
    }


def legal(condition: str, sizes: Mapping[str, int]) -> bool:
    """Whether a condition of the files holds (`N <= 2 or T <= 1`, "never", "always")."""
    if condition in ("never", "always"):
        return condition == "always"
    return bool(eval(condition, {}, dict(sizes)))


def all_sizes(case: Case, upto: int) -> Iterator[dict[str, int]]:
    """All sizes from 1 to `upto`, the first size outermost."""
    upto = min(upto, case.get("upto", upto))
    for values in itertools.product(range(1, upto + 1), repeat=len(case["sizes"])):
        yield dict(zip(case["sizes"], values, strict=True))
