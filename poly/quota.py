"""A budget for isl: stop after so many operations and carry on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

from polyc.poly.errors import PolycError


class QuotaExceeded(PolycError):
    """isl used up its operations; callers record it and fall back. `spent`: it really did; otherwise a call of
    isl failed for a reason of its own."""

    code = "P006"

    spent = True


@contextmanager
def quota(operations: int) -> Iterator[None]:
    """Run the body with at most `operations` isl operations, and no more than a quota around it has left.

    What the body uses counts there, too. isl has one counter, so a quota inside another begins it anew and
    afterwards leaves the outer one its limit less what it had used before and what the body used.

    Raises:
        QuotaExceeded: the body needed more.
    """
    ctx = isl.DEFAULT_CONTEXT
    around = ctx.get_max_operations()
    left = max(1, around - _used(around)) if around else 0
    limit = min(operations, left) if left else operations
    ctx.reset_operations()
    ctx.set_max_operations(limit)
    try:
        yield
    except (isl.Error, TypeError) as error:
        # Once the budget is gone every isl call fails, some with messages of their own; `Val.to_python` gives `int` a
        # text that there is not.
        given_up = QuotaExceeded(f"isl gave up within {limit} operations ({_reason(error)})")
        # A quota inside the body has left less than `limit`, and the counter at nought. (`_used` changes the limit.)
        allowed = min(limit, ctx.get_max_operations() or limit)
        given_up.spent = _used(allowed) >= allowed
        if isinstance(error, TypeError) and not given_up.spent:
            raise
        raise given_up from None
    finally:
        spent = _used(limit) if left else 0
        ctx.reset_operations()
        ctx.set_max_operations(max(1, left - spent) if left else 0)


def _used(limit: int) -> int:
    """The operations since the counter began, `limit` at most. isl does not tell, but an operation fails
    exactly when the limit is not above the counter: a search by halves (about 25 tiny operations)."""
    low, high = 0, limit  # the counter is in low .. high
    while low < high:
        middle = (low + high) // 2
        if _passes(middle + 1):
            high = middle
        else:
            low = middle + 1
    return low


def _passes(limit: int) -> bool:
    """Whether one more operation is allowed under this limit."""
    isl.DEFAULT_CONTEXT.set_max_operations(limit)
    try:
        isl.Val(0)
    except isl.Error:
        return False
    return True


def _reason(error: Exception) -> str:
    return str(error).partition(" failed: ")[2].partition(" in /")[0] or str(error)
