"""Known models come from the cache as they were, with everything that a user can do with a model; damage is found."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from known_models import counted, known, new, programs
from onnx import helper, numpy_helper
from symbolic_models import attention, convolutions, perceptron
from tiny_models import branching, model_of, network, recurrent, with_host_steps

import polyc
from polyc.emit import cache
from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.graph import stamps
from polyc.graph_driver.known import compiler, contents, entries, room
from polyc.poly.errors import ModelError

__all__ = ["programs"]  # a fixture


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of kernels, as the cache has them, for all tests here: most compile the same small network."""
    folder = tmp_path_factory.mktemp("kernels")
    for k in range(256):
        (folder / f"{k:02x}").mkdir()
    return folder


@pytest.fixture
def no_kernels() -> None:
    """For tests whose models must be compiled to the end."""


@pytest.fixture(autouse=True)
def kernels_of_all_tests(request: pytest.FixtureRequest, tmp_path: Path, kernels: Path) -> None:
    """The cache of a test begins with the kernels of those before it, and without finished programs."""
    (tmp_path / "cache").mkdir()
    for folder in () if "no_kernels" in request.fixturenames else kernels.iterdir():
        (tmp_path / "cache" / folder.name).symlink_to(folder)


def with_bodies() -> onnx.ModelProto:
    """An `If` whose branches are compiled, with weights of their own."""
    rng = np.random.default_rng(0)

    def branch(kind: str, name: str) -> onnx.GraphProto:
        weight = numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), f"w_{name}")
        nodes = [helper.make_node("MatMul", ["x", f"w_{name}"], [f"m_{name}"]),
                 helper.make_node(kind, [f"m_{name}"], [name])]  # fmt: skip
        out = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 16])
        return helper.make_graph(nodes, name, [], [out], [weight])

    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu", "one"), else_branch=branch("Tanh", "two")),
    ]
    inputs = {"x": [4, 16], "c": (onnx.TensorProto.BOOL, [1])}
    return model_of(nodes, inputs, {"y": [4, 16]}, {})


def saved(model: onnx.ModelProto, path: Path, age: float = 60.0) -> Path:
    """A model as a file that was written a minute ago, as most are."""
    onnx.save(model, path)
    return aged(path, age)


def aged(path: Path, age: float = 60.0) -> Path:
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now, now - int(age * 1e9)))
    return path


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything had been written long ago (nobody can set the time of an inode's change)."""
    monkeypatch.setattr(stamps.Stamp, "settled", lambda *_: True)


def inputs_of(model: polyc.Model, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        n: (rng.integers(0, 2, shape) if dtype.startswith(("i", "u", "bool")) else rng.standard_normal(shape)).astype(
            {"f32": "float32", "i64": "int64", "bool_": "bool"}[dtype]
        )
        for n, (dtype, shape) in model.inputs.items()
    }


MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "numbers": (network, {"dims": {"N": 2}}),
    "all sizes": (perceptron, {}),
    "images of all sizes": (convolutions, {}),
    "attention": (attention, {}),
    "host steps": (with_host_steps, {}),
    "recurrent": (recurrent, {}),
    "branches": (lambda: branching(np.random.default_rng(0), 5), {}),
    "bodies": (with_bodies, {}),
    "tasks": (network, {"dims": {"N": 2}, "tasks": True, "threads": 2}),
}


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("name", MODELS)
def test_a_known_model_is_the_one_that_was_compiled(programs: Path, tmp_path: Path, name: str) -> None:
    build, options = MODELS[name]
    source = build()
    first = new(source, **options)
    second = known(source, **options)
    given = inputs_of(first)
    for mode in ("graph", "eager"):
        one, two = first.run(given, mode), second.run(given, mode)
        assert one.keys() == two.keys()
        for n in one:
            np.testing.assert_array_equal(one[n], two[n])
    a, b = first.report(), second.report()
    for field in ("target", "threads", "nodes", "kernels", "distinct", "host", "passes", "notes", "decisions", "peak",
                  "bound", "weight_bytes", "sizes", "specialised"):  # fmt: skip
        assert getattr(a, field) == getattr(b, field), field
    assert b.cache_hits == b.distinct
    assert "the finished program, made" in str(b)
    assert b.made["seconds"].keys() >= {"import", "kernels"}
    first.save(tmp_path / "first")
    second.save(tmp_path / "second")
    for path in (p for p in (tmp_path / "first").rglob("*") if p.is_file()):
        assert path.read_bytes() == (tmp_path / "second" / path.relative_to(tmp_path / "first")).read_bytes(), path
    third = known(source, **options)
    assert str(third.plan.to_json()) == str(first.plan.to_json())
    assert third.inputs == first.inputs and third.shapes_text() == first.shapes_text()


def test_graph_and_groups_are_made_when_somebody_looks(programs: Path, tmp_path: Path) -> None:
    source = saved(network(), tmp_path / "net.onnx")
    first = new(source, dims={"N": 2})
    with counted() as compiled:
        second = polyc.compile_model(source, dims={"N": 2})
        second(inputs_of(second))
        assert compiled == []
        assert second.graph is not None and first.graph is not None
        assert [n.outputs for n in second.graph.nodes] == [n.outputs for n in first.graph.nodes]
        assert [g.key for g in second.groups] == [g.key for g in first.groups]
        assert len(compiled) == 1
    inside = next(t for g in first.groups for n in g.nodes[:-1] for t in n.writes())
    given = inputs_of(first)
    np.testing.assert_array_equal(second.inspect(given, [inside])[inside], first.inspect(given, [inside])[inside])


def test_bodies_are_made_when_somebody_looks(programs: Path) -> None:
    source = with_bodies()
    new(source)
    bodies = [b for h in known(source).hosts for b in getattr(h, "bodies", ())]
    second = polyc.compile_model(source)
    found = [b for h in second.hosts for b in getattr(h, "bodies", ())]
    assert len(found) == len(bodies) > 0
    assert all(b.graph is not None for b in found)


def test_who_looks_into_a_file_that_has_changed_is_told(programs: Path, tmp_path: Path) -> None:
    source = saved(network(), tmp_path / "net.onnx")
    new(source, dims={"N": 2})
    second = known(source, dims={"N": 2})
    saved(network(seed=9), source)
    assert second(inputs_of(second))
    with pytest.raises(ModelError, match="has changed since it was compiled"):
        _ = second.graph


def test_other_sizes_are_specialised_from_the_source(programs: Path) -> None:
    source = perceptron()
    new(source)
    second = known(source)
    sizes = {r.key: 5 for r in second.running.formulas.symbols.ranges.values()}  # type: ignore[union-attr]
    special = second.specialise(sizes)
    assert len(second.specialisations()) == 1
    given = inputs_of(special)
    for name, value in second(given).items():
        np.testing.assert_allclose(value, special(given)[name], rtol=1e-5, atol=1e-6)


def test_models_for_the_shapes_of_calls(programs: Path) -> None:
    """The refusal of symbolic sizes is remembered, and the model for the shapes, too."""
    source = perceptron()
    first = new(source, symbolic=False)
    said = first.report().sizes
    assert first.running.unsaved
    name, shape = next((i.name, [3, i.type.tensor_type.shape.dim[1].dim_value]) for i in source.graph.input)
    given = {name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    expected = first(given)
    with counted() as compiled:
        second = polyc.compile_model(source, symbolic=False)
        assert second.shapes_text() == first.shapes_text() and second.report().sizes == said
        for output, value in second(given).items():
            np.testing.assert_array_equal(value, expected[output])
        assert compiled == []


def test_warnings_come_again(programs: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    source = model_of(nodes, {"x": [3, 4]}, {"y": [3, 5]}, {})
    with pytest.warns(polyc.AnnotationWarning) as first:
        new(source)
    with pytest.warns(polyc.AnnotationWarning) as second:
        known(source)
    assert [str(w.message) for w in first] == [str(w.message) for w in second]


def test_tiers_share_nothing_but_the_full_program(programs: Path) -> None:
    """A fast program is not taken for the full one; a progressive model is the full one, if that is known."""
    source = network()
    new(source, dims={"N": 2}, tier="fast")
    known(source, dims={"N": 2}, tier="fast")
    first = new(source, dims={"N": 2})
    second = known(source, dims={"N": 2}, tier="progressive")
    assert second.plan.to_json() == first.plan.to_json()
    assert vars(second.code)["images"] == vars(first.code)["images"]


# ---- what is another model ----


def test_another_content_is_another_model(programs: Path, tmp_path: Path) -> None:
    """Of the same size, with the old times: the inode's time tells, or the content where that is too young."""
    path = tmp_path / "net.onnx"
    for seed in (1, 2, 3, 2):
        onnx.save(network(seed), path)
        os.utime(path, ns=(10**18, 10**18))
        got = polyc.compile_model(path, dims={"N": 2})
        expected = polyc.compile_model(network(seed), dims={"N": 2})
        np.testing.assert_array_equal(got.weights, expected.weights)


def test_a_file_that_has_just_been_written_is_read_each_time(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network(1), path)
    before = contents.content_of(path)
    assert before is not None and not before.settled
    assert not list((programs.parent / "files").glob("*"))  # nothing is remembered of it
    stamp = path.stat()
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    with path.open("r+b") as file:  # the same inode, size, and, as far as anybody can set it, time
        file.write(data)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    after = contents.content_of(path)
    assert after is not None and after.digest != before.digest
    assert not contents.unchanged(path, before)


def test_a_file_is_read_once(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(network(), tmp_path / "net.onnx")
    settle(monkeypatch)
    read: list[Path] = []
    digest = contents._digest
    monkeypatch.setattr(contents, "_digest", lambda p: (read.append(p), digest(p))[1])
    new(path, dims={"N": 2})
    known(path, dims={"N": 2})
    known(path, dims={"N": 2})
    assert len(read) == 1
    os.utime(path)
    known(path, dims={"N": 2})
    assert len(read) == 2


def test_what_is_remembered_of_a_file_may_be_damaged(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(network(), tmp_path / "net.onnx")
    settle(monkeypatch)
    found = contents.content_of(path)
    (place,) = (programs.parent / "files").glob("*.json")
    for damage in (b"", b"{}", b"[1]", b"null", place.read_bytes().replace(b"a", b"b"), place.read_bytes()[:-9]):
        place.write_bytes(damage)
        assert contents.content_of(path) == found


def external(folder: Path, seed: int) -> Path:
    """A model with its weights in a file of their own."""
    rng = np.random.default_rng(seed)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": [2, 32]}, {"y": [2, 48]}, {"w": rng.standard_normal((32, 48)).astype(np.float32)})
    path = folder / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
    return path


def test_external_data_is_part_of_the_content(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    a, b = external(tmp_path / "a", 1), external(tmp_path / "b", 2)
    assert a.read_bytes() == b.read_bytes()
    x = np.eye(2, 32, dtype=np.float32)
    first, second = new(a, threads=1)({"x": x})["y"], new(b, threads=1)({"x": x})["y"]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(known(a, threads=1)({"x": x})["y"], first)
    np.testing.assert_array_equal(known(b, threads=1)({"x": x})["y"], second)
    (tmp_path / "a" / "net.data").write_bytes((tmp_path / "b" / "net.data").read_bytes())
    np.testing.assert_array_equal(known(a, threads=1)({"x": x})["y"], second)
    (tmp_path / "a" / "net.data").unlink()
    with pytest.raises(ModelError):
        polyc.compile_model(a, threads=1)
    with pytest.raises(ModelError):  # bytes have no folder
        polyc.compile_model(b.read_bytes(), threads=1)
    (tmp_path / "a" / "net.data").symlink_to(tmp_path / "b" / "net.data")
    with pytest.raises(ModelError, match="outside"):
        polyc.compile_model(a, threads=1)


@pytest.mark.usefixtures("no_kernels")
def test_a_file_that_changes_while_it_is_compiled_is_not_kept(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network(1), path)
    changed = []

    def change(*_: object) -> None:
        if not changed:
            changed.append(onnx.save(network(2), path))

    polyc.compile_model(path, dims={"N": 2}, progress=change)
    assert changed and entries.entries() == []
    other = polyc.compile_model(path, dims={"N": 2})
    np.testing.assert_array_equal(other.weights, polyc.compile_model(network(2), dims={"N": 2}).weights)


def test_path_bytes_and_protobuf_are_one_content(programs: Path, tmp_path: Path) -> None:
    path = saved(network(), tmp_path / "net.onnx")
    new(path, dims={"N": 2})
    known(path.read_bytes(), dims={"N": 2})
    known(str(path), dims={"N": 2})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.onnx").write_bytes(path.read_bytes())
    known(tmp_path / "elsewhere" / "other.onnx", dims={"N": 2})
    proto = onnx.load(path)
    known(proto, dims={"N": 2})
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.float32), "w1"))
    new(proto, dims={"N": 2})


def test_another_compiler_is_told_by_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "STARTED", 1 << 62)
    one = compiler.identity()
    assert one is not None and one == compiler.identity()
    stamps_now = compiler._stamps
    monkeypatch.setattr(compiler, "_stamps", lambda: (stamps_now()[0] + "other", 0))
    monkeypatch.setattr(compiler, "_computed", lambda: "other")
    assert compiler.identity() == "other"
    monkeypatch.setattr(compiler, "STARTED", 0)  # files have changed since the process started
    assert compiler.identity() is None


# ---- damage, room, others ----


def test_damage_anywhere_is_found_and_said(programs: Path) -> None:
    source = network()
    expected = new(source, dims={"N": 2})
    given = inputs_of(expected)
    rng = random.Random(0)
    names = sorted(p.name for p in entries.entries()[0].iterdir())
    assert {"known.json", "manifest.json", "weights.bin", "code.bin", "sources.json"} <= set(names)
    for name in names:
        for damage in ("flip", "cut", "gone", "longer"):
            (folder,) = entries.entries()
            path = folder / name
            data = bytearray(path.read_bytes())
            if damage == "gone":
                path.unlink()
            elif damage == "longer":
                path.chmod(0o644)
                path.write_bytes(bytes(data) + b"x")
            elif not data:
                continue
            else:
                k = rng.randrange(len(data))
                path.chmod(0o644)
                data[k] ^= 1 << rng.randrange(8)
                path.write_bytes(data if damage == "flip" else data[:k])
            cache._notes.clear()
            model = polyc.compile_model(source, dims={"N": 2})
            assert not model.report().made, (name, damage)
            assert any("damaged finished program" in note for note in model.report().notes), (name, damage)
            np.testing.assert_array_equal(model(given)["y"], expected(given)["y"])
            assert polyc.compile_model(source, dims={"N": 2}).report().made, (name, damage, cache.notes())
    cache._notes.clear()


def test_weights_are_stored_once(programs: Path) -> None:
    source = network()
    new(source, dims={"N": 2})
    new(source, dims={"N": 2}, strict_shapes=True)
    first, second = ((folder / "weights.bin").stat() for folder in entries.entries())
    assert first.st_ino == second.st_ino and first.st_nlink == 3


def test_a_folder_of_the_cache_is_a_compiled_directory(programs: Path) -> None:
    model = new(network(), dims={"N": 2})
    (folder,) = entries.entries()
    given = inputs_of(model)
    np.testing.assert_array_equal(load(folder)(given)["y"], model(given)["y"])


def test_what_was_used_longest_ago_goes_first(programs: Path) -> None:
    models = [network(seed) for seed in range(4)]
    for k, model in enumerate(models):
        new(model, dims={"N": 2})
        for folder in entries.entries():
            if (folder / "known.json").stat().st_mtime > 1e9:
                os.utime(folder / "known.json", (k, k))
    known(models[0], dims={"N": 2})  # used now
    whole = room.bytes_of(entries.entries())
    room.make_room(whole * 5 // 8)
    assert len(entries.entries()) == 2
    known(models[0], dims={"N": 2})
    known(models[3], dims={"N": 2})
    room.make_room(0)
    assert entries.entries() == [] and not list((programs.parent / "weights").iterdir())


def test_a_program_too_large_for_the_cache_is_not_kept(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE_SIZE", "4K")
    new(network(), dims={"N": 2})
    new(network(), dims={"N": 2})
    assert any("POLYC_CACHE_SIZE allows more" in note for note in cache.notes())
    cache._notes.clear()


def test_what_goes_wrong_by_chance_is_not_kept(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.graph_driver.worker import kernels

    monkeypatch.setattr(kernels, "compile_all", lambda jobs, _: {j.symbol: "it took more than 1 s" for j in jobs})
    new(perceptron())
    assert entries.entries() == []


def test_programs_can_be_left_alone(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_PROGRAMS", "0")
    new(network(), dims={"N": 2})
    new(network(), dims={"N": 2})
    assert not programs.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_does_no_harm(programs: Path) -> None:
    programs.parent.chmod(0o500)
    new(network(), dims={"N": 2})


CHILD = """
import sys, numpy as np, polyc
rng = np.random.default_rng(1)
for k in map(int, sys.argv[2:]):
    model = polyc.compile_model(f"{sys.argv[1]}/net{k}.onnx", dims={"N": 2}, threads=1)
    expected = np.load(f"{sys.argv[1]}/net{k}.npy")
    got = model({"x": np.ones((2, 3, 10, 12), np.float32)})["y"]
    assert np.array_equal(got, expected), (k, got, expected)
    assert not [n for n in model.report().notes if "damaged" in n], model.report().notes
"""


def test_several_processes_at_once(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep, take and evict the same programs, each in an order of its own: nobody sees half of one."""
    x = np.ones((2, 3, 10, 12), np.float32)
    for k in range(3):
        saved(network(k), tmp_path / f"net{k}.onnx")
        model = new(tmp_path / f"net{k}.onnx", dims={"N": 2}, threads=1)
        np.save(tmp_path / f"net{k}.npy", model({"x": x})["y"])
    whole = room.bytes_of(entries.entries())
    room.make_room(0)
    monkeypatch.setenv("POLYC_CACHE_SIZE", str(whole))  # two of three fit
    rng = random.Random(1)
    orders = [[str(rng.randrange(3)) for _ in range(8)] for _ in range(3)]
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), *order], stderr=subprocess.PIPE, text=True)
        for order in orders
    ]
    assert [(c.communicate(timeout=240)[1], c.returncode) for c in children] == [("", 0)] * 3
    assert not list(programs.glob(".new-*"))


def test_several_threads_at_once(programs: Path) -> None:
    sources = [network(seed) for seed in range(2)]
    expected = [new(s, dims={"N": 2}, threads=1).weights.tobytes() for s in sources]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(10):
            k = rng.randrange(2)
            try:
                with warnings.catch_warnings():
                    model = polyc.compile_model(sources[k], dims={"N": 2}, threads=1)
                if model.weights.tobytes() != expected[k]:
                    wrong.append(k)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


NEEDED = """
import sys, polyc
from polyc.graph_driver.known import key
key.identity = lambda: "this compiler"
model = polyc.compile_model(sys.argv[1], threads=1)
assert model.report().made
heavy = ("onnx", "islpy", "importlib.metadata", "polyc.scheduler", "polyc.frontend_dsl.operator", "polyc.emit.lowering",
         "polyc.graph_driver.passes", "polyc.graph_driver.fusion.groups", "polyc.graph_driver.compiling")
print(*(name for name in heavy if name in sys.modules))
"""


@pytest.mark.parametrize("build", [network, perceptron, attention])
def test_a_known_model_needs_nothing_that_compiles(programs: Path, tmp_path: Path, build: Any) -> None:
    """Of the 0.3 s that a known model takes most are imports: none may come back unseen."""
    path = saved(build(), tmp_path / "net.onnx")
    new(path, threads=1)
    found = subprocess.run([sys.executable, "-c", NEEDED, str(path)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
