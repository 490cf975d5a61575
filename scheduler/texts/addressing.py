"""Loops by name or by pattern.

A pattern has one of `* ? [` and is matched as file names are: `i*` is every loop whose name
begins with i. After a statement's name and a dot it is matched against the loops around that
statement only: `S0.*` is all of them, `S0.*.in` those that end in `.in`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from polyc.poly.errors import ScheduleError
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, loop_names, loops_around

if TYPE_CHECKING:
    from polyc.scheduler.core import Core

Method = TypeVar("Method", bound=Callable[..., Any])


def is_pattern(name: str) -> bool:
    """Whether the name is to be matched rather than looked up."""
    return any(c in name for c in "*?[")


def matching(scop: Scop, tree: Node, name: str) -> list[str]:
    """The loops that a name or pattern stands for, outermost and textually first first.

    Raises:
        ScheduleError: there are none; the text lists the loops there are.
    """
    if not isinstance(name, str):
        raise ScheduleError(f"a loop is addressed by its name, not by {name!r}")
    have = loop_names(tree)
    if not is_pattern(name):
        if name not in have:
            raise unknown(tree, name)
        return [name]
    statement = max((s for s in scop.statements if name.startswith(s + ".")), key=len, default=None)
    if statement is None:
        found = [n for n in have if fnmatchcase(n, name)]
    else:
        around = [m.name for m in loops_around(tree, statement)]
        found = [n for n in around if fnmatchcase(n, name[len(statement) + 1 :])]
    if not found:
        raise ScheduleError(f"no loop matches '{name}': the loops are {', '.join(have) or 'none'}")
    return found


def one(scop: Scop, tree: Node, name: str) -> str:
    """The single loop that a name or pattern stands for. Raises `ScheduleError`."""
    found = matching(scop, tree, name)
    if len(found) > 1:
        raise ScheduleError(f"one loop is needed, but '{name}' matches {', '.join(found)}")
    return found[0]


def several(scop: Scop, tree: Node, names: Sequence[str] | str) -> list[str]:
    """The loops that names and patterns stand for, in the order given."""
    return [n for name in ([names] if isinstance(names, str) else names) for n in matching(scop, tree, name)]


def unknown(tree: Node, name: str) -> ScheduleError:
    """The error for a loop that does not exist: the loops there are, and the nearest name."""
    have = loop_names(tree)
    near = get_close_matches(name, have, 1)
    guess = f" (did you mean '{near[0]}'?)" if near else ""
    return ScheduleError(f"no loop '{name}': the loops are {', '.join(have) or 'none'}{guess}")


def each_loop(method: Method) -> Method:
    """Let a transformation of one `loop` take a pattern: it is applied to each match in turn."""
    signature = inspect.signature(method)
    names = tuple(signature.parameters)[1:]
    needed = {n for n in names if signature.parameters[n].default is inspect.Parameter.empty}

    @wraps(method)
    def apply(self: Core, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(given) != len(args) + len(kwargs) or not needed <= given.keys() <= set(names):
            signature.bind(self, *args, **kwargs)  # raises `TypeError`, with what is wrong
        for loop in matching(self.scop, self.tree, given["loop"]):
            self = method(self, **{**given, "loop": loop})
        return self

    return cast(Method, apply)
