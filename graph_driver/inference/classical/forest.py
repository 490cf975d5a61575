"""Ensembles of trees as a file spells them, read into one form.

Tests have many spellings; here they are `x <= high` and `x == high` alone. A node that asks for the opposite has its
children exchanged, and what NaN does is said apart. Whatever a file may have wrong is a `ModelError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
MODES = {
    name: mode
    for mode, name in enumerate(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"))
} | {"LEAF": LEAF}


@dataclass(frozen=True, eq=False)
class Forest:
    """Nodes of all trees. Node `i` compares feature `feature[i]` with `value[i]` as `mode[i]` says and goes on to node
    `yes[i]` or `no[i]`; NaN takes the first way where `missing[i]` is set. `members` are the sets of `MEMBER` nodes.

    Vote `k` adds `weights[k]` to class or target `targets[k]` in leaf `voters[k]`.
    """

    mode: np.ndarray
    feature: np.ndarray
    value: np.ndarray
    missing: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    roots: np.ndarray
    voters: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    members: Mapping[int, np.ndarray]

    @property
    def leaf(self) -> np.ndarray:
        """Which nodes are leaves."""
        return np.asarray(self.mode == LEAF)


def listed(attrs: Mapping[str, Any], name: str, dtype: Any, what: str, count: int | None = None) -> np.ndarray:
    """An attribute's elements. Raises `ModelError`: absent, or not `count` of them."""
    if name not in attrs:
        raise ModelError(f"{what} has no attribute {name}")
    found = np.asarray(attrs[name], dtype).reshape(-1)
    if count is not None and len(found) != count:
        raise ModelError(f"{what}: attribute {name} has {len(found)} elements, expected {count}")
    return found


def numbers(attrs: Mapping[str, Any], name: str, what: str, count: int | None = None) -> np.ndarray | None:
    """Floats of an attribute, or doubles of the one that may be in its place; None without both."""
    if len(np.atleast_1d(attrs.get(name + "_as_tensor", ()))):
        name += "_as_tensor"
    elif not len(attrs.get(name, ())):
        return None
    given = attrs[name]
    return listed(attrs, name, given.dtype if isinstance(given, np.ndarray) else np.float32, what, count)


def by_tree(attrs: Mapping[str, Any], votes: str, what: str) -> Forest:
    """The trees of `TreeEnsembleRegressor` and `TreeEnsembleClassifier`; `votes` begins the names of their votes."""
    tree = listed(attrs, "nodes_treeids", np.int64, what)
    count = len(tree)
    ids = listed(attrs, "nodes_nodeids", np.int64, what, count)
    names = [m.decode(errors="replace") if isinstance(m, bytes) else str(m) for m in attrs.get("nodes_modes", ())]
    unknown = sorted({n for n in names if n not in MODES})
    if len(names) != count or unknown or not count:
        raise ModelError(f"{what}: attribute nodes_modes has {len(names)} elements for {count} nodes{_named(unknown)}")
    mode = np.array([MODES[n] for n in names], np.int8)
    inner = mode != LEAF
    value = numbers(attrs, "nodes_values", what, count)
    if value is None:
        if inner.any():
            raise ModelError(f"{what} has no attribute nodes_values")
        value = np.zeros(count, np.float32)
    find = _Finder(tree, ids, what)
    ways = [np.arange(count), np.arange(count)]
    for k, name in enumerate(("nodes_truenodeids", "nodes_falsenodeids")):
        ways[k][inner] = find(tree[inner], listed(attrs, name, np.int64, what, count)[inner])
    voters = find(listed(attrs, f"{votes}_treeids", np.int64, what), listed(attrs, f"{votes}_nodeids", np.int64, what))
    weights = numbers(attrs, f"{votes}_weights", what, len(voters))
    if weights is None:
        raise ModelError(f"{what} has no attribute {votes}_weights")
    targets, roots = listed(attrs, f"{votes}_ids", np.int64, what, len(voters)), _roots(tree, ways, inner, what)
    return Forest(
        mode, _features(attrs, inner, what), value, _missing(attrs, count, what), ways[0], ways[1], roots,
        voters, targets, weights, {},
    )  # fmt: skip


def by_position(attrs: Mapping[str, Any], what: str) -> Forest:
    """The trees of `TreeEnsemble`: leaves come after the nodes with tests, and each has one vote."""
    mode = listed(attrs, "nodes_modes", np.int64, what)
    count = len(mode)
    if not count or not ((mode >= LEQ) & (mode <= MEMBER)).all():
        raise ModelError(f"{what}: attribute nodes_modes has other numbers than 0 to {MEMBER}, or none")
    value = listed(attrs, "nodes_splits", np.asarray(attrs.get("nodes_splits", 0.0)).dtype, what, count)
    weights = listed(attrs, "leaf_weights", value.dtype, what)
    targets = listed(attrs, "leaf_targetids", np.int64, what, len(weights))
    ways = []
    for name in ("true", "false"):
        to = listed(attrs, f"nodes_{name}nodeids", np.int64, what, count)
        leaf = listed(attrs, f"nodes_{name}leafs", np.int64, what, count) != 0
        _inside(to[leaf], len(weights), f"{what}: attribute nodes_{name}nodeids names a leaf")
        _inside(to[~leaf], count, f"{what}: attribute nodes_{name}nodeids names a node")
        ways.append(np.where(leaf, to + count, to))
    roots = listed(attrs, "tree_roots", np.int64, what)
    _inside(roots, count, f"{what}: attribute tree_roots names a node")
    leaves = np.arange(count, count + len(weights))
    yes, no = (np.concatenate([w, leaves]) for w in ways)
    ended = np.full(len(leaves), LEAF)
    only_leaf = (yes[roots] == no[roots]) & (yes[roots] >= count)
    feature = _features(attrs, np.ones(count, bool), what)
    zeros = np.zeros(len(leaves), np.int64)
    return Forest(
        np.concatenate([mode, ended]).astype(np.int8), np.concatenate([feature, zeros]),
        np.concatenate([value, zeros.astype(value.dtype)]),
        np.concatenate([_missing(attrs, count, what), zeros != 0]), yes, no, np.where(only_leaf, yes[roots], roots),
        leaves, targets, weights, _members(attrs, mode, what),
    )  # fmt: skip


class _Finder:
    """From the names of nodes to their positions."""

    def __init__(self, tree: np.ndarray, ids: np.ndarray, what: str) -> None:
        self.what, self.order = what, np.lexsort((ids, tree))
        self.tree, self.ids = tree[self.order], ids[self.order]
        same = (np.diff(self.tree) == 0) & (np.diff(self.ids) == 0)
        if same.any():
            at = int(np.argmax(same))
            raise ModelError(f"{what}: tree {self.tree[at]} has node {self.ids[at]} twice")
        self.trees, self.starts = np.unique(self.tree, return_index=True)
        self.ends = np.append(self.starts[1:], len(tree))

    def __call__(self, tree: np.ndarray, ids: np.ndarray) -> np.ndarray:
        if len(tree) != len(ids):
            raise ModelError(f"{self.what}: {len(tree)} numbers of trees for {len(ids)} numbers of nodes")
        found = np.zeros(len(ids), np.int64)
        if not len(ids):
            return found
        group = np.minimum(np.searchsorted(self.trees, tree), len(self.trees) - 1)
        known = self.trees[group] == tree
        # Each tree's nodes are in order, so a node is as far behind its tree's start as there are smaller ids.
        span = np.unique(np.concatenate([self.ids, ids]))
        keys = np.searchsorted(self.trees, self.tree) * len(span) + np.searchsorted(span, self.ids)
        at = np.minimum(np.searchsorted(keys, group * len(span) + np.searchsorted(span, ids)), len(self.ids) - 1)
        known &= (self.ids[at] == ids) & (self.tree[at] == tree)
        if not known.all():
            bad = int(np.argmin(known))
            raise ModelError(f"{self.what}: tree {tree[bad]} has no node {ids[bad]}")
        found[:] = self.order[at]
        return found


def _roots(tree: np.ndarray, ways: list[np.ndarray], inner: np.ndarray, what: str) -> np.ndarray:
    """The first node of each tree that is no node's child, trees in the order of their first nodes."""
    child = np.zeros(len(tree), bool)
    for to in ways:
        child[to[inner]] = True
    free = np.flatnonzero(~child)
    trees, first = np.unique(tree[free], return_index=True)
    every, where = np.unique(tree, return_index=True)
    if len(trees) != len(every):
        missing = next(t for t in every if t not in trees)
        raise ModelError(f"{what}: tree {missing} has no root, as each of its nodes is another's child")
    return np.asarray(free[first][np.argsort(where, kind="stable")])


def _features(attrs: Mapping[str, Any], inner: np.ndarray, what: str) -> np.ndarray:
    found = listed(attrs, "nodes_featureids", np.int64, what, len(inner))
    return np.where(inner, found, 0)


def _missing(attrs: Mapping[str, Any], count: int, what: str) -> np.ndarray:
    if not len(attrs.get("nodes_missing_value_tracks_true", ())):
        return np.zeros(count, bool)
    return listed(attrs, "nodes_missing_value_tracks_true", np.int64, what, count) != 0


def _members(attrs: Mapping[str, Any], mode: np.ndarray, what: str) -> dict[int, np.ndarray]:
    """The sets of the `MEMBER` nodes, in the order of these, each ended by NaN."""
    nodes = np.flatnonzero(mode == MEMBER)
    values = np.asarray(attrs.get("membership_values", np.zeros(0, np.float32))).reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) not in (len(nodes), len(nodes) - 1):
        raise ModelError(f"{what}: attribute membership_values has {len(ends)} sets for {len(nodes)} nodes")
    sets = np.split(values, ends)[: len(nodes)]
    return {int(n): np.unique(s[~np.isnan(s)]) for n, s in zip(nodes, sets, strict=True)}


def _inside(found: np.ndarray, count: int, text: str) -> None:
    bad = found[(found < 0) | (found >= count)]
    if len(bad):
        raise ModelError(f"{text} {bad[0]} of {count}")


def _named(unknown: list[str]) -> str:
    return f", among them {', '.join(repr(n) for n in unknown)}" if unknown else ""


# ---- one form of tests ----------------------------------------------------------------------------


def with_two_tests(forest: Forest, dtype: Any) -> Forest:
    """The same forest with `LEQ` and `EQ` alone, and thresholds of the features' float type.

    `x < h` is `x <= h'` with the next smaller float; the opposite of a test has the children exchanged, so NaN, for
    which all tests but `NEQ` fail, goes the other way, too. A test against NaN fails always: `LEQ` with NaN.
    """
    mode, value, missing, yes, no = (
        np.array(a) for a in (forest.mode, forest.value, forest.missing, forest.yes, forest.no)
    )
    turned = np.isin(mode, (GT, GTE, NEQ))
    yes[turned], no[turned] = forest.no[turned], forest.yes[turned]
    missing[turned] = ~missing[turned]
    strict = np.isin(mode, (LT, GTE))
    never = np.isnan(value)
    below, exact = _at_most(value, dtype)
    with np.errstate(all="ignore"):
        high = np.where(strict & exact, np.nextafter(below, np.array(-np.inf, dtype)), below)
    never |= strict & (value == -np.inf)
    equal = np.isin(mode, (EQ, NEQ))
    never |= equal & ~exact
    # A comparison with NaN is false, its opposite is true: `turned` nodes go to what is now `no`, but `NEQ` alone
    # was turned for that; GT and GTE fail as they stand.
    against_nan = np.isnan(value) & np.isin(mode, (GT, GTE))
    yes[against_nan], no[against_nan] = forest.yes[against_nan], forest.no[against_nan]
    missing[against_nan] = forest.missing[against_nan]
    high = np.where(never, np.array(np.nan, dtype), high).astype(dtype)
    inner = ~forest.leaf & (mode != MEMBER)
    new = np.where(inner, np.where(equal & ~never, EQ, LEQ), mode).astype(np.int8)
    return replace(forest, mode=new, value=high, missing=missing, yes=yes, no=no)


def _at_most(value: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest floats of a type that are not above `value`, and whether these are `value` itself."""
    with np.errstate(all="ignore"):
        near = value.astype(dtype)
        wide = np.promote_types(value.dtype, dtype)
        low = np.where(near.astype(wide) > value.astype(wide), np.nextafter(near, np.array(-np.inf, dtype)), near)
    return low.astype(dtype), np.asarray(low.astype(wide) == value.astype(wide))
