"""Questions on a schedule: what is free, what depends on what, how much is computed and touched."""

from __future__ import annotations

import numpy as np
import pytest

from examples import polybench
from examples.matmul import matmul
from polyc import dims, empty, f32, f64, i64, op
from polyc.poly.closed_forms.pieces import CountingError
from polyc.poly.errors import ArgumentError, ScheduleError
from polyc.scheduler.schedule import Schedule

N, M = dims("N M")


def test_matmul() -> None:
    s: Schedule = matmul.scop().schedule()
    text = {w: str(s.count(w)) for w in ("flops", "instances", "loads", "stores", "bytes", "traffic")}
    assert text == {
        "flops": "2*K*M*N", "instances": "M*N*(K + 1)", "loads": "3*K*M*N", "stores": "M*N*(K + 1)",
        "bytes": "4*(K*M + K*N + M*N)", "traffic": "4*M*N*(4*K + 1)",
    }  # fmt: skip
    assert str(s.count("flops", statements="S0")) == "0" and s.count("flops")(M=3, N=4, K=5) == 120
    assert str(s.intensity()) == "K*M*N / (2*(K*M + K*N + M*N))"
    assert s.parallel_loops() == ("i", "j") and s.parallel_loops(reductions=True) == ("i", "j", "k")
    assert s.permutable_bands() == (("i", "j"),)


def test_tiles() -> None:
    s: Schedule = matmul.scop().schedule()
    s = s.tile(["i", "j", "k"], [64, 32, 16])
    assert str(s.footprint("A", at="k.out")) == "min(16, K - 16*k.out)*min(64, M - 64*i.out)"
    assert str(s.footprint("C", at="j.out")) == "min(32, N - 32*j.out)*min(64, M - 64*i.out)"
    assert str(s.footprint("A")) == "K*M" and str(s.footprint("C", reads=False)) == "M*N"
    assert s.footprint("A", at="k.out").largest(M=100, K=100, N=100) == 1024
    assert s.footprint("A", at="k.out")(M=100, K=20, N=1, i_out=1, j_out=0, k_out=1) == 36 * 4
    assert str(s.reuse("A", at="k.out")) == "min(32, N - 32*j.out)"
    assert s.permutable_bands() == (("i.out", "j.out", "k.out", "i.in", "j.in", "k.in"),)
    with pytest.raises(ArgumentError, match="not meant for"):
        s.footprint("A", at="k.out")({"M": 64, "K": 16, "N": 1, "i.out": 5, "j.out": 0, "k.out": 0})


def test_guards_count_exactly_where_they_are_affine() -> None:
    @op
    def upper(A: f64[N, N]) -> f64[N, N]:
        B = empty((N, N), f64)
        for i in range(N):
            for j in range(N):
                B[i, j] = A[i, j] * 2.0 if j >= i else A[j, i] + A[i, j] + 1.0
        return B

    s = Schedule.start(upper.scop())
    flops = s.count("flops")
    assert flops.exact and [flops(N=n) for n in (1, 2, 5)] == [n * (n + 1) // 2 + n * (n - 1) for n in (1, 2, 5)]
    assert s.count("loads")(N=4) == 10 + 2 * 6


def test_what_depends_on_data_is_a_bound_or_refused() -> None:
    @op
    def relu(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = 0.0
            if A[i] > 0.0:
                B[i] = A[i] * 3.0
        return B

    flops = Schedule.start(relu.scop()).count("flops")
    assert not flops.exact and str(flops) == "at most N" and "depends on data" in flops.why

    @op
    def rows(ptr: i64[N + 1], A: f32[M]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = 0.0
            for k in range(ptr[i], ptr[i + 1]):
                B[i] += A[k]
        return B

    with pytest.raises(CountingError, match="loop 'k' of S1 has bounds that depend on data"):
        Schedule.start(rows.scop()).count("flops")
    assert str(Schedule.start(rows.scop()).count("flops", statements="S0")) == "0"


def test_unknown_names() -> None:
    s: Schedule = matmul.scop().schedule()
    with pytest.raises(ScheduleError, match="cannot count 'joy'"):
        s.count("joy")
    with pytest.raises(ScheduleError, match="no loop 'z'"):
        s.count("flops", at="z")
    with pytest.raises(ScheduleError, match="no statement 'S0' inside loop 'k'"):
        s.count("flops", at="k", statements=["S0"])
    with pytest.raises(ScheduleError, match="no array 'Q'"):
        s.footprint("Q")
    with pytest.raises(ScheduleError, match="kinds are RAW, WAR, WAW"):
        s.dependences("XXX")


def test_dependences_read_well() -> None:
    s: Schedule = matmul.scop().schedule()
    flow = s.dependences("RAW")
    assert [(d.source, d.sink, d.array, d.distance) for d in flow] == [
        ("S0", "S1", "C", (0, 0)), ("S1", "S1", "C", (0, 0, 1)),
    ]  # fmt: skip
    assert str(flow[1]).startswith("RAW on C: S1 reads what S1 wrote (line 16): { S1[i, j, k] -> S1[")
    assert flow[0].instances(M=1, N=2, K=3) == [((0, 0), (0, 0, 0)), ((0, 1), (0, 1, 0))]
    assert len(s.dependences("RAW", value_based=False)[1].instances(M=1, N=1, K=4)) == 6
    with pytest.raises(ArgumentError, match="need a value for M, K"):
        flow[0].instances(N=2)


@pytest.mark.parametrize("name", ["gemm", "trmm", "cholesky", "mvt", "jacobi-1d"])
def test_flops_are_those_that_python_does(name: str) -> None:
    """Counted by numbers that count their own operations."""
    k = polybench.load(name)
    sizes = {n: 4 for n in k.sizes["MINI"]}
    values = k.inputs(sizes, np.random.default_rng(0))
    constants = {n: v for n, v in values.items() if isinstance(v, int)}
    flops = Schedule.start(k.exact.scop(**constants)).count("flops")
    done = Counted.run(k.exact.fn, values, sizes)
    assert flops.exact and flops({n: sizes[n] for n in flops.names}) == done


class Counted(float):
    """A float that counts the arithmetic done with it."""

    total = 0

    @staticmethod
    def run(fn: object, values: dict[str, object], sizes: dict[str, int]) -> int:
        from types import FunctionType

        assert isinstance(fn, FunctionType)
        Counted.total = 0
        given = {n: _boxed(v) if isinstance(v, np.ndarray) else Counted(v) if isinstance(v, float) else v
                 for n, v in values.items()}  # fmt: skip
        world = {**fn.__globals__, **sizes, "sqrt": _root}
        copy = FunctionType(fn.__code__, world, fn.__name__, fn.__defaults__)
        copy.__kwdefaults__ = fn.__kwdefaults__
        copy(**given)
        return Counted.total


def _counting(name: str) -> object:
    plain = getattr(float, name)

    def method(self: float, other: float) -> Counted:
        Counted.total += 1
        return Counted(plain(float(self), float(other)))

    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv"):
    setattr(Counted, f"__{_name}__", _counting(f"__{_name}__"))


def _boxed(a: np.ndarray) -> np.ndarray:
    out = np.empty(a.shape, object)
    out.flat = [Counted(x) for x in a.flat]
    return out


def _root(x: float) -> Counted:
    Counted.total += 1
    return Counted(abs(float(x)) ** 0.5)
