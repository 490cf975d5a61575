"""The order of a tree: loops that are iterators are compared as dimensions, without relations of functions."""

from __future__ import annotations

import islpy as isl
import pytest
import small_scops as scops

from polyc.poly.ordering.one_dim import forms
from polyc.poly.ordering.order import in_order
from polyc.poly.scop import Scop
from polyc.poly.tree import loop_dim, loops_below


def every_pair(scop: Scop) -> dict[tuple[str, str], isl.Map]:
    """All pairs of instances."""
    domains = [s.domain for s in scop.statements.values()]
    names = list(scop.statements)
    return {(a, b): isl.Map.from_domain_and_range(x, y) for a, x in zip(names, domains) for b, y in zip(names, domains)}


@pytest.mark.parametrize("make", [scops.matmul, scops.lu, scops.seidel])
def test_dimensions_give_the_order_that_functions_give(make, monkeypatch: pytest.MonkeyPatch) -> None:
    scop = make()
    found = in_order(scop, every_pair(scop))
    monkeypatch.setattr(type(forms(scop)), "iterators", lambda *_: None)
    by_functions = in_order(scop, every_pair(scop))
    assert found.keys() == by_functions.keys()
    assert all(found[key].is_equal(m) for key, m in by_functions.items())


@pytest.mark.parametrize("make", [scops.matmul, scops.lu, scops.seidel])
def test_iterators_are_recognised(make) -> None:
    """A quarter of the time of an automatic schedule was spent on comparing functions of them."""
    scop = make()
    known = forms(scop)
    loops = loops_below(scop.tree)
    values = [(s, pa) for m in loops for s, pa in m.schedule.items()]
    assert values
    for name, pa in values:
        at = known.iterators(pa, pa)
        assert at is not None and at[0] == at[1]
        assert pa.is_equal(loop_dim(scop.statements[name].domain, at[0]))


@pytest.mark.parametrize("text", ["-i", "i + 1", "i + N", "2i", "floor(i/2)", "i mod 2", "i + j"])
def test_what_is_no_iterator_is_none(text: str) -> None:
    pa = isl.PwAff(f"[N] -> {{ S[i, j] -> [({text})] }}")
    known = forms(scops.matmul())
    assert known.iterators(pa, pa) is None
