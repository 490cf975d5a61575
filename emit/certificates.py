"""The certificate of every access of a Scop: what it is that keeps it inside its array."""

from __future__ import annotations

from collections.abc import Iterator

from polyc.emit.lowering.checks import plan
from polyc.poly.access import accesses
from polyc.poly.certificates import open_sites
from polyc.poly.expr import Load
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.text import print_expr

PROVEN, BEFORE, INSIDE, UNCHECKED = "proven", "checked before", "checked inside", "not checked"


@dataclass(frozen=True, slots=True)
class Certificate:
    """One access as the program has it: `access` is its text, `line` that of the source (None: unknown), `how` one of
    the words above."""

    array: str
    access: str
    write: bool
    line: int | None
    how: str

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}, "
        return f"{self.access} ({place}{'written' if self.write else 'read'}): {self.how}"


def certificates(scop: Scop, checks: bool = True, gpu: bool = False) -> tuple[Certificate, ...]:
    """Every access of the program, in its order, each once a line.

    Args:
        checks: whether the kernel checks what is not proven.
        gpu: whether the kernel is for a GPU, which checks all of it inside.
    """
    return tuple(dict.fromkeys(_all(scop, checks, gpu)))


def _all(scop: Scop, checks: bool, gpu: bool) -> Iterator[Certificate]:
    made = plan(scop, gpu) if checks else None
    how: dict[tuple[str, Load], str] = {}
    for number, site in enumerate(open_sites(scop)):
        late = made is not None and made.checks[number].how == "in the loop"
        word = UNCHECKED if made is None else INSIDE if late else BEFORE
        key = (site.statement, site.load)
        how[key] = INSIDE if how.get(key) == INSIDE else word
    for a in accesses(scop):
        span = a.load.span or scop.statements[a.stmt].span
        expanded = scop.arrays[a.array].expanded
        index = ", ".join(print_expr(e) for e in a.load.index[expanded:])
        text = f"{a.array}[{index}]" if index or not a.load.index else a.array
        yield Certificate(
            a.array, text, a.write, None if span is None else span.line, how.get((a.stmt, a.load), PROVEN)
        )
