"""A budget for isl: stop after so many operations and carry on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

from poly.errors import PolycError


class QuotaExceeded(PolycError):
    """isl used up its operations; callers record it and fall back."""


@contextmanager
def quota(operations: int) -> Iterator[None]:
    """Run the body with at most `operations` isl operations.

    Raises:
        QuotaExceeded: the body needed more.
    """
    ctx = isl.DEFAULT_CONTEXT
    before = ctx.get_max_operations()
    ctx.reset_operations()
    ctx.set_max_operations(operations)
    try:
        yield
    except isl.Error as error:
        # Once the budget is gone every isl call fails, some with messages of their own.
        raise QuotaExceeded(f"isl gave up within {operations} operations ({_reason(error)})") from None
    finally:
        ctx.set_max_operations(before)
        ctx.reset_operations()


def _reason(error: isl.Error) -> str:
    return str(error).partition(" failed: ")[2].partition(" in /")[0] or str(error)
