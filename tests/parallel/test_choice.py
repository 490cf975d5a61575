"""The search for the cheapest ways: against every combination, and on networks whose good splits are known."""

from __future__ import annotations

import math
import random

import pytest

from polyc import ArgumentError, Network, parallelise
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.parallel.choose import Costs, brute_force, choose
from polyc.graph_driver.parallel.layouts import Partial, Split
from polyc.graph_driver.parallel.parallelise import Parallel, ways_of
from polyc.graph_driver.parallel.ways import Nodes
from tests.parallel.rank_models import Builder, block, experts, images, mlp

GRAPHS = 200  # a quarter of them each time, the others among the long tests
MOST_WAYS = 6  # of a node in the graphs that every combination is tried of
MOST_COMBINATIONS = 3_000


def random_costs(seed: int) -> Costs:
    """A graph of up to 7 nodes over 2 to 4 ranks and some network."""
    rng = random.Random(seed)
    b = Builder("random", seed)
    n = rng.choice([4, 8])
    made = [b.input("x", n, n), b.input("y", n, n)]
    for _ in range(rng.randint(1, 7)):
        kind = rng.choice(["MatMul", "MatMul", "weights", "Add", "Relu", "Transpose", "Softmax", "Mul"])
        u, v = rng.choice(made), rng.choice(made[-2:])
        if kind == "weights":
            made.append(b.add("MatMul", v, b.weight(n, n)))
        elif kind in ("MatMul", "Add", "Mul"):
            made.append(b.add(kind, u, v))
        elif kind == "Transpose":
            made.append(b.add(kind, v, perm=[1, 0]))
        else:
            made.append(b.add(kind, v))
    outputs = {made[-1]: None, rng.choice(made[2:]): None}
    network = Network(
        bandwidth=10 ** rng.uniform(5, 9), latency=10 ** rng.uniform(-9, -6), flops=10 ** rng.uniform(5, 8),
        memory=10 ** rng.uniform(6, 9),
    )  # fmt: skip
    return Costs(Nodes(import_model(b.model(*outputs)), rng.choice([2, 4])), network)


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.long) for k in (1, 2, 3))])
def test_the_choice_costs_what_the_best_of_all_combinations_costs(part: int) -> None:
    tried, divided = 0, 0
    for seed in range(part, GRAPHS, 4):
        costs = random_costs(seed)
        options = [ways[:MOST_WAYS] for ways in ways_of(costs.nodes)]
        while math.prod(map(len, options)) > MOST_COMBINATIONS:  # fewer ways of the node with most of them
            longest = max(range(len(options)), key=lambda k: len(options[k]))
            options[longest] = options[longest][:-1]
        found, best = choose(costs, options), brute_force(costs, options)
        assert found.proved
        assert found.seconds == pytest.approx(best.seconds, rel=1e-12), seed
        tried += 1
        divided += any(isinstance(g, Split | Partial) for w in best.ways for g in w.gives)
    assert tried == GRAPHS // 4
    assert divided > tried // 4  # not all the same answer


def kinds(plan: Parallel) -> set[str]:
    """The communication operators of a plan."""
    return {s.move.kind for some in plan.sendings for s in some} - {"", "Slice"}


def axes(plan: Parallel, op_type: str) -> list[str]:
    """How the nodes of an operator run: `axis K`, `partial`, `whole`."""
    ways = [w.gives[0] for n, w in zip(plan.graph.nodes, plan.choice.ways, strict=True) if n.op_type == op_type]
    return [f"axis {g.axis}" if isinstance(g, Split) else str(g).partition(" ")[0] for g in ways]


def test_images_are_split_by_the_batch() -> None:
    model, _ = images(batch=64, size=32, channels=16)
    plan = parallelise(model, 8, "10 GB/s")
    assert set(axes(plan, "Conv")) == {"axis 0"}
    assert kinds(plan) == {"AllGather"}  # of the results alone
    assert plan.sendings[-1][0].move.kind == "AllGather"


def test_one_sequence_is_split_by_heads_and_columns_within_blocks() -> None:
    model, _ = block(length=32, width=256, heads=8)
    plan = parallelise(model, 8, "100 GB/s, 1 us")
    products = axes(plan, "MatMul")
    assert products[:3] == ["axis 2"] * 3  # the columns of queries, keys and values: heads
    assert products[3:5] == ["axis 1"] * 2  # the heads
    assert products[5] == "partial"
    assert products[6:] == ["axis 2", "partial"]


def test_experts_are_split_by_experts() -> None:
    model, _ = experts(tokens=64, width=128, hidden=512, count=64)
    plan = parallelise(model, 8, "50 GB/s")
    assert axes(plan, "MatMul")[1:] == ["axis 0", "axis 0"]


def test_many_results_are_no_more_combinations() -> None:
    """Each of 40 results may stay partial or split until the end, independently of all others."""
    b = Builder("results")
    x = b.input("x", 64, 32)
    model = b.model(*(b.add("MatMul", x, b.weight(32, 32)) for _ in range(40)))
    costs = Costs(Nodes(import_model(model), 2), Network())
    found = choose(costs, ways_of(costs.nodes), most_states=100)
    assert found.proved and len({w.gives for w in found.ways}) == 1


def test_wrong_ranks_and_networks_are_refused() -> None:
    model, _ = mlp()
    with pytest.raises(ArgumentError, match="ranks=0"):
        parallelise(model, 0)
    with pytest.raises(ArgumentError, match="10 GB/s"):
        parallelise(model, 2, "fast")


def test_a_part_that_is_another_operator_is_refused() -> None:
    """Values that depend on their place (a triangle, positions) are never cut."""
    b = Builder("places")
    y = b.add("Trilu", b.input("x", 8, 8))
    costs = Costs(Nodes(import_model(b.model(y)), 2), Network())
    (ways,) = ways_of(costs.nodes)
    assert [str(w.gives[0]) for w in ways] == ["whole"]
