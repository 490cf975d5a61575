"""The pass pipeline: from the loops of isl's AST to loops that emitters print as they stand."""

from __future__ import annotations

from collections.abc import Callable

from emit.loops import Function
from emit.passes.simplify import simplify
from emit.rewrite import unique_names
from emit.verify import verify
from poly.target import Target

Pass = Callable[[Function, Target], Function]


def passes(vectorise: bool = True) -> tuple[tuple[str, Pass], ...]:
    """Name and function of every pass, in order."""
    return (("simplify", lambda fn, target: simplify(fn)),)


def run_passes(fn: Function, target: Target, vectorise: bool = True) -> Function:
    """Run all passes, with the verifier after each.

    Raises:
        BuildError: a pass broke a rule of the loop IR (the message names the pass).
    """
    verify(fn, "loop generation")
    for name, step in passes(vectorise):
        fn = unique_names(step(fn, target))
        verify(fn, name)
    return fn
