"""Bags of embeddings, and gradients of embeddings by frequency, in kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import polyc.torch  # noqa: E402

F = torch.nn.functional
IDS = [1, 2, 4, 5, 4, 3, 2, 2]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _results(program, *tensors) -> list[torch.Tensor]:
    given = [t.clone().requires_grad_() if t.is_floating_point() else t for t in tensors]
    found = program(*given)
    with torch.no_grad():
        alone = program(*given)
    return [found, alone, *torch.autograd.grad(found.square().sum(), [t for t in given if t.requires_grad])]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("mode", "offsets", "last", "padding", "factors"),
    [
        ("sum", [0, 3, 3], False, None, False),
        ("sum", [0, 3, 3, 8], True, 2, True),
        ("mean", [0, 0, 5], False, 4, False),
        ("mean", [0, 8], True, None, False),
        ("max", [0, 3, 3], False, None, False),
        ("max", [0, 3, 4, 8], True, 4, False),
    ],
)
def test_bags(mode: str, offsets: list[int], last: bool, padding: int | None, factors: bool) -> None:
    """Also empty ones, and those of nothing but the padding."""

    def program(w, ids, offsets, *by):
        return F.embedding_bag(
            ids, w * 2, offsets, mode=mode, include_last_offset=last, padding_idx=padding,
            per_sample_weights=by[0] if by else None,
        ) + 1  # fmt: skip

    w, ids = torch.randn(6, 5), torch.tensor(IDS)
    given = [w, ids, torch.tensor(offsets), *([torch.randn(8)] if factors else [])]
    ours = _results(polyc.torch.compile(program, strict=True), *given)
    torch.testing.assert_close(ours, _results(program, *given))


def test_the_other_results_of_a_bag() -> None:
    def program(w, ids, offsets):
        return torch._embedding_bag(w, ids, offsets, False, 2, False, None, False, 4)

    given = torch.randn(6, 5), torch.tensor(IDS), torch.tensor([0, 4, 4, 5])
    for ours, eager in zip(polyc.torch.compile(program, strict=True)(*given), program(*given), strict=True):
        assert torch.equal(ours, eager)


def test_what_is_behind_the_last_offset_is_in_no_bag() -> None:
    def program(w, ids, offsets):
        return F.embedding_bag(ids, w, offsets, mode="mean", include_last_offset=True)

    w, ids = torch.randn(6, 5), torch.tensor(IDS)
    ours = _results(polyc.torch.compile(program, strict=True), w, ids, torch.tensor([0, 3, 6]))
    torch.testing.assert_close(ours, _results(program, w, ids[:6], torch.tensor([0, 3, 6])))


def test_bags_of_no_indices() -> None:
    def program(w, ids, offsets):
        return F.embedding_bag(ids, w, offsets)

    given = torch.randn(6, 5), torch.zeros(0, dtype=torch.int64), torch.tensor([0, 0])
    torch.testing.assert_close(_results(polyc.torch.compile(program, strict=True), *given), _results(program, *given))


def test_sparse_gradients_are_torchs() -> None:
    def program(w, ids, offsets):
        return F.embedding_bag(ids, w, offsets, mode="sum", sparse=True)

    given = torch.randn(6, 5), torch.tensor(IDS), torch.tensor([0, 3])
    ours, eager = _results(polyc.torch.compile(program), *given), _results(program, *given)
    assert ours[2].layout == eager[2].layout == torch.sparse_coo
    torch.testing.assert_close(ours[2].to_dense(), eager[2].to_dense())


def test_gradients_by_frequency() -> None:
    """Of bags as torch's documentation says: eager mode of 2.13 has other divisors (torch's issue 190063)."""
    ids = torch.tensor(IDS)
    often = torch.bincount(ids, minlength=6).clamp(min=1)[:, None]

    def rows(w, ids, by):
        return F.embedding(ids, w, scale_grad_by_freq=by, padding_idx=3)

    def bags(w, ids, by):
        return F.embedding_bag(ids, w, torch.tensor([0, 3]), mode="mean", scale_grad_by_freq=by)

    w = torch.randn(6, 5)
    for program in (rows, bags):
        _, _, ours = _results(polyc.torch.compile(lambda *a, p=program: p(*a, True), strict=True), w, ids)
        torch.testing.assert_close(ours, _results(lambda *a, p=program: p(*a, False), w, ids)[2] / often)
    _, _, eager = _results(lambda *a: rows(*a, True), w, ids)
    torch.testing.assert_close(_results(polyc.torch.compile(lambda *a: rows(*a, True)), w, ids)[2], eager)
