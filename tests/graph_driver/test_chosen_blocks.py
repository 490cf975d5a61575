"""Networks whose blocks are chosen for each input: early exits, skipped layers, experts. Only chosen ones do work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc
from polyc.graph_driver.explaining.work_done import work_done
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ModelError

ROWS, WIDTH, HIDDEN, EXPERTS, TOP = 5, 16, 48, 4, 2


def weights(seed: int, **shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(seed)
    return [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) / 4, name) for name, s in shapes.items()
    ]  # fmt: skip


def parsed(text: str, constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.extend(constants)
    onnx.checker.check_model(model)
    return model


def early_exit() -> onnx.ModelProto:
    """A head after the first layer; three more layers run where its answer is not sure enough."""
    return parsed(
        f"""
        g (float[1, {WIDTH}] x, float limit) => (float[1, 4] y) {{
            h0 = MatMul(x, w0)  h = Relu(h0)
            first = MatMul(h, head)
            top = ReduceMax <keepdims = 0> (first)
            sure = Greater(top, limit)
            y = If (sure) <
                then_branch = t () => (float[1, 4] a) {{ a = Identity(first) }},
                else_branch = e () => (float[1, 4] b) {{
                    b1 = MatMul(h, w1)  b2 = Relu(b1)  b3 = MatMul(b2, w2)  b4 = Relu(b3)  b = MatMul(b4, last)
                }}
            >
        }}""",
        weights(1, w0=(WIDTH, HIDDEN), head=(HIDDEN, 4), w1=(HIDDEN, HIDDEN), w2=(HIDDEN, HIDDEN), last=(HIDDEN, 4)),
    )


def skipped_layers(count: int) -> onnx.ModelProto:
    """Layers with a residual, each behind a gate of its own."""
    lines, last = [], "x"
    for k in range(count):
        lines.append(f"""
            i{k} = Constant <value = int64 {{{k}}}> ()
            g{k} = Gather(gates, i{k})
            x{k} = If (g{k}) <
                then_branch = t{k} () => (float[{ROWS}, {WIDTH}] a{k}) {{
                    u{k} = MatMul({last}, w{k})  v{k} = Relu(u{k})  a{k} = Add({last}, v{k})
                }},
                else_branch = e{k} () => (float[{ROWS}, {WIDTH}] b{k}) {{ b{k} = Identity({last}) }}
            >""")
        last = f"x{k}"
    signature = f"g (float[{ROWS}, {WIDTH}] x, bool[{count}] gates) => (float[{ROWS}, {WIDTH}] {last})"
    return parsed(f"{signature} {{ {''.join(lines)} }}", weights(2, **{f"w{k}": (WIDTH, WIDTH) for k in range(count)}))


def experts_of_one_token() -> onnx.ModelProto:
    """The two experts with the largest scores, by a loop whose body reads the chosen weights alone."""
    return parsed(
        f"""
        g (float[1, {WIDTH}] x) => (float[1, {WIDTH}] y) {{
            scores = MatMul(x, router)
            k = Constant <value = int64[1] {{{TOP}}}> ()
            best, chosen = TopK <axis = 1> (scores, k)
            share = Softmax <axis = 1> (best)
            flat_shape = Constant <value = int64[1] {{{TOP}}}> ()
            which = Reshape(chosen, flat_shape)
            shares = Reshape(share, flat_shape)
            up = Gather <axis = 0> (w1, which)
            down = Gather <axis = 0> (w2, which)
            h0 = MatMul(x, up)  h = Relu(h0)
            parts = MatMul(h, down)
            column = Constant <value = int64[3] {{{TOP}, 1, 1}}> ()
            scale = Reshape(shares, column)
            scaled = Mul(parts, scale)
            axis = Constant <value = int64[1] {{0}}> ()
            y = ReduceSum <keepdims = 0> (scaled, axis)
        }}""",
        weights(3, router=(WIDTH, EXPERTS), w1=(EXPERTS, WIDTH, HIDDEN), w2=(EXPERTS, HIDDEN, WIDTH)),
    )


def experts_behind_gates() -> onnx.ModelProto:
    """Each expert runs if any row chose it: what a router over many rows does."""
    lines = ["scores = MatMul(x, router)  chosen = ArgMax <axis = 1, keepdims = 1> (scores)"]
    total = ""
    for e in range(EXPERTS):
        lines.append(f"""
            e{e} = Constant <value = int64 {{{e}}}> ()
            mine{e} = Equal(chosen, e{e})
            mask{e} = Cast <to = 1> (mine{e})
            any{e} = ReduceMax <keepdims = 0> (mask{e})
            on{e} = Cast <to = 9> (any{e})
            y{e} = If (on{e}) <
                then_branch = t{e} () => (float[{ROWS}, {WIDTH}] a{e}) {{
                    u{e} = MatMul(x, up{e})  v{e} = Relu(u{e})  d{e} = MatMul(v{e}, down{e})  a{e} = Mul(d{e}, mask{e})
                }},
                else_branch = z{e} () => (float[{ROWS}, {WIDTH}] b{e}) {{ b{e} = ConstantOfShape(shape) }}
            >
            s{e} = {f"Add({total}, y{e})" if total else f"Identity(y{e})"}""")
        total = f"s{e}"
    shapes = {f"up{e}": (WIDTH, HIDDEN) for e in range(EXPERTS)} | {f"down{e}": (HIDDEN, WIDTH) for e in range(EXPERTS)}
    constants = [
        *weights(4, router=(WIDTH, EXPERTS), **shapes),
        numpy_helper.from_array(np.array([ROWS, WIDTH]), "shape"),
    ]
    text = f"g (float[{ROWS}, {WIDTH}] x) => (float[{ROWS}, {WIDTH}] {total}) {{ {' '.join(lines)} }}"
    return parsed(text, constants)


def close(proto: onnx.ModelProto, model: Model, feeds: dict[str, np.ndarray]) -> None:
    expected = ReferenceEvaluator(proto).run(None, feeds)
    for value, wanted in zip(model(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=2e-6)


def test_an_early_exit_leaves_out_the_layers_behind_it() -> None:
    proto = early_exit()
    model = polyc.compile_model(proto, threads=1)
    x = np.random.default_rng().standard_normal((1, WIDTH)).astype(np.float32)
    before = 2 * WIDTH * HIDDEN + HIDDEN + 2 * HIDDEN * 4 + 4
    behind = 2 * (2 * HIDDEN * HIDDEN + HIDDEN) + 2 * HIDDEN * 4
    for limit, more in ((-1e9, 0), (1e9, behind)):
        feeds = {"x": x, "limit": np.float32(limit)}
        close(proto, model, feeds)
        work = work_done(model, feeds)
        assert work.operations == pytest.approx(before + more, abs=8)
        assert work.every_branch - work.operations == (0 if more else behind)


def test_skipped_layers_cost_nothing() -> None:
    count = 3
    proto = skipped_layers(count)
    model = polyc.compile_model(proto, threads=1)
    rng = np.random.default_rng()
    for gates in (np.zeros(count, bool), np.ones(count, bool), rng.integers(0, 2, count).astype(bool)):
        feeds = {"x": rng.standard_normal((ROWS, WIDTH)).astype(np.float32), "gates": gates}
        close(proto, model, feeds)
        work = work_done(model, feeds)
        assert work.operations == int(gates.sum()) * (2 * ROWS * WIDTH * WIDTH + 2 * ROWS * WIDTH)
        taken = [name for name, times in work.bodies.items() if times and "then" in name]
        assert len(taken) == gates.sum()


def test_experts_that_are_not_chosen_are_not_read() -> None:
    """Of weights with NaN in every other expert the result is that of the chosen ones, and the work that of two."""
    proto = experts_of_one_token()
    model = polyc.compile_model(proto, threads=1)
    x = np.random.default_rng().standard_normal((1, WIDTH)).astype(np.float32)
    close(proto, model, {"x": x})
    work = work_done(model, {"x": x})
    products = 2 * WIDTH * EXPERTS + TOP * 4 * WIDTH * HIDDEN
    assert products <= work.operations <= products + 200 + 4 * TOP * (HIDDEN + WIDTH)
    scores = x @ numpy_helper.to_array(proto.graph.initializer[0])
    others = np.argsort(-scores[0])[TOP:]
    for tensor in proto.graph.initializer[1:3]:
        value = numpy_helper.to_array(tensor).copy()
        value[others] = np.nan
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    (y,) = polyc.compile_model(proto, threads=1)({"x": x}).values()
    (whole,) = model({"x": x}).values()
    np.testing.assert_array_equal(y, whole)


def test_experts_that_no_row_chose_do_not_run() -> None:
    proto = experts_behind_gates()
    model = polyc.compile_model(proto, threads=1)
    router = numpy_helper.to_array(proto.graph.initializer[0])
    for rows in (1, ROWS):
        x = np.random.default_rng().standard_normal((rows, WIDTH)).astype(np.float32)
        feeds = {"x": np.repeat(x, ROWS // rows, 0)}
        close(proto, model, feeds)
        work = work_done(model, feeds)
        chosen = len(set(np.argmax(feeds["x"] @ router, 1)))
        ran = [name for name, times in work.bodies.items() if times and "then" in name]
        assert len(ran) == chosen
        one = 4 * ROWS * WIDTH * HIDDEN + ROWS * (HIDDEN + WIDTH)
        assert work.every_branch - work.operations == (EXPERTS - chosen) * one


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from polyc.graph_driver.cli import main

    path = tmp_path / "exit.onnx"
    onnx.save(early_exit(), path)
    assert main(["run", str(path), "--count-work"]) == 0
    said = capsys.readouterr().out
    assert "operations in" in said and "if every branch ran once" in said


def test_a_directory_has_nothing_to_count(tmp_path: Path) -> None:
    model = polyc.compile_model(early_exit(), threads=1)
    model.save(tmp_path / "m")
    loaded = polyc.load(tmp_path / "m")
    with pytest.raises(ModelError, match="keeps no operators to count"):
        work_done(loaded, {"x": np.zeros((1, WIDTH), np.float32), "limit": np.float32(0)})
