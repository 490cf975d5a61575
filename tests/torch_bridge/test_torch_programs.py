"""What programs do beside layers: views, in-place operators, random numbers, element types, sizes, modes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import polyc  # noqa: E402
import polyc.torch  # noqa: E402
from polyc import dims, empty, f32, grid, op  # noqa: E402

N, M = dims("N M")
nn, F = torch.nn, torch.nn.functional
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def same(got, wanted, atol: float = 1e-5) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=atol)


def test_sizes_of_each_call() -> None:
    ours = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32))
    theirs = copy.deepcopy(ours)
    compiled = polyc.torch.compile(ours, dynamic=True)
    before = len(polyc.torch.compilations())
    for batch in (3, 7, 7, 2, 50):
        x = torch.randn(batch, 16)
        for module, run in ((ours, compiled), (theirs, theirs)):
            module.zero_grad()
            run(x).square().sum().backward()
        same(compiled(x), theirs(x))
        same(ours[0].weight.grad, theirs[0].weight.grad, 1e-4)
    made = polyc.torch.compilations()[before:]
    assert [c.pass_ for c in made] == ["forward", "backward"]  # one program for all sizes
    assert not any(c.numbers_because for c in made)


def _attention(x, w):
    q, k, v = (x @ w).chunk(3, dim=-1)
    return F.scaled_dot_product_attention(q, k, v)


def _resized(x, w):
    y = x.reshape(x.shape[0] * x.shape[1], -1)
    return (y @ w[: y.shape[1]]).mean(0), y.shape[0] + 1


def _images(x, w):
    return F.conv2d(x[:, None], w[:4, :9].reshape(4, 1, 3, 3), padding=1).mean((2, 3))


def _not_ours(x, w):
    return torch.special.bessel_j0(x) + 1


@pytest.mark.parametrize("program", [_attention, _resized, _images, _not_ours])
def test_programs_with_symbolic_sizes(program) -> None:
    w = torch.randn(12, 36)
    torch._dynamo.mark_static(w)
    compiled, before = polyc.torch.compile(program, dynamic=True), len(polyc.torch.compilations())
    for batch, length in ((3, 5), (7, 4), (2, 9), (3, 5)):
        x = torch.randn(batch, length, 12)
        got, wanted = compiled(x, w), program(x, w)
        if isinstance(wanted, tuple):
            assert got[1] == wanted[1]
            got, wanted = got[0], wanted[0]
        same(got, wanted)
    made = polyc.torch.compilations()[before:]
    reasons = [c.numbers_because for c in made if c.numbers_because]
    assert len(made) == (3 if reasons else 1)
    assert bool(reasons) == (program is _not_ours), reasons
    assert all("bessel_j0" in r and "eager" in r for r in reasons)


def test_autocast_computes_in_bf16() -> None:
    ours = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
    theirs, x = copy.deepcopy(ours), torch.randn(16, 32)
    compiled = polyc.torch.compile(ours)
    with torch.autocast("cpu", torch.bfloat16):
        got, wanted = compiled(x), theirs(x)
    assert got.dtype is torch.bfloat16
    same(got.float(), wanted.float(), 2e-2)
    got.float().square().sum().backward()
    wanted.float().square().sum().backward()
    difference = (ours[0].weight.grad - theirs[0].weight.grad).norm() / theirs[0].weight.grad.norm()
    assert difference < 1e-2


def test_views_and_updates_in_place() -> None:
    def program(x, y):
        x = x.clone()
        x[:, 1:3].mul_(2)
        v = x.t()
        v.add_(y.t())
        y.add_(1)
        return v, x[0]

    x, y = torch.randn(4, 5), torch.randn(4, 5)
    other = y.clone()
    wanted, got = program(x, y), polyc.torch.compile(program)(x, other)
    same([*got, other], [*wanted, y])
    assert [r.stride() for r in got] == [r.stride() for r in wanted]


def test_random_numbers_are_those_of_eager_mode() -> None:
    def program(x):
        return F.dropout(F.dropout(x, 0.3) + torch.rand(50), 0.5) * torch.randn(50)

    def run(f):
        torch.manual_seed(3)
        y = f(x)
        return [y, *torch.autograd.grad(y.square().sum(), x)]

    x = torch.randn(40, 50, requires_grad=True)
    same(run(polyc.torch.compile(program)), run(program))


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
            self.out.weight = self.words.weight

        def forward(self, ids):
            return self.out(self.words(ids))

    ours, ids = Tied(), torch.randint(0, 20, (6,))
    theirs = copy.deepcopy(ours)
    polyc.torch.compile(ours, strict=True)(ids).square().sum().backward()
    theirs(ids).square().sum().backward()
    same(ours.words.weight.grad, theirs.words.weight.grad, 1e-4)


def test_element_types_together_and_those_that_polyc_has_not() -> None:
    def program(a, b, c):
        z = torch.view_as_complex(a.reshape(3, 2, 2)) * 2
        return (a + b) * c.sum(), (c > 0).float().mean(), a.double().sum(0), z, z.real + 1

    args = torch.randn(3, 4), torch.randint(0, 5, (4,)), torch.randint(0, 5, (2,), dtype=torch.int32)
    same(polyc.torch.compile(program)(*args), program(*args))


def test_channels_last_stays() -> None:
    module = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last)
    got, wanted = polyc.torch.compile(copy.deepcopy(module))(x), module(x)
    same(got, wanted)
    assert got.stride() == wanted.stride()


def test_modes_and_breaks() -> None:
    def program(x):
        y = x.relu()
        torch._dynamo.graph_break()
        return y.softmax(-1)

    x, compiled = torch.randn(5, 6), polyc.torch.compile(program)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            same(compiled(x), program(x))


def test_what_runs_in_eager_mode_is_named_and_refused_in_strict_mode() -> None:
    def program(x):
        return torch.special.bessel_j0(x) + 1

    x = torch.randn(3)
    said = polyc.torch.explain(program)(x)
    assert "aten.special_bessel_j0.default" in said and "Graph Count: 1" in said
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"bessel_j0.*test_torch_programs.py.*strict mode"):
        polyc.torch.compile(program, strict=True)(x)


def test_the_backend_is_found_by_its_name() -> None:
    if "polyc" not in torch._dynamo.list_backends():
        pytest.skip("polyc is not installed (pip install -e .)")
    x = torch.randn(7)
    same(torch.compile(lambda x: x.sin() * 2, backend="polyc")(x), x.sin() * 2)


def test_exported_programs() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )
    x = torch.randn(2, 3, 8, 8)
    training = polyc.compile_exported(torch.export.export(module, (x,)))
    same(training(x), module(x))
    module.eval()
    exported = polyc.compile_exported(torch.export.export(module, (x,)), strict=True)
    same(exported(x), module(x))
    batch = torch.export.Dim("batch")
    exported = polyc.compile_exported(torch.export.export(module, (x,), dynamic_shapes=({0: batch},)))
    for n in (2, 5):
        x = torch.randn(n, 3, 8, 8)
        same(exported(x), module(x))


def test_operators_of_the_users_own() -> None:
    @op
    def quadratic(X: f32[N, M], w: f32[M], a: f32) -> f32[N, M]:
        Y = empty((N, M), f32)
        for i, j in grid(N, M):
            Y[i, j] = a * X[i, j] * X[i, j] * w[j]
        return Y

    f = polyc.torch.register(quadratic)
    x, w = torch.randn(5, 7, requires_grad=True), torch.randn(7, requires_grad=True)

    def reference(x, w, a):
        return a * x * x * w

    wanted = torch.autograd.grad(reference(x, w, 3.0).square().sum(), (x, w))
    for run in (f, torch.compile(lambda x, w, a: f(x, w, a), backend=polyc.torch.polyc_backend)):
        same(run(x, w, 3.0), reference(x, w, 3.0))
        same(torch.autograd.grad(run(x, w, 3.0).square().sum(), (x, w)), wanted, 1e-3)
    torch.library.opcheck(torch.ops.polyc.quadratic, (x, w, 2.0), test_utils=("test_schema", "test_faketensor"))

    @op
    def changed(X: polyc.inout(f32[N])):
        for i in range(N):
            X[i] = X[i] * 2.0

    with pytest.raises(polyc.ArgumentError, match="in place"):
        polyc.torch.register(changed)


def test_the_page_of_operators_is_written_from_the_table() -> None:
    from polyc.graph_driver.torch_bridge.coverage import page

    if not torch.__version__.startswith("2.13."):
        pytest.skip("the page is that of torch 2.13")
    stale = "python -m polyc.graph_driver.torch_bridge.coverage > docs/torch-coverage.md"
    assert (DOCS / "torch-coverage.md").read_text(encoding="utf-8") == page(), stale


def test_recurrent_layers() -> None:
    ours = nn.GRU(4, 4, batch_first=True)
    theirs, x, before = copy.deepcopy(ours), torch.randn(2, 2, 4), len(polyc.torch.compilations())
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):  # else Dynamo runs them in eager mode
        for got, wanted in zip(polyc.torch.compile(ours, strict=True)(x), theirs(x), strict=True):
            same(got, wanted)
    assert len(polyc.torch.compilations()) == before + 1


def test_a_registered_operator_is_part_of_the_graph() -> None:
    @op
    def weighted(X: f32[N, M], w: f32[M], alpha: f32) -> f32[N, M]:
        Y = empty((N, M), f32)
        for i, j in grid(N, M):
            Y[i, j] = X[i, j] * X[i, j] * w[j] * alpha
        return Y

    own = polyc.torch.register(weighted)

    def program(x, w):
        return torch.tanh(own(torch.sin(x), w, 0.5) + 1).sum()

    found = []
    for run in (program, polyc.torch.compile(program, strict=True)):  # nothing in eager mode
        x, w = (torch.linspace(-1, 1, n).reshape(s).requires_grad_() for n, s in ((35, (5, 7)), (7, (7,))))
        out = run(x, w)
        out.backward()
        found.append((out.detach(), x.grad, w.grad))
    same(found[1], found[0])


def test_the_page_runs() -> None:
    text = (DOCS / "pytorch.md").read_text(encoding="utf-8")
    program = "\n".join(part.split("```")[0] for part in text.split("```python\n")[1:])
    if "polyc" not in torch._dynamo.list_backends():
        program = program.replace('backend="polyc"', "backend=__import__('polyc.torch').torch.polyc_backend")
    path = DOCS / "pytorch.md"
    import linecache

    linecache.cache[str(path)] = (len(program), None, program.splitlines(True), str(path))  # operators read their text
    exec(compile(program, str(path), "exec"), {"__name__": "pytorch_page"})


@pytest.mark.parametrize(
    "pads", [(3, 2), (-2, 4), (0, -6), (1, 2, 3, 0), (-1, 2, 1, -3), (1, 1, 2, 0, 0, 3)], ids=lambda pads: str(pads)
)
@pytest.mark.parametrize("extent", [7, 16])
def test_edges_that_are_repeated_have_gradients(pads: tuple[int, ...], extent: int) -> None:
    x = torch.randn(2, 3, *(extent + k for k in range(len(pads) // 2)), requires_grad=True)
    adjoint = None
    found = []
    for f in (polyc.torch.compile(_edges, strict=True), _edges):
        y = f(x, pads)
        adjoint = torch.randn_like(y) if adjoint is None else adjoint
        found.append(torch.autograd.grad(y, x, adjoint)[0])
    same(*found)


def _edges(x, pads):
    return torch.nn.functional.pad(x * 2, pads, mode="replicate")
