"""Strategy: sums of products of narrow integers multiply words of two or four numbers where the machine has an
instruction for that (step `in_words`), before anything else is decided about them: what comes out is a contraction."""

from __future__ import annotations

from polyc.poly.expr import Expr, Var, loads, variables
from polyc.poly.hooks import resolve
from polyc.scheduler.cost.words import pays
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.transformations.words import NAMES, product_of


def products_of_words(plan: Planner) -> None:
    """Words for the products of each statement, as many numbers in one as the machine multiplies at once."""
    own = resolve("own_instructions")(plan.target)
    for name in list(plan.scop.statements):
        for count in sorted((c for c, word in NAMES.items() if word in own), reverse=True):
            s = plan.scop.statements[name]
            found = product_of(plan.scop, s, count)
            if isinstance(found, str) or not pays(s, (found.a, found.b)):
                continue
            if not (_plain(found.a) and _plain(found.b)):
                plan.decline(f"products of {name}", "one by one", "windows of an image would be stored several times")
            elif plan.attempt(f"products of {name}", f"{count} in a word", lambda t, n=name, c=count: t.in_words(n, c)):  # type: ignore[misc]
                break


def _plain(e: Expr) -> bool:
    """Whether each subscript of what a factor reads has one iterator: words are as many as what they hold."""
    return all(len(variables(x)) < 2 or isinstance(x, Var) for load in loads(e) for x in load.index)
