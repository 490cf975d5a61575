"""Operators as files: strict C under gcc and clang, LLVM's shared object; all equal plain Python."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import built_operators as built
import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest
import small_operators as small
from built_operators import COMPILERS, STRICT

from examples.indirection import spmv
from polyc import bf16, bool_, dims, empty, exp, f16, f32, f64, i8, i32, i64, inout, op, sqrt, u8
from polyc.emit.interface import interface_of
from polyc.emit.linking import linkers
from polyc.emit.targets import get, host
from polyc.graph_driver.artifacts.operator_files import build_operator, code_of, write_operator
from polyc.graph_driver.cli import main
from polyc.poly.errors import ArgumentError, BuildError

N, M, K = dims("N M K")
rng = np.random.default_rng(5)
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no gcc or clang on this machine")
MATMUL = Path(__file__).parents[2] / "examples" / "matmul.py"


@op
def moments(X: f32[M, N], alpha: f32, shift: i32) -> (f32[M], f64[M], i32[()]):
    mean = empty(M, f32)
    square = empty(M, f64)
    count = empty((), i32)
    count[()] = shift
    for i in range(M):
        mean[i] = 0.0
        square[i] = 0.0
        for j in range(N):
            mean[i] += X[i, j] * alpha
            square[i] += f64(X[i, j]) * f64(X[i, j])
    return mean, square, count


@op
def halves(X: f16[N], Y: bf16[N], c: f16) -> (f16[N], bf16[N], bool_[N]):
    A = empty(N, f16)
    B = empty(N, bf16)
    C = empty(N, bool_)
    for i in range(N):
        A[i] = X[i] * c + X[i]
        B[i] = Y[i] * Y[i]
        C[i] = X[i] > c
    return A, B, C


@op
def integers(A: i8[N], B: u8[N], C: inout(i32[N]), D: i64[N]) -> (i8[N], u8[N], i64[N]):
    X = empty(N, i8)
    Y = empty(N, u8)
    Z = empty(N, i64)
    for i in range(N):
        X[i] = A[i] * A[i] + A[i]
        Y[i] = B[i] * B[i] - B[i]
        C[i] = C[i] * C[i] * C[i] - C[i] // 7 + C[i] % 5
        Z[i] = D[i] * D[i] * D[i] - (D[i] << 3)
    return X, Y, Z


@op
def exp_(double: f32[N], free: f32[N]) -> f32[N]:
    """Arguments with names that C has taken."""
    main = empty(N, f32)
    for i in range(N):
        main[i] = exp(double[i]) + sqrt(free[i])
    return main


def floats(*shape: int) -> np.ndarray:
    return rng.random(shape, dtype=np.float32) + np.float32(0.25)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "matmul": (small.matmul, (floats(13, 9), floats(9, 21))),
    "softmax": (small.softmax, (floats(7, 19),)),
    "layer_norm": (small.layer_norm, (floats(5, 33), floats(33))),
    "transpose": (small.transpose, (floats(17, 23),)),
    "jacobi": (small.jacobi, (floats(12, 14),)),
    "moments": (moments, (floats(6, 40), np.float32(1.5), np.int32(-7))),
    "halves": (halves, (rng.random(37).astype(np.float16), rng.random(37).astype(ml_dtypes.bfloat16), np.float16(0.5))),
    "integers": (integers, (rng.integers(-128, 128, 50).astype(np.int8), rng.integers(0, 256, 50).astype(np.uint8),
                            rng.integers(-(2**31), 2**31, 50).astype(np.int32),
                            rng.integers(-(2**62), 2**62, 50))),
    "spmv": (spmv, (np.array([0, 3, 3, 5, 8], np.int32), rng.integers(0, 6, 8).astype(np.int32),
                          floats(8), floats(6))),
    "exp_": (exp_, (floats(40), floats(40))),
}  # fmt: skip


def sizes_of(operator: Any, args: tuple[Any, ...]) -> dict[str, int]:
    from polyc.poly.binding import bind_sizes

    scop = operator.scop()
    return bind_sizes(scop, {n: np.asarray(a).shape for n, a in zip(scop.args, args, strict=True)})


@needs_compiler
@pytest.mark.parametrize("fixed", [False, True], ids=["symbolic", "fixed"])
@pytest.mark.parametrize("name", CASES)
def test_files_equal_plain_python(name: str, fixed: bool, tmp_path: Path) -> None:
    """Symbolic sizes with GCC's vectors and without vectors; fixed ones with clang's and for this very machine."""
    operator, args = CASES[name]
    code = code_of(operator.scop(), sizes=sizes_of(operator, args) if fixed else {})
    files = write_operator(code, tmp_path, ("c", "so")).files
    ways = [(COMPILERS[0], "-O1"), (COMPILERS[-1], "-O1", "-DPOLYC_PLAIN_C")]
    if fixed:
        ways = [(COMPILERS[-1], "-O1"), (COMPILERS[0], "-O3", "-march=native")]
    libraries = [built.compiled(way[0], files["c"], tmp_path / f"{k}.so", *way[1:]) for k, way in enumerate(ways)]
    with np.errstate(all="ignore"):
        want = built.wanted(operator, args)
    for library in (files["so"], *libraries):
        for scratch in {False, code.described.has_scratch}:
            built.assert_equal(built.call(library, code.interface, code.scop, args, scratch), want)


@needs_compiler
@pytest.mark.parametrize("operator", [small.softmax, moments, halves, spmv], ids=lambda o: o.name)
def test_the_program_prints_the_same_checksum_everywhere(operator: Any, tmp_path: Path) -> None:
    files = operator.build(tmp_path, emit="c,h,so")
    said = []
    for other in ("c", "so"):
        program = tmp_path / f"{other}.out"
        command = [COMPILERS[0], *STRICT, "-O1", files["main"], files[other], "-o", program, "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:1000]
        sizes = ["24"] * len(operator.scop().params)
        ran = subprocess.run([program, *sizes], capture_output=True, text=True, check=True)
        said.append([line.split()[2] for line in ran.stdout.splitlines() if "checksum" in line])
        assert "time " in ran.stdout
    np.testing.assert_allclose(np.array(said[0], float), np.array(said[1], float), rtol=1e-5)


@needs_compiler
def test_a_saved_schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `polyc inspect --stage schedule --yaml` prints, edited or not, and a saved trace."""
    found = small.matmul.scop().schedule().tile(("i", "j"), (8, 16))
    for name, text in (("tiled.yaml", found.to_yaml()), ("trace.json", found.save())):
        (tmp_path / name).write_text(text)
        folder = tmp_path / name.partition(".")[0]
        command = ["build", f"{MATMUL}:matmul", "-o", str(folder), "--schedule", str(tmp_path / name), "--emit", "c,h"]
        assert main(command) == 0 and "wrote" in capsys.readouterr().out
        source = folder / "matmul.c"
        assert "i_out" in source.read_text()
        library = built.compiled(COMPILERS[0], source, folder / "made.so", "-O1")
        args = (floats(13, 9), floats(9, 21))
        code = code_of(small.matmul.scop())
        built.assert_equal(built.call(library, code.interface, code.scop, args), built.wanted(small.matmul, args))


@needs_compiler
def test_headers_compile_alone_and_from_cxx(tmp_path: Path) -> None:
    for operator in (small.matmul, exp_, halves):
        files = operator.build(tmp_path, emit="h")
        assert set(files) == {"h", "main"}
        for language in ("c", "c++"):
            flags = STRICT if language == "c" else ("-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror")
            text = f'#include "{files["h"].name}"\n#include "{files["h"].name}"\nint main(void) {{ return 0; }}\n'
            command = [COMPILERS[0], *flags, "-I", str(tmp_path), "-x", language, "-fsyntax-only", "-"]
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[:1000]


@needs_compiler
def test_called_from_a_cxx_program(tmp_path: Path) -> None:
    import shutil

    if shutil.which("g++") is None:
        pytest.skip("no g++")
    files = small.matmul.build(tmp_path, emit="h,so", M=2, N=2, K=2)
    (tmp_path / "use.cpp").write_text(
        '#include "matmul.h"\n#include <cstdio>\nint main() { float a[4] = {1, 2, 3, 4}, b[4] = {1, 1, 1, 1}, c[4];\n'
        'if (matmul(a, b, c)) return 1; std::printf("%g %g %g %g\\n", c[0], c[1], c[2], c[3]); }\n'
    )
    subprocess.run(["g++", tmp_path / "use.cpp", files["so"], "-o", tmp_path / "use"], check=True)
    ran = subprocess.run([tmp_path / "use"], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["3", "3", "7", "7"]


def test_llvm_parses_and_keeps_names() -> None:
    for name in ("moments", "halves", "spmv"):
        code = code_of(CASES[name][0].scop())
        module = llvm.parse_assembly(code.llvm())
        module.verify()
        function = module.get_function(code.interface.name)
        assert [a.name for a in function.arguments][: len(code.interface.parameters)] == [
            p.name for p in code.interface.parameters
        ]


@pytest.mark.parametrize(("target", "expected"), [("aarch64", "fmla\tv"), ("x86-64-v4", "zmm"), ("x86-64-v3", "ymm")])
def test_assembly_for_other_cpus(target: str, expected: str, tmp_path: Path) -> None:
    files = small.matmul.build(tmp_path, emit="asm,obj", target=target, M=64, N=64, K=64)
    assert expected in files["asm"].read_text()
    assert files["obj"].read_bytes()[:4] == b"\x7fELF"


def test_threads_run_on_a_pool_of_the_library(tmp_path: Path) -> None:
    if next(linkers(host()), None) is None:
        pytest.skip("no linker")
    operator, args = moments, (floats(200, 30), np.float32(2), np.int32(1))
    scop = operator.scop()
    made = build_operator(scop, tmp_path, "c,ll,so", threads=2)
    code = code_of(scop, threads=2)
    want = built.wanted(operator, args)
    built.assert_equal(built.call(made.files["so"], code.interface, code.scop, args), want)
    assert "polyc_pool_create" in made.files["ll"].read_text()
    for compiler in COMPILERS[:1]:
        library = built.compiled(compiler, made.files["c"], tmp_path / "omp.so", "-O1", "-fopenmp")
        built.assert_equal(built.call(library, code.interface, code.scop, args), want)


def test_wrong_sizes_are_returned(tmp_path: Path) -> None:
    if next(linkers(host()), None) is None:
        pytest.skip("no linker")
    files = small.matmul.build(tmp_path, emit="so,c")
    libraries = [files["so"], *(built.compiled(c, files["c"], tmp_path / f"{c}.so") for c in COMPILERS[:1])]
    for library in libraries:
        run = ctypes.CDLL(str(library)).matmul
        assert run(None, None, None, *map(ctypes.c_int64, (4, -1, 4))) == 3


def test_names_that_c_has_taken() -> None:
    interface = interface_of(exp_.scop(), "exp")
    names = [interface.name, *(p.name for p in interface.parameters)]
    assert names[0] == "exp_1" and len(set(names)) == len(names)
    assert not {"exp", "double", "free", "main"} & set(names)


def test_without_a_linker_only_the_shared_object_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert set(small.matmul.build(tmp_path / "a", emit=["obj", "ll"], M=8, N=8, K=8)) == {"obj", "ll"}
    with pytest.raises(BuildError, match="needs a linker.*--emit obj needs none"):
        small.matmul.build(tmp_path / "b", M=8, N=8, K=8)
    assert not (tmp_path / "b").exists()


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no kind of file 'exe'.*c, h, ll, mlir, asm, obj, so"):
        small.matmul.build(tmp_path, emit="c,exe")
    with pytest.raises(BuildError, match="for CPUs, and sm_80 is none"):
        small.matmul.build(tmp_path, emit="c", target="sm_80")
    with pytest.raises(BuildError, match="target c99 is none"):
        small.matmul.build(tmp_path, emit="obj", target="c99")
    assert get("aarch64").isa == "aarch64"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["build", f"{MATMUL}:nope"], 2, "has no operator 'nope'"),
        (["build", "nofile.py:matmul"], 2, "no such file: nofile.py"),
        (["build", f"{MATMUL}:matmul", "--emit", "exe"], 2, "choose from c, h, ll, mlir, asm, obj, so"),
        (["build", "model.onnx"], 2, "polyc compile"),
        (["compile", f"{MATMUL}:matmul"], 2, "polyc build"),
        (["build", f"{MATMUL}:matmul", "--size", "Q=3"], 2, "has no size 'Q' (it has M, K, N)"),
        (["build", f"{MATMUL}:matmul", "--const", "a=3"], 2, "no compile-time constant 'a'"),
        (["build", f"{MATMUL}:matmul", "--shape", "A=2,x"], 2, "expected --shape"),
        (["build", f"{MATMUL}:matmul", "--target", "arm9"], 1, "unknown target 'arm9'; known: cpu"),
        (["build", f"{MATMUL}:matmul", "--schedule", "none.json"], 2, "cannot read the schedule"),
    ],
)
def test_command_lines_that_are_wrong(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_the_command_writes_the_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert main(["build", f"{MATMUL}:matmul", "-o", str(folder), "--emit", "c,h,ll,asm,obj", "--size", "K=8"]) == 0
    assert sorted(p.name for p in folder.iterdir()) == [
        "matmul.c", "matmul.h", "matmul.ll", "matmul.o", "matmul.s", "matmul_main.c"
    ]  # fmt: skip
    assert "int matmul(const float *A, const float *B, float *C, int64_t M, int64_t N);" in capsys.readouterr().out
