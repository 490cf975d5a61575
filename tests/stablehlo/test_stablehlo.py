"""Programs of StableHLO, written for this test, against NumPy; what is refused; the harness of the public programs."""

import importlib.util

import numpy as np
import onnx
import pytest

import polyc
from polyc.graph_driver.stablehlo.parser import parse
from polyc.poly.errors import ArgumentError, ModelError
from tests.stablehlo.programs import difference, split

rng = np.random.default_rng(3)
ONE = """module { func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {
%0 = stablehlo.KIND %x : tensor<4xi8> return %0 : tensor<4xi8> } }"""


def compiled(signature: str, body: str, result: str, more: str = "") -> polyc.Model:
    """A module of one function with these arguments and operations, compiled."""
    text = f"module @m {{\n  func.func public @main({signature}) -> {result} {{\n{body}\n  }}\n{more}\n}}\n"
    return polyc.from_stablehlo(text, threads=1)


def test_a_network_with_its_softmax() -> None:
    model = compiled(
        '%arg0: tensor<4x6xf32> {jax.buffer_donor = true} loc("x"), %arg1: tensor<6x5xf32>, %arg2: tensor<5xf32>',
        """
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] :
        (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<5xf32>) -> tensor<4x5xf32>
    %2 = stablehlo.add %0, %1 : tensor<4x5xf32>
    %3 = call @relu(%2) : (tensor<4x5xf32>) -> tensor<4x5xf32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.maximum across dimensions = [1] :
        (tensor<4x5xf32>, tensor<f32>) -> tensor<4xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<4xf32>) -> tensor<4x5xf32>
    %6 = stablehlo.subtract %3, %5 : tensor<4x5xf32>
    %7 = stablehlo.exponential %6 : tensor<4x5xf32>
    %8 = stablehlo.reduce(%7 init: %cst) applies stablehlo.add across dimensions = [1] :
        (tensor<4x5xf32>, tensor<f32>) -> tensor<4xf32>
    %9 = "stablehlo.broadcast_in_dim"(%8) <{broadcast_dimensions = array<i64: 0>}> :
        (tensor<4xf32>) -> tensor<4x5xf32>
    %10 = stablehlo.divide %7, %9 : tensor<4x5xf32>
    return %10 : tensor<4x5xf32>""",
        '(tensor<4x5xf32> {jax.result_info = "result"})',
        """  func.func private @relu(%arg0: tensor<4x5xf32>) -> tensor<4x5xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<4x5xf32>
    %0 = stablehlo.maximum %arg0, %c : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }""",
    )
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 5), (5,)))
    wanted = np.exp(np.maximum(x @ w + b, 0))
    wanted /= wanted.sum(1, keepdims=True)
    np.testing.assert_allclose(model({"arg0": x, "arg1": w, "arg2": b})["result0"], wanted, rtol=1e-5)
    assert not [s for s in model.plan.steps if s.kind == "host"]


def test_slices_at_positions_outside_are_left_out_by_scatter_and_moved_by_gather() -> None:
    model = compiled(
        "%x: tensor<5x4xi16>, %j: tensor<3x1xi32>, %u: tensor<3x4xi16>",
        """
    %0 = "stablehlo.scatter"(%x, %j, %u) <{indices_are_sorted = false, scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
        index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%a: tensor<i16>, %b: tensor<i16>):
      %c = stablehlo.constant dense<2> : tensor<i16>
      %m = stablehlo.multiply %b, %c : tensor<i16>
      %s = stablehlo.add %a, %m : tensor<i16>
      stablehlo.return %s : tensor<i16>
    }) : (tensor<5x4xi16>, tensor<3x1xi32>, tensor<3x4xi16>) -> tensor<5x4xi16>
    %1 = "stablehlo.gather"(%x, %j) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 4>}> :
        (tensor<5x4xi16>, tensor<3x1xi32>) -> tensor<3x2x4xi16>
    return %0, %1 : tensor<5x4xi16>, tensor<3x2x4xi16>""",
        "(tensor<5x4xi16>, tensor<3x2x4xi16>)",
    )
    x, u = (rng.integers(-9000, 9000, s).astype(np.int16) for s in ((5, 4), (3, 4)))
    j = np.array([[3], [7], [3]], np.int32)
    scattered, gathered = model({"x": x, "j": j, "u": u}).values()
    wanted = x.copy()
    for row in (0, 2):
        wanted[3] += 2 * u[row]
    np.testing.assert_array_equal(scattered, wanted)
    np.testing.assert_array_equal(gathered, np.stack([x[3:5]] * 3))


def test_the_largest_element_and_its_place_windows_and_padding() -> None:
    model = compiled(
        "%x: tensor<3x8xf64>",
        """
    %i = stablehlo.iota dim = 1 : tensor<3x8xi32>
    %low = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [1] :
        (tensor<3x8xf64>, tensor<3x8xi32>, tensor<f64>, tensor<i32>) -> (tensor<3xf64>, tensor<3xi32>)
     reducer(%a: tensor<f64>, %b: tensor<f64>) (%k: tensor<i32>, %l: tensor<i32>)  {
      %p = stablehlo.compare  GE, %a, %b,  FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %q = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f64>
      %r = stablehlo.select %p, %k, %l : tensor<i1>, tensor<i32>
      stablehlo.return %q, %r : tensor<f64>, tensor<i32>
    }
    %2 = "stablehlo.reduce_window"(%x, %low) <{padding = dense<[[0, 0], [2, 1]]> : tensor<2x2xi64>,
        window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>}> ({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %m = stablehlo.maximum %a, %b : tensor<f64>
      stablehlo.return %m : tensor<f64>
    }) : (tensor<3x8xf64>, tensor<f64>) -> tensor<3x5xf64>
    %3 = stablehlo.pad %x, %low, low = [0, -1], high = [1, 2], interior = [1, 0] :
        (tensor<3x8xf64>, tensor<f64>) -> tensor<6x9xf64>
    %4 = stablehlo.slice %3 [0:6:2, 0:7] : (tensor<6x9xf64>) -> tensor<3x7xf64>
    return %0#1, %2, %4 : tensor<3xi32>, tensor<3x5xf64>, tensor<3x7xf64>""",
        "(tensor<3xi32>, tensor<3x5xf64>, tensor<3x7xf64>)",
    )
    x = rng.standard_normal((3, 8))
    places, windows, padded = model({"x": x}).values()
    np.testing.assert_array_equal(places, x.argmax(1).astype(np.int32))
    wide = np.pad(x, ((0, 0), (2, 1)), constant_values=-np.inf)
    np.testing.assert_array_equal(windows, np.stack([wide[:, 2 * k : 2 * k + 3].max(1) for k in range(5)], 1))
    np.testing.assert_array_equal(padded, x[:, 1:])


def test_loops_branches_and_shifts() -> None:
    model = compiled(
        "%n: tensor<i32>, %x: tensor<4xui32>",
        """
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %w:2 = stablehlo.while(%k = %zero, %v = %x) : tensor<i32>, tensor<4xui32>
     cond {
      %c = stablehlo.compare  LT, %k, %n,  SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %k1 = stablehlo.add %k, %one : tensor<i32>
      %v1 = stablehlo.add %v, %v : tensor<4xui32>
      stablehlo.return %k1, %v1 : tensor<i32>, tensor<4xui32>
    }
    %s = "stablehlo.case"(%n) ({
      stablehlo.return %w#1 : tensor<4xui32>
    }, {
      %c33 = stablehlo.constant dense<[0, 4, 31, 32]> : tensor<4xui32>
      %r = stablehlo.shift_right_logical %w#1, %c33 : tensor<4xui32>
      stablehlo.return %r : tensor<4xui32>
    }, {
      %r = stablehlo.not %w#1 : tensor<4xui32>
      stablehlo.return %r : tensor<4xui32>
    }) : (tensor<i32>) -> tensor<4xui32>
    return %s : tensor<4xui32>""",
        "tensor<4xui32>",
    )
    x = np.array([1, 0x90000001, 0xFFFFFFFF, 7], np.uint32)
    for n in (0, 1, 5):
        doubled = x << np.uint32(n)
        shifted = np.array([int(v) >> s for v, s in zip(doubled, (0, 4, 31, 32), strict=True)], np.uint32)
        wanted = doubled if n == 0 else shifted if n == 1 else ~doubled
        np.testing.assert_array_equal(model({"n": np.int32(n).reshape(()), "x": x})["result0"], wanted)


def test_a_convolution_in_the_layout_of_jax() -> None:
    model = compiled(
        "%x: tensor<2x5x6x3xf32>, %k: tensor<2x3x3x4xf32>",
        """
    %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {stride = [2, 1], pad = [[1, 0], [-1, 2]], lhs_dilate = [1, 2], reverse = [true, false]}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64} :
        (tensor<2x5x6x3xf32>, tensor<2x3x3x4xf32>) -> tensor<2x3x10x4xf32>
    return %0 : tensor<2x3x10x4xf32>""",
        "tensor<2x3x10x4xf32>",
    )
    x, k = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5, 6, 3), (2, 3, 3, 4)))
    wide = np.zeros((2, 6, 12, 3), np.float32)
    wide[:, 1:, 1:10:2] = x[:, :, 1:]  # two between, one from the left taken away: 11 - 1 + 2
    wanted = np.zeros((2, 3, 10, 4), np.float32)
    for a in range(2):
        for b in range(3):
            wanted += np.einsum("nijc,co->nijo", wide[:, a : a + 5 : 2, b : b + 10], k[::-1][a, b])
    np.testing.assert_allclose(model({"x": x, "k": k})["result0"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "place", "says"),
    [
        ("%0 = stablehlo.fft %x, type = FFT, length = [4] : tensor<4xf32>", 3, "no operation stablehlo.fft"),
        ("%0 = stablehlo.custom_call @cusolver(%x) : (tensor<4xf32>) -> tensor<4xf32>", 3, "custom_call @cusolver"),
        ("%0 = stablehlo.complex %x, %x : tensor<4xcomplex<f32>>", 3, "complex"),
        ("%0 = stablehlo.add %x, %y : tensor<4xf32>", 3, "%y is not defined"),
        ("%0 = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>", 3, "calls itself"),
        ("%0 = stablehlo.add %x, %x : tensor<5xf32>", 3, "gives f32[5], but an operand is f32[4]"),
        ("%0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<4xf32>", 3, "2 elements for 4"),
        ("%0 = stablehlo.constant dense<0.0> : tensor<1000000x1000000xf32>", 3, "more than 2 GiB"),
        (f"%0 = stablehlo.abs %x {{a = {'[' * 5000}{']' * 5000}}} : tensor<4xf32>", 3, "less depth is expected"),
        ("%0 = stablehlo.add %x %%", 3, "no part of MLIR's text"),
        ("%0 = stablehlo.constant dense<[1.0, 2.0", 4, "a number is expected"),
        ("%0 = stablehlo.abs %x : tensor<?xf32>", 3, "only a run knows"),
    ],
)
def test_what_is_refused_in_one_line_with_its_place(body: str, place: int, says: str) -> None:
    around = "module {\n func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\nBODY\n return %0 : tensor<4xf32>\n}}\n"
    text = around.replace("BODY", body)
    with pytest.raises(ModelError) as caught:
        polyc.from_stablehlo(text)
    assert says in str(caught.value) and f":{place}: " in str(caught.value) and "\n" not in str(caught.value)


def test_texts_cut_short_end_in_one_line() -> None:
    text = ONE.replace("KIND", "abs")
    for end in range(len(text)):
        with pytest.raises(ModelError):
            parse(text[:end])


def test_the_harness_tells_right_from_wrong() -> None:
    text = """module @m { func.func public @main() -> tensor<2xf32> {
    %0:2 = call @inputs() : () -> (tensor<2xf32>, tensor<2xf32>)
    %1 = call @expected() : () -> tensor<2xf32>
    %2 = stablehlo.add %0#0, %0#1 : tensor<2xf32>
    stablehlo.custom_call @check.expect_close(%2, %1) {has_side_effect = true} : (tensor<2xf32>, tensor<2xf32>) -> ()
    return %2 : tensor<2xf32> }
    func.func private @inputs() -> (tensor<2xf32>, tensor<2xf32>) {
    %a = stablehlo.constant dense<"0x0000803F00000040"> : tensor<2xf32>
    %b = stablehlo.constant dense<1.0> : tensor<2xf32>
    return %a, %b : tensor<2xf32>, tensor<2xf32> }
    func.func private @expected() -> tensor<2xf32> {
    %a = stablehlo.constant dense<[2.0, 3.0]> : tensor<2xf32>
    return %a : tensor<2xf32> } }"""
    case = split(parse(text))
    assert [list(v) for v in case.feeds.values()] == [[1, 2], [1, 1]] and case.rules == ["expect_close"]
    (actual,) = polyc.compile_model(polyc.graph_driver.stablehlo.convert.to_onnx(case.program))(case.feeds).values()
    assert not difference("expect_close", actual, case.expected[0])
    step = np.array([0, 4 * 2.0**-22], np.float32)
    assert "expect_close: 1 of 2" in difference("expect_close", actual + step, case.expected[0])
    assert "expect_eq" in difference("expect_eq", actual + step / 4, case.expected[0])
    assert not difference("expect_close", actual + step / 4, case.expected[0])
    nan = np.array([np.nan, 1], np.float32)
    assert not difference("expect_eq", nan, nan.copy()) and difference("expect_eq", nan, nan[::-1])


def test_a_model_as_a_file_of_onnx() -> None:
    proto = polyc.read_stablehlo(ONE.replace("KIND", "popcnt"))
    again = onnx.ModelProto.FromString(proto.SerializeToString())
    x = np.array([0, -1, 5, -128], np.int8)
    np.testing.assert_array_equal(polyc.compile_model(again)({"x": x})["result0"], [0, 8, 2, 1])


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_functions_of_jax() -> None:
    import jax
    import jax.numpy as jnp

    def perceptron(p: dict, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(jax.nn.gelu(x @ p["a"] + p["b"]) @ p["c"])

    def network(k: jax.Array, x: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = jax.lax.reduce_window(jax.nn.relu(y), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return y.mean((1, 2))

    def block(p: dict, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def norm(v: jax.Array) -> jax.Array:
            return (v - v.mean(-1, keepdims=True)) / jnp.sqrt(v.var(-1, keepdims=True) + 1e-5)

        q, k, v = (jnp.moveaxis((norm(x) @ p[n]).reshape(2, 8, 4, 8), 1, 2) for n in "qkv")
        s = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), q @ jnp.swapaxes(k, -1, -2) / 8**0.5, -1e9)
        y = x + jnp.moveaxis(jax.nn.softmax(s) @ v, 1, 2).reshape(2, 8, 32) @ p["o"]
        return y + jax.nn.gelu(norm(y) @ p["u"]) @ p["d"], s

    def array(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    weights = {n: array(32, 32) for n in "qkvo"} | {"u": array(32, 64), "d": array(64, 32)}
    for fn, args in (
        (perceptron, ({"a": array(6, 8), "b": array(8), "c": array(8, 3)}, array(5, 6))),
        (network, (array(3, 3, 2, 4), array(2, 8, 8, 2))),
        (block, (weights, array(2, 8, 32))),
    ):
        made = polyc.from_jax(fn, *args)
        ours, theirs = jax.tree_util.tree_flatten(made(*args)), jax.tree_util.tree_flatten(fn(*args))
        assert ours[1] == theirs[1]
        for a, b in zip(ours[0], theirs[0], strict=True):
            np.testing.assert_allclose(a, np.asarray(b), rtol=2e-4, atol=2e-5)
        with pytest.raises(ArgumentError):
            made(*[jax.tree_util.tree_map(lambda v: v[:1], a) for a in args])
