"""The best choice of candidates for a whole graph: fewest dtype deviations, then fewest conversions, then cost.

The three sums are compared in this order. A tensor is converted once for each further format that its
readers want, however many they are. The search goes through the nodes in order and keeps, for each
combination of formats that the rest of the graph can still see, the best choice so far; sums that add up
part by part make that exact. A rough search with few combinations comes first: what is worse than its answer so far
cannot become the best (branch and bound).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product

from polyc.poly.records import dataclass

Format = tuple[str, str]  # element type, layout
Score = tuple[int, int, float]  # deviations, conversions, cost
MOST_STATES = 50_000
MOST_FORMATS = 100_000  # of all states together: in training most tensors live at once, and a state has them all
ROUNDING = 1e-9  # of costs that are added in another order
FIRST_STATES = 32  # of the first, rough search


@dataclass(frozen=True)
class Option:
    """One way to run a node: the formats that it wants of its operands and gives of its results."""

    name: str
    wants: tuple[Format, ...]
    gives: tuple[Format, ...]
    deviations: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class Task:
    """A node: operands and results by tensor name, in the order of the options' formats."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Problem:
    """`tasks` in execution order. `given` are formats of tensors that no task makes, `wanted` those that
    results must have in the end; `conversion` the cost of converting a tensor once."""

    tasks: tuple[Task, ...]
    given: Mapping[str, Format]
    wanted: Mapping[str, Format]
    conversion: Mapping[str, float]


@dataclass(frozen=True)
class Solution:
    """The option of each task by name. `proved`: no other choice is better."""

    chosen: Mapping[str, Option]
    score: Score
    proved: bool = True


State = tuple[tuple[str, tuple[Format, ...]], ...]  # of tensors still needed: the formats that exist, first the given


def solve(problem: Problem, most_states: int = MOST_STATES) -> Solution:
    """The best solution; beyond `most_states` combinations at once, the best of those that were kept.

    Raises:
        ValueError: a task has no option.
    """
    for task in problem.tasks:
        if not task.options:
            raise ValueError(f"no implementation for '{task.name}'")
    rough = _search(problem, FIRST_STATES, None)
    assert rough is not None
    if rough.proved:
        return rough
    deviations, conversions, cost = rough.score
    exact = _search(problem, most_states, (deviations, conversions, cost + abs(cost) * ROUNDING))
    if exact is None or rough.score < exact.score:
        return rough
    return exact


def _search(problem: Problem, most_states: int, bound: Score | None) -> Solution | None:
    """The best solution that is no worse than `bound`; None if those that were kept lead to none."""
    last, ahead = _last_uses(problem), _at_least(problem)
    start = tuple(sorted((t, (f,)) for t, f in problem.given.items() if t in last))
    states: dict[State, tuple[Score, tuple[Option, ...]]] = {start: ((0, 0, 0.0), ())}
    proved = True
    for k, task in enumerate(problem.tasks):
        following: dict[State, tuple[Score, tuple[Option, ...]]] = {}
        for state, (score, options) in states.items():
            known = dict(state)
            for option in task.options:
                new, extra = _step(problem, known, task, option)
                total = _add(score, extra)
                if bound is not None and _add(total, ahead[k + 1]) > bound:
                    continue
                key = tuple(sorted((t, f) for t, f in new.items() if last.get(t, -1) > k))
                if key not in following or total < following[key][0]:
                    following[key] = (total, (*options, option))
        if not following:
            return None
        most = max(FIRST_STATES, min(most_states, MOST_FORMATS // max(1, len(next(iter(following))))))
        most = min(most, most_states)
        if len(following) > most:
            kept = sorted(following.items(), key=lambda item: item[1][0])[:most]
            following, proved = dict(kept), False
        states = following
    best = min(
        ((_add(score, _final(problem, dict(state))), options) for state, (score, options) in states.items()),
        key=lambda found: found[0],
    )
    names = [t.name for t in problem.tasks]
    return Solution(dict(zip(names, best[1], strict=True)), best[0], proved)


def solve_in_parts(problem: Problem, most_states: int = MOST_STATES) -> Solution:
    """The best solution, searched for in parts that do not touch one another.

    A tensor can always be converted, so an option that deviates more than another of its task is in no best solution.
    What is left: tasks with one option, whose formats are known, and those with several; of these, only those that
    share a tensor need to be chosen together.

    Raises:
        ValueError: a task has no option.
    """
    tasks = [Task(t.name, t.inputs, t.outputs, _least_deviating(t)) for t in problem.tasks]
    chosen = {t.name: t.options[0] for t in tasks if len(t.options) == 1}
    part_of: dict[str, str] = {}  # of tensors that a task with several options touches: a tensor that stands for all

    def root(tensor: str) -> str:
        while part_of[tensor] != tensor:
            part_of[tensor] = tensor = part_of[part_of[tensor]]
        return tensor

    free = [t for t in tasks if len(t.options) > 1]
    for task in free:
        touched = (*task.inputs, *task.outputs)
        for tensor in touched:
            part_of.setdefault(tensor, tensor)
            part_of[root(tensor)] = root(touched[0])
    parts: dict[str, list[Task]] = {}
    for task in tasks:
        for part in dict.fromkeys(root(t) for t in (*task.inputs, *task.outputs) if t in part_of):
            parts.setdefault(part, []).append(_only(task, {t for t in part_of if root(t) == part}))
    proved = True
    for own in parts.values():
        found = solve(Problem(tuple(own), problem.given, problem.wanted, problem.conversion), most_states)
        chosen |= {n: o for n, o in found.chosen.items() if n not in chosen}
        proved = proved and found.proved
    whole = {t.name: {o.name: o for o in t.options} for t in problem.tasks}
    of_task = {t.name: whole[t.name][chosen[t.name].name] for t in problem.tasks}
    return Solution(of_task, score_of(problem, of_task), proved)


def _least_deviating(task: Task) -> tuple[Option, ...]:
    if not task.options:
        raise ValueError(f"no implementation for '{task.name}'")
    least = min(o.deviations for o in task.options)
    return tuple(o for o in task.options if o.deviations == least)


def _only(task: Task, tensors: Collection[str]) -> Task:
    """The task as if it touched nothing but these tensors."""

    def kept(formats: tuple[Format, ...], names: tuple[str, ...]) -> tuple[Format, ...]:
        return tuple(f for f, n in zip(formats, names, strict=True) if n in tensors)

    options = tuple(
        Option(o.name, kept(o.wants, task.inputs), kept(o.gives, task.outputs), o.deviations, o.cost)
        for o in task.options
    )
    inputs, outputs = (tuple(n for n in names if n in tensors) for names in (task.inputs, task.outputs))
    return Task(task.name, inputs, outputs, options)


def score_of(problem: Problem, chosen: Mapping[str, Option]) -> Score:
    """What a choice for every task, by name, comes to."""
    score: Score = (0, 0, 0.0)
    formats: dict[str, tuple[Format, ...]] = {t: (f,) for t, f in problem.given.items()}
    for task in problem.tasks:
        formats, extra = _step(problem, formats, task, chosen[task.name])
        score = _add(score, extra)
    return _add(score, _final(problem, formats))


def _at_least(problem: Problem) -> list[Score]:
    """What the tasks from each one on add at least: every option for itself at its best, nothing converted."""
    out: list[Score] = [(0, 0, 0.0)]
    for task in reversed(problem.tasks):
        least = min(o.deviations for o in task.options), 0, min(o.cost for o in task.options)
        out.append(_add(out[-1], least))
    return out[::-1]


def brute_force(problem: Problem) -> Solution:
    """The same by trying every combination."""

    def candidates() -> Iterator[Solution]:
        for options in product(*(t.options for t in problem.tasks)):
            chosen = {t.name: o for t, o in zip(problem.tasks, options, strict=True)}
            yield Solution(chosen, score_of(problem, chosen))

    return min(candidates(), key=lambda s: s.score)


def _last_uses(problem: Problem) -> dict[str, int]:
    last: dict[str, int] = {}
    for k, task in enumerate(problem.tasks):
        last |= dict.fromkeys(task.inputs, k)
    return last | dict.fromkeys(problem.wanted, len(problem.tasks))


def _step(
    problem: Problem, formats: dict[str, tuple[Format, ...]], task: Task, option: Option
) -> tuple[dict[str, tuple[Format, ...]], Score]:
    """Formats after a task, and what it adds to the score."""
    formats = dict(formats)
    conversions, cost = 0, option.cost
    for tensor, wanted in zip(task.inputs, option.wants, strict=True):
        if wanted not in formats[tensor]:
            formats[tensor] = (formats[tensor][0], *sorted((*formats[tensor][1:], wanted)))
            conversions += 1
            cost += problem.conversion.get(tensor, 0.0)
    formats |= {t: (f,) for t, f in zip(task.outputs, option.gives, strict=True)}
    return formats, (option.deviations, conversions, cost)


def _final(problem: Problem, formats: Mapping[str, tuple[Format, ...]]) -> Score:
    missing = [t for t, f in problem.wanted.items() if t in formats and f not in formats[t]]
    return 0, len(missing), sum(problem.conversion.get(t, 0.0) for t in missing)


def _add(a: Score, b: Score) -> Score:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
