"""Who touches which cell of a promoted buffer, and which element of which array it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

import islpy as isl

from polyc.emit.loop_ir.loops import Function
from polyc.emit.proof.read_back import Lifetime, Place, WrongLoops
from polyc.emit.proof.values import Executed, Use
from polyc.poly.expr import Expr, Load, Var
from polyc.poly.forms.affine import NotAffine
from polyc.poly.records import dataclass


@dataclass(frozen=True, eq=False)
class Copy:
    """A store between `life`'s buffer and its home: an array, or a buffer around it. `fill`: into
    the buffer. The subscripts are over the loop variables."""

    place: Place
    life: Lifetime
    home: str
    home_life: Lifetime | None
    fill: bool
    cell: tuple[Expr, ...]
    home_index: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Touch:
    """An access of a cell: `at` `{ [vars] -> [t, cell] }`, t the variables of the loops around the
    lifetime, and `element` `{ [vars] -> [t, element] }`.

    `certain`: a write that is performed wherever `at` is defined. `use` is the statement's access.
    """

    place: Place
    at: isl.Map
    element: isl.Map
    cell: tuple[Expr, ...]
    write: bool
    certain: bool
    use: Use | None = None

    def meets(self, other: Touch) -> isl.Map:
        """`{ [vars] -> [vars of other] }`: the runs that touch one cell in one lifetime."""
        return self.at.apply_range(other.at.reverse())

    @property
    def stands(self) -> isl.Map:
        """`{ [t, cell] -> [t, element] }`."""
        return self.at.reverse().apply_range(self.element)


@dataclass(eq=False)
class Book:
    """What is known of one lifetime of a buffer for `array`.

    `touches` are those of statements and of the copies of buffers inside; `fills` and `drains` are
    its own copies. `holds` `{ [t, cell] -> [t, element] }` is what the cells stand for, `changes`
    the part that statements may write. `users` are all statements that access the array
    in the lifetime, through this buffer or one inside, with `{ [vars] -> [t, element] }`.
    """

    life: Lifetime
    array: str = ""
    copies: list[Copy] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)
    fills: list[Touch] = field(default_factory=list)
    drains: list[Touch] = field(default_factory=list)
    holds: isl.Map | None = None
    changes: isl.Map | None = None
    users: list[tuple[Executed, Use, isl.Map]] = field(default_factory=list)


class Books:
    """The books of all buffers, innermost first."""

    def __init__(self, fn: Function, places: Sequence[Executed], others: Sequence[Place]) -> None:
        self.fn = fn
        self.places = places
        self.of: dict[int, Book] = {}
        for place in others:
            copy = self.copy(place)
            self.book(copy.life).copies.append(copy)
            if copy.home_life is not None:
                self.book(copy.home_life)
        for x in places:
            for use in x.uses:
                if use.life is not None:
                    self.name(self.book(use.life), use.array)
        for book in self:
            for copy in book.copies:
                self.name(book if copy.home_life is None else self.book(copy.home_life), self.home_array(copy))
        for x in places:
            for use in x.uses:
                self.enter_use(x, use)

    def __iter__(self) -> Iterator[Book]:
        return iter(sorted(self.of.values(), key=lambda b: -len(b.life.outer)))

    def fail(self, life: Lifetime, what: str) -> WrongLoops:
        """The error that says `what` is wrong with a buffer."""
        return WrongLoops("buffers", f"{self.fn.name}: buffer '{life.buffer.name}' {what}")

    def book(self, life: Lifetime) -> Book:
        """The book of a lifetime, begun where there is none."""
        return self.of.setdefault(id(life), Book(life))

    def name(self, book: Book, array: str) -> None:
        """Enter the array that a buffer stands for.

        Raises:
            WrongLoops: it stands for another one already.
        """
        if book.array not in ("", array):
            raise self.fail(book.life, f"stands for '{book.array}' and for '{array}'")
        book.array = array

    def home_array(self, copy: Copy) -> str:
        """The array that a copy moves elements of, also from buffer to buffer."""
        return copy.home if copy.home_life is None else self.book(copy.life).array

    def copy(self, place: Place) -> Copy:
        """The store of `place`, which belongs to no statement, as a copy."""
        store = place.store
        if place.guard is not None:
            place = place.narrowed(place.guard)
        stray = WrongLoops("buffers", f"{self.fn.name}: a store to '{store.array}' belongs to no statement")
        if store.mask is not None or store.reduction is not None or not isinstance(store.value, Load):
            raise stray
        to, source = place.lifetimes.get(store.array), place.lifetimes.get(store.value.array)
        fill = to is not None and (source is None or source in to.outer)
        drain = source is not None and (to is None or to in source.outer)
        if place.opaque or not (fill or drain):
            raise stray
        target, value = (store.array, to, store.index), (store.value.array, source, store.value.index)
        (_, inner, cell), (home, home_life, index) = (target, value) if fill else (value, target)
        assert inner is not None
        return Copy(place, inner, home, home_life, fill, cell, index)

    def elements(self, use: Use, shared: int) -> isl.Set | None:
        """`{ [s, element] }`: what a statement's access touches, s so many outer loops' variables;
        None where it depends on data."""
        outer = tuple(Var(loop.var) for loop in use.place.loops[:shared])
        try:
            touched = isl.Map.from_pw_multi_aff(use.place.function((*outer, *use.element)))
        except NotAffine:
            return None
        return touched.intersect_domain(use.where).range()

    def map(self, place: Place, life: Lifetime, where: isl.Set, index: tuple[Expr, ...]) -> isl.Map:
        """`{ [vars] -> [t, index] }` on `where`."""
        t = tuple(Var(loop.var) for loop in life.loops)
        try:
            return isl.Map.from_pw_multi_aff(place.function((*t, *index))).intersect_domain(where)
        except NotAffine as e:
            raise self.fail(life, f"has a subscript that is not affine ({e})") from None

    def standing_for(self, array: str, lifetimes: Sequence[Lifetime]) -> Lifetime | None:
        """The innermost of the lifetimes (outermost first) whose buffer stands for elements of `array`."""
        known = [n for n in lifetimes if id(n) in self.of and self.of[id(n)].array == array]
        return known[-1] if known else None

    def enter_use(self, x: Executed, use: Use) -> None:
        """One access of a statement; inside a lifetime nothing may go past its buffer."""
        around = self.standing_for(use.array, tuple(use.place.lifetimes.values()))
        if around is not use.life:
            life = use.life if around is None else around
            assert life is not None
            raise self.fail(life, f"is passed by: {x.stmt.name} accesses '{use.array}' itself")
        if around is None:
            return
        at = self.map(use.place, around, use.where, use.cell)
        element = self.map(use.place, around, use.where, use.element)
        certain = use.write and x.certain
        self.book(around).touches.append(Touch(use.place, at, element, use.cell, use.write, certain, use))
        for life in (*around.outer, around):
            if id(life) in self.of and self.of[id(life)].array == use.array:
                self.of[id(life)].users.append((x, use, self.map(use.place, life, use.where, use.element)))
