"""How a kernel was made, so that another process can make it again (and so that it can be drawn)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyc.emit import targets
from polyc.poly.json_io import dump_tree, dumps, load_tree
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Node

if TYPE_CHECKING:
    from polyc.emit.kernel import Kernel


KEPT = 32  # kernels that a process remembers


@dataclass(frozen=True)
class Recipe:
    """`make(scop, tree, target, *rest)` compiles the kernel."""

    make: Callable[..., Kernel]
    scop: Scop
    tree: Node
    target: Any
    rest: tuple[Any, ...]

    def parts(self) -> tuple[Any, ...]:
        """The arguments of `made`."""
        runs_here = isinstance(self.target, Target) and targets.obstacle(self.target) is None
        return self.make, self.scop, dump_tree(self.tree), self.target, runs_here, self.rest


_made: OrderedDict[tuple[Any, ...], Kernel] = OrderedDict()


def made(make: Any, scop: Scop, tree: str, target: Any, ran: bool, rest: tuple[Any, ...]) -> Kernel:
    """The kernel; a worker that gets it with every task compiles it once.

    One that ran where it was pickled (`ran`) runs here: if need be its code is for this machine.

    Raises:
        BuildError: it cannot be compiled here.
    """
    if ran and targets.obstacle(target) is not None:
        target = targets.get(None)
    key = make, dumps(scop), tree, target, rest
    found = _made.pop(key, None) or make(scop, load_tree(tree), target, *rest)
    _made[key] = found
    while len(_made) > KEPT:
        _made.popitem(last=False)
    return found
