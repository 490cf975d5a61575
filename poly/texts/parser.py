"""A Scop from the exact text that `polyc.poly.texts.printer.exact_scop` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import islpy as isl

from polyc.poly.dtypes import DType
from polyc.poly.errors import ScopError
from polyc.poly.expr import Expr
from polyc.poly.records import dataclass
from polyc.poly.scop import Array, DynamicBound, LoopMark, Scop, Statement
from polyc.poly.texts.expressions import Expressions, type_named
from polyc.poly.texts.words import WORD, WrongTextError, unquoted
from polyc.poly.tree import Band, Filter, Layout, Leaf, Member, Node, Promote, Sequence
from polyc.poly.verify import verify
from polyc.poly.words import first_line

Made = TypeVar("Made")
_WORDS = rf"((?:{WORD}(?:, {WORD})*)?)"
_FACTOR = r"(?: (-?\d+))?"
_DEEPEST = 400


def parse_scop(text: str) -> Scop:
    """The Scop that `exact_scop` has written.

    Raises:
        ScopError: the text is none, or the Scop breaks a rule; one line with the line's number.
    """
    reader = _Reader(text)
    scop = reader.guarded(reader.scop)
    try:
        verify(scop)
    except ScopError as error:
        line = reader.places.get(error.about, reader.lines[0].number)
        raise ScopError(f"Scop, line {line}: what stands here breaks a rule: {first_line(error)}") from None
    return scop


def parse_tree(text: str) -> Node:
    """The schedule tree that `exact_tree` has written. Raises `ScopError`, as `parse_scop` does."""
    reader = _Reader(text)
    return reader.guarded(lambda: reader.whole_tree(0))


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    depth: int


class _Reader:
    """Line by line, by indentation."""

    def __init__(self, text: str) -> None:
        self.lines = [
            _Line(n, raw.strip(), (len(raw) - len(raw.lstrip(" "))) // 2)
            for n, raw in enumerate(text.split("\n"), 1)
            if raw.strip()
        ]
        self.at = 0
        self.places: dict[str, int] = {}
        """Lines of arrays, statements and the schedule, as `ScopError.about` names them."""
        self.expressions = Expressions({})

    def guarded(self, read: Callable[[], Made]) -> Made:
        """What `read` makes; anything wrong as one line."""
        if not self.lines:
            raise ScopError("Scop, line 1: the text is empty")
        try:
            return read()
        except WrongTextError as error:
            said = str(error)
        except isl.Error:
            said = "isl cannot read this set or function"
        except RecursionError:
            said = "this is nested too deeply"
        line = self.lines[min(self.at, len(self.lines) - 1)]
        raise ScopError(f"Scop, line {line.number}: {_short(said)}: {_short(line.text)}") from None

    # ---- lines -----------------------------------------------------------------------------

    def match(self, pattern: str, depth: int, form: str) -> re.Match[str]:
        """The present line, which has to be of this form."""
        found = self.matching(pattern, depth)
        if found is None:
            raise WrongTextError(f"here the text has the form '{form}', indented by {2 * depth}")
        return found

    def matching(self, pattern: str, depth: int) -> re.Match[str] | None:
        """The present line, if it is of this form and as far to the right."""
        if self.at >= len(self.lines) or self.lines[self.at].depth != depth:
            return None
        return re.fullmatch(pattern, self.lines[self.at].text)

    # ---- Scops -----------------------------------------------------------------------------

    def scop(self) -> Scop:
        """All of it."""
        pattern = rf"scop ({WORD})\({_WORDS}\) -> \({_WORDS}\)( reassociate=False)?( fast_math=True)?"
        head = self.match(pattern, 0, "scop NAME(ARGUMENTS) -> (RESULTS)")
        self.at += 1
        sizes = self.match(rf"sizes \({_WORDS}\): (.*)", 1, "sizes (NAMES): SET")
        params, context = _names(sizes[1]), isl.Set(sizes[2])
        self.at += 1
        arrays: dict[str, Array] = {}
        while found := self.matching(
            rf"(in|out|inout|local)( scalar)? ({WORD}): (\w+)\[(.*?)\]( given as \[(.*)\])?( copies (\d+))?", 1
        ):
            made = self.array(found)
            self.fresh(made.name, arrays, "array")
            self.places[made.name] = self.lines[self.at].number
            arrays[made.name] = made
            self.at += 1
        types: dict[str, DType] = {n: a.dtype for n, a in arrays.items()}
        self.expressions = Expressions(types)
        notes, marks = [], []
        while found := self.matching(r"note (\".*\")", 1):
            notes.append(_string(found[1]))
            self.at += 1
        while found := self.matching(rf"mark ({WORD}) ([\w.]+){_FACTOR}", 1):
            marks.append(LoopMark(unquoted(found[1]), found[2], _number(found[3])))
            self.at += 1
        statements: dict[str, Statement] = {}
        while self.matching("schedule", 1) is None:
            line = self.lines[min(self.at, len(self.lines) - 1)]
            s = self.statement()
            self.fresh(s.name, statements, "statement")
            statements[s.name] = s
            self.places[s.name] = line.number
        self.places["(schedule)"] = self.lines[self.at].number
        self.at += 1
        tree = self.whole_tree(2)
        return Scop(
            unquoted(head[1]), params, context, arrays, statements, tree, _names(head[2]), _names(head[3]),
            head[4] is None, head[5] is not None, tuple(notes), tuple(marks),
        )  # fmt: skip

    def fresh(self, name: str, known: dict[str, Any], what: str) -> None:
        """Refuse a second one of a name."""
        if name in known:
            raise WrongTextError(f"there is another {what} '{name}'")

    def array(self, found: re.Match[str]) -> Array:
        """`in A: f32[M, K]`."""
        shape = self.expressions.read_all(found[5])
        given = self.expressions.read_all(found[7]) if found[6] else None
        made = Array(unquoted(found[3]), type_named(found[4]), shape, found[1], found[2] is not None)  # type: ignore[arg-type]
        return replace(made, given=given, expanded=int(found[9] or 0))

    def statement(self) -> Statement:
        """The lines of one."""
        head = self.match(rf"({WORD})\({_WORDS}\): (.*)", 1, "NAME(ITERATORS): ELEMENT = VALUE")
        target, value = self.assignment(head[3])
        self.at += 1
        domain = isl.Set(self.match(r"domain (.*)", 2, "domain SET")[1])
        self.at += 1
        predicate, reduction, dynamic = None, None, []
        if found := self.matching(r"if (.*)", 2):
            predicate = self.expressions.read(found[1])
            self.at += 1
        if found := self.matching(r"reduction (\S+)", 2):
            reduction = found[1]
            self.at += 1
        while found := self.matching(rf"({WORD}) in range\((.*)\)", 2):
            bounds = self.expressions.read_all(found[2])
            if len(bounds) != 2:
                raise WrongTextError("a range has two bounds")
            dynamic.append(DynamicBound(unquoted(found[1]), *bounds))
            self.at += 1
        return Statement(
            unquoted(head[1]), _names(head[2]), domain, target.array, target.index, value, predicate, reduction,
            tuple(dynamic),
        )  # fmt: skip

    def assignment(self, text: str) -> tuple[Any, Expr]:
        """`ELEMENT = VALUE`; the first ` = ` behind a bracket, since subscripts have none."""
        target, equals, value = text.partition("] = ")
        if not equals:
            raise WrongTextError("a statement has the form 'ELEMENT = VALUE'")
        return self.expressions.read_element(target + "]"), self.expressions.read(value)

    # ---- trees -----------------------------------------------------------------------------

    def whole_tree(self, depth: int) -> Node:
        """A tree, and nothing behind it."""
        tree = self.node(depth)
        if self.at < len(self.lines):
            raise WrongTextError("nothing may come after the schedule")
        return tree

    def node(self, depth: int) -> Node:
        """A node and those below it."""
        if depth > _DEEPEST:
            raise WrongTextError("this is nested too deeply")
        if self.matching("leaf", depth):
            self.at += 1
            return Leaf()
        if found := self.matching(r"band( permutable)?", depth):
            return self.band(found, depth)
        if self.matching("sequence", depth):
            self.at += 1
            parts: list[Filter] = []
            while self.matching("only", depth + 1):
                parts.append(self.filter(depth + 1))
            return Sequence(tuple(parts))
        if self.matching("only", depth):
            return self.filter(depth)
        pattern = (
            rf"promote ({WORD}) to (register|local|shared|heap) ({WORD})( copy_in)?( copy_out)?(?: layout \((.*)\))?"
        )
        found = self.match(pattern, depth, "leaf, band, sequence, only or promote ARRAY to SPACE BUFFER")
        layout = None if found[6] is None else layout_from(found[6])
        self.at += 1
        space: Any = found[2]
        names = unquoted(found[1]), unquoted(found[3])
        return Promote(
            names[0], names[1], space, self.node(depth + 1), layout, found[4] is not None, found[5] is not None
        )

    def band(self, head: re.Match[str], depth: int) -> Band:
        """The loops, then what is in them."""
        self.at += 1
        members = []
        while found := self.matching(rf"for ({WORD})(?: \[([\w.]+){_FACTOR}\])?( coincident)?", depth + 1):
            self.at += 1
            values = {s: isl.PwAff(text) for s, text in self.by_statement(depth + 2)}
            kind: Any = found[2] or "serial"
            members.append(Member(unquoted(found[1]), values, kind, _number(found[3]), found[4] is not None))
        if not members:
            raise WrongTextError("a band has loops: 'for NAME', with a value for each statement")
        return Band(tuple(members), self.node(depth + 1), head[1] is not None)

    def filter(self, depth: int) -> Filter:
        """The statements, then what they go to."""
        self.at += 1
        domain = {s: isl.Set(text) for s, text in self.by_statement(depth + 1)}
        return Filter(domain, self.node(depth + 1))

    def by_statement(self, depth: int) -> Iterator[tuple[str, str]]:
        """`S0: TEXT`, line by line; a line is the present one while its text is used."""
        seen: dict[str, None] = {}
        while found := self.matching(rf"({WORD}): (.*)", depth):
            name = unquoted(found[1])
            self.fresh(name, seen, "entry for")
            seen[name] = None
            yield name, found[2]
            self.at += 1


def _names(text: str) -> tuple[str, ...]:
    return tuple(unquoted(w) for w in re.findall(WORD, text))


def _string(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise WrongTextError("a note is a JSON string") from None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def layout_from(text: str) -> Layout:
    """The layout that `poly.text.layout_text` writes, without its parentheses: `d0 // 8, d1, d0 % 8`.

    Raises:
        WrongTextError: it is none.
    """
    terms = []
    for part in text.split(", "):
        found = re.fullmatch(r"d(\d+)(?: // (\d+))?(?: % (\d+))?", part)
        if found is None:
            raise WrongTextError(f"'{part}' is no term of a layout, as d0 // 8 % 2")
        terms.append((int(found[1]), int(found[2] or 1), int(found[3] or 0)))
    return tuple(terms)


def _short(text: str) -> str:
    """On one line, and no longer than people read."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."
