"""A forest as the tables of `polyc.frontend_dsl.library.trees`.

A test there is `x <= high`, false for NaN, on one of several views of a feature. What else a node asks for is a few
such tests: NaN that takes the first way reads a view with `-inf` in its place, an equality is a test on `x` and one on
`-x`, a set is a search. Subtrees are never copied: a place of the tables is a copy of a node, not of what is below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.frontend_dsl.library.trees import LANES, STARTS, VIEWS, Ensemble
from polyc.graph_driver.inference.classical.forest import EQ, LEQ, MEMBER, Forest, with_two_tests
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

MAX_WEIGHTS = 1 << 28  # elements of the table of weights
PLAIN, MISSING, NEGATIVE, NEGATIVE_MISSING = range(len(VIEWS))


@dataclass(frozen=True, eq=False)
class Tables:
    """An ensemble and its tables, as `make_tree_scores` takes them. `voted`: whether each leaf votes for everything."""

    ensemble: Ensemble
    link: np.ndarray
    high: np.ndarray
    depth: np.ndarray
    reach: np.ndarray
    weight: np.ndarray
    voted: bool


class _Tests:
    """Nodes with the one kind of test, in the making: arrays of the forest's nodes, and lists of more."""

    def __init__(self, forest: Forest, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.inner = ~forest.leaf
        self.feature, self.high = forest.feature.copy(), forest.value.copy()
        self.view = np.where(forest.missing & self.inner, MISSING, PLAIN)
        self.yes, self.no = forest.yes.copy(), forest.no.copy()
        self.count = len(forest.mode)
        self.more: list[tuple[np.ndarray, ...]] = []

    def add(self, feature: Any, high: Any, view: Any, yes: Any, no: Any) -> np.ndarray:
        """Further nodes, and their numbers."""
        columns = np.broadcast_arrays(*(np.atleast_1d(c) for c in (feature, high, view, yes, no)))
        self.more.append(tuple(columns))
        found = np.arange(self.count, self.count + len(columns[0]))
        self.count += len(found)
        return found

    def done(self) -> None:
        """All nodes in the arrays."""
        names = ("feature", "high", "view", "yes", "no")
        for k, name in enumerate(names):
            setattr(self, name, np.concatenate([getattr(self, name), *(m[k] for m in self.more)]))
        self.inner = np.concatenate([self.inner, np.ones(self.count - len(self.inner), bool)])
        self.high = self.high.astype(self.dtype)


def _one_test(forest: Forest, dtype: Any) -> _Tests:
    """The forest with tests `x <= high` alone."""
    two = with_two_tests(forest, dtype)
    tests = _Tests(two, dtype)
    # NaN alone takes the first way of a test that fails otherwise: the opposite of `x <= inf`.
    only_nan = np.flatnonzero(tests.inner & np.isnan(tests.high) & two.missing & (two.mode == LEQ))
    tests.yes[only_nan], tests.no[only_nan] = two.no[only_nan], two.yes[only_nan]
    tests.high[only_nan], tests.view[only_nan] = np.inf, PLAIN
    equal = np.flatnonzero(two.mode == EQ)
    view = np.where(two.missing[equal], NEGATIVE_MISSING, NEGATIVE)
    tests.yes[equal] = tests.add(two.feature[equal], -tests.high[equal], view, two.yes[equal], two.no[equal])
    for node in np.flatnonzero(two.mode == MEMBER):
        _search(tests, int(node), two, forest.members[int(node)])
    tests.done()
    return tests


def _search(tests: _Tests, node: int, forest: Forest, members: np.ndarray) -> None:
    """Whether a feature is one of `members`, which are sorted: halves of them, then an equality."""
    feature, yes, no = int(forest.feature[node]), int(forest.yes[node]), int(forest.no[node])
    exact = members.astype(tests.dtype)
    values = exact[exact.astype(members.dtype) == members]

    def found(low: int, end: int) -> int:
        """The first node of a search in `values[low:end]`."""
        if end - low == 1:
            high = values[low]
            second = tests.add(feature, -high, NEGATIVE, yes, no)[0]
            return int(tests.add(feature, high, PLAIN, second, no)[0])
        middle = (low + end) // 2
        return int(tests.add(feature, values[middle - 1], PLAIN, found(low, middle), found(middle, end))[0])

    first = found(0, len(values)) if len(values) else no
    # The node itself asks whether this is a number at all.
    tests.high[node], tests.view[node] = np.inf, PLAIN
    tests.yes[node], tests.no[node] = first, yes if forest.missing[node] else no


def tables(forest: Forest, features: int, classes: int, dtype: Any, aggregate: str, what: str) -> Tables:
    """The tables of a forest with votes for `classes` classes, of features of float type `dtype`.

    Raises:
        ModelError: a tree that goes round, a feature or class that does not exist, tables too large.
    """
    _check(forest, features, classes, what)
    tests = _one_test(forest, dtype)
    depth, reached, owner, apart = _depths(tests, forest.roots, what)
    voting = _votes(forest, classes, owner, apart, aggregate, what)
    rows, grouped, voted = voting.rows, voting.grouped, voting.voted
    order, trees = _grouped(grouped, len(forest.roots), classes)
    groups = 1 if grouped is None else classes
    # A further leaf without a vote is where trees end that fill up a group or a block.
    nobody = tests.count
    inner = np.append(tests.inner & reached, False)
    roots = np.append(forest.roots, nobody)[order]
    padded = np.full(-(-len(roots) // LANES) * LANES, nobody)
    padded[: len(roots)] = roots
    numbered = np.flatnonzero(inner)
    node = np.concatenate([padded, np.stack([tests.no[numbered], tests.yes[numbered]], 1).reshape(-1)])
    pair = np.zeros(nobody + 1, np.int64)
    pair[numbered] = len(padded) + 2 * np.arange(len(numbered))
    views, view = np.unique(tests.view[inner[:-1]], return_inverse=True)
    if not len(views):
        views = np.array([PLAIN])
    number = np.zeros(nobody + 1, np.int64)
    number[numbered] = tests.feature[numbered] + features * view.reshape(-1)
    high = np.append(tests.high, np.array(np.nan, dtype))
    tested = inner[node]
    if len(node) * rows.shape[1] > MAX_WEIGHTS or len(node) >= 1 << 31:
        raise ModelError(f"{what}: {len(node)} nodes with {rows.shape[1]} weights each are too many")
    deep = np.zeros(len(padded), np.int32)
    deep[: len(order)] = np.append(depth, 0)[order]
    weight = np.full((len(tests.inner) + 1, rows.shape[1]), STARTS[aggregate], rows.dtype)
    weight[: len(rows)] = rows
    ensemble = Ensemble(len(node), groups, trees, rows.shape[1], aggregate, tuple(VIEWS[v] for v in views))
    link = np.where(tested, number[node] << 32 | pair[node], np.arange(len(node)))
    return Tables(
        ensemble, link.astype(np.uint64), np.where(tested, high[node], np.array(np.nan, dtype)).astype(dtype), deep,
        deep.reshape(-1, LANES).max(1), weight[node], voted,
    )  # fmt: skip


def _check(forest: Forest, features: int, classes: int, what: str) -> None:
    used = forest.feature[~forest.leaf]
    bad = used[(used < 0) | (used >= features)]
    if len(bad):
        raise ModelError(f"{what} tests feature {bad[0]} of {features}")
    if classes > MAX_WEIGHTS:
        raise ModelError(f"{what}: {classes} classes or targets are too many")
    bad = forest.targets[(forest.targets < 0) | (forest.targets >= classes)]
    if len(bad):
        raise ModelError(f"{what} has a vote for number {bad[0]} of {classes}")


def _depths(tests: _Tests, roots: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Of each tree how deep it is; of each node whether anything leads to it, and a tree that it is in; and whether no
    node is in two trees.

    Raises:
        ModelError: a node is below itself.
    """
    depth = np.zeros(len(roots), np.int64)
    reached = np.zeros(tests.count, bool)
    owner, apart = np.full(tests.count, -1), len(np.unique(roots)) == len(roots)
    node, tree, level = roots, np.arange(len(roots)), 0
    while len(node):
        if level > tests.count:
            raise ModelError(f"{what}: tree number {tree[0]} has a node that is below itself")
        apart = apart and bool(((owner[node] < 0) | (owner[node] == tree)).all())
        reached[node], owner[node], depth[tree] = True, tree, level
        apart = apart and bool((owner[node] == tree).all())
        going = tests.inner[node]
        node, tree = node[going], tree[going]
        below = np.concatenate([tests.yes[node], tests.no[node]])
        keys = np.unique(np.concatenate([tree, tree]) * tests.count + below)
        node, tree, level = keys % tests.count, keys // tests.count, level + 1
    return depth, reached, owner, apart


@dataclass(frozen=True, eq=False)
class _Votes:
    """Weights of each node of the forest; `grouped` is each tree's class where no tree votes for two (None: some do).
    `voted`: whether every leaf has a vote for everything."""

    rows: np.ndarray
    grouped: np.ndarray | None
    voted: bool


def _votes(forest: Forest, classes: int, owner: np.ndarray, apart: bool, aggregate: str, what: str) -> _Votes:
    """Votes that leaves have, those of one leaf for one class brought together."""
    leaves = forest.leaf[forest.voters] & (owner[forest.voters] >= 0)
    voters, targets, weights = forest.voters[leaves], forest.targets[leaves], forest.weights[leaves]
    join: Callable[..., None] = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}[aggregate].at
    least, most = np.full(len(forest.roots), classes), np.full(len(forest.roots), -1)
    np.minimum.at(least, owner[voters], targets)
    np.maximum.at(most, owner[voters], targets)
    one_each = apart and aggregate == "SUM" and bool((least >= most).all())
    if classes > 1 and one_each and _fits(np.maximum(most, 0), classes):
        rows = np.full((len(forest.mode), 1), STARTS[aggregate], weights.dtype)
        join(rows[:, 0], voters, weights)
        return _Votes(rows, np.maximum(most, 0), False)
    if len(forest.mode) * classes > MAX_WEIGHTS:
        raise ModelError(f"{what}: {len(forest.mode)} nodes with {classes} weights each are too many")
    rows = np.full((len(forest.mode), classes), STARTS[aggregate], weights.dtype)
    join(rows, (voters, targets), weights)
    votes = np.zeros(rows.shape, bool)
    votes[voters, targets] = True
    ends = forest.leaf & (owner[: len(forest.mode)] >= 0)
    return _Votes(rows, None, bool(votes[ends].all()))


def _fits(grouped: np.ndarray, classes: int) -> bool:
    """Whether trees that fill up the groups do not outnumber the trees."""
    return int(np.bincount(grouped, minlength=classes).max()) * classes <= 2 * len(grouped)


def _grouped(grouped: np.ndarray | None, trees: int, classes: int) -> tuple[np.ndarray, int]:
    """Numbers of trees, group by group of equally many (`trees` is a tree that nobody votes in), and how many these
    are."""
    if grouped is None:
        return np.arange(trees), trees
    size = int(np.bincount(grouped, minlength=classes).max())
    order = np.full((classes, size), trees)
    for c in range(classes):
        own = np.flatnonzero(grouped == c)
        order[c, : len(own)] = own
    return order.reshape(-1), size
