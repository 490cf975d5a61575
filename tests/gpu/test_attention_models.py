"""Attention of a model as one kernel of a GPU: joined where the strategy takes it, apart with a reason elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import simt
from back_ends import execute
from onnx import helper
from texts import needs_nvidia, needs_opencl, needs_shim, on_shim
from tiny_models import model_of

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.kernel import compile_gpu
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.mathlib import expand_function
from polyc.graph_driver.backends.gpu.backend import GPU
from polyc.graph_driver.checking.check import compare, random_input
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.fusion.groups import form_groups, translate
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.passes.manager import run
from polyc.graph_driver.running.model import Model
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.strategies.gpu.chain_cost import Moved

CUDA = targets.get("sm_80")
REASON = "rows of scores at a time stay in a block"


def node(op: str, inputs: list[str], output: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], output, **attrs)


SOFTMAX: dict[str, list[onnx.NodeProto]] = {
    "one node": [
        node("Softmax", ["u"], "p", axis=-1), node("IsNaN", ["p"], "n"), node("Where", ["n", "zero", "p"], "w"),
    ],
    "by a reciprocal": [
        node("ReduceMax", ["u"], "m", axes=[-1], keepdims=1), node("Sub", ["u", "m"], "d"), node("Exp", ["d"], "e"),
        node("ReduceSum", ["e", "last"], "z", keepdims=1), node("Reciprocal", ["z"], "r"), node("Mul", ["e", "r"], "w"),
    ],
}  # fmt: skip


def proto(
    heads: int, length: int, width: int, kept: tuple[str, ...] = (), softmax: str = "one node"
) -> onnx.ModelProto:
    """`softmax(Q K^T * s + mask) V` of heads cut out of rows (in one node: rows without a key become 0); results `kept`
    too."""
    rows, scores = [1, length, heads * width], [1, heads, length, length]
    nodes = [
        node("Reshape", ["q", "heads"], "q4"), node("Transpose", ["q4"], "qt", perm=[0, 2, 1, 3]),
        node("Reshape", ["k", "heads"], "k4"), node("Transpose", ["k4"], "kt", perm=[0, 2, 3, 1]),
        node("Reshape", ["v", "heads"], "v4"), node("Transpose", ["v4"], "vt", perm=[0, 2, 1, 3]),
        node("MatMul", ["qt", "kt"], "s"), node("Mul", ["s", "scale"], "t"), node("Add", ["t", "mask"], "u"),
        *SOFTMAX[softmax], node("MatMul", ["w", "vt"], "o"), node("Transpose", ["o"], "ot", perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "rows"], "y"),
    ]  # fmt: skip
    weights = {
        "heads": np.array([1, length, heads, width]), "rows": np.array(rows), "zero": np.float32(0),
        "scale": np.float32(0.25), "last": np.array([-1]),
    }  # fmt: skip
    given = {"q": rows, "k": rows, "v": rows, "mask": [1, 1, 1, length]}
    arrays = {n: np.asarray(w) for n, w in weights.items()}
    return model_of(nodes, given, {"y": rows, **dict.fromkeys(kept, scores)}, arrays)


def joined(model: Model) -> bool:
    return any(REASON in d for d in model.report().decisions)


@needs_opencl
@pytest.mark.parametrize("kept", [(), pytest.param(("u",), marks=pytest.mark.long)])
def test_a_model_on_a_device(kept: tuple[str, ...]) -> None:
    """Scores that somebody else wants are written; all others never leave the block."""
    source = proto(3, 21, 8, kept)
    model = compile_model(source, target="opencl")
    assert joined(model) == (not kept)
    feeds = {n: random_input(n, d, s, 3) for n, (d, s) in model.inputs.items()}
    feeds["mask"][..., -3:] = -np.inf
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = dict(zip(names, session.run(names, feeds), strict=True))
    assert max(d.relative for d in compare(model(feeds), expected)) <= 1e-5


def group(heads: int, length: int, width: int, softmax: str = "one node") -> Scop:
    """What the operators become for sm_80."""
    graph = import_model(proto(heads, length, width, softmax=softmax))
    run(graph)
    found = form_groups(graph, translate(graph, lookup), True, GPU.fusing(CUDA))
    (chain,) = (g for g in found if g.label.count("MatMul") == 2)
    assert chain.scop is not None
    return chain.scop


def data(scop: Scop) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arguments, and what the statements in program order make of them."""
    rng = np.random.default_rng(5)
    shapes = [tuple(int(e.value) for e in scop.arrays[a].shape) for a in scop.args]
    args = [np.asarray(rng.standard_normal(s), scop.arrays[a].dtype.np) for a, s in zip(scop.args, shapes, strict=True)]
    return args, execute(scop, Schedule.start(scop).tree, args, "llvm")


@needs_shim
@pytest.mark.parametrize(
    "sizes, softmax",
    [((2, 19, 8), "one node"), pytest.param((2, 19, 8), "by a reciprocal", marks=pytest.mark.long),
     pytest.param((60, 37, 8), "one node", marks=pytest.mark.long)],
)  # fmt: skip
def test_cuda_text(sizes: tuple[int, int, int], softmax: str) -> None:
    """One kernel; of 60 heads blocks take more rows than there are rows of threads."""
    scop = group(*sizes, softmax)
    schedule = automatic(scop, CUDA)
    program = to_gpu(expand_function(lower_gpu(schedule.scop, schedule.tree, "chain", CUDA)), CUDA)
    assert len(program.kernels) == 1
    args, expected = data(scop)
    for how in ({"order": "shuffled", "check": "bounds", "seed": 1}, {"order": shim.ORDERS[0], "check": "races"}):
        assert simt.far(on_shim(schedule.scop, program, args, **how), expected, 1e-5) == "", how


@needs_nvidia
@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machine_code(arch: str) -> None:
    scop, target = group(12, 128, 64), targets.get(arch)
    schedule = automatic(scop, target)
    (used,) = compile_gpu(schedule.scop, schedule.tree, target).cubin().resources
    assert used.spill_loads == used.spill_stores == 0 and 0 < used.shared <= target.shared


def test_rows_that_do_not_fit_stay_apart() -> None:
    model = compile_model(proto(1, 1700, 8), target="opencl")
    assert not joined(model)
    assert any("does not fit in shared memory" in d for d in model.report().decisions)


def test_when_one_kernel_pays() -> None:
    """Bytes decide while the scores stay in L2."""
    assert Moved(scores=100, joined=300, apart=400).pays(l2=1000)
    assert not Moved(scores=100, joined=500, apart=400).pays(l2=1000)
    assert Moved(scores=2000, joined=500, apart=400).pays(l2=1000)
