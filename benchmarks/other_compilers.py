"""Further peers of `python -m benchmarks --peer jax|tvm`: XLA's CPU back end through JAX, and TVM. Where installed.

XLA reads no ONNX files: `onnx_in_jax` writes the nodes of a benchmark as calls of `jax.numpy` and `jax.lax`, jitted as
one function for the inputs' shapes, with the weights as constants. TVM reads the model with its own importer (Relax;
Relay, AutoTVM and auto_scheduler were removed in TVM 0.20) and compiles it untuned, by its own pipeline. Both keep
their arguments in arrays of their own and wait for the result; what they cannot read is named as refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from polyc.graph_driver.bench.peers import Inputs, Runner
from polyc.poly.errors import BuildError

Node = Callable[..., Any]


def jax_runner(model: onnx.ModelProto | str, inputs: Inputs, threads: int = 1) -> Runner:
    """XLA's code for the model. Raises `BuildError`: it has an operator that is not translated."""
    flags = f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()} intra_op_parallelism_threads={threads}"
    os.environ.setdefault("XLA_FLAGS", flags)
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", any(x.dtype.itemsize == 8 for x in inputs.values()))
    function = jax.jit(onnx_in_jax(_loaded(model)))
    feeds = {n: jax.numpy.asarray(x) for n, x in inputs.items()}
    compiled = function.lower(feeds).compile()
    return lambda: [np.asarray(r) for r in compiled(feeds)]


def _loaded(model: onnx.ModelProto | str) -> onnx.ModelProto:
    return onnx.load(model) if isinstance(model, str) else model


def onnx_in_jax(model: onnx.ModelProto) -> Callable[[Mapping[str, Any]], list[Any]]:
    """The model as a function of its inputs by name. Raises `BuildError`: an operator that is not translated."""
    table = _operators()
    graph = model.graph
    weights = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    for n in graph.node:
        if n.domain or n.op_type not in table:
            raise BuildError(f"{n.op_type} is not translated to JAX")

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        values: dict[str, Any] = {**weights, **feeds}
        for n in graph.node:
            attributes = {a.name: helper.get_attribute_value(a) for a in n.attribute}
            made = table[n.op_type](*[values[i] if i else None for i in n.input], **attributes)
            values[n.output[0]] = made
        return [values[o.name] for o in graph.output]

    return run


def _operators() -> dict[str, Node]:
    """The operators of the benchmarks by `jax.numpy` and `jax.lax`."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    def gemm(
        a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
    ) -> Any:
        made = jnp.matmul(a.T if transA else a, b.T if transB else b)
        made = made if alpha == 1.0 else alpha * made
        return made if c is None else made + (c if beta == 1.0 else beta * c)

    def window(x: Any, kernel: Any, pads: Any, auto: bytes, strides: Any) -> Any:
        rank = x.ndim - 2
        if auto in (b"SAME_UPPER", b"SAME_LOWER"):
            return auto.decode().replace("_UPPER", "")
        pads = pads or [0] * (2 * rank)
        return list(zip(pads[:rank], pads[rank:]))

    def conv(
        x: Any, w: Any, b: Any = None, kernel_shape: Any = None, strides: Any = None, pads: Any = None,
        dilations: Any = None, group: int = 1, auto_pad: bytes = b"NOTSET",
    ) -> Any:  # fmt: skip
        rank = x.ndim - 2
        strides = strides or [1] * rank
        made = lax.conv_general_dilated(
            x, w, strides, window(x, kernel_shape, pads, auto_pad, strides), rhs_dilation=dilations or [1] * rank,
            feature_group_count=group,
        )  # fmt: skip
        return made if b is None else made + b.reshape((1, -1) + (1,) * rank)

    def max_pool(
        x: Any, kernel_shape: Any, strides: Any = None, pads: Any = None, auto_pad: bytes = b"NOTSET",
        ceil_mode: int = 0, dilations: Any = None, storage_order: int = 0,
    ) -> Any:  # fmt: skip
        if ceil_mode or (dilations and set(dilations) != {1}):
            raise BuildError("MaxPool with these attributes is not translated to JAX")
        strides = strides or [1] * len(kernel_shape)
        padding = window(x, kernel_shape, pads, auto_pad, strides)
        padding = padding if isinstance(padding, str) else [(0, 0), (0, 0), *padding]
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, *kernel_shape), (1, 1, *strides), padding)

    def layer_norm(
        x: Any, scale: Any, bias: Any = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
    ) -> Any:
        axes = tuple(range(axis % x.ndim, x.ndim))
        mean = x.mean(axes, keepdims=True)
        made = (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon) * scale
        return made if bias is None else made + bias

    def reduced(fold: Node) -> Node:
        def run(x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
            chosen = None if axes is None else tuple(int(a) for a in np.ravel(axes))
            return fold(x, axis=chosen, keepdims=bool(keepdims))

        return run

    return {
        "Gemm": gemm, "MatMul": jnp.matmul, "Conv": conv, "MaxPool": max_pool, "LayerNormalization": layer_norm,
        "Relu": lambda x: jnp.maximum(x, 0), "Sigmoid": jax.nn.sigmoid, "Tanh": jnp.tanh, "Erf": lax.erf,
        "Exp": jnp.exp, "Sqrt": jnp.sqrt, "Add": jnp.add, "Sub": jnp.subtract, "Mul": jnp.multiply, "Div": jnp.divide,
        "Softmax": lambda x, axis=-1: jax.nn.softmax(x, axis), "Identity": lambda x: x,
        "Transpose": lambda x, perm=None: jnp.transpose(x, perm),
        "Flatten": lambda x, axis=1: x.reshape((int(np.prod(x.shape[:axis])), -1)),
        "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdims=True),
        "ReduceSum": reduced(jnp.sum), "ReduceMean": reduced(jnp.mean), "ReduceMax": reduced(jnp.max),
    }  # fmt: skip


def tvm_runner(model: onnx.ModelProto | str, inputs: Inputs, threads: int = 1) -> Runner:
    """TVM's code for the model, untuned. Raises whatever TVM raises on what it cannot read."""
    os.environ.setdefault("TVM_NUM_THREADS", str(threads))
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {n: list(x.shape) for n, x in inputs.items()}
    module = from_onnx(_loaded(model), shape_dict=shapes, keep_params_in_input=False)
    cpu = {"kind": "llvm", "mcpu": _cpu()}
    executable = tvm.compile(module, target=tvm.target.Target(cpu))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    order = [p.name for p in module["main"].params]
    given = [tvm.runtime.tensor(np.ascontiguousarray(inputs[n])) for n in order]

    def run() -> list[np.ndarray]:
        made = machine["main"](*given)
        made = made if isinstance(made, (list, tuple)) or not hasattr(made, "numpy") else [made]
        return [r.numpy() for r in made]

    return run


def _cpu() -> str:
    """LLVM's name of this machine."""
    from polyc.emit.targets import host

    return host().cpu


OTHERS: dict[str, Callable[[onnx.ModelProto | str, Inputs, int], Runner]] = {"jax": jax_runner, "tvm": tvm_runner}
"""By the names that `--peer` takes."""
PACKAGES = {"jax": "jax", "tvm": "apache-tvm"}
"""What to install for each."""
