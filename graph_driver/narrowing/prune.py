"""`polyc prune`: blocks of weights of least magnitude become zeros, which compiled products leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.narrowing.calibrate import samples
from polyc.graph_driver.narrowing.measures import relative_error, same_answers
from polyc.graph_driver.narrowing.prepare import Layer, constants, layers, prepared, replace_constant
from polyc.graph_driver.narrowing.quantize import check_kept, inputs_of
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

PANEL = 32  # columns of a block: those of a panel of `polyc.graph_driver.passes.zero_blocks`
ROWS = 4


@dataclass(frozen=True)
class Pruned:
    """A model with blocks of zeros. `errors` and `agreement` of its outputs as of `Quantised`; `layers`: blocks of
    zeros and all blocks of each matrix by name; `work`: multiply-adds of one row of all products, before and after."""

    model: onnx.ModelProto
    errors: Mapping[str, float]
    agreement: Mapping[str, float]
    layers: Mapping[str, tuple[int, int]]
    work: tuple[int, int]
    samples: int


def prune(
    path: Path | str, data: Mapping[str, np.ndarray], share: float = 0.5, rows: int = ROWS, keep: Sequence[str] = (),
    threads: int | None = None,
) -> Pruned:  # fmt: skip
    """Set blocks of the constant matrices of `MatMul` and `Gemm` to zero.

    A block is `rows` x `PANEL` elements of a matrix `[inner, columns]`; of each panel of columns the same number of
    blocks with the least sum of squares goes, so that all panels keep as many rows.

    Args:
        path: an ONNX file with f32 weights.
        data: for each input an array of samples, along the first axis, by which the change is measured.
        share: of the blocks of a panel that become zeros, from 0 to 1 (rounded down).
        rows: of a block.
        keep: layers (names of nodes) or operators that stay as they are.
        threads: of the runs that this takes.

    Raises:
        ArgumentError: an argument makes no sense, data do not fit, or no matrix has whole blocks.
        ModelError: the file is no model.
    """
    if not 0 < share < 1:
        raise ArgumentError(f"the share of blocks is between 0 and 1, not {share}")
    if rows < 1:
        raise ArgumentError(f"a block has at least one row, not {rows}")
    model = prepared(path)
    names, every = inputs_of(model), [n for n in layers(model) if n.operator != "Conv"]
    check_kept(every, keep)
    runs, values = [*samples(data, [*names], names)], constants(model.graph)
    found = [n for n in every if not {n.name, n.operator} & {*keep} and _fits(model, n, values, rows)]
    if not found:
        raise ArgumentError(f"{path}: there is no constant matrix of blocks of {rows} x {PANEL} to prune")
    thin, counts, work = onnx.ModelProto(), {}, [0, 0]
    thin.CopyFrom(model)
    for layer in found:
        node = model.graph.node[layer.place]
        weights = values[node.input[1]]
        columns = weights if layer.axis == 1 else weights.T
        zeroed, gone, all_blocks = without_blocks(columns, share, rows)
        name = f"{node.output[0]}.pruned"
        replace_constant(thin.graph, name, zeroed if layer.axis == 1 else zeroed.T)
        thin.graph.node[layer.place].input[1] = name
        counts[layer.name] = (gone, all_blocks)
        work = [work[0] + weights.size, work[1] + weights.size - gone * rows * PANEL]
    _drop_unread(thin)
    wanted, made = ([compile_model(m, threads=threads)(feeds) for feeds in runs] for m in (model, thin))
    errors = {n: relative_error([w[n] for w in wanted], [m[n] for m in made]) for n in wanted[0]}
    same = {n: same_answers([w[n] for w in wanted], [m[n] for m in made]) for n in wanted[0]}
    known = {n: answer for n, answer in same.items() if answer is not None}
    return Pruned(thin, errors, known, counts, (work[0], work[1]), len(runs))


def _fits(model: onnx.ModelProto, layer: Layer, values: Mapping[str, np.ndarray], rows: int) -> bool:
    weights = values[model.graph.node[layer.place].input[1]]
    return weights.shape[1 - layer.axis] % rows == 0 and weights.shape[layer.axis] % PANEL == 0


def without_blocks(matrix: np.ndarray, share: float, rows: int) -> tuple[np.ndarray, int, int]:
    """The matrix `[inner, columns]` without the least blocks of each panel, how many these are, and of how many."""
    inner, columns = matrix.shape
    blocks = matrix.reshape(inner // rows, rows, columns // PANEL, PANEL)
    sizes = np.square(blocks.astype(np.float64)).sum((1, 3))
    gone = int(share * len(sizes))
    kept = np.argsort(np.argsort(sizes, axis=0, kind="stable"), axis=0, kind="stable") >= gone
    zeroed = np.where(kept[:, None, :, None], blocks, matrix.dtype.type(0)).reshape(matrix.shape)
    return zeroed, gone * sizes.shape[1], sizes.size


def _drop_unread(model: onnx.ModelProto) -> None:
    """Without the constants that nothing reads."""
    read = {i for n in model.graph.node for i in n.input} | {o.name for o in model.graph.output}
    stored = [t for t in model.graph.initializer if t.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(stored)
