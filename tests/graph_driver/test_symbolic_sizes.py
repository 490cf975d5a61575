"""Models compiled once for all sizes: right at random sizes, guarded, planned by formulas, kept in a directory."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from symbolic_models import attention, convolutions, perceptron, table
from tiny_models import model_of

import polyc
from polyc.graph_driver.cli import main
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.table import Table
from polyc.graph_driver.planning.verify_plan import check_plan
from polyc.graph_driver.running.all_sizes import KEPT_SIZES, AllSizes
from polyc.graph_driver.running.model import Model
from polyc.graph_driver.running.specialising import KEPT as KEPT_SPECIALISED
from polyc.graph_driver.worker import kernels
from polyc.poly.errors import ArgumentError, BuildError, ModelError

MODELS = {"perceptron": perceptron, "convolutions": convolutions, "attention": attention}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Model]:
    """Each model, compiled once for all tests here."""
    found = {}
    for name, make in MODELS.items():
        model = compile_model(make(), threads=1, symbolic=True)
        assert isinstance(model.running, AllSizes)
        found[name] = model
    return found


def feeds(name: str, rng: np.random.Generator, batch: int, *size: int) -> dict[str, np.ndarray]:
    if name == "perceptron":
        return {"x": rng.standard_normal((batch, 12), np.float32)}
    if name == "convolutions":
        return {"x": rng.standard_normal((batch, 3, *size), np.float32)}
    mask = np.ones((batch, size[0]), np.int64)
    mask[-1, 1 + size[0] // 2 :] = 0
    return {"tokens": rng.integers(0, 50, (batch, size[0])), "mask": mask}


def some_sizes(name: str, rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    limits = {"perceptron": (70,), "convolutions": (4, 60, 60), "attention": (6, 40)}[name]
    ones = tuple(1 for _ in limits)
    return [ones, *(tuple(int(rng.integers(1, n + 1)) for n in limits) for _ in range(count))]


def close(ours: dict[str, Any], theirs: list[np.ndarray]) -> None:
    for (name, a), b in zip(ours.items(), theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, name
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_one_compile_is_right_at_random_sizes(
    compiled: dict[str, Model], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rng = compiled[name], np.random.default_rng(4)
    assert model.report().host == []
    monkeypatch.setattr(kernels, "compile_all", None)  # nothing is compiled any more
    session = onnxruntime.InferenceSession(MODELS[name]().SerializeToString(), providers=["CPUExecutionProvider"])
    for sizes in some_sizes(name, rng, 12):
        inputs = feeds(name, rng, *sizes)
        executor = model.for_inputs(inputs)
        executor.arena[...] = 0xFF  # NaN: what is read was written by this run
        expected = session.run(None, inputs)
        close(model(inputs), expected)
        close(model.eager(inputs), expected)


@pytest.mark.parametrize("name", MODELS)
def test_the_plan_of_any_size_passes_the_independent_check(compiled: dict[str, Model], name: str) -> None:
    formulas, rng = compiled[name].running.formulas, np.random.default_rng(5)
    for sizes in some_sizes(name, rng, 4):
        values = dict(zip(formulas.symbols.ranges, sizes, strict=True))
        plan = formulas.at(values)
        check_plan(plan, {s.symbol for s in plan.steps}, 0, 8 * Table(formulas).entries)
        assert plan.peak <= formulas.at({n: s + 3 for n, s in values.items()}).peak


def test_a_run_is_one_native_call(compiled: dict[str, Model]) -> None:
    for model in compiled.values():
        assert model.code.segments == 1


def test_sizes_are_remembered_up_to_a_bound(compiled: dict[str, Model]) -> None:
    model, rng = compiled["perceptron"], np.random.default_rng(6)
    for batch in range(1, KEPT_SIZES + 20):
        model(feeds("perceptron", rng, batch))
    assert len(model.running._bound) == KEPT_SIZES
    assert len(model.for_inputs(feeds("perceptron", rng, 3)).shared.idle) == 1


def test_guards_are_printed_and_kept(compiled: dict[str, Model]) -> None:
    model, rng = compiled["attention"], np.random.default_rng(7)
    assert any("1 <= length <= 40" in line and "Slice" in line for line in model.report().sizes)
    with pytest.raises(ArgumentError, match="size length is 41, the model was compiled for 1 <= length <= 40"):
        model(feeds("attention", rng, 2, 41))
    with pytest.raises(ArgumentError, match="size batch is 0, the model was compiled for batch >= 1"):
        model({"tokens": np.zeros((0, 4), np.int64), "mask": np.zeros((0, 4), np.int64)})
    wrong = feeds("attention", rng, 2, 9) | {"mask": np.ones((2, 8), np.int64)}
    with pytest.raises(ArgumentError, match=r"input 'mask' has size 8 on axis 1.*length = 9 in input 'tokens'"):
        model(wrong)
    with pytest.raises(ArgumentError, match="'mask' is missing"):
        model({"tokens": wrong["tokens"]})
    with pytest.raises(ArgumentError, match="the model was compiled for"):
        model({"tokens": wrong["tokens"][0], "mask": wrong["mask"]})


def test_memory_is_reported_as_formulas(compiled: dict[str, Model]) -> None:
    lines = "\n".join(compiled["attention"].report().sizes)
    assert "batch*length^2" in lines and "arena bytes" in lines and "bound bytes" in lines
    assert "width" in "\n".join(compiled["convolutions"].report().sizes)


def test_a_size_that_is_an_output(compiled: dict[str, Model]) -> None:
    assert compiled["attention"](feeds("attention", np.random.default_rng(0), 2, 17))["count"] == 17


def test_several_threads_at_different_sizes(compiled: dict[str, Model]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, rng = compiled["attention"], np.random.default_rng(8)
    inputs = [feeds("attention", rng, 1 + k % 3, 5 + k) for k in range(24)]
    alone = [model(i)["y"].copy() for i in inputs]
    with ThreadPoolExecutor(6) as pool:
        for k, y in enumerate(pool.map(lambda i: model(i)["y"].copy(), inputs * 3)):
            assert np.array_equal(y, alone[k % len(alone)])


def test_a_directory_keeps_the_formulas(compiled: dict[str, Model], tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    for name, model in compiled.items():
        model.save(tmp_path / name)
        again = polyc.load(tmp_path / name)
        assert isinstance(again.running, AllSizes)
        assert again.report().sizes == model.report().sizes
        for sizes in some_sizes(name, rng, 2):
            inputs = feeds(name, rng, *sizes)
            for output, value in model(inputs).items():
                assert np.array_equal(again(inputs)[output], value)


def test_a_directory_keeps_which_sizes_a_tensor_has(tmp_path: Path) -> None:
    """Their names are in another order than the tensors of the graph, and so of the table that the code reads."""
    nodes = [
        helper.make_node("Shape", ["x"], ["second"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Shape", ["t"], ["first"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m"])
    outs = [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, [2]) for n in ("second", "first")]
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], outs), opset_imports=[helper.make_opsetid("", 17)])
    model = compile_model(proto, threads=1, symbolic=True)
    assert model.plan.weight_bytes == 0
    model.save(tmp_path / "m")
    for some in (model, polyc.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        found = some({"x": np.zeros((3, 5), np.float32)})
        assert found["second"].tolist() == [3, 5] and found["first"].tolist() == [5, 3]


def test_an_older_directory_says_the_sizes_of_kernels_only_as_formulas(
    compiled: dict[str, Model], tmp_path: Path
) -> None:
    from polyc.graph_driver.artifacts import package
    from polyc.graph_driver.backends.cpu_code import program_digest

    model, rng = compiled["attention"], np.random.default_rng(10)
    model.save(tmp_path / "m")
    file = tmp_path / "m" / package.MANIFEST
    data = json.loads(file.read_text())
    data.pop("checksum")
    for step in data["plan"]["steps"]:
        step["sizes"] = []
    plan = Plan.from_json(json.dumps(data["plan"]))
    data["program"] = program_digest(plan, model.code.target.triple)
    data["checksum"] = package._checksum(data)
    file.write_text(json.dumps(data, sort_keys=True, separators=(",", ":")))
    again, inputs = polyc.load(tmp_path / "m"), feeds("attention", rng, 3, 11)
    for run in (again, again.eager):
        for name, value in model(inputs).items():
            assert np.array_equal(run(inputs)[name], value)


def test_a_damaged_order_of_the_arena_is_refused(compiled: dict[str, Model], tmp_path: Path) -> None:
    from polyc.graph_driver.artifacts import package

    compiled["convolutions"].save(tmp_path / "m")
    file = tmp_path / "m" / package.MANIFEST
    good = json.loads(file.read_text())
    good.pop("checksum")
    rows = [k for k, row in enumerate(good["symbolic"]["arena"]) if row[1]]
    for damage in (
        lambda d: d["symbolic"]["arena"][rows[-1]].__setitem__(1, []),
        lambda d: d["symbolic"]["shapes"].__setitem__("x", [1, 2]),
        lambda d: d["symbolic"]["params"].pop(),
        lambda d: d["symbolic"]["numbers"].clear(),
        lambda d: d["symbolic"].pop("ranges"),
    ):
        data = json.loads(json.dumps(good))
        damage(data)
        data["checksum"] = package._checksum(data)
        file.write_text(json.dumps(data, sort_keys=True, separators=(",", ":")))
        with pytest.raises(BuildError, match="damaged"):
            polyc.load(tmp_path / "m")


# ---- what a user asks for ------------------------------------------------------------------------------


def test_numbers_specialise_and_ranges_stay() -> None:
    part = compile_model(table(), threads=1, dims={"batch": 2, "length": (3, 9)})
    assert isinstance(part.running, AllSizes) and list(part.running.symbols.ranges) == ["length"]
    assert np.array_equal(part({"x": np.ones((2, 5), np.float32)})["y"], 1 + np.arange(5.0)[None].repeat(2, 0))
    with pytest.raises(ArgumentError, match="3 <= length <= 9"):
        part({"x": np.ones((2, 10), np.float32)})
    with pytest.raises(ArgumentError, match=r"has size 3 on axis 0, the model was compiled for \[2, length\]"):
        part({"x": np.ones((3, 5), np.float32)})
    assert type(compile_model(table(), threads=1, dims={"batch": 2, "length": 5})) is Model


def test_specialised_models_are_kept_up_to_a_bound() -> None:
    model = compile_model(table(), threads=1)
    assert isinstance(model.running, AllSizes)
    x = np.ones((2, 5), np.float32)
    before = model({"x": x})["y"].copy()
    special = model.specialise({"batch": 2, "length": 5})
    assert type(special) is Model and special is model.specialise({"length": 5, "batch": 2})
    assert np.array_equal(model({"x": x})["y"], before) and len(model.specialisations()) == 1
    for batch in range(1, KEPT_SPECIALISED + 3):
        model.specialise({"batch": batch, "length": 3})
    assert len(model.specialisations()) == KEPT_SPECIALISED
    with pytest.raises(ArgumentError, match="size length is 41"):
        model.specialise({"batch": 1, "length": 41})
    with pytest.raises(ArgumentError, match="size batch is not given"):
        model.specialise({"length": 4})


def test_an_unnamed_size_goes_by_its_input_and_axis() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [None, 3, None]}, {"y": None}, {})
    dynamic = compile_model(model, threads=1, dims={"x.0": (2, 5)})
    assert isinstance(dynamic.running, AllSizes) and list(dynamic.running.symbols.ranges) == ["x.0", "x.2"]
    assert dynamic({"x": -np.ones((3, 3, 9), np.float32)})["y"].shape == (3, 3, 9)
    with pytest.raises(ArgumentError, match=r"size x\.0 is 6, the model was compiled for 2 <= x\.0 <= 5"):
        dynamic({"x": np.ones((6, 3, 9), np.float32)})


def test_leading_sizes_are_symbolic_like_others() -> None:
    assert isinstance(compile_model(perceptron(), threads=1).running, AllSizes)
    assert isinstance(compile_model(table(), threads=1).running, AllSizes)


@pytest.mark.parametrize(
    "dims, message",
    {
        "low": ({"batch": (0, 0)}, r"the range 0\.\.0 has no sizes from 1 on"),
        "empty": ({"batch": (5, 4)}, r"the range 5\.\.4"),
        "unknown": ({"bach": (1, 4)}, "no size named 'bach'"),
    }.values(),
)
def test_ranges_that_make_no_sense(dims: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        compile_model(perceptron(), threads=1, dims=dims)


def test_a_memory_limit_holds_for_all_sizes() -> None:
    with pytest.raises(ModelError, match="needs an upper end of the sizes batch"):
        compile_model(perceptron(), threads=1, symbolic=True, memory_limit=1000)
    with pytest.raises(ModelError, match="at batch = 100, more than the memory limit"):
        compile_model(perceptron(), threads=1, dims={"batch": (1, 100)}, memory_limit=1000)


def test_what_cannot_stay_symbolic_is_named() -> None:
    model = model_of([helper.make_node("Det", ["x"], ["y"], "volume")], {"x": ["n", 3, 3]}, {"y": ["n"]}, {})
    with pytest.raises(ModelError, match="Det 'volume' cannot keep the sizes n symbolic: .*give them with --dim"):
        compile_model(model, threads=1, symbolic=True)


def line_reader(seed: int = 0) -> onnx.ModelProto:
    """A text line's picture to columns: its height must shrink to one row, which the usual sizes do not."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.standard_normal((5, 2, 3, 3), np.float32), "one": np.array([1]), "zero": np.array([0]),
        "five": np.array([5]), "three": np.array([3]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4, strides=[4, 2]),
        helper.make_node("AveragePool", ["a"], ["b"], kernel_shape=[3, 2], strides=[3, 2]),
        helper.make_node("Shape", ["b"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"]),
        helper.make_node("Gather", ["s", "three"], ["columns"]),
        helper.make_node("Concat", ["batch", "five", "one", "columns"], ["shape"], axis=0),
        helper.make_node("Reshape", ["b", "shape"], ["c"], "line"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return model_of(nodes, {"x": ["batch", 2, "height", "width"]}, {"y": ["batch", 5, 1, None]}, weights)


def test_representative_sizes_are_found_when_the_usual_ones_do_not_fit() -> None:
    model = compile_model(line_reader(), threads=1, symbolic=True)
    assert isinstance(model.running, AllSizes)
    assert any("9 <= height <= 20 (Reshape 'line')" in line for line in model.report().sizes)
    assert model.report().host == []  # one row is a number in them
    session = onnxruntime.InferenceSession(line_reader().SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(3)
    for height in range(9, 21):
        inputs = {"x": rng.standard_normal((int(rng.integers(1, 4)), 2, height, int(rng.integers(3, 50))), np.float32)}
        model.for_inputs(inputs).arena[...] = 0xFF
        close(model(inputs), session.run(None, inputs))
    with pytest.raises(ArgumentError, match="size height is 21"):
        model({"x": np.zeros((1, 2, 21, 9), np.float32)})


@pytest.mark.parametrize("opset", [13, 18])
def test_a_symbolic_size_is_split(opset: int) -> None:
    """Equal parts only before opset 18; a smaller last one since."""
    attributes = {"num_outputs": 3} if opset >= 18 else {}
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], "thirds", axis=1, **attributes),
        helper.make_node("Relu", ["a"], ["p"]),
        helper.make_node("Neg", ["b"], ["q"]),
        helper.make_node("Abs", ["c"], ["r"]),
    ]
    proto = model_of(nodes, {"x": [2, "length"]}, {"p": None, "q": None, "r": None}, {})
    proto.opset_import[0].version = opset
    model = compile_model(proto, threads=1, symbolic=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(opset)
    for length in (3, 9, 33, *((5, 20) if opset >= 18 else ())):
        inputs = {"x": rng.standard_normal((2, length), np.float32)}
        close(model(inputs), session.run(None, inputs))
    with pytest.raises(ArgumentError, match="thirds"):
        model({"x": np.zeros((2, 4), np.float32)})  # 2, 2 and nothing


def test_a_squeeze_of_whatever_is_one_keeps_symbolic_sizes() -> None:
    node = helper.make_node("Squeeze", ["x"], ["s"], "all")
    model = compile_model(
        model_of([node, helper.make_node("Neg", ["s"], ["y"])], {"x": ["n", 1, 4]}, {"y": None}, {}),
        threads=1, symbolic=True,
    )  # fmt: skip
    assert model({"x": np.ones((3, 1, 4), np.float32)})["y"].shape == (3, 4)
    with pytest.raises(ArgumentError, match=r"compiled for n >= 2 \(Squeeze 'all'\)"):
        model({"x": np.ones((1, 1, 4), np.float32)})


def test_images_are_doubled_and_filled() -> None:
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["big"], mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric"),
        helper.make_node("Shape", ["big"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["ones"], value=numpy_helper.from_array(np.float32([2.5]))),
        helper.make_node("Add", ["big", "ones"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"x": [1, "height", "width"]}, {"y": None}, {"scales": np.float32([1, 2, 3])})
    dynamic = compile_model(model, threads=1, symbolic=True)
    assert dynamic.report().host == []
    for height, width in ((1, 1), (5, 9), (16, 33)):
        x = np.random.default_rng(height).standard_normal((1, height, width), np.float32)
        assert np.array_equal(dynamic({"x": x})["y"], x.repeat(2, 1).repeat(3, 2) + np.float32(2.5))


def test_two_sizes_that_must_agree_are_one() -> None:
    node = helper.make_node("Add", ["x", "z"], ["y"], "sum")
    model = model_of([node], {"x": ["n", 4], "z": ["m", 4]}, {"y": [None, 4]}, {})
    both = compile_model(model, threads=1, symbolic=True)
    assert isinstance(both.running, AllSizes) and list(both.running.symbols.ranges) == ["n"]
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(both({"x": x, "z": x})["y"], 2 * x)
    with pytest.raises(ArgumentError, match=r"input 'z' has size 2 on axis 0.*n = 3 in input 'x'"):
        both({"x": x, "z": x[:2]})


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "m.onnx", tmp_path / "m"
    onnx.save(table(), file)

    def command(*arguments: Any) -> tuple[int, str]:
        code = main([str(a) for a in arguments])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    code, text = command("compile", file, "-o", out, "--threads", 1)
    assert code == 0 and "sizes    size 1 <= length <= 40 (Slice 'cut')" in text
    np.save(tmp_path / "x.npy", np.ones((2, 5), np.float32))
    code, text = command("run", out, "--input", f"x={tmp_path / 'x.npy'}", "--check", "--reference", file)
    assert code == 0 and "y: float32[2, 5]" in text
    assert "float32[3, 7]" in command("run", out, "--dim", "batch=3", "--dim", "length=7")[1]
    assert command("run", out, "--dim", "n=3") == (
        1,
        "polyc: the model has no symbolic size 'n'; it has batch, length\n",
    )
    assert "size length is 41" in command("run", out, "--dim", "length=41")[1]
    assert "arena bytes" in command("inspect", out, "--stage", "memory")[1]
    assert "1 <= length <= 8" in command("inspect", file, "--stage", "plan", "--dim", "length=1..8")[1]
    assert command("compile", file, "-o", out, "--dim", "length=8..")[0] == 0
    assert command("compile", file, "-o", out, "--dim", "length=1..x")[0] == 2
    code, text = command("compile", file, "--target", "c", "-o", tmp_path / "c", "--dim", "length=any")
    assert code == 1 and "sizes not given: batch" in text
