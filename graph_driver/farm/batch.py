"""A compiled model over many inputs on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ArgumentError, BuildError, PolycError
from polyc.poly.words import counted, first_line

if TYPE_CHECKING:
    from distributed import Client

    from polyc.graph_driver.running.model import Model

RETRIES = 2
"""How often Dask starts a piece again that has failed otherwise than by a refusal of polyc's."""


def batch(model: Model, arrays: Any, client: Client | None = None) -> Any:
    """A compiled model over many inputs, on the workers of a Dask cluster.

    Args:
        model: what `polyc.compile_model` or `polyc.load` gives. It goes to each worker once, machine code and weights;
            a worker with another CPU compiles its kernels again.
        arrays: a list of inputs (each a dictionary of arrays by the model's names, or the one array); a Dask bag of
            such; a Dask array; or a dictionary of Dask arrays, with NumPy arrays for what is the same for all blocks.
        client: of the cluster; None: the current one (`distributed.get_client`).

    Returns:
        Of a list the list of results, in order: dictionaries by output. Of a bag a bag. Of Dask arrays a dictionary of
        Dask arrays, which are computed when they are asked for: axis 0 of the inputs is the batch, in blocks of as many
        rows as the model was compiled for, or as the arrays have where the model takes any number.

    Raises:
        ArgumentError: the inputs do not fit the model. BuildError: Dask is not installed, there is no cluster, or it
            was lost.
    """
    try:
        import dask.array
        import dask.bag
        import distributed
    except ImportError:
        raise BuildError("polyc.batch needs Dask: pip install 'polyc[dask]' 'dask[array]'") from None
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            raise BuildError("polyc.batch has no cluster: give it a distributed.Client") from None
    if isinstance(arrays, dask.bag.Bag):
        return arrays.map_partitions(_all, dask.delayed(model, pure=False))
    if isinstance(arrays, dask.array.Array):
        arrays = {_only_input(model): arrays}
    if isinstance(arrays, Mapping):
        if not any(isinstance(x, dask.array.Array) for x in arrays.values()):
            raise ArgumentError("polyc.batch takes Dask arrays, a bag or a list of inputs; one input is model(inputs)")
        return _blocks(model, arrays)
    if isinstance(arrays, np.ndarray) or not isinstance(arrays, Iterable):
        raise ArgumentError(f"polyc.batch takes Dask arrays, a bag or a list of inputs, not {type(arrays).__name__}")
    return _gathered(model, list(arrays), client)


def _only_input(model: Model) -> str:
    names = list(model.inputs)
    if len(names) != 1:
        raise ArgumentError(f"the model has {counted(len(names), 'input')} ({', '.join(names)}): give a dictionary")
    return names[0]


def _run(model: Model, feeds: Any) -> dict[str, np.ndarray]:
    """One input through the model, on a worker."""
    found = model(feeds if isinstance(feeds, Mapping) else {_only_input(model): np.asarray(feeds)})
    return {name: np.array(value) for name, value in found.items()}  # its own memory, not that of the next run


def _all(partition: Iterable[Any], model: Model) -> list[dict[str, np.ndarray]]:
    return [_run(model, feeds) for feeds in partition]


def _gathered(model: Model, feeds: list[Any], client: Client) -> list[dict[str, np.ndarray]]:
    try:
        there = client.scatter(model, broadcast=True, hash=False)
        futures = client.map(_run, [there] * len(feeds), feeds, pure=False, retries=RETRIES)
        return list(client.gather(futures))
    except PolycError:
        raise
    except Exception as error:  # a worker's, the scheduler's, the network's
        raise BuildError(f"the cluster did not finish: {type(error).__name__}: {first_line(error)}") from None


def _blocks(model: Model, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Lazy arrays of all outputs, block by block of axis 0."""
    import dask
    import dask.array as da

    wanted = model.inputs
    unknown = sorted(set(arrays) ^ set(wanted))
    if unknown:
        raise ArgumentError(f"'{unknown[0]}' is {'no input of' if unknown[0] in arrays else 'missing for'} the model")
    lazy = {name: x for name, x in arrays.items() if isinstance(x, da.Array)}
    rows = {name: x.shape[0] if x.ndim else 0 for name, x in lazy.items()}
    if len(set(rows.values())) != 1 or not min(rows.values()):
        raise ArgumentError(f"the Dask arrays have {rows} rows on axis 0: they need as many, and at least one")
    sizes = _block_rows(model, lazy)
    whole = {name: x.rechunk((sizes, *x.shape[1:])) for name, x in lazy.items()}
    given = {name: x for name, x in arrays.items() if name not in lazy}
    there, run = dask.delayed(model, pure=False), dask.delayed(_run, pure=False)
    blocks = {name: x.to_delayed().reshape(-1) for name, x in whole.items()}
    results = [run(there, given | {name: b[k] for name, b in blocks.items()}) for k in range(len(sizes))]
    symbol = _rows_of(model, next(iter(lazy)))
    outputs = {}
    for name in model.plan.outputs:
        dtype = BY_NAME[model.plan.slots[name].dtype or "f32"].np
        parts = [
            da.from_delayed(result[name], _shape(model, name, symbol, size), dtype)
            for result, size in zip(results, sizes, strict=True)
        ]
        outputs[name] = da.concatenate(parts, allow_unknown_chunksizes=True)
    return outputs


def _block_rows(model: Model, lazy: Mapping[str, Any]) -> tuple[int, ...]:
    """Rows of each block. Raises `ArgumentError`: they are no multiple of what the model takes."""
    first = next(iter(lazy))
    total = int(lazy[first].shape[0])
    per = _rows_of(model, first)
    if not isinstance(per, int):
        return tuple(int(n) for n in lazy[first].chunks[0])
    if total % per:
        raise ArgumentError(
            f"{total} rows are no multiple of {per}, which the model was compiled for (symbolic sizes take any)"
        )
    return (per,) * (total // per)


def _rows_of(model: Model, name: str) -> int | str | None:
    """Axis 0 of a tensor: a number, a symbolic size by its name, None where the inputs decide."""
    declared = model.shape_of(name)
    return declared[0] if declared else None


def _shape(model: Model, output: str, symbol: int | str | None, rows: int) -> tuple[float, ...]:
    """The shape of an output of a block of so many rows, which the model calls `symbol`; NaN where a run decides."""
    declared = model.shape_of(output)
    if declared is None:
        declared = (None,) * len(model.plan.slots[output].shape or ())
    return tuple(n if isinstance(n, int) else rows if n is not None and n == symbol else float("nan") for n in declared)
