"""Random ensembles of trees: as models in the spellings of ONNX, and as the text of the standard reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
MEMBER = "BRANCH_MEMBER"
ONE_SIDED = MODES[:1]


@dataclass
class Branch:
    """A node with a test; `value` is a set for `MEMBER`. A leaf has votes and nothing else."""

    mode: str = ""
    feature: int = 0
    value: Any = 0.0
    missing: bool = False
    yes: Branch | None = None
    no: Branch | None = None
    votes: dict[int, float] = field(default_factory=dict)

    def nodes(self) -> Iterator[Branch]:
        """The tree, a node before those below it."""
        yield self
        for below in (self.yes, self.no):
            if below is not None:
                yield from below.nodes()

    def leaf_of(self, x: np.ndarray) -> Branch:
        """Where a row comes to."""
        if self.yes is None or self.no is None:
            return self
        found = self.missing if np.isnan(x[self.feature]) else self._holds(x[self.feature])
        return (self.yes if found else self.no).leaf_of(x)

    def _holds(self, x: Any) -> bool:
        if self.mode == MEMBER:
            return x in self.value
        tests = (x <= self.value, x < self.value, x >= self.value, x > self.value, x == self.value, x != self.value)
        return bool(tests[MODES.index(self.mode)])


def grown(
    rng: np.random.Generator, depth: int, features: int, targets: int, modes: tuple[str, ...], votes: int = 1
) -> Branch:
    """A random tree with `votes` votes in a leaf. Thresholds are few, so that features meet them."""
    if depth == 0 or rng.random() < 0.1:
        chosen = rng.choice(targets, votes, replace=False)
        return Branch(votes={int(t): float(np.float32(rng.normal())) for t in chosen})
    mode = str(rng.choice(modes))
    value = float(rng.choice(THRESHOLDS))
    members = {float(v) for v in rng.choice(THRESHOLDS[2:], rng.integers(1, 6))}
    yes, no = (grown(rng, depth - 1, features, targets, modes, votes) for _ in range(2))
    missing = len(modes) > 1 and bool(rng.integers(2))
    return Branch(mode, int(rng.integers(features)), members if mode == MEMBER else value, missing, yes, no)


THRESHOLDS = (float("nan"), float("inf"), -float("inf"), -1.5, -0.0, 0.0, 0.5, 0.25, 1.0, 3.0)


def rows_of(rng: np.random.Generator, rows: int, features: int, dtype: Any = np.float32) -> np.ndarray:
    """Features of which many are thresholds, or next to one, NaN or infinite."""
    x = rng.choice(THRESHOLDS, (rows, features)).astype(dtype)
    near = np.nextafter(x, rng.choice([-9, 9], x.shape).astype(dtype))
    return np.where(
        rng.random(x.shape) < 0.3, near, np.where(rng.random(x.shape) < 0.3, rng.normal(size=x.shape), x)
    ).astype(dtype)


def sums(trees: list[Branch], x: np.ndarray, targets: int, aggregate: str = "SUM") -> np.ndarray:
    """The votes of all trees for each row in f64; 0 where there is none."""
    found = np.zeros((len(x), targets))
    for n, row in enumerate(x):
        leaves = [t.leaf_of(row) for t in trees]
        for k in range(targets):
            given = [leaf.votes[k] for leaf in leaves if k in leaf.votes]
            total = {"SUM": sum, "AVERAGE": lambda v: sum(v) / len(trees), "MIN": min, "MAX": max}[aggregate]
            found[n, k] = total(given) if given else 0.0
    return found


def by_tree(trees: list[Branch], votes: str) -> dict[str, Any]:
    """Attributes of `TreeEnsembleRegressor` and `TreeEnsembleClassifier`."""
    a: dict[str, list[Any]] = {}

    def put(**values: Any) -> None:
        for name, value in values.items():
            a.setdefault(name, []).append(value)

    for t, tree in enumerate(trees):
        nodes = list(tree.nodes())
        number = {id(b): k for k, b in enumerate(nodes)}
        for k, b in enumerate(nodes):
            put(
                nodes_treeids=t, nodes_nodeids=k, nodes_featureids=b.feature, nodes_values=b.value,
                nodes_modes=b.mode or "LEAF", nodes_missing_value_tracks_true=int(b.missing),
                nodes_truenodeids=number.get(id(b.yes), 0), nodes_falsenodeids=number.get(id(b.no), 0),
            )  # fmt: skip
            for target, weight in b.votes.items():
                put(
                    **{f"{votes}_treeids": t, f"{votes}_nodeids": k, f"{votes}_ids": target, f"{votes}_weights": weight}
                )
    return a


def by_position(trees: list[Branch], dtype: Any) -> dict[str, Any]:
    """Attributes of `TreeEnsemble`; leaves have one vote."""
    inner = [b for t in trees for b in t.nodes() if b.yes is not None]
    leaves = [b for t in trees for b in t.nodes() if b.yes is None]
    alone = [t for t in trees if t.yes is None]
    inner += [Branch(MODES[0], yes=t, no=t) for t in alone]
    number = {id(b): k for k, b in enumerate(inner)}
    ended = {id(b): k for k, b in enumerate(leaves)}

    def ways(name: str) -> dict[str, list[int]]:
        to = [getattr(b, {"true": "yes", "false": "no"}[name]) for b in inner]
        return {
            f"nodes_{name}nodeids": [ended.get(id(b), number.get(id(b), 0)) for b in to],
            f"nodes_{name}leafs": [int(id(b) in ended) for b in to],
        }

    roots = [number[id(t)] if t.yes is not None else len(inner) - len(alone) + alone.index(t) for t in trees]
    members = [v for b in inner if b.mode == MEMBER for v in (*sorted(b.value), float("nan"))]

    def tensor(values: list[Any], of: Any = dtype) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(values, of))

    return {
        **ways("true"), **ways("false"), "tree_roots": roots, "nodes_featureids": [b.feature for b in inner],
        "nodes_splits": tensor([0.0 if b.mode == MEMBER else b.value for b in inner]),
        "nodes_modes": tensor([(*MODES, MEMBER).index(b.mode) for b in inner], np.uint8),
        "nodes_missing_value_tracks_true": [int(b.missing) for b in inner],
        "leaf_weights": tensor([next(iter(b.votes.values())) for b in leaves]),
        "leaf_targetids": [next(iter(b.votes)) for b in leaves],
        **({"membership_values": tensor(members)} if members else {}),
    }  # fmt: skip


def model_of(
    op_type: str, x: np.ndarray, attrs: dict[str, Any], outputs: tuple[int, ...], opset: int = 21, ml: int = 3
) -> onnx.ModelProto:
    """A model of one node of `ai.onnx.ml`; the batch is a symbol. `outputs` are element types."""
    names = [f"y{k}" for k in range(len(outputs))]
    node = helper.make_node(op_type, ["x"], names, domain="ai.onnx.ml", **attrs)
    elem = helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs = [helper.make_tensor_value_info("x", elem, ["batch", *x.shape[1:]])]
    made = [helper.make_tensor_value_info(n, t, None) for n, t in zip(names, outputs, strict=True)]
    graph = helper.make_graph([node], "g", inputs, made)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ml)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
